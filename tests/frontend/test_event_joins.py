"""Joins by event time, against a plain model of them; and going on from any place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from tests.frontend.event_models import Event, as_json, key_of, model_of_join, stored, time_of
from tests.running import settle

pytestmark = pytest.mark.virtual_clock

TIMES = st.one_of(st.integers(-5, 30), st.integers(-10, 60).map(lambda halves: halves / 2))
PAIRS = st.lists(st.tuples(st.sampled_from("ab"), TIMES), max_size=12)
SIDES = st.tuples(PAIRS, PAIRS, st.booleans()).map(
    lambda drawn: (named(drawn[0], 0, is_sorted=drawn[2]), named(drawn[1], 100, is_sorted=drawn[2]))
)
HOWS = st.sampled_from(["inner", "left", "outer"])
OPTIONS = {"key": key_of, "time": time_of}


def named(pairs: list[tuple[str, float]], first: int, *, is_sorted: bool) -> list[Event]:
    ordered = sorted(pairs, key=lambda pair: pair[1]) if is_sorted else pairs
    return [Event(key, time, first + number) for number, (key, time) in enumerate(ordered)]


def plain(items: list[ax.Joined]) -> list[tuple[Any, ...]]:
    return [(key, left and left[2], right and right[2]) for key, left, right in items]


@settings(max_examples=100)
@given(sides=SIDES, how=HOWS, within=st.sampled_from([0, 1.5, 5]), lateness=st.sampled_from([0, 2, 100]))
def test_pairs_are_those_of_the_model(
    sides: tuple[list[Event], list[Event]], how: Any, within: float, lateness: float
) -> None:
    async def main() -> None:
        late: list[Any] = []
        join = ax.join(*sides, within=within, how=how, lateness=lateness, late=late.append, **OPTIONS)
        expected, expected_late = model_of_join(*sides, within, how, lateness)
        assert plain([item async for item in join]) == expected
        assert [event[2] for event in late] == expected_late
        assert join.num_late == len(expected_late)

    asyncio.run(main())


@settings(max_examples=50)
@given(sides=SIDES, how=HOWS, within=st.sampled_from([0, 1.5, 5]), lateness=st.sampled_from([0, 2, 100]))
def test_every_place_can_be_gone_on_from(
    sides: tuple[list[Event], list[Event]], how: Any, within: float, lateness: float
) -> None:
    async def main() -> None:
        join = ax.join(*map(as_json, sides), within=within, how=how, lateness=lateness, **OPTIONS)
        iterator: Any = aiter(join)
        positions, items = [iterator.position], []
        async for item in iterator:
            items.append(item)
            positions.append(iterator.position)
        for count, position in enumerate(positions):
            if position is not None:
                for place in (position, stored(position)):
                    assert [item async for item in join.seek(place)] == items[count:]

    asyncio.run(main())


@settings(max_examples=50)
@given(
    sides=SIDES,
    how=HOWS,
    within=st.sampled_from([0, 1.5, 5]),
    lateness=st.sampled_from([0, 2, 100]),
    counts=st.lists(st.integers(0, 4), max_size=8),
)
def test_stopping_again_and_again(
    sides: tuple[list[Event], list[Event]], how: Any, within: float, lateness: float, counts: list[int]
) -> None:
    async def main() -> None:
        join = ax.join(*map(as_json, sides), within=within, how=how, lateness=lateness, **OPTIONS)
        whole = [item async for item in join]
        found: list[ax.Joined] = []
        position: Any = None
        for count in [*counts, 1000]:
            iterator: Any = aiter(join if position is None else join.seek(position))
            for _ in range(count):
                item = await anext(iterator, None)
                if item is None:
                    break
                found.append(item)
            position = stored(iterator.position)
            await iterator.aclose()
        assert found == whole

    asyncio.run(main())


async def test_pairs_as_they_come() -> None:
    left: asyncio.Queue[Event] = asyncio.Queue()
    right: asyncio.Queue[Event] = asyncio.Queue()
    iterator: Any = aiter(ax.join(left, right, within=10, how="left", **OPTIONS))
    waiting = asyncio.ensure_future(anext(iterator))
    left.put_nowait(Event("a", 1, 0))
    left.put_nowait(Event("b", 2, 1))
    await settle()
    assert not waiting.done()
    right.put_nowait(Event("a", 11, 100))
    assert await waiting == ("a", ("a", 1, 0), ("a", 11, 100))
    left.put_nowait(Event("a", 30, 2))
    right.put_nowait(Event("c", 12, 101))
    right.put_nowait(Event("c", 13, 102))
    assert await anext(iterator) == ax.Joined("b", Event("b", 2, 1), None)  # at 13, none can come that it would meet
    await iterator.aclose()


async def test_a_function_for_each_side() -> None:
    orders, payments = [{"id": 1, "at": 3}, {"id": 2, "at": 4}], [(2, 9), (1, 20)]
    join = ax.join(
        orders,
        payments,
        key=(lambda order: order["id"], lambda payment: payment[0]),
        time=(lambda order: order["at"], lambda payment: payment[1]),
        within=10,
        how="outer",
    )
    assert [item async for item in join] == [
        (2, orders[1], payments[0]),
        (1, orders[0], None),
        (1, None, payments[1]),
    ]


async def test_many_values_of_one_key() -> None:
    count = 3000
    events = [Event("a", number, number) for number in range(count)]
    join = ax.join(events, events, within=0, how="outer", **OPTIONS)
    assert [item.left async for item in join] == events


async def test_a_quick_side_waits_for_the_slow_one() -> None:
    drawn: list[int] = []

    async def quick() -> AsyncIterator[Event]:
        for number in range(1000):
            drawn.append(number)
            yield Event("a", number, number)

    async def slow() -> AsyncIterator[Event]:
        for number in range(0, 1000, 10):
            await asyncio.sleep(1)
            yield Event("a", number, 2000 + number)

    iterator: Any = aiter(ax.join(quick, slow, within=0, **OPTIONS))
    for number in range(0, 500, 10):
        assert (await anext(iterator)).left.time == number
        assert len(drawn) <= number + 12
    await iterator.aclose()


async def test_an_idle_side_holds_nothing_up() -> None:
    loop = asyncio.get_running_loop()

    async def quick() -> AsyncIterator[Event]:
        for number in range(20):
            await asyncio.sleep(1)
            yield Event("a", number, number)

    async def rare() -> AsyncIterator[Event]:
        yield Event("a", 0, 100)
        await asyncio.sleep(10.5)
        yield Event("a", 3, 101)  # late: the watermark has gone on with the other side
        yield Event("a", 9, 102)
        await asyncio.sleep(100)

    late: list[Event] = []
    join = ax.join(quick, rare, within=0, how="left", idle=3, late=late.append, **OPTIONS)
    found = [(left.name, right and right.name, loop.time()) async for _, left, right in join]
    assert found == [
        (0, 100, 1.0),
        *((number, None, number + 5.0) for number in range(1, 8)),  # the other side is idle from 5.0 on, until 12.5
        (9, 102, 13.0),
        (8, None, 13.0),
        *((number, None, number + 8.0) for number in range(10, 19)),  # and again from 17.0 on
        (19, None, 114.0),  # the end of both
    ]
    assert [event.name for event in late] == [101]


@pytest.mark.parametrize("idle", [None, 5.0])
async def test_cancellation_at_every_point_leaves_nothing_behind(idle: float | None) -> None:
    closed: list[bool] = []

    async def side() -> AsyncIterator[Event]:
        try:
            for time in (1, 12, 3, 34):
                await asyncio.sleep(0)
                yield Event("a", time, time)
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def late(value: Event) -> None:
        await asyncio.sleep(0)

    async def take_all() -> list[Any]:
        iterator: Any = aiter(ax.join(side, side, within=1, how="outer", idle=idle, late=late, **OPTIONS))
        try:
            return [item async for item in iterator]
        finally:
            await iterator.aclose()

    whole = await take_all()
    for turns in range(100):
        closed.clear()
        task = asyncio.ensure_future(take_all())
        await settle(turns)
        if task.done():
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(closed) <= 2
    assert task.result() == whole
    assert turns > 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"within": -1}, ax.errors.InvalidArgumentError, "within is a finite number from 0, not -1"),
        ({"within": float("inf")}, ax.errors.InvalidArgumentError, "within is a finite number from 0, not inf"),
        ({"how": "right"}, ax.errors.InvalidArgumentError, "how is 'inner', 'left', 'outer', not 'right'"),
        ({"key": 3}, ax.errors.InvalidTypeError, "key= is a function of a value, not 3"),
        ({"time": (time_of, 3)}, ax.errors.InvalidTypeError, "time= is a function of a value, not 3"),
        ({"time": None}, ax.errors.InvalidTypeError, "time= is a function of a value, not None"),
        ({"late": 3}, ax.errors.InvalidTypeError, "late= is a function of a value, not 3"),
        ({"right": 3}, ax.errors.InvalidTypeError, "a join takes an iterable"),
        ({"lateness": "1"}, ax.errors.InvalidArgumentError, "lateness is a finite number from 0, not '1'"),
        ({"idle": -1}, ax.errors.InvalidArgumentError, "idle are a number from"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ax.join(**{"left": [], "right": [], "within": 1, **OPTIONS, **options})


async def test_bad_times_and_keys() -> None:
    right: list[Any] = [("a", float("nan"), 1)]
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"the time of \('a', nan, 1\) is nan"):
        await anext(aiter(ax.join([], right, within=1, **OPTIONS)))
    left: list[Any] = [({}, 3, 1)]
    with pytest.raises(ax.errors.InvalidTypeError, match="a dict cannot be a key"):
        await anext(aiter(ax.join(left, [], within=1, **OPTIONS)))
    with pytest.raises(ax.errors.ResourceExhaustedError, match="more than 2 values wait for the watermark"):
        await anext(aiter(ax.join([("a", 1)] * 3, [], within=1, max_values=2, **OPTIONS)))


async def test_a_position_of_windows_is_none_of_a_join() -> None:
    iterator: Any = aiter(ax.event_windows([["a", 1], ["a", 20]], time=time_of, size=5))
    await anext(iterator)
    join = ax.join([], [], within=1, **OPTIONS)
    with pytest.raises(ax.errors.InvalidArgumentError, match="it has 1 sources, and there are 2"):
        await anext(aiter(join.seek(iterator.position)))
    await iterator.aclose()


async def test_nan_is_one_key() -> None:
    left, right = [(float("nan"), 1)], [(float("nan"), 2)]
    joined = ax.join(left, right, key=lambda value: value[0], time=lambda value: value[1], within=5)
    assert [(left, right) async for _, (_, left), (_, right) in joined] == [(1, 2)]
