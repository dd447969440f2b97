"""Streams of a session: ``session.stream`` and ``session.map``.

The two are handles; what there is of a stream is its StreamScope, which the session knows and ends.  A handle that is
dropped before the end of its stream ends it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, Literal, Self, TypeAlias

from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.streams.stream_options import DeadLetters, StreamOptions, StreamPlan
from asyncexec.executor.streams.stream_scope import StreamScope
from asyncexec.framework.errors import (
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    OpError,
)
from asyncexec.framework.step_stats import RunMetadata, begin_trace
from asyncexec.graph.node import V_co
from asyncexec.session.admission import StreamAdmission
from asyncexec.session.durable_stream import CheckpointOptions, DurableStream
from asyncexec.session.fetch_mapper import FetchMapper
from asyncexec.session.session_loop import running_loop
from asyncexec.session.shown import stream_html, stream_text
from asyncexec.session.sigterm import check_no_sigterm, note_stream
from asyncexec.session.source_tasks import Joined, draw_all, feed_durably, send_all
from asyncexec.session.spread_plan import SpreadOptions, open_spread_plan
from asyncexec.session.stream_plan import (
    StreamHost,
    StreamTrace,
    has_large,
    may_be_large,
    open_plan,
    snapshot,
    stream_nodes,
    with_large_converted,
)

OnError: TypeAlias = Literal["raise", "yield"] | DeadLetters
_ITEMS: Final = "what a map draws its items from"
_NO_FEEDS: Final[Mapping[object, object]] = {}


class _Handle:
    """What a stream and a map have in common."""

    def __init__(
        self,
        host: StreamHost,
        fetches: object,
        window: int,
        ordered: bool,
        on_error: OnError,
        metadata: RunMetadata | None,
        durable: CheckpointOptions | None,
        flush: bool = True,
    ) -> None:
        if type(window) is not int or window < 1:
            raise InvalidArgumentError(f"the window of a stream is a number of items from 1 on, not {window!r}")
        if on_error not in ("raise", "yield") and not callable(on_error):
            raise InvalidArgumentError(
                f"on_error is 'raise', 'yield', or a function of an error and the feeds, not {on_error!r}"
            )
        self._host = host
        self._fetches = fetches
        self._metadata = metadata
        self._options = StreamOptions(
            window,
            ordered,
            on_error != "raise",
            on_error if callable(on_error) else None,
            flush,
            host.slice_ns,
            host.source_grace_s,
            host.holds.clock,
        )
        self._durable = None if durable is None else self._make_durable(durable)
        self._check_flush(flush)
        self._scope: StreamScope | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _check_flush(self, flush: bool) -> None:
        if not flush and (self._durable is None or not self._durable.draws_again):
            raise FailedPreconditionError(
                "flush=False would lose what the windows hold: no checkpoint lets them be drawn again",
                hint="checkpoint=ax.checkpoint.SQLiteStore(path), and sources that can seek",
            )

    def _make_durable(self, options: CheckpointOptions) -> DurableStream:
        tensors = FetchMapper(self._host.graph, self._fetches)
        names = [*(node.name for node in tensors.targets), *(tensor.name for tensor in tensors.tensors)]
        return DurableStream(
            options,
            names,
            self._host.resources,
            is_ordered=self._options.ordered,
            schedule_seed=self._host.schedule_seed,
        )

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
            admission.wait_queue,
            context,
            end,
            admission.is_inside,
        )
        scope.span = span
        if self._durable is not None:
            scope.cut_by(self._durable.cuts)
        host.begin(scope)
        return scope

    def _opening(self, admission: StreamAdmission, trace: StreamTrace | None) -> Callable[[Any], Awaitable[StreamPlan]]:
        """What makes the plan, from what the first item feeds."""
        return partial(open_plan, self._host, admission, self._fetches, trace, self._durable)

    async def snapshot(self) -> bytes:
        """A checkpoint behind the items that have been sent: a stream with ``restore=`` goes on there.

        It waits until these items are done, and later ones wait meanwhile.  Their results are still to be taken.
        Where items wait for a checkpoint of *every*, the snapshot is before them.

        Raises:
            AbortedError: a failure has ended the stream.
            FailedPreconditionError: the stream is not open, or has neither *checkpoint* nor *restore*; or a kernel or
                source of the stream itself asks.
            InvalidArgumentError: a state has no form in which it can be stored.
        """
        scope = self._opened()
        scope.check_loop()
        if self._durable is None:
            raise FailedPreconditionError(
                "this stream has no checkpoints", hint="checkpoint=ax.checkpoint.MemoryStore(), for example"
            )
        async with scope.paused(self._durable.cuts) as cut:
            record = self._durable.record(cut)
        return await self._durable.content(record)

    @property
    def position(self) -> int:
        """The number of items that have been sent, with those before the checkpoint that the stream goes on from."""
        return self._opened().position

    def _opened(self) -> StreamScope:
        if self._scope is None:
            raise FailedPreconditionError("this stream is not open", hint="use it in an 'async with' block")
        return self._scope

    async def aclose(self) -> None:
        """Cancel what is in flight, and wait for it; a kernel or source of the stream itself does not wait.

        FailedPreconditionError in another event loop than the stream was opened in, unless that is closed.
        """
        if self._scope is not None:
            await self._scope.aclose()

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
            loop.call_soon_threadsafe(scope.cancel, CancelledError("the stream was dropped"))


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
        check_no_sigterm()
        nodes = await stream_nodes(self._host, self._fetches)
        durable, made = self._durable, None
        if durable is not None:
            made = durable.check_sources(nodes.sources)
            await durable.begin(nodes.nodes, self._host.holds.clock)
        scope = self._open_scope()
        if durable is not None:
            scope.begin_at(durable.start)
        if nodes.sources:
            self._has_sources = True
            note_stream(scope)
            name = f"source {', '.join(repr(source.op.name) for source in nodes.sources)} of a stream"
            scope.feed_by(send_all(self._host, scope, Joined(nodes.sources, durable, made)), name)
        return self

    async def run(self, on_failure: Callable[[OpError], object] | None = None) -> int:
        """Take all results and drop them, until the sources end or the stream is closed: ``await stream.run()``.

        Use it for graphs whose ops store or send the results.  A stream that is not open is opened, and ended.

        Args:
            on_failure: called with the error of each failed item, with ``on_error="yield"`` alone.  An exception of it
                ends the stream.

        Returns:
            The number of items that have succeeded.

        Raises:
            FailedPreconditionError: the stream is not open and has no sources, so nothing could be sent.
            InvalidArgumentError: *on_failure* is missing with ``on_error="yield"``, or given without.
        """
        options = self._options
        if (on_failure is not None) != (options.yields_errors and options.dead_letters is None):
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

    def send(self, feeds: Mapping[object, object] | None = None) -> Coroutine[Any, Any, None]:
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

    async def close(self, *, flush: bool | None = None) -> None:
        """Take no more items, and wait until all sent items are done.  Their results can still be taken.

        Windows of sources (``ax.windows``) that are not full are sent as the last items, unless *flush*, or that of the
        stream, is False: then the stream that goes on from the last checkpoint draws their values again.

        Items that wait for a checkpoint are not waited for: they begin as results are taken.  A kernel or source of the
        stream itself may also call it; that call does not wait.

        Raises:
            FailedPreconditionError: ``flush=False``, and values in windows could not be drawn again.
        """
        scope = self._open()
        if flush is not None:
            self._check_flush(flush)
            scope.flushes = flush
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


class StreamMap(_Handle, Generic[V_co]):
    """The results of *items*, an async iterator; see ``Session.map``.

    An ``async for`` that is left early cancels what is in flight; ``async with`` waits for that, too.
    """

    def __init__(
        self,
        host: StreamHost,
        fetches: object,
        items: Iterable[Any] | AsyncIterable[Any],
        window: int,
        ordered: bool,
        on_error: OnError,
        metadata: RunMetadata | None,
        durable: CheckpointOptions | None = None,
        spread: SpreadOptions | None = None,
    ) -> None:
        super().__init__(host, fetches, window, ordered, on_error, metadata, durable)
        self._spread = spread
        if not isinstance(items, (Iterable, AsyncIterable)):
            raise InvalidTypeError(f"map takes an iterable or async iterable of feeds, not {type(items).__name__}")
        self._items: Iterable[Any] | AsyncIterable[Any] = items
        if self._durable is not None:
            self._durable.check_items(items)

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
        check_no_sigterm()
        scope = self._open_scope()
        note_stream(scope)
        items, self._items = self._items, ()
        # In a task of its own: who is cancelled while the stream opens may ask again.
        if self._durable is not None:
            scope.feed_by(feed_durably(self._host, scope, self._durable, self._fetches, items), _ITEMS)
        elif isinstance(items, AsyncIterable):
            # A generator is closed, for nobody else will.
            scope.feed_by(send_all(self._host, scope, lambda: items), _ITEMS)
        else:
            scope.feed_by(draw_all(self._host, scope, items), _ITEMS)
        return scope
