"""Streams against a model: whatever items take, fail or wait for, each comes out once, in its place.

Time is virtual, and begins anew with each example: delays decide what overtakes what, and nothing else does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.session.stream_graphs import Stages, plus, results, shown

DELAYS = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.5, 4.0]), max_size=24)


@dataclass
class Case:
    """A stream: what each item takes, which fail, how it is run, and when its consumer is cancelled."""

    delays: list[float]
    failing: set[int]
    window: int
    ordered: bool
    on_error: Literal["raise", "yield"]
    source: Literal["iterable", "async", "send"]
    source_delay: float
    consumer_delay: float
    cancel_at: float | None
    stages: Stages = field(init=False)

    def __post_init__(self) -> None:
        self.stages = Stages(delays=dict(enumerate(self.delays)), failing=self.failing)

    @property
    def numbers(self) -> range:
        return range(len(self.delays))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    delays = draw(DELAYS)
    some = st.sets(st.integers(0, max(len(delays) - 1, 0)), max_size=3)
    return Case(
        delays,
        draw(st.one_of(st.just(set()), some)) & set(range(len(delays))),
        draw(st.integers(1, 6)),
        draw(st.booleans()),
        draw(st.sampled_from(["raise", "yield"])),
        draw(st.sampled_from(["iterable", "async", "send"])),
        draw(st.sampled_from([0.0, 0.1, 0.5])),
        draw(st.sampled_from([0.0, 0.1, 0.5])),
        draw(st.one_of(st.none(), st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.5]))),
    )


class Run:
    """Runs a case, and keeps what comes out."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.outputs: list[Any] = []
        self.error: BaseException | None = None
        self.is_under_way = True
        stages = case.stages
        with stages.graph:
            total = ax.stream_state(np.int64(0))
            self.fetches = {"y": stages.y, "total": total.update(plus(total, stages.same))}

    async def run(self) -> None:
        case = self.case
        others = asyncio.all_tasks()
        async with ax.Session(case.stages.graph) as session:
            consumer = asyncio.ensure_future(self._send(session) if case.source == "send" else self._map(session))
            if case.cancel_at is not None:
                asyncio.get_running_loop().call_later(case.cancel_at, consumer.cancel)
            try:
                await consumer
            except (ax.errors.OpError, asyncio.CancelledError) as error:
                self.error = error
            # At once, while the session is open: nothing is at work any more.
            assert case.stages.under_way == 0
            assert asyncio.all_tasks() == others
            assert session.statistics().running_steps == 0
        self.is_under_way = False

    def _options(self) -> dict[str, Any]:
        case = self.case
        return {"window": case.window, "ordered": case.ordered, "on_error": case.on_error}

    async def _items(self) -> Any:
        for number in self.case.numbers:
            await asyncio.sleep(self.case.source_delay)
            yield {self.case.stages.x: number}

    async def _map(self, session: ax.Session) -> None:
        is_async = self.case.source == "async"
        items = self._items() if is_async else self.case.stages.items(self.case.numbers)
        async with session.map(self.fetches, items, **self._options()) as outputs:
            await self._take(outputs)

    async def _send(self, session: ax.Session) -> None:
        async with session.stream(self.fetches, **self._options()) as stream:
            sender = asyncio.ensure_future(self._send_all(stream))
            try:
                await self._take(stream)
            finally:
                sender.cancel()
                await asyncio.wait([sender])

    async def _send_all(self, stream: ax.Stream) -> None:
        async for feeds in self._items():
            await stream.send(feeds)
        await stream.close()

    async def _take(self, outputs: Any) -> None:
        async for out in outputs:
            self.outputs.append(out)
            await asyncio.sleep(self.case.consumer_delay)


def check(run: Run) -> None:
    case = run.case
    stages, failing = case.stages, case.failing
    good = [x for x in case.numbers if x not in failing]
    values = [out for out in run.outputs if isinstance(out, dict)]
    errors = [out for out in run.outputs if not isinstance(out, dict)]
    ys = [int(value["y"]) for value in values]

    # Exactly once, and never more in flight than the window.
    assert len(set(ys)) == len(ys)
    assert set(ys) <= set(results(good))
    assert sorted(stages.begun) == list(range(len(stages.begun)))
    assert stages.most <= case.window

    # The state of an item is the sum of those before it that have not failed.
    sums = {2 * x + 1: sum(other for other in good if other <= x) for x in good}
    assert all(int(value["total"]) == sums[int(value["y"])] for value in values)

    if case.ordered:
        assert ys == results(good)[: len(ys)]
    if isinstance(run.error, asyncio.CancelledError):
        assert case.cancel_at is not None
    elif case.on_error == "yield" or not failing:
        assert run.error is None
        assert sorted(ys) == results(good)
        expected = {f"item {x}: ValueError: {x} is bad" for x in failing}
        assert set(shown(errors)) == expected
        assert len(errors) == len(expected)
        if case.ordered:
            assert [i for i, out in enumerate(run.outputs) if not isinstance(out, dict)] == sorted(failing)
    else:
        assert isinstance(run.error, ax.errors.InvalidArgumentError)
        assert errors == []
        number = int(run.error.message.removeprefix("item ").partition(":")[0])
        assert number in failing
        if case.ordered:
            assert number == min(failing)
            assert ys == results(range(number))


def check_case(case: Case) -> None:
    run = Run(case)
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(run.run())
    check(run)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_every_item_comes_out_once_in_its_place(case: Case) -> None:
    check_case(case)


@pytest.mark.deep
@settings(max_examples=10_000, deadline=None)
@given(cases())
def test_every_item_comes_out_once_in_its_place_many_times(case: Case) -> None:
    check_case(case)


class CountingLoop(VirtualClockLoop):
    """Cancels *victim* in one of its turns."""

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.victim: asyncio.Task[None] | None = None
        self.turns_left = turn

    def _run_once(self) -> None:
        if self.victim is not None:
            self.turns_left -= 1
            if not self.turns_left:
                self.victim.cancel()
        super()._run_once()  # type: ignore[misc]


def cancelled_in(turn: int, ordered: bool, on_error: Literal["raise", "yield"]) -> Run:
    """A stream whose consumer is cancelled in that turn of the loop."""
    loop = CountingLoop(turn)
    run = Run(Case([0.1, 0.0, 0.2, 0.0, 0.1], {3}, 2, ordered, on_error, "async", 0.1, 0.1, None))

    async def main() -> None:
        loop.victim = asyncio.ensure_future(run.run())
        await asyncio.wait([loop.victim])
        if not loop.victim.cancelled():
            loop.victim.result()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert run.case.stages.under_way == 0
    return run


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("on_error", ["raise", "yield"])
def test_cancelled_in_every_turn_of_the_loop(ordered: bool, on_error: Literal["raise", "yield"]) -> None:
    num_turns = next(turn for turn in range(1, 1000) if not is_cut_short(cancelled_in(turn, ordered, on_error)))
    assert num_turns > 20


def is_cut_short(run: Run) -> bool:
    return isinstance(run.error, asyncio.CancelledError) or run.is_under_way
