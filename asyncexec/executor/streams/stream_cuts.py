"""StreamCuts: where a stream is cut for a checkpoint.  It decides, and awaits nothing.

A cut is a place between two items.  All items before it are done when it is stored, and their results have been taken.
The states at a cut are the cells behind the last item before it: they are there when that item is done, and later items
change nothing in them.  So items behind a cut go on while it is stored.

Where items leave something that is not in these cells (variables, tables, queues, what a sink has written to the
connection that the checkpoint is committed with), the cut *holds*: no item begins behind it until it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from asyncexec.executor.streams.key_table import KeyTable
from asyncexec.executor.streams.stream_item import StateCell

MAX_WAITING: Final = 4  # cuts, while one is being stored
Carrier: TypeAlias = StateCell | KeyTable  # what one item leaves for the next
NOT_HERE: Final = object()  # a position that the source cannot go on from


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A place between two items.

    Attributes:
        number: of the items before it, in this stream.
        position: what the sources told behind the last of them; None where the number tells it.
        cells: the states.
    """

    number: int
    position: Any
    cells: list[StateCell]


class StreamCuts:
    """The cuts of one stream.

    Args:
        store: makes a cut durable.
        every_items: items between two cuts; None for no such cuts.
        every_s: seconds between two cuts; None for no such cuts.

    Attributes:
        on_cut: called when there is a new cut.
        waiting: the cuts that are not stored, oldest first.
        free_until: items before this number begin without a question.
        holds: whether no item begins behind a cut until it is stored.
        is_held: whether no item begins because of a cut.
        is_first: whether no cut has been stored yet: the first shows that the store can be written to.
        position: what the sources told behind the last item that has begun.
    """

    def __init__(
        self,
        store: Callable[[Cut], Awaitable[None]],
        every_items: int | None = None,
        every_s: float | None = None,
    ) -> None:
        self.on_cut: Callable[[], None] | None = None
        self._pause_at: int | None = None
        self.holds: bool = False
        self.position: Any = None
        self._store = store
        self._every_items = every_items
        self._every_s = every_s
        self._last_number = -1
        self._last_s = 0.0
        self.is_held: bool = False
        self.waiting: deque[Cut] = deque()
        self.free_until: int = 0
        self.is_first: bool = True
        self._is_storing = False

    def may_begin(self, number: int, cells: Sequence[Carrier], now_s: float) -> bool:
        """Whether item *number* may begin now, behind *cells*; there may be a cut in front of it."""
        if self.is_held or (self._pause_at is not None and number >= self._pause_at):
            return False
        if number != self._last_number and self._is_due(number, now_s) and self.position is not NOT_HERE:
            self._cut(number, cells, now_s)
            if self.holds:
                return False
        if self._every_items is not None and self._pause_at is None:
            self.free_until = max(number + 1, self._last_number + self._every_items)
        return True

    def pause(self, number: int | None) -> None:
        """Let no item begin from *number* on; with None, all may again."""
        self._pause_at = number
        self.free_until = 0

    def _is_due(self, number: int, now_s: float) -> bool:
        if self._last_number < 0:
            return self._every_items is not None or self._every_s is not None
        if self._every_items is not None and number - self._last_number >= self._every_items:
            return True
        return self._every_s is not None and now_s - self._last_s >= self._every_s

    @property
    def due_s(self) -> float | None:
        """When the next cut is due, whether an item comes or not; None where items alone count."""
        return None if self._every_s is None else self._last_s + self._every_s

    def cut_in_time(self, number: int, cells: Sequence[Carrier], now_s: float) -> None:
        """Cut behind the last item that has begun, as none comes before which a cut could be."""
        if number != self._last_number and not self.is_held and self.position is not NOT_HERE:
            self._cut(number, cells, now_s)

    def _cut(self, number: int, cells: Sequence[Carrier], now_s: float) -> None:
        self.is_held = self.holds
        self._add(number, cells, now_s)

    def _add(self, number: int, cells: Sequence[Carrier], now_s: float) -> None:
        self.waiting.append(self.at(number, cells))
        self._last_number, self._last_s = number, now_s
        if self.on_cut is not None:
            self.on_cut()

    def end(self, number: int, cells: Sequence[Carrier], now_s: float) -> None:
        """Cut behind the last item, of a stream that has one cut at least."""
        if 0 <= self._last_number < number and self.position is not NOT_HERE:
            self._add(number, cells, now_s)

    def cancel(self) -> None:
        """Store no more of them."""
        self.waiting.clear()

    def at(self, number: int, cells: Sequence[Carrier]) -> Cut:
        """The cut here, which is not stored."""
        return Cut(number, self.position, [cell.at_cut() for cell in cells])

    def is_ready(self, num_taken: int) -> bool:
        """Whether a cut can be stored, once so many results have been taken."""
        return not self._is_storing and bool(self.waiting) and self.waiting[0].number <= num_taken

    def begin_storing(self, num_taken: int) -> Cut:
        """The last cut that can be stored, which ``store`` gets; none is ready until then."""
        self._is_storing = True
        return [cut for cut in self.waiting if cut.number <= num_taken][-1]

    async def store(self, cut: Cut) -> None:
        """Store *cut*.  If that fails, a later call tries again."""
        try:
            await self._store(cut)
        finally:
            self._is_storing = False
        while self.waiting and self.waiting[0].number <= cut.number:
            self.waiting.popleft()
        self.is_held = bool(self.waiting) and self.holds
        self.is_first = False
