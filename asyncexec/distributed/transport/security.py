"""How the ends of a connection trust each other: a shared token, and TLS.

The token never travels: each end proves that it knows it (handshake.py).  Without TLS, an attacker who can change what
goes over the network can change the frames after the handshake: use TLS where that may be.  A unix socket needs no TLS,
and has none: only its user can open its file.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from asyncexec.framework.errors import InvalidArgumentError, NotFoundError


@dataclass(frozen=True, slots=True)
class Tls:
    """What TCP connections are encrypted with; ``from_files`` makes it.

    Pickled, it is the names of its files: another process reads its own files of these names.

    Attributes:
        server: for listening; None where there is no certificate.
        client: for dialing.
        server_name: the name in the certificates of peers, if it is not the host in their address.
    """

    server: ssl.SSLContext | None
    client: ssl.SSLContext
    server_name: str | None = None
    _files: tuple[str | Path | None, ...] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_files(
        cls,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        ca: str | Path | None = None,
        server_name: str | None = None,
    ) -> Self:
        """TLS by files in PEM; it reads them, so call it outside of the event loop.

        Args:
            certificate: that of this process, with what it is signed by.  Whoever listens needs one.
            key: the key of *certificate*.
            ca: the authorities that certificates of peers must be signed by.  Where it is given, those who dial need
                certificates, too.  Without it, those that the system trusts sign certificates of listeners.
            server_name: the name in the certificates of peers, if it is not the host in their address.

        Raises:
            NotFoundError: a file does not exist.
            InvalidArgumentError: a file cannot be read, is no PEM, or key and certificate do not match.
        """
        try:
            client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
            server = None
            if certificate is not None:
                client.load_cert_chain(certificate, key)
                server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
                server.load_cert_chain(certificate, key)
                if ca is not None:
                    server.verify_mode = ssl.CERT_REQUIRED
        except FileNotFoundError as error:
            missing = next((file for file in (certificate, key, ca) if file and not Path(file).exists()), None)
            raise NotFoundError(f"there is no file {str(missing)!r} for TLS") from error
        except OSError as error:  # ssl.SSLError is one
            raise InvalidArgumentError(
                f"certificate {str(certificate)!r}, key {str(key)!r}, ca {str(ca)!r}: {error}"
            ) from error
        files = [None if file is None else Path(file).absolute() for file in (certificate, key, ca)]
        return cls(server, client, server_name, (*files, server_name))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._files is None:
            raise TypeError("a Tls can be pickled only if Tls.from_files has made it")
        return type(self).from_files, self._files


@dataclass(frozen=True, slots=True)
class Security:
    """What both ends of a connection must know.

    Attributes:
        token: a secret that all processes of a cluster share; both ends have it, or neither has one.
        tls: certificates, for TCP connections; both ends have some, or neither has any.
    """

    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if self.token == "":
            raise InvalidArgumentError("the token is empty", hint="use None for no token")

    def proof(self, *parts: bytes) -> str:
        """What only who knows the token can tell of *parts*; "" without a token."""
        if self.token is None:
            return ""
        told = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        return hmac.new(self.token.encode(), told, hashlib.sha256).hexdigest()
