"""Senders of a stream are served in the order in which they come, whatever the others do meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.running import settle
from tests.session.stream_graphs import Stages, results

pytestmark = pytest.mark.virtual_clock


async def test_who_comes_while_one_is_waking_stands_behind_it() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=1) as stream:
        await stream.send({stages.x: 0})
        first = asyncio.ensure_future(stream.send({stages.x: 1}))
        await asyncio.sleep(1)
        assert await anext(stream) == 1  # without a turn of the loop: *first* has been woken, and has not run
        second = asyncio.ensure_future(stream.send({stages.x: 2}))
        await settle()
        assert (first.done(), second.done()) == (True, False)
        assert [await anext(stream), await anext(stream)] == results([1, 2])
        await second


async def test_who_sends_at_once_does_not_overtake() -> None:
    """A sender that is not in a task of its own gets no turn before: it is the next to run."""
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=2) as stream:
        await stream.send({stages.x: 0})
        await stream.send({stages.x: 1})
        waiting = asyncio.ensure_future(stream.send({stages.x: 2}))
        await asyncio.sleep(1)
        assert [await anext(stream), await anext(stream)] == results([0, 1])
        assert not waiting.done()
        await stream.send({stages.x: 3})  # there is room for both
        assert waiting.done()
        assert [await anext(stream), await anext(stream)] == results([2, 3])


async def test_who_opens_the_stream_is_first() -> None:
    """Those who come while it is opened stand behind, and so do those who come when it has just been."""
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=10) as stream:
        sending = []
        for i in range(10):
            sending.append(asyncio.ensure_future(stream.send({stages.x: i})))
            await asyncio.sleep(0)
        await asyncio.wait(sending)
        await stream.close()
        assert [out async for out in stream] == results(range(10))


async def test_where_the_first_cannot_open_the_next_one_does() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y) as stream:
        feeds: list[Any] = ["no feeds", {"nothing:0": 1}, {stages.x: 2}, {stages.x: 3}]
        sending = [asyncio.ensure_future(stream.send(each)) for each in feeds]
        await asyncio.wait(sending, timeout=10)
        errors = [type(each.exception()) for each in sending]
        assert errors == [ax.errors.InvalidTypeError, ax.errors.InvalidArgumentError, type(None), type(None)]
        await stream.close()
        assert [out async for out in stream] == results([2, 3])


@pytest.mark.parametrize("turns", range(6))
async def test_one_that_is_cancelled_holds_nobody_up(turns: int) -> None:
    """Before it opens the stream, while it does, and when it has been woken."""
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=1) as stream:
        sending = [asyncio.ensure_future(stream.send({stages.x: i})) for i in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        sending[0].cancel()
        taken = [await asyncio.wait_for(anext(stream), 10), await asyncio.wait_for(anext(stream), 10)]
        await asyncio.wait(sending, timeout=10)
        expected = [1, 2] if sending[0].cancelled() else [0, 1]
        assert taken == results(expected)


async def test_close_lets_all_go() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=1) as stream:
        await stream.send({stages.x: 0})
        waiting = [asyncio.ensure_future(stream.send({stages.x: i})) for i in (1, 2)]
        await asyncio.sleep(1)
        await anext(stream)
        closing = asyncio.ensure_future(stream.close())  # runs before who has been woken, or behind
        late = asyncio.ensure_future(stream.send({stages.x: 3}))
        await asyncio.wait([closing, late, *waiting], timeout=10)
        refused = [each for each in (*waiting, late) if each.exception() is not None]
        assert late in refused
        assert all(isinstance(each.exception(), ax.errors.FailedPreconditionError) for each in refused)
        assert len([out async for out in stream]) == 3 - len(refused)


ACTIONS = st.lists(st.sampled_from(["send", "take", "turn", "cancel"]), max_size=40)


@settings(max_examples=150, deadline=None)
@given(window=st.integers(1, 4), actions=ACTIONS)
def test_items_are_in_the_order_of_the_calls(window: int, actions: list[str]) -> None:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(send_and_take(window, actions))


async def send_and_take(window: int, actions: list[str]) -> None:
    """Do as *actions* say; those who were not cancelled are then found in the order in which they called."""
    stages = Stages()
    sending: list[asyncio.Task[None]] = []
    taking: list[asyncio.Task[Any]] = []

    async def take() -> Any:
        return await anext(stream, None)

    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=window) as stream:
        for action in actions:
            if action == "send":
                sending.append(asyncio.ensure_future(stream.send({stages.x: len(sending)})))
            elif action == "take":
                taking.append(asyncio.ensure_future(take()))
            elif action == "turn":
                await asyncio.sleep(0)
            elif sending:
                sending[len(sending) // 2].cancel()
        taking += [asyncio.ensure_future(take()) for _ in sending]
        if sending:
            await asyncio.wait(sending, timeout=100)
        await stream.close()
        found = [out for out in await asyncio.wait_for(asyncio.gather(*taking), 100) if out is not None]
        sent = [i for i, each in enumerate(sending) if not each.cancelled()]
        assert found == results(sent)
