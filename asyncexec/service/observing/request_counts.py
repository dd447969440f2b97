"""RequestCounts: the calls of clients by protocol and status, and the bytes that they sent and got."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal, TypeAlias

Protocol: TypeAlias = Literal["http", "grpc"]

PROTOCOLS: Final[tuple[Protocol, ...]] = ("http", "grpc")


class ProtocolCounts:
    """The calls of one protocol.

    Attributes:
        under_way: those that have begun and not ended.
        by_status: those that have ended, by their status.
        bytes_in, bytes_out: of their bodies or messages.
    """

    __slots__ = ("by_status", "bytes_in", "bytes_out", "under_way")

    def __init__(self) -> None:
        self.under_way: int = 0
        self.by_status: Counter[int | str] = Counter()
        self.bytes_in: int = 0
        self.bytes_out: int = 0

    def note(self, status: int | str, bytes_in: int, bytes_out: int) -> None:
        """A call has ended."""
        self.by_status[status] += 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out


class RequestCounts:
    """The calls of each protocol."""

    def __init__(self) -> None:
        self.http: ProtocolCounts = ProtocolCounts()
        self.grpc: ProtocolCounts = ProtocolCounts()
