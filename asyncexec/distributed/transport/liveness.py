"""Whether the peer still answers, and what its clock says: both by pings.  It knows no timer and no socket.

One ping at a time.  What counts is heartbeats, and not the time that has passed: when this process stood still for a
minute, the answer may have come long ago, and is read before the next heartbeat.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# The clocks of two machines drift apart by some microseconds a second: old pings do not count.
_KEPT_PINGS: Final = 16


class Liveness:
    """The pings of one end."""

    __slots__ = ("_max_heartbeats", "_pings", "_waited")

    def __init__(self, max_heartbeats: int, first_ping: tuple[int, int]) -> None:
        """*first_ping*: round trip and offset by the handshake."""
        self._max_heartbeats = max_heartbeats
        self._pings = deque([first_ping], maxlen=_KEPT_PINGS)
        self._waited: int | None = None  # heartbeats since a ping without an answer

    @property
    def clock_offset_ns(self) -> int:
        """The peer's clock less ours, by the ping with the shortest round trip."""
        return min(self._pings)[1]

    @property
    def round_trip_ns(self) -> int:
        """That of the last ping that was answered."""
        return self._pings[-1][0]

    @property
    def shortest_round_trip_ns(self) -> int:
        """That of the fastest of the last pings."""
        return min(self._pings)[0]

    @property
    def is_silent(self) -> bool:
        """Whether the peer has not answered for too long."""
        return self._waited is not None and self._waited >= self._max_heartbeats

    def on_heartbeat(self) -> bool:
        """Count a heartbeat; whether a ping is to be sent."""
        if self._waited is None:
            self._waited = 0
            return True
        self._waited += 1
        return False

    def on_pong(self, sent_ns: int, peer_ns: int, now_ns: int) -> None:
        """The answer to the ping of *sent_ns* has come."""
        if self._waited is not None:
            self._waited = None
            self._pings.append(ping(sent_ns, peer_ns, now_ns))


def ping(sent_ns: int, peer_ns: int, now_ns: int) -> tuple[int, int]:
    """Round trip, and how much the peer's clock is ahead if both ways took the same time."""
    return now_ns - sent_ns, peer_ns - (sent_ns + now_ns) // 2
