"""How partial runs wait and end: each fetch can be awaited, an error is told once, and nothing is left.

After ``partial_run_mgr_test.cc``: the error of the step comes before that of its caller, whichever ends first.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle, started

INVALID = ax.errors.InvalidArgumentError


class Waiting:
    """An async kernel between x and z, that waits until it is let go, and a cheap one beside it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.log: list[str] = []
        with ax.Graph() as self.graph:
            self.x, self.y = ax.placeholder(ax.float32, [3], name="x"), ax.placeholder(ax.float32, [], name="y")
            self.z = raw_op("Wait", self._wait, kind=KernelKind.ASYNC, dtype=ax.float32)(self.x, name="z")
            self.cheap = ax.multiply(self.y, 2.0, name="cheap")

    async def _wait(self, value: Any) -> Any:
        self.log.append("began")
        try:
            await self.go.wait()
        finally:
            await settle()
            self.log.append("ended")
        if not value[0]:
            raise ValueError("nothing there")
        return value * 2


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


async def test_fetch_waits_for_its_value_while_others_come(waiting: Waiting) -> None:
    async with (
        ax.Session(waiting.graph) as session,
        session.partial_run([waiting.z, waiting.cheap], [waiting.x, waiting.y]) as step,
    ):
        await step.feed({waiting.x: [1, 2, 3]})
        fetch = await started(step.fetch(waiting.z))
        again = await started(step.fetch({"z": waiting.z}))
        await step.feed({waiting.y: 4})
        assert await step.fetch(waiting.cheap) == 8
        assert not fetch.done()
        waiting.go.set()
        assert (await fetch).tolist() == (await again)["z"].tolist() == [2, 4, 6]
    assert waiting.log == ["began", "ended"]


async def test_fetch_that_is_given_up_can_be_asked_for_again(waiting: Waiting) -> None:
    async with ax.Session(waiting.graph) as session, session.partial_run(waiting.z, [waiting.x]) as step:
        await step.feed({waiting.x: [1, 2, 3]})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await step.fetch(waiting.z)
        waiting.go.set()
        assert (await step.fetch(waiting.z)).tolist() == [2, 4, 6]


async def test_leaving_early_cancels_what_runs_and_waits_for_it(waiting: Waiting) -> None:
    async with ax.Session(waiting.graph) as session:
        async with session.partial_run(waiting.z, [waiting.x]) as step:
            await step.feed({waiting.x: [1, 2, 3]})
            await settle()
        assert waiting.log == ["began", "ended"]
        with pytest.raises(ax.errors.FailedPreconditionError, match="not under way"):
            await step.fetch(waiting.z)
        with pytest.raises(ax.errors.FailedPreconditionError, match="not under way"):
            await step.feed({waiting.x: [1, 2, 3]})
        assert session.statistics().running_steps == 0


async def test_cancellation_of_the_caller_is_the_callers_own(waiting: Waiting) -> None:
    async with ax.Session(waiting.graph) as session:

        async def body() -> None:
            async with session.partial_run(waiting.z, [waiting.x]) as step:
                await step.feed({waiting.x: [1, 2, 3]})
                await step.fetch(waiting.z)

        task = await started(body())
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert not isinstance(caught.value, ax.errors.OpError)
        assert waiting.log == ["began", "ended"]
        assert session.statistics().failed_steps == 1


async def test_cancellation_while_the_end_is_waited_for(waiting: Waiting) -> None:
    async with ax.Session(waiting.graph) as session:

        async def body() -> None:
            async with session.partial_run(waiting.cheap, [waiting.x, waiting.y], targets=[waiting.z]) as step:
                await step.feed({waiting.x: [1, 2, 3], waiting.y: 1})
                assert await step.fetch(waiting.cheap) == 2

        task = await started(body())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.log == ["began", "ended"]


async def test_failure_comes_to_all_who_wait_and_to_all_who_come_later(waiting: Waiting) -> None:
    async with ax.Session(waiting.graph) as session:
        async with session.partial_run([waiting.z, waiting.cheap], [waiting.x, waiting.y]) as step:
            await step.feed({waiting.x: [0, 0, 0]})
            fetches = [await started(step.fetch(waiting.z)) for _ in range(2)]
            waiting.go.set()
            for fetch in fetches:
                with pytest.raises(INVALID, match="nothing there"):
                    await fetch
            with pytest.raises(INVALID, match="nothing there"):
                await step.feed({waiting.y: 1})
            with pytest.raises(INVALID, match="nothing there"):
                await step.fetch(waiting.cheap)
        assert session.statistics().running_steps == 0


EXECUTOR, BODY = INVALID, RuntimeError


@pytest.mark.parametrize("executor_is_first", [True, False])
@pytest.mark.parametrize(
    ("executor_fails", "body_fails", "expected"),
    [(False, False, None), (True, False, EXECUTOR), (False, True, BODY), (True, True, EXECUTOR)],
)
async def test_status_whichever_side_ends_first(
    waiting: Waiting, executor_is_first: bool, executor_fails: bool, body_fails: bool, expected: type[Exception] | None
) -> None:
    """partial_run_mgr_test.cc: the error of the step comes before that of its caller; none is lost.

    A caller that fails first ends the step, which has no error then.
    """
    if not executor_is_first and executor_fails and body_fails:
        expected = BODY
    async with ax.Session(waiting.graph) as session:

        async def body() -> None:
            async with session.partial_run(waiting.cheap, [waiting.x, waiting.y], targets=[waiting.z]) as step:
                await step.feed({waiting.x: [0 if executor_fails else 1] * 3, waiting.y: 1})
                assert await step.fetch(waiting.cheap) == 2
                if executor_is_first:
                    waiting.go.set()
                    await settle(100)
                if body_fails:
                    raise RuntimeError("body")

        task = await started(body())
        waiting.go.set()
        if expected is None:
            await task
        else:
            with pytest.raises(expected):
                await task


async def test_session_that_closes_meanwhile(waiting: Waiting) -> None:
    session = ax.Session(waiting.graph)
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):  # noqa: PT012 - goes out of both
        async with session.partial_run(waiting.z, [waiting.x]) as step:
            await step.feed({waiting.x: [1, 2, 3]})
            fetch = await started(step.fetch(waiting.z))
            closing = await started(session.close())
            await fetch
    await closing
    assert waiting.log == ["began", "ended"]
    for use in (step.feed({waiting.x: [1, 2, 3]}), step.fetch(waiting.z)):
        with pytest.raises(ax.errors.FailedPreconditionError):
            await use
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        async with session.partial_run(waiting.z, [waiting.x]):
            pytest.fail("it began")


async def test_body_that_closes_its_session(waiting: Waiting) -> None:
    session = ax.Session(waiting.graph, ax.SessionConfig(drain_timeout_s=None))
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):  # noqa: PT012 - goes out of both
        async with session.partial_run(waiting.z, [waiting.x]) as step:
            await step.feed({waiting.x: [1, 2, 3]})
            await settle()
            await session.close()
            await step.fetch(waiting.z)
    assert waiting.log == ["began", "ended"]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("how", ["complete", "early", "failure", "cancelled"])
async def test_nothing_is_left(no_collector: None, waiting: Waiting, how: str) -> None:
    fed: list[weakref.ref[Any]] = []
    async with ax.Session(waiting.graph) as session:

        async def body() -> None:
            array = np.full(3, 0 if how == "failure" else 1, np.float32)
            fed.append(weakref.ref(array))
            async with session.partial_run(waiting.z, [waiting.x]) as step:
                await step.feed({waiting.x: array})
                del array
                if how != "early":
                    await step.fetch(waiting.z)
                await settle()

        task = await started(body())
        task.cancel() if how == "cancelled" else waiting.go.set()
        await asyncio.wait([task])
        if how == "cancelled":
            assert task.cancelled()
        else:
            assert isinstance(task.exception(), INVALID if how == "failure" else type(None))
        del task
        await settle()
        assert [ref() is None for ref in fed] == [True]
        assert asyncio.all_tasks() == {asyncio.current_task()}


class Meeting:
    """Two members of a collective, one for each feed, and a third that may not be there."""

    def __init__(self, size: int) -> None:
        with ax.Graph() as self.graph:
            self.x, self.y = ax.placeholder(ax.float32, [1], name="x"), ax.placeholder(ax.float32, [1], name="y")
            self.sums = [self._member(device, value, size) for device, value in enumerate((self.x, self.y))]
        self.config = ax.SessionConfig(device_count={"CPU": 2})

    def _member(self, device: int, value: ax.Tensor, size: int) -> Any:
        with ax.device(f"/cpu:{device}"):
            return ax.create_op(
                "CollectiveReduceV2", [value, size, 1, 1, []], {"merge_op": "Add", "final_op": "Id"}, f"member_{device}"
            )


async def test_what_waits_for_a_feed_by_way_of_another_device_goes_on_waiting() -> None:
    """A collective waits for a member whose value has not been fed: that is no reason to end the step."""
    meeting = Meeting(2)
    x, y = meeting.x, meeting.y
    async with (
        ax.Session(meeting.graph, meeting.config) as session,
        session.partial_run(meeting.sums, [x, y]) as step,
    ):
        await step.feed({x: [1]})
        fetch = await started(step.fetch(meeting.sums[0]))
        await settle(10)
        assert not fetch.done()
        await step.feed({y: [2]})
        assert [(await fetch).tolist(), (await step.fetch(meeting.sums[1])).tolist()] == [[3], [3]]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_nobody_can_bring_any_more_ends_the_step(when: str) -> None:
    """All has been fed, and the third member does not exist: who fetches, before or after, does not wait for ever."""
    meeting = Meeting(3)
    x, y = meeting.x, meeting.y
    async with (
        ax.Session(meeting.graph, meeting.config) as session,
        session.partial_run(meeting.sums, [x, y]) as step,
    ):
        await step.feed({x: [1]} if when == "before" else {x: [1], y: [2]})
        if when == "after":
            await settle(10)
        fetch = asyncio.ensure_future(step.fetch(meeting.sums[0]))
        if when == "before":
            await settle(10)
            await step.feed({y: [2]})
        with pytest.raises(ax.errors.InternalError, match=r"member_0.*2 waiting collectives will never be met"):
            await fetch
