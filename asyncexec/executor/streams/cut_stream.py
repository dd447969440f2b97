"""CutStream: a stream that can be cut for checkpoints; see ``StreamCuts``.

Whoever takes results has processed those before.  So a cut that holds is stored by the call that takes the next result,
before it gives one: what was done with the results before is older than the checkpoint, and nothing else is.  Any other
cut is stored by a task, once the results before it have been processed, and results are given meanwhile.  If more cuts
come than can be stored, only the last of them is.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asyncexec.executor.streams.stream_cuts import MAX_WAITING, Cut, StreamCuts
from asyncexec.executor.streams.stream_intake import StreamIntake
from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.parking_lot import ParkingLot


class CutStream(StreamIntake):
    """The cuts of one stream; the arguments are those of StreamIntake."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._takers = ParkingLot()
        self._storing: asyncio.Task[None] | None = None
        self._asks_cuts = False  # whether one may be to be stored
        self._resters = ParkingLot()  # who waits until nothing that has begun is in flight
        self._cut_timer: asyncio.TimerHandle | None = None
        self._pausing = asyncio.Lock()

    @abstractmethod
    def _is_waited_for(self) -> bool:
        """Whether the running code is a part of the stream, and so would wait for itself."""

    def cut_by(self, cuts: StreamCuts) -> None:
        """Let *cuts* decide where checkpoints are made."""
        self.cuts = cuts
        self._free_until = cuts.free_until
        cuts.on_cut = self._wake_for_cut

    def note(self, position: object) -> None:
        """Take note of the *position* of the sources behind the next item that is sent."""
        if self.cuts is not None:
            self._notes.append(position)

    def _take_note(self, position: object) -> None:
        assert self.cuts is not None  # else there are no notes
        self.cuts.position = position

    def _wake_for_cut(self) -> None:
        self._asks_cuts = True
        if self._has_to_store():
            self._takers.wake_one()  # it may wait already, for a result that only comes behind the cut
        self._resters.wake_all()
        if self.window.is_closed:
            self._settle_end()  # nothing may go on until results are taken

    @property
    def _is_held_up(self) -> bool:
        """Whether nothing goes on until results are taken: items wait for a checkpoint, and it for their taker."""
        return self.cuts is not None and self.cuts.is_held and not (self.window.in_flight or self._endings)

    def _cuts_let_begin(self) -> bool:
        cuts = self.cuts
        if cuts is None or self.window.number < self._free_until:
            return True
        may_begin = cuts.may_begin(self.window.number, self.window.cells, self._loop.time())
        self._free_until = cuts.free_until
        if may_begin and self._cut_timer is None and (due_s := cuts.due_s) is not None:
            self._cut_timer = self._loop.call_at(due_s, self._cut_in_time)
        return may_begin

    def _cut_in_time(self) -> None:
        self._cut_timer = None
        if self.cuts is not None:
            self.cuts.cut_in_time(self.window.number, self.window.cells, self._loop.time())

    def _end_cuts(self) -> None:
        """Make no more cuts by the time."""
        if self._cut_timer is not None:
            self._cut_timer.cancel()

    def _cancel_storing(self) -> None:
        """Store nothing more: nobody waits for it."""
        if self.cuts is not None:
            self.cuts.cancel()
        if self._storing is not None:
            self._storing.cancel()

    def begin_at(self, number: int) -> None:
        """Let the first item have *number*: those before are done, in a stream that this one goes on with."""
        self.window.number = number

    @property
    def position(self) -> int:
        """The number of items that have been sent."""
        return self.window.num_sent

    def _has_to_store(self) -> bool:
        """Whether the call that takes a result stores a cut, or is told how that has ended."""
        cuts, storing = self.cuts, self._storing
        if cuts is None:
            return False
        if storing is not None:
            self._asks_cuts = storing.done() or cuts.holds or cuts.is_first or len(cuts.waiting) > MAX_WAITING
            return self._asks_cuts  # if not, again when there is one more cut, or when this one is stored
        self._asks_cuts = bool(cuts.waiting)
        return cuts.is_ready(self.window.num_taken)

    async def _store_cuts(self, *, at_end: bool = False) -> None:
        """Store the last cut whose results have been taken; items behind it may begin then."""
        cuts = self.cuts
        if cuts is None:
            return
        if at_end and not self.window.is_aborted:
            cuts.end(self.window.number, self.window.cells, self._loop.time())
        waits = at_end or cuts.holds or cuts.is_first
        await self._end_storing(waits=waits or len(cuts.waiting) > MAX_WAITING)
        while cuts.is_ready(self.window.num_taken):
            # A task, which goes on where who takes results is cancelled: so one put ends before the next begins.
            cut = cuts.begin_storing(self.window.num_taken)
            self._storing = self._loop.create_task(self._store(cuts, cut))
            self._keep(self._storing)
            if not waits:
                break
            await self._end_storing(waits=True)

    async def _store(self, cuts: StreamCuts, cut: Cut) -> None:
        try:
            await cuts.store(cut)
        finally:
            self._asks_cuts = True
        self._schedule()  # items that have waited for it

    async def _end_storing(self, *, waits: bool) -> None:
        """Raise what storing a cut has failed with; the next call tries again."""
        storing = self._storing
        if storing is None or not (waits or storing.done()):
            return
        if not storing.done():
            await asyncio.wait([storing])
        if self._storing is storing:  # nobody else has taken note of it
            self._storing = None
            if not storing.cancelled():
                storing.result()

    @asynccontextmanager
    async def paused(self, cuts: StreamCuts) -> AsyncIterator[Cut]:
        """The cut behind the items that have been sent, when they are done.

        It is before items that wait for a checkpoint.  No item that is sent later begins meanwhile.

        Raises:
            AbortedError: the stream has ended by a failure.
            FailedPreconditionError: a part of the stream asks, which would wait for itself.
        """
        if self._is_waited_for():
            raise FailedPreconditionError("a kernel or source of a stream cannot wait until its items are done")
        async with self._pausing:
            window, end = self.window, self.position
            cuts.pause(end)
            self._free_until = cuts.free_until
            try:
                while window.in_flight or (window.inbox and window.number < end and not cuts.is_held):
                    await self._resters.wait()
                self._check_not_failed()
                yield cuts.at(self.window.number, self.window.cells)
            finally:
                cuts.pause(None)
                self._schedule()
