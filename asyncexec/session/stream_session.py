"""Streams of a session: ``session.stream`` and ``session.map``.

The two are handles; what there is of a stream is its StreamScope, which the session knows and ends.  A handle that is
dropped before the end of its stream ends it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, Self, TypeAlias

from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.streams.stream_options import StreamOptions, StreamPlan
from asyncexec.executor.streams.stream_scope import StreamScope
from asyncexec.framework.cooperative import SLICE_NS
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    OpError,
)
from asyncexec.framework.step_stats import RunMetadata, begin_trace
from asyncexec.frontend.stream_functions import HoldingIterator, close_iterators, drawing, iterate, values_of
from asyncexec.graph.node import Tensor, V_co
from asyncexec.session.admission import StreamAdmission
from asyncexec.session.session_loop import running_loop
from asyncexec.session.shown import stream_html, stream_text
from asyncexec.session.spread_plan import SpreadOptions, open_spread_plan
from asyncexec.session.stream_plan import (
    StreamHost,
    StreamTrace,
    has_large,
    large_items,
    may_be_large,
    open_plan,
    snapshot,
    stream_nodes,
    with_large_converted,
)

OnError: TypeAlias = Literal["raise", "yield"]
_ITEMS: Final = "what a map draws its items from"
_NO_FEEDS: Final[Mapping[Any, Any]] = {}


class _Handle:
    """What a stream and a map have in common."""

    def __init__(
        self,
        host: StreamHost,
        fetches: Any,
        window: int,
        ordered: bool,
        on_error: OnError,
        metadata: RunMetadata | None,
    ) -> None:
        if type(window) is not int or window < 1:
            raise InvalidArgumentError(f"the window of a stream is a number of items from 1 on, not {window!r}")
        if on_error not in ("raise", "yield"):
            raise InvalidArgumentError(f"on_error is 'raise' or 'yield', not {on_error!r}")
        self._host = host
        self._fetches = fetches
        self._metadata = metadata
        self._options = StreamOptions(
            window, ordered, on_error == "yield", host.slice_ns, host.source_grace_s, host.holds.clock
        )
        self._scope: StreamScope | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _open_scope(self) -> StreamScope:
        self._loop = running_loop()
        host = self._host
        host.enter_loop()
        admission = host.admission.admit_stream()
        context = admission.context()
        span = context.run(host.spans.begin_stream)
        trace = None
        if self._metadata is not None:
            trace = StreamTrace(self._metadata, StepStatsCollector(host.holds.clock))
            context.run(begin_trace, trace.collector)

        def end(scope: StreamScope) -> None:
            admission.end()
            host.end(scope)
            host.spans.end(span, scope.failure)

        scope = self._scope = StreamScope(
            self._opening(admission, trace),
            self._options,
            admission if admission.is_limited else None,
            context,
            end,
            admission.is_inside,
        )
        scope.span = span
        host.begin(scope)
        return scope

    def _opening(self, admission: StreamAdmission, trace: StreamTrace | None) -> Callable[[Any], Awaitable[StreamPlan]]:
        """What makes the plan, from what the first item feeds."""
        return partial(open_plan, self._host, admission, self._fetches, trace)

    async def aclose(self) -> None:
        """Cancel what is in flight, and wait for it; a kernel or source of the stream itself does not wait.

        FailedPreconditionError in another event loop than the stream was opened in, unless that is closed.
        """
        if self._scope is not None:
            await self._scope.end()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return stream_text(type(self).__name__, self._fetches, self._options, self._scope)

    def _repr_html_(self) -> str:
        return stream_html(type(self).__name__, self._fetches, self._options, self._scope)

    def __del__(self) -> None:
        # An ``async for`` that is left early just drops its iterator, maybe on another thread.
        scope, loop = getattr(self, "_scope", None), getattr(self, "_loop", None)
        if scope is not None and loop is not None and not scope.has_ended and not loop.is_closed():
            loop.call_soon_threadsafe(scope.abandon, "the stream was dropped")


class Stream(_Handle, Generic[V_co]):
    """Items sent on one side, and results taken on the other::

        async with session.stream(y, window=32) as stream:
            await stream.send({x: 1.0})
            await stream.close()
            async for out in stream: ...

    The window limits the items that were sent and whose results have not been taken: *send* waits until there is room.
    So one task sends and another task takes, or the items are fewer than the window.  Where *fetches* depend on sources
    (``ax.source``), the stream draws its items from them, and nothing is sent.

    Leaving the ``async with`` cancels the items that are in flight.

    Raises:
        InvalidArgumentError: the window is no number of 1 or more.
        FailedPreconditionError: the stream is opened twice, sent to after ``close``, or used in another event loop.
    """

    _has_sources = False
    _may_be_large: bool | None = None  # until the first item tells

    async def __aenter__(self) -> Self:
        if self._scope is not None:
            raise FailedPreconditionError("this stream has been opened already")
        nodes = await stream_nodes(self._host, self._fetches)
        scope = self._open_scope()
        if nodes.sources:
            self._has_sources = True
            name = f"source {', '.join(repr(source.op.name) for source in nodes.sources)} of a stream"
            scope.feed_by(_send_all(self._host, scope, _Joined(nodes.sources)), name)
        return self

    async def run(self, on_failure: Callable[[OpError], object] | None = None) -> int:
        """Take all results and drop them, until the sources end or the stream is closed: ``await stream.run()``.

        Use it for graphs whose ops store or send the results.  A stream that is not open is opened, and ended.

        Args:
            on_failure: called with the error of each failed item, with ``on_error="yield"``.  An exception of it ends
                the stream.

        Returns:
            The number of items that have succeeded.

        Raises:
            FailedPreconditionError: the stream is not open and has no sources, so nothing could be sent.
            InvalidArgumentError: *on_failure* is missing with ``on_error="yield"``, or given with ``on_error="raise"``.
        """
        if (on_failure is not None) != self._options.yields_errors:
            raise InvalidArgumentError(
                "on_failure is called where a stream goes on after an item's error: it comes with on_error='yield'",
                hint="session.stream(fetches, on_error='yield').run(on_failure=...)",
            )
        if self._scope is not None:
            return await self._take_all(on_failure)
        async with self:
            if not self._has_sources:
                raise FailedPreconditionError(
                    "this stream has no sources", hint="make one by ax.source; or open the stream, and send"
                )
            return await self._take_all(on_failure)

    async def _take_all(self, on_failure: Callable[[OpError], object] | None) -> int:
        num_succeeded = 0
        async for result in self:
            if on_failure is not None and isinstance(result, OpError):
                on_failure(result)
            else:
                num_succeeded += 1
        return num_succeeded

    def send(self, feeds: Mapping[Any, Any] | None = None) -> Coroutine[Any, Any, None]:
        """Send *feeds*, values by tensor or name, as the next item; wait while the window is full.

        All items feed the same tensors.  The mapping is read at once, before anything is awaited.  An error in an item
        is raised where its result is taken.

        Raises:
            FailedPreconditionError: the stream is closed, has sources, or was opened in another event loop.
            AbortedError: a failure has ended the stream; it is the cause.
        """
        return self._send(_NO_FEEDS if feeds is None else snapshot(feeds))

    async def _send(self, given: Any) -> None:
        if self._has_sources:
            raise FailedPreconditionError("this stream draws its items from its sources")
        scope = self._opened()
        if self._may_be_large is None:
            self._may_be_large = may_be_large(self._host.graph, given)
        if self._may_be_large and has_large(given):
            given = await with_large_converted(self._host, given)
        if not scope.try_send(given):
            await scope.send(given)

    async def close(self) -> None:
        """Take no more items, and wait until all sent items are done.  Their results can still be taken.

        Windows of sources (``ax.windows``) that are not full are sent as the last items.
        A kernel or source of the stream itself may also call it; that call does not wait.
        """
        scope = self._open()
        scope.close()
        await scope.drain()

    def __aiter__(self) -> AsyncIterator[V_co]:
        return self

    def __anext__(self) -> Awaitable[V_co]:
        """The result of the next item, as of ``session.run``; with ``on_error="yield"``, its OpError if it failed."""
        return self._opened().take()

    def _open(self) -> StreamScope:
        """The scope, for use in the running loop."""
        scope = self._opened()
        scope.check_loop()
        return scope

    def _opened(self) -> StreamScope:
        if self._scope is None:
            raise FailedPreconditionError("this stream is not open", hint="use it in an 'async with' block")
        return self._scope


class StreamMap(_Handle, Generic[V_co]):
    """The results of *items*, an async iterator; see ``Session.map``.

    An ``async for`` that is left early cancels what is in flight; ``async with`` waits for that, too.
    """

    def __init__(
        self,
        host: StreamHost,
        fetches: Any,
        items: Iterable[Any] | AsyncIterable[Any],
        window: int,
        ordered: bool,
        on_error: OnError,
        metadata: RunMetadata | None,
        spread: SpreadOptions | None = None,
    ) -> None:
        super().__init__(host, fetches, window, ordered, on_error, metadata)
        self._spread = spread
        if not isinstance(items, (Iterable, AsyncIterable)):
            raise InvalidTypeError(f"map takes an iterable or async iterable of feeds, not {type(items).__name__}")
        self._items: Iterable[Any] | AsyncIterable[Any] = items

    async def __aenter__(self) -> Self:
        return self

    def __aiter__(self) -> AsyncIterator[V_co]:
        return self

    def __anext__(self) -> Awaitable[V_co]:
        scope = self._scope
        return self._take_first() if scope is None else scope.take()

    def _opening(self, admission: StreamAdmission, trace: StreamTrace | None) -> Callable[[Any], Awaitable[StreamPlan]]:
        if self._spread is None:
            return super()._opening(admission, trace)
        return partial(open_spread_plan, self._host, self._fetches, self._spread, trace)

    async def _take_first(self) -> Any:
        if self._scope is not None:  # somebody else has come first
            return await self._scope.take()
        return await self._begin().take()  # the frame of this, which errors hold, has no hold of the items

    def _begin(self) -> StreamScope:
        scope = self._open_scope()
        items, self._items = self._items, ()
        # In a task of its own: who is cancelled while the stream opens may ask again.
        if isinstance(items, AsyncIterable):
            # A generator is closed, for nobody else will.
            scope.feed_by(_send_all(self._host, scope, lambda: items), _ITEMS)
        else:
            scope.feed_by(_draw_all(self._host, scope, items), _ITEMS)
        return scope


async def _send_all(
    host: StreamHost, scope: StreamScope, items: AsyncIterable[Any] | Callable[[], AsyncIterable[Any]]
) -> None:
    """Send *items*; what goes wrong with them comes out behind the results of those before."""
    scope.note_source_task(asyncio.current_task())
    now_ns = host.holds.clock.now_ns
    end = now_ns() + SLICE_NS
    try:
        async with drawing(items) as iterator:
            if isinstance(iterator, HoldingIterator):
                scope.hold(iterator.left_over, partial(with_large_converted, host))
            async for feeds in iterator:
                await _send_converted(host, scope, snapshot(feeds))
                if now_ns() > end:
                    await asyncio.sleep(0)  # a source that never waits holds nobody up
                    end = now_ns() + SLICE_NS
                await scope.wait_for_room()  # before the next is drawn
                if scope.is_closed:
                    break
    except BaseException as error:
        scope.close(error)  # nothing, where sending has failed because the stream has ended
        if isinstance(error, asyncio.CancelledError):
            raise
    else:
        scope.close()


async def _draw_all(host: StreamHost, scope: StreamScope, items: Iterable[Any]) -> None:
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


class _Joined(AsyncIterable[Any]):
    """Items of a value each of *sources*, until the first of them ends."""

    def __init__(self, sources: Sequence[Tensor]) -> None:
        self._sources = sources

    def __aiter__(self) -> AsyncIterator[Any]:
        return _JoinedIterator(self._sources)


class _JoinedIterator(HoldingIterator):
    """The values of each of *sources*, and those that are there of an item which others still miss."""

    def __init__(self, sources: Sequence[Tensor]) -> None:
        self._sources = sources
        self._given = [values_of(source.op) for source in sources]
        self._iterators = [iterate(values) for values in self._given]
        self._item: dict[Tensor, Any] = {}

    async def __anext__(self) -> Mapping[Tensor, Any]:
        self._item = {}
        for source, values in zip(self._sources, self._iterators, strict=True):
            try:
                self._item[source] = await anext(values)
            except Exception as error:
                if not isinstance(error, StopAsyncIteration):
                    error.add_note(f"raised by what source {source.op.name!r} draws from")
                raise
        item, self._item = self._item, {}
        return item

    def left_over(self) -> list[Any]:
        item, self._item = self._item, {}
        held = [
            [
                *([item[source]] if source in item else []),
                *(values.left_over() if isinstance(values, HoldingIterator) else []),
            ]
            for source, values in zip(self._sources, self._iterators, strict=True)
        ]
        return [dict(zip(self._sources, values, strict=True)) for values in zip(*held, strict=False)]

    async def aclose(self) -> None:
        made = zip(self._iterators, self._given, strict=True)
        await close_iterators([iterator for iterator, values in made if iterator is not values])
