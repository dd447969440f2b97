"""Embeddings of texts over worker processes: async HTTP here, pure Python on as many cores as there are workers.

    python examples/cluster_embeddings.py [TEXTS] [WORKERS]

``session.map`` spreads pages of texts over the workers and keeps some under way for each, so pages are fetched while
others are embedded.  Results come in order.  The texts come from a stub server in this program.  It needs
``pip install "asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import zlib
from typing import Any

import httpx
import numpy as np

import asyncexec as ax

SIZE = 64  # of an embedding
PAGE = 50  # texts
ADJECTIVES = ["red", "old", "quiet", "wide", "bitter", "green", "heavy", "bright"]
NOUNS = ["tea", "river", "engine", "garden", "letter", "window", "mountain", "song", "bridge", "market", "coat"]
PLACES = ["from Accra", "near Bogota", "in Cairo", "of Dhaka", "by Essen"]


def text_of(number: int) -> str:
    words = (ADJECTIVES[number % 8], NOUNS[number // 8 % 11], PLACES[number // 88 % 5])
    return f"{' '.join(words)}, no. {number // 440}"


@ax.op(outputs=[ax.float32])
def embed(texts: Any) -> Any:
    """A row of length 1 for each text: how often its groups of three letters occur, by their hashes."""
    rows = np.zeros((len(texts), SIZE), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for start in range(len(text) - 2):
            row[zlib.crc32(text[start : start + 3]) % SIZE] += 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def build_graph(web: httpx.AsyncClient) -> ax.Graph:
    """From the number of a page to the embeddings of its texts."""

    @ax.op(timeout=10.0, retries=2, outputs=[ax.string])
    async def fetch(page: int) -> Any:
        response = await web.get(f"/texts/{page}")
        response.raise_for_status()
        return [text.encode() for text in response.json()]

    with ax.Graph() as graph:
        page = ax.placeholder(ax.int64, [], name="page")
        with ax.device("/job:localhost"):  # in this process, which has the HTTP client
            texts = fetch(page)
        ax.identity(embed(texts), name="embeddings")  # on the worker of the item
    return graph


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The stub server: a page of texts."""
    page = int((await reader.read(4096) or b"GET /0").split()[1].rpartition(b"/")[2])
    body = json.dumps([text_of(number) for number in range(page * PAGE, (page + 1) * PAGE)])
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
    writer.close()


async def main(num_texts: int, num_workers: int) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    pages = ({"page:0": page} for page in range(-(-num_texts // PAGE)))
    async with (
        server,
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as web,
        ax.cluster.local(num_workers) as cluster,
        ax.Session(build_graph(web), cluster=cluster) as session,
    ):
        begin_s = time.perf_counter()
        outputs = session.map("embeddings:0", pages, workers="/job:local", window=4 * num_workers)
        rows = [row async for row in outputs]
        took_s = time.perf_counter() - begin_s
    embeddings = np.concatenate(rows)[:num_texts]
    print(f"{len(embeddings)} texts over {num_workers} workers")
    print(f"{len(embeddings) / took_s:,.0f} texts a second")
    itself, *others = np.argsort(-(embeddings @ embeddings[9]), kind="stable")[:3].tolist()
    print(f"nearest to {text_of(itself)}: {' and '.join(map(text_of, others))}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:3]]
    ax.run(main(*(arguments + [10_000, 4][len(arguments) :])))
