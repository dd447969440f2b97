"""Pauses of ops with a cache: calls are shared, and pauses are not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.checkpoint import MemoryStore


@pytest.mark.parametrize("is_fetched", [True, False])
async def test_runs_that_share_a_call_pause_each_for_itself(is_fetched: bool) -> None:
    have_both_asked = asyncio.Event()
    asked: list[int] = []

    def key(amount: int) -> int:
        asked.append(amount)
        if len(asked) == 2:
            have_both_asked.set()
        return amount

    @ax.op(cache=ax.ResultCache(), key=key)
    async def approved(amount: int) -> Any:
        await have_both_asked.wait()
        return await ax.pause("approval", int(amount))

    with ax.Graph() as graph:
        answer = approved(ax.constant(250, ax.int64))
    fetches, targets = (answer, ()) if is_fetched else ((), [answer.op])

    async def run(run_id: str) -> Any:
        return await session.run(fetches, targets=targets, options=ax.RunOptions(run_id=run_id))

    async with ax.Session(graph, journal=MemoryStore()) as session:
        ended = await asyncio.gather(run("a"), run("b"), return_exceptions=True)
        tokens = {error.run_id: error.token for error in ended if isinstance(error, ax.PausedError)}
        assert sorted(tokens) == ["a", "b"]
        assert await session.unfinished_runs() == []
        assert sorted(pause.run_id for pause in await session.pauses()) == ["a", "b"]
        results = [await session.resume(tokens["a"], "yes"), await session.resume(tokens["b"], "no")]
        assert results == (["yes", "yes"] if is_fetched else [(), ()])  # the second result is from the cache


async def test_a_pause_is_listed_no_more_when_its_op_has_its_result_from_the_cache() -> None:
    @ax.op(cache=ax.ResultCache())
    async def approved(amount: int) -> Any:
        return await ax.pause("approval", int(amount))

    @ax.op
    async def more(amount: int) -> Any:
        return await ax.pause("more", int(amount))

    with ax.Graph() as graph:
        amount = ax.constant(250, ax.int64)
        alone = approved(amount)
        both = [alone, more(amount)]

    async def paused(fetches: Any, run_id: str) -> ax.PausedError:
        with pytest.raises(ax.PausedError) as caught:
            await session.run(fetches, options=ax.RunOptions(run_id=run_id))
        return caught.value

    async def listed() -> list[tuple[str, str]]:
        return sorted((pause.run_id, pause.name) for pause in await session.pauses())

    async with ax.Session(graph, journal=MemoryStore()) as session:
        first = await paused(alone, "first")
        await paused(alone, "second")
        third = await paused(both, "third")
        waits = [("first", "approval"), ("second", "approval"), ("third", "approval"), ("third", "more")]
        assert await listed() == waits
        assert await session.resume(first.token, "yes") == "yes"
        assert await session.resume_run("second") == "yes"
        assert await listed() == waits[2:]
        await paused(both, "third")
        assert await listed() == waits[3:]
        token = next(pause.token for pause in third.pauses if pause.name == "more")
        assert await session.resume(token, "no") == ["yes", "no"]
        assert await session.pauses() == []
