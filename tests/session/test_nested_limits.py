"""A run from inside a kernel, under the limiter that the kernel is under: it never waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from tests.running import settle
from tests.session.test_nested_runs import PRECONDITION, Nest, runs, runs_itself, waits_for_a_run


@pytest.mark.virtual_clock
@pytest.mark.parametrize("total", [1, 2, 3])
async def test_under_the_limiter_that_the_kernel_is_under(total: int) -> None:
    limiter = ax.Limiter(total)
    nest = Nest(runs_itself, {"limiter": limiter})
    if total == 3:
        assert await nest.run() == [6]
    else:
        with pytest.raises(PRECONDITION, match=rf"holds one of the {total} slots of its limiter") as caught:
            await nest.run()
        assert (caught.value.node, "another limiter" in (caught.value.hint or "")) == ("outer", True)
    assert (limiter.statistics().inside, limiter.statistics().waiting) == (0, 0)


async def test_all_slots_are_held_by_those_who_want_another() -> None:
    limiter = ax.Limiter(2)
    nest = Nest(waits_for_a_run, {"limiter": limiter}, {"limiter": limiter, "expensive": False})
    assert await nest.run() == [6]

    async def waits_for_all_to_begin(nest: Nest, value: Any) -> Any:
        while limiter.statistics().inside < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        return await runs(nest, value)

    nest = Nest(waits_for_all_to_begin, {"limiter": limiter}, {"limiter": limiter, "expensive": False})
    with pytest.raises(PRECONDITION, match="holds one of the 2 slots"):
        await nest.run(count=2)
    assert limiter.statistics().inside == 0


async def test_a_slot_that_is_free_while_somebody_wakes_up_is_not_refused() -> None:
    limiter = ax.Limiter(3)

    async def visit() -> None:
        async with limiter:
            pass

    async def runs_while_one_wakes_up(nest: Nest, value: Any) -> Any:
        await limiter.wait_queue().acquire()
        await limiter.wait_queue().acquire()
        visitor = asyncio.create_task(visit())
        await settle()
        limiter.wait_queue().release()  # is the visitor's
        limiter.wait_queue().release()  # is free
        slot = await limiter.slot()
        slot.release()
        await visitor
        return value

    nest = Nest(runs_while_one_wakes_up, {"limiter": limiter})
    assert await nest.run() == [1]
    assert (limiter.statistics().inside, limiter.statistics().waiting) == (0, 0)


async def test_a_slot_that_was_given_back_is_not_held() -> None:
    """A task that a kernel has left behind, or its own next attempt, is nobody who holds a slot."""
    limiter = ax.Limiter(1)
    left: list[asyncio.Task[Any]] = []

    async def leaves_a_task(nest: Nest, value: Any) -> Any:
        async def run_later() -> Any:
            await go.wait()
            return await runs(nest, value)

        left.append(asyncio.create_task(run_later()))
        return value

    go = asyncio.Event()
    nest = Nest(leaves_a_task, {"limiter": limiter}, {"limiter": limiter, "expensive": False})
    async with ax.Session(nest.graph) as nest.session:
        await nest.session.run(nest.outer, {nest.x: 1})
        async with limiter:
            go.set()
            await settle()
            assert limiter.statistics().waiting == 1
        assert await left[0] == 6
