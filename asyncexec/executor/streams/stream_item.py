"""StreamItem and StateCell: one item of a stream while it is under way, and a state's value between two items.

A state is a loop-carried edge: there is a cell between each item and the next, which the first of the two fills.  What
an item does not write it passes on.  One that fails before it has read what it would pass on leaves an heir: the cell
behind it is filled when the one before it is.

The states are a chain of their own, as a scan is in front of a map: an item writes a state if all that the update needs
succeeds, and whatever else in the item fails.  So, where the stream goes on after a failure, a failed item goes on with
its updates; what the next item reads depends neither on when the failure comes nor on how long the item takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from asyncexec.compilation.graph_view import NOTHING, NodeItem
from asyncexec.executor.engine.lost_fetches import LostFetches
from asyncexec.executor.engine.step_scope import FailureKeeper, StepMaker, StepScope
from asyncexec.executor.plans.feed_growth import BegunStep
from asyncexec.framework.errors import OpError
from asyncexec.framework.spans import Running, Span


@dataclass(frozen=True, slots=True)
class StateSlot:
    """Where a state of a stream comes in and goes out of the items' steps.

    Attributes:
        feed: the position among the feeds of what reads it.
        fetch: the position among the fetches of what is written.
        initial: what the first item reads.
    """

    feed: int
    fetch: int
    initial: Any


class StateCell:
    """What one item leaves for the next."""

    __slots__ = ("heir", "reader", "value")

    def __init__(self, value: object = NOTHING) -> None:
        self.value: Any = value
        self.reader: tuple[StreamItem, int] | None = None  # the item that waits for it, and the feed it is for
        self.heir: StateCell | None = None

    def at_cut(self) -> StateCell:
        """What a checkpoint here has."""
        return self

    def fill(self, value: object) -> None:
        """Set the value, unless it is there; whoever waits for it goes on."""
        cell: StateCell | None = self
        while cell is not None and cell.value is NOTHING:
            cell.value = value
            reader, cell.reader = cell.reader, None
            if reader is not None:
                reader[0].receive(reader[1], value)
            cell = cell.heir

    def pass_to(self, heir: StateCell) -> None:
        """Let *heir* be filled with what is in here, once that is there."""
        self.reader = None
        if self.value is NOTHING:
            self.heir = heir
        else:
            heir.fill(self.value)


class Errand:
    """What is known of an item that goes to workers.

    Attributes:
        values: what it feeds.
        worker: where it is.
        losses: how each attempt has ended whose worker was lost.
    """

    __slots__ = ("losses", "values", "worker")

    def __init__(self, values: list[object], worker: str) -> None:
        self.values = values
        self.worker = worker
        self.losses: list[str] = []


class StreamItem(FailureKeeper):
    """One item of a stream; its step's Waiter.

    Attributes:
        number: its place among the items, from 0.
        began_ns: when it began, by the clock of its stream.
        has_place: whether it is counted among the steps under way, where these are limited.
        begun: what it brings to its end, if the general executor runs it.
        step: while it is under way, and, reset, from then on until it is used again; maker: what has made it.
        is_queued: whether the scope is going to look at it.
        num_awaited: states that it waits for.
        read, written: the cells before and behind it, one for each state.
        keeps_failures: whether its step goes on with the updates of states when a node has failed.
        failure: the first that was kept; failed: the nodes, as long as nobody has looked at them.
        lost: what is not fetched because of them; None where all goes well.
        is_done: whether ``value``, or ``error``, is there.
        span: while it is under way, where somebody may want to know of it.
        letter: what is told of it if it fails, where somebody takes failed items.
        errand: what is to be known of it while it goes to workers; until it is done.
        visits: where it waits in the queues of states by key, with their slots, until its keys are known.
    """

    __slots__ = (
        "_active",
        "_schedule",
        "began_ns",
        "begun",
        "errand",
        "error",
        "failed",
        "failure",
        "has_place",
        "is_done",
        "is_queued",
        "keeps_failures",
        "letter",
        "lost",
        "maker",
        "num_awaited",
        "number",
        "read",
        "span",
        "step",
        "value",
        "visits",
        "written",
    )

    def __init__(self, active: deque[StreamItem], schedule: Callable[[], None]) -> None:
        self.number: int = 0
        self.began_ns: int = 0
        self.begun: BegunStep | None = None
        self._active = active
        self._schedule = schedule
        self.has_place: bool = False
        self.step: StepScope | None = None
        self.maker: StepMaker | None = None
        self.is_queued: bool = False
        self.num_awaited: int = 0
        self.read: Sequence[StateCell] = ()
        self.written: Sequence[StateCell] = ()
        self.keeps_failures: bool = False
        self.failure: OpError | None = None
        self.failed: list[NodeItem] = []
        self.lost: LostFetches | None = None
        self.is_done: bool = False
        self.span: Running | None = None
        self.letter: object = None
        self.errand: Errand | None = None
        self.visits: Sequence[Any] = ()
        self.value: Any = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        """Whether the scope knows already that something has come back."""
        return self.is_queued

    def set_result(self, result: None) -> None:
        """Let the scope look at this item."""
        self.is_queued = True
        active = self._active
        active.append(self)
        if len(active) == 1:  # else the scope is going to look at the others anyway
            self._schedule()

    def receive(self, feed: int, value: object) -> None:
        """Take the value of a state that was waited for."""
        self.num_awaited -= 1
        if self.step is not None:
            self.step.deliver_feed(feed, value)
            if not self.is_queued:
                self.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Let the item fail with *error*, when the scope looks at it."""
        if self.step is not None:
            self.step.abort(error)
            if not self.is_queued:
                self.set_result(None)

    def keep_failure(self, item: NodeItem, error: BaseException) -> bool:
        """Take the *error* of *item*; whether the step is to go on, if only until the scope has looked at it."""
        if not (self.keeps_failures and isinstance(error, OpError)):
            return False
        self.failure = self.failure or error
        self.failed.append(item)
        return True

    def hand_on(self, slots: Sequence[StateSlot], values: Sequence[object]) -> None:
        """Let the next item have what this one has written by now, in *values*, the fetches of its step."""
        for slot, cell in zip(slots, self.written, strict=True):
            value = values[slot.fetch]
            if value is not NOTHING:
                cell.fill(value)

    def pass_on(self) -> None:
        """Leave to the item behind what this one has not written."""
        for before, behind in zip(self.read, self.written, strict=True):
            before.pass_to(behind)
        self.read = self.written = ()
        for _, visit in self.visits:
            visit.table.skip(visit)
        self.visits = ()

    def end_span(self, error: BaseException | None = None) -> None:
        """Tell those who want to know that it is done."""
        span, self.span = self.span, None
        if type(span) is Span:
            span.spans.end(span, error)

    def release(self) -> None:
        """Hold on to nothing but the outcome."""
        self.step = self.maker = self.failure = self.lost = self.errand = None
        self._schedule = _look_at_nothing
        self.read = self.written = self.visits = ()


def _look_at_nothing() -> None:
    """Stands for a scope that has let go of the item."""
