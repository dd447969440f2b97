"""What waits to go out, and what goes out next.  It knows no socket.

Small frames keep their order, and go before the next piece of a large tensor.  Large tensors go one after the other.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from asyncexec.distributed.transport.frames import CHUNK, CUT, FRAME, LARGE_TENSOR, TENSOR
from asyncexec.framework.tensor_codec import COPIED_BYTES, EncodedTensor

Buffer: TypeAlias = bytes | memoryview
_CUT_FRAME: Final = FRAME.pack(0, CUT)


class Outbox:
    """Frames that wait, and what is to be written next."""

    __slots__ = ("_chunk_bytes", "_frames", "_has_begun", "_large", "_must_cut", "num_bytes")

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._frames: deque[Buffer] = deque()
        self._has_begun = False  # whether the first of them has, and is only the rest of it
        self._large: deque[_LargeTensor] = deque()  # only the first may have begun
        self._must_cut = False  # the peer waits for the rest of a tensor that is no longer there
        self.num_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self._frames or self._large or self._must_cut)

    def add(self, kind: int, body: bytes, *, after_tensors: bool = False) -> None:
        """Queue a frame; *after_tensors* lets all large tensors that wait go first."""
        frame = FRAME.pack(len(body), kind) + body
        self.num_bytes += len(frame)
        if after_tensors and self._large:
            self._large[-1].after.append(frame)
        else:
            self._frames.append(frame)

    def add_first(self, kind: int, body: bytes) -> None:
        """Queue a frame before all that have not begun to go out."""
        frame = FRAME.pack(len(body), kind) + body
        self._frames.insert(int(self._has_begun), frame)
        self.num_bytes += len(frame)

    def add_tensor(self, step_id: int, tensor: EncodedTensor) -> None:
        """Queue a tensor."""
        head, payload = tensor.head, tensor.payload
        if len(payload) > COPIED_BYTES:
            self._large.append(_LargeTensor(step_id, head, memoryview(payload)))
            self.num_bytes += len(payload)
            return
        frame = b"".join((FRAME.pack(len(head) + len(payload), TENSOR), head, payload))
        self._frames.append(frame)
        self.num_bytes += len(frame)

    def drop_step(self, step_id: int) -> None:
        """Forget the large tensors of a step; the one that has begun ends early."""
        if not self._large:
            return
        first, kept = self._large[0], deque[_LargeTensor]()
        for large in self._large:
            if large.step_id != step_id:
                kept.append(large)
                continue
            self.num_bytes -= len(large.left)
            (kept[-1].after if kept else self._frames).extend(large.after)
        self._large = kept
        if first.head is None and first.step_id == step_id:
            self._must_cut = True

    def drop(self) -> None:
        """Forget all that has not begun to go out; a large tensor that has begun ends early."""
        rest = self._frames[0] if self._has_begun else b""
        self._frames.clear()
        if rest:
            self._frames.append(rest)
        if self._large and self._large[0].head is None:
            self._must_cut = True
        self._large.clear()
        self.num_bytes = len(rest)

    def clear(self) -> None:
        """Forget everything."""
        self._frames.clear()
        self._has_begun = self._must_cut = False
        self._large.clear()
        self.num_bytes = 0

    def next_buffers(self) -> list[Buffer]:
        """What goes out next: small frames, and a piece of a large tensor if there is room, each of about a chunk."""
        small, size = self._take_frames()
        self.num_bytes -= size
        if self._has_begun:
            return small
        if self._must_cut:
            self._must_cut = False
            small.append(_CUT_FRAME)
        if not self._large:
            return _joined(small)
        large = self._large[0]
        if large.head is not None:
            small += (FRAME.pack(len(large.head), LARGE_TENSOR), large.head)
            large.head = None
        piece, large.left = large.left[: self._chunk_bytes], large.left[self._chunk_bytes :]
        if not large.left:
            self._large.popleft()
            self._frames.extend(large.after)
        self.num_bytes -= len(piece)
        small.append(FRAME.pack(len(piece), CHUNK))
        return [*_joined(small), piece]

    def _take_frames(self) -> tuple[list[Buffer], int]:
        """Frames of at most a chunk; of a larger one, alone, its next piece."""
        taken: list[Buffer] = []
        size = 0
        frames = self._frames
        while frames and size + len(frames[0]) <= self._chunk_bytes:
            frame = frames.popleft()
            self._has_begun = False
            taken.append(frame)
            size += len(frame)
        if frames and not taken:
            frame = memoryview(frames[0])
            taken.append(frame[: self._chunk_bytes])
            frames[0] = frame[self._chunk_bytes :]
            self._has_begun = True
            size = self._chunk_bytes
        return taken, size


class _LargeTensor:
    __slots__ = ("after", "head", "left", "step_id")

    def __init__(self, step_id: int, head: bytes, payload: memoryview) -> None:
        self.step_id = step_id
        self.head: bytes | None = head  # until it has gone out
        self.left = payload
        self.after: list[bytes] = []  # frames that go when all of it has gone out


def _joined(buffers: list[Buffer]) -> list[Buffer]:
    return buffers if len(buffers) <= 1 else [b"".join(buffers)]
