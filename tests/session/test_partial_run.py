"""Partial runs by TensorFlow's rules (``PartialRun*`` of ``direct_session_test.cc``, ``testPartialRun*`` of
``session_test.py``).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle

TWO_DEVICES = ax.SessionConfig(device_count={"CPU": 2})
CONFIGS = [
    ax.SessionConfig(),
    TWO_DEVICES,
    ax.SessionConfig(executor_type="TAGGED_TOKEN"),
    ax.SessionConfig(feed_fetch_medium="rendezvous"),
    ax.SessionConfig(schedule_seed=3),
]
INVALID = ax.errors.InvalidArgumentError


class Sums:
    """r1 = a + b, on another device where there is one; r2 = r1 * c."""

    def __init__(self, *, on_two_devices: bool = False) -> None:
        with ax.Graph() as self.graph:
            self.a, self.b, self.c = (ax.placeholder(ax.float32, [], name=name) for name in "abc")
            with ax.device("/cpu:1" if on_two_devices else ""):
                self.r1 = ax.add(self.a, self.b, name="r1")
            self.r2 = ax.multiply(self.r1, self.c, name="r2")
        self.feeds = [self.a, self.b, self.c]
        self.fetches = [self.r1, self.r2]


@pytest.fixture
def sums() -> Sums:
    return Sums()


@pytest.mark.parametrize("config", CONFIGS, ids=["simple", "two devices", "tagged", "rendezvous", "any order"])
async def test_feeds_and_fetches_bit_by_bit(config: ax.SessionConfig) -> None:
    sums = Sums(on_two_devices=config is TWO_DEVICES)
    async with ax.Session(sums.graph, config) as session:
        for _ in range(3):
            async with session.partial_run(sums.fetches, sums.feeds) as step:
                await step.feed({sums.a: 1, "b:0": 2})
                first = await step.fetch(sums.r1)
                assert first == 3
                await step.feed({sums.c: first * 17})
                assert await step.fetch({"out": ["r2:0"]}) == {"out": [153]}
        assert await session.run(sums.r2, {sums.a: 1, sums.b: 2, sums.c: 3}) == 9


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_feeds_in_any_order(sums: Sums, order: tuple[str, ...]) -> None:
    values = {"a": 1, "b": 3, "c": 5}
    async with ax.Session(sums.graph) as session, session.partial_run(sums.fetches, sums.feeds) as step:
        for name in order:
            await step.feed({f"{name}:0": values[name]})
        assert await step.fetch([sums.r2, sums.r1]) == [20, 4]


async def test_two_partial_runs_and_a_run_at_once(sums: Sums) -> None:
    async with (
        ax.Session(sums.graph) as session,
        session.partial_run(sums.fetches, sums.feeds) as one,
        session.partial_run(sums.fetches, sums.feeds) as two,
    ):
        await one.feed({sums.a: 1, sums.b: 1})
        await two.feed({sums.a: 2, sums.b: 2})
        assert await session.run(sums.r1, {sums.a: 5, sums.b: 5}) == 10
        await two.feed({sums.c: 10})
        await one.feed({sums.c: 100})
        assert [await one.fetch(sums.r2), await two.fetch(sums.r2)] == [200, 40]
        assert [await one.fetch(sums.r1), await two.fetch(sums.r1)] == [2, 4]


async def test_state_is_shared_and_each_node_runs_once() -> None:
    runs: list[float] = []

    def count(value: Any) -> Any:
        runs.append(value)
        return value

    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float32, [], name="x"), ax.placeholder(ax.float32, [], name="y")
        counted = raw_op("Count", count, dtype=ax.float32)(x)
        variable = ax.Variable(1.0, name="v")
        with ax.control_dependencies([variable.assign_add(counted)]):
            added = variable.read_value()
        after = added + y
        random = ax.create_op("RandomUniform", [ax.constant([1])], {"dtype": ax.float32})
        both = [random + 0.0, random * 1.0]
    async with ax.Session(graph) as session:
        await session.run(variable.initializer)
        async with session.partial_run([added, after, counted * 2.0, *both], [x, y]) as step:
            await step.feed({x: 5})
            assert await step.fetch(added) == 6
            await step.feed({y: 10})
            assert await step.fetch(after) == 16
            first = await step.fetch(both[0])
            assert await step.fetch(both[1]) == first
        assert runs == [5]
        assert await session.run(variable.read_value()) == 6


@pytest.mark.parametrize("config", [ax.SessionConfig(), ax.SessionConfig(feed_fetch_medium="rendezvous")])
async def test_missing_feed_is_an_error_at_once_and_the_step_goes_on(sums: Sums, config: ax.SessionConfig) -> None:
    async with ax.Session(sums.graph, config) as session, session.partial_run(sums.fetches, sums.feeds) as step:
        await step.feed({sums.a: 1})
        with pytest.raises(INVALID, match=r"'r1:0' can't be computed from the feeds .* it needs 'b:0'") as caught:
            await step.fetch(sums.r1)
        assert (caught.value.node, caught.value.hint) == ("r1", "feed 'b:0' first")
        await step.feed({sums.b: 3})
        assert await step.fetch(sums.r1) == 4
        with pytest.raises(INVALID, match="needs 'c:0'"):
            await step.fetch([sums.r2])


async def test_feed_that_a_node_needs_which_is_waited_for_by_a_control_edge_is_missing_too() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        with ax.control_dependencies([x * 2.0]):
            after = ax.constant(2.0) + 1.0
    async with ax.Session(graph) as session, session.partial_run(after, [x]) as step:
        with pytest.raises(INVALID, match="needs 'x:0'"):
            await step.fetch(after)
        await step.feed({x: 1})
        assert await step.fetch(after) == 3.0


async def test_feed_that_is_waited_for_by_a_control_edge_is_missing_too() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        with ax.control_dependencies([x]):
            after = ax.constant(2.0) + 1.0
    async with ax.Session(graph) as session, session.partial_run(after, [x]) as step:
        with pytest.raises(INVALID, match="needs 'x:0'"):
            await step.fetch(after)
        await step.feed({x: 1})
        assert await step.fetch(after) == 3


async def test_one_output_of_several_is_enough() -> None:
    """PartialRunMultiOutputFeed: of a Switch, only the side that is needed is fed."""
    with ax.Graph() as graph:
        data, pred = ax.constant(1.0), ax.constant(True)
        _, on_true = ax.create_op("Switch", [data, pred], name="switch")
        fourth = ax.identity(on_true, name="fourth")
    async with ax.Session(graph) as session, session.partial_run("fourth:0", ["switch:1"]) as step:
        await step.feed({"switch:1": 1000.0})
        assert await step.fetch(fourth) == 1000


async def test_what_was_not_specified_or_was_had_already(sums: Sums) -> None:
    async with ax.Session(sums.graph) as session, session.partial_run(sums.fetches, [sums.a, sums.b]) as step:
        with pytest.raises(INVALID, match=r"feed 'c:0' was not specified"):
            await step.feed({sums.a: 1, sums.c: 2})
        with pytest.raises(INVALID, match=r"fetch 'a:0' was not specified"):
            await step.fetch("a:0")


async def test_what_was_had_already(sums: Sums) -> None:
    async with ax.Session(sums.graph) as session, session.partial_run(sums.fetches, sums.feeds) as step:
        await step.feed({sums.a: 1})
        with pytest.raises(INVALID, match=r"'a:0' has already been fed"):
            await step.feed({sums.b: 1, sums.a: 2})
        with pytest.raises(INVALID, match=r"'b:0' has already been fed"):
            await step.feed({sums.b: 1, "b:0": 1})
        await step.feed({sums.b: 2})  # nothing of what was refused has been fed
        assert await step.fetch([sums.r1, "r1:0"]) == [3, 3]
        with pytest.raises(INVALID, match=r"'r1:0' has already been fetched"):
            await step.fetch(sums.r1)


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        ({"a:0": [1]}, INVALID, r"shape \[1\] for 'a:0'"),
        ({"a:0": "text"}, TypeError, "'a:0'"),
        ({"a": 1}, TypeError, "names an operation"),
        ({"nothing:0": 1}, TypeError, "nothing"),
    ],
)
async def test_bad_feeds_leave_the_step_as_it_was(sums: Sums, bad: Any, error: type[Exception], match: str) -> None:
    async with ax.Session(sums.graph) as session, session.partial_run(sums.fetches, sums.feeds) as step:
        with pytest.raises(error, match=match):
            await step.feed({sums.b: 1, **bad})
        await step.feed({sums.a: 1, sums.b: 2})
        assert await step.fetch(sums.r1) == 3


@pytest.mark.parametrize(
    ("begin", "error", "match"),
    [
        (lambda s, p: p([], [s.a]), INVALID, "at least one target"),
        (lambda s, p: p([s.a, s.r1], [s.a, s.b]), INVALID, "'a:0' is both fed and fetched"),
        (lambda s, p: p(s.r1, {s.a: 1}), TypeError, "names of its feeds"),
        (lambda s, p: p(s.r1, [s.a, "a:0"]), INVALID, "fed more than once"),
        (lambda s, p: p(s.r1, ["a"]), TypeError, "names an operation"),
        (lambda s, p: p("r7:0", ["a:0"]), INVALID, "r7"),
    ],
)
async def test_bad_beginnings(
    sums: Sums, begin: Callable[[Sums, Any], Any], error: type[Exception], match: str
) -> None:
    async with ax.Session(sums.graph) as session:
        with pytest.raises(error, match=match):
            async with begin(sums, session.partial_run):
                pytest.fail("it began")
        assert session.statistics().running_steps == 0


async def test_operations_are_targets_and_not_fetched(sums: Sums) -> None:
    with sums.graph:
        variable = ax.Variable(1.0)
        target = variable.assign_add(sums.a)
    async with ax.Session(sums.graph) as session:
        await session.run(variable.initializer)
        async with session.partial_run([target, sums.r1], [sums.a, sums.b]) as step:
            with pytest.raises(INVALID, match="no value to fetch in a partial run"):
                await step.fetch(target)
            await step.feed({sums.a: 1, sums.b: 3})
            assert await step.fetch(sums.r1) == 4
        assert await session.run(variable.read_value()) == 2


async def test_step_whose_feeds_and_fetches_are_done_comes_to_its_end(sums: Sums) -> None:
    """As TensorFlow's, which waits for the executors then: targets are not cut short."""
    ended: list[float] = []

    async def slow(value: Any) -> Any:
        await settle(10)
        ended.append(value)
        return value

    with sums.graph:
        target = raw_op("Slow", slow, kind=KernelKind.ASYNC)(sums.a)
    async with ax.Session(sums.graph) as session:
        async with session.partial_run(sums.r1, [sums.a, sums.b], targets=[target]) as step:
            await step.feed({sums.a: 1, sums.b: 3})
            assert await step.fetch(sums.r1) == 4
            assert ended == []
        assert ended == [1]


async def test_what_was_not_fed_and_not_needed_is_no_error(sums: Sums) -> None:
    async with ax.Session(sums.graph) as session:
        async with session.partial_run(sums.fetches, sums.feeds) as step:
            await step.feed({sums.a: 1, sums.b: 2})
            assert await step.fetch(sums.r1) == 3
        async with session.partial_run(sums.fetches, sums.feeds):
            pass


async def test_placeholder_that_nobody_feeds_fails_the_step(sums: Sums) -> None:
    async with ax.Session(sums.graph) as session:
        with pytest.raises(INVALID, match="needed by way of b -> r1") as caught:  # noqa: PT012 - wherever it comes
            async with session.partial_run(sums.r1, [sums.a]) as step:
                await step.feed({sums.a: 1})
                await step.fetch(sums.r1)
        assert caught.value.node == "b"


async def test_dead_fetch_is_an_error_as_soon_as_nothing_can_bring_it() -> None:
    with ax.Graph() as graph:
        data, pred = ax.placeholder(ax.float32, [], name="data"), ax.placeholder(ax.bool, [], name="pred")
        off, on = ax.create_op("Switch", [data, pred], name="switch")
        off, on = ax.identity(off, name="off"), ax.identity(on, name="on")
    async with ax.Session(graph) as session, session.partial_run([off, on], [data, pred]) as step:
        await step.feed({data: 1, pred: True})
        with pytest.raises(INVALID, match="'off:0' does not have a value: it is dead"):
            await step.fetch(off)
        assert await step.fetch(on) == 1


@pytest.mark.parametrize("device", ["", "/cpu:1"])
async def test_loop_that_is_entered_late(device: str) -> None:
    with ax.Graph() as graph:
        n, x = ax.placeholder(ax.int32, [], name="n"), ax.placeholder(ax.float32, [], name="x")
        with ax.device(device):
            _, out = ax.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v * x), (ax.constant(0), ax.constant(1.0)))
        both = out + x
    async with ax.Session(graph, TWO_DEVICES) as session:
        for feeds in ([{n: 5}, {x: 2}], [{x: 2}, {n: 5}]):
            async with session.partial_run([out, both], [n, x]) as step:
                for feed in feeds:
                    await step.feed(feed)
                    await settle()
                assert await step.fetch([both, out]) == [34, 32]


@pytest.mark.virtual_clock
async def test_many_at_once() -> None:
    """testManyPartialRun: runs that wait for each other's values."""

    async def pause(value: Any) -> Any:
        await asyncio.sleep(float(value))
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        paused = raw_op("Pause", pause, kind=KernelKind.ASYNC, dtype=ax.float32)(x)
        y = ax.placeholder(ax.float32, [], name="y")
        total = paused + y
    async with ax.Session(graph) as session:

        async def one(number: int) -> float:
            async with session.partial_run([paused, total], [x, y]) as step:
                await step.feed({x: number})
                first = await step.fetch(paused)
                await step.feed({y: first * 2})
                return float(await step.fetch(total))

        assert await asyncio.gather(*map(one, range(100))) == [3.0 * number for number in range(100)]
        assert asyncio.get_running_loop().time() == 99
