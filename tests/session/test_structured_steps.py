"""One step is one structured scope: what it started ends in it, and the first failure is what the caller sees.

The promises are those of Trio and anyio, and of asyncio's list of faults in anyio's ``docs/why.rst``:

promise                                                     here
----------------------------------------------------------  --------------------------------------------------------
an error ends the siblings, and waits for their clean-up     test_first_failure_*
no error is lost or replaced by what follows from it         test_first_failure_is_the_one_that_is_seen
cancelling the caller ends the step                          test_cancelled_from_outside
... and comes out as the caller's own                        test_cancelled_from_outside, test_anyio_scopes
a task cancelled before it began leaks nothing               test_kernels_that_had_not_begun_never_begin
a result delivered in the same tick is not lost silently     test_result_and_cancellation_in_one_turn
a second cancellation does not orphan the first's clean-up   test_cancelled_again_during_clean_up
level cancellation cannot cut the step's own clean-up short  test_anyio_scopes
a task that swallows its cancellation is waited for          test_kernel_that_swallows_its_cancellation
threads are waited for                                       test_worker_thread_is_waited_for
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.fake_time import FakeTime
from tests.running import begin_tasks_eagerly, raw_op, settle, started


class Kernels:
    """Ops whose kernels tell what becomes of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.go = asyncio.Event()
        self.leave = threading.Event()

        @ax.op
        async def wait(label: str) -> str:
            """Waits for ever, and takes some turns of the loop to clean up."""
            self.log.append(f"{label} began")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.log.append(f"{label} cancelled")
                raise
            finally:
                await settle()
                self.log.append(f"{label} ended")
            return label

        @ax.op
        async def fail_later(label: str) -> str:
            await self.go.wait()
            raise ValueError(f"{label} failed")

        @ax.op
        def fail(label: str) -> str:
            raise ValueError(f"{label} failed")

        @ax.op(expensive=True)
        def thread(label: str) -> str:
            self.log.append(f"{label} began")
            self.leave.wait(10)
            self.log.append(f"{label} ended")
            return label

        self.wait, self.fail, self.fail_later, self.thread = wait, fail, fail_later, thread


@pytest.fixture
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture
def graph() -> ax.Graph:
    return ax.Graph()


def named(*names: str) -> list[ax.Tensor]:
    return [ax.constant(name) for name in names]


async def test_first_failure_cancels_the_rest_and_waits_for_it(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        a, b, c = named("a", "b", "c")
        fetches = [kernels.wait(a), kernels.wait(b), kernels.fail_later(c, name="culprit")]
    async with ax.Session(graph) as session:
        run = await started(session.run(fetches))
        assert kernels.log == ["a began", "b began"]
        kernels.go.set()
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await run
        assert kernels.log[2:4] == ["a cancelled", "b cancelled"]
        assert sorted(kernels.log[4:]) == ["a ended", "b ended"]
        assert (caught.value.node, caught.value.op) == ("culprit", "fail_later")
        assert await session.run(ax_const(graph)) == 1.0


def ax_const(graph: ax.Graph) -> ax.Tensor:
    with graph:
        return ax.constant(1.0)


async def test_first_failure_inline_cancels_what_was_launched(graph: ax.Graph, kernels: Kernels) -> None:
    """The async kernel has begun when, a turn later, a cheap one fails."""
    with graph:
        (a,) = named("a")

        @ax.op
        async def soon(name: str) -> str:
            await asyncio.sleep(0)
            return name

        fetches = [kernels.wait(a), kernels.fail(soon(a))]
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="a failed"):
            await session.run(fetches)
    assert kernels.log == ["a began", "a cancelled", "a ended"]


async def test_first_failure_is_the_one_that_is_seen(graph: ax.Graph) -> None:
    @ax.op
    async def fails_when_cancelled(x: float) -> float:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("in clean-up")
        return x

    @ax.op
    async def fails(x: float) -> float:
        await asyncio.sleep(0)
        raise KeyError("first")

    with graph:
        x = ax.constant(1.0)
        fetches = [fails_when_cancelled(x), fails(x), fails_when_cancelled(x)]
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.NotFoundError, match="first") as caught:
            await session.run(fetches)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_two_failures_in_one_turn(graph: ax.Graph) -> None:
    event = asyncio.Event()

    @ax.op
    async def fails(name: str) -> str:
        await event.wait()
        raise ValueError(name)

    with graph:
        fetches = [fails(name) for name in named("a", "b", "c")]
    async with ax.Session(graph) as session:
        run = await started(session.run(fetches))
        event.set()
        with pytest.raises(ax.errors.InvalidArgumentError, match="ValueError: a"):
            await run


async def test_kernels_that_had_not_begun_never_begin(graph: ax.Graph, kernels: Kernels) -> None:
    """Their coroutines are closed, so nobody warns that they were never awaited."""
    with graph:
        a, b = named("a", "b")
        with ax.control_dependencies([]):
            fetches = [kernels.wait(a), kernels.wait(a), kernels.fail(b)]
    async with ax.Session(graph, clock=FakeTime().clock) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError, match="b failed"):
                await session.run(fetches)
    assert kernels.log == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_eager_tasks(graph: ax.Graph, kernels: Kernels) -> None:
    """A kernel's task may have ended when it is made."""

    @ax.op
    async def at_once(label: str) -> str:
        return label

    with graph:
        a, b = named("a", "b")
        passes = at_once(at_once(a))
        fails = [kernels.wait(a), kernels.fail(passes)]
    begin_tasks_eagerly()
    async with ax.Session(graph) as session:
        assert await session.run([passes, at_once.options(name="again")(b)]) == ["a", "b"]
        with pytest.raises(ax.errors.InvalidArgumentError, match="a failed"):
            await session.run(fails)
    assert kernels.log == ["a began", "a cancelled", "a ended"]


async def test_launch_that_fails(graph: ax.Graph) -> None:
    """A kernel may fail before there is anything to await."""

    def start(x: float) -> Any:
        raise ValueError("no coroutine")

    with graph:
        x = ax.constant(1.0)
        broken = raw_op("Broken", start, kind=KernelKind.ASYNC)(x, name="broken")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="no coroutine") as caught:
            await session.run(broken)
        assert caught.value.node == "broken"


async def test_text_that_cannot_be_decoded(graph: ax.Graph) -> None:
    @ax.op
    async def read(text: str) -> str:
        return text

    with graph:
        bad = read(ax.constant(b"\xff"), name="read_bad")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="UnicodeDecodeError") as caught:
            await session.run(bad)
        assert caught.value.node == "read_bad"


async def has_logged(kernels: Kernels, entry: str) -> None:
    """Returns once a thread has come so far (the test's own time limit bounds it)."""
    while entry not in kernels.log:  # noqa: ASYNC110 - the thread tells nobody
        await asyncio.sleep(0)


async def test_worker_thread_is_waited_for(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        a, b = named("a", "b")
        fetches = [kernels.thread(a), kernels.fail_later(b)]
    async with ax.Session(graph) as session:
        run = await started(session.run(fetches))
        await has_logged(kernels, "a began")
        kernels.go.set()
        await settle()
        assert not run.done()
        kernels.leave.set()
        with pytest.raises(ax.errors.InvalidArgumentError, match="b failed"):
            await run
    assert kernels.log == ["a began", "a ended"]


async def test_worker_thread_is_waited_for_when_cancelled(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        fetch = kernels.thread(*named("a"))
    async with ax.Session(graph) as session:
        run = await started(session.run(fetch))
        await has_logged(kernels, "a began")
        for _ in range(3):
            run.cancel()
            await settle()
            assert not run.done()
        kernels.leave.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert kernels.log == ["a began", "a ended"]


async def test_nothing_runs_after_a_failure(graph: ax.Graph, kernels: Kernels) -> None:
    """What a worker still gives after the failure makes nothing ready."""
    ran: list[str] = []
    with graph:
        a, b = named("a", "b")
        fetches = [raw_op("Note", ran.append)(kernels.thread(a)), kernels.fail_later(b)]
    async with ax.Session(graph) as session:
        run = await started(session.run(fetches))
        await has_logged(kernels, "a began")
        kernels.go.set()
        await settle()
        kernels.leave.set()
        with pytest.raises(ax.errors.InvalidArgumentError):
            await run
    assert ran == []


async def test_cancelled_from_outside(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        fetch = kernels.wait(*named("a"))
    async with ax.Session(graph) as session:
        run = await started(session.run(fetch))
        run.cancel("enough")
        with pytest.raises(asyncio.CancelledError) as caught:
            await run
        assert not isinstance(caught.value, ax.errors.OpError)
        assert kernels.log == ["a began", "a cancelled", "a ended"]


async def test_cancelled_again_during_clean_up(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        fetch = kernels.wait(*named("a"))
    async with ax.Session(graph) as session:
        run = await started(session.run(fetch))
        run.cancel()
        await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert kernels.log == ["a began", "a cancelled", "a ended"]


async def test_cancelled_during_the_clean_up_after_a_failure(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        a, b = named("a", "b")
        fetches = [kernels.wait(a), kernels.fail_later(b)]
    async with ax.Session(graph) as session:
        run = await started(session.run(fetches))
        kernels.go.set()
        await settle(3)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert kernels.log == ["a began", "a cancelled", "a ended"]


async def test_result_and_cancellation_in_one_turn(graph: ax.Graph) -> None:
    event = asyncio.Event()

    @ax.op
    async def wait(x: float) -> float:
        await event.wait()
        return 1.0

    with graph:
        fetch = wait(ax.constant(1.0))
    async with ax.Session(graph) as session:
        run = await started(session.run(fetch))
        event.set()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert await session.run(fetch) == 1.0


async def test_kernel_that_swallows_its_cancellation(graph: ax.Graph, kernels: Kernels) -> None:
    stop = asyncio.Event()

    @ax.op
    async def stubborn(x: float) -> float:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        return x

    with graph:
        fetch = stubborn(ax.constant(1.0))
    async with ax.Session(graph) as session:
        run = await started(session.run(fetch))
        run.cancel()
        await settle()
        assert not run.done()
        stop.set()
        with pytest.raises(asyncio.CancelledError):
            await run


@pytest.mark.virtual_clock
async def test_timeout_waits_for_the_kernels_clean_up(graph: ax.Graph) -> None:
    finished: list[float] = []

    @ax.op
    async def wait(x: float) -> float:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            finished.append(asyncio.get_running_loop().time())
        return x

    with graph:
        fetch = wait(ax.constant(1.0))
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="timeout of 2 s"):
            await session.run(fetch, options=ax.RunOptions(timeout=2))
    assert finished == [7.0]


async def test_task_group_of_the_caller(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        waits = kernels.wait(*named("a"))
        fails = kernels.fail(*named("b"))
    async with ax.Session(graph) as session:

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(session.run(waits))
                await settle()
                group.create_task(session.run(fails))

        with pytest.raises(BaseExceptionGroup) as caught:
            await both()
        (error,) = caught.value.exceptions
        assert isinstance(error, ax.errors.InvalidArgumentError)
        assert kernels.log == ["a began", "a cancelled", "a ended"]


@pytest.mark.virtual_clock
async def test_asyncio_timeout_of_the_caller(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        fetch = kernels.wait(*named("a"))
    async with ax.Session(graph) as session:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(1):
                await session.run(fetch)
        assert not isinstance(caught.value, ax.errors.OpError)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run(fetch), 1)
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0


@pytest.mark.virtual_clock
async def test_anyio_scopes(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        fetch = kernels.wait(*named("a"))
    async with ax.Session(graph) as session:
        with anyio.move_on_after(1) as scope:
            await session.run(fetch)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError):
            with anyio.fail_after(1):
                await session.run(fetch)
        assert kernels.log == ["a began", "a cancelled", "a ended"] * 2
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, fetch)
            await settle()
            group.cancel_scope.cancel()
        assert kernels.log == ["a began", "a cancelled", "a ended"] * 3
        await asyncio.sleep(0)  # no cancellation is left over


async def test_anyio_scope_that_is_cancelled_already(graph: ax.Graph, kernels: Kernels) -> None:
    with graph:
        fetch = kernels.wait(*named("a"))
    async with ax.Session(graph) as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.run(fetch)
        assert scope.cancelled_caught
    assert kernels.log in ([], ["a began", "a cancelled", "a ended"])


async def test_session_closes_inside_a_cancelled_scope(kernels: Kernels, graph: ax.Graph) -> None:
    """Its threads end all the same: closing is shielded."""
    with graph:
        fetch = kernels.thread(*named("a"))
    kernels.leave.set()
    with anyio.CancelScope() as scope:
        async with ax.Session(graph) as session:
            await session.run(fetch)
            scope.cancel()
    assert scope.cancelled_caught or scope.cancel_called
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncexec")]


async def test_close_that_is_cancelled(kernels: Kernels, graph: ax.Graph) -> None:
    with graph:
        fetch = kernels.thread(*named("a"))
    session = ax.Session(graph)
    run = await started(session.run(fetch))
    await has_logged(kernels, "a began")
    closing = await started(session.close())
    closing.cancel()
    await settle()
    assert not closing.done()
    kernels.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ax.errors.CancelledError):
        await run
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncexec")]


async def test_kernel_that_uses_anyio_itself(graph: ax.Graph) -> None:
    @ax.op
    async def nested(x: float) -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return 2.0

    with graph:
        fetch = nested(ax.constant(2.0))
    async with ax.Session(graph) as session:
        assert await session.run(fetch) == 2.0


async def test_cancellation_that_a_kernel_raises_itself(graph: ax.Graph) -> None:
    """It is the kernel's failure, not the caller's cancellation."""

    @ax.op
    async def awaits_a_cancelled_task(x: float) -> float:
        task = asyncio.ensure_future(asyncio.sleep(1))
        task.cancel()
        await task
        return x

    with graph:
        fetch = awaits_a_cancelled_task(ax.constant(1.0), name="odd")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.CancelledError) as caught:
            await session.run(fetch)
        assert caught.value.node == "odd"


@pytest.mark.parametrize("place", ["inline", "worker"])
async def test_cancelled_error_of_a_plain_kernel(graph: ax.Graph, place: str) -> None:
    @ax.op(expensive=place == "worker")
    def odd(x: float) -> float:
        raise asyncio.CancelledError

    with graph:
        fetch = odd(ax.constant(1.0), name="odd")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.CancelledError) as caught:
            await session.run(fetch)
        assert caught.value.node == "odd"


class Exit(BaseException):
    """Like SystemExit, but no loop ends because of it."""


@pytest.mark.parametrize("place", ["inline", "worker", "async", "after a turn"])
async def test_what_is_no_exception_ends_the_step_too(graph: ax.Graph, kernels: Kernels, place: str) -> None:
    @ax.op(expensive=place == "worker")
    def leave(name: str) -> str:
        raise Exit

    @ax.op
    async def leave_later(name: str) -> str:
        await asyncio.sleep(0)
        raise Exit

    @ax.op
    async def soon(name: str) -> str:
        await settle(2)
        return name

    with graph:
        a, b = named("a", "b")
        exits = {"async": leave_later, "after a turn": lambda name: leave(soon(name))}.get(place, leave)
        fetches = [kernels.wait(a), exits(b)]
    async with ax.Session(graph, ax.SessionConfig(slice_ms=10_000)) as session:
        with pytest.raises(Exit):
            await session.run(fetches)
        began = kernels.log.count("a began")
        assert kernels.log.count("a ended") == began
        assert began == (place != "inline")
        assert await session.run(ax_const(graph)) == 1.0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_get_out_of_the_loop(error: type[BaseException]) -> None:
    @ax.op
    async def interrupted(x: float) -> float:
        await asyncio.sleep(0)
        raise error

    with ax.Graph() as graph:
        fetch = interrupted(ax.constant(1.0))

    async def main() -> None:
        async with ax.Session(graph) as session:
            await session.run(fetch)

    with pytest.raises(error):
        ax.run(main)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("v"), ax.errors.InvalidArgumentError),
        (TypeError("v"), ax.errors.InvalidArgumentError),
        (ZeroDivisionError("v"), ax.errors.InvalidArgumentError),
        (KeyError("v"), ax.errors.NotFoundError),
        (FileNotFoundError("v"), ax.errors.NotFoundError),
        (PermissionError("v"), ax.errors.PermissionDeniedError),
        (TimeoutError("v"), ax.errors.DeadlineExceededError),
        (NotImplementedError("v"), ax.errors.UnimplementedError),
        (MemoryError("v"), ax.errors.ResourceExhaustedError),
        (AssertionError("v"), ax.errors.InternalError),
        (RuntimeError("v"), ax.errors.UnknownError),
        (OSError("v"), ax.errors.UnknownError),
        (StopAsyncIteration("v"), ax.errors.UnknownError),
        (ax.errors.AbortedError("v"), ax.errors.AbortedError),
        (ExceptionGroup("v", [ValueError("v")]), ax.errors.UnknownError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
@pytest.mark.parametrize("place", ["inline", "worker", "async"])
async def test_errors_of_kernels(graph: ax.Graph, place: str, raised: Exception, expected: type[Exception]) -> None:
    raised = type(raised)(*raised.args)

    def fail(x: float) -> float:
        raise raised

    async def fail_later(x: float) -> float:
        await asyncio.sleep(0)
        raise raised

    function: Callable[..., Any] = fail_later if place == "async" else fail
    with graph:
        node = ax.op(name="Culprit", expensive=place == "worker")(function)(ax.constant(1.0), name="culprit")
        after = ax.identity(node)
    async with ax.Session(graph) as session:
        with pytest.raises(expected, match="v") as caught:
            await session.run(after)
    error = caught.value
    assert isinstance(error, ax.errors.OpError)
    assert (error.node, error.op) == ("culprit", "Culprit")
    assert error.user_line is not None
    assert __file__ in error.user_line
    if not isinstance(raised, ax.errors.OpError):
        assert error.__cause__ is raised
    assert "{{node culprit}} = Culprit" in str(error)
