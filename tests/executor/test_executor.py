"""The ready loop: what ``executor_test.cc`` of TensorFlow proves for acyclic graphs, and that the loop stays free.

TensorFlow's case                       here
--------------------------------------  -------------------------------------------------------------------
SimpleAdd                               test_add; by Recv and Send: test_tf_executor_cases.py
SelfAdd                                 test_self_add
RandomTree                              test_random_tree
ConcurrentAddAssign                     test_concurrent_assign_add
NoInputTensors                          test_graph_of_sources_only
StepStatsNumerical                      test_step_stats.py: test_times_are_in_order
SimpleSwitchLive, SimpleSwitchDead      test_tf_executor_cases.py: test_the_side_of_a_switch_that_is_sent
Abort                                   test_tf_executor_cases.py: test_an_abort_while_recvs_wait
RecvInvalidDtype                        test_tf_executor_cases.py: test_a_received_value_of_another_dtype_...
RecvInvalidRefDtype                     test_tf_executor_cases.py: test_a_sent_reference_of_another_dtype_...
benchmarks                              benchmarks/
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
from collections.abc import Iterable
from typing import Any, Self
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.framework.cooperative import TURNS
from asyncexec.framework.kernel import KernelKind
from tests.fake_time import FakeTime, in_single_steps
from tests.running import STILL_CLOCK, raw_op, settle, started


async def test_add() -> None:
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float32, []), ax.placeholder(ax.float32, [])
        total = ax.add(x, y)
    async with ax.Session(graph) as session:
        assert await session.run(total, {x: 1.0, y: 2.0}) == 3.0


async def test_self_add() -> None:
    with ax.Graph() as graph:
        last = x = ax.placeholder(ax.float32, [])
        for _ in range(10):
            last = last + last
    async with ax.Session(graph) as session:
        assert await session.run(last, {x: 1.0}) == 1024.0


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("seed", range(3))
async def test_random_tree(seed: int) -> None:
    pick = random.Random(seed)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        nodes = [ax.identity(x) for _ in range(4096)]
        while len(nodes) > 1:
            at = pick.randrange(len(nodes) - 1)
            nodes[at : at + 2] = [nodes[at] + nodes[at + 1]]
    async with ax.Session(graph) as session:
        assert await session.run(nodes[0], {x: 1.0}) == 4096.0


async def test_concurrent_assign_add() -> None:
    with ax.Graph() as graph:
        variable = ax.Variable(0.0, name="v")
        adds = [variable.assign_add(1.0) for _ in range(1024)]
        every = ax.group(*adds)
        value = variable.read_value()
    async with ax.Session(graph) as session:
        await session.run(variable.initializer)
        await asyncio.gather(*[session.run(every) for _ in range(16)])
        assert await session.run(value) == 16 * 1024


async def test_graph_of_sources_only() -> None:
    with ax.Graph() as graph:
        sources = [ax.constant(1.0), ax.no_op(), raw_op("Source", lambda: 7)()]
    async with ax.Session(graph) as session:
        assert await session.run(sources) == [1.0, None, 7]
        await session.run([], targets=[sources[1]])


@pytest.mark.parametrize("seed", range(4))
async def test_kernels_of_all_kinds_in_one_graph(seed: int) -> None:
    """A random layered graph whose nodes run inline, on workers and as coroutines gives the sum of all paths."""

    @ax.op(outputs=[ax.float64])
    async def awaited(*values: Any) -> Any:
        await asyncio.sleep(0)
        return np.float64(sum(values))

    @ax.op(expensive=True, outputs=[ax.float64])
    def worked(*values: Any) -> Any:
        return np.float64(sum(values))

    pick = random.Random(seed)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        layer: list[tuple[Any, float]] = [(x, 1.0)]
        for _ in range(8):
            above, layer = layer, []
            for _ in range(20):
                chosen = [pick.choice(above) for _ in range(pick.randint(1, 3))]
                make = pick.choice([awaited, worked, lambda *tensors: ax.add_n(list(tensors))])
                layer.append((make(*[tensor for tensor, _ in chosen]), sum(weight for _, weight in chosen)))
    async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
        results = await asyncio.gather(*[session.run([t for t, _ in layer], {x: float(i)}) for i in range(10)])
    for i, result in enumerate(results):
        assert result == [i * weight for _, weight in layer]


class Turns:
    """Counts the turns that the loop gives to others while a step runs."""

    def __init__(self) -> None:
        self.count = 0
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_over = True
        await self._task

    async def _tick(self) -> None:
        while not self._is_over:
            self.count += 1
            await asyncio.sleep(0)


def chain(length: int) -> ax.Graph:
    """Nodes that stay inline whatever pauses a busy machine makes."""
    step = raw_op("Step", lambda x: x, is_expensive=False)
    with ax.Graph() as graph:
        last = ax.placeholder(ax.float32, [], name="x")
        for _ in range(length):
            last = step(last)
        step(last, name="last")
    return graph


@pytest.mark.one_of("loop")
@pytest.mark.parametrize(("node_us", "least"), [(1, 36), (10, 375), (100, 3200)])
async def test_loop_gets_turns_between_slices(node_us: int, least: int) -> None:
    """20,000 nodes of so many microseconds each, in slices of half a millisecond."""
    config = ax.SessionConfig(executor_type="TAGGED_TOKEN")
    time = FakeTime()
    async with ax.Session(chain(20_000), config, clock=time.clock) as session:
        await session.run("last:0", {"x:0": 1.0})
        time.step_ns = node_us * 1000
        async with Turns() as turns:
            assert await session.run("last:0", {"x:0": 2.0}) == 2.0
    assert least <= turns.count / TURNS <= least * 1.2 + 3


async def test_slice_is_as_long_as_configured() -> None:
    time = FakeTime()
    async with ax.Session(chain(1000), ax.SessionConfig(slice_ms=10), clock=time.clock) as session:
        await session.run("last:0", {"x:0": 1.0})
        time.step_ns = 100_000
        async with Turns() as turns:
            await session.run("last:0", {"x:0": 2.0})
    assert 9 <= turns.count / TURNS <= 13


async def test_who_waits_for_a_timer_goes_on_before_the_next_slice() -> None:
    """In one turn of the loop it is found that the timer is due, and only in the next its task goes on."""
    is_due = asyncio.Event()
    num_run = 0

    def note(x: Any) -> Any:
        nonlocal num_run
        num_run += 1
        if num_run == 1:
            asyncio.get_running_loop().call_later(0, is_due.set)
        return x

    async def wait() -> int:
        await is_due.wait()
        return num_run

    step = raw_op("NoteTurn", note, is_expensive=False)
    with ax.Graph() as graph:
        last = ax.placeholder(ax.float32, [], name="x")
        for _ in range(1000):
            last = step(last)
    time = FakeTime()
    config = ax.SessionConfig(executor_type="TAGGED_TOKEN", slice_ms=10)
    async with ax.Session(graph, config, clock=time.clock) as session:
        time.step_ns = 100_000
        waiting = asyncio.create_task(wait())
        await session.run(last, {"x:0": 1.0})
        assert await waiting <= 110  # as many as there are in a slice
    assert num_run == 1000


@pytest.mark.one_of("loop")
async def test_first_run_lets_others_have_the_loop() -> None:
    """Pruning, binding and laying out are sliced too."""
    async with ax.Session(chain(20_000), **in_single_steps()) as session, Turns() as turns:
        await session.run("last:0", {"x:0": 1.0})
    assert turns.count > 100


async def test_steps_of_one_executor_take_turns() -> None:
    """Two long steps at once both go on; neither waits for the other's end."""
    order: list[str] = []
    note = raw_op("Note", lambda x: order.append(x) or x)
    with ax.Graph() as graph:
        last = x = ax.placeholder(ax.object, [])
        for _ in range(2000):
            last = note(last)
    async with ax.Session(graph, ax.SessionConfig(slice_ms=0.01)) as session:
        await asyncio.gather(session.run(last, {x: "a"}), session.run(last, {x: "b"}))
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes > 10


def thread_op(seen: list[int], *, kind: KernelKind = KernelKind.CHEAP, is_expensive: bool | None = None) -> Any:
    return raw_op("Where", lambda: seen.append(threading.get_ident()), kind=kind, is_expensive=is_expensive)


def executor_of(session: ax.Session) -> GeneralExecutor:
    (prepared,) = session._cache.values()
    return prepared.executor


async def test_hint_places_a_kernel_and_its_cost_moves_it() -> None:
    seen: list[int] = []
    here = threading.get_ident()
    with ax.Graph() as graph:
        node = thread_op(seen, kind=KernelKind.EXPENSIVE)()
    async with ax.Session(graph, clock=STILL_CLOCK) as session:
        await session.run(node)
        assert seen[-1] != here
        await session.run(node)
        assert seen[-1] == here  # it is cheap, after all
        executor_of(session).stats.update_sized(0, 0, 50_000_000, is_inline=False)
        await session.run(node)
        assert seen[-1] != here
        for _ in range(20):
            await session.run(node)
        assert seen[-1] == here


async def test_a_failing_step_drops_what_no_thread_has_begun() -> None:
    begun: list[int] = []
    leave = threading.Event()

    def wait(x: Any) -> Any:
        begun.append(1)
        leave.wait(10)
        return x

    def fail(x: Any) -> Any:
        asyncio.get_running_loop().call_soon(leave.set)  # when the step has failed
        raise ValueError("enough")

    with ax.Graph() as graph:
        x = raw_op("Start", lambda: np.float32(1))()
        options = {"kind": KernelKind.EXPENSIVE, "is_expensive": True}
        waiting = [raw_op("Wait", wait, **options)(x) for _ in range(100)]
        failing = raw_op("Fail", fail)(x)
    async with ax.Session(graph, config=ax.SessionConfig(num_worker_threads=2)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="enough"):
            await session.run([*waiting, failing])
    assert len(begun) <= 4


async def test_an_exception_that_cannot_be_shown_ends_the_step() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def fail(x: Any) -> Any:
        raise Unspeakable

    with ax.Graph() as graph:
        failing = raw_op("Fail", fail, kind=KernelKind.ASYNC)(raw_op("Start", lambda: np.float32(1))())
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.UnknownError, match="Unspeakable"):
            await session.run(failing)


async def test_only_the_first_step_looks_at_the_sizes_of_all_inputs() -> None:
    """Of what comes later, only large feeds are news."""
    async with ax.Session(chain(3)) as session:
        await session.run("last:0", {"x:0": 1.0})
        executor = executor_of(session)
        assert executor.start([1.0])._places is executor.stats.places
        executor.has_run = False
        assert executor.start([1.0])._places is not executor.stats.places


class Held:
    """A kernel that notes which threads it runs on, and takes as long as a test says."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.takes_ms: int = 0
        self.is_here: list[bool] = []

    def __call__(self, *inputs: Any) -> Any:
        self.is_here.append(threading.get_ident() == threading.main_thread().ident)
        self.time.now_ns += self.takes_ms * 1_000_000
        return np.float32(len(self.is_here))


@pytest.fixture
def held() -> Held:
    return Held()


async def runs_here(held: Held, takes_ms: Iterable[int], pause_s: float = 0.0, **options: Any) -> str:
    """Where *held* runs that takes so long in each run: l for the loop, w for a worker thread."""
    config = ax.SessionConfig(executor_type="TAGGED_TOKEN", slow_inline_ms=None)
    with ax.Graph() as graph:
        node = raw_op("Held", held)()
    async with ax.Session(graph, config, clock=held.time.clock, **options) as session:
        for held.takes_ms in takes_ms:
            await session.run(node)
            held.time.now_ns += int(pause_s * 1e9)
    return "".join("l" if is_here else "w" for is_here in held.is_here)


async def test_a_slow_kernel_moves_to_a_worker_and_back(held: Held) -> None:
    assert await runs_here(held, [0, 10, 10, 10, 10, *[0] * 10]) == "lllww" + "wwwwww" + "llll"


@pytest.mark.parametrize("pause_s", [0.0, 10.0])
async def test_one_pause_of_the_machine_moves_no_kernel(held: Held, pause_s: float) -> None:
    """Nor does what a kernel does in its first call only; nor do pauses that are far apart."""
    pauses = [1000, 0, 0, 0] if not pause_s else [1000, 0, 1000, 1000]
    assert await runs_here(held, pauses, pause_s) == "llll"


@pytest.mark.parametrize("shape", [[], None])
async def test_pauses_of_the_machine_move_no_scalar_node(shape: list[int] | None) -> None:
    """However many there are: what takes a few scalars, and is an op of the library, is never slow itself."""
    time = FakeTime()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, shape, name="x")
        y = x * 2.0 + 1.0
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=None), clock=time.clock) as session:
        time.step_ns = 50_000_000
        for _ in range(5):
            assert await session.run(y, {x: np.float32(1)}) == 3.0
        assert session.statistics().longest_node is not None
        assert [pool.threads for pool in session.statistics().worker_pools.values()] == [0]


async def test_a_cost_model_says_what_is_cheap(held: Held) -> None:
    assert await runs_here(held, [10] * 5, cost_model=ax.CostModel(math.inf)) == "lllll"
    held.is_here.clear()
    assert await runs_here(held, [10] * 5, cost_model=ax.CostModel(expensive_ms=20)) == "lllll"
    held.is_here.clear()
    assert await runs_here(held, [100] * 5, cost_model=ax.CostModel(expensive_ms=20)) == "llwww"


@pytest.mark.parametrize("wrong", [0, -1, math.nan])
def test_a_cost_model_of_no_time_is_refused(wrong: float) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="expensive_ms"):
        ax.CostModel(wrong)


@pytest.mark.parametrize("is_expensive", [True, False])
async def test_what_the_user_said_is_final(is_expensive: bool) -> None:
    seen: list[int] = []
    with ax.Graph() as graph:
        kind = KernelKind.EXPENSIVE if is_expensive else KernelKind.CHEAP
        node = thread_op(seen, kind=kind, is_expensive=is_expensive)()
    async with ax.Session(graph) as session:
        for _ in range(5):
            await session.run(node)
            executor_of(session).stats.update(0, 0 if is_expensive else 10**9)
    assert all((ident != threading.get_ident()) == is_expensive for ident in seen)


async def test_workers_run_at_once_and_no_more_than_there_are() -> None:
    running: list[int] = []
    most: list[int] = []
    gate = threading.Barrier(3)

    def meet(x: Any) -> Any:
        running.append(1)
        most.append(len(running))
        gate.wait(10)
        running.pop()
        return x

    with ax.Graph() as graph:
        x = ax.constant(1.0)
        nodes = [raw_op("Meet", meet, kind=KernelKind.EXPENSIVE, is_expensive=True)(x) for _ in range(9)]
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=3)) as session:
        assert await session.run(nodes) == [1.0] * 9
    assert max(most) == 3


async def test_loop_runs_while_a_worker_works() -> None:
    leave = threading.Event()
    with ax.Graph() as graph:
        node = raw_op("Long", lambda: leave.wait(10), kind=KernelKind.EXPENSIVE, is_expensive=True)()
        quick = ax.negative(ax.constant(1.0))
    async with ax.Session(graph) as session:
        run = await started(session.run(node))
        assert await session.run(quick) == -1.0
        await settle()
        assert not run.done()
        leave.set()
        assert await run is True


async def test_kernels_see_the_callers_context() -> None:
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")

    @ax.op
    async def awaited(x: float) -> str:
        await asyncio.sleep(0)
        return variable.get()

    with ax.Graph() as graph:
        x = ax.constant(1.0)
        places = {"kind": KernelKind.EXPENSIVE, "is_expensive": True}
        nodes = [raw_op("Get", lambda x: variable.get(), **options)(x) for options in ({}, places)] + [awaited(x)]
    async with ax.Session(graph) as session:
        token = variable.set("mine")
        try:
            assert await session.run(nodes) == ["mine", "mine", "mine"]
        finally:
            variable.reset(token)


async def test_numpy_warnings_are_off_around_kernels_only() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        y = ax.log(x) / x
    async with ax.Session(graph) as session:
        assert np.isnan(await session.run(y, {x: [-1.0]})).all()
        with pytest.raises(RuntimeWarning):
            np.float32([1]) / np.float32([0])


@pytest.mark.parametrize("count", [1, 3])
async def test_wrong_number_of_outputs_behind_a_switch(count: int) -> None:
    """Where there are frames and dead values, too."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        yes, _ = ax.create_op("Switch", [x, ax.placeholder(ax.bool, [], name="p")])[::-1]
        outputs = raw_op("Two", lambda v: (v,) * count, outputs=2)(yes, name="two")
    async with ax.Session(graph, ax.SessionConfig(executor_type="TAGGED_TOKEN")) as session:
        with pytest.raises(ax.errors.InternalError, match=f"the kernel gave {count} outputs, but Two has 2") as caught:
            await session.run(list(outputs), {"x:0": 1, "p:0": True})
    assert caught.value.node == "two"


async def test_what_is_cheap_by_size_is_compiled_once_that_is_known() -> None:
    """And runs inline then, with inputs no larger than it had; the first larger ones go to the general executor."""
    threads: list[int] = []

    def kernel(x: Any) -> Any:
        threads.append(threading.get_ident())
        return x + 1

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = raw_op("BySize", kernel, dtype=ax.float32, kind=KernelKind.EXPENSIVE)(x) * 2.0
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=math.inf)) as session:
        for size in (4, 4, 8):
            assert (await session.run(y, {x: np.ones(size, np.float32)})).tolist() == [4.0] * size
        (prepared,) = session._cache.values()
        for _ in range(10_000):  # compiled in as much time as the runs take
            if prepared.tier.compiled is not None:
                break
            await session.run(y, {x: np.ones(4, np.float32)})
        plan = prepared.tier.compiled
        assert isinstance(plan, CompiledPlan)
        with mock.patch.object(GeneralExecutor, "start", autospec=True, side_effect=GeneralExecutor.start) as general:
            for size, num_general in ((8, 0), (4, 0), (9, 1), (9, 1), (8, 1), (100, 2), (99, 2), (100, 2)):
                del threads[:]
                assert (await session.run(y, {x: np.ones(size, np.float32)})).tolist() == [4.0] * size
                assert general.call_count == num_general
                assert num_general != 0 or threads == [threading.get_ident()]


async def test_what_is_slow_by_size_is_not_compiled_with_the_rest() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = raw_op("BySize", lambda x: x + 1, dtype=ax.float32, kind=KernelKind.EXPENSIVE)(x) * 2.0
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=1e-6)) as session:
        (value,) = {(await session.run(y, {x: np.ones(4, np.float32)})).tobytes() for _ in range(200)}
        (prepared,) = session._cache.values()
        assert not isinstance(prepared.tier.compiled, CompiledPlan)
    assert value == np.full(4, 4, np.float32).tobytes()


@pytest.mark.parametrize("setting", ["slice_ms", "slow_inline_ms"])
async def test_a_time_without_end_is_one(setting: str) -> None:
    with ax.Graph() as graph:
        y = ax.constant(1.0) + 1.0
    for ms in (math.inf, 1e308):
        async with ax.Session(graph, ax.SessionConfig(**{setting: ms})) as session:
            assert await session.run(y) == 2.0


@pytest.mark.parametrize("make", [lambda x: ax.fill([x], 1.0), lambda x: ax.cond(x > 0, lambda: x, lambda: -x)])
async def test_what_something_else_than_a_feed_decides_is_not_compiled_with_the_rest(make: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, name="x")
        kernel = raw_op("BySize", lambda x: x + x, dtype=ax.float32, kind=KernelKind.EXPENSIVE)
        y = kernel(ax.cast(make(x), ax.float32)) * 2.0
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=math.inf)) as session:
        for _ in range(300):
            await session.run(y, {x: np.int32(3)})
        (prepared,) = session._cache.values()
        assert isinstance(prepared.tier.compiled, RegionPlan)
