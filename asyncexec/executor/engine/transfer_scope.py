"""TransferScope: what the Sends and Recvs of a step, or of one partition's part of it, do.

They are the one kind of node that runs when it is dead, and they have no kernel: a Send hands its value to a Recv that
is known to stand ready, and else to the rendezvous.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final, TypeAlias

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.diagnostics.step_observer import NOT_KNOWN, StepObserver
from asyncexec.executor.engine.frame import IterationState, TaggedNode
from asyncexec.executor.engine.propagator import Propagator, TaggedQueue
from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.framework.errors import OpError
from asyncexec.framework.kernel import DEAD
from asyncexec.framework.rendezvous import Received, RendezvousInterface

# What a kernel may raise: a CancelledError is the caller's only where the step awaits; the rest is not ours to catch.
CATCHABLE: Final = (Exception, asyncio.CancelledError)


class TransferScope(StepScope):
    """A part of a step, and what it exchanges with the other parts."""

    __slots__ = ("_observer", "_propagator", "_recvs", "ready", "rendezvous", "standing")

    _propagator: Propagator

    def __init__(self, slice_ns: int, holds: LoopHolds, observer: StepObserver | None, ready: TaggedQueue) -> None:
        super().__init__(slice_ns, holds)
        self.rendezvous: RendezvousInterface | None = None
        self.standing: dict[str, Standing] = {}  # of the whole step: Recvs that Sends may hand values to, by key
        # What the propagator says is ready: it alone knows what its entries are, apart from the item in each.
        self.ready: TaggedQueue = ready
        self._observer = observer
        self._recvs: dict[TaggedNode, NodeItem] = {}  # that wait in the rendezvous, by entry

    @abstractmethod
    def _fail(self, entry: TaggedNode, item: NodeItem, raised: BaseException) -> None:
        """End the step with what *item* has raised."""

    @abstractmethod
    def _finish(self, entry: TaggedNode, item: NodeItem, outputs: object, error: BaseException | None) -> None:
        """Take what a node that ran elsewhere gave."""

    def _note_ended(
        self,
        item: NodeItem,
        start: int,
        iteration: IterationState | None = None,
        *,
        outputs: object = NOT_KNOWN,
        error: BaseException | None = None,
    ) -> None:
        """Tell the observer, if there is one, of an execution of *item* that began at *start* and has ended now."""
        if self._observer is not None and not item.is_relay:
            where = () if iteration is None else iteration.location
            end = self.holds.clock.now_ns()
            self._observer.record(item, start, start, end, error=error, outputs=outputs, where=where)

    def waiting_recvs(self) -> list[str]:
        """The names of the Recvs that wait for a value."""
        return [item.node.name for item in self._recvs.values()]

    def _transfer(self, entry: TaggedNode, item: NodeItem, now: int, *, is_dead: bool = False) -> None:
        """Send, or receive: the one kind of node that runs when it is dead."""
        transfer = item.transfer
        assert transfer is not None
        try:
            if transfer.is_send:
                self._send(entry, item, transfer, now, is_dead=is_dead)
            else:
                self._recv(entry, item, transfer, now)
        except CATCHABLE as raised:
            self._fail(entry, item, raised)

    def _send(self, entry: TaggedNode, item: NodeItem, transfer: Transfer, now: int, *, is_dead: bool) -> None:
        propagator, value = self._propagator, DEAD
        if not is_dead:
            (value,) = propagator.take_inputs(entry)
            if transfer.reads:
                value = value.read()
            self._note_ended(item, now)
        key = propagator.rendezvous_key(entry, transfer)
        receiver = self.standing.pop(key, None) if self.standing else None
        if receiver is not None:
            recv, state = receiver
            state.receive(recv, now, value)
        else:
            assert self.rendezvous is not None  # who has transfers is given one
            self.rendezvous.send(key, None if is_dead else value, is_dead, transfer.args)
        propagator.propagate_sent(entry, self.ready)

    def _recv(self, entry: TaggedNode, item: NodeItem, transfer: Transfer, now: int) -> None:
        assert self.rendezvous is not None
        self._recvs[entry] = item
        self.rendezvous.recv_async(
            self._propagator.rendezvous_key(entry, transfer),
            transfer.args,
            lambda error, found: self._on_received(entry, item, now, error, found),
        )

    def receive(self, recv: NodeItem, now: int, value: object) -> None:
        """Let a Recv that waits outside of all loops have its value, or DEAD."""
        propagator = self._propagator
        propagator.propagate_outputs(propagator.root_entry(recv), self._received(recv, now, value), self.ready)

    def _on_received(
        self, entry: TaggedNode, item: NodeItem, scheduled: int, error: OpError | None, found: Received | None
    ) -> None:
        del self._recvs[entry]
        outputs: object = None
        if found is not None:
            value, is_dead, _ = found
            try:
                outputs = self._received(item, scheduled, DEAD if is_dead else value)
            except OpError as wrong:
                error = wrong
        self._finish(entry, item, outputs, error)

    def _received(self, recv: NodeItem, scheduled: int, value: object) -> object:
        """*value*, checked and recorded where that is wanted."""
        if value is not DEAD:
            if recv.finish is not None:
                value = recv.finish(value)
            self._note_ended(recv, scheduled, outputs=value)
        return value


# A Recv that is ready from the start of the step, and the partition's state that it is in.
Standing: TypeAlias = tuple[NodeItem, TransferScope]
