"""TensorFlow's cases of cancellation, of timeouts, of closing and of partial runs, each with the test that shows it.

They are those of ``cancellation_test.cc``, ``partial_run_mgr_test.cc``, ``session_partial_run_test.py``, and the parts
about these matters of ``direct_session_test.cc``, ``session_test.py`` and ``control_flow_ops_py_test.py``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, Final

import pydantic
import pytest

import asyncexec as ax
from tests.case_table import missing_tests
from tests.graph.testing_ops import load
from tests.running import raw_op, settle, started

_MANAGER: Final = "tests.framework.test_cancellation"
_RUNS: Final = "tests.session.test_direct_session"
_PARTIAL: Final = "tests.session.test_partial_run"
_ENDS: Final = "tests.session.test_partial_run_ends"
_REMOTE: Final = "a session runs in one process; the same calls on a server come with remote workers"

CANCELLATION: Final[dict[str, str]] = {
    "SimpleNoCancel": f"{_MANAGER}:test_without_a_cancel_nothing_is_called",
    "SimpleCancel": f"{_MANAGER}:test_a_cancel_calls_back_once",
    "CancelBeforeRegister": f"{_MANAGER}:test_registering_after_a_cancel_is_refused",
    "DeregisterAfterCancel": f"{_MANAGER}:test_deregistering_after_a_cancel_says_so",
    "CancelMultiple": f"{_MANAGER}:test_every_callback_is_called_and_a_later_one_refused",
    "IsCancelled": f"{_MANAGER}:test_spinning_threads_see_the_cancel",
    "TryDeregisterWithoutCancel": f"{_MANAGER}:test_try_deregister_without_a_cancel",
    "TryDeregisterAfterCancel": f"{_MANAGER}:test_try_deregister_after_a_cancel",
    "TryDeregisterDuringCancel": f"{_MANAGER}:test_try_deregister_during_a_cancel_does_not_wait",
    "Parent_CancelManyChildren": f"{_MANAGER}:test_children_are_cancelled_with_their_parent",
    "Parent_NotCancelled": f"{_MANAGER}:test_a_parent_is_not_cancelled_with_its_child",
    "Parent_AlreadyCancelled": f"{_MANAGER}:test_a_child_of_a_cancelled_parent_is_cancelled",
    "Parent_RandomDestructionOrder": f"{_MANAGER}:test_a_parent_does_not_keep_its_children",
}
PARTIAL_RUN_MGR: Final[dict[str, str]] = {
    "FindOrCreate.Create": "a partial run is an object that its caller has, so nobody looks for it by a step id",
    "FindOrCreate.Find": "a partial run is an object that its caller has, so nobody looks for it by a step id",
    "FindOrCreate.NewCreate": "test_the_end_of_one_partial_run_is_nothing_to_another",
    "PartialRunRemoved": "test_the_end_of_one_partial_run_is_nothing_to_another",
    "ExecutorDoneFirst": f"{_ENDS}:test_status_whichever_side_ends_first",
    "PartialRunDoneFirst": f"{_ENDS}:test_status_whichever_side_ends_first",
}
DIRECT_SESSION: Final[dict[str, str]] = {
    "PartialRunTest": "test_constants_are_fed_and_fetched_bit_by_bit",
    "PartialRunMissingFeed": "test_a_fetch_that_needs_what_is_not_fed",
    "PartialRunMultiOutputFeed": "test_one_output_of_a_switch_is_fed",
    "TimeoutSession": "test_dequeue_of_an_empty_queue_times_out",
    "TestTimeoutCleanShutdown": "tests.session.test_cancellation_of_calls:test_a_kernel_hears_that_its_time_is_over",
    "TestSessionInterOpThreads": "test_a_pool_whose_only_thread_is_blocked",
    "TestSessionInterOpThreadsWithFunctions": "test_a_pool_whose_only_thread_is_blocked",
    "TestSessionInterOpGlobalPools": "test_a_pool_whose_only_thread_is_blocked",
    "TestSessionInterOpGlobalPoolsWithFunctions": "test_a_pool_whose_only_thread_is_blocked",
    "TestSessionInterOpThreadsInvalidOptions": "test_pools_that_cannot_be",
    "TestDirectSessionRunClose": "test_runs_after_the_session_was_closed",
    "TestDirectSessionPRunClose": "test_partial_run_after_the_session_was_closed",
    "TestDirectSessionReset": f"{_RUNS}:test_closed_session_forgets_its_state",
}
SESSION_PARTIAL_RUN: Final[dict[str, str]] = {
    "testPartialRun": f"{_PARTIAL}:test_feeds_and_fetches_bit_by_bit",
    "testPartialRunIncomplete": f"{_PARTIAL}:test_what_was_not_fed_and_not_needed_is_no_error",
    "testConcurrentPartialRun": f"{_PARTIAL}:test_two_partial_runs_and_a_run_at_once",
    "testManyPartialRun": "test_two_hundred_feeds_and_fetches_of_one_chain",
    "testRunAndPartialRun": "test_partial_run_without_feeds",
    "testPartialRunMissingPlaceholderFeedException": f"{_PARTIAL}:test_placeholder_that_nobody_feeds_fails_the_step",
    "testPartialRunUnspecifiedFeed": f"{_PARTIAL}:test_what_was_not_specified_or_was_had_already",
    "testPartialRunUnspecifiedFetch": f"{_PARTIAL}:test_what_was_not_specified_or_was_had_already",
    "testPartialRunAlreadyFed": f"{_PARTIAL}:test_what_was_had_already",
    "testPartialRunAlreadyFetched": f"{_PARTIAL}:test_what_was_had_already",
    "testPartialRunEmptyFetches": "test_a_fetch_of_nothing",
    "testInvalidPartialRunSetup": f"{_PARTIAL}:test_bad_beginnings",
    "testPartialRunSetupNoFeedsPassed": "test_partial_run_without_feeds",
    "testPartialRun...Dist": _REMOTE,
}
SESSION: Final[dict[str, str]] = {
    "testTimeoutWithShortOperations": "test_a_timeout_is_of_each_run",
    "testUseAfterClose": f"{_RUNS}:test_closed_session_refuses",
    "testUseAfterCloseConcurrent": "test_runs_that_go_on_until_the_session_is_closed",
    "testWhileTimeOut": "tests.frontend.test_while_loop:test_an_endless_loop_is_ended_by_the_timeout",
}

INVALID, CANCELLED = ax.errors.InvalidArgumentError, ax.errors.CancelledError
FINISHED: Final = """
    first: Const[1.0]
    second: Const[2.0]
    one: Identity(first)
    two: Identity(second)
    third: Add(one, two)
    sum: Identity(third)
"""


def test_every_case_has_its_test() -> None:
    for cases in (CANCELLATION, PARTIAL_RUN_MGR, DIRECT_SESSION, SESSION_PARTIAL_RUN, SESSION):
        assert missing_tests(cases, __name__) == []


# --- partial runs ---------------------------------------------------------------------------------------------------


async def test_constants_are_fed_and_fetched_bit_by_bit() -> None:
    fetches, feeds = ["one:0", "two:0", "sum:0"], ["first:0", "second:0"]
    async with ax.Session(load(FINISHED)) as session, session.partial_run(fetches, feeds) as step:
        await step.feed({"first:0": 11.0})
        assert await step.fetch("one:0") == 11
        await step.feed({"second:0": 22.0})
        assert await step.fetch(["two:0", "sum:0"]) == [22, 33]


async def test_a_fetch_that_needs_what_is_not_fed() -> None:
    async with ax.Session(load(FINISHED)) as session, session.partial_run("sum:0", ["first:0", "second:0"]) as step:
        await step.feed({"first:0": 11.0})
        with pytest.raises(INVALID, match="can't be computed from the feeds"):
            await step.fetch("sum:0")


async def test_one_output_of_a_switch_is_fed() -> None:
    graph = load("yes: Const[true]\nswitch: Switch(yes, yes)\nfourth: Identity(switch:1)")
    async with ax.Session(graph) as session, session.partial_run("fourth:0", ["switch:1"]) as step:
        with pytest.raises(INVALID, match="can't be computed from the feeds"):
            await step.fetch("fourth:0")
        await step.feed({"switch:1": True})
        assert await step.fetch("fourth:0")


async def test_two_hundred_feeds_and_fetches_of_one_chain() -> None:
    with ax.Graph() as graph:
        inputs = [ax.placeholder(ax.float32, []) for _ in range(200)]
        outputs = [ax.constant(2.0) * inputs[0]]
        for x in inputs[1:]:
            outputs.append(outputs[-1] * x)
    async with ax.Session(graph) as session:
        async with session.partial_run(outputs, inputs) as step:
            for x, y in zip(inputs, outputs, strict=True):
                await step.feed({x: 1.0})
                assert await step.fetch(y) == 2
        assert await session.run(outputs, dict.fromkeys(inputs, 1.0)) == [2.0] * 200


async def test_partial_run_without_feeds() -> None:
    with ax.Graph() as graph:
        b = ax.constant(2.0) * 2.0
        c = b * 3.0
    async with ax.Session(graph) as session, session.partial_run([b, c]) as step:
        assert await step.fetch([b, c]) == await session.run([b, c]) == [4, 12]


async def test_a_fetch_of_nothing() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = x * 2.0
    async with ax.Session(graph) as session, session.partial_run([y], [x]) as step:
        await step.feed({x: 3.0})
        assert await step.fetch([]) == []
        assert await step.fetch([y]) == [6]


@pytest.mark.parametrize("end", ["complete", "left", "failed"])
async def test_the_end_of_one_partial_run_is_nothing_to_another(end: str) -> None:
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float32, [], name="x"), ax.placeholder(ax.float32, [], name="y")
        checked = ax.check_numerics(x, "bad")
        total = checked + y
    async with ax.Session(graph) as session, session.partial_run([checked, total], [x, y]) as other:
        await other.feed({x: 1.0})
        assert await other.fetch(checked) == 1
        async with session.partial_run(checked, [x]) as step:
            if end == "failed":
                await step.feed({x: float("nan")})
                with pytest.raises(INVALID, match="bad"):
                    await step.fetch(checked)
            elif end == "complete":
                await step.feed({x: 3.0})
                assert await step.fetch(checked) == 3
        assert session.statistics().running_steps == 1
        await other.feed({y: 5.0})
        assert await other.fetch(total) == 6
    assert session.statistics().running_steps == 0


# --- timeouts -------------------------------------------------------------------------------------------------------

EMPTY_QUEUE: Final = """
    queue: FIFOQueue[capacity=10, component_types=[float32]]
    taken: QueueDequeue[component_types=[float32]](queue)
"""


@pytest.mark.virtual_clock
async def test_dequeue_of_an_empty_queue_times_out() -> None:
    """Within the time of the session (``operation_timeout_in_ms``), or that of the run where it has one."""
    async with ax.Session(load(EMPTY_QUEUE), ax.SessionConfig(device_count={"CPU": 2}, timeout=0.1)) as session:
        call = session.make_callable([], targets="taken")
        for timeout, run in [
            (0.1, lambda: session.run([], targets="taken")),
            (0.1, lambda: session.run([], targets="taken", options=ax.RunOptions(trace=True))),
            (0.02, lambda: session.run([], targets="taken", options=ax.RunOptions(timeout=0.02))),
            (0.2, lambda: session.run([], targets="taken", options=ax.RunOptions(timeout=0.2))),
            (0.1, call),
        ]:
            begin = asyncio.get_running_loop().time()
            with pytest.raises(ax.errors.DeadlineExceededError, match=f"timeout of {timeout:g} s"):
                await run()
            assert asyncio.get_running_loop().time() - begin == pytest.approx(timeout)


@pytest.mark.virtual_clock
async def test_a_timeout_is_of_each_run() -> None:
    """All of them together may take longer."""

    @ax.op
    async def enqueue_slowly(x: float) -> float:
        await asyncio.sleep(6)
        return x

    with ax.Graph() as graph:
        queue = ax.FIFOQueue(50, [ax.float64], [[]])
        enqueue = queue.enqueue_many(ax.stack([enqueue_slowly(ax.constant(1.0, ax.float64))] * 2))
        size = queue.size()
    async with ax.Session(graph) as session:
        for _ in range(5):
            await session.run(enqueue, options=ax.RunOptions(timeout=10))
        assert asyncio.get_running_loop().time() == 30
        assert await session.run(size) == 10


# --- worker threads -------------------------------------------------------------------------------------------------


class Blocking:
    """A kernel on a worker thread that waits until it is let go, and a graph with it and one that needs no thread."""

    def __init__(self, *, in_function: bool) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        block = raw_op("BlockingOp", self._wait, dtype=ax.float32, is_expensive=True)

        @ax.function
        def blocking_function(value: Any) -> Any:
            return ax.identity(block(value))

        with ax.Graph() as self.graph:
            self.x = ax.constant(1.2)
            self.cheap = ax.negative(self.x)
            self.blocked = blocking_function(self.x) if in_function else block(self.x)
            self.behind = raw_op("Work", lambda value: value, dtype=ax.float32, is_expensive=True)(self.x)

    def _wait(self, value: Any) -> Any:
        self.begun.set()
        self.go.wait(20)
        return value


@pytest.fixture(params=[False, True], ids=["op", "function"])
def blocking(request: pytest.FixtureRequest) -> Iterator[Blocking]:
    found = Blocking(in_function=request.param)
    yield found
    found.go.set()


async def test_a_pool_whose_only_thread_is_blocked(blocking: Blocking) -> None:
    """Each session has threads of its own: what needs none, and what runs in another session, is not held up."""
    async with (
        ax.Session(blocking.graph, ax.SessionConfig(num_worker_threads=1)) as small,
        ax.Session(blocking.graph) as large,
    ):
        blocked = await started(small.run(blocking.blocked))
        while not blocking.begun.is_set():  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0)
        behind = [await started(small.run(blocking.behind)) for _ in range(3)]
        found = [await large.run(blocking.behind) for _ in range(4)]
        assert found == pytest.approx([1.2] * 4)
        assert await small.run(blocking.cheap) == pytest.approx(-1.2)
        assert not any(run.done() for run in (blocked, *behind))
        blocking.go.set()
        assert await asyncio.gather(blocked, *behind) == pytest.approx([1.2] * 4)


def test_pools_that_cannot_be() -> None:
    for number in (0, -2):
        with pytest.raises(pydantic.ValidationError, match="num_worker_threads"):
            ax.SessionConfig(num_worker_threads=number)
    with pytest.raises(pydantic.ValidationError, match="inter_op_thread_pool"):
        ax.RunOptions(inter_op_thread_pool=1)  # type: ignore[call-arg]
    for _ in range(2):
        ax.Limiter(3, name="tests.foo")  # what is named is shared, and keeps its size
        with pytest.raises(INVALID, match=r"already a limiter 'tests\.foo', of 3"):
            ax.Limiter(4, name="tests.foo")


# --- closed sessions ------------------------------------------------------------------------------------------------


async def test_runs_after_the_session_was_closed() -> None:
    with ax.Graph() as graph:
        variable = ax.create_op("VariableV2", [], {"dtype": ax.float32, "shape": []}, "v")
        assign = ax.create_op("Assign", [variable, ax.constant(1.2)], {}, "assign")
    session = ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2}))
    await session.run([], targets=[assign])
    assert await session.run(variable) == pytest.approx(1.2)
    call = session.make_callable([], targets=[assign])
    await session.close()
    for use in (session.run([], targets=[assign]), session.run(variable), call()):
        with pytest.raises(CANCELLED, match=r"Session has been closed\."):
            await use


async def test_partial_run_after_the_session_was_closed() -> None:
    session = ax.Session(load(FINISHED))
    with pytest.raises(CANCELLED, match=r"Session has been closed\."):  # noqa: PT012 - of feed, and of nothing else
        async with session.partial_run(["one:0", "sum:0"], ["first:0", "second:0"]) as step:
            closing = await started(session.close())
            for use in (step.fetch("one:0"), step.feed({"first:0": 11.0})):
                with pytest.raises(CANCELLED, match=r"Session has been closed\."):
                    await use
            await step.feed({"first:0": 11.0})
    await closing


async def test_runs_that_go_on_until_the_session_is_closed() -> None:
    session = ax.Session(load(FINISHED))
    num_runs = [0] * 3

    async def run_on(i: int) -> None:
        while True:
            assert await session.run("sum:0") == 3
            num_runs[i] += 1
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(run_on(i)) for i in range(3)]
    await settle(50)
    await session.close()
    for task in tasks:
        with pytest.raises(CANCELLED, match="Session has been closed"):
            await task
    assert min(num_runs) > 10
