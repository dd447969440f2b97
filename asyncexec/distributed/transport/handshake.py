"""The records before the first frame: version, proof of the token, identities.  It knows no socket.

=========  =========  ================================================================================================
from       record     content
=========  =========  ================================================================================================
dialing    HELLO      version of the library, a nonce, whether there is a token
listening  HELLO      the same
dialing    IDENTITY   identity, and the proof: HMAC-SHA256 by the token over the end, both nonces and the identity
listening  IDENTITY   the same of the other end
dialing    READY      the listener is who was expected; frames follow
either     REFUSAL    an error instead
=========  =========  ================================================================================================

A record is a magic number, the version of the protocol (u16), its kind (u8), the length of its body (u16), and the body
in JSON.  A record of another version has the same head, so each end can tell both versions.  Nothing but the nonces and
one record is kept of a peer before it has proved that it knows the token.
"""

from __future__ import annotations

import hmac
import json
import os
import struct
from importlib.metadata import version
from typing import Any, Final

from asyncexec.distributed.transport.identity import MAX_TEXT_LENGTH, Expected, Identity
from asyncexec.distributed.transport.liveness import ping
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.errors import (
    AbortedError,
    DataLossError,
    FailedPreconditionError,
    OpError,
    UnauthenticatedError,
    error_class,
)

PROTOCOL: Final = 1
LIBRARY: Final = version("asyncexec")
MAGIC: Final = b"axtp"
RECORD: Final = struct.Struct("<4sHBH")
MAX_BODY_BYTES: Final = 16 * 1024
MAX_RECORD_BYTES: Final = RECORD.size + MAX_BODY_BYTES
HELLO, IDENTITY, READY, REFUSAL = range(4)
_NONCE_BYTES: Final = 32
_MAX_MESSAGE_LENGTH: Final = 1000


class ForeignProtocolError(DataLossError):
    """What came is no record: the peer speaks another protocol, and is not answered."""


class Handshake:
    """One end of a handshake; *expected* where it is the dialing one.

    Attributes:
        peer: who is at the other end, once it has proved that it knows the token.
        first_ping: round trip and offset of the peer's clock, in nanoseconds.
        is_done: whether frames follow.
        is_refused: whether the peer has said that it ends the handshake.
    """

    def __init__(self, identity: Identity, security: Security, expected: Expected | None) -> None:
        self._identity = identity
        self._security = security
        self._expected = expected
        self._is_dialing = expected is not None
        self._nonce = os.urandom(_NONCE_BYTES)
        self._peer_nonce = b""
        self._awaited = HELLO
        self._sent_ns = 0
        self.peer: Identity | None = None
        self.first_ping: tuple[int, int] = (0, 0)
        self.is_done: bool = False
        self.is_refused: bool = False

    def begin(self) -> bytes:
        """What to send at first, if anything."""
        return self._hello() if self._is_dialing else b""

    def receive(self, data: memoryview) -> tuple[int, bytes]:
        """Take a record from the beginning of *data*: its size, 0 if it is not all there, and what to send.

        Raises:
            ForeignProtocolError: it is no record.
            FailedPreconditionError: the peer is of another version.
            UnauthenticatedError: the peer has another token, or only one end has one.
            AbortedError: the peer is another one than expected.
            OpError: the peer has refused.
        """
        if bytes(data[: len(MAGIC)]) != MAGIC[: len(data)]:
            raise ForeignProtocolError("it speaks another protocol")
        if len(data) < RECORD.size:
            return 0, b""
        _, protocol, kind, length = RECORD.unpack_from(data)
        if length > MAX_BODY_BYTES:
            raise ForeignProtocolError(f"a record of {length} bytes is too long")
        size = RECORD.size + length
        if len(data) < size:
            return 0, b""
        return size, self._take(protocol, kind, bytes(data[RECORD.size : size]))

    def _take(self, protocol: int, kind: int, body: bytes) -> bytes:
        content = _content(body)
        if kind == REFUSAL:
            self.is_refused = True
            raise _refusal(content)
        if protocol != PROTOCOL or (kind == HELLO and content.get("version") != LIBRARY):
            mine, theirs = f"{LIBRARY} (protocol {PROTOCOL})", f"{_text(content, 'version')} (protocol {protocol})"
            dialing, listening = (mine, theirs) if self._is_dialing else (theirs, mine)
            raise FailedPreconditionError(
                "both ends of a connection must have the same version of asyncexec: the dialing one has "
                f"{dialing}, the listening one {listening}"
            )
        if kind != self._awaited:
            raise ForeignProtocolError(f"a record of kind {kind} is out of order")
        if kind == HELLO:
            return self._take_hello(content)
        if kind == IDENTITY:
            return self._take_identity(content)
        self.is_done = True
        return b""

    def _take_hello(self, content: dict[str, object]) -> bytes:
        try:
            self._peer_nonce = bytes.fromhex(_text(content, "nonce"))
        except ValueError:
            raise ForeignProtocolError("its nonce is malformed") from None
        if len(self._peer_nonce) != _NONCE_BYTES:
            raise ForeignProtocolError("its nonce is malformed")
        self._awaited = IDENTITY
        has_token = self._security.token is not None
        if content.get("token") is not has_token:
            without = "listening" if self._is_dialing == has_token else "dialing"
            raise UnauthenticatedError(f"only one end of the connection has a token: the {without} one has none")
        if self._is_dialing:
            self._take_clock(content)
            return self._own_identity()
        return self._hello()

    def _take_identity(self, content: dict[str, object]) -> bytes:
        peer = _identity(content)
        expected_proof = self._proof(peer, is_dialing=not self._is_dialing)
        if not hmac.compare_digest(expected_proof.encode(), _text(content, "proof").encode(errors="replace")):
            raise UnauthenticatedError("the two ends of the connection have different tokens")
        if not self._is_dialing:
            self._take_clock(content)
            self.peer = peer
            self._awaited = READY
            return self._own_identity()
        self._check_expected(peer)
        self.peer = peer
        self.is_done = True
        return _record(READY, {})

    def _check_expected(self, peer: Identity) -> None:
        expected = self._expected
        assert expected is not None  # only the dialing end checks
        if expected.name not in (None, peer.name):
            raise AbortedError(f"{expected.name} was expected, and {peer} has answered")
        if expected.incarnation not in (None, peer.incarnation):
            raise AbortedError(
                f"{peer.name} has been started again: incarnation {peer.incarnation:x}, "
                f"{expected.incarnation:x} was expected"
            )

    def _take_clock(self, content: dict[str, object]) -> None:
        clock = content.get("clock")
        if type(clock) is not int or not -(2**63) <= clock < 2**63:
            raise ForeignProtocolError("its clock is malformed")
        self.first_ping = ping(self._sent_ns, clock, monotonic_ns())

    def _hello(self) -> bytes:
        self._sent_ns = monotonic_ns()
        has_token = self._security.token is not None
        content = {"version": LIBRARY, "nonce": self._nonce.hex(), "token": has_token, "clock": self._sent_ns}
        return _record(HELLO, content)

    def _own_identity(self) -> bytes:
        mine = self._identity
        content = {
            "name": mine.name,
            "incarnation": mine.incarnation,
            "role": mine.role,
            "program": mine.program,
            "proof": self._proof(mine, is_dialing=self._is_dialing),
            "clock": monotonic_ns(),
        }
        return _record(IDENTITY, content)

    def _proof(self, of: Identity, *, is_dialing: bool) -> str:
        nonces = (self._nonce, self._peer_nonce) if self._is_dialing else (self._peer_nonce, self._nonce)
        texts = ("dialing" if is_dialing else "listening", of.name, str(of.incarnation), of.role, of.program)
        return self._security.proof(*nonces, *(text.encode(errors="surrogatepass") for text in texts))


def refusal(error: OpError) -> bytes:
    """The record that tells the peer of *error*; b"" if the peer would not understand it."""
    if isinstance(error, ForeignProtocolError):
        return b""
    return _record(
        REFUSAL, {"version": LIBRARY, "code": int(error.code), "message": error.message[:_MAX_MESSAGE_LENGTH]}
    )


def _refusal(content: dict[str, Any]) -> OpError:
    message = _text(content, "message", _MAX_MESSAGE_LENGTH)
    try:
        return error_class(content.get("code", 0))(message)
    except (ValueError, TypeError):
        return ForeignProtocolError("its refusal is malformed")


def _record(kind: int, content: dict[str, object]) -> bytes:
    body = json.dumps(content).encode()
    return RECORD.pack(MAGIC, PROTOCOL, kind, len(body)) + body


def _content(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ForeignProtocolError("a record of it is malformed")
    return content


def _identity(content: dict[str, object]) -> Identity:
    incarnation = content.get("incarnation")
    if type(incarnation) is not int or not -(2**63) <= incarnation < 2**64:
        raise ForeignProtocolError("its incarnation is malformed")
    return Identity(_text(content, "name"), incarnation, _text(content, "role"), _text(content, "program"))


def _text(content: dict[str, object], name: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    text = content.get(name)
    if not isinstance(text, str) or len(text) > max_length:
        raise ForeignProtocolError(f"its {name} is malformed")
    return text
