"""A random walk through all that a session can do, many things at once, step by step compared with plain Python.

Calls that wait (at a gate, in a queue's line, for room in a stream or for an item) stay under way while others go on;
any of them may be cancelled or run out of time, and the session may be closed under them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import asyncexec as ax
from asyncexec.framework.graph_def import GraphDef
from asyncexec.graph.graph_text import parse_graph_text
from asyncexec.testing import VirtualClockLoop
from tests.conftest import LoopFactory
from tests.running import settle
from tests.session.session_machine import (
    BATCH,
    CANCELLED,
    CLOSED,
    WAITS,
    WINDOW,
    PartialModel,
    Pending,
    QueueModel,
    SessionGraph,
    StreamModel,
    fails,
)

NUMBERS = st.integers(0, 11)
GATES = st.integers(0, 3)
PLACES = st.integers(0, 7)  # of the one of several to do something with
CONFIGS = [
    {},
    {"schedule_seed": 3, "debug": True},
    {"max_concurrent_steps": 1000},
    {"device_count": {"CPU": 2}, "feed_fetch_medium": "rendezvous"},
]
BAD = (ax.errors.InvalidArgumentError,)


class HeldClockLoop(VirtualClockLoop):
    """Whose clock stands still, however long threads take, but while time is to pass."""

    is_held = True

    def _patience_s(self, timeout_s: float | None) -> float | None:
        return None if timeout_s and self.is_held else super()._patience_s(timeout_s)


class SessionMachine(RuleBasedStateMachine):
    """One session, all that is under way in it, and what is to become of that."""

    loop_factories: ClassVar[list[LoopFactory]] = [HeldClockLoop]
    owns_the_time: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=self.loop_factories[0])
        self._made = SessionGraph()
        self._pending: list[Pending] = []
        self._streams: list[StreamModel] = []
        self._partial_runs: list[PartialModel] = []
        self._num_extensions = 0
        self._threads = threading.active_count()

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def done_and_settled() -> Any:
            try:
                return await coroutine
            finally:
                await self._settle()

        return self._runner.run(done_and_settled())

    async def _settle(self) -> None:
        """Let everything run as far as it can, on worker threads too: any kernel may be on one, if it was slow."""
        num_quiet = 0
        while num_quiet < 2:
            await settle(60)
            pools = self._session.statistics().worker_pools.values()
            num_quiet = 0 if any(pool.busy or pool.queued for pool in pools) else num_quiet + 1

    @initialize(config=st.sampled_from(CONFIGS))
    def open_session(self, config: dict[str, Any]) -> None:
        self._config = ax.SessionConfig(num_worker_threads=2, slow_inline_ms=None, **config)
        self.do(self._open())

    async def _open(self) -> None:
        self._session = ax.Session(self._made.graph, self._config)
        await self._session.run(self._made.variable.initializer)
        self._variable = 0
        self._queue = QueueModel()

    @rule()
    def close_session(self) -> None:
        """All that is under way ends; the next session has variables and queues of its own."""
        for pending in self._pending:
            pending.end((*CLOSED, StopAsyncIteration, ax.errors.FailedPreconditionError, ax.errors.AbortedError))
        self.do(self._session.close())
        self.do(self._end_handles())
        self.check_pending()
        self.do(self._check_closed())
        self.do(self._open())

    async def _end_handles(self) -> None:
        for model in self._streams:
            await model.stream.aclose()
        for partial_run in self._partial_runs:
            with pytest.raises(ax.errors.CancelledError, match="closed"):
                await partial_run.scope.__aexit__(None, None, None)
        self._streams.clear()
        self._partial_runs.clear()

    async def _check_closed(self) -> None:
        with pytest.raises(ax.errors.CancelledError, match="closed"):
            await self._session.run(self._made.inline, {self._made.x: 1})
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert threading.active_count() == self._threads

    @invariant()
    def check_pending(self) -> None:
        """What is to have ended has, as it was to; the rest is under way, and nothing else is."""
        for pending in self._pending:
            pending.check()
        self._pending = [pending for pending in self._pending if pending.outcome is WAITS]
        waiting = self._made.gates.waiting
        gated = [pending for pending in self._pending if pending.gate is not None]
        assert waiting.total() == len(gated)

    @invariant()
    def check_session(self) -> None:
        """A run is right, and the session knows of all that is under way, and of nothing else."""
        if not hasattr(self, "_session"):
            return
        assert self.do(
            self._session.run([self._made.inline, self._made.size, self._made.variable_value], {"x:0": 7})
        ) == [
            15,
            len(self._queue.values),
            self._variable,
        ]
        steps = [pending for pending in self._pending if pending.gate is not None]
        steps += [pending for pending in self._pending if pending.line in (self._queue.adding, self._queue.taking)]
        open_streams = [model for model in self._streams if not model.is_closed]
        found = self._session.statistics()
        assert found.running_steps == len(steps) + len(open_streams) + len(self._partial_runs)
        assert found.queued_steps == 0
        if not self._pending and not self._partial_runs:
            assert self._runner.run(all_tasks()) == 1

    def _start(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Pending:
        pending = Pending(self._runner.get_loop().create_task(coroutine), **options)
        self._pending.append(pending)
        return pending

    # Runs.

    @rule(x=NUMBERS, name=st.sampled_from(["checked", "awaited", "worked", "looped"]))
    def run_to_the_end(self, x: int, name: str) -> None:
        run = self._session.run({name: getattr(self._made, name)}, {self._made.x: x})
        if fails(x) and name != "looped":
            with pytest.raises(ax.errors.InvalidArgumentError, match=f"{x} is bad"):
                self.do(run)
        else:
            assert self.do(run) == {name: 2**x if name == "looped" else x + 1}

    @rule(xs=st.lists(NUMBERS, min_size=1, max_size=4))
    def call(self, xs: list[int]) -> None:
        async def calls() -> Any:
            call = self._session.make_callable([self._made.inline], [self._made.x])
            return await asyncio.gather(*map(call, xs))

        assert self.do(calls()) == [[2 * x + 1] for x in xs]

    @rule(x=GATES, is_timed=st.booleans())
    def run_to_a_gate(self, x: int, is_timed: bool) -> None:
        is_timed = is_timed and self.owns_the_time
        options = ax.RunOptions(timeout=1) if is_timed else None
        run = self._session.run(self._made.gated, {self._made.x: x}, options=options)
        self._start(run, gate=x, is_timed=is_timed)
        self.do(settle())

    @rule(x=GATES)
    def open_gate(self, x: int) -> None:
        self._made.gates.open(x)
        for pending in self._pending:
            if pending.gate == x:
                pending.end(10 * x)
        self.do(settle())

    @precondition(lambda self: any(pending.is_timed for pending in self._pending))
    @rule()
    def let_time_pass(self) -> None:
        for pending in self._pending:
            if pending.is_timed:
                pending.end((ax.errors.DeadlineExceededError,))
        loop = self._runner.get_loop()
        assert isinstance(loop, HeldClockLoop)
        loop.is_held = False
        self.do(asyncio.sleep(5))
        loop.is_held = True

    @precondition(lambda self: self._pending)
    @rule(place=PLACES)
    def cancel(self, place: int) -> None:
        pending = self._pending[place % len(self._pending)]
        pending.end(CANCELLED)
        pending.task.cancel()
        self._queue.advance()
        for model in self._streams:
            model.advance()
        self.do(settle())

    @rule(values=st.lists(NUMBERS, min_size=1, max_size=2 * BATCH))
    def run_in_batches(self, values: list[int]) -> None:
        async def runs() -> Any:
            batched, row = self._made.batched, self._made.row
            return await asyncio.gather(*[self._session.run(batched, {row: [value]}) for value in values])

        self._made.batches.clear()
        assert [int(found[0]) for found in self.do(runs())] == [3 * value for value in values]
        sizes = self._made.batches
        assert sum(sizes) == len(values)
        assert max(sizes) <= BATCH

    @rule(value=NUMBERS)
    def extend(self, value: int) -> None:
        name = f"extension_{self._num_extensions}"
        self._num_extensions += 1
        added = f"x: Placeholder[int64, []]\n{name}: Const[{value}, int64]\n{name}_sum: Add(x, {name})"
        self.do(self._session.extend(behind_x(parse_graph_text(added))))
        assert self.do(self._session.run(f"{name}_sum:0", {"x:0": 5})) == value + 5

    # Variables and queues.

    @rule(x=NUMBERS)
    def add_to_the_variable(self, x: int) -> None:
        self.do(self._session.run(self._made.added, {self._made.x: x}))
        self._variable += x

    @rule(x=NUMBERS)
    def enqueue(self, x: int) -> None:
        self._queue.add(self._start(self._session.run(self._made.enqueue, {self._made.x: x})), x)
        self.do(settle())

    @rule()
    def dequeue(self) -> None:
        self._queue.take(self._start(self._session.run(self._made.dequeue)))
        self.do(settle())

    # Streams.

    @rule(place=PLACES, xs=st.lists(NUMBERS, min_size=1, max_size=4))
    def send(self, place: int, xs: list[int]) -> None:
        model = self._stream(place)
        for x in xs:
            model.send(self._start(model.stream.send({self._made.x: x})), x)
        self.do(settle())

    @rule(place=PLACES, number=st.integers(1, 4))
    def take(self, place: int, number: int) -> None:
        model = self._stream(place)
        for _ in range(number):
            model.take(self._start(taken(model.stream)))
        self.do(settle())

    @precondition(lambda self: self._streams)
    @rule(place=PLACES)
    def close_stream(self, place: int) -> None:
        model = self._stream(place)
        model.is_closed = True
        model.advance()
        self.do(model.stream.close())

    @precondition(lambda self: self._streams)
    @rule(place=PLACES)
    def leave_stream(self, place: int) -> None:
        model = self._stream(place)
        model.leave()
        self._streams.remove(model)
        self.do(model.stream.aclose())

    def _stream(self, place: int) -> StreamModel:
        """One that is open, or a new one, of at most two."""
        place %= 2
        if place >= len(self._streams):
            stream = self._session.stream(self._made.item, window=WINDOW, on_error="yield")
            self._streams.append(StreamModel(self.do(stream.__aenter__())))
        return self._streams[min(place, len(self._streams) - 1)]

    @rule(xs=st.lists(NUMBERS, max_size=8), window=st.integers(1, 4))
    def map(self, xs: list[int], window: int) -> None:
        async def outputs() -> Any:
            feeds = ({self._made.x: x} for x in xs)
            mapped = self._session.map(self._made.item, feeds, window=window, on_error="yield")
            return [shown(out) async for out in mapped]

        good = [0 if fails(x) else x for x in xs]
        expected = [
            f"item {n}: ValueError: {x} is bad" if fails(x) else [x + 1, sum(good[: n + 1])] for n, x in enumerate(xs)
        ]
        assert self.do(outputs()) == expected

    # Partial runs.

    @rule(place=PLACES, name=st.sampled_from("ab"), value=NUMBERS)
    def feed(self, place: int, name: str, value: int) -> None:
        model = self._partial_run(place)
        feeding = self._start(model.step.feed({f"{name}:0": value}))
        feeding.end(BAD if name in model.fed else None)
        model.fed.setdefault(name, value)
        self.do(settle())

    @rule(place=PLACES, name=st.sampled_from(["sum", "more"]))
    def fetch(self, place: int, name: str) -> None:
        model = self._partial_run(place)
        outcome = model.value(name)
        self._start(model.step.fetch(f"{name}:0")).end(outcome)
        if not isinstance(outcome, tuple):
            model.fetched.add(name)
        self.do(settle())

    def _partial_run(self, place: int) -> PartialModel:
        place %= 2
        if place >= len(self._partial_runs):
            scope = self._session.partial_run(["sum:0", "more:0"], ["a:0", "b:0"])
            self._partial_runs.append(PartialModel(scope, self.do(scope.__aenter__())))
        return self._partial_runs[min(place, len(self._partial_runs) - 1)]

    @precondition(lambda self: self._partial_runs)
    @rule(place=PLACES)
    def leave_partial_run(self, place: int) -> None:
        model = self._partial_runs.pop(place % len(self._partial_runs))
        self.do(model.scope.__aexit__(None, None, None))

    def teardown(self) -> None:
        for pending in self._pending:
            pending.task.cancel()
        self._runner.run(self._session.close())
        self._runner.close()


async def all_tasks() -> int:
    return len(asyncio.all_tasks())


async def taken(stream: ax.Stream) -> Any:
    return shown(await anext(stream))


def shown(out: Any) -> Any:
    return out.message if isinstance(out, ax.errors.OpError) else [int(value) for value in out]


def behind_x(graph_def: GraphDef) -> GraphDef:
    """Without the placeholder, which the session's graph has."""
    return graph_def.model_copy(update={"node": tuple(node for node in graph_def.node if node.name != "x")})


class UvloopMachine(SessionMachine):
    """In real time, where nothing is to depend on it."""

    owns_the_time = False


EXAMPLES = {"deadline": None, "stateful_step_count": 50}
MACHINES = [SessionMachine]
try:
    import uvloop
except ImportError:
    pass
else:
    UvloopMachine.loop_factories = [uvloop.new_event_loop]
    MACHINES.append(UvloopMachine)


@pytest.mark.parametrize("machine", MACHINES)
def test_sessions(machine: type[SessionMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=15, **EXAMPLES))  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", MACHINES)
def test_many_sessions(machine: type[SessionMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=1500, **EXAMPLES))  # type: ignore[arg-type]
