"""What goes out next: small frames first, in order; large tensors one after the other, piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.distributed.transport.frames import CHUNK, CUT, FRAME, LARGE_TENSOR, TENSOR
from asyncexec.distributed.transport.outbox import Outbox
from asyncexec.framework.tensor_codec import encode

CHUNK_BYTES = 100_000


def tensor(value: Any) -> Any:
    return encode(1, "k", value, False, objects=False, max_bytes=2**40)


def frames_of(data: bytes) -> list[tuple[int, int]]:
    """Kind and length of each frame in *data*."""
    found = []
    while data:
        length, kind = FRAME.unpack_from(data)
        found.append((kind, length))
        data = data[FRAME.size + length :]
    return found


def next_frames(outbox: Outbox) -> list[tuple[int, int]]:
    return frames_of(b"".join(outbox.next_buffers()))


def test_all_small_frames_go_out_in_one_piece() -> None:
    outbox = Outbox(CHUNK_BYTES)
    for i in range(50):
        outbox.add(i, b"x" * i)
    small = tensor(np.float32(1))
    outbox.add_tensor(1, small)
    (data,) = outbox.next_buffers()
    assert frames_of(bytes(data)) == [*((i, i) for i in range(50)), (TENSOR, len(small.head) + 4)]
    assert not outbox
    assert outbox.num_bytes == 0
    assert outbox.next_buffers() == []


def test_a_large_tensor_goes_out_of_its_own_memory_with_small_frames_between() -> None:
    outbox = Outbox(CHUNK_BYTES)
    value = np.zeros(250_000, np.uint8)
    large = tensor(value)
    outbox.add_tensor(1, large)
    outbox.add(7, b"first")
    assert outbox.num_bytes == 250_000 + FRAME.size + 5
    head, piece = outbox.next_buffers()
    assert frames_of(bytes(head) + bytes(piece)) == [(7, 5), (LARGE_TENSOR, len(large.head)), (CHUNK, CHUNK_BYTES)]
    assert np.shares_memory(np.frombuffer(piece, np.uint8), value)
    assert outbox.num_bytes == 150_000
    outbox.add(8, b"abort")
    assert next_frames(outbox) == [(8, 5), (CHUNK, CHUNK_BYTES)]
    assert next_frames(outbox) == [(CHUNK, 50_000)]
    assert (bool(outbox), outbox.num_bytes) == (False, 0)


def test_large_tensors_go_one_after_the_other() -> None:
    outbox = Outbox(CHUNK_BYTES)
    for size in (120_000, 110_000):
        outbox.add_tensor(1, tensor(np.zeros(size, np.uint8)))
    sent = [frame for _ in range(4) for frame in next_frames(outbox)]
    kinds = [(kind, length) for kind, length in sent if kind == CHUNK]
    assert kinds == [(CHUNK, 100_000), (CHUNK, 20_000), (CHUNK, 100_000), (CHUNK, 10_000)]
    assert [kind for kind, _ in sent].count(LARGE_TENSOR) == 2


def test_a_large_message_goes_out_in_pieces_with_nothing_between() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add_tensor(1, tensor(np.zeros(70_000, np.uint8)))
    outbox.add(1, b"x" * 250_000)
    outbox.add(2, b"after")
    data = [b"".join(outbox.next_buffers())]
    outbox.add_first(132, b"12345678")
    while outbox:
        data.append(b"".join(outbox.next_buffers()))
        assert len(data[-1]) <= 2 * CHUNK_BYTES + 1000
    assert [kind for kind, _ in frames_of(b"".join(data))] == [1, 132, 2, LARGE_TENSOR, CHUNK]


def test_what_goes_first_goes_before_all_that_has_not_begun() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add(1, b"")
    outbox.add_first(132, b"12345678")
    assert next_frames(outbox) == [(132, 8), (1, 0)]


def test_many_small_frames_do_not_hold_up_a_large_tensor() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add_tensor(1, tensor(np.zeros(70_000, np.uint8)))
    for _ in range(100):
        outbox.add(1, b"x" * 10_000)
    assert (CHUNK, 70_000) in next_frames(outbox)


def test_a_dropped_step_leaves_the_queue_and_the_one_under_way_is_cut() -> None:
    outbox = Outbox(CHUNK_BYTES)
    sizes = {1: 250_000, 2: 90_000, 3: 80_000}
    for step, size in sizes.items():
        outbox.add_tensor(step, tensor(np.zeros(size, np.uint8)))
        outbox.add_tensor(step, tensor(np.zeros(size, np.uint8)))
    next_frames(outbox)
    outbox.drop_step(1)
    outbox.drop_step(3)
    assert outbox.num_bytes == 2 * sizes[2]
    for i in range(20):  # more than a piece: the end of the tensor must come before another begins all the same
        outbox.add(i, b"x" * 20_000)
    sent = []
    while outbox:
        sent += next_frames(outbox)
    large = [(kind, length) for kind, length in sent if kind in (CHUNK, CUT)]
    assert large == [(CUT, 0), (CHUNK, 90_000), (CHUNK, 90_000)]
    assert outbox.num_bytes == 0


def test_dropping_the_last_still_tells_of_the_end() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add_tensor(1, tensor(np.zeros(250_000, np.uint8)))
    next_frames(outbox)
    outbox.drop_step(1)
    outbox.drop_step(1)
    assert outbox
    assert next_frames(outbox) == [(CUT, 0)]
    assert not outbox


def test_dropping_what_is_not_there_does_nothing() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add_tensor(1, tensor(np.zeros(70_000, np.uint8)))
    outbox.drop_step(2)
    assert outbox.num_bytes == 70_000
    outbox.clear()
    outbox.drop_step(1)
    assert (bool(outbox), outbox.num_bytes) == (False, 0)


def test_what_has_begun_to_go_out_is_ended_when_all_else_is_dropped() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add(1, b"x" * (CHUNK_BYTES + 50))
    (begun,) = outbox.next_buffers()
    outbox.add(2, b"small")
    outbox.add_tensor(1, tensor(np.zeros(CHUNK_BYTES, np.float32)))
    outbox.drop()
    outbox.add(3, b"last")
    assert outbox.num_bytes == 50 + FRAME.size + FRAME.size + 4
    rest = b"".join(b"".join(outbox.next_buffers()) for _ in range(2))
    assert frames_of(bytes(begun) + rest) == [(1, CHUNK_BYTES + 50), (3, 4)]
    assert not outbox
    assert outbox.num_bytes == 0


def test_a_large_tensor_that_has_begun_is_cut_when_all_is_dropped() -> None:
    outbox = Outbox(CHUNK_BYTES)
    for _ in range(2):
        outbox.add_tensor(1, tensor(np.zeros(CHUNK_BYTES, np.float32)))
    assert [kind for kind, _ in next_frames(outbox)] == [LARGE_TENSOR, CHUNK]
    outbox.drop()
    outbox.add(3, b"last")
    assert [kind for kind, _ in next_frames(outbox)] == [3, CUT]
    assert not outbox
