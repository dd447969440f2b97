"""The verbs by which a step is ended, as its part on a worker hears them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.executor_barrier import ExecutorBarrier, PartitionedExecutor
from asyncexec.executor.engine.grace_period import Grace
from asyncexec.executor.engine.partition_runner import OnEnd
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.under_way import NodeUnderWay
from asyncexec.rendezvous.intra_process import Rendezvous
from tests.running import settle, started

pytestmark = pytest.mark.virtual_clock


class Part:
    """A part of a step that is on a worker, and its runner."""

    worker = "/job:worker/replica:0/task:0"
    has_collectives = False

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.end: OnEnd = lambda error: None

    def start(self, args: ExecutorArgs, on_end: OnEnd) -> Part:
        self.end = on_end
        return self

    def abort(self, error: BaseException) -> None:
        self.heard.append("abort")

    def cancel(self, error: BaseException) -> None:
        self.heard.append("cancel")

    def release(self) -> None:
        self.heard.append("release")

    def under_way(self) -> NodeUnderWay:
        return NodeUnderWay(self.worker, "Worker", (), None)


def step_of(*parts: Part, grace: Grace | None = None) -> ExecutorBarrier:
    """A step that has nothing here."""
    plan = PartitionedExecutor(
        [], 0, lambda _: ExecutorArgs(Rendezvous()), holds=LoopHolds(), runners=parts, grace=grace
    )
    return plan.start(())


async def test_a_step_that_ends_well_is_released() -> None:
    part = Part()
    running = await started(step_of(part).run())
    part.end(None)
    await running
    assert part.heard == ["release"]


async def test_the_failure_of_a_part_aborts_the_others() -> None:
    bad, good = Part(), Part()
    running = await started(step_of(bad, good).run())
    bad.end(ax.errors.DataLossError("falling sky"))
    assert good.heard == ["abort"]
    await settle()
    assert not running.done()  # the other has not ended
    good.end(None)
    with pytest.raises(ax.errors.DataLossError, match="falling sky"):
        await running
    assert (bad.heard, good.heard) == (["release"], ["abort", "release"])


async def test_a_caller_that_is_cancelled_cancels() -> None:
    part = Part()
    running = await started(step_of(part).run())
    running.cancel()
    await settle()
    assert part.heard == ["cancel"]
    part.end(ax.errors.CancelledError("the step was cancelled"))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert part.heard == ["cancel", "release"]


async def test_who_drives_a_step_may_cancel_it_with_an_error() -> None:
    part = Part()
    step = step_of(part)
    step.cancel(ax.errors.CancelledError("nobody wants it"))
    step.abort(ax.errors.DataLossError("too late"))
    draining = await started(step.drain())
    part.end(None)
    await draining
    failure = step.release()
    assert isinstance(failure, ax.errors.CancelledError)
    assert part.heard == ["cancel", "release"]


@pytest.mark.filterwarnings("ignore:.*did not end the step in time:RuntimeWarning")
@pytest.mark.parametrize(("verb", "seconds"), [("abort", 5), ("cancel", 1)])
async def test_a_part_that_does_not_end_has_the_grace_of_the_verb(verb: Any, seconds: float) -> None:
    part, loop = Part(), asyncio.get_running_loop()
    step = step_of(part, grace=Grace(worker_s=5, cancel_s=1))
    began_s = loop.time()
    getattr(step, verb)(ax.errors.CancelledError("it ends"))
    await step.drain()
    assert loop.time() - began_s == pytest.approx(seconds, abs=0.1)  # and what an answer may take
    part.end(ax.errors.DataLossError("too late"))
    assert isinstance(step.release(), ax.errors.CancelledError)
