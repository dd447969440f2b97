"""Windows by event time as sources of streams with checkpoints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.durable.record import JsonCodec, Record, from_bytes, to_bytes
from tests.frontend.event_models import key_of, time_of
from tests.running import settle

pytestmark = pytest.mark.virtual_clock

EVENTS = [["abc"[i % 3], (i * 7) % 23 + 3 * i, i] for i in range(40)]


class Ledger(ax.checkpoint.MemoryStore):
    """A store that commits what was written since the last ``put``, as a database does."""

    commits_outputs = True

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[Any] = []
        self.written: list[Any] = []

    async def put(self, key: str, value: bytes) -> None:
        await super().put(key, value)
        await asyncio.sleep(0)
        self.committed += self.written
        self.written = []


def shown(window: ax.Window) -> list[Any]:
    return [window.key, window.start, window.end, [value[2] for value in window.values]]


def graph_of(values: Any) -> tuple[ax.Graph, ax.Tensor]:
    """The windows of a source, behind an op whose later items are quicker."""

    @ax.op(outputs=[ax.object], shapes=[[]])
    async def load(window: object) -> object:
        for _ in range(3 - len(window.values) % 4):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        return window

    with ax.Graph() as graph:
        return graph, load(ax.source(values, ax.object, [], name="windows"))


async def run_until(store: Any, values: Any, count: int, **options: Any) -> None:
    """Write *count* windows at most, and crash."""
    graph, loaded = graph_of(values)
    async with ax.Session(graph) as session, session.stream(loaded, checkpoint=store, **options) as stream:
        async for window in stream:
            if count == 0:
                break
            store.written.append(shown(window))
            count -= 1
    store.written = []


@pytest.mark.parametrize("kind", [{"size": 10}, {"size": 10, "every": 4}, {"gap": 6}])
@settings(max_examples=15)
@given(counts=st.lists(st.integers(0, 12), max_size=5), every=st.integers(1, 6), window=st.integers(1, 5))
def test_crashes_change_nothing(kind: Any, counts: list[int], every: int, window: int) -> None:
    async def main() -> None:
        store = Ledger()
        windows = ax.event_windows(EVENTS, time=time_of, key=key_of, lateness=9, **kind)
        for count in [*counts, 1000]:
            await run_until(store, windows, count, every=every, window=window)
        assert store.committed == [shown(each) async for each in windows]

    asyncio.run(main())


async def test_a_map_over_windows() -> None:
    windows = ax.event_windows(EVENTS, time=time_of, key=key_of, size=10, lateness=9)
    whole = [shown(window) async for window in windows]

    class Feeds:
        """Feeds of the windows, from any place on."""

        def __init__(self, values: Any = windows) -> None:
            self.values = values

        def seek(self, position: Any) -> Any:
            return Feeds(windows.seek(position))

        def __aiter__(self) -> Any:
            self.iterator = aiter(self.values)
            return self

        async def __anext__(self) -> Any:
            return {"x:0": await anext(self.iterator)}

        @property
        def position(self) -> Any:
            return self.iterator.position

    store, found = Ledger(), []
    for count in (7, 1000):
        with ax.Graph() as graph:
            x = ax.placeholder(ax.object, [], name="x")
        async with ax.Session(graph) as session, session.map(x, Feeds(), checkpoint=store, every=2) as results:
            found = found[:6]
            async for window in results:
                found.append(shown(window))
                if len(found) == count:
                    break
    assert found == whole


async def test_a_stream_that_is_closed_gives_open_windows_and_goes_on_behind_them() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    for event in EVENTS[:20]:
        queue.put_nowait(event)
    store = ax.checkpoint.MemoryStore()
    found: list[Any] = []
    for more in (EVENTS[20:], []):
        windows = ax.event_windows(queue, time=time_of, key=key_of, size=10, lateness=1000)
        graph, loaded = graph_of(windows)
        stream_options: Any = {"checkpoint": store, "every": 1, "exactly_once": False}
        async with ax.Session(graph) as session, session.stream(loaded, **stream_options) as stream:
            await settle(100)
            closing = asyncio.create_task(stream.close())
            found += [shown(window) async for window in stream]
            await closing
        for event in more:
            queue.put_nowait(event)
    assert sorted(name for window in found for name in window[3]) == list(range(40))


async def test_a_snapshot_has_what_open_windows_hold_of_a_source_that_cannot_seek() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    windows = ax.event_windows(queue, time=time_of, key=key_of, size=10, lateness=9)
    found: list[Any] = []
    snapshot = None
    for part in (EVENTS[:20], EVENTS[20:]):
        for event in part:
            queue.put_nowait(event)
        graph, loaded = graph_of(windows)
        options: Any = {"checkpoint": ax.checkpoint.MemoryStore(), "exactly_once": False, "restore": snapshot}
        async with ax.Session(graph) as session, session.stream(loaded, **options) as stream:
            reading = asyncio.create_task(take(stream, found))
            await settle(300)
            snapshot = await stream.snapshot()
            if part[-1] is EVENTS[-1]:
                await stream.close()
            else:
                reading.cancel()
            await asyncio.wait([reading])
    values = ax.event_windows(EVENTS, time=time_of, key=key_of, size=10, lateness=9)
    assert found == [shown(window) async for window in values]


async def take(stream: Any, found: list[Any]) -> None:
    async for window in stream:
        found.append(shown(window))


async def test_values_without_a_form_are_named() -> None:
    windows = ax.event_windows([("a", i) for i in range(30)], time=time_of, size=10)
    graph, loaded = graph_of(windows)
    store = ax.checkpoint.MemoryStore()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"position .windows. .*: a value of type .*list"):
            await session.stream(loaded, checkpoint=store, every=1).run()


async def test_a_stream_without_checkpoints_gives_open_windows_when_it_is_closed() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    for event in EVENTS:
        queue.put_nowait(event)
    graph, loaded = graph_of(ax.event_windows(queue, time=time_of, key=key_of, size=10, lateness=9, idle=1000))
    found: list[Any] = []
    async with ax.Session(graph) as session, session.stream(loaded) as stream:
        reading = asyncio.create_task(take(stream, found))
        await asyncio.sleep(1)
        await stream.close()
        await reading
    values = ax.event_windows(EVENTS, time=time_of, key=key_of, size=10, lateness=9)
    assert found == [shown(window) async for window in values]


async def test_a_checkpoint_without_the_contents_that_it_tells_of() -> None:
    windows = ax.event_windows(EVENTS, time=time_of, key=key_of, size=10, lateness=9)
    store = ax.checkpoint.MemoryStore()
    graph, loaded = graph_of(windows)
    async with ax.Session(graph) as session:
        async with session.stream(loaded, checkpoint=store) as stream:
            await anext(stream)
            record = from_bytes(await stream.snapshot(), JsonCodec())
        values = {name: value for name, value in record.values.items() if not name.endswith(" 0")}
        damaged = to_bytes(Record(record.about, values), JsonCodec())
        with pytest.raises(ax.errors.DataLossError, match="a checkpoint is damaged: KeyError"):
            await session.stream(loaded, restore=damaged).run()
        about = {**record.about, "held": {"position 'windows'": [{"count": 3}, 3]}}
        foreign = to_bytes(Record(about, record.values), JsonCodec())
        with pytest.raises(ax.errors.OpError, match="the position is none of these windows or this join"):
            await session.stream(loaded, restore=foreign).run()


async def test_a_join_in_a_stream_goes_on_after_a_crash() -> None:
    left, right = EVENTS[::2], EVENTS[1::2]
    join = ax.join(left, right, key=key_of, time=time_of, within=15, how="outer", lateness=25)
    whole = [[key, a and a[2], b and b[2]] async for key, a, b in join]
    store = Ledger()
    for count in (3, 8, 1000):
        graph, loaded = graph_of_pairs(join)
        async with ax.Session(graph) as session, session.stream(loaded, checkpoint=store, every=2) as stream:
            async for key, a, b in stream:
                if count == 0:
                    break
                store.written.append([key, a and a[2], b and b[2]])
                count -= 1
        store.written = []
    assert store.committed == whole


def graph_of_pairs(join: ax.Join) -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        return graph, ax.identity(ax.source(join, ax.object, [], name="pairs"))


WINDOWS: dict[str, Any] = {"size": 10, "key": key_of, "lateness": 9}
JOIN: dict[str, Any] = {"within": 15, "how": "left", "lateness": 25}


def windows_with(**options: Any) -> ax.EventWindows:
    return ax.event_windows(EVENTS, time=time_of, **options)


def join_with(**options: Any) -> ax.Join:
    return ax.join(EVENTS[::2], EVENTS[1::2], key=key_of, time=time_of, **options)


CHANGES: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    (windows_with, WINDOWS, {**WINDOWS, "size": 20}, "size was 10 and is 20; every was 10 and is 20"),
    (windows_with, WINDOWS, {**WINDOWS, "every": 5}, "every was 10 and is 5"),
    (
        windows_with,
        WINDOWS,
        {"gap": 10, "key": key_of, "lateness": 9},
        "size was 10 and is None; .*gap was None and is 10",
    ),
    (windows_with, {"gap": 6, "lateness": 9}, {"gap": 7, "lateness": 9}, "gap was 6 and is 7"),
    (windows_with, WINDOWS, {**WINDOWS, "key": None}, "has_key was True and is False"),
    (windows_with, WINDOWS, {**WINDOWS, "lateness": 0}, "lateness was 9 and is 0"),
    (join_with, JOIN, {**JOIN, "within": 5}, "within was 15 and is 5"),
    (join_with, JOIN, {**JOIN, "how": "inner"}, "how was 'left' and is 'inner'"),
    (join_with, JOIN, {**JOIN, "lateness": 26}, "lateness was 25 and is 26"),
]


async def items_of(values: Any, store: ax.checkpoint.Store, count: int = 1000) -> list[Any]:
    """So many items of a stream at most, which is left then: its checkpoint is before the last one."""
    found: list[Any] = []
    with ax.Graph() as graph:
        item = ax.identity(ax.source(values, ax.object, [], name="items"))
    async with ax.Session(graph) as session, session.stream(item, checkpoint=store, every=1, window=1) as stream:
        async for each in stream:
            found.append(each)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize(("make", "before", "now", "told"), CHANGES)
async def test_options_that_have_changed_are_refused(make: Any, before: Any, now: Any, told: str) -> None:
    store = Ledger()
    await items_of(make(**before), store, 3)
    with pytest.raises(ax.errors.FailedPreconditionError, match=rf"have changed since .*: {told}\n") as raised:
        await items_of(make(**now), store)
    assert raised.value.node == "items"
    assert "resume=False begins the stream anew" in str(raised.value)


@pytest.mark.parametrize(("make", "options"), [(windows_with, WINDOWS), (windows_with, {"gap": 6}), (join_with, JOIN)])
async def test_options_that_change_no_item_may_change(make: Any, options: Any) -> None:
    store, whole = Ledger(), [item async for item in make(**options)]
    await items_of(make(**options), store, 3)
    same = {name: float(value) if isinstance(value, int) else value for name, value in options.items()}
    rest = await items_of(make(**same, max_values=500, late=repr, idle=60), store)
    assert rest == whole[2:]


@pytest.mark.parametrize(("make", "options"), [(windows_with, WINDOWS), (join_with, JOIN)])
async def test_a_checkpoint_of_before_options_were_stored_is_read(make: Any, options: Any) -> None:
    store, whole = Ledger(), [item async for item in make(**options)]
    await items_of(make(**options), store, 3)
    for key in await store.list():
        if not key.endswith("owner"):
            record = from_bytes(await store.get(key), JsonCodec())
            del record.about["held"]["position 'items'"][0]["options"]
            await store.put(key, to_bytes(record, JsonCodec()))
    rest = await items_of(make(**options), store)
    assert rest == whole[2:]


async def test_a_size_that_has_changed_groups_the_values_that_are_left() -> None:
    """That of ``ax.windows``: a window that has come out is done, and no other value is held."""
    store, found = Ledger(), []
    for size, count in ((4, 2), (3, 1000)):
        with ax.Graph() as graph:
            batch = ax.source(ax.windows(list(range(13)), size=size), ax.int64, [None], name="batch")
        async with ax.Session(graph) as session, session.stream(batch, checkpoint=store, every=1, window=1) as stream:
            async for window in stream:
                if count == 0:
                    break
                found.append(window.tolist())
                count -= 1
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10], [11, 12]]


class Live:
    """Values that go on to come; a position is their number."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __aiter__(self) -> Any:
        return self.seek(0)

    async def seek(self, position: int) -> Any:
        for value in self.values[position:]:
            yield value
        if len(self.values) < len(EVENTS):
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    "make",
    [
        lambda live: ax.event_windows(live, time=time_of, **WINDOWS),
        lambda live: ax.event_windows(live, time=time_of, key=key_of, gap=6, lateness=9),
    ],
)
@pytest.mark.parametrize("count", [1, 17, 33])
async def test_a_drain_without_a_flush_changes_no_window(make: Any, count: int) -> None:
    """Open windows stay open in the checkpoint of a close, and the next stream goes on with them."""
    store, found = ax.checkpoint.MemoryStore(), []
    for values in (EVENTS[:count], EVENTS):
        graph, loaded = graph_of(make(Live(values)))
        async with ax.Session(graph) as session, session.stream(loaded, checkpoint=store, flush=False) as stream:
            reading = asyncio.create_task(take(stream, found))
            await settle(300)
            await stream.close()
            await reading
    assert found == [shown(window) async for window in make(Live(EVENTS))]
