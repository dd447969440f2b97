"""Calls that are wrong, and that type checkers find.  This is not run."""

from __future__ import annotations

import asyncexec as ax


@ax.op
async def fetch(url: str) -> bytes:
    return url.encode()


@ax.op
def score(page: bytes, weight: float = 1.0, *, mode: str = "x") -> float:
    return len(page) * weight if mode else 0.0


@ax.function
def scaled(x: ax.Tensor, factor: float) -> ax.Tensor:
    return x * factor


@ax.batch(max_size=4)
def classify(rows: ax.Tensor) -> ax.Tensor:
    return rows


url = ax.placeholder(ax.string, [])
page = fetch(url)

fetch(1, 2, 3, bogus=4)  # error
fetch(1)  # error
fetch(url, url)  # error
fetch(url, bogus=4)  # error
score(page, "heavy")  # error
score(page, 1.0, 2.0)  # error
score(page, mode=3)  # error
score(1, page)  # error
score.options(name="s")(page, bogus=1)  # error
score.options(patience=1)  # error
score.functions  # error
scaled(url)  # error
scaled(url, "twice")  # error
scaled(url, 1.0, by=2)  # error
classify(url, url)  # error
ax.op(patience=3)  # error
ax.op(3)  # error
ax.op(executor="thread")  # error
ax.batch(max_size="4")  # error
text: str = page  # error
numbers: ax.Tensor[int] = page  # error
page.shapes  # error
ax.placeholders  # error


async def main() -> None:
    text: str = await fetch("a")  # error
    print(text)
