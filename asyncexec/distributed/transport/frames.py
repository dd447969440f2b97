"""Bytes into frames.  It knows no socket: it tells where the next bytes are to go, and is told how many came.

A frame is the length of its body (u32), its kind (u8), and the body.  Kinds below 128 are messages of the caller.  A
large tensor is a frame with its head and frames with pieces of its payload, which go straight into the memory of the
array; other frames may come between them, but no other large tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import numpy as np

from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.receiver import Receiver
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import DataLossError, OpError
from asyncexec.framework.tensor_codec import (
    COPIED_BYTES,
    MAX_HEAD_BYTES,
    ArrivingTensor,
    TensorHead,
    prepare,
    read_head,
)

FRAME: Final = struct.Struct("<IB")
FIRST_OWN_KIND: Final = 128
TENSOR: Final = 128  # head and payload
LARGE_TENSOR: Final = 129  # the head alone
CHUNK: Final = 130  # the next piece of the payload
CUT: Final = 131  # there will be no more pieces
PING: Final = 132  # the sender's clock
PONG: Final = 133  # the clock in the ping, and the sender's own
BYE: Final = 134  # the last frame of an end that closes
PING_BODY: Final = struct.Struct("<q")
PONG_BODY: Final = struct.Struct("<qq")

_BUFFER_BYTES: Final = 2 * (MAX_HEAD_BYTES + COPIED_BYTES)  # each frame but large messages fits in
# While a large tensor arrives, most bytes are its own: few others are read with the header of the next piece.
_SHORT_READ_BYTES: Final = 4096
_MAX_LENGTHS: Final = {
    TENSOR: MAX_HEAD_BYTES + COPIED_BYTES,
    LARGE_TENSOR: MAX_HEAD_BYTES,
    CUT: 0,
    PING: PING_BODY.size,
    PONG: PONG_BODY.size,
    BYE: 0,
}
_EXACT: Final = frozenset({CUT, PING, PONG, BYE})


class BrokenFrameError(DataLossError):
    """What came is no frame: nothing after it can be understood."""


class FrameReader:
    """Gives tensors to a receiver, and all other frames to *on_frame*; it may be stopped by either.

    Attributes:
        num_tensors: how many it has given to the receiver; num_tensor_bytes: of their payloads.
    """

    def __init__(
        self, receiver: Receiver, on_frame: Callable[[int, bytes], None], options: TransportOptions, *, objects: bool
    ) -> None:
        self._receiver = receiver
        self._on_frame = on_frame
        self._options = options
        self._objects = objects
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = self._end = 0  # of what has not been read in the buffer
        self._rest: memoryview | None = None  # where the rest of a body goes, if not into the buffer
        self._message: tuple[int, Array] | None = None  # that *rest* is of, else it is of the tensor
        self._large: _LargeTensor | None = None
        self._is_stopped = False
        self.num_tensors: int = 0
        self.num_tensor_bytes: int = 0

    def stop(self) -> None:
        """Read no more frames, and keep nothing."""
        self._is_stopped = True
        self._large = self._message = self._rest = None

    def feed(self, data: bytes) -> None:
        """Read *data*, which is no longer than the buffer, before anything else."""
        self._buffer[: len(data)] = data
        self.advance(len(data))

    def free_memory(self) -> memoryview:
        """Where the next bytes are to go."""
        if self._rest is not None:
            return self._rest
        if self._start == self._end or self._is_stopped:
            self._start = self._end = 0
        elif self._start and _BUFFER_BYTES - self._end < _SHORT_READ_BYTES:
            unread = self._end - self._start
            self._buffer[:unread] = self._buffer[self._start : self._end]
            self._start, self._end = 0, unread
        if self._large is not None and not self._large.num_skipped:
            return self._buffer[self._end : self._end + _SHORT_READ_BYTES]
        return self._buffer[self._end :]

    def advance(self, num_bytes: int) -> None:
        """Read frames: *num_bytes* more have come.

        Raises:
            BrokenFrameError: what came is no frame.
        """
        if self._rest is None:
            self._end += num_bytes
        elif num_bytes < len(self._rest):
            self._rest = self._rest[num_bytes:]
            return
        else:
            self._rest = None
            self._end_body()
        while self._read_frame():
            pass

    def _read_frame(self) -> bool:
        """Read a frame from the buffer, or begin to; False if it is not all there."""
        if self._is_stopped or self._rest is not None:
            return False
        if self._large is not None and self._large.num_skipped:
            return self._skip(self._large)
        available = self._end - self._start - FRAME.size
        if available < 0:
            return False
        length, kind = FRAME.unpack_from(self._buffer, self._start)
        body = self._start + FRAME.size
        if kind == CHUNK:
            self._start = body
            self._begin_chunk(length)
            return True
        self._check_length(kind, length)
        if length <= available:
            self._start = body + length
            self._end_frame(kind, self._buffer[body : self._start])
            return True
        if FRAME.size + length > _BUFFER_BYTES:
            memory = np.empty(length, np.uint8)
            self._message = kind, memory
            self._rest = self._take_from_buffer(body, memory.data)
        return False

    def _check_length(self, kind: int, length: int) -> None:
        most = self._options.max_message_bytes if kind < FIRST_OWN_KIND else _MAX_LENGTHS.get(kind)
        if most is None:
            raise BrokenFrameError(f"there are no frames of kind {kind}")
        if length > most or (kind in _EXACT and length != most):
            raise BrokenFrameError(f"a frame of kind {kind} has {length} bytes, and {most} are the most")

    def _take_from_buffer(self, start: int, memory: memoryview) -> memoryview:
        """Move what is in the buffer from *start* on into *memory*, as far as it goes; what is left of that."""
        taken = min(self._end - start, len(memory))
        memory[:taken] = self._buffer[start : start + taken]
        self._start = start + taken
        return memory[taken:]

    def _end_body(self) -> None:
        if self._message is None:
            self._end_chunk()
        else:
            (kind, memory), self._message = self._message, None
            self._on_frame(kind, memory.tobytes())

    def _end_frame(self, kind: int, body: memoryview) -> None:
        if kind == TENSOR:
            self._read_tensor(body)
        elif kind == LARGE_TENSOR:
            self._begin_large(body)
        elif kind == CUT:
            if self._large is None:
                raise BrokenFrameError("a tensor is cut that had not begun")
            self._large = None
        else:
            self._on_frame(kind, bytes(body))

    def _read_tensor(self, body: memoryview) -> None:
        head = _complete(read_head(body))
        try:
            value = self._prepare(head, body[head.size :]).value()
        except OpError as error:
            self._receiver.on_bad_tensor(head.step_id, head.key, error)
        else:
            self._give(head, value)

    def _give(self, head: TensorHead, value: object) -> None:
        self.num_tensors += 1
        self.num_tensor_bytes += head.num_bytes
        self._receiver.on_tensor(head.step_id, head.key, value, head.is_dead)

    def _prepare(self, head: TensorHead, payload: memoryview | None = None) -> ArrivingTensor:
        return prepare(head, payload, objects=self._objects, max_bytes=self._options.max_tensor_bytes)

    def _begin_large(self, body: memoryview) -> None:
        head = _complete(read_head(body))
        if self._large is not None:
            raise BrokenFrameError("a large tensor begins before another has ended")
        if head.size != len(body) or not head.num_bytes:
            raise BrokenFrameError("the head of a large tensor has no tensor")
        try:
            self._large = _LargeTensor(head.num_bytes, self._prepare(head))
        except OpError as error:
            self._large = _LargeTensor(head.num_bytes, None)
            self._receiver.on_bad_tensor(head.step_id, head.key, error)

    def _begin_chunk(self, length: int) -> None:
        large = self._large
        if large is None:
            raise BrokenFrameError("there is a piece of a tensor that had not begun")
        if not 0 < length <= large.num_left:
            raise BrokenFrameError(f"a piece of a tensor has {length} bytes, and {large.num_left} were left of it")
        large.num_left -= length
        if large.memory is None:
            large.num_skipped = length
            return
        rest = self._take_from_buffer(self._start, large.memory[:length])
        large.memory = large.memory[length:]
        if rest:
            self._rest = rest
        else:
            self._end_chunk()

    def _skip(self, large: _LargeTensor) -> bool:
        skipped = min(large.num_skipped, self._end - self._start)
        self._start += skipped
        large.num_skipped -= skipped
        if not large.num_skipped and not large.num_left:
            self._large = None
        return skipped > 0

    def _end_chunk(self) -> None:
        large = self._large
        if large is None or large.arriving is None or large.num_left:
            return
        self._large = None
        head = large.arriving.head
        try:
            value = large.arriving.value()
        except OpError as error:
            self._receiver.on_bad_tensor(head.step_id, head.key, error)
        else:
            self._give(head, value)


class _LargeTensor:
    """A large tensor that has begun: where its next piece goes, or None if it is thrown away."""

    __slots__ = ("arriving", "memory", "num_left", "num_skipped")

    def __init__(self, num_bytes: int, arriving: ArrivingTensor | None) -> None:
        self.arriving = arriving
        self.memory = None if arriving is None else memoryview(arriving.memory)
        self.num_left = num_bytes  # in pieces that have not begun
        self.num_skipped = 0  # what is left to be thrown away of the piece that has begun


def _complete(head: TensorHead | None) -> TensorHead:
    if head is None:
        raise BrokenFrameError("the head of a tensor is cut short")
    return head
