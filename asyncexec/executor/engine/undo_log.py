"""UndoLog: what a step has changed in queues, to be undone if the step is cancelled.

In TensorFlow, what a dequeue has taken is gone once the op is done.  Here, a step that is cancelled gives back what it
has taken, whatever it has done with it: its caller gets no results.  A step that fails by one of its nodes does not.
As in TensorFlow, what it took is used; else an element that makes steps fail would come again and again.

- In a loop, an iteration that has ended has used what it took.  So a step that goes round for ever can be cancelled,
  and keeps nothing of the iterations that are over.
- What a step has put into a queue stays there, but for elements that it has moved from one queue to another: those are
  taken out again, and go back.  If somebody has taken one of them meanwhile, it has been handed on, and what it came
  from is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from asyncexec.compilation.graph_view import FETCH, NodeItem
from asyncexec.executor.engine.frame import IterationState
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.kernel import Change

_FEW: Final = 16


class Record:
    """A change, made by *item*, one of *items*, in *iteration*."""

    __slots__ = ("_item", "_items", "_iteration", "_reach", "change")

    def __init__(self, change: Change, item: NodeItem, items: Sequence[NodeItem], iteration: IterationState) -> None:
        self.change: Change = change
        self._item = item
        self._items = items
        # Only that of a loop can end before the step, and is held.
        self._iteration = None if iteration.frame.parent_iteration is None else iteration
        self._reach: _Reach | None = None

    @property
    def is_in_loop(self) -> bool:
        """Whether it was made in an iteration of a loop."""
        return self._iteration is not None

    @property
    def is_over(self) -> bool:
        """Whether the iteration of a loop that it was made in has ended."""
        iteration = self._iteration
        return iteration is not None and iteration.frame.iterations.get(iteration.number) is not iteration

    def leads_to(self, put: Record) -> bool:
        """Whether *put* may have put in what this has taken."""
        reach = self._look()
        return reach.leaves or (put._items is self._items and put._item.id in reach.ids)

    def leads_to_fetch(self, slots: Collection[int]) -> bool:
        """Whether a fetch in *slots* may have got what this has taken."""
        reach = self._look()
        return reach.leaves or not reach.slots.isdisjoint(slots)

    def _look(self) -> _Reach:
        if self._reach is None:
            self._reach = _Reach(self._item)
        return self._reach


class _Reach:
    """Where the outputs of *item* may go.

    Attributes:
        ids: of items; slots: of fetches; leaves: whether they go to another device.
    """

    __slots__ = ("ids", "leaves", "slots")

    def __init__(self, item: NodeItem) -> None:
        self.ids = {item.id}
        self.slots: set[int] = set()
        self.leaves = False
        queue = [item]
        for each in queue:
            self.leaves |= each.transfer is not None
            for _, (kind, slot, consumer) in each.data_routes():
                if kind == FETCH:
                    self.slots.add(slot)
                elif consumer.id not in self.ids:
                    self.ids.add(consumer.id)
                    queue.append(consumer)


class UndoLog:
    """The changes of one step."""

    __slots__ = ("_limit", "_records")

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._limit = _FEW  # of records, before those are looked for that can be forgotten

    def add(self, record: Record) -> None:
        """Take note of a change that is about to be made."""
        if record.is_in_loop and len(self._records) >= self._limit:
            self._forget_ended()
            self._limit = max(_FEW, 2 * len(self._records))
        self._records.append(record)

    def forget(self, slots: Collection[int]) -> None:
        """The caller has got the values in *slots* of the fetches: what they come from is used."""
        self._records = [record for record in self._records if not record.leads_to_fetch(slots)]

    def undo(self) -> list[Change]:
        """Undo the changes, once; those that have been undone."""
        self._forget_ended()
        records, self._records = self._records, []
        puts = [record for record in records if not record.change.takes]
        undone: list[Change] = []
        for taken in (record for record in reversed(records) if record.change.takes):
            moves = [put.change for put in puts if taken.leads_to(put)]
            if all(move.can_undo() for move in moves):
                for change in (*moves, taken.change):
                    change.undo()
                    undone.append(change)
        return undone

    def _forget_ended(self) -> None:
        """Forget what was changed in iterations that have ended, but for moves of what was taken outside of them."""
        left = {record for record in self._records if not record.is_over}
        sources = {record for record in left if record.change.takes}
        for put in self._records:
            if put not in left and not put.change.takes:
                taken = {source for source in sources if source.leads_to(put)}
                if put.change.can_undo():
                    left.update([put] if taken else ())
                else:  # it has been handed on
                    sources -= taken
                    left -= taken
        self._records = [record for record in self._records if record in left]


def undo_all(logs: Iterable[UndoLog]) -> None:
    """Undo the changes of *logs*.  All are undone before others see it, so that these find what they take in order."""
    undone = [change for log in logs for change in log.undo()]
    for change in undone:
        change.show_undone()


def is_cancellation(failure: BaseException) -> bool:
    """Whether a step with that *failure* was ended from outside, and not by one of its nodes."""
    if isinstance(failure, CancelledError):
        return failure.node is None
    return isinstance(failure, asyncio.CancelledError) or not isinstance(failure, Exception)
