"""Frames: any cut of the bytes gives the same frames, and what is no frame is told."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.distributed.transport import frames
from asyncexec.distributed.transport.frames import (
    CHUNK,
    CUT,
    FRAME,
    LARGE_TENSOR,
    PING,
    PONG,
    TENSOR,
    BrokenFrameError,
    FrameReader,
)
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.outbox import Outbox
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.tensor_codec import HEAD, encode
from tests.distributed.transport.ends import Recorder

OPTIONS = TransportOptions(max_message_bytes=2_000_000, max_tensor_bytes=1_000_000)
LARGE = np.arange(30_000, dtype=np.float64)


class Reading:
    """A reader, fed by hand; ``at`` has what came, other frames among the messages."""

    def __init__(self) -> None:
        self.at = Recorder()
        self.reader = FrameReader(self.at, self.at.on_message, OPTIONS, objects=False)

    def feed(self, data: bytes, most: int = 2**30) -> None:
        """Give *data* in pieces of at most *most* bytes, as a socket would."""
        view = memoryview(data)
        while view:
            memory = self.reader.free_memory()
            taken = min(len(memory), len(view), most)
            assert taken > 0
            memory[:taken] = view[:taken]
            view = view[taken:]
            self.reader.advance(taken)


def frame(kind: int, body: bytes = b"") -> bytes:
    return FRAME.pack(len(body), kind) + body


def written(outbox: Outbox) -> bytes:
    data = b""
    while outbox:
        data += b"".join(outbox.next_buffers())
    return data


def tensor(value: Any, key: str = "k", step_id: int = 1) -> Any:
    return encode(step_id, key, value, False, objects=False, max_bytes=2**40)


def head_of(value: Any) -> bytes:
    head: bytes = tensor(value).head
    return head


@given(most=st.integers(1, 70_000), chunk_bytes=st.sampled_from([1000, 4096, 100_000, 2**20]))
def test_any_cut_of_the_bytes_gives_the_same_frames(most: int, chunk_bytes: int) -> None:
    outbox = Outbox(chunk_bytes)
    bodies = [b"", b"x" * 70_000, b"y" * 5, b"z" * 400_000]
    for body in bodies:
        outbox.add(9, body)
    outbox.add_tensor(1, tensor(LARGE, "large"))
    outbox.add_tensor(2, tensor(np.float32(3), "small", 2))
    outbox.add_tensor(3, tensor(LARGE[::-1], "other", 3))
    reading = Reading()
    reading.feed(written(outbox), max(most, 100))
    assert reading.at.messages == [(9, body) for body in bodies]
    assert sorted((step, key) for step, key, _, _ in reading.at.tensors) == [(1, "large"), (2, "small"), (3, "other")]
    values = {key: value for _, key, value, _ in reading.at.tensors}
    np.testing.assert_array_equal(values["large"], LARGE)
    np.testing.assert_array_equal(values["other"], LARGE[::-1])
    assert outbox.num_bytes == 0


def test_byte_by_byte() -> None:
    outbox = Outbox(2**20)
    outbox.add(1, b"abc")
    outbox.add_tensor(1, tensor(np.arange(5)))
    outbox.add(2, b"")
    reading = Reading()
    reading.feed(written(outbox), 1)
    assert reading.at.messages == [(1, b"abc"), (2, b"")]
    np.testing.assert_array_equal(reading.at.tensors[0][2], np.arange(5))


def test_other_frames_come_between_the_pieces_of_a_tensor() -> None:
    head, payload = head_of(LARGE), LARGE.tobytes()
    reading = Reading()
    reading.feed(frame(LARGE_TENSOR, head) + frame(CHUNK, payload[:100_000]) + frame(5, b"abort"))
    assert (reading.at.messages, reading.at.tensors) == ([(5, b"abort")], [])
    reading.feed(frame(CHUNK, payload[100_000:]))
    np.testing.assert_array_equal(reading.at.tensors[0][2], LARGE)


def test_a_cut_tensor_is_forgotten_and_another_may_begin() -> None:
    head, payload = head_of(LARGE), LARGE.tobytes()
    reading = Reading()
    reading.feed(frame(LARGE_TENSOR, head) + frame(CHUNK, payload[:9]) + frame(CUT))
    reading.feed(frame(LARGE_TENSOR, head) + frame(CHUNK, payload))
    assert len(reading.at.tensors) == 1
    assert reading.at.bad == []


@pytest.mark.parametrize("most", [1, 1000, 2**30])
def test_a_large_tensor_that_lies_is_told_at_once_and_skipped(most: int) -> None:
    size = OPTIONS.max_tensor_bytes + 8
    head = HEAD.pack(3, 4, 2, 0, 1, size) + b"edge" + struct.pack("<Q", size // 8)
    reading = Reading()
    reading.feed(frame(LARGE_TENSOR, head), most)
    ((step, key, error),) = reading.at.bad
    assert (step, key, type(error)) == (3, "edge", ResourceExhaustedError)
    part = frame(CHUNK, bytes(size // 8))
    for _ in range(8):
        reading.feed(part if most > 1 else part[:0], most)
    if most == 1:  # all of it byte by byte would take long
        reading.feed(frame(CHUNK, b"ab") + frame(CUT), most)
    reading.feed(frame(1, b"next") + frame(LARGE_TENSOR, head_of(LARGE)) + frame(CHUNK, LARGE.tobytes()), 2**30)
    assert reading.at.messages == [(1, b"next")]
    assert len(reading.at.tensors) == 1
    assert len(reading.at.bad) == 1


def test_a_small_tensor_that_lies_is_told_and_the_next_comes() -> None:
    lie = HEAD.pack(3, 4, 1, 0, 0, 4) + b"edge" + b"123"
    good = tensor(np.float32(1))
    reading = Reading()
    reading.feed(frame(TENSOR, lie) + frame(TENSOR, good.head + good.payload))
    ((step, key, error),) = reading.at.bad
    assert (step, key) == (3, "edge")
    assert isinstance(error, InvalidArgumentError)
    assert len(reading.at.tensors) == 1


BROKEN = {
    "kind": (frame(200, b"x"), "no frames of kind 200"),
    "long message": (FRAME.pack(OPTIONS.max_message_bytes + 1, 3), "a frame of kind 3 has 2000001 bytes"),
    "long tensor": (FRAME.pack(2**32 - 1, TENSOR), "a frame of kind 128 has 4294967295 bytes"),
    "long head": (FRAME.pack(2**20, LARGE_TENSOR), "a frame of kind 129"),
    "short ping": (frame(PING, b"1234567"), "a frame of kind 132 has 7 bytes"),
    "short pong": (frame(PONG, b"12345678"), "a frame of kind 133 has 8 bytes"),
    "no head": (frame(TENSOR, b"1234"), "the head of a tensor is cut short"),
    "key beyond the frame": (frame(TENSOR, HEAD.pack(1, 500, 1, 0, 0, 0) + b"k"), "the head of a tensor is cut short"),
    "rank beyond the frame": (frame(TENSOR, HEAD.pack(1, 1, 1, 0, 200, 0) + b"k"), "the head of a tensor is cut short"),
    "piece of nothing": (frame(CHUNK, b"x"), "a tensor that had not begun"),
    "cut of nothing": (frame(CUT), "a tensor is cut that had not begun"),
    "nothing as a large tensor": (frame(LARGE_TENSOR, HEAD.pack(1, 1, 1, 0, 0, 0) + b"k"), "has no tensor"),
    "large tensor with a payload": (frame(LARGE_TENSOR, head_of(LARGE) + b"x"), "has no tensor"),
    "two at once": (frame(LARGE_TENSOR, head_of(LARGE)) * 2, "begins before another has ended"),
    "empty piece": (frame(LARGE_TENSOR, head_of(LARGE)) + frame(CHUNK), "has 0 bytes"),
    "long piece": (
        frame(LARGE_TENSOR, head_of(LARGE)) + FRAME.pack(240_001, CHUNK), "has 240001 bytes, and 240000 were left"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_frame_is_told(what: str) -> None:
    data, text = BROKEN[what]
    reading = Reading()
    with pytest.raises(BrokenFrameError, match=text):
        reading.feed(data)
    assert reading.at.tensors == []


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([data for data, _ in BROKEN.values()])), max_size=9))
def test_garbage_is_frames_or_broken(pieces: list[bytes]) -> None:
    reading = Reading()
    try:
        for piece in pieces:
            reading.feed(piece)
    except BrokenFrameError:
        return
    assert len(reading.reader.free_memory()) > 0


@given(kind=st.sampled_from([3, *range(126, 137)]), body=st.binary(max_size=60))
def test_frames_of_any_content_are_frames_or_broken(kind: int, body: bytes) -> None:
    reading = Reading()
    try:
        reading.feed(frame(LARGE_TENSOR, head_of(LARGE)) + frame(kind, body))
    except BrokenFrameError:
        assert kind >= frames.FIRST_OWN_KIND


def test_nothing_is_read_after_the_end() -> None:
    reading = Reading()

    def stop(kind: int, body: bytes) -> None:
        reading.reader.stop()

    reading.reader = FrameReader(reading.at, stop, OPTIONS, objects=False)
    reading.feed(frame(1) + frame(200) + frame(TENSOR, b"12"))
    reading.feed(b"\xff" * 2_000_000)
    assert reading.at.tensors == []
