"""Long computations that let others have the event loop, and waiting that no cancellation cuts short.

A stage that walks a whole graph is a generator: it yields now and then, and returns its result.  In an event loop it is
run in slices; elsewhere at once.  It may yield a call that takes long, and raises nothing: in an event loop that is
made on another thread before the stage goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import types
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from asyncexec.framework.clock import CLOCK, NS_PER_MS, Clock

T = TypeVar("T")
Call: TypeAlias = Callable[[], object]
Stage: TypeAlias = Generator[Any, None, T]  # of Call | None, which mypy would want each `yield` to say

SLICE_NS: Final = NS_PER_MS // 2
# Of the loop: in one, asyncio finds that a timer is due or a socket is ready, and sets a future, whose task goes on in
# the next, behind what is ready by then.  With fewer, others would wait for two or three slices; one with nothing to do
# takes microseconds.
TURNS: Final = 3
_ANYIO_SCOPES: Final = "anyio._backends._asyncio"  # imported with the first of them, which holds the loop for 40 ms
STRIDE: Final = 64  # nodes a stage handles between two yields: some 100 microseconds
FEW: Final = 8  # the same for what takes tens of microseconds each: translations, kernels
PART: Final = 2048  # the same for what takes a tenth of a microsecond each: edges, fetches


@types.coroutine
def let_others_go_on() -> Generator[None, None, None]:
    """Let the event loop have as many turns as others may need to go on."""
    for _ in range(TURNS):
        yield


def call_after_others(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object, context: Context
) -> None:
    """Call *callback* with *args* in *context*, when *loop* has had as many turns as others may need to go on."""
    call_soon = partial(loop.call_soon, context=context)  # else each takes a copy, and what the next sets is lost
    for _ in range(TURNS - 1):
        callback, args = call_soon, (callback, *args)
    call_soon(callback, *args)


def in_parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """*items* in the parts that a stage handles between two yields: itself, where there are not very many."""
    if len(items) <= PART:
        yield items
        return
    for start in range(0, len(items), PART):
        yield items[start : start + PART]


def release(*tables: MutableMapping[Any, Any]) -> Stage[None]:
    """Empty *tables* in parts, as a stage: to free many thousands of objects in one go takes milliseconds."""
    for table in tables:
        while table:
            for _ in range(min(PART, len(table))):
                table.popitem()
            yield


def run_at_once(stage: Stage[T]) -> T:
    """The result of *stage*, without a pause."""
    while True:
        try:
            call: Call | None = next(stage)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if call is not None:
            call()


class Slices:
    """Slices of *slice_ns* nanoseconds by *clock*, from now on; after each of them the loop gets a turn."""

    __slots__ = ("_end_ns", "_now_ns", "_slice_ns")

    def __init__(self, clock: Clock = CLOCK, slice_ns: int = SLICE_NS) -> None:
        self._now_ns = clock.now_ns
        self._slice_ns = slice_ns
        self._end_ns = self._now_ns() + slice_ns

    @property
    def is_over(self) -> bool:
        """Whether the slice is over."""
        return self._now_ns() > self._end_ns

    async def begin_next(self) -> None:
        """Let others have the loop."""
        await let_others_go_on()
        self._end_ns = self._now_ns() + self._slice_ns


def _called_elsewhere(call: Call) -> asyncio.Future[object]:
    """*call* on a thread of its own: all of the loop's may be waiting for what comes of it."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="asyncexec-call")
    try:
        return asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown(wait=False)


async def run_in_slices(stage: Stage[T], clock: Clock = CLOCK, slice_ns: int = SLICE_NS) -> T:
    """The result of *stage*; the loop gets a turn whenever *slice_ns* nanoseconds have passed by *clock*."""
    slices = Slices(clock, slice_ns)
    while True:
        try:
            call: Call | None = next(stage)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if call is not None:
            await _called_elsewhere(call)
        if slices.is_over:
            await slices.begin_next()


async def outlast(is_over: Callable[[], bool], wait: Callable[[], Awaitable[object]]) -> None:
    """Wait until *is_over*, whoever cancels meanwhile; the cancellation comes out when it is."""
    cancelled: asyncio.CancelledError | None = None
    while cancelled is None and not is_over():  # with no shield yet: *wait* is to hear of anyio's cancellation, too
        try:
            await wait()
        except asyncio.CancelledError as error:
            # Since Python 3.14 the frame of an asyncio.wait in the traceback holds the task, which holds the error.
            cancelled = error.with_traceback(None)
    if cancelled is None:
        return
    with _shield():
        while not is_over():
            try:
                await wait()
            except asyncio.CancelledError as error:
                cancelled = error.with_traceback(None)
    try:
        raise cancelled
    finally:
        del cancelled  # its traceback holds this frame, which must not hold it in turn


def _shield() -> contextlib.AbstractContextManager[object]:
    """Keeps anyio, which would cancel again and again, from doing so, where there may be a scope of it."""
    return anyio.CancelScope(shield=True) if _ANYIO_SCOPES in sys.modules else contextlib.nullcontext()
