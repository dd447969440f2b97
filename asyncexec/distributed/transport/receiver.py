"""Receiver: who gets what a connection brings."""

from __future__ import annotations

from typing import Protocol

from asyncexec.framework.errors import OpError


class Receiver(Protocol):
    """Who gets what a connection brings.  All is called in the event loop, and must not block.

    What raises there ends the connection.
    """

    def on_message(self, kind: int, body: bytes) -> None:
        """A message has come; messages come in the order in which they were sent."""

    def on_tensor(self, step_id: int, key: str, value: object, is_dead: bool) -> None:
        """A tensor has come.  A large one may come later than what was sent after it; a dead one has the value None."""

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        """A tensor lied about its size or dtype, or is not allowed.  The connection goes on."""

    def on_lost(self, error: OpError) -> None:
        """The connection is gone, and was not closed here: UnavailableError, or DataLossError if the peer sent what is
        no frame; both name the peer.  It is called once, and is the last call.
        """
