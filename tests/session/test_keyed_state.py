"""ax.keyed_state: a state for each key, in the order of the items, whatever is done first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.running import settle

pytestmark = pytest.mark.virtual_clock


class Visit(NamedTuple):
    key: str
    amount: int
    key_delay: float = 0
    add_delay: float = 0
    fails_in: str = ""
    time: float = 0


VISITS = st.lists(
    st.builds(
        Visit,
        st.sampled_from("abc"),
        st.integers(1, 9),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from(["", "", "", "key", "add", "end"]),
        st.integers(0, 30),
    ),
    max_size=15,
)


def totals(expiry: float | None = None, *, by_items: bool = False, **options: Any) -> tuple[ax.Graph, Any]:
    """The total of the amounts of a key, by ops that take some time or fail."""

    @ax.op(outputs=[ax.string], shapes=[[]])
    async def find_key(visit: object) -> Any:
        return await step(visit, "key", visit.key_delay, visit.key)  # type: ignore[attr-defined]

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def add(total: int, visit: object) -> Any:
        return await step(visit, "add", visit.add_delay, total + visit.amount)  # type: ignore[attr-defined]

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def end(total: int, visit: object) -> Any:
        return await step(visit, "end", 0.5, total)

    with ax.Graph() as graph:
        visit = ax.placeholder(ax.object, [], name="visit")
        time = ax.placeholder(ax.float64, [], name="time")
        state = ax.keyed_state(
            ax.constant(0, ax.int64),
            find_key(visit),
            expiry=expiry,
            time=time if by_items else None,
            name="total",
            **options,
        )
        new = state.update(add(state.value, visit))
        return graph, [end(new, visit), ax.identity(time)]


async def step(visit: Any, name: str, delay: float, result: Any) -> Any:
    if delay:
        await asyncio.sleep(delay)
    if visit.fails_in == name:
        raise ValueError(f"{name} of {visit.amount}")
    return result


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(main())


def feeds(visits: list[Visit]) -> list[dict[str, Any]]:
    return [{"visit:0": visit, "time:0": visit.time} for visit in visits]


def model(visits: list[Visit], expiry: float | None = None) -> list[Any]:
    """The results one by one, by a dict, with the times of the visits."""
    found: list[Any] = []
    states: dict[str, tuple[int, float]] = {}
    now = -1.0
    for visit in visits:
        if visit.fails_in == "key":
            found.append("key")
            continue
        now = max(now, visit.time)
        total, touched = states.get(visit.key, (0, visit.time))
        if expiry is not None and touched + expiry <= now:
            total, touched = 0, visit.time
        if visit.fails_in != "add":
            total += visit.amount
        states[visit.key] = total, max(touched, visit.time)
        found.append(visit.fails_in or total)
    return found


def plain(result: Any) -> Any:
    return result.message.split("ValueError: ")[1].split()[0] if isinstance(result, Exception) else int(result[0])


@settings(max_examples=60)
@given(visits=VISITS, window=st.integers(1, 6), expiry=st.sampled_from([None, 1, 5, 12]))
def test_each_key_has_what_its_items_left(visits: list[Visit], window: int, expiry: float | None) -> None:
    async def main() -> None:
        graph, fetches = totals(expiry, by_items=True)
        async with ax.Session(graph) as session:
            results = session.map(fetches, feeds(visits), window=window, on_error="yield")
            assert [plain(result) async for result in results] == model(visits, expiry)

    in_virtual_time(main)


@settings(max_examples=30)
@given(visits=VISITS, window=st.integers(1, 6))
def test_results_that_come_as_they_complete(visits: list[Visit], window: int) -> None:
    visits = [visit._replace(fails_in="") for visit in visits]

    async def main() -> None:
        graph, fetches = totals()
        async with ax.Session(graph) as session:
            results = session.map(fetches, feeds(visits), window=window, ordered=False)
            assert sorted([plain(result) async for result in results]) == sorted(model(visits))

    in_virtual_time(main)


async def test_items_of_different_keys_overlap_and_those_of_one_key_do_not() -> None:
    loop = asyncio.get_running_loop()
    graph, fetches = totals()
    async with ax.Session(graph) as session:
        for keys, seconds in [("abcdefgh", 10.5), ("aaaa", 40.5), ("abab", 20.5)]:
            begin = loop.time()
            visits = [Visit(key, 1, add_delay=10) for key in keys]
            found = [plain(out) async for out in session.map(fetches, feeds(visits), window=8)]
            assert loop.time() - begin == seconds
            assert found == [keys[: i + 1].count(key) for i, key in enumerate(keys)]


async def test_an_item_waits_for_the_keys_before_it_and_no_longer() -> None:
    loop = asyncio.get_running_loop()
    graph, fetches = totals()
    visits = [Visit("a", 1, key_delay=5, add_delay=100), Visit("b", 1, add_delay=1)]
    async with ax.Session(graph) as session, session.map(fetches, feeds(visits), ordered=False) as results:
        await anext(results)
        assert loop.time() == 6.5
        await anext(results)
        assert loop.time() == 105.5


@pytest.mark.parametrize("key", [3, np.int64(3), b"three", "three", True, 2.5])
async def test_keys_of_all_kinds(key: Any) -> None:
    with ax.Graph() as graph:
        given = ax.placeholder(ax.constant(key).dtype, [], name="key")
        count = ax.keyed_state(0, key=given)
        new = count.update(count.value + 1)
    async with ax.Session(graph) as session:
        assert [int(n) async for n in session.map(new, [{given: key}] * 3)] == [1, 2, 3]
        assert int(await session.run(new, {given: key})) == 1  # no stream: the initial value


async def test_objects_as_keys() -> None:
    with ax.Graph() as graph:
        given = ax.placeholder(ax.object, [], name="key")
        count = ax.keyed_state(0, key=given)
        new = count.update(count.value + 1)
    keys: list[Any] = [("a", 1), ("a", 1), None, ("a", 2), None]
    async with ax.Session(graph) as session:
        assert [int(n) async for n in session.map(new, [{given: key} for key in keys])] == [1, 2, 1, 1, 2]
        with pytest.raises(ax.errors.InvalidTypeError, match=r"the key of state 'keyed_state' is \[3\]: a list cannot"):
            await anext(session.map(new, [{given: [3]}]))


async def test_several_states_of_several_keys() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        total = ax.stream_state(ax.constant(0, ax.int64))
        new_total = total.update(total.value + x)
        odd = ax.keyed_state(ax.constant(0, ax.int64), key=new_total % 2, name="odd")  # a key that is a state
        new_odd = odd.update(odd.value + 1)
        third = ax.keyed_state(ax.constant(0, ax.int64), key=new_odd % 3, name="third")  # and one by another key
        new_third = third.update(third.value + x)
    values = [(i * 7) % 11 for i in range(40)]
    sums, odds, thirds, expected = 0, {0: 0, 1: 0}, {0: 0, 1: 0, 2: 0}, []
    for value in values:
        sums += value
        odds[sums % 2] += 1
        thirds[odds[sums % 2] % 3] += value
        expected.append([sums, odds[sums % 2], thirds[odds[sums % 2] % 3]])
    async with ax.Session(graph) as session:
        for _ in range(3):
            results = session.map([new_total, new_odd, new_third], [{x: value} for value in values], window=7)
            assert [[int(n) for n in out] async for out in results] == expected


async def test_a_key_is_forgotten_by_the_clock_of_the_loop() -> None:
    graph, fetches = totals(expiry=10)
    async with ax.Session(graph) as session, session.stream(fetches) as stream:
        found: list[int] = []
        for key, wait in [("a", 9), ("a", 9.9), ("a", 10), ("a", 1), ("b", 9), ("a", 1), ("b", 0)]:
            await stream.send(feeds([Visit(key, 1)])[0])
            found.append(plain(await anext(stream)))
            await asyncio.sleep(wait - 0.5)  # what an item takes
    assert found == [1, 2, 3, 1, 1, 1, 1]


async def test_the_number_of_keys_is_told_and_keys_that_are_forgotten_are_removed() -> None:
    graph, fetches = totals(expiry=10, by_items=True)
    async with ax.Session(graph) as session, session.stream(fetches) as stream:
        numbers: list[int] = []
        for time in range(100):
            await stream.send(feeds([Visit(f"key {time}", 1, time=time)])[0])
            await anext(stream)
            numbers.append(session.statistics().streams[0].keys)
    assert numbers == [*range(1, 11), *[10] * 90]


async def test_too_many_keys() -> None:
    graph, fetches = totals(max_keys=2)
    visits = [Visit(key, 1) for key in "abcab"]
    async with ax.Session(graph) as session:
        results = session.map(fetches, feeds(visits), on_error="yield")
        found = [result if isinstance(result, Exception) else plain(result) async for result in results]
    assert [found[0], found[1], *found[3:]] == [1, 1, 2, 2]
    assert isinstance(found[2], ax.errors.ResourceExhaustedError)
    assert "state 'total' has 2 keys, and 'c' would be another" in found[2].message.replace("b'c'", "'c'")


async def test_a_key_that_is_not_computed() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        dead, _ = ax.raw_ops.Switch(x, x > 2)
        state = ax.keyed_state(ax.constant(0, ax.int64), key=dead, name="state")
        new = state.update(state.value + x)
    async with ax.Session(graph) as session:
        results = session.map(new, [{x: i} for i in (1, 3, 1)], on_error="yield")
        found = [result async for result in results]
    assert [int(found[0]), int(found[2])] == [1, 2]
    assert isinstance(found[1], ax.errors.InvalidArgumentError)
    assert "item 1: state 'state' has no key: it is on a branch that is not taken" in found[1].message


@pytest.mark.parametrize("time", [float("nan"), float("inf")])
async def test_a_time_that_is_none(time: float) -> None:
    graph, fetches = totals(expiry=10, by_items=True)
    async with ax.Session(graph) as session:
        with pytest.raises(
            ax.errors.InvalidArgumentError, match=r"the time of state 'total' is (nan|inf), and not finite"
        ):
            await anext(session.map(fetches, feeds([Visit("a", 1, time=time)])))


def test_bad_options() -> None:
    with ax.Graph():
        key = ax.placeholder(ax.string, [])
        with pytest.raises(ax.errors.InvalidArgumentError, match="expiry is a finite number above 0, not -1"):
            ax.keyed_state(0, key=key, expiry=-1)
        with pytest.raises(ax.errors.InvalidArgumentError, match="max_keys is a number of items from 1"):
            ax.keyed_state(0, key=key, max_keys=0)
        with pytest.raises(ax.errors.InvalidArgumentError, match="rank"):
            ax.keyed_state(0, key=["a", "b"])
        state = ax.keyed_state(0, key=key)
        state.update(1)
        with pytest.raises(ax.errors.FailedPreconditionError, match="has its update already"):
            state.update(2)
        with pytest.raises(ax.errors.InvalidArgumentError, match="belong to a graph at large"):
            ax.cond(ax.constant(True), lambda: ax.keyed_state(0, key=key).value, lambda: ax.constant(0))


class Ledger(ax.checkpoint.MemoryStore):
    """A store that commits what was written since the last ``put``, as a database does."""

    commits_outputs = True

    def __init__(self, *, holds: bool) -> None:
        super().__init__()
        self.commits_outputs = holds  # type: ignore[misc]
        self.committed: list[Any] = []
        self.written: list[Any] = []

    async def put(self, key: str, value: bytes) -> None:
        await super().put(key, value)
        await asyncio.sleep(0)
        self.committed += self.written
        self.written = []


@pytest.mark.parametrize("expiry", [None, 8])
@settings(max_examples=30)
@given(visits=VISITS, counts=st.lists(st.integers(0, 8), max_size=4), every=st.integers(1, 5), window=st.integers(1, 5))
def test_crashes_change_nothing(
    expiry: float | None, visits: list[Visit], counts: list[int], every: int, window: int
) -> None:
    visits = [visit._replace(fails_in="") for visit in visits]

    async def main() -> None:
        store = Ledger(holds=True)
        for count in [*counts, 1000]:
            graph, fetches = totals(expiry, by_items=True)
            async with ax.Session(graph) as session:
                results = session.map(fetches, feeds(visits), window=window, checkpoint=store, every=every)
                async with results:
                    async for result in results:
                        if count == 0:
                            break
                        store.written.append(plain(result))
                        count -= 1
            store.written = []
        assert store.committed == model(visits, expiry)

    in_virtual_time(main)


@settings(max_examples=30)
@given(visits=VISITS, every=st.integers(1, 5), window=st.integers(1, 8), slow=st.integers(0, 20))
def test_checkpoints_are_of_their_place_though_items_go_on(
    visits: list[Visit], every: int, window: int, slow: int
) -> None:
    """Each checkpoint, whenever it is stored, is what the items before it have left."""
    visits = [visit._replace(fails_in="") for visit in visits]
    stored: list[bytes] = []

    class Slow(ax.checkpoint.MemoryStore):
        async def put(self, key: str, value: bytes) -> None:
            for _ in range(slow):
                await asyncio.sleep(0.3)
            if not key.endswith("/owner"):
                stored.append(value)

    async def main() -> None:
        graph, fetches = totals(12, by_items=True)
        async with ax.Session(graph) as session:
            results = session.map(fetches, feeds(visits), window=window, checkpoint=Slow(), every=every)
            whole = [plain(result) async for result in results]
        assert whole == model(visits, 12)
        for snapshot in stored:
            graph, fetches = totals(12, by_items=True)
            async with ax.Session(graph) as session:
                rest = [plain(out) async for out in session.map(fetches, feeds(visits), restore=snapshot)]
            assert rest == whole[len(whole) - len(rest) :]
            assert rest == model(visits, 12)[len(visits) - len(rest) :]

    in_virtual_time(main)


async def test_a_snapshot_by_the_clock_has_the_ages_of_keys() -> None:
    graph, fetches = totals(expiry=10)
    async with ax.Session(graph) as session:
        async with session.stream(fetches, checkpoint=ax.checkpoint.MemoryStore()) as stream:
            for key in "ab":
                await stream.send(feeds([Visit(key, 1)])[0])
                await anext(stream)
                await asyncio.sleep(4)
            snapshot = await stream.snapshot()
        await asyncio.sleep(1000)  # time in which the stream does not run does not count
        found: list[int] = []
        async with session.stream(fetches, restore=snapshot) as stream:
            for key in "baab":
                await stream.send(feeds([Visit(key, 1)])[0])
                found.append(plain(await anext(stream)))
                await asyncio.sleep(1)  # a was 9 old at first, and is 10.5 old at its first item
        assert found == [2, 1, 2, 3]


async def test_cancellation_at_every_point_leaves_nothing_behind() -> None:
    visits = [Visit("abc"[i % 3], i, key_delay=i % 2, add_delay=i % 3) for i in range(6)]
    graph, fetches = totals(expiry=100)

    async def take_all(session: ax.Session) -> list[Any]:
        async with session.map(fetches, feeds(visits), window=4) as results:
            return [plain(result) async for result in results]

    async with ax.Session(graph) as session:
        whole = await take_all(session)
        for point in range(200):
            task = asyncio.ensure_future(take_all(session))
            await asyncio.sleep(point // 8 * 0.5)
            await settle(point % 8)
            if task.done():
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert session.statistics().streams == ()
        assert task.result() == whole


async def test_a_stream_of_compiled_items() -> None:
    """Items without awaiting, often enough that they are compiled."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        state = ax.keyed_state(ax.constant(0, ax.int64), key=x % 7)
        new = state.update((state.value * 3 + x * x) % 1000)
    expected: list[int] = []
    states: dict[int, int] = {}
    for i in range(3000):
        states[i % 7] = (states.get(i % 7, 0) * 3 + i * i) % 1000
        expected.append(states[i % 7])
    async with ax.Session(graph) as session:
        for _ in range(2):
            assert [int(n) async for n in session.map(new, ({x: i} for i in range(3000)))] == expected


def sums_of(keys: list[float], dtype: Any = ax.float64) -> tuple[ax.Graph, Any, list[dict[str, float]]]:
    """How often a key has come, with the items of *keys*."""
    with ax.Graph() as graph:
        key = ax.placeholder(dtype, [], name="key")
        state = ax.keyed_state(ax.constant(0, ax.int64), key, name="count")
        return graph, state.update(state.value + 1), [{"key:0": each} for each in keys]


async def test_nan_is_one_key_and_so_are_the_zeros() -> None:
    keys = [float("nan"), 0.0, float("nan"), -0.0, np.float64("nan"), 1.0]
    graph, count, items = sums_of(keys)
    store = ax.checkpoint.MemoryStore()
    options: dict[str, Any] = {"checkpoint": store, "every": 1, "window": 1}
    async with ax.Session(graph) as session, session.map(count, items, **options) as results:
        assert [int(await anext(results)) for _ in range(5)] == [1, 1, 2, 2, 3]
        assert [each.keys for each in session.statistics().streams] == [2]
    graph, count, items = sums_of([*keys, float("nan"), 0.0])
    async with ax.Session(graph) as session:
        rest = [int(value) async for value in session.map(count, items, **options)]
    assert rest[-3:] == [1, 4, 3]


async def test_a_key_that_does_not_equal_itself_is_refused() -> None:
    graph, count, items = sums_of([object(), Decimal("NaN")], ax.object)  # type: ignore[list-item]
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidTypeError, match=r"is Decimal\('NaN'\): a Decimal cannot be a key"):
            assert [value async for value in session.map(count, items)]
