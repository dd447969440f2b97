"""DeviceEvents: waits for the work of devices, on one thread for all of them.

A library tells whether work is done only when it is asked, so somebody has to ask again and again.  An event loop does
that with its timers, which go by milliseconds; a thread asks as often as it pays.  It asks for each event some tens of
microseconds after the last time, and ever more rarely as the event gets older: so the answer is late by a share of the
time that the work takes.  All events of a loop that come due at once cost one wake-up of that loop.

Threads share only what can be handed over in one step: events go to the thread through a queue, and what is popped from
``_right_to_start`` is the right to run the thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from asyncexec.devices.array_library import IsDone
from asyncexec.framework.clock import CLOCK, NS_PER_MS, NS_PER_S, NS_PER_US, Clock

_SHORTEST_NAP_NS: Final = 20 * NS_PER_US
_LONGEST_NAP_NS: Final = NS_PER_MS
_NAP_SHARE: Final = 8  # of the time that an event has been waited for
_IDLE_S: Final = 0.1  # for so long the thread waits for another event before it ends


class _Event:
    """Work that a coroutine waits for.

    Attributes:
        is_done: asks for it; None when nobody waits any more.
        error: what that has raised.
    """

    __slots__ = ("ask_at_ns", "begun_ns", "error", "future", "is_done", "loop")

    def __init__(self, is_done: IsDone, loop: asyncio.AbstractEventLoop, now_ns: int) -> None:
        self.is_done: IsDone | None = is_done
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.begun_ns = now_ns
        self.ask_at_ns = now_ns + _SHORTEST_NAP_NS
        self.error: BaseException | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether the one who waits is to be told, as far as that is to be asked now."""
        is_done = self.is_done
        if is_done is None or now_ns < self.ask_at_ns:
            return False
        try:
            if is_done():
                return True
        except BaseException as raised:  # for who waits, whatever it is
            self.error = raised
            return True
        nap_ns = (now_ns - self.begun_ns) // _NAP_SHARE
        self.ask_at_ns = now_ns + min(max(nap_ns, _SHORTEST_NAP_NS), _LONGEST_NAP_NS)
        return False


class DeviceEvents:
    """Events that coroutines wait for, of any number of devices, event loops and threads.

    The thread is started with the first event, and ends when there has been none for a while.
    """

    __slots__ = ("_arrivals", "_clock", "_num_waiting", "_right_to_start")

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._arrivals: SimpleQueue[_Event] = SimpleQueue()
        self._right_to_start: list[None] = [None]
        self._num_waiting: dict[asyncio.AbstractEventLoop, int] = {}  # each changed by its loop alone

    def is_awaited_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether somebody in *loop* waits for an event."""
        return loop in self._num_waiting

    async def wait(self, is_done: IsDone) -> None:
        """Return once *is_done*, which is asked by another thread; others have the loop meanwhile.

        Raises:
            Exception: what *is_done* has raised.
        """
        if is_done():
            return
        await asyncio.sleep(0)
        if is_done():
            return
        loop = asyncio.get_running_loop()
        event = _Event(is_done, loop, self._clock.now_ns())
        self._num_waiting[loop] = self._num_waiting.get(loop, 0) + 1
        self._arrivals.put(event)
        try:
            self._start_thread()
            await event.future
        finally:
            event.is_done = None
            self._num_waiting[loop] -= 1
            if not self._num_waiting[loop]:
                del self._num_waiting[loop]
        error, event.error = event.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, event  # the error's traceback holds this frame

    def _start_thread(self) -> None:
        if self._take_right():
            thread = threading.Thread(target=self._work, name="asyncexec-device-events", daemon=True)
            contextvars.Context().run(thread.start)  # where threads inherit one, not that of this call

    def _take_right(self) -> bool:
        with suppress(IndexError):
            self._right_to_start.pop()
            return True
        return False

    def _work(self) -> None:
        waiting: list[_Event] = []
        while True:
            self._receive(waiting)
            if waiting:
                waiting = self._look_after(waiting)
                continue
            self._right_to_start.append(None)
            # Whoever brings an event tries to take the right after that: one of the two sees the other.
            if self._arrivals.empty() or not self._take_right():
                return

    def _receive(self, waiting: list[_Event]) -> None:
        """Add the events that have come, after a nap until one of those *waiting* is to be asked for.

        There is always a nap: others are to have the GIL, and events that come due one by one are told of together.
        """
        nap_s = _IDLE_S
        if waiting:
            nap_ns = min(event.ask_at_ns for event in waiting) - self._clock.now_ns()
            nap_s = max(nap_ns, _SHORTEST_NAP_NS) / NS_PER_S
        with suppress(Empty):
            waiting.append(self._arrivals.get(timeout=nap_s))
            while True:
                waiting.append(self._arrivals.get_nowait())

    def _look_after(self, waiting: Iterable[_Event]) -> list[_Event]:
        """Wake the loops of the events that are due; those that are still waited for."""
        due: dict[asyncio.AbstractEventLoop, list[_Event]] = {}
        left: list[_Event] = []
        now_ns = self._clock.now_ns()
        for event in waiting:
            if event.is_due(now_ns):
                due.setdefault(event.loop, []).append(event)
            elif event.is_done is not None and not event.loop.is_closed():
                left.append(event)
        for loop, events in due.items():
            with suppress(RuntimeError):  # that is closed: nobody waits
                loop.call_soon_threadsafe(_tell, events)
        return left


def _tell(events: Iterable[_Event]) -> None:
    for event in events:
        if not event.future.done():
            event.future.set_result(None)


# One thread asks for the events of all devices: to ask costs microseconds.
device_events: Final = DeviceEvents()
