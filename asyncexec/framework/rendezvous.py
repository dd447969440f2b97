"""Rendezvous: the keyed channel of one step, the only place where its partitions meet.  Here are its words.

After ``tensorflow/core/framework/rendezvous.h``, ``rendezvous.cc`` and ``local_rendezvous.cc``.  A key names one edge
between two devices in one iteration of one frame::

    /job:a/replica:0/task:0/device:CPU:0;0000000000001ed2;/job:a/replica:0/task:0/device:CPU:1;edge_3_y;0:0
    source device                        incarnation      destination device                   edge     frame:iteration

Either side may come first.  What is sent on one key is received in the order of sending, by those who wait for it in
the order of their waiting; each value exactly once.  To a rendezvous a key is just something hashable: an executor may
use the text, or anything shorter that stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from asyncexec.framework.device import AllocatorAttributes, Device, DeviceContext
from asyncexec.framework.device_name import DeviceName, parse_device_name
from asyncexec.framework.errors import InvalidArgumentError, OpError

ANY_MEMORY: Final = AllocatorAttributes()
NEVER_DEAD: Final = "_never_dead"  # an attr of Recvs: what they get is live, in each step

_NUM_PARTS: Final = 5
_MAX_INCARNATION: Final = 2**64 - 1
_HEX: Final = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)
_FRAME_ITER: Final = re.compile(r"([0-9]{1,20}):([0-9]{1,20})", re.ASCII)


class FrameAndIter(NamedTuple):
    """Which iteration of which frame a node runs in."""

    frame_id: int = 0
    iter_id: int = 0


ROOT_FRAME: Final = FrameAndIter()


@dataclass(frozen=True, slots=True)
class RendezvousKey:
    """A key in its parts; ``str()`` of it is the key again."""

    src_device: str
    src_incarnation: int  # of the source device: a worker that restarted has another one
    dst_device: str
    edge_name: str
    frame_iter: FrameAndIter = ROOT_FRAME
    src: DeviceName = field(init=False, repr=False, compare=False)
    dst: DeviceName = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.src_incarnation <= _MAX_INCARNATION:
            raise InvalidArgumentError(f"an incarnation has 64 bits, not {self.src_incarnation.bit_length()}")
        if not self.edge_name or ";" in self.edge_name:
            raise InvalidArgumentError(f"an edge name in a rendezvous key has no ';', not {self.edge_name[:200]!r}")
        object.__setattr__(self, "src", parse_device_name(self.src_device))
        object.__setattr__(self, "dst", parse_device_name(self.dst_device))

    @property
    def prefix(self) -> str:
        """The key without frame and iteration: what is known before a step runs."""
        return f"{self.src_device};{self.src_incarnation:016x};{self.dst_device};{self.edge_name}"

    def __str__(self) -> str:
        return full_key(self.prefix, self.frame_iter)


def create_key(
    src_device: str, src_incarnation: int, dst_device: str, edge_name: str, frame_iter: FrameAndIter = ROOT_FRAME
) -> str:
    """The text of a key; InvalidArgumentError when one of its parts could not be read back."""
    return str(RendezvousKey(src_device, src_incarnation, dst_device, edge_name, frame_iter))


def full_key(prefix: str, frame_iter: FrameAndIter) -> str:
    """The key that has *prefix*, in one iteration of one frame."""
    return f"{prefix};{frame_iter[0]}:{frame_iter[1]}"


def parse_key(text: str) -> RendezvousKey:
    """The parts of a key.

    Raises:
        InvalidArgumentError: they are not five, or one is malformed.
    """
    parts = text.split(";", _NUM_PARTS)
    if len(parts) != _NUM_PARTS:
        raise _invalid(text, f"it has {'more than ' if len(parts) > _NUM_PARTS else ''}{min(len(parts), 5)} parts")
    src_device, incarnation, dst_device, edge_name, frame_iter = parts
    found = _FRAME_ITER.fullmatch(frame_iter)
    if _HEX.fullmatch(incarnation) is None:
        raise _invalid(text, f"{incarnation[:100]!r} is no incarnation of up to 16 hex digits")
    if found is None:
        raise _invalid(text, f"{frame_iter[:100]!r} is no frame:iteration")
    place = FrameAndIter(int(found[1]), int(found[2]))
    try:
        return RendezvousKey(src_device, int(incarnation, 16), dst_device, edge_name, place)
    except InvalidArgumentError as error:
        raise _invalid(text, error.message) from error


def _invalid(text: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Invalid rendezvous key: {text[:500]!r}: {why}",
        hint="a key is 'source device;incarnation as 16 hex digits;destination device;edge name;frame:iteration'",
    )


@dataclass(frozen=True, slots=True)
class RendezvousArgs:
    """Where the value lies for one side.  A device without a context has its tensors in host memory."""

    device_context: DeviceContext | None = None
    alloc_attrs: AllocatorAttributes = ANY_MEMORY

    @property
    def memory(self) -> DeviceContext | None:
        """The device in whose memory it is, or None for the host's."""
        return None if self.alloc_attrs.on_host else self.device_context


def args_on(device: Device, alloc_attrs: AllocatorAttributes = ANY_MEMORY) -> RendezvousArgs:
    """The arguments of a Send or Recv that runs on *device*, of a tensor in memory of that kind."""
    return RendezvousArgs(None if device.shares_host_memory else device.context, alloc_attrs)


NO_ARGS: Final = RendezvousArgs()

# What a Recv gets: the value, whether it is dead, and the arguments of its sender.
Received: TypeAlias = tuple[Any, bool, RendezvousArgs]
# Called once: with (None, what was received), or with (the error, None).  It must not raise.
DoneCallback: TypeAlias = Callable[[OpError | None, Received | None], object]


class RendezvousWaiter(Protocol):
    """One Recv that waits."""

    def cancel(self) -> bool:
        """End the waiting: its callback gets a CancelledError, marked as derived.  False: the value came before."""
        ...


@dataclass(frozen=True, slots=True)
class RendezvousStatistics:
    """What is in a rendezvous now."""

    num_items: int  # sent, not yet received
    num_waiters: int


class RendezvousInterface(Protocol):
    """The channel of one step.  All calls are made in one event loop, and so are the callbacks.

    After ``start_abort`` every call raises, or calls back with, a copy of the first abort's error, marked as derived.
    """

    def send(self, key: Hashable, value: Any, is_dead: bool = False, args: RendezvousArgs = NO_ARGS) -> None:
        """Give *value* to the first who waits for *key*, in this call, or keep it until somebody asks."""
        ...

    async def recv(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*.  Who is cancelled while waiting takes no value away from the others."""
        ...

    def recv_nowait(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*; ``anyio.WouldBlock`` when that has to be awaited."""
        ...

    def recv_async(self, key: Hashable, args: RendezvousArgs, done: DoneCallback) -> RendezvousWaiter | None:
        """Have *done* called with the next value sent on *key*.

        Returns what can be cancelled, or None when *done* was called already.
        """
        ...

    def start_abort(self, error: OpError) -> None:
        """Wake every waiter with *error*, and refuse what comes later with it; the first abort's error stays."""
        ...

    @property
    def error(self) -> OpError | None:
        """What it was aborted with, or None."""
        ...

    @property
    def has_in_flight(self) -> bool:
        """Whether something may still come although nobody here does anything: a copy is under way, say."""
        ...

    def statistics(self) -> RendezvousStatistics: ...

    def unreceived(self) -> list[str]:
        """The keys on which values were sent that nobody has received, one entry for each value."""
        ...
