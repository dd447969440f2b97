"""Addresses: ``unix:/path``, ``tcp:host:port`` or ``host:port``, an IPv6 host in brackets."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError

MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103  # of a unix socket, without the end


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the file system."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"


def parse_address(text: str) -> UnixAddress | TcpAddress:
    """The address that *text* names.

    Raises:
        InvalidArgumentError: it names none.
        UnimplementedError: it is a unix address, and the system has no unix sockets.
    """
    scheme, _, path = text.partition(":")
    if scheme == "unix":
        if sys.platform == "win32":
            raise UnimplementedError(f"address {text!r}: asyncio has no unix sockets on Windows")
        if not path or "\0" in path or len(path.encode(errors="surrogatepass")) > MAX_PATH_BYTES:
            raise InvalidArgumentError(
                f"address {text!r}: the path of a unix socket has 1 to {MAX_PATH_BYTES} bytes",
                hint="use one like unix:/run/worker0.sock",
            )
        return UnixAddress(path)
    rest = path if scheme == "tcp" else text
    host, _, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise InvalidArgumentError(
            f"{text!r} is not an address", hint="use one like unix:/run/worker0.sock, tcp:10.0.0.1:4711 or [::1]:4711"
        )
    return TcpAddress(host, int(port[:6]))
