"""Feeds of streams are read when an item is drawn or sent: what the caller does with the mapping later is not seen."""

from __future__ import annotations

import asyncio
from collections import ChainMap, UserDict
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import settle, started

COUNT = 6
EXPECTED = [2 * i for i in range(COUNT)]


class Doubling:
    """y = 2 x, for an x of *shape*."""

    def __init__(self, shape: Any = ()) -> None:
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, shape, name="x")
            self.y = self.x + self.x


class LazyFeeds(Mapping[Any, Any]):
    """A mapping that has no values of its own."""

    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = values

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


# What a caller may keep one dict behind.
KINDS: dict[str, Any] = {
    "dict": lambda feeds: feeds,
    "proxy": MappingProxyType,
    "chain": ChainMap,
    "lazy": LazyFeeds,
}
by_kind = pytest.mark.parametrize("kind", KINDS)
by_key = pytest.mark.parametrize("by_name", [False, True], ids=["tensor", "name"])


def one_dict(key: Any, kind: str) -> Iterator[Any]:
    feeds: dict[Any, Any] = {}
    given = KINDS[kind](feeds)
    for i in range(COUNT):
        feeds[key] = i
        yield given
    feeds.clear()


async def one_dict_async(key: Any, kind: str) -> AsyncIterator[Any]:
    for feeds in one_dict(key, kind):
        yield feeds
        await asyncio.sleep(0)


@by_kind
@by_key
@pytest.mark.parametrize("window", [1, 2, 32])
@pytest.mark.parametrize("is_async", [False, True])
async def test_map_of_one_dict_that_is_yielded_again_and_again(
    kind: str, by_name: bool, window: int, is_async: bool
) -> None:
    made = Doubling()
    key = "x:0" if by_name else made.x
    items = one_dict_async(key, kind) if is_async else one_dict(key, kind)
    async with ax.Session(made.graph) as session:
        assert [int(out) async for out in session.map(made.y, items, window=window)] == EXPECTED


@by_kind
@pytest.mark.parametrize("turns", [1, 2, 3, 5, 10])
async def test_first_item_of_a_map_changes_while_the_stream_opens(kind: str, turns: int) -> None:
    made = Doubling()
    feeds = {made.x: 1}
    drawn = asyncio.Event()

    def items() -> Iterator[Any]:
        drawn.set()
        yield KINDS[kind](feeds)

    async with ax.Session(made.graph) as session:
        taking = asyncio.ensure_future(anext(session.map(made.y, items())))
        await drawn.wait()
        await settle(turns)
        feeds.clear()
        assert int(await taking) == 2


@by_kind
@by_key
async def test_one_dict_sent_again_and_again(kind: str, by_name: bool) -> None:
    made = Doubling()
    feeds: dict[Any, Any] = {}
    given, key = KINDS[kind](feeds), "x:0" if by_name else made.x
    async with ax.Session(made.graph) as session, session.stream(made.y) as stream:
        for i in range(COUNT):
            feeds[key] = i
            await stream.send(given)
        feeds.clear()
        await stream.close()
        assert [int(out) async for out in stream] == EXPECTED


@by_kind
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("is_open", [False, True])
async def test_senders_that_wait_send_what_the_mapping_held_when_they_were_called(
    kind: str, window: int, is_open: bool
) -> None:
    made = Doubling()
    feeds = {made.x: 100}
    given = KINDS[kind](feeds)
    async with ax.Session(made.graph) as session, session.stream(made.y, window=window) as stream:
        if is_open:
            await stream.send(given)
            assert int(await anext(stream)) == 200
        senders = []
        for i in range(COUNT):
            feeds[made.x] = i
            senders.append(asyncio.ensure_future(stream.send(given)))
        feeds.clear()
        await settle()
        assert [int(await anext(stream)) for _ in range(COUNT)] == EXPECTED
        await asyncio.gather(*senders)


async def test_items_that_wait_in_the_inbox() -> None:
    """They are limited from outside: a run has the only place."""
    made = Doubling()
    go_on = asyncio.Event()

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def hold(x: Any) -> Any:
        await go_on.wait()
        return x

    with made.graph:
        held = hold(ax.constant(np.int64(7)))
    feeds: dict[Any, Any] = {}
    config = ax.SessionConfig(max_concurrent_steps=1)
    async with ax.Session(made.graph, config) as session, session.stream(made.y) as stream:
        await stream.send({made.x: 100})
        assert int(await anext(stream)) == 200
        holding = await started(session.run(held))
        for i in range(COUNT):
            feeds[made.x] = i
            await stream.send(feeds)
        feeds.clear()
        go_on.set()
        assert [int(await anext(stream)) for _ in range(COUNT)] == EXPECTED
        assert int(await holding) == 7


async def test_large_values_are_those_of_the_time_of_the_call() -> None:
    made = Doubling([None])
    large = [list(range(20_000)), list(range(1, 30_001))]
    feeds: dict[Any, Any] = {made.x: large[0]}
    async with ax.Session(made.graph) as session, session.stream(made.y) as stream:
        for _ in range(2):  # before the stream is open, and after
            feeds[made.x] = large[0]
            first = asyncio.ensure_future(stream.send(feeds))
            feeds[made.x] = large[1]
            second = asyncio.ensure_future(stream.send(feeds))
            await asyncio.sleep(0)
            feeds.clear()
            sizes = sorted([len(await anext(stream)), len(await anext(stream))])
            assert sizes == [20_000, 30_000]
            await asyncio.gather(first, second)


async def test_map_of_one_dict_with_large_values_among_others() -> None:
    made = Doubling([None])
    sizes = [3, 20_000, 4, 30_000, 5]

    def items() -> Iterator[Any]:
        feeds: dict[Any, Any] = {}
        for size in sizes:
            feeds[made.x] = [1] * size
            yield feeds
            feeds.clear()

    async with ax.Session(made.graph) as session:
        assert [len(out) async for out in session.map(made.y, items())] == sizes


async def test_windows_in_one_dict() -> None:
    made = Doubling([None])

    async def items() -> AsyncIterator[Any]:
        feeds: dict[Any, Any] = {}
        async for window in ax.windows(range(2 * COUNT), size=2):
            feeds[made.x] = window
            yield feeds

    async with ax.Session(made.graph) as session:
        found = [out.tolist() async for out in session.map(made.y, items())]
    assert found == [[4 * i, 4 * i + 2] for i in range(COUNT)]


@by_kind
def test_blocking_map_of_one_dict(kind: str) -> None:
    made = Doubling()
    with ax.BlockingSession(made.graph) as session:
        assert [int(out) for out in session.map(made.y, one_dict("x:0", kind))] == EXPECTED


async def test_partial_run_is_fed_what_the_mapping_held() -> None:
    made = Doubling([None])
    feeds: dict[Any, Any] = {made.x: [1] * 20_000}  # converted in slices
    async with ax.Session(made.graph) as session, session.partial_run(made.y, [made.x]) as step:
        feeding = await started(step.feed(feeds))
        feeds[made.x] = [5]
        await feeding
        assert np.array_equal(await step.fetch(made.y), [2] * 20_000)


async def test_run_is_fed_what_the_mapping_held() -> None:
    made = Doubling()
    go_on = asyncio.Event()

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def hold(x: Any) -> Any:
        await go_on.wait()
        return x

    with made.graph:
        held = hold(ax.constant(np.int64(7)))
    async with ax.Session(made.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        holding = await started(session.run(held))
        feeds: dict[Any, Any] = {}
        runs = []
        for i in range(COUNT):  # the first prepares the signature; all wait for the place
            feeds[made.x] = i
            runs.append(await started(session.run(made.y, LazyFeeds(feeds))))
        feeds.clear()
        go_on.set()
        await holding
        assert [int(await run) for run in runs] == EXPECTED


class Broken(LazyFeeds):
    """Cannot be iterated over, but says what it holds."""

    def __iter__(self) -> Iterator[Any]:
        raise ValueError("no keys today")


class Empty(LazyFeeds):
    """Holds nothing that it says it holds."""

    def __getitem__(self, key: Any) -> Any:
        raise ValueError("no value today")


async def test_errors_of_mappings_are_those_of_their_items() -> None:
    made = Doubling()
    good = {made.x: 1}
    items = [good, Broken(good), Empty(good), {"x:0": 1}, {}, 7, UserDict(good)]
    async with ax.Session(made.graph) as session:
        found = [out async for out in session.map(made.y, items, on_error="yield")]
    shown = [out.message if isinstance(out, ax.errors.OpError) else int(out) for out in found]
    other = "item {}: it feeds {}, but the items before feed the tensor 'x:0'"
    assert shown == [
        2,
        2,  # its keys are those of the items before
        "item 2: ValueError: no value today",
        other.format(3, "'x:0'"),
        other.format(4, "none"),
        "item 5: an item is a mapping of tensors to values, not int 7",
        2,
    ]


@pytest.mark.parametrize("is_sent", [False, True])
async def test_first_mapping_that_cannot_be_read(is_sent: bool) -> None:
    made = Doubling()
    async with ax.Session(made.graph) as session:
        for first, error in [(Broken({made.x: 1}), ValueError), (7, ax.errors.InvalidTypeError)]:
            if is_sent:
                async with session.stream(made.y) as stream:
                    with pytest.raises(error):
                        await stream.send(first)  # type: ignore[arg-type]
                    await stream.send({made.x: 1})  # the stream is as before
                    assert int(await anext(stream)) == 2
            else:
                with pytest.raises(error):
                    await anext(session.map(made.y, [first]))  # type: ignore[list-item]
