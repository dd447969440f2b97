"""Streams and maps of a remote session.

RemoteStream and RemoteMap are handles; what there is of a stream is its RemoteScope.  A handle that is dropped before
the end of its stream ends it, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

import grpc
from google.protobuf.message import DecodeError

from asyncexec.client.connection import Calls, typed_error
from asyncexec.client.remote_fetches import RemoteFetches
from asyncexec.client.remote_scope import Item, RemoteScope, StreamRules
from asyncexec.framework.errors import (
    CancelledError,
    Code,
    FailedPreconditionError,
    InternalError,
    InvalidTypeError,
    OpError,
    UnavailableError,
)
from asyncexec.frontend.stream_functions import drawing
from asyncexec.service.off_loop import off_loop
from asyncexec.service.protocol_messages import STATUS, message
from asyncexec.service.requests import IS_FINAL, WANTS_FINAL
from asyncexec.session.stream_plan import snapshot

S = TypeVar("S", bound=RemoteScope)

_MOST_DIGITS: Final = 18
_NO_FEEDS: Final[Mapping[str, object]] = {}


class MapScope(RemoteScope):
    """Items of which each is a *call* of its own."""

    def __init__(self, rules: StreamRules, wanted: RemoteFetches, call: Callable[[bytes], Awaitable[Any]]) -> None:
        super().__init__(rules)
        self._wanted = wanted
        self._call = call

    async def _encode(self, item: Item, feeds: object) -> bytes:
        return await self._wanted.encode(feeds)

    def _begin(self, item: Item, data: bytes) -> None:
        item.task = self._spawn(self._run(item, data))

    async def _run(self, item: Item, data: bytes) -> None:
        try:
            result = await self._call(data)
        except Exception as error:
            self._fail(item, error)
        else:
            self._deliver(item, result)
            self._finish(item)

    def draw(self, items: object) -> None:
        """Let the next items be *items*, drawn as there is room for them; the stream is closed at their end."""
        self._source = self._spawn(self._draw(items))

    async def _draw(self, items: object) -> None:
        # A generator is closed, for nobody else will: drawing() leaves open what it was given, but not what it calls.
        source = (lambda: items) if isinstance(items, AsyncIterable) else items
        try:
            async with drawing(source) as iterator:
                async for feeds in iterator:
                    await self.send(snapshot(feeds))
                    await self.wait_for_room()  # before the next is drawn
                    if self._is_closed:
                        break
        except asyncio.CancelledError:
            self.close(CancelledError("what a map draws its items from was cancelled"))
            raise
        except BaseException as error:
            self.close(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.close()

    def _cut(self, dropped: list[Item]) -> None:
        super()._cut(dropped)
        if self._source is not asyncio.current_task():
            self._source.cancel()


class RpcScope(RemoteScope):
    """Items that are requests of one call, ModelStreamInfer; answers tell by their id which request they are of."""

    def __init__(self, rules: StreamRules, wanted: RemoteFetches, calls: Calls, *, python_scalars: bool) -> None:
        super().__init__(rules)
        self._wanted = wanted
        self._calls = calls
        self._python_scalars = python_scalars
        self._response_class = message("ModelStreamInferResponse")
        self._outbox: deque[bytes] = deque()
        self._change = asyncio.Event()  # in the outbox
        self._taken = asyncio.Event()
        self._is_paused = False
        self._call = calls.stream("ModelStreamInfer")
        self._spawn(self._write())
        self._spawn(self._read())

    async def _encode(self, item: Item, feeds: object) -> bytes:
        return await self._wanted.encode(feeds, str(item.number), {WANTS_FINAL: True})

    def _begin(self, item: Item, data: bytes) -> None:
        self._outbox.append(data)
        self._change.set()

    def close(self, error: BaseException | None = None) -> None:
        super().close(error)
        self._change.set()

    def _cut(self, dropped: list[Item]) -> None:
        super()._cut(dropped)
        self._change.set()
        self._taken.set()
        if not self._items:
            self._call.cancel()

    async def _write(self) -> None:
        # A task of its own: grpc ends a call in which a write is cancelled.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # which whoever reads is told
            while True:
                while self._outbox:
                    await self._call.write(self._outbox.popleft())
                if self._is_closed:
                    break
                self._change.clear()
                await self._change.wait()
            await self._call.done_writing()

    async def _read(self) -> None:
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                response = await off_loop(len(data), self._parsed, data)
                self._take_in(*response)
                await self._wait_for_takers()
        except grpc.aio.AioRpcError as error:
            self._break(self._calls.told(error))
        except OpError as error:
            self._break(error)
            self._call.cancel()
        else:
            self._break(UnavailableError("the server has ended the stream"))

    def _parsed(self, data: bytes) -> tuple[Any, Any]:
        """The ModelStreamInferResponse that *data* is, and what it has: a nest of values, an error, or nothing."""
        response = self._response_class()
        try:
            response.ParseFromString(data)
        except DecodeError:
            raise InternalError("the server's answer is no ModelStreamInferResponse") from None
        answer = response.infer_response
        if response.error_message:
            told = answer.parameters[STATUS].string_param if STATUS in answer.parameters else ""
            return response, typed_error(
                Code.__members__.get(told, Code.UNKNOWN), response.error_message, self._calls.whose
            )
        if not answer.outputs:
            return response, None
        try:
            return response, self._wanted.nest_of(answer, python_scalars=self._python_scalars)
        except OpError as error:
            return response, error

    def _take_in(self, response: Any, result: object) -> None:
        answer = response.infer_response
        item = self._item_of(answer.id)
        if item is None:  # it was dropped
            return
        told = answer.parameters.get(IS_FINAL)
        is_final = told is None or told.bool_param
        if isinstance(result, OpError):
            self._fail(item, result, is_final=is_final)
            return
        if answer.outputs:
            self._deliver(item, result)
        if is_final:
            self._finish(item)

    def _item_of(self, number: str) -> Item | None:
        if not number:  # answers come in order, then
            return next((item for item in self._items.values() if not item.is_done), None)
        return self._items.get(int(number)) if number.isdecimal() and len(number) <= _MOST_DIGITS else None

    async def _wait_for_takers(self) -> None:
        """Read no further while there are results enough, and one that can be taken."""
        while self._num_results >= self._rules.window and self._first_ready() is not None:
            self._is_paused = True
            self._wake()
            self._taken.clear()
            await self._taken.wait()
        self._is_paused = False

    def _note_taken(self) -> None:
        self._taken.set()

    @property
    def _has_drained(self) -> bool:
        # Where results have to be taken first, whoever waits may be who takes them.
        return self._is_paused or super()._has_drained


class _Handle(Generic[S]):
    """What a stream and a map have in common."""

    def __init__(self, open_scope: Callable[[], S]) -> None:
        self._open_scope = open_scope
        self._scope: S | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _open(self) -> S:
        scope = self._scope = self._open_scope()
        self._loop = asyncio.get_running_loop()
        return scope

    async def aclose(self) -> None:
        """Cancel what is in flight, and wait for it."""
        if self._scope is not None:
            await self._scope.end()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self  # type: ignore[return-value]

    def __del__(self) -> None:
        # An ``async for`` that is left early just drops its iterator, maybe on another thread.
        scope, loop = getattr(self, "_scope", None), getattr(self, "_loop", None)
        if scope is not None and loop is not None and not scope.has_ended and not loop.is_closed():
            loop.call_soon_threadsafe(scope.abandon)


class RemoteStream(_Handle[RpcScope]):
    """Items sent on one side, and results taken on the other, as of ``ax.Stream``::

        async with session.stream("y", window=32) as stream:
            await stream.send({"x": 1.0})
            await stream.close()
            async for out in stream: ...

    Leaving the ``async with`` cancels the call, and so all items that are in flight.

    Raises:
        InvalidArgumentError: the window is no number of 1 or more.
        FailedPreconditionError: the stream is opened twice, or sent to after ``close``.
        UnavailableError: the server has gone.
    """

    async def __aenter__(self) -> Self:
        if self._scope is not None:
            raise FailedPreconditionError("this stream has been opened already")
        self._open()
        return self

    def send(self, feeds: Mapping[str, object] | None = None) -> Coroutine[Any, Any, None]:
        """Send *feeds*, values by the names of inputs, as the next item; wait while the window is full.

        An error in an item is raised where its result is taken.

        Raises:
            FailedPreconditionError: the stream is not open, closed, or was opened in another event loop.
            AbortedError: a failure has ended the stream; it is the cause.
        """
        return self._opened().send(_NO_FEEDS if feeds is None else snapshot(feeds))

    async def close(self) -> None:
        """Take no more items, and wait until all sent items are done.  Their results can still be taken.

        Where a model gives more results than the window, they have to be taken meanwhile or afterwards.
        """
        scope = self._opened()
        scope.close()
        await scope.drain()

    def __anext__(self) -> Awaitable[Any]:
        """The next result, as of ``session.run``; with ``on_error="yield"``, the OpError of an item that failed."""
        return self._opened().take()

    def _opened(self) -> RpcScope:
        if self._scope is None:
            raise FailedPreconditionError("this stream is not open", hint="use it in an 'async with' block")
        return self._scope


class RemoteMap(_Handle[MapScope]):
    """The results of a map, an async iterator; see ``RemoteSession.map``.

    An ``async for`` that is left early cancels what is in flight; ``async with`` waits for that, too.
    """

    def __init__(self, open_scope: Callable[[], MapScope], items: Iterable[Any] | AsyncIterable[Any]) -> None:
        super().__init__(open_scope)
        if not isinstance(items, (Iterable, AsyncIterable)):
            raise InvalidTypeError(f"map takes an iterable or async iterable of feeds, not {type(items).__name__}")
        self._items: Iterable[Any] | AsyncIterable[Any] = items

    async def __aenter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Any]:
        scope = self._scope
        if scope is None:
            scope = self._open()
            items, self._items = self._items, ()
            scope.draw(items)
        return scope.take()
