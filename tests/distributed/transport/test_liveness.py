"""Pings: when a peer is silent, and what its clock says."""

from __future__ import annotations

import pytest

from asyncexec.distributed.transport.liveness import Liveness
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.framework.errors import InvalidArgumentError


def test_a_peer_is_silent_after_so_many_heartbeats_without_an_answer() -> None:
    liveness = Liveness(3, (0, 0))
    pings = []
    for _ in range(4):
        assert not liveness.is_silent
        pings.append(liveness.on_heartbeat())
    assert pings == [True, False, False, False]  # one ping at a time
    assert liveness.is_silent


def test_an_answer_in_time_begins_anew() -> None:
    liveness = Liveness(3, (0, 0))
    for _ in range(5):
        assert liveness.on_heartbeat()
        liveness.on_heartbeat()
        liveness.on_heartbeat()
        assert not liveness.is_silent
        liveness.on_pong(0, 0, 1)


def test_the_clock_is_that_of_the_shortest_round_trip() -> None:
    liveness = Liveness(3, (1000, 77))
    assert liveness.clock_offset_ns == 77
    for sent, peer, now in ((0, 5_050, 100), (1_000, 6_600, 1_900), (5_000, 10_100, 5_200)):
        liveness.on_heartbeat()
        liveness.on_pong(sent, peer, now)
    assert liveness.clock_offset_ns == 5_000  # by the first, of 100 ns


def test_old_round_trips_do_not_count() -> None:
    liveness = Liveness(3, (1, 77))
    for i in range(16):
        liveness.on_heartbeat()
        liveness.on_pong(0, 500 + i, 1000)
    assert liveness.clock_offset_ns == 0


def test_an_answer_to_no_question_does_not_count() -> None:
    liveness = Liveness(3, (100, 77))
    liveness.on_pong(0, 10**9, 1)
    assert liveness.clock_offset_ns == 77


@pytest.mark.parametrize(
    ("heartbeat_s", "silence_s", "expected"), [(2.0, 15.0, 6), (1.0, 2.0, 1), (1.0, 10.0, 9), (0.5, 1.9, 2)]
)
def test_silence_is_found_in_time(heartbeat_s: float, silence_s: float, expected: int) -> None:
    options = TransportOptions(heartbeat_s=heartbeat_s, silence_s=silence_s)
    assert options.silent_heartbeats == expected
    # A peer that falls silent right after an answer gets its next ping a heartbeat later.
    assert (1 + expected) * heartbeat_s <= silence_s


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_s": 0},
        {"heartbeat_s": 8.0},
        {"silence_s": float("nan")},
        {"chunk_bytes": 0},
        {"max_message_bytes": 2**32},
        {"max_tensor_bytes": -1},
        {"close_grace_s": -1.0},
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        TransportOptions(**wrong)
