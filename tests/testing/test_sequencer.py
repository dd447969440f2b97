"""Sequencer: steps of several tasks happen in the order of their places."""

from __future__ import annotations

import asyncio

import pytest

from asyncexec.testing import SequenceBrokenError, Sequencer


async def test_steps_follow_their_places_across_tasks() -> None:
    seq, seen = Sequencer(), []

    async def steps(*places: int) -> None:
        for place in places:
            async with seq(place):
                seen.append(place)
                await asyncio.sleep(0)

    await asyncio.gather(steps(2, 4), steps(1, 5), steps(0, 3))
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_a_step_that_fails_still_ends() -> None:
    seq = Sequencer()
    with pytest.raises(KeyError):
        async with seq(0):
            raise KeyError
    async with asyncio.timeout(1), seq(1):
        pass


async def test_a_place_is_used_once() -> None:
    seq = Sequencer()
    async with seq(0):
        pass
    with pytest.raises(ValueError, match="place 0 is taken"):
        async with seq(0):
            pass
    with pytest.raises(ValueError, match="place -1 is negative"):
        async with seq(-1):
            pass


async def test_a_step_cancelled_before_its_turn_breaks_the_sequence() -> None:
    seq = Sequencer()

    async def step(place: int) -> None:
        async with seq(place):
            pass

    first, second = asyncio.ensure_future(step(1)), asyncio.ensure_future(step(2))
    await asyncio.sleep(0)
    first.cancel()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, SequenceBrokenError]
    with pytest.raises(SequenceBrokenError):
        await step(0)
