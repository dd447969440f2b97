"""How connections end, what waits while the peer takes nothing, and who may send objects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import dial, listen
from asyncexec.distributed.transport.frames import FRAME, PING, PING_BODY
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.framework.errors import (
    DataLossError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
)
from tests.distributed.transport.ends import CHIEF, OPEN, OPTIONS, WORKER, Recorder, address_of, both_kinds, connected

LARGE = np.zeros(20_000_000, np.uint8)
OBJECTS = TransportOptions(objects=True)


class FakeTransport:
    """Keeps what is written, and says whether more may come."""

    def __init__(self) -> None:
        self.written = b""
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.is_aborted = True


def fake_connection(options: TransportOptions) -> tuple[Connection, FakeTransport, Recorder]:
    transport: Any = FakeTransport()
    connection = Connection(transport, WORKER, "unix:x", options, (0, 0), objects=False)
    at = Recorder(connection)
    connection.start(at, b"")
    return connection, transport, at


@both_kinds
async def test_an_end_that_is_gone_is_told_once(kind: str, tmp_path: Path) -> None:
    async with connected(address_of(kind, tmp_path)) as ends:
        ends.near.abort()
        ends.near.abort()
        await ends.at_far.until(lambda at: at.lost)
        ends.far.abort()
        await ends.far.close()
        await ends.near.close()
        (error,) = ends.at_far.lost
        assert isinstance(error, UnavailableError)
        assert str(CHIEF) in str(error)
        assert ends.at_near.lost == []
        assert ends.near.queued_bytes == ends.far.queued_bytes == 0
        for call in (lambda: ends.far.send(1), lambda: ends.far.send_tensor(1, "k", b"")):
            with pytest.raises(UnavailableError, match="is closed"):
                call()
        ends.far.drop_step(1)


async def test_both_may_close_at_once(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        await asyncio.gather(ends.near.close(), ends.far.close(), ends.near.close())
        assert ends.at_near.lost == ends.at_far.lost == []


async def test_what_is_no_frame_ends_the_connection(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        ends.near._transport.write(FRAME.pack(0, 222))
        await ends.at_far.until(lambda at: at.lost)
        assert isinstance(ends.at_far.lost[0], DataLossError)
        assert f"{CHIEF} at " in str(ends.at_far.lost[0])
        await ends.at_near.until(lambda at: at.lost)
        assert isinstance(ends.at_near.lost[0], UnavailableError)


async def test_a_dropped_step_gives_way(tmp_path: Path) -> None:
    """The first piece fills the socket, for nobody reads before the loop turns."""
    async with connected(address_of("unix", tmp_path)) as ends:
        ends.near.send_tensor(1, "dropped", LARGE)
        ends.near.send_tensor(2, "kept", LARGE)
        ends.near._flush()
        assert LARGE.nbytes < ends.near.queued_bytes < 2 * LARGE.nbytes
        ends.near.drop_step(1)
        assert ends.near.queued_bytes <= LARGE.nbytes + OPTIONS.chunk_bytes
        await ends.at_far.until(lambda at: at.tensors)
        assert [(step, key) for step, key, *_ in ends.at_far.tensors] == [(2, "kept")]
        assert ends.at_far.bad == []


async def test_small_frames_overtake_a_large_tensor(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        came: list[str] = []
        ends.at_far.on_message = lambda kind, body: came.append("message")  # type: ignore[method-assign]
        ends.near.send_tensor(1, "large", LARGE)
        ends.near._flush()
        ends.near.send(1, b"abort")
        await ends.at_far.until(lambda at: at.tensors)
        assert came == ["message"]
        assert len(ends.at_far.tensors) == 1


async def test_while_the_peer_takes_nothing_all_waits_here() -> None:
    connection, transport, _ = fake_connection(OPTIONS)
    connection.pause()
    connection.send(1, b"x" * 1000)
    connection.send_tensor(1, "k", LARGE)
    await asyncio.sleep(0)
    assert transport.written == b""
    assert connection.queued_bytes >= LARGE.nbytes + 1000
    connection.resume()
    assert 1000 < len(transport.written) < 2 * OPTIONS.chunk_bytes
    connection.pause()
    before = len(transport.written)
    await asyncio.sleep(0)
    assert len(transport.written) == before
    connection.abort()
    assert transport.is_aborted


async def test_one_write_for_a_turn_of_the_loop() -> None:
    connection, transport, _ = fake_connection(OPTIONS)
    await asyncio.sleep(0)  # the first ping
    writes: list[bytes] = []
    transport.write = writes.append  # type: ignore[method-assign]
    for i in range(100):
        connection.send(i, b"body")
        connection.send_tensor(i, "k", np.float32(i))
    assert writes == []
    await asyncio.sleep(0)
    assert len(writes) == 1
    connection.abort()


async def test_many_pings_get_one_answer() -> None:
    connection, transport, _ = fake_connection(OPTIONS)
    await asyncio.sleep(0)
    before = len(transport.written)
    pings = b"".join(FRAME.pack(PING_BODY.size, PING) + PING_BODY.pack(i) for i in range(1000))
    connection.reader.feed(pings)
    assert connection.queued_bytes == 0
    await asyncio.sleep(0)
    assert len(transport.written) - before == FRAME.size + 16
    connection.abort()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("silence_s", [4.0, 15.0, 60.0])
async def test_a_silent_peer_is_lost_in_time(silence_s: float) -> None:
    _, transport, at = fake_connection(TransportOptions(silence_s=silence_s))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await at.until(lambda at: at.lost) if silence_s < 30 else await asyncio.sleep(silence_s)
    assert loop.time() - begun <= silence_s
    assert transport.is_aborted
    assert f"{WORKER} at unix:x is lost: it has not answered for {silence_s:g} s" in str(at.lost[0])
    assert transport.written.count(FRAME.pack(PING_BODY.size, PING)) == 1  # what is not answered is not asked again


@pytest.mark.virtual_clock
async def test_a_peer_that_does_not_end_is_closed_after_the_grace_period() -> None:
    connection, transport, at = fake_connection(TransportOptions(close_grace_s=3.0))
    connection.pause()
    connection.send(1, b"never")
    loop = asyncio.get_running_loop()
    loop.call_later(3.1, connection.on_ended, None)  # as the transport does once it is aborted
    begun = loop.time()
    await connection.close()
    assert 3.0 <= loop.time() - begun < 3.2
    assert transport.is_aborted
    assert at.lost == []


async def test_a_cancelled_close_closes_at_once() -> None:
    connection, transport, _ = fake_connection(OPTIONS)
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert transport.is_aborted


async def test_a_receiver_may_abort_in_the_middle(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        got: list[int] = []

        def on_message(kind: int, body: bytes) -> None:
            got.append(kind)
            ends.far.abort()

        ends.at_far.on_message = on_message  # type: ignore[method-assign]
        for i in range(10):
            ends.near.send(i)
        await ends.at_near.until(lambda at: at.lost)
        assert got == [0]
        assert ends.at_far.lost == []


async def test_the_clocks_of_one_machine_are_the_same(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        for connection in (ends.near, ends.far):
            round_trip = min(connection._liveness._pings)[0]
            assert abs(connection.clock_offset_ns) <= round_trip


@pytest.mark.parametrize(("kind", "size"), [(128, 0), (-1, 0), (3, 1001)])
async def test_messages_that_cannot_be_are_refused(kind: int, size: int) -> None:
    connection, _, _ = fake_connection(TransportOptions(max_message_bytes=1000))
    with pytest.raises(InvalidArgumentError, match=r"kinds of 0 to 127|max_message_bytes"):
        connection.send(kind, bytes(size))
    connection.abort()


@pytest.mark.parametrize(
    ("near", "program", "travels"), [(OBJECTS, "p", True), (OPTIONS, "p", False), (OBJECTS, "q", False)]
)
async def test_objects_travel_between_processes_of_one_program(
    near: TransportOptions, program: str, travels: bool, tmp_path: Path
) -> None:
    made: list[Recorder] = []

    def make_receiver(connection: Connection) -> Recorder:
        made.append(Recorder(connection))
        return made[0]

    listener = await listen(address_of("unix", tmp_path), WORKER, OPEN, make_receiver, options=OBJECTS)
    identity = Identity(CHIEF.name, 1, "", program)
    connection = await dial(listener.address, identity, OPEN, Recorder, options=near)
    if travels:
        connection.send_tensor(1, "k", {"a": 1})
    else:
        with pytest.raises(InvalidArgumentError, match="objects=True"):
            connection.send_tensor(1, "k", {"a": 1})
        connection.send_tensor(1, "k", b"next")
    await connection.close()
    assert made[0].tensors == [(1, "k", {"a": 1} if travels else b"next", False)]
    await listener.close()


async def test_an_object_from_a_peer_that_may_not_is_told(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path), options=OBJECTS, far_options=OPTIONS) as ends:
        ends.near.send_tensor(3, "edge", {"a": 1})
        ends.near.send_tensor(3, "good", b"1")
        await ends.at_far.until(lambda at: at.tensors)
        ((step, key, error),) = ends.at_far.bad
        assert (step, key, type(error)) == (3, "edge", PermissionDeniedError)
        assert ends.at_far.lost == []


@pytest.mark.allow_blocking
async def test_a_peer_that_stops_reading_is_lost(tmp_path: Path) -> None:
    """It is there, and its socket is full; pings go nowhere."""
    quick = TransportOptions(heartbeat_s=0.05, silence_s=0.2)
    async with connected(address_of("unix", tmp_path), options=quick, far_options=OPTIONS) as ends:
        ends.far._transport.pause_reading()
        ends.near.send_tensor(1, "k", LARGE)
        await ends.at_near.until(lambda at: at.lost)
        assert "has not answered" in str(ends.at_near.lost[0])
        assert ends.near.queued_bytes == 0
