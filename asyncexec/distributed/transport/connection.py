"""Connection: messages and tensors to a peer, and from it.

What is sent in one turn of the event loop goes out in one write, in the next turn.  A large tensor goes out from the
memory of its array, piece by piece; small frames go before its next piece.  While the system takes no more, everything
waits here: ``queued_bytes`` tells how much, and ``limit_queue`` limits it.  Else a caller that sends without end must
look at it, and wait, or end the step.  A peer that takes nothing does not answer pings either, and is lost after
``silence_s``; but who means harm may send answers all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from asyncexec.distributed.transport.frames import (
    BYE,
    FIRST_OWN_KIND,
    FRAME,
    PING,
    PING_BODY,
    PONG,
    PONG_BODY,
    BrokenFrameError,
    FrameReader,
)
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.liveness import Liveness
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.outbox import Outbox
from asyncexec.distributed.transport.receiver import Receiver
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, OpError, UnavailableError
from asyncexec.framework.tensor_codec import encode

__all__ = ["Connection", "Receiver"]

# At first, a few pings one after the other: one alone may have met a busy event loop.
_FIRST_PINGS: Final = 4
_OPEN, _CLOSING, _CLOSED = range(3)


class Crossings(NamedTuple):
    """The tensors that went by a connection, and the bytes of their payloads."""

    tensors_sent: int = 0
    bytes_sent: int = 0
    tensors_received: int = 0
    bytes_received: int = 0


class _QueueLimit(NamedTuple):
    max_bytes: int
    on_full: Callable[[], object]


class Connection:
    """One end of a connection; ``dial`` and ``listen`` make it.

    Attributes:
        peer: who is at the other end.
        address: where the peer was dialed, or what it dialed.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        peer: Identity,
        address: str,
        options: TransportOptions,
        first_ping: tuple[int, int],
        *,
        objects: bool,
    ) -> None:
        self.peer: Identity = peer
        self.address: str = address
        self._transport = transport
        self._options = options
        self._objects = objects
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(options.chunk_bytes)
        self._liveness = Liveness(options.silent_heartbeats, first_ping)
        self._num_first_pings = 0
        self._num_tensors = self._num_tensor_bytes = 0  # sent
        self._asked_ns: int | None = None  # the clock in a ping that has not been answered
        self._receiver: Receiver | None = None
        self._reader: FrameReader | None = None
        self._state = _OPEN
        self._has_said_bye = False
        self._is_paused = False
        self._queue_limit: _QueueLimit | None = None
        self._flush_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None  # the next heartbeat, or the end of the grace period
        self._ended = self._loop.create_future()  # when the transport is closed

    @property
    def clock_offset_ns(self) -> int:
        """The peer's clock (``framework.clock.monotonic_ns``) less ours, by the ping with the shortest round trip."""
        return self._liveness.clock_offset_ns

    @property
    def round_trip_ns(self) -> int:
        """How long the last ping took that the peer has answered: on the way, and in both event loops."""
        return self._liveness.round_trip_ns

    @property
    def shortest_round_trip_ns(self) -> int:
        """How long the fastest of the last pings took: little but the way."""
        return self._liveness.shortest_round_trip_ns

    @property
    def crossings(self) -> Crossings:
        """The tensors that went by it so far; those count as sent that wait here."""
        reader = self._reader
        received = (0, 0) if reader is None else (reader.num_tensors, reader.num_tensor_bytes)
        return Crossings(self._num_tensors, self._num_tensor_bytes, *received)

    @property
    def queued_bytes(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._outbox.num_bytes + (0 if self._state == _CLOSED else self._transport.get_write_buffer_size())

    @property
    def is_open(self) -> bool:
        """Whether something can be sent."""
        return self._state == _OPEN

    def limit_queue(self, max_bytes: int, on_full: Callable[[], object]) -> None:
        """Forget what waits if more is to be sent while more than *max_bytes* wait; *on_full* is called then, once."""
        self._queue_limit = _QueueLimit(max_bytes, on_full)

    def send(self, kind: int, body: bytes = b"", *, after_tensors: bool = False) -> None:
        """Send a message; *after_tensors* lets it arrive after all tensors that have been sent, large ones too.

        Raises:
            InvalidArgumentError: *kind* is not within 0 and 127, or *body* is longer than ``max_message_bytes``.
            UnavailableError: the connection is closed or lost.
        """
        if not 0 <= kind < FIRST_OWN_KIND:
            raise InvalidArgumentError(f"messages have kinds of 0 to {FIRST_OWN_KIND - 1}, not {kind}")
        if len(body) > self._options.max_message_bytes:
            raise InvalidArgumentError(
                f"a message to {self.peer.name} has {len(body)} bytes, and at most "
                f"{self._options.max_message_bytes} (max_message_bytes) may go"
            )
        self._check_open()
        self._check_queue()
        self._outbox.add(kind, body, after_tensors=after_tensors)
        if self._flush_handle is None:
            self._schedule_flush()

    def send_tensor(self, step_id: int, key: str, value: object, is_dead: bool = False) -> None:
        """Send a tensor.  A large array goes out of its own memory: nobody may change it any more.

        A large tensor may arrive later than what is sent after it.  Of a dead one, no value is sent.

        Raises:
            InvalidArgumentError: *value* has no form on the way; nothing is sent.
            ResourceExhaustedError: it has more than ``max_tensor_bytes``; nothing is sent.
            UnavailableError: the connection is closed or lost.
        """
        self._check_open()
        tensor = encode(step_id, key, value, is_dead, objects=self._objects, max_bytes=self._options.max_tensor_bytes)
        self._check_queue()
        self._outbox.add_tensor(step_id, tensor)
        self._num_tensors += 1
        self._num_tensor_bytes += len(tensor.payload)
        if self._flush_handle is None:
            self._schedule_flush()

    def drop_step(self, step_id: int) -> None:
        """Send no more of the large tensors of a step; the peer forgets the one that has begun."""
        self._outbox.drop_step(step_id)
        if self._outbox and self._flush_handle is None:
            self._schedule_flush()

    async def close(self) -> None:
        """Send what is queued, and close; after ``close_grace_s``, close all the same.  The receiver is not told."""
        if self._state == _OPEN:
            self._state = _CLOSING
            self._set_timer(self._options.close_grace_s, self.abort)
            if self._flush_handle is None:
                self._schedule_flush()
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once; nothing more is sent.  The receiver is not told."""
        if self._state != _CLOSED:
            self._end()
            self._transport.abort()

    # -- called by the protocol -----------------------------------------------------------------------------------

    def start(self, receiver: Receiver, data: bytes) -> None:
        """Give what comes to *receiver*, *data* first; BrokenFrameError as ``advance``."""
        self._receiver = receiver
        self._reader = FrameReader(receiver, self._on_frame, self._options, objects=self._objects)
        # Any byte that the system does not take pauses us, so all that waits is in the outbox, but for a piece.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._set_timer(self._options.heartbeat_s, self._on_heartbeat)
        self._ping()
        self._reader.feed(data)

    @property
    def reader(self) -> FrameReader:
        """Where what comes is to go."""
        assert self._reader is not None  # since start
        return self._reader

    def pause(self) -> None:
        """The system takes no more for now."""
        self._is_paused = True

    def resume(self) -> None:
        """The system takes more."""
        self._is_paused = False
        if self._flush_handle is None:
            self._flush()

    def lose(self, error: BaseException | str | None) -> None:
        """The connection cannot go on."""
        was_open = self._state == _OPEN
        self.abort()
        if was_open and self._receiver is not None:
            self._receiver.on_lost(self._lost(error))

    def on_ended(self, error: BaseException | None) -> None:
        """The transport is closed."""
        self.lose(error)
        if not self._ended.done():
            self._ended.set_result(None)

    # -- sending --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._state != _OPEN:
            raise UnavailableError(f"the connection with {self.peer} at {self.address} is closed")

    def _check_queue(self) -> None:
        limit = self._queue_limit
        if limit is not None and self._outbox.num_bytes > limit.max_bytes:
            self._queue_limit = None
            self._outbox.drop()
            self._loop.call_soon(limit.on_full)  # and not now, within the call of somebody who sends

    def _schedule_flush(self) -> None:
        if not self._is_paused and self._state != _CLOSED:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what goes out next.  More than that waits for another turn, so that others get theirs."""
        self._flush_handle = None
        if self._is_paused or self._has_said_bye or self._state == _CLOSED:
            return
        if self._asked_ns is not None:
            self._outbox.add_first(PONG, PONG_BODY.pack(self._asked_ns, monotonic_ns()))
            self._asked_ns = None
        for buffer in self._outbox.next_buffers():
            self._transport.write(buffer)
        if self._outbox:
            self._schedule_flush()
        elif self._state == _CLOSING:
            self._has_said_bye = True
            self._transport.write(FRAME.pack(0, BYE))

    # -- receiving ------------------------------------------------------------------------------------------------

    def _on_frame(self, kind: int, body: bytes) -> None:
        if kind < FIRST_OWN_KIND:
            if self._state == _OPEN:
                assert self._receiver is not None  # since start
                self._receiver.on_message(kind, body)
        elif kind == PING:
            (self._asked_ns,) = PING_BODY.unpack(body)
            if self._flush_handle is None:
                self._schedule_flush()
        elif kind == PONG:
            sent_ns, peer_ns = PONG_BODY.unpack(body)
            self._liveness.on_pong(sent_ns, peer_ns, monotonic_ns())
            if self._num_first_pings < _FIRST_PINGS:
                self._num_first_pings += 1
                self._ping()
        elif kind == BYE:
            self.lose("it has closed it")

    # -- heartbeats and the end -----------------------------------------------------------------------------------

    def _on_heartbeat(self) -> None:
        self._set_timer(self._options.heartbeat_s, self._on_heartbeat)
        self._ping()
        if self._liveness.is_silent:
            self.lose(f"it has not answered for {self._options.silence_s:g} s")

    def _ping(self) -> None:
        if self._state == _OPEN and self._liveness.on_heartbeat():
            self._outbox.add_first(PING, PING_BODY.pack(monotonic_ns()))
            if self._flush_handle is None:
                self._schedule_flush()

    def _set_timer(self, delay_s: float, call: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, call)

    def _end(self) -> None:
        self._state = _CLOSED
        self._outbox.clear()
        if self._reader is not None:
            self._reader.stop()
        for handle in (self._timer, self._flush_handle):
            if handle is not None:
                handle.cancel()
        self._timer = self._flush_handle = None

    def _lost(self, error: BaseException | str | None) -> OpError:
        if isinstance(error, BrokenFrameError):
            return DataLossError(f"{self.peer} at {self.address} has sent what is no frame: {error.message}")
        why = "it has ended" if error is None else error if isinstance(error, str) else f"{error}" or repr(error)
        lost = UnavailableError(f"the connection with {self.peer} at {self.address} is lost: {why}")
        lost.__cause__ = error if isinstance(error, BaseException) else None
        return lost
