"""Calls of ops, inside and outside of a graph, have useful types."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, assert_type

import asyncexec as ax


@ax.op
async def fetch(url: str) -> bytes:
    await asyncio.sleep(0)
    return url.encode()


@ax.op(expensive=False, outputs=[ax.float32])
def score(page: bytes, weight: float = 1.0, *, scale: float = 1.0) -> float:
    return len(page) * weight * scale


@ax.op
def halves(text: str) -> tuple[str, int]:
    return text[: len(text) // 2], len(text)


@ax.op
async def numbers(text: str) -> tuple[int, float]:
    return len(text), 0.5


@ax.op
def note(text: str) -> None:
    notes.append(text)


@ax.op(timeout=5.0, retries=ax.Retry(attempts=2))
async def store(key: str, value: float) -> None:
    notes.append(f"{key}: {value}")


@ax.op
async def after(task: str, *before: str) -> str:
    return " ".join([*before, task])


@ax.op
def answer() -> int:
    return 42


@ax.op
def shown(value: object) -> str:
    return str(value)


@ax.op
def sums(a: int, b: int, c: int, d: int, e: int, f: int) -> int:
    return a + b + c + d + e + f


notes: list[str] = []

with ax.Graph() as graph:
    url = ax.placeholder(ax.string, [], name="url")
    page = assert_type(fetch(url), ax.Tensor[bytes])
    points = assert_type(score(page), ax.Tensor[float])
    assert_type(score(page, 2.0), ax.Tensor[float])
    assert_type(score(page, points), ax.Tensor[float])
    assert_type(score(b"a page", points), ax.Tensor[float])
    assert_type(score(page, scale=3.0), ax.Tensor[float])
    assert_type(score(page=page), ax.Tensor[float])
    assert_type(score(page, weight=points, scale=points), ax.Tensor[float])
    assert_type(score(page, name="points"), ax.Tensor[float])
    assert_type(score(b"a page", fallback=0.0, name="safe"), ax.Tensor[float])
    assert_type(score.options(name="points")(b"a page"), ax.Tensor[float])
    assert_type(score(fetch("https://example.org")), ax.Tensor[float])
    half, size = halves(url)
    assert_type(half.dtype, ax.DType)
    number, fraction = assert_type(numbers(url), list[ax.Tensor[Any]])
    noted = assert_type(note(url), ax.Operation)
    stored = assert_type(store("points", points), ax.Operation)
    first = after("second", after("first"))
    assert_type(after("last", *[first, url]), ax.Tensor[str])
    assert_type(shown(points), ax.Tensor[str])
    assert_type(sums(size, 2, 3, 4, 5, size), ax.Tensor[int])
    variable = ax.Variable(1.0, name="variable")
    weighted: ax.Tensor[float] = score(page, variable)
    with ax.control_dependencies([store("begun", 1.0)]):
        last = ax.identity(first)


async def main() -> None:
    assert assert_type(await fetch("a"), bytes) == b"a"
    task = asyncio.create_task(fetch("b"))
    assert assert_type(await task, bytes) == b"b"
    length, _ = assert_type(await numbers("abc"), tuple[int, float])
    assert length == 3
    await store("key", 1.0)
    assert fetch.name == "fetch"
    plain: Coroutine[Any, Any, bytes] = fetch.function("c")
    assert await plain == b"c"


assert assert_type(score(b"four"), float) == 4.0
assert assert_type(score(b"four", weight=2.0, scale=0.5), float) == 4.0
assert assert_type(halves("four"), tuple[str, int]) == ("fo", 4)
assert assert_type(answer(), int) == 42
assert assert_type(score.function(b"four"), float) == 4.0
ax.run(main)
