"""The tasks that send the items of a stream: from its sources, or from what a map draws from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from asyncexec.executor.streams.stream_cuts import NOT_HERE
from asyncexec.executor.streams.stream_scope import StreamScope
from asyncexec.framework.cooperative import Slices
from asyncexec.framework.errors import OpError
from asyncexec.frontend.stream_functions import HoldingIterator, close_iterators, drawing, iterate, values_of
from asyncexec.frontend.stream_positions import PositionedIterator, Seeked, tells_positions, values_from
from asyncexec.graph.node import Tensor
from asyncexec.session.durable_stream import DurableStream
from asyncexec.session.stream_plan import (
    StreamHost,
    has_large,
    large_items,
    snapshot,
    stream_nodes,
    with_large_converted,
)


async def feed_durably(
    host: StreamHost,
    scope: StreamScope,
    durable: DurableStream,
    fetches: object,
    items: Iterable[object] | AsyncIterable[object],
) -> None:
    """Let *scope* have *items* from where *durable* begins."""
    scope.note_source_task(asyncio.current_task())
    try:
        await durable.begin((await stream_nodes(host, fetches)).nodes, host.holds.clock)
        scope.begin_at(durable.start)
        position = durable.item_position
        is_told = tells_positions(items)
        found = Seeked(lambda: items, position) if is_told else values_from(items, position)
    except BaseException as error:
        scope.close(error)
        if isinstance(error, asyncio.CancelledError):
            raise
        return
    if isinstance(found, AsyncIterable):
        await send_all(host, scope, found)
    else:
        await draw_all(host, scope, found)


async def send_all(
    host: StreamHost, scope: StreamScope, items: AsyncIterable[object] | Callable[[], AsyncIterable[object]]
) -> None:
    """Send *items*; what goes wrong with them comes out behind the results of those before."""
    scope.note_source_task(asyncio.current_task())
    slices = Slices(host.holds.clock)
    try:
        async with drawing(items) as iterator:
            if isinstance(iterator, HoldingIterator):
                scope.hold(
                    iterator.left_over, partial(with_large_converted, host), lambda: getattr(iterator, "position", None)
                )
            async for feeds in iterator:
                if scope.cuts is not None:
                    scope.note(getattr(iterator, "position", None))
                await _send_converted(host, scope, snapshot(feeds))
                if slices.is_over:
                    await slices.begin_next()  # a source that never waits holds nobody up
                await scope.wait_for_room()  # before the next is drawn
                if scope.is_closed:
                    break
    except BaseException as error:
        scope.close(error)  # nothing, where sending has failed because the stream has ended
        if isinstance(error, asyncio.CancelledError):
            raise
    else:
        scope.close()


async def draw_all(host: StreamHost, scope: StreamScope, items: Iterable[object]) -> None:
    """Let the scope draw *items*, but for those that take long to convert; what goes wrong comes out in its place."""
    scope.note_source_task(asyncio.current_task())
    try:
        source = map(snapshot, items)
        for first in source:
            await _send_converted(host, scope, first)
            is_large = large_items(host.graph, first)
            del first
            while is_large is not None and not scope.is_closed:
                await _send_converted(host, scope, await scope.draw_until(is_large, source))
            if not scope.is_closed:
                scope.draw_from(source)
            return
        scope.close()
    except BaseException as error:
        scope.close(error)
        if isinstance(error, asyncio.CancelledError):
            raise


async def _send_converted(host: StreamHost, scope: StreamScope, feeds: Any) -> None:
    """Send *feeds*, which were drawn from a source."""
    is_large = has_large(feeds)
    if is_large or not scope.try_send(feeds):
        with scope.kept_open():
            await scope.send(await with_large_converted(host, feeds) if is_large else feeds)


class Joined(AsyncIterable[Any]):
    """Items of a value each of *sources*, until the first of them ends."""

    def __init__(
        self, sources: Sequence[Tensor], durable: DurableStream | None, made: Mapping[Tensor, Any] | None
    ) -> None:
        self._sources = sources
        self._given = made or {source: values_of(source.op) for source in sources}
        self._durable = durable

    def __aiter__(self) -> AsyncIterator[Any]:
        return _JoinedIterator(self._given, self._durable)


class _JoinedIterator(HoldingIterator):
    """The values of each of *sources*, and those that are there of an item which others still miss."""

    def __init__(self, given: Mapping[Tensor, object], durable: DurableStream | None) -> None:
        self._sources = list(given)
        self._given = list(given.values())
        if durable is None:
            self._iterators = [iterate(values) for values in self._given]
        else:
            self._iterators = [_positioned(source, values, durable) for source, values in given.items()]
        self._item: dict[Tensor, Any] = {}
        self._is_uneven = False

    async def __anext__(self) -> Mapping[Tensor, object]:
        self._item = {}
        for source, values in zip(self._sources, self._iterators, strict=True):
            try:
                self._item[source] = await anext(values)
            except Exception as error:
                if not isinstance(error, StopAsyncIteration):
                    _tell_source(error, source)
                raise
        item, self._item = self._item, {}
        return item

    @property
    def position(self) -> Any:
        """Of each source, behind the last item; NOT_HERE where one has given more than others."""
        if self._is_uneven:
            return NOT_HERE
        found = zip(self._sources, self._iterators, strict=True)
        return {source.op.name: values.position for source, values in found if isinstance(values, PositionedIterator)}

    def left_over(self) -> list[object]:
        item, self._item = self._item, {}
        held = [
            [
                *([item[source]] if source in item else []),
                *(values.left_over() if isinstance(values, HoldingIterator) else []),
            ]
            for source, values in zip(self._sources, self._iterators, strict=True)
        ]
        self._is_uneven = len(set(map(len, held))) > 1
        return [dict(zip(self._sources, values, strict=True)) for values in zip(*held, strict=False)]

    async def aclose(self) -> None:
        made = zip(self._iterators, self._given, strict=True)
        await close_iterators([iterator for iterator, values in made if iterator is not values])


def _positioned(source: Tensor, values: object, durable: DurableStream) -> PositionedIterator:
    try:
        position = durable.position_of(source.op.name)
        return PositionedIterator(values, position, is_owned=values is not values_of(source.op))
    except Exception as error:
        _tell_source(error, source)
        raise


def _tell_source(error: Exception, source: Tensor) -> None:
    """Note in *error* what has raised it.  One of ours is raised here, as one that names the source."""
    error.add_note(f"raised by what source {source.op.name!r} draws from")
    if isinstance(error, OpError):
        raise error.locate(source.op) from error.__cause__
