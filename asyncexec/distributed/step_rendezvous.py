"""StepRendezvous: the rendezvous of one step in one of the processes that take part in it.

After ``RpcRemoteRendezvous`` in ``tensorflow/core/distributed_runtime/rpc/rpc_rendezvous_mgr.cc``, but values are
pushed: a Send whose Recv is elsewhere gives its value to the channel that leads there, and does not wait to be asked.
So a crossing is one message.  What comes before its Recv waits in the table, as values of this process do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from asyncexec.framework.derived import make_derived
from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from asyncexec.framework.rendezvous import NO_ARGS, DoneCallback, Received, RendezvousArgs, RendezvousWaiter
from asyncexec.rendezvous.intra_process import Rendezvous, copied


class Channel(Protocol):
    """What leads to another process."""

    def send_tensor(self, step_id: int, key: str, value: object, is_dead: bool = False) -> None:
        """Push *value*; InvalidArgumentError when it has no form that could be sent."""
        ...

    def drop_step(self, step_id: int) -> None:
        """Push nothing more of a step, as far as it waits."""
        ...


class StepRendezvous(Rendezvous):
    """See the head of this module.

    Args:
        step_id: the number of the step.
        route: gives the channel to the process of a device, by the name of the device; None for this process.  An
            OpError if there is no such process.
    """

    __slots__ = ("_held", "_lost", "_route", "_sending", "_sent_to", "step_id")

    def __init__(self, step_id: int, route: Callable[[str], Channel | None]) -> None:
        super().__init__()
        self.step_id: int = step_id
        self._route = route
        self._lost: dict[str, OpError] = {}  # by the name of a worker that sends nothing any more
        self._held: list[tuple[Hashable, Any, bool, RendezvousArgs]] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._sent_to: dict[str, Channel] = {}  # by device: what has been pushed may still be on its way

    @property
    def has_in_flight(self) -> bool:
        """Whether a copy is under way."""
        return bool(self._sending) or super().has_in_flight

    def send(self, key: Hashable, value: object, is_dead: bool = False, args: RendezvousArgs = NO_ARGS) -> None:
        """Give *value* to who waits for *key*, here or elsewhere, or keep it until somebody asks.

        Raises:
            InvalidArgumentError: it has to go to another process, and has no form to be sent in.
            ResourceExhaustedError: it is too large for that.
            UnavailableError: that process cannot be reached.
        """
        assert isinstance(key, str)
        device = key.split(";", 3)[2]
        channel = self._route(device)
        if channel is None:
            super().send(key, value, is_dead, args)
            return
        if self._error is not None:
            raise make_derived(self._error)
        if self._held is not None:
            self._held.append((key, value, is_dead, args))
            return
        self._sent_to[device] = channel
        if args.memory is None or is_dead:
            self._push(channel, key, value, is_dead)
        else:
            sending = asyncio.get_running_loop().create_task(self._copy_and_push(channel, key, value, args))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    def arrive(self, key: str, value: object, is_dead: bool) -> None:
        """Take what another process has pushed."""
        if self._error is None:
            super().send(key, value, is_dead)

    def recv_async(self, key: Hashable, args: RendezvousArgs, done: DoneCallback) -> RendezvousWaiter | None:
        """Have *done* called with the next value sent on *key*; None when it has been called already."""
        error = self._lost_sender(key)
        if error is not None:
            done(make_derived(error), None)
            return None
        return super().recv_async(key, args, done)

    async def recv(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*, in the memory that *args* asks for."""
        error = self._lost_sender(key)
        if error is not None:
            raise make_derived(error)
        return await super().recv(key, args)

    def lose(self, worker: str, error: OpError) -> bool:
        """Expect nothing from *worker* any more, and nothing to arrive there; whether the step cannot go on."""
        self._lost[worker] = error
        return any(_worker_of(device) == worker for device in self._sent_to) or any(
            _source_of(key) == worker for key in self._waiting
        )

    def hold(self) -> None:
        """Push nothing until ``release``."""
        self._held = []

    def release(self) -> None:
        """Push what is held, and from now on at once; raises as ``send``."""
        held, self._held = self._held, None
        for each in held or ():
            self.send(*each)

    def drop(self) -> None:
        """Push nothing more, as far as it waits."""
        for channel in self._sent_to.values():
            channel.drop_step(self.step_id)

    def start_abort(self, error: OpError) -> None:
        """Wake every waiter with *error*, and refuse later calls; what is being copied is not sent."""
        super().start_abort(error)
        self._held = None
        for sending in self._sending:
            sending.cancel()

    def _lost_sender(self, key: Hashable) -> OpError | None:
        """Why *key* gets no value: its sender is lost."""
        return self._lost.get(_source_of(key)) if self._lost and self.peek(key) is None else None

    def _push(self, channel: Channel, key: str, value: object, is_dead: bool) -> None:
        try:
            channel.send_tensor(self.step_id, key, value, is_dead)
        except (InvalidArgumentError, ResourceExhaustedError) as error:
            source, _, destination, edge, _ = key.split(";", 4)
            raise type(error)(
                f"the value of edge {edge!r} cannot go from {source} to {destination}: {error.message}",
                hint=error.hint,
            ) from None

    async def _copy_and_push(self, channel: Channel, key: str, value: object, args: RendezvousArgs) -> None:
        try:
            value, _, _ = await copied(key, (value, False, args), NO_ARGS)
            self._push(channel, key, value, is_dead=False)
        except OpError as error:
            self.start_abort(error)


def _source_of(key: Hashable) -> str:
    """The name of the worker that sends on *key*."""
    return _worker_of(str(key))


def _worker_of(device: str) -> str:
    return device.split("/device:", 1)[0]
