"""Propagator: what a step asks of whoever decides what runs next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.engine.ready_queue import Entry, ReadyQueue


class Propagator(Protocol[Entry]):
    """Decides what runs next.  Never awaits, never calls a kernel, never reads a clock.

    There are two, as in TensorFlow: frames and dead values double what a node costs.
    """

    def activate_roots(self, feeds: Sequence[Any] | None, ready: ReadyQueue[Entry]) -> None:
        """Add to *ready* what can run at once, with the values of *feeds* delivered; None if they come later."""

    def deliver_feed(self, index: int, value: Any, ready: ReadyQueue[Entry]) -> None:
        """Deliver the value of one feed, which was not there when the step began."""

    def take_inputs(self, entry: Entry, /) -> list[Any]:
        """The values of the inputs of a live node; the propagator lets go of them."""
        ...

    def take_ahead(self, entry: Entry, item: NodeItem, num_awaited: int, /) -> list[Any] | None:
        """What *item* takes where *entry* is, if no more than *num_awaited* of its inputs are missing; else None."""

    def propagate_outputs(self, entry: Entry, outputs: Any, ready: ReadyQueue[Entry], /) -> None:
        """Deliver what the kernel of a live node gave along its out-edges; add to *ready* what can run now."""

    def propagate_sent(self, entry: Entry, ready: ReadyQueue[Entry], /) -> None:
        """Go on after a Send, live or dead, which gives nothing."""

    def root_entry(self, item: NodeItem) -> Entry:
        """What stands for a node outside of all frames that nobody has put into the ready queue."""
        ...

    def rendezvous_key(self, entry: Entry, transfer: Transfer, /) -> str:
        """The key that a Send or Recv uses."""
        ...

    def fetched(self) -> list[Any]:
        """The values of the fetches; NOTHING where none has arrived."""
        ...

    def reset(self) -> None:
        """Begin anew, with no value in it."""
