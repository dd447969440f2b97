"""Rendezvous: between the devices of one process; values are copied where the memories differ.

After ``SameWorkerRecvDone`` in ``tensorflow/core/common_runtime/rendezvous_mgr.cc``.  A value that is in host
memory and is wanted there is passed on as it is, without a copy and without a task; so is a dead one, which has no
value.  Otherwise it goes through the device contexts of the two sides, by way of host memory: the sender's, which came
with the value, and the receiver's.  The copy is made when the value is received, and belongs to who receives it.

Like every rendezvous it is for one event loop.  Devices whose work is done by other threads are its contexts' business;
partitions that run in loops of their own are that of a remote rendezvous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final

import numpy as np
from anyio import WouldBlock

from asyncexec.framework.derived import make_derived
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.framework.rendezvous import (
    NO_ARGS,
    DoneCallback,
    Received,
    RendezvousArgs,
    RendezvousStatistics,
    RendezvousWaiter,
    create_key,
    parse_key,
)
from asyncexec.rendezvous.local import LocalRendezvous, Waiter, recv_is_cancelled


class Rendezvous(LocalRendezvous):
    """A table of values by key, through which ``_Send`` and ``_Recv`` nodes pass values.

    ``send(key, value)`` gives a value, and ``value, is_dead, _ = await recv(key)`` takes one; either may come first.
    Values of one key are received in the order of sending, each once.  A key is any hashable object; ``create_key``
    makes the key of a node from its attrs.

    A value is a numpy array or scalar, ``bytes`` or, for dtype ``object``, any Python object, with the dtype of the
    node.  A value in the memory of a device is copied to the memory that the receiver wants.  A dead value is None, and
    *is_dead* is True.

    ``start_abort(error)`` ends the rendezvous: waiting receivers, and all later calls, get a copy of *error*, an
    OpError.  An executor aborts it with the error of its step.  Make all calls in one event loop.
    """

    __slots__ = ("copying",)

    create_key: Final = staticmethod(create_key)
    parse_key: Final = staticmethod(parse_key)

    def __init__(self) -> None:
        super().__init__()
        self.copying: set[CopyingWaiter] = set()

    @property
    def has_in_flight(self) -> bool:
        """Whether a copy is under way."""
        return bool(self.copying)

    def recv_nowait(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*; ``anyio.WouldBlock`` if there is none yet, or if it has to be copied."""
        found = self.peek(key)
        if found is not None and must_be_copied(found, args):
            raise WouldBlock
        return super().recv_nowait(key, args)

    def recv_async(self, key: Hashable, args: RendezvousArgs, done: DoneCallback) -> RendezvousWaiter | None:
        """Have *done* called with the next value sent on *key*; None when it has been called already.

        A value that must be copied is copied in a task of its own.  That has ended when *done* is called, after an
        abort or a cancel as well.
        """
        found = self.peek(key)
        if self.error is not None or (found is not None and not must_be_copied(found, args)):
            return super().recv_async(key, args, done)
        waiter = CopyingWaiter(self, key, args, done)
        if found is None:
            self._add_waiter(waiter)
        else:
            waiter.offer(super().recv_nowait(key, args))
        return waiter

    async def recv(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*, in the memory that *args* asks for; the caller's task copies it."""
        found = await super().recv(key, args)
        if not must_be_copied(found, args):
            return found
        try:
            return await copied(key, found, args)
        except asyncio.CancelledError:
            self.put_back(key, found)
            raise

    def start_abort(self, error: OpError) -> None:
        """Wake every waiter with *error*, refuse later calls, and cancel the copies of ``recv_async``."""
        super().start_abort(error)
        for waiter in self.copying:
            waiter.interrupt()

    def statistics(self) -> RendezvousStatistics:
        """The number of values that wait to be received, and of receivers that wait."""
        local = super().statistics()
        return RendezvousStatistics(local.num_items, local.num_waiters + len(self.copying))


class CopyingWaiter(Waiter):
    """A Recv that waits in the table for a value, and then, where there is need, for its copy."""

    __slots__ = ("_args", "_copy", "_intra_process", "_is_cancelled", "_item")

    def __init__(self, rendezvous: Rendezvous, key: Hashable, args: RendezvousArgs, done: DoneCallback) -> None:
        super().__init__(rendezvous, key, done)
        self._intra_process = rendezvous
        self._args = args
        self._item: Received | None = None
        self._copy: asyncio.Task[Received] | None = None
        self._is_cancelled = False

    def offer(self, item: Received) -> bool:
        if not must_be_copied(item, self._args):
            return super().offer(item)
        self._intra_process.copying.add(self)
        self._item = item
        self._copy = asyncio.get_running_loop().create_task(copied(self.key, item, self._args))
        # Not the end of the task's own body: that never runs if the task is cancelled before it begins.
        self._copy.add_done_callback(self._on_copied)
        return True

    def cancel(self) -> bool:
        """Take it out of the table, or end the copy; False when it has been called back before."""
        if self not in self._intra_process.copying:
            return super().cancel()
        self._is_cancelled = True
        self.interrupt()
        return True

    def interrupt(self) -> None:
        """End the copy; the callback is called when it has ended."""
        if self._copy is not None:
            self._copy.cancel()

    def _on_copied(self, copy: asyncio.Task[Received]) -> None:
        self._intra_process.copying.discard(self)
        item, self._item, self._copy = self._item, None, None
        assert item is not None
        aborted_by = self._intra_process.error
        failure = None if copy.cancelled() else copy.exception()
        if aborted_by is not None:
            self.fail(make_derived(aborted_by))
        elif self._is_cancelled or copy.cancelled():
            self._intra_process.put_back(self.key, item)
            self.fail(recv_is_cancelled())
        elif failure is None:
            super().offer(copy.result())
        elif isinstance(failure, OpError):
            self.fail(failure)


def must_be_copied(item: Received, args: RendezvousArgs) -> bool:
    """Whether *item* is not in the memory that *args* asks for."""
    _, is_dead, sent = item
    if is_dead or (sent.device_context is None and args.device_context is None):
        return False
    return sent.memory is not args.memory


async def copied(key: Hashable, item: Received, args: RendezvousArgs) -> Received:
    """*item*, its value in the memory that *args* asks for.

    Raises:
        InvalidArgumentError: the value has no form in a device's memory: strings and Python objects have not.
        InternalError: a device raised something that has no status code.
    """
    value, is_dead, sent = item
    if isinstance(value, bytes) or (isinstance(value, np.ndarray) and value.dtype.hasobject):
        kind = "string" if isinstance(value, bytes) else "string or object"
        raise InvalidArgumentError(f"Non-DMA-safe {kind} tensor may not be copied from/to a device. Key: {key}")
    source, destination = sent.memory, args.memory
    try:
        if source is not None:
            value = await source.copy_out(value)
        if destination is not None:
            value = await destination.copy_in(value)
    except OpError:
        raise
    except Exception as error:
        raise InternalError(f"copying the value of {key} raised {type(error).__name__}: {error}") from error
    return value, is_dead, sent
