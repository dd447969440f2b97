"""ParkingLot: coroutines that wait in order, until somebody wakes the first of them, or all.

Those of the least level have their turn first, and of one level, first come, first served.  One that is cancelled after
it was woken wakes the next: a wake-up is never lost with who got it (``asyncio.Condition`` and ``asyncio.Queue`` do the
same).  What is left of a closed loop is passed over.

Limiters, admission control, the senders and takers of streams, mutexes and staging areas wait here.  These do not: who
is handed a value that is his alone (queues, accumulators, rendezvous, collectives, fetches of a partial run), as each
has a condition of its own; and what is awaited by one, or happens once for all (a future, an event).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextvars import Context
from typing import TypeAlias

from asyncexec.framework.queue_policy import NORMAL, Level

Waiter: TypeAlias = "asyncio.Future[None]"
Queue: TypeAlias = "OrderedDict[Waiter, Context | None]"


class ParkingLot:
    """See the head of this module.

    Attributes:
        waiting: how many wait.
        num_waking: how many have been woken, and have not run since.
    """

    __slots__ = ("_queues", "_normal", "num_waking", "waiting")

    def __init__(self) -> None:
        self._normal: Queue = OrderedDict()
        self._queues: dict[Level, Queue] = {NORMAL: self._normal}
        self.waiting: int = 0
        self.num_waking: int = 0

    async def wait(self) -> None:
        """Wait until it is this coroutine's turn."""
        waiter = asyncio.get_running_loop().create_future()
        self._add(waiter)
        await self._wait(waiter)

    def wake_one(self) -> bool:
        """Let the first go on; whether there is one."""
        while self.waiting:
            queue = self._normal if len(self._queues) == 1 else self._first_queue()
            waiter, context = queue.popitem(last=False)
            self._count(context, -1)
            # Else it is cancelled, and has not run since; or its loop is closed, and it will never run.
            if not (waiter.done() or waiter.get_loop().is_closed()):
                waiter.set_result(None)
                self.num_waking += 1
                return True
        return False

    def wake_all(self) -> None:
        """Let everybody go on."""
        while self.wake_one():
            pass

    async def _wait(self, waiter: Waiter) -> None:
        try:
            await waiter
        except BaseException:  # cancelled, or late; or closed, with its loop
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.num_waking -= 1
                self._pass_on()  # it was woken, and has not seen it
            else:
                self._remove(waiter)
            raise
        self.num_waking -= 1

    def _pass_on(self) -> None:
        """Let the next have what one was woken for that is cancelled."""
        self.wake_one()

    def _first_queue(self) -> Queue:
        """The queue of the least level that has waiters; others that have none are forgotten."""
        self._queues = {level: queue for level, queue in self._queues.items() if queue or queue is self._normal}
        return self._queues[min(level for level, queue in self._queues.items() if queue)]

    def _add(self, waiter: Waiter, level: Level = NORMAL, context: Context | None = None) -> None:
        self._queues.setdefault(level, OrderedDict())[waiter] = context
        self._count(context, 1)

    def _remove(self, waiter: Waiter) -> tuple[Context | None] | None:
        """Take *waiter* out of the queue, if it is there still; its context."""
        for queue in self._queues.values():
            if waiter in queue:
                context = queue.pop(waiter)
                self._count(context, -1)
                return (context,)
        return None

    def _count(self, context: Context | None, by: int) -> None:
        """Who waits, in *context*, has come or gone."""
        self.waiting += by
