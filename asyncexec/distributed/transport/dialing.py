"""``dial`` and ``listen``: connections between processes, over unix sockets and TCP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import stat
from collections.abc import Callable
from typing import Any, Final

from asyncexec.distributed.transport.address import TcpAddress, UnixAddress, parse_address
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.handshake import Handshake
from asyncexec.distributed.transport.identity import Expected, Identity
from asyncexec.distributed.transport.link import Link
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.receiver import Receiver
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    OpError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)

DEFAULT_OPTIONS: Final = TransportOptions()
ANYBODY: Final = Expected()
# Sockets that have not ended the handshake.  With more of them, the oldest is closed.
MAX_STRANGERS: Final = 256
_BACKLOG: Final = 1024


async def dial(
    address: str,
    identity: Identity,
    security: Security,
    make_receiver: Callable[[Connection], Receiver],
    *,
    expects: Expected = ANYBODY,
    options: TransportOptions = DEFAULT_OPTIONS,
) -> Connection:
    """A connection with the process that listens at *address*.

    Args:
        address: ``unix:/path``, ``tcp:host:port`` or ``host:port``, an IPv6 host in brackets.
        identity: who this process is.
        security: what both ends know.
        make_receiver: makes what gets whatever comes; it is called before anything does.
        expects: who must answer.
        options: limits and times.

    Raises:
        InvalidArgumentError: *address* is none.
        UnavailableError: nobody answers there, or not in time.
        FailedPreconditionError: what answers is no process of a cluster, or of another version.
        UnauthenticatedError: the tokens differ, only one end has one, or a certificate is not trusted.
        AbortedError: another process answers than *expects* says.
    """
    target = parse_address(address)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Connection] = loop.create_future()

    def on_ready(link: Link, connection: Connection) -> None:
        if ready.done():
            connection.abort()
        else:
            ready.set_result(connection)

    def on_failed(link: Link, error: OpError) -> None:
        if not ready.done():
            ready.set_exception(error)

    handshake = Handshake(identity, security, expects)
    link = Link(handshake, identity, str(target), options, make_receiver, on_ready, on_failed, lambda link: None)
    try:
        await _connect(target, link, security, options)
        return await ready
    except BaseException:
        link.abort()
        if ready.done() and not ready.cancelled():
            ready.exception()  # it has been told, or nobody waits any more
        raise


async def _connect(target: UnixAddress | TcpAddress, link: Link, security: Security, options: TransportOptions) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            if isinstance(target, UnixAddress):
                await loop.create_unix_connection(lambda: link, target.path)
            elif security.tls is None:
                await loop.create_connection(lambda: link, target.host, target.port)
            else:
                await loop.create_connection(
                    lambda: link,
                    target.host,
                    target.port,
                    ssl=security.tls.client,
                    server_hostname=security.tls.server_name or target.host,
                    ssl_handshake_timeout=options.connect_timeout_s,
                    ssl_shutdown_timeout=options.close_grace_s,
                )
    except ssl.SSLError as error:
        raise UnauthenticatedError(f"{target}: TLS has failed: {error}") from error
    except TimeoutError as error:
        raise UnavailableError(f"{target}: nobody answers within {options.connect_timeout_s:g} s") from error
    except OSError as error:
        raise UnavailableError(f"{target}: cannot connect: {error}") from error


class _Links:
    """The sockets that a listener has taken."""

    def __init__(
        self,
        address: str,
        identity: Identity,
        security: Security,
        make_receiver: Callable[[Connection], Receiver],
        options: TransportOptions,
        on_refused: Callable[[OpError], None],
    ) -> None:
        self._address = address
        self._identity = identity
        self._security = security
        self._make_receiver = make_receiver
        self._options = options
        self._on_refused = on_refused
        self._strangers: dict[Link, None] = {}  # in the handshake, from the oldest on
        self._is_closed = False
        self.all: set[Link] = set()

    def make(self) -> Link:
        """A link for a socket that has come."""
        handshake = Handshake(self._identity, self._security, None)
        link = Link(
            handshake,
            self._identity,
            self._address,
            self._options,
            self._make_receiver,
            self._on_ready,
            self._on_failed,
            self._on_end,
        )
        if self._is_closed:
            link.abort()
            return link
        if len(self._strangers) >= MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()
            self._on_refused(ResourceExhaustedError(f"{self._address}: more than {MAX_STRANGERS} handshakes at a time"))
        self.all.add(link)
        self._strangers[link] = None
        return link

    def connections(self) -> list[Connection]:
        return [link.connection for link in self.all if link.connection is not None]

    def refuse(self) -> None:
        """Take no more sockets, and close those in the handshake."""
        self._is_closed = True
        for link in list(self._strangers):
            link.abort()

    def _on_ready(self, link: Link, connection: Connection) -> None:
        del self._strangers[link]

    def _on_failed(self, link: Link, error: OpError) -> None:
        self._strangers.pop(link, None)
        self._on_refused(error)

    def _on_end(self, link: Link) -> None:
        self._strangers.pop(link, None)
        self.all.discard(link)


class Listener:
    """Takes connections; ``listen`` makes it.

    Attributes:
        address: where it listens, with the port that it got.
        connections: those that are open.
    """

    def __init__(self, address: str, server: asyncio.Server, links: _Links, unix_file: _UnixFile | None) -> None:
        self.address: str = address
        self._server = server
        self._links = links
        self._unix_file = unix_file

    @property
    def connections(self) -> list[Connection]:
        return [connection for connection in self._links.connections() if connection.is_open]

    async def close(self) -> None:
        """Take no more connections, and close those that there are, as ``Connection.close`` does."""
        self._links.refuse()
        try:
            await self._take_what_has_come()
        finally:
            self._server.close()
        if self._unix_file is not None:
            unix_file, self._unix_file = self._unix_file, None
            await asyncio.to_thread(unix_file.remove)
        await asyncio.gather(*(connection.close() for connection in self._links.connections()))
        await self._server.wait_closed()

    async def _take_what_has_come(self) -> None:
        """Let sockets that the event loop has taken come to the links.

        asyncio drops those that it has taken and not given to a server that is closed; nobody closes them then.
        """
        with contextlib.suppress(NotImplementedError):  # loops that wait for no files
            for sock in self._server.sockets:
                asyncio.get_running_loop().remove_reader(sock.fileno())
        await asyncio.sleep(0)


async def listen(
    address: str,
    identity: Identity,
    security: Security,
    make_receiver: Callable[[Connection], Receiver],
    *,
    options: TransportOptions = DEFAULT_OPTIONS,
    on_refused: Callable[[OpError], None] = lambda error: None,
) -> Listener:
    """Take connections at *address*.

    Args:
        address: as for ``dial``; port 0 stands for any that is free.  A unix socket can be used by this user alone; its
            file is replaced if nobody listens there any more.
        identity: who this process is.
        security: what both ends know.
        make_receiver: makes what gets whatever comes over a connection; it is called before anything does.
        options: limits and times.
        on_refused: is told why somebody got no connection.

    Raises:
        InvalidArgumentError: *address* is none.
        AlreadyExistsError: somebody else listens there.
        UnavailableError: the address cannot be used.
        FailedPreconditionError: there is TLS, without a certificate of this process.
    """
    target = parse_address(address)
    tls = None if isinstance(target, UnixAddress) or security.tls is None else security.tls
    if tls is not None and tls.server is None:
        raise FailedPreconditionError(f"{target}: listening with TLS needs a certificate", hint="Tls.from_files(...)")
    unix_file: _UnixFile | None = None
    try:
        if isinstance(target, UnixAddress):
            unix_file = await asyncio.to_thread(_bind_unix, target)
            sock = unix_file.sock
        else:
            sock = await _bind_tcp(target)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyExistsError(f"{target}: somebody listens there already") from error
        raise UnavailableError(f"{target}: cannot listen: {error}") from error
    bound = str(target) if isinstance(target, UnixAddress) else str(TcpAddress(*sock.getsockname()[:2]))
    links = _Links(bound, identity, security, make_receiver, options, on_refused)
    try:
        server = await _serve(sock, links.make, tls.server if tls is not None else None, options)
    except BaseException:
        sock.close()
        raise
    return Listener(bound, server, links, unix_file)


async def _serve(
    sock: socket.socket, make_link: Callable[[], Link], context: ssl.SSLContext | None, options: TransportOptions
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if sock.family == socket.AF_UNIX:
        return await loop.create_unix_server(make_link, sock=sock, backlog=_BACKLOG)
    timeouts: dict[str, Any] = {}
    if context is not None:
        timeouts = {
            "ssl_handshake_timeout": options.handshake_timeout_s,
            "ssl_shutdown_timeout": options.close_grace_s,
        }
    return await loop.create_server(make_link, sock=sock, backlog=_BACKLOG, ssl=context, **timeouts)


async def _bind_tcp(target: TcpAddress) -> socket.socket:
    """A socket at the first address that the host has: with port 0, several would get different ports."""
    found = await asyncio.get_running_loop().getaddrinfo(
        target.host, target.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, place = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class _UnixFile:
    """The socket that listens, and its file, which is removed unless somebody has put another one there."""

    def __init__(self, sock: socket.socket, path: str) -> None:
        self.sock = sock
        self._path = path
        self._identity = _file_identity(path)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if _file_identity(self._path) == self._identity:
                os.unlink(self._path)


def _file_identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _bind_unix(target: UnixAddress) -> _UnixFile:
    """A socket that others can reach as soon as it listens; it waits for the file system, so not in the loop."""
    _remove_if_left(target.path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(target.path)
        os.chmod(target.path, 0o600)
        sock.setblocking(False)
        return _UnixFile(sock, target.path)
    except BaseException:
        sock.close()
        raise


def _remove_if_left(path: str) -> None:
    """Remove the file of a socket that nobody listens at; OSError if somebody does."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return  # bind fails
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except BlockingIOError:  # it listens, with more callers than it can take
            raise OSError(errno.EADDRINUSE, "somebody listens there") from None
        else:
            raise OSError(errno.EADDRINUSE, "somebody listens there")
