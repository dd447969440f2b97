"""A small site on this machine for the crawler: each page links to a few others and takes some milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

NUM_PAGES: Final = 80
_MOST_HEAD: Final = 4096


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """Serves it on a free port while the block runs; yields its address."""
    answering: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer(reader, writer))
        answering.add(task)
        task.add_done_callback(answering.discard)

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        await asyncio.gather(*answering)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        words = (await reader.read(_MOST_HEAD)).split()
        path = words[1].decode(errors="replace") if len(words) > 1 else "/"
        number = path.rpartition("/")[2] or "0"
        is_there = number.isdecimal() and len(number) < len(str(NUM_PAGES)) + 1 and int(number) < NUM_PAGES
        await asyncio.sleep(latency_s(int(number)) if is_there else 0)
        body = page(int(number)) if is_there else "there is no such page"
        status = "200 OK" if is_there else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
    except ConnectionError:
        pass  # the client has gone
    finally:
        writer.close()


def latency_s(number: int) -> float:
    """How long page *number* takes: between 20 and 150 ms, always the same."""
    return 0.02 + number * 37 % 131 / 1000


def page(number: int) -> str:
    """The HTML of page *number*."""
    targets = {(number * 3 + step) % NUM_PAGES for step in (1, 2, 3)} | {number // 2}
    return "".join(f'<a href="/page/{target}">{target}</a>' if target else '<a href="/">0</a>' for target in targets)
