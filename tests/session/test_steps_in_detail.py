"""What a step promises and only a look at the right moment shows: its first failure, what it holds, its order.

The collector is off, so that a value dies only when nobody refers to it.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle, started

KINDS: list[dict[str, Any]] = [
    {},
    {"schedule_seed": 3},
    {"device_count": {"CPU": 2}},
    {"device_count": {"CPU": 2}, "feed_fetch_medium": "rendezvous"},
]


@pytest.fixture(params=KINDS, ids=lambda settings: " ".join(settings) or "default")
def config(request: pytest.FixtureRequest) -> ax.SessionConfig:
    return ax.SessionConfig(**request.param)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def other_device(config: ax.SessionConfig) -> str:
    """The last device there is."""
    return f"/cpu:{config.device_count.get('CPU', 1) - 1}"


class Arrays:
    """Ops that make arrays, and tell how many of these are alive."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []
        self.seen: list[int] = []
        self.make = raw_op("Make", self._make, dtype=ax.float32)
        self.look = raw_op("Look", self._look, dtype=ax.float32)

    def _make(self, *_: Any) -> Any:
        array = np.ones(1000, np.float32)
        self._made.append(weakref.ref(array))
        return array

    def _look(self, *_: Any) -> Any:
        self.seen.append(self.alive)
        return np.float32(self.alive)

    @property
    def alive(self) -> int:
        return sum(ref() is not None for ref in self._made)


async def test_closing_the_session_does_not_replace_the_failure_of_a_step_that_ends(config: ax.SessionConfig) -> None:
    may_end = asyncio.Event()

    async def wait() -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    async def fail() -> Any:
        raise ValueError("the first")

    with ax.Graph() as graph, ax.device(other_device(config)):
        waits = raw_op("Wait", wait, kind=KernelKind.ASYNC, dtype=ax.float32)(name="waits")
        with ax.device("/cpu:0"):
            fails = raw_op("Fail", fail, kind=KernelKind.ASYNC, dtype=ax.float32)(name="fails")
    async with ax.Session(graph, config=config) as session:
        run = await started(session.run([waits, fails]))
        await settle()
        closing = await started(session.close())
        await settle()
        assert not run.done()
        may_end.set()
        with pytest.raises(ax.errors.InvalidArgumentError, match="the first") as caught:
            await run
        assert caught.value.node == "fails"
        await closing


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ending", ["well", "by a failure", "by its caller"])
async def test_a_loop_that_has_ended_holds_nothing(config: ax.SessionConfig, ending: str) -> None:
    arrays = Arrays()

    async def wait(i: Any, x: Any) -> Any:
        await asyncio.sleep(0)
        if int(i) == 2 and ending == "by a failure":
            raise ValueError("told to")
        if int(i) == 2 and ending == "by its caller":
            await asyncio.Event().wait()
        return x

    waiting = raw_op("Wait", wait, kind=KernelKind.ASYNC, dtype=ax.float32)
    with ax.Graph() as graph:
        kept = arrays.make()

        def body(i: Any, x: Any) -> Any:
            with ax.device(other_device(config)):
                return i + 1, waiting(i, x) + kept

        out = ax.while_loop(lambda i, x: i < 4, body, [0, arrays.make()])[1]
    async with ax.Session(graph, config=config) as session:
        run = await started(session.run(out))
        if ending == "by its caller":
            await settle(20)
            run.cancel()
        try:
            np.testing.assert_array_equal(await run, np.full(1000, 5, np.float32))
        except (ax.errors.InvalidArgumentError, asyncio.CancelledError):
            assert ending != "well"
        del run
        await settle()
        assert arrays.alive == 0


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("taken", [True, False])
async def test_a_value_that_went_through_a_switch_is_let_go_of(config: ax.SessionConfig, taken: bool) -> None:
    """Once its last taker has run, though the step goes on."""
    arrays = Arrays()
    with ax.Graph() as graph:
        decides = ax.placeholder(ax.bool, [], name="p")
        sides = ax.create_op("Switch", [arrays.make(), decides])
        merged = ax.create_op("Merge", [[ax.reduce_sum(sides[0]), ax.reduce_max(sides[1])]])[0]
        with ax.control_dependencies([merged]):
            seen = arrays.look()
    async with ax.Session(graph, config=config) as session:
        assert await session.run([merged, seen], {"p:0": taken}) == [1.0 if taken else 1000.0, 0.0]


@pytest.mark.usefixtures("no_collector")
async def test_a_value_inside_of_a_loop_is_let_go_of(config: ax.SessionConfig) -> None:
    """While the loop goes round: what a Merge, a Switch and a NextIteration have passed on."""
    arrays = Arrays()
    with ax.Graph() as graph:

        def body(i: Any, x: Any) -> Any:
            total = ax.reduce_sum(x)
            with ax.control_dependencies([total]):
                seen = arrays.look()
            with ax.control_dependencies([seen]):
                return i + 1, arrays.make()

        out = ax.while_loop(lambda i, x: i < 5, body, [0, arrays.make()], parallel_iterations=1)[0]
    async with ax.Session(graph, config=config) as session:
        assert await session.run(out) == 5
    assert len(arrays.seen) == 5
    assert max(arrays.seen) == 0


@pytest.mark.parametrize("parallel_iterations", [1, 3])
async def test_no_more_iterations_are_under_way_than_allowed(
    config: ax.SessionConfig, parallel_iterations: int
) -> None:
    under_way: set[int] = set()
    most: list[int] = []

    async def wait(i: Any) -> Any:
        under_way.add(int(i))
        most.append(len(under_way))
        await settle(20)
        under_way.remove(int(i))
        return np.int32(i)

    waiting = raw_op("Wait", wait, kind=KernelKind.ASYNC, dtype=ax.int32)
    with ax.Graph() as graph:

        def body(i: Any, total: Any) -> Any:
            with ax.device(other_device(config)):
                return i + 1, total + waiting(i)

        last = ax.while_loop(lambda i, total: i < 9, body, [0, 0], parallel_iterations=parallel_iterations)[1]
    async with ax.Session(graph, config=config) as session:
        assert await session.run(last) == 36
    assert max(most) == parallel_iterations


async def test_inner_loops_of_several_iterations_do_not_mix_what_they_send() -> None:
    """Inner loops are under way in several outer iterations; their values cross in another order than they began."""
    gates = [asyncio.Event() for _ in range(4)]

    async def wait(i: Any, j: Any, x: Any) -> Any:
        await gates[int(i)].wait()
        return np.int32(x)

    waiting = raw_op("Wait", wait, kind=KernelKind.ASYNC, dtype=ax.int32)
    with ax.Graph() as graph, ax.device("/cpu:0"):

        def outer(i: Any, total: Any) -> Any:
            def inner(j: Any, x: Any) -> Any:
                with ax.device("/cpu:1"):
                    y = waiting(i, j, x) * 2
                return j + 1, y + i

            return i + 1, total + ax.while_loop(lambda j, x: j < 3, inner, [0, i])[1]

        last = ax.while_loop(lambda i, total: i < 4, outer, [0, 0])[1]
    async with ax.Session(graph, config=ax.SessionConfig(device_count={"CPU": 2}, debug=True)) as session:
        run = await started(session.run(last))
        for gate in reversed(gates):
            await settle(20)
            gate.set()
        assert await run == sum(((i * 2 + i) * 2 + i) * 2 + i for i in range(4))


async def test_constants_of_a_loop_may_come_while_it_goes_round(config: ax.SessionConfig) -> None:
    """Each iteration takes them, also those that began before and those that begin after."""
    came = [asyncio.Event() for _ in range(2)]

    def late(number: int) -> Any:
        async def wait() -> Any:
            await came[number].wait()
            return np.int32(10 ** (number + 1))

        return raw_op(f"Late{number}", wait, kind=KernelKind.ASYNC, dtype=ax.int32)()

    with ax.Graph() as graph:
        first, second = late(0), late(1)
        rounds = lambda i, total: i < 8  # noqa: E731
        last = ax.while_loop(rounds, lambda i, total: (i + 1, total + (first + second * i)), [0, 0])[1]
    async with ax.Session(graph, config=config) as session:
        run = await started(session.run(last))
        for event in came:
            await settle(20)
            event.set()
        assert await run == 8 * 10 + 100 * sum(range(8))


@pytest.mark.parametrize(("p", "q", "expected"), [(True, True, -2), (True, False, -3), (False, True, 4)])
async def test_a_branch_that_is_not_taken_tells_other_devices(
    config: ax.SessionConfig, p: bool, q: bool, expected: int
) -> None:
    """A Merge is dead when all its inputs are, and what it would have given is awaited elsewhere."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        outer, inner = (ax.placeholder(ax.bool, [], name=name) for name in "pq")

        def taken() -> Any:
            value = ax.cond(inner, lambda: x + 1.0, lambda: x + 2.0)
            with ax.device(other_device(config)):
                return ax.negative(value)

        out = ax.cond(outer, taken, lambda: x + 3.0)
    async with ax.Session(graph, config=config) as session:
        assert await session.run(out, {x: 1.0, outer: p, inner: q}) == expected


@pytest.mark.parametrize(("p", "expected"), [(True, -8), (False, 4)])
async def test_a_loop_that_is_never_entered_tells_other_devices(
    config: ax.SessionConfig, p: bool, expected: int
) -> None:
    with ax.Graph() as graph:
        x, decides = ax.placeholder(ax.float32, [], name="x"), ax.placeholder(ax.bool, [], name="p")

        def taken() -> Any:
            value = ax.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), [0, x])[1]
            with ax.device(other_device(config)):
                return ax.negative(value)

        out = ax.cond(decides, taken, lambda: x + 3.0)
    async with ax.Session(graph, config=config) as session:
        assert await session.run(out, {x: 1.0, decides: p}) == expected
