"""A crawler and PageRank in one graph: loops whose bodies await, loops that stop when the numbers do.

The crawl is a ``while_loop`` over levels; each level fetches all its pages by ``map_fn``, 16 at a time, in order.  What
it found becomes a matrix, and a second ``while_loop`` ranks the pages until the ranks change no more.  The site is a
stub server in this program.  It needs ``pip install "asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

import asyncexec as ax

DAMPING = 0.85
PAGES = 120


def build_graph(web: httpx.AsyncClient) -> ax.Graph:
    """From the path of a page: all pages that can be reached from it, and their ranks."""

    @ax.op(timeout=5.0, retries=1)
    async def fetch_links(path: str) -> object:
        response = await web.get(path)
        response.raise_for_status()
        return re.findall(r'href="([^"]+)"', response.text)

    @ax.op(outputs=[ax.string, ax.string, ax.string])
    def next_level(known: Any, links: Any, level: Any, found: Any) -> tuple[Any, Any, Any]:
        """Pages and links known by now, and the pages among them that are still to be fetched."""
        here = [page.decode() for page in level]
        pairs = [(page, target) for page, targets in zip(here, found, strict=True) for target in targets]
        seen = {page.decode() for page in known}
        new = list(dict.fromkeys(target for _, target in pairs if target not in seen))
        rows = np.array([*links.tolist(), *pairs], object).reshape(-1, 2)
        return [*known.tolist(), *new], rows, new

    @ax.op(outputs=[ax.float64])
    def link_matrix(pages: Any, links: Any) -> Any:
        """Entry [i, j]: the part of its rank that page j gives to page i."""
        position = {page: i for i, page in enumerate(pages)}
        matrix = np.zeros((len(pages), len(pages)))
        for source, target in links:
            matrix[position[target], position[source]] += 1
        return matrix / np.maximum(matrix.sum(axis=0), 1)

    def crawl_level(known: ax.Tensor, links: ax.Tensor, level: ax.Tensor) -> Any:
        found = ax.map_fn(fetch_links, level, parallel_iterations=16, name="fetch_all")
        return next_level(known, links, level, found)

    with ax.Graph() as graph:
        start = ax.placeholder(ax.string, [1], name="start")
        pages, links, _ = ax.while_loop(
            lambda known, links, level: ax.size(level) > 0,
            crawl_level,
            (start, ax.zeros([0, 2], ax.string), start),
            shape_invariants=([None], [None, 2], [None]),
            name="crawl",
        )
        matrix = ax.ensure_shape(link_matrix(pages, links), [None, None])
        count = ax.cast(ax.size(pages), ax.float64)

        def improve(rank: ax.Tensor, change: ax.Tensor, rounds: ax.Tensor) -> Sequence[ax.Tensor]:
            better = (1 - DAMPING) / count + DAMPING * ax.reshape(matrix @ ax.expand_dims(rank, 1), [-1])
            return better, ax.reduce_sum(abs(better - rank)), rounds + 1

        rank, _, rounds = ax.while_loop(
            lambda rank, change, rounds: change > 1e-10,
            improve,
            (ax.fill([ax.size(pages)], 1 / count), np.float64(1), 0),
            name="rank",
        )
        ax.identity_n([pages, rounds, rank, ax.gather(pages, ax.top_k(rank, 3)[1])], name="result")
    return graph


class Site:
    """Pages that link to a few others, the front page most of all; each takes a few milliseconds."""

    def __init__(self) -> None:
        self.calls = self.open = self.most_open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.read(4096) or b"GET /").split()[1].decode()  # nothing comes from a client that has gone
        number = int(path.rpartition("/")[2] or 0)
        self.calls += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0.003)
        self.open -= 1
        targets = {(number * 3 + k) % PAGES for k in (1, 2, 3)} | {number // 2}
        body = "".join(
            f'<a href="/page/{target}">{target}</a>' if target else '<a href="/">0</a>' for target in targets
        )
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        writer.close()


async def main() -> None:
    site = Site()
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with (
        server,
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as web,
        ax.Session(build_graph(web)) as session,
    ):
        pages, rounds, rank, best = await session.run([f"result:{i}" for i in range(4)], {"start:0": ["/"]})
    print(f"{len(pages)} pages found by {site.calls} calls, up to {site.most_open} at a time")
    print(f"ranks that sum to {rank.sum():.6f} after {rounds} rounds")
    print("best:", ", ".join(page.decode() for page in best))


if __name__ == "__main__":
    ax.run(main)
