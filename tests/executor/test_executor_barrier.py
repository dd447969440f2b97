"""A step over several partitions ends as one: with the first failure, and with nothing left of any of them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.derived import is_derived
from asyncexec.framework.kernel import KernelKind
from tests.executor.channels import SpyRendezvous, recv, send
from tests.graph.testing_ops import load
from tests.running import let_threads_free, raw_op, settle, started

CONFIG: Final = ax.SessionConfig(device_count={"CPU": 3}, num_worker_threads=2)
DEBUG: Final = CONFIG.model_copy(update={"debug": True})
ASYNC: Final = {"kind": KernelKind.ASYNC, "dtype": ax.float32}
WORKER: Final = {"kind": KernelKind.EXPENSIVE, "is_expensive": True, "dtype": ax.float32}
INLINE: Final = {"dtype": ax.float32}
ONE: Final = np.float32(1)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[SpyRendezvous]:
    """The rendezvous of each step that has begun."""
    SpyRendezvous.made = made = []
    monkeypatch.setattr("asyncexec.session.step_args.Rendezvous", SpyRendezvous)
    return made


@pytest.fixture
def tracked() -> Iterator[list[weakref.ref[Any]]]:
    """References to what kernels made, while no garbage collector runs."""
    gc.collect()
    gc.disable()
    yield []
    gc.enable()


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    with ax.Graph() as graph:
        yield graph


def on(device: int) -> Any:
    return ax.device(f"/cpu:{device}")


def failing(message: str = "falling sky") -> Callable[..., Any]:
    def fail(*inputs: Any) -> Any:
        raise ax.errors.DataLossError(message)

    return fail


async def failing_later(*inputs: Any) -> Any:
    await settle()
    raise ax.errors.DataLossError("falling sky")


async def never(*inputs: Any) -> Any:
    await asyncio.Event().wait()


def waiting_recvs(value: Any) -> list[Any]:
    """On devices 1 and 2, sums of what has come and of what waits for *value*, which is on device 0."""
    sums = []
    for device in (1, 2):
        with on(device):
            sums.append(ax.add(ax.negative(ax.constant(1.0)), value))
    return sums


@pytest.mark.parametrize("kind", ["inline", "worker", "async"])
@pytest.mark.parametrize("device", [0, 1, 2])
async def test_the_cause_is_reported_and_the_rendezvous_is_aborted_once(
    graph: ax.Graph, steps: list[SpyRendezvous], kind: str, device: int
) -> None:
    options = {"inline": INLINE, "worker": WORKER, "async": ASYNC}[kind]
    kernel = failing_later if kind == "async" else failing()
    with on(0):
        late = raw_op("Never", never, **ASYNC)()
    with on(device):
        bad = raw_op("Bad", kernel, **options)(ax.constant(1.0), name="bad")
    with on((device + 1) % 3):
        user = ax.negative(bad)
    async with ax.Session(graph, CONFIG) as session:
        with pytest.raises(ax.errors.DataLossError, match="falling sky") as caught:
            await session.run([*waiting_recvs(late), user])
    assert caught.value.node == "bad"
    assert not is_derived(caught.value)
    (step,) = steps
    assert len(step.aborts) == 1
    assert step.statistics().num_items == step.statistics().num_waiters == 0


async def test_the_first_of_two_failures_counts(graph: ax.Graph) -> None:
    go = [asyncio.Event() for _ in range(3)]
    nodes = []

    def make(index: int) -> Any:
        async def fail() -> Any:
            try:
                await go[index].wait()
            finally:
                await settle()  # what comes of the abort comes late
            raise ax.errors.DataLossError(f"failure {index}")

        return fail

    for index in range(3):
        with on(index):
            nodes.append(raw_op("Fail", make(index), **ASYNC)(name=f"fail{index}"))
    async with ax.Session(graph, CONFIG) as session:
        task = await started(session.run(nodes))
        go[1].set()
        await settle(50)
        go[0].set()
        with pytest.raises(ax.errors.DataLossError, match="failure 1") as caught:
            await task
    assert caught.value.node == "fail1"


class Launched:
    """Async kernels and workers on each device that are at work when the step ends."""

    def __init__(self, tracked: list[weakref.ref[Any]]) -> None:
        self.leave = threading.Event()
        self.at_work: set[str] = set()
        self._tracked = tracked
        self.working = threading.Semaphore(0)

    def new(self, *inputs: Any) -> Any:
        value = np.ones(4, np.float32)
        self._tracked.append(weakref.ref(value))
        return value

    def fetches(self) -> list[Any]:
        """A tensor of each device, which need what never comes."""
        nodes = []
        for device in range(3):
            with on(device):
                value = raw_op("New", self.new, dtype=ax.float32)()
                awaited = raw_op("Awaited", self._awaiting(f"awaited{device}"), **ASYNC)(value)
                worked = raw_op("Worked", self._working(f"worked{device}"), **WORKER)(value)
            with on((device + 1) % 3):
                nodes.append(awaited + worked + value)
        return nodes

    def _awaiting(self, name: str) -> Any:
        async def wait(value: Any) -> Any:
            self.at_work.add(name)
            try:
                await asyncio.Event().wait()
            finally:
                await settle(20)
                self.at_work.discard(name)

        return wait

    def _working(self, name: str) -> Any:
        def work(value: Any) -> Any:
            self.at_work.add(name)
            self.working.release()
            self.leave.wait(10)
            self.at_work.discard(name)
            return value

        return work

    async def wait_begun(self) -> None:
        """Wait until all are at work."""
        for _ in range(3):
            await asyncio.to_thread(self.working.acquire)
        assert len(self.at_work) == 6


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Timeout]:
    """What ``asyncio.timeout`` has made, for the test to say when they expire."""
    made: list[asyncio.Timeout] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: made.append(timeout(None)) or made[-1])
    return made


@pytest.mark.parametrize("how", ["failure", "cancel", "timeout", "close"])
async def test_nothing_of_any_partition_is_left(
    graph: ax.Graph,
    steps: list[SpyRendezvous],
    tracked: list[weakref.ref[Any]],
    timeouts: list[asyncio.Timeout],
    how: str,
) -> None:
    launched, fail = Launched(tracked), asyncio.Event()
    fetches = launched.fetches()

    async def failing_on_demand() -> Any:
        await fail.wait()
        launched.leave.set()
        raise ax.errors.DataLossError("falling sky")

    with on(1):
        fetches += [raw_op("Bad", failing_on_demand, **ASYNC)(name="bad")]
    fetches += waiting_recvs(raw_op("Never", never, **ASYNC)())
    options = ax.RunOptions(timeout=60) if how == "timeout" else None
    async with ax.Session(graph, CONFIG) as session:
        run = asyncio.create_task(session.run(fetches, options=options))
        await launched.wait_begun()
        closing = None
        if how == "failure":
            fail.set()
        elif how == "cancel":
            run.cancel()
        elif how == "timeout":
            timeouts.pop().reschedule(asyncio.get_running_loop().time())
        else:
            closing = asyncio.create_task(session.close())
        await settle(20)  # and no more: a cancelled step does not wait long for its threads
        launched.leave.set()
        expected = {
            "failure": ax.errors.DataLossError,
            "cancel": asyncio.CancelledError,
            "timeout": ax.errors.DeadlineExceededError,
            "close": ax.errors.CancelledError,
        }[how]
        with pytest.raises(expected):
            await run
        assert launched.at_work == set()
        del run
        if closing is not None:
            await closing
        await settle()
        await let_threads_free(lambda: [value for value in tracked if value() is not None])
    # The threads have ended: one that has told of its end may hold what it worked on for a moment longer.
    assert [value() is None for value in tracked] == [True] * 3
    (step,) = steps
    assert len(step.aborts) == 1
    assert step.statistics().num_items == step.statistics().num_waiters == 0


async def test_a_successful_step_keeps_nothing(
    graph: ax.Graph, steps: list[SpyRendezvous], tracked: list[weakref.ref[Any]]
) -> None:
    def new(*inputs: Any) -> Any:
        value = np.ones(4, np.float32)
        tracked.append(weakref.ref(value))
        return value

    made = raw_op("New", new, dtype=ax.float32)
    last = made()
    for device in (1, 2, 0, 1):
        with on(device):
            last = made(last)
    total = ax.reduce_sum(last)
    async with ax.Session(graph, DEBUG) as session:
        for count in (1, 2, 3):
            assert await session.run(total) == 4.0
            assert len(tracked) == 5 * count
            assert [value() for value in tracked] == [None] * len(tracked)
    assert all(not step.aborts and step.statistics().num_items == 0 for step in steps)


# v is given once, and in the second iteration its Merge gets nothing: what takes it waits.
STARVED = """
    zero: Const[0]
    one: Const[1]
    limit: Const[3]
    false: Const[false]
    i: Enter[frame_name='f'](zero)
    v: Enter[frame_name='f'](zero)
    step: Enter[frame_name='f', is_constant=true](one)
    end: Enter[frame_name='f', is_constant=true](limit)
    no: Enter[frame_name='f', is_constant=true](false)
    mi: Merge(i, ni)
    more: Less(mi, end)
    cond: LoopCond(more)
    si: Switch(mi, cond)
    add: AddV2(si:1, step)
    ni: NextIteration(add)
    out: Exit(si)
    mv: Merge(v, nv)
    sv: Switch(mv, no)
    nv: NextIteration(sv:1)
    there: Neg(mv)
"""


@pytest.mark.parametrize("config", [CONFIG, DEBUG], ids=["", "debug"])
async def test_a_recv_whose_value_never_comes_is_named(config: ax.SessionConfig) -> None:
    """On one device the step ends without it, as in TensorFlow; over two, TensorFlow's never does."""
    async with ax.Session(load(STARVED)) as session:
        assert await session.run("out:0", targets=["there"]) == 3
    graph = load(STARVED.replace("there: Neg(mv)", "there: Neg(mv) @ /cpu:1"))
    async with ax.Session(graph, config) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InternalError, match=r"mv/_\d+ of 3 waiting Recvs will get no value"):
                await session.run("out:0", targets=["there"])
        assert await session.run("out:0") == 3


async def test_what_nobody_received_is_named_in_debug_mode(graph: ax.Graph) -> None:
    x = ax.constant(2.0)
    pair, received = send(x, "taken", target=1), recv(ax.float32, "taken", target=1)
    lost = send(x, "lost", target=1)
    for config in (CONFIG, DEBUG):
        async with ax.Session(graph, config) as session:
            assert await session.run(received, targets=[pair]) == 2.0
            if config is CONFIG:
                await session.run([], targets=[lost])
                continue
            with pytest.raises(ax.errors.InternalError, match=r"sent, but never received: .*CPU:1;lost;0:0"):
                await session.run([], targets=[lost])


async def test_an_interrupt_in_one_partition_ends_all(graph: ax.Graph) -> None:
    class Interrupt(BaseException):
        pass

    def interrupt(*inputs: Any) -> Any:
        raise Interrupt

    late = raw_op("Never", never, **ASYNC)()
    with on(1):
        bad = raw_op("Interrupt", interrupt, dtype=ax.float32)()
    async with ax.Session(graph, CONFIG) as session:
        with pytest.raises(Interrupt):
            await session.run([*waiting_recvs(late), bad])
        with on(2):
            assert await session.run(ax.constant(3.0)) == 3.0
