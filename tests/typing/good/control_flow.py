"""Types of branches, loops and maps: tensors, where a checker can know it."""

from __future__ import annotations

from typing import Any, assert_type

import asyncexec as ax


@ax.op
async def excuse_of(error: ax.errors.OpError) -> str:
    return error.message


@ax.op
async def page_of(number: int) -> str:
    return f"page {number}"


def number_of(page: str) -> int:
    return len(page)


number_of_page = ax.op(number_of, outputs=[ax.int32], timeout=5)


def added(i: ax.Tensor, total: ax.Tensor) -> tuple[ax.Tensor, ax.Tensor]:
    return i + 1, total + i


async def main() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        page = ax.cond(x > 0, lambda: page_of(x), lambda: ax.constant("none"))
        assert_type(page, ax.Tensor[str])
        pair = ax.cond(x > 0, lambda: [x, x], lambda: [x, -x])
        chosen = ax.switch_case(x, [lambda: page_of(x), lambda: page_of(x + 1)])
        assert_type(chosen, ax.Tensor[str])
        caught = ax.catch(lambda: page_of(x), lambda error: excuse_of(error))
        assert_type(caught, ax.Tensor[str])
        pages = ax.map_fn(page_of, ax.range(x))
        assert_type(pages, ax.Tensor[Any])
        maybe = ax.map_fn(page_of, ax.range(x), on_error="yield")
        last = ax.while_loop(lambda i: i < x, lambda i: i + 1, ax.constant(0, ax.int64))

        def is_before(i: ax.Tensor, total: ax.Tensor) -> ax.Tensor:
            return i < x

        end, total = ax.while_loop(is_before, added, (x - x, x - x))
        count = number_of_page(page)
    async with ax.Session(graph) as session:
        found = await session.run({"page": page, "count": count, "last": last, "total": total}, {x: 3})
        assert found == {"page": "page 3", "count": 6, "last": 3, "total": 3}
        rest: Any = await session.run([pair, chosen, caught, pages, maybe, end], {x: 1})
        assert rest[1] == rest[2].replace("1", "2")


ax.run(main)
