"""Propagator: what a step asks of whoever decides what runs next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.engine.frame import TaggedNode, TaskGroup
from asyncexec.executor.engine.ready_queue import ReadyQueue

TaggedQueue: TypeAlias = ReadyQueue[TaggedNode]


class Propagator(Protocol):
    """Decides what runs next.  Never awaits, never calls a kernel, never reads a clock."""

    def activate_roots(self, feeds: Sequence[object] | None, ready: TaggedQueue) -> None:
        """Add to *ready* what can run at once, with the values of *feeds* delivered; None if they come later."""

    def deliver_feed(self, index: int, value: object, ready: TaggedQueue) -> None:
        """Deliver the value of one feed, which was not there when the step began."""

    def take_inputs(self, tagged: TaggedNode, /) -> list[Any]:
        """The values of the inputs of a live node; the propagator lets go of them."""
        ...

    def waits_for(self, tagged: TaggedNode, item: NodeItem, num_awaited: int, /) -> bool:
        """Whether *item* waits for just *num_awaited* inputs where *tagged* is."""
        ...

    def take_ahead(self, tagged: TaggedNode, item: NodeItem, /) -> list[object]:
        """What has come for *item* where *tagged* is, which has not become ready."""
        ...

    def give_back(self, tagged: TaggedNode, item: NodeItem, inputs: Sequence[object], /) -> None:
        """Put *inputs*, which were taken ahead for *item*, where they were; NOTHING stands for what has not come."""

    def propagate_outputs(self, tagged: TaggedNode, outputs: object, ready: TaggedQueue, /) -> None:
        """Deliver what the kernel of a live node gave along its routes; add to *ready* what can run now."""

    def propagate_sent(self, tagged: TaggedNode, ready: TaggedQueue, /) -> None:
        """Go on after a Send, live or dead, which gives nothing."""

    def settle(self, tagged: TaggedNode, ready: TaggedQueue, /) -> None:
        """Do what there is to do for an entry of the ready queue that needs no kernel."""

    def lose(self, tagged: TaggedNode, ready: TaggedQueue, /) -> None:
        """Go on after a node that failed: what it would have given never comes, and its iteration can end without."""

    def root_entry(self, item: NodeItem) -> TaggedNode:
        """What stands for a node outside of all loops that nobody has put into the ready queue."""
        ...

    def rendezvous_key(self, tagged: TaggedNode, transfer: Transfer, /) -> str:
        """The key that a Send or Recv uses."""
        ...

    def task_groups(self) -> Iterator[TaskGroup]:
        """Those of all frames that have any."""
        ...

    def fetched(self) -> list[Any]:
        """The values of the fetches; NOTHING where none has arrived."""
        ...

    def reset(self) -> None:
        """Begin anew, with no value in it."""

    def close(self) -> None:
        """Let go of what is in frames, and of the cycles that they are; ``fetched()`` works as before."""
