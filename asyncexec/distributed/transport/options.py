"""Limits and times of connections."""

from __future__ import annotations

from dataclasses import dataclass

from asyncexec.framework.errors import InvalidArgumentError

MIB = 2**20


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """How long to wait, and how much to take.  ``TransportOptions(...)`` raises InvalidArgumentError for bad numbers.

    Attributes:
        heartbeat_s: seconds between two pings.
        silence_s: a peer that does not answer a ping for so long is lost.  It must be longer than the peer's event loop
            may stand still, and than ``chunk_bytes`` and the buffers of the system take on the network.
        connect_timeout_s: how long to wait for a connection, with TLS if there is any.
        handshake_timeout_s: how long to wait for the handshake that follows.
        close_grace_s: how long ``Connection.close`` waits for what is queued, and for the peer.
        max_message_bytes: largest body of a message.
        max_tensor_bytes: largest payload of a tensor.
        chunk_bytes: how much of a large tensor goes out before small frames have their turn.
        objects: whether Python objects may travel, by pickle: only between processes of one program.
    """

    heartbeat_s: float = 2.0
    silence_s: float = 15.0
    connect_timeout_s: float = 10.0
    handshake_timeout_s: float = 5.0
    close_grace_s: float = 5.0
    max_message_bytes: int = 64 * MIB
    max_tensor_bytes: int = 16 * 1024 * MIB
    chunk_bytes: int = MIB
    objects: bool = False

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "connect_timeout_s", "handshake_timeout_s", "close_grace_s"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("max_message_bytes", "max_tensor_bytes", "chunk_bytes"):
            if not 1 <= getattr(self, name) < 2**63:
                raise InvalidArgumentError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_message_bytes >= 2**32:
            raise InvalidArgumentError(f"max_message_bytes must be below 4 GiB, not {self.max_message_bytes}")
        if not self.silence_s >= 2 * self.heartbeat_s:
            raise InvalidArgumentError(
                f"silence_s ({self.silence_s}) must be at least twice heartbeat_s ({self.heartbeat_s})"
            )

    @property
    def silent_heartbeats(self) -> int:
        """How many heartbeats after a ping its answer is too late, so that silence is found within ``silence_s``."""
        return max(1, int(self.silence_s / self.heartbeat_s) - 1)
