"""Items of streams with states overlap as far as their updates let them, to the tick; whichever fails, and when.

Time is virtual, and all delays are quarters of a second, which are exact.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.session.stream_graphs import plus

OnError: TypeAlias = Literal["raise", "yield"]
Stage: TypeAlias = Literal["before", "aside", "after"]
OUTPUT: dict[str, Any] = {"outputs": [ax.int64], "shapes": [[]]}
COUNT = 10


@dataclass
class Calls:
    """Async stages that take and fail as they are told, by the value of x.

    Attributes:
        begun: how often each has been called for each x.
    """

    delays: dict[Stage, list[float]]
    failing: set[tuple[Stage, int]] = field(default_factory=set)
    begun: Counter[tuple[str, int]] = field(default_factory=Counter)

    def op(self, stage: Stage) -> Callable[..., Any]:
        """An op of x and of a value that it gives after a while."""

        async def call(x: Any, value: Any) -> Any:
            self.begun[stage, int(x)] += 1
            await asyncio.sleep(self.delays[stage][x])
            if (stage, int(x)) in self.failing:
                raise ValueError(f"{x} {stage}")
            return value

        return ax.op(call, **OUTPUT)


def same_delay(delay: float) -> Calls:
    return Calls({stage: [delay] * COUNT for stage in ("before", "aside", "after")})


# What becomes of x and a slow op: the fetches.
Build: TypeAlias = Callable[[ax.Tensor, Callable[..., Any]], Any]


def update_then_slow(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total = ax.stream_state(np.int64(0))
    return slow(x, total.update(plus(total, x)))


def update_then_slow_by_control(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total = ax.stream_state(np.int64(0))
    with ax.control_dependencies([total.update(plus(total, x))]):
        return slow(x, x)


def slow_beside(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total = ax.stream_state(np.int64(0))
    return [total.update(plus(total, x)), slow(x, x)]


def slow_then_update(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total = ax.stream_state(np.int64(0))
    return total.update(plus(total, slow(x, x)))


def slow_reads_what_the_last_has_left(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    last = ax.stream_state(np.int64(0))
    last.update(x)
    return slow(x, last.value)


def slow_after_a_window(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    return slow(x, ax.reduce_sum(ax.window(x, 3)))


def slow_after_several_states(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total, last = ax.stream_state(np.int64(0)), ax.stream_state(np.int64(0))
    new = total.update(plus(total, last))
    last.update(slow(x, x))
    return slow(x, new)


def slow_in_between(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total = ax.stream_state(np.int64(0))
    return total.update(slow(x, plus(total, x)))


def update_waits_for_slow(x: ax.Tensor, slow: Callable[..., Any]) -> Any:
    total = ax.stream_state(np.int64(0))
    new = plus(total, x)
    stored = slow(x, new)
    with ax.control_dependencies([stored]):
        total.update(new)
    return stored


OVERLAPPING: list[Build] = [
    update_then_slow,
    update_then_slow_by_control,
    slow_beside,
    slow_then_update,
    slow_reads_what_the_last_has_left,
    slow_after_a_window,
]
ONE_BY_ONE: list[Build] = [slow_in_between, update_waits_for_slow]

each_way = pytest.mark.parametrize("ordered", [True, False])
each_on_error = pytest.mark.parametrize("on_error", ["raise", "yield"])


async def seconds_of(build: Build, on_error: OnError, ordered: bool) -> float:
    calls = same_delay(0.25)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        fetches = build(x, calls.op("after"))
    loop = asyncio.get_running_loop()
    async with ax.Session(graph) as session:
        start = loop.time()
        items = ({x: i} for i in range(COUNT))
        outputs = [out async for out in session.map(fetches, items, on_error=on_error, ordered=ordered)]
    assert len(outputs) == COUNT
    assert not any(isinstance(out, BaseException) for out in outputs)
    return loop.time() - start


@pytest.mark.virtual_clock
@each_way
@each_on_error
@pytest.mark.parametrize("build", OVERLAPPING)
async def test_items_overlap(build: Build, on_error: OnError, ordered: bool) -> None:
    assert await seconds_of(build, on_error, ordered) == 0.25


@pytest.mark.virtual_clock
@each_way
@each_on_error
async def test_items_overlap_with_the_slower_of_two_states(on_error: OnError, ordered: bool) -> None:
    assert await seconds_of(slow_after_several_states, on_error, ordered) == 0.5


@pytest.mark.virtual_clock
@each_way
@each_on_error
@pytest.mark.parametrize("build", ONE_BY_ONE)
async def test_updates_that_need_the_slow_op_come_one_by_one(build: Build, on_error: OnError, ordered: bool) -> None:
    assert await seconds_of(build, on_error, ordered) == 0.25 * COUNT


@pytest.mark.virtual_clock
@each_way
@pytest.mark.parametrize("stage", ["before", "aside", "after"])
@pytest.mark.parametrize("delay", [0.0, 0.25, 5.0])
async def test_state_behind_a_failed_item_depends_on_what_fails_and_not_on_when(
    ordered: bool, stage: Stage, delay: float
) -> None:
    """Item 0 takes a second to its update; item 1 fails before that, at the same time, or after it."""
    calls = Calls({"before": [1.0, 0.0, 0.0], "aside": [0.0] * 3, "after": [0.0] * 3}, {(stage, 1)})
    calls.delays[stage][1] = delay
    graph = Staged(calls, "plain")
    found = await graph.outputs(range(3), "yield", ordered)
    errors = [out.message for _, out in found if isinstance(out, ax.errors.OpError)]
    assert errors == [f"item 1: ValueError: 1 {stage}"]
    totals = {int(out["x"]): int(out["total"]) for _, out in found if isinstance(out, dict)}
    assert totals == {0: 10, 2: 22 if stage == "before" else 33}


@pytest.mark.virtual_clock
@pytest.mark.parametrize("arrives_at", [0.0, 2.0])
async def test_failure_that_a_branch_does_not_need(arrives_at: float) -> None:
    """Only a branch that is not taken asks for what fails: the update is made, whenever the failure comes."""
    calls = Calls({"before": [arrives_at, 0.0], "aside": [0.0, 1.0], "after": [0.0, 0.0]}, {("aside", 1)})
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        total = ax.stream_state(np.int64(0))
        waited, other = calls.op("before")(x, x), calls.op("aside")(x, x)
        step = ax.cond(ax.greater(x, np.int64(100)), lambda: other, lambda: plus(waited, np.int64(1)))
        new = total.update(plus(total, step))
    async with ax.Session(graph) as session:
        items = [{x: 0}, {x: 1}, {x: 0}]
        found = [out async for out in session.map([new, other], items, on_error="yield")]
    assert found[0] == [1, 0]
    assert found[1].message == "item 1: ValueError: 1 aside"
    assert found[2] == [4, 0]


@pytest.mark.virtual_clock
async def test_failure_in_a_branch_or_loop_that_the_update_needs() -> None:
    calls = Calls({"before": [0.25] * 4, "aside": [0.0] * 4, "after": [0.0] * 4}, {("before", 1), ("aside", 2)})
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        total = ax.stream_state(np.int64(0))
        before, aside = calls.op("before"), calls.op("aside")
        one = ax.cond(ax.greater(x, np.int64(0)), lambda: before(x, x), lambda: x)
        _, two = ax.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, aside(x, v)), (ax.constant(0), one))
        new = total.update(plus(total, two))
    async with ax.Session(graph) as session:
        items = ({x: i} for i in range(4))
        found = [out async for out in session.map(new, items, on_error="yield")]
    assert [found[0], found[3]] == [0, 3]
    assert [found[1].message, found[2].message] == ["item 1: ValueError: 1 before", "item 2: ValueError: 2 aside"]


@pytest.mark.parametrize("parallel_iterations", [1, 4])
@pytest.mark.parametrize("is_nested", [False, True])
async def test_failure_in_a_loop_that_goes_on_without(parallel_iterations: int, is_nested: bool) -> None:
    """The loop counts to its end, and the update takes the count; what fails in the third round, it does not need."""

    @ax.op(**OUTPUT)
    def check(x: int, i: int) -> int:
        if (x, i) == (1, 2):
            raise ValueError("bad")
        return x

    def body(i: ax.Tensor, _: ax.Tensor) -> Any:
        if not is_nested:
            return plus(i, np.int64(1)), check(x, i)
        inner = ax.while_loop(lambda j, _: j < 2, lambda j, _: (j + 1, check(x, i)), (ax.constant(0), x))
        return plus(i, np.int64(1)), inner[1]

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        total = ax.stream_state(np.int64(0))
        start = ax.constant(0, ax.int64)
        count, other = ax.while_loop(lambda i, _: i < 20, body, (start, x), parallel_iterations=parallel_iterations)
        new = total.update(plus(total, count))
    async with ax.Session(graph) as session:
        items = ({x: i} for i in range(3))
        found = [out async for out in session.map([new, other], items, on_error="yield")]
    assert [found[0], found[2]] == [[20, 0], [60, 2]]
    assert found[1].message == "item 1: ValueError: bad"


async def test_loop_that_fails_in_a_branch_is_not_dead() -> None:
    """Its Exits never come; if they were dead, so would be the Merge, and the trigger would run."""

    @ax.op(**OUTPUT)
    def check(x: int, i: int) -> int:
        if (x, i) == (1, 2):
            raise ValueError("bad")
        return i + 1

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        total = ax.stream_state(np.int64(0))
        zero = ax.constant(0, ax.int64)
        count = ax.cond(x < 100, lambda: ax.while_loop(lambda i: i < 20, lambda i: check(x, i), [zero])[0], lambda: x)
        with ax.control_dependencies([count]):
            trigger = ax.create_op("ControlTrigger")
        with ax.control_dependencies([trigger]):
            new = total.update(plus(total, np.int64(1)))
    async with ax.Session(graph) as session:
        items = ({x: i} for i in range(3))
        found = [out async for out in session.map([new, count], items, on_error="yield")]
    assert [found[0], found[2]] == [[1, 20], [2, 20]]
    assert found[1].message == "item 1: ValueError: bad"


@pytest.mark.virtual_clock
@pytest.mark.parametrize("early", [True, False])
async def test_each_of_several_states_is_for_itself(early: bool) -> None:
    """The update of the one fails, and that of the other is made; before or after."""
    delays: list[float] = [0.0, 0.25 if early else 3.0, 0.0]
    calls = Calls({"before": delays, "aside": [1.0, 2.0, 1.0], "after": [0.0] * 3}, {("before", 1)})
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        one, two = ax.stream_state(np.int64(0)), ax.stream_state(np.int64(0))
        fetches = [
            one.update(plus(one, calls.op("before")(x, x))),
            two.update(plus(two, calls.op("aside")(x, x))),
        ]
    async with ax.Session(graph) as session:
        items = ({x: i} for i in range(3))
        found = [out async for out in session.map(fetches, items, on_error="yield")]
    assert found[0] == [0, 0]
    assert found[1].message == "item 1: ValueError: 1 before"
    assert found[2] == [2, 3]


@pytest.mark.virtual_clock
async def test_failed_item_goes_on_no_longer_than_to_its_updates() -> None:
    calls = Calls({"before": [1.0, 0.0], "aside": [0.0, 0.25], "after": [0.0, 60.0]}, {("aside", 1)})
    found = await Staged(calls, "plain").outputs(range(2), "yield", False)
    assert {(time, type(out)) for time, out in found} == {(1.0, dict), (1.0, ax.errors.InvalidArgumentError)}
    calls = Calls({"before": [1.0, 0.25], "aside": [0.0, 60.0], "after": [0.0, 0.0]}, {("before", 1)})
    found = await Staged(calls, "plain").outputs(range(2), "yield", False)
    assert [(time, type(out)) for time, out in found] == [(0.25, ax.errors.InvalidArgumentError), (1.0, dict)]


# Against a model.

Kind: TypeAlias = Literal["plain", "loop", "devices", "rendezvous", "shuffled"]
CONFIGS: dict[Kind, dict[str, Any]] = {
    "plain": {},
    "loop": {},
    "devices": {"device_count": {"CPU": 2}},
    "rendezvous": {"device_count": {"CPU": 2}, "feed_fetch_medium": "rendezvous"},
    "shuffled": {"schedule_seed": 7, "debug": True},
}


class Staged:
    """An update that needs one slow stage; another comes after it, and a third is beside it all."""

    def __init__(self, calls: Calls, kind: Kind) -> None:
        self._kind = kind
        with ax.Graph() as self._graph:
            self._x = x = ax.placeholder(ax.int64, [], name="x")
            total = ax.stream_state(np.int64(0))
            with ax.device("/cpu:1" if kind in ("devices", "rendezvous") else None):
                before = calls.op("before")(x, plus(x, np.int64(10)))
            if kind == "loop":
                _, before = ax.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v), (ax.constant(0), before))
            new = total.update(plus(total, before))
            self._fetches = {"x": plus(x, np.int64(0)), "total": new, "aside": calls.op("aside")(x, x)}
            with ax.device("/cpu:1" if kind == "rendezvous" else None):
                self._fetches["after"] = calls.op("after")(x, new)

    async def outputs(self, xs: range, on_error: OnError, ordered: bool) -> list[tuple[float, Any]]:
        """What comes out, and when; the error that ends the stream is the last."""
        loop = asyncio.get_running_loop()
        found: list[tuple[float, Any]] = []
        async with ax.Session(self._graph, ax.SessionConfig(**CONFIGS[self._kind])) as session:
            start = loop.time()
            items = ({self._x: i} for i in xs)
            try:
                async for out in session.map(
                    self._fetches, items, window=len(xs) + 1, on_error=on_error, ordered=ordered
                ):
                    found.append((loop.time() - start, out))
            except ax.errors.OpError as error:
                found.append((loop.time() - start, error))
        return found


@dataclass(frozen=True)
class Fate:
    """What an item takes, and which of its stages fail."""

    delays: tuple[float, float, float]
    failing: frozenset[Stage]


@dataclass(frozen=True)
class Expected:
    """What a model of the stream says of an item: when its update is made or not, when it ends, and with what."""

    ends_at: float
    total: int | None  # None if it fails
    errors: frozenset[Stage]


def expect(fates: list[Fate]) -> list[Expected]:
    """What becomes of each item, where failures are yielded."""
    found = []
    total, total_at = 0, 0.0  # what the next item reads, and from when on
    for x, fate in enumerate(fates):
        before, aside, after = fate.delays
        if "before" in fate.failing:
            first = min(before, aside) if "aside" in fate.failing else before
            ends_at = before
            errors = {stage for stage, at in (("before", before), ("aside", aside)) if at == first}
            found.append(Expected(ends_at, None, frozenset(errors & fate.failing)))
            total_at = max(total_at, ends_at)
            continue
        total, total_at = total + x + 10, max(total_at, before)
        times: dict[Stage, float] = {"aside": aside, "after": total_at + after}
        failures = {stage: at for stage, at in times.items() if stage in fate.failing}
        if failures:
            first = min(failures.values())
            errors = {stage for stage, at in failures.items() if at == first}
            found.append(Expected(max(first, total_at), None, frozenset(errors)))
        else:
            found.append(Expected(max(times.values()), total, frozenset()))
    return found


QUARTERS = st.integers(0, 8).map(lambda n: n / 4)
FATES = st.builds(
    Fate,
    st.tuples(QUARTERS, QUARTERS, QUARTERS),
    st.one_of(st.just(frozenset[Stage]()), st.frozensets(st.sampled_from(["before", "aside", "after"]), max_size=2)),
)


def run_of(fates: list[Fate], kind: Kind, on_error: OnError, ordered: bool) -> tuple[Calls, list[tuple[float, Any]]]:
    columns = list(zip(*(fate.delays for fate in fates), strict=True)) or [(), (), ()]
    delays = dict(zip(("before", "aside", "after"), map(list, columns), strict=True))
    calls = Calls(delays, {(stage, x) for x, fate in enumerate(fates) for stage in fate.failing})  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return calls, runner.run(Staged(calls, kind).outputs(range(len(fates)), on_error, ordered))


def check_yield(fates: list[Fate], kind: Kind, ordered: bool) -> None:
    calls, found = run_of(fates, kind, "yield", ordered)
    expected = expect(fates)
    times: dict[int, float] = {}
    for number, (at, out) in enumerate(found):
        if isinstance(out, dict):
            x = int(out["x"])
            assert int(out["total"]) == int(out["after"]) == expected[x].total
        else:
            x = int(out.message.removeprefix("item ").partition(":")[0])
            assert out.message in {f"item {x}: ValueError: {x} {stage}" for stage in expected[x].errors}
        assert not ordered or x == number
        times[x] = at
    ends = [item.ends_at for item in expected]
    if ordered:
        ends = [max(ends[: x + 1]) for x in range(len(ends))]
    assert times == dict(enumerate(ends))
    assert set(calls.begun.values()) <= {1}


def check_raise(fates: list[Fate], kind: Kind, ordered: bool) -> None:
    calls, found = run_of(fates, kind, "raise", ordered)
    expected = expect(fates)
    failing = [x for x, fate in enumerate(fates) if fate.failing]
    values = [(at, out) for at, out in found if isinstance(out, dict)]
    for at, out in values:
        x = int(out["x"])
        assert int(out["total"]) == expected[x].total
        if not failing:
            assert at == (max(item.ends_at for item in expected[: x + 1]) if ordered else expected[x].ends_at)
    numbers = [int(out["x"]) for _, out in values]
    if not failing:
        assert sorted(numbers) == list(range(len(fates)))
    elif ordered:
        assert numbers == list(range(failing[0]))
        assert found[-1][1].message.startswith(f"item {failing[0]}: ValueError")
    else:
        assert any(found[-1][1].message.startswith(f"item {x}: ValueError") for x in failing)
    assert set(calls.begun.values()) <= {1}


def check(fates: list[Fate], kind: Kind, on_error: OnError, ordered: bool) -> None:
    (check_yield if on_error == "yield" else check_raise)(fates, kind, ordered)


CASES = (
    st.lists(FATES, max_size=8),
    st.sampled_from(list(CONFIGS)),
    st.sampled_from(["yield", "yield", "yield", "raise"]),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(*CASES)
def test_items_end_when_the_model_says(fates: list[Fate], kind: Kind, on_error: OnError, ordered: bool) -> None:
    check(fates, kind, on_error, ordered)


@pytest.mark.deep
@pytest.mark.timeout(900)
@settings(max_examples=3_000, deadline=None)
@given(*CASES)
def test_items_end_when_the_model_says_many_times(
    fates: list[Fate], kind: Kind, on_error: OnError, ordered: bool
) -> None:
    check(fates, kind, on_error, ordered)
