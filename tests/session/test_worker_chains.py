"""Expensive nodes in a chain go on on their worker thread, without the event loop; all else is as if each came back."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import DEAD, KernelKind
from asyncexec.framework.kernel_warning import KernelWarning
from tests.fake_time import FakeTime
from tests.running import let_threads_free, raw_op, started

SOON_S = 30.0  # by far longer than it takes
ONE_THREAD = ax.SessionConfig(num_worker_threads=1, cancel_grace_s=None, worker_grace_s=None)
LATE = ax.SessionConfig(num_worker_threads=1, worker_grace_s=5)


class Steps:
    """Expensive ops that note what ran, and where; ``gate`` lets go on the node that waits for it."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.threads: list[int] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def node(self, x: Any, name: str, do: Callable[..., Any] | None = None, *others: Any) -> Any:
        """A node *name* that gives its first input plus one, or what *do* gives."""

        def kernel(*inputs: Any) -> Any:
            self.ran.append(name)
            self.threads.append(threading.get_native_id())
            return inputs[0] + 1 if do is None else do(*inputs)

        return raw_op("Step", kernel, is_expensive=True)(x, *others, name=name)

    def chain(self, x: Any, names: str, **kernels: Callable[..., Any]) -> Any:
        """A chain of nodes with those names; some have kernels of their own."""
        for name in names.split():
            x = self.node(x, name, kernels.get(name))
        return x

    def wait(self, x: Any) -> Any:
        """A kernel that waits for the gate."""
        self.begun.set()
        assert self.gate.wait(SOON_S)
        return x + 1

    async def wait_begun(self) -> None:
        while not self.begun.is_set():  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0)


@pytest.fixture
def steps() -> Iterator[Steps]:
    steps = Steps()
    yield steps
    steps.gate.set()


@pytest.fixture
def graph() -> ax.Graph:
    return ax.Graph()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def spin_until(is_so: Callable[[], object]) -> None:
    """Wait without giving the loop a turn."""
    while not is_so():
        pass


def fail(x: Any) -> Any:
    raise ZeroDivisionError("enough")


async def test_a_chain_goes_on_without_the_loop(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a b c d e")
    async with ax.Session(graph) as session:
        run = await started(session.run(last, {x: 1}))
        spin_until(lambda: len(steps.ran) == 5)
        assert await run == 6
    assert steps.ran == ["a", "b", "c", "d", "e"]
    assert len(set(steps.threads)) == 1
    assert threading.get_native_id() not in steps.threads


async def test_all_that_leads_to_the_next_node_alone_is_handed_on(graph: ax.Graph, steps: Steps) -> None:
    """Several outputs, one output twice, control edges; other inputs that are fed or constant."""
    split = raw_op("Split", lambda x: (x + 1, x + 2), outputs=2, is_expensive=True)
    with graph:
        x, y = ax.placeholder(ax.object, []), ax.placeholder(ax.object, [])
        first, second = split(steps.node(x, "a"), name="split")
        joined = steps.node(second, "join", lambda s, f, t: (f, s, t), first, second)
        with ax.control_dependencies([steps.node(joined, "b", lambda j, _: j, ax.constant(7.0)).op]):
            last = steps.node(y, "last")
    async with ax.Session(graph) as session:
        run = await started(session.run([last], {x: 1, y: 5}))
        spin_until(lambda: "last" in steps.ran)
        assert await run == [6]
    assert steps.ran == ["a", "join", "b", "last"]


async def test_values_that_are_handed_on(graph: ax.Graph, steps: Steps) -> None:
    split = raw_op("Split", lambda x: (x + 1, x + 2), outputs=2, is_expensive=True)
    with graph:
        x = ax.placeholder(ax.object, [])
        first, second = split(steps.node(x, "a"))
        last = steps.node(second, "join", lambda s, f, t: (f, s, t), first, second)
    async with ax.Session(graph) as session:
        assert await session.run(last, {x: 1}) == (3, 4, 4)


async def test_a_long_chain(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, " ".join(f"n{i}" for i in range(200)))
    async with ax.Session(graph) as session:
        assert await session.run(last, {x: 1}) == 201
    assert steps.ran == [f"n{i}" for i in range(200)]


async def test_fetches_and_other_consumers_in_the_middle(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        b = steps.chain(x, "a b")
        d = steps.chain(b, "c d")
        fetches = [b, d, steps.chain(d, "e f"), steps.chain(d, "g h"), raw_op("Cheap", lambda v: -v)(d)]
    async with ax.Session(graph) as session:
        assert await session.run(fetches, {x: 1}) == [3, 5, 7, 7, -5]
    assert sorted(steps.ran) == list("abcdefgh")


async def test_a_value_that_is_fetched_in_the_middle_comes_at_once(graph: ax.Graph, steps: Steps) -> None:
    """What needs a value gets it before the node behind in the chain has ended."""
    cheap = raw_op("Cheap", lambda v: steps.gate.set())
    with graph:
        x = ax.placeholder(ax.object, [])
        b = steps.chain(x, "a b")
        fetches = [steps.chain(b, "c d", c=steps.wait), cheap(b)]
    async with ax.Session(graph) as session:
        assert await session.run(fetches, {x: 1}) == [5, None]


async def test_each_node_has_its_own_record(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a b c")
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        await session.run(last, {x: 1}, options=ax.RunOptions(trace=True), metadata=metadata)
    (device,) = metadata.step_stats.dev_stats
    records = device.node_stats
    assert [record.node_name for record in records] == ["a", "b", "c"]
    assert [record.thread_id for record in records] == steps.threads
    for before, after in pairwise(records):
        assert before.all_start_nanos + before.all_end_rel_nanos == after.scheduled_nanos <= after.all_start_nanos


async def test_a_node_that_turns_out_cheap_leaves_the_worker(graph: ax.Graph, steps: Steps) -> None:
    """Both depend on the size of their inputs; after the first run it is known what a byte costs."""

    def kernel(x: Any) -> Any:
        steps.threads.append(threading.get_native_id())
        return x

    sized = raw_op("Sized", kernel, kind=KernelKind.EXPENSIVE, dtype=ax.float32)
    with graph:
        x = ax.placeholder(ax.float32, [None])
        last = sized(sized(x))
    config = ax.SessionConfig(executor_type="TAGGED_TOKEN")
    async with ax.Session(graph, config, clock=FakeTime(1_000).clock) as session:
        for _ in range(2):
            await session.run(last, {x: np.ones(10_000, np.float32)})
    here = threading.get_native_id()
    first, second, third, fourth = steps.threads
    assert (first == second != here, third == fourth == here) == (True, True)


@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_a_failure_in_the_middle(graph: ax.Graph, steps: Steps, seed: int | None) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a b c d", c=fail)
    async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.OpError, match="enough") as caught:
                await session.run(last, {x: 1})
            assert caught.value.node == "c"
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert steps.ran == ["a", "b", "c"] * 2


async def test_outputs_that_are_not_what_the_op_promises(graph: ax.Graph, steps: Steps) -> None:
    split = raw_op("Split", lambda x: (x, x, x), outputs=2, is_expensive=True)
    with graph:
        x = ax.placeholder(ax.object, [])
        first, second = split(steps.node(x, "a"), name="split")
        last = steps.node(first, "b", None, second)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InternalError, match="3 outputs, but Split has 2") as caught:
            await session.run(last, {x: 1})
        assert caught.value.node == "split"
    assert steps.ran == ["a"]


async def test_debug_checks_each_node(graph: ax.Graph, steps: Steps) -> None:
    wrong = raw_op("Wrong", lambda x: x.astype(np.float64), is_expensive=True, dtype=ax.float32)
    right = raw_op("Right", lambda x: x, is_expensive=True, dtype=ax.float32)
    with graph:
        x = ax.placeholder(ax.float32, [3])
        last = right(wrong(right(x), name="wrong"))
    async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
        with pytest.raises(ax.errors.InternalError, match="float64, not float32") as caught:
            await session.run(last, {x: np.ones(3, np.float32)})
        assert caught.value.node == "wrong"


def test_a_blocking_session(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a b c")
    with ax.BlockingSession(graph) as session:
        assert session.run(last, {x: 1}) == 4


@pytest.mark.parametrize("cause", ["cancellation", "failure", "close"])
async def test_a_step_that_has_ended_begins_no_further_node(graph: ax.Graph, steps: Steps, cause: str) -> None:
    told, go = threading.Event(), asyncio.Event()

    def wait(x: Any) -> Any:
        manager = ax.cancellation_manager()
        assert manager.register_callback(manager.get_cancellation_token(), told.set)
        return steps.wait(x)

    async def fail_later(x: Any) -> Any:
        await go.wait()
        raise ValueError("enough")

    with graph:
        x = ax.placeholder(ax.object, [])
        fetches = [steps.chain(x, "a b c d", b=wait), raw_op("Fail", fail_later, kind=KernelKind.ASYNC)(x)]
    session = ax.Session(graph, ONE_THREAD)
    run = await started(session.run(fetches, {x: 1}))
    await steps.wait_begun()
    closing = None
    if cause == "cancellation":
        run.cancel()
    elif cause == "failure":
        go.set()
    else:
        closing = asyncio.ensure_future(session.close())
    while not told.is_set():  # noqa: ASYNC110 - by the step, which has ended
        await asyncio.sleep(0)
    assert not run.done()  # it waits for the call
    steps.gate.set()
    await asyncio.wait([run])
    if cause == "cancellation":
        assert run.cancelled()
    else:
        expected = {"failure": ax.errors.InvalidArgumentError, "close": ax.errors.CancelledError}[cause]
        assert isinstance(run.exception(), expected)
    await (closing or session.close())
    assert steps.ran == ["a", "b"]


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize("cause", ["timeout", "failure"])
async def test_a_warning_names_the_node_that_is_late(graph: ax.Graph, steps: Steps, cause: str) -> None:
    async def fail_later(x: Any) -> Any:
        await asyncio.sleep(2)
        raise ValueError("enough")

    with graph:
        x = ax.placeholder(ax.object, [])
        fetches = [steps.chain(x, "a late c d", late=steps.wait), raw_op("Fail", fail_later, kind=KernelKind.ASYNC)(x)]
    options = ax.RunOptions(timeout=1) if cause == "timeout" else None
    async with ax.Session(graph, LATE) as session:
        run = await started(session.run(fetches, {x: 1}, options=options))
        await steps.wait_begun()
        with pytest.warns(KernelWarning, match="the kernel of node 'late' has not come back"):
            await asyncio.wait([run])
        (pool,) = session._state.pools.values()
        assert (pool.statistics().busy, pool.statistics().abandoned, pool.statistics().queued) == (1, 1, 0)
        steps.gate.set()
        while pool.statistics().abandoned:  # noqa: ASYNC110 - the thread is free again
            await asyncio.sleep(0)
        assert pool.statistics().completed == 2
    assert steps.ran == ["a", "late"]


async def test_other_jobs_wait_for_one_node_at_most(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        long = steps.chain(x, "a b c d e f", a=steps.wait)
        other = steps.chain(x, "A B C")
        third = steps.chain(x, "single")
    async with ax.Session(graph, ONE_THREAD) as session:
        runs = [await started(session.run(fetch, {x: 1})) for fetch in (long, other, third)]
        steps.gate.set()
        assert await asyncio.gather(*runs) == [7, 4, 2]
        (pool,) = session._state.pools.values()
        assert pool.statistics().completed == 10
    assert steps.ran == ["a", "A", "single", "b", "B", "c", "C", "d", "e", "f"]


async def test_a_chain_that_waits_behind_others_can_be_cancelled(graph: ax.Graph, steps: Steps) -> None:
    """It is not waited for, and what its nodes would have taken is let go of at once."""
    with graph:
        x = ax.placeholder(ax.object, [])
        long = steps.chain(x, "a b c", a=lambda x: steps.begun.set() or spin_until(is_queued.is_set))
        other = steps.chain(x, "other", other=steps.wait)
    is_queued = threading.Event()
    async with ax.Session(graph, ONE_THREAD) as session:
        run = await started(session.run(long, {x: 1}))
        await steps.wait_begun()
        steps.begun.clear()
        waits = await started(session.run(other, {x: 1}))
        is_queued.set()
        await steps.wait_begun()
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
        (pool,) = session._state.pools.values()
        assert (pool.statistics().busy, pool.statistics().queued) == (1, 0)
        steps.gate.set()
        assert await waits == 2
    assert steps.ran == ["a", "other"]


@pytest.mark.usefixtures("no_collector")
async def test_values_are_let_go_of_at_their_last_use(graph: ax.Graph, steps: Steps) -> None:
    """Each node makes an array, and sees of the others its input alone."""
    made: list[weakref.ref[Any]] = []
    seen: list[int] = []

    def make(*inputs: Any) -> Any:
        seen.append(sum(ref() is not None for ref in made))
        array = np.ones(1000)
        made.append(weakref.ref(array))
        return array

    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a b c d", a=make, b=make, c=make, d=lambda _: None)
    async with ax.Session(graph) as session:
        await session.run(last, {x: 1})
        await let_threads_free(lambda: any(ref() is not None for ref in made))
        assert [ref() for ref in made] == [None] * 3
    assert seen == [0, 1, 1]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("end", ["failure", "cancellation"])
async def test_nothing_is_held_for_nodes_that_do_not_run(graph: ax.Graph, steps: Steps, end: str) -> None:
    with graph:
        x, y = ax.placeholder(ax.object, []), ax.placeholder(ax.object, [])
        b = steps.node(steps.node(x, "a"), "b", steps.wait if end == "cancellation" else fail)
        last = steps.node(b, "c", None, y)
    async with ax.Session(graph, ONE_THREAD) as session:
        value = np.ones(3)
        ref = weakref.ref(value)
        run = asyncio.ensure_future(session.run(last, {x: 1, y: value}))
        del value
        if end == "cancellation":
            await steps.wait_begun()
            run.cancel()
            await asyncio.sleep(0)
            steps.gate.set()
        await asyncio.wait([run])
        assert run.cancelled() or run.exception() is not None
        del run
        for _ in range(1000):
            if ref() is None:
                break
            await asyncio.sleep(0.001)
        assert ref() is None


async def test_each_call_has_a_context_and_a_cancellation_manager_of_its_own(graph: ax.Graph, steps: Steps) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    told: list[str] = []

    def register(name: str) -> None:
        manager = ax.cancellation_manager()
        assert manager.register_callback(manager.get_cancellation_token(), lambda: told.append(name))

    def first(x: Any) -> Any:
        register("first")
        variable.set(7)
        return variable.get()

    def second(x: Any) -> Any:
        register("second")
        steps.wait(x)
        return x, variable.get()

    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a b", a=first, b=second)
    async with ax.Session(graph, ONE_THREAD) as session:
        variable.set(5)
        run = await started(session.run(last, {x: 1}))
        await steps.wait_begun()
        steps.gate.set()
        assert await run == (7, 5)
        steps.begun.clear()
        steps.gate.clear()
        run = await started(session.run(last, {x: 1}))
        await steps.wait_begun()
        run.cancel()
        while not told:  # noqa: ASYNC110 - by the step, which has ended
            await asyncio.sleep(0)
        steps.gate.set()
        await asyncio.wait([run])
    assert told == ["second"]


async def test_a_run_from_inside_a_chain_that_would_wait_for_ever(graph: ax.Graph, steps: Steps) -> None:
    loop = asyncio.get_running_loop()

    def nest(value: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(session.run(other, {x: 5}), loop).result(SOON_S)

    with graph:
        x = ax.placeholder(ax.object, [])
        last = steps.chain(x, "a nests c", nests=nest)
        other = steps.chain(x, "other")
    async with ax.Session(graph, ONE_THREAD) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="kernel 'nests' runs the graph"):
            await session.run(last, {x: 1})


async def test_streams(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        middle = steps.chain(x, "a b c", b=lambda x: x + 1 if x != 5 else fail(x))
        last = steps.chain(middle, "d e")
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=2)) as session:
        items = [{x: i} for i in range(100, 140)]
        assert [out async for out in session.map(last, items, window=8)] == [i + 5 for i in range(100, 140)]
        found = [out async for out in session.map([last, middle], [{x: 1}, {x: 4}, {x: 7}], on_error="yield")]
    assert found[0] == [6, 4]
    assert found[2] == [12, 10]
    assert found[1].node == "b"


async def test_a_partial_run_whose_feed_comes_late(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x, y = ax.placeholder(ax.object, []), ax.placeholder(ax.object, [])
        b = steps.chain(x, "a b")
        last = steps.chain(steps.node(b, "c", lambda b, y: b + y, y), "d e")
    async with ax.Session(graph) as session, session.partial_run([b, last], [x, y]) as step:
        await step.feed({x: 1})
        assert await step.fetch(b) == 3
        await step.feed({y: 10})
        assert await step.fetch(last) == 15
    assert steps.ran == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_chains_in_a_loop(graph: ax.Graph, steps: Steps, seed: int | None) -> None:
    """Its iterations overlap; loop invariants are inputs of nodes in the chain."""
    with graph:
        x = ax.placeholder(ax.object, [])

        def body(i: Any, v: Any) -> Any:
            added = steps.node(steps.chain(v, "a b"), "c", lambda v, x: v + x, x)
            return i + 1, steps.chain(added, "d e")

        _, last = ax.while_loop(lambda i, v: i < 5, body, (0, x))
    async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
        assert await session.run(last, {x: 10}) == 10 + 5 * (4 + 10)
    assert steps.ran == ["a", "b", "c", "d", "e"] * 5


async def test_a_failure_in_a_loop_names_its_iteration(graph: ax.Graph, steps: Steps) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        failing = {"b": lambda v: v + 1 if v < 8 else fail(v)}
        _, last = ax.while_loop(
            lambda i, v: i < 5, lambda i, v: (i + 1, steps.chain(v, "a b c", **failing)), (0, x), name="loop"
        )
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.OpError, match="enough") as caught:
            await session.run(last, {x: 1})
    assert caught.value.node == "loop/b"
    assert "in iteration loop 2" in str(caught.value)
    assert steps.ran == ["a", "b", "c", "a", "b", "c", "a", "b"]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("is_taken", [True, False])
async def test_an_untaken_branch_runs_nothing(graph: ax.Graph, steps: Steps, seed: int | None, is_taken: bool) -> None:
    with graph:
        x, pred = ax.placeholder(ax.object, []), ax.placeholder(ax.bool, [])
        before = steps.chain(x, "a b")
        last = steps.chain(
            ax.cond(pred, lambda: steps.chain(before, "c d"), lambda: steps.chain(before, "C D E")), "y z"
        )
    async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
        assert await session.run(last, {x: 0, pred: is_taken}) == (6 if is_taken else 7)
    assert steps.ran == [*"ab", *("cd" if is_taken else "CDE"), *"yz"]


@pytest.mark.parametrize("seed", [None, 1])
async def test_nodes_behind_a_dead_output_do_not_run(graph: ax.Graph, steps: Steps, seed: int | None) -> None:
    """An expensive kernel that chooses one of its outputs, as a Switch does."""
    choose = raw_op("Choose", lambda x: (x, DEAD) if x else (DEAD, x), outputs=2, is_expensive=True)
    with graph:
        x, y = ax.placeholder(ax.object, []), ax.placeholder(ax.object, [])
        chosen, _ = choose(steps.node(x, "a", lambda x: x), name="choose")
        live = steps.node(steps.node(chosen, "b", None, y), "c")
        merged = ax.create_op("Merge", [[live, steps.node(y, "other")]], name="merged")[0]
        fetches = [merged, ax.cond(ax.constant(True), lambda: y, lambda: x)]
    async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
        value, _ = await session.run(fetches, {x: 0, y: 5})
        assert value == 6
        assert sorted(steps.ran) == ["a", "other"]
