"""``serve``: the service on two ports, HTTP and gRPC, in one event loop; it ends when what it has accepted has."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from asyncexec.framework.errors import InvalidArgumentError, UnavailableError
from asyncexec.framework.spans import Hook
from asyncexec.graph.graph import Graph
from asyncexec.service.app import InferenceApp, Tokens, create_app
from asyncexec.service.grpc.front import grpc_handler
from asyncexec.service.grpc.guard import Guard
from asyncexec.service.grpc.health import FREE_CALLS, health_handler
from asyncexec.service.grpc.health import SERVICE as HEALTH_SERVICE
from asyncexec.service.grpc.observer import GrpcObserver
from asyncexec.service.grpc.reflection import reflection_handlers
from asyncexec.service.http.front import MAX_BODY_BYTES
from asyncexec.service.http.server import HttpServer
from asyncexec.service.master.front import master_handler
from asyncexec.service.master.sessions import MasterSessions
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.open_streams import OpenStreams
from asyncexec.service.protocol_messages import SERVICE
from asyncexec.service.tf_serving.grpc import serving_grpc_handlers

_LOGGER: Final = logging.getLogger("asyncexec.service")
_FREE_CALLS: Final = (f"/{SERVICE}/ServerLive", f"/{SERVICE}/ServerReady", *FREE_CALLS)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_BACKLOG: Final = 2048
# A client that has vanished without a word is noticed after two minutes or so.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
_PING_MS, _PONG_MS = 60_000, 60_000  # the same over gRPC
_MOST_STREAMS: Final = 1000  # of a connection over gRPC


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a service listens."""

    host: str
    http: int
    grpc: int | None


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a certificate, with what it is signed by, and of its key, in PEM."""

    certificate: Path
    key: Path


@contextlib.asynccontextmanager
async def serving(
    models: Mapping[str, Graph | ModelSource] | ModelRepository | str | Path,
    *,
    host: str = "127.0.0.1",
    http_port: int = 8000,
    grpc_port: int | None = 8001,
    tls: Tls | None = None,
    tokens: Collection[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    drain_s: float = 30.0,
    page: bool = True,
    tensorflow_master: bool = False,
    tensorflow_master_files: bool = False,
    shared_memory: bool = False,
    hooks: Sequence[Hook] = (),
    trace_file: str | Path | None = None,
    allowed_hosts: Collection[str] = (),
) -> AsyncIterator[Ports]:
    """Serve *models* while the block runs.  At its end, no new request is taken, and those under way are answered.

    Args:
        http_port, grpc_port: 0 for any that is free; grpc_port None for HTTP alone.
        tls: the certificate of both ports; without one, they speak in clear text.
        drain_s: how long requests have to end.
        page: whether there is the live page at ``/``.
        tensorflow_master: over gRPC, run the graphs of ``tf.compat.v1.Session`` (``tensorflow.MasterService``).
        tensorflow_master_files: those graphs may read and write files.
        shared_memory: callers may let the service read and write objects in ``/dev/shm``.
        hooks: are told of the steps of all models, as those of a session.
        trace_file: where the timelines of sampled requests are written; clients choose which, by the trace extension.
        allowed_hosts: without tokens, names by which browsers may ask, beside *host*, that of this machine, localhost
            and addresses.

    Raises:
        InvalidArgumentError: *shared_memory* is for an address that other machines reach, and there are no tokens; the
            certificate or its key cannot be used.
        UnavailableError: a port is taken.
        NotFoundError: there is no such folder.
    """
    if shared_memory and not (tokens or _is_local(host)):
        raise InvalidArgumentError(
            f"other machines may reach {host}, and could read and write shared memory", hint="give callers tokens"
        )
    app = create_app(
        models,
        tokens=tokens,
        max_body_bytes=max_body_bytes,
        page=page,
        shared_memory=shared_memory,
        hooks=hooks,
        trace_file=trace_file,
        allowed_hosts=(host, socket.gethostname(), *allowed_hosts),
    )
    async with contextlib.AsyncExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(_listen(host, http_port)))
        stack.push_async_callback(app.close)
        certificate, key = (None, None) if tls is None else (tls.certificate, tls.key)
        http = HttpServer(app, certificate, key, drain_s, max_body_bytes, app.begin)
        app.telemetry.num_connections = lambda: len(http.server_state.connections)
        remote, grpc_bound, guard = None, None, None
        if grpc_port is not None:
            streams = OpenStreams()
            inference = grpc_handler(app.repository, app.shared_memory, streams, app.telemetry)
            services = [inference, *serving_grpc_handlers(app.repository)]
            if tensorflow_master:
                masters = MasterSessions(allows_files=tensorflow_master_files)
                stack.push_async_callback(masters.close)
                services.append(master_handler(masters))
            names = [each.service_name() for each in services]
            services += [health_handler(app.repository, names), *reflection_handlers([*names, HEALTH_SERVICE])]
            guard = Guard(services, Tokens(tokens), _FREE_CALLS, streams, GrpcObserver(app.telemetry))
            remote, grpc_bound = _grpc_server(guard, host, grpc_port, tls, max_body_bytes)
        answering = asyncio.create_task(http.serve([listening]))
        stack.push_async_callback(_end, app, http, answering, guard, remote, drain_s)
        await app.start()  # health is told meanwhile
        if remote is not None:
            await remote.start()
        yield Ports(host, listening.getsockname()[1], grpc_bound)


async def _end(
    app: InferenceApp, http: HttpServer, answering: asyncio.Task[None], guard: Guard | None, remote: Any, drain_s: float
) -> None:
    """Answer what has been accepted, and nothing more; *remote* is the gRPC server, if there is one."""
    app.repository.stop_being_ready()
    app.end_page()
    await asyncio.gather(http.end(), *([] if guard is None else [guard.close()]))

    async def end_http() -> None:
        await app.end_streams(drain_s)
        http.should_exit = True
        await answering

    stopping = [] if remote is None else [asyncio.create_task(remote.stop(drain_s))]
    await asyncio.sleep(0)  # it tells the clients' channels first
    if guard is not None:
        guard.refuse()
    await asyncio.gather(end_http(), *stopping)


async def serve(
    models: Mapping[str, Graph | ModelSource] | ModelRepository | str | Path,
    *,
    on_start: Callable[[Ports], None] | None = None,
    **options: Any,
) -> None:
    """Serve *models* until the process gets SIGTERM or SIGINT; *options* are those of ``serving``.

    Args:
        on_start: called with the ports, once they are listened to.
    """
    is_told, has_started = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with serving(models, **options) as ports:
            has_started.set()
            if on_start is not None:
                on_start(ports)
            await is_told.wait()

    with _signals(is_told):
        running, telling = asyncio.create_task(run()), asyncio.create_task(is_told.wait())
        try:
            await asyncio.wait((running, telling), return_when=asyncio.FIRST_COMPLETED)
            if not has_started.is_set():
                running.cancel()  # models that are being loaded are not waited for
            await running
        except asyncio.CancelledError:
            running.cancel()
            if has_started.is_set() or not is_told.is_set():
                raise
        finally:
            telling.cancel()
            await asyncio.gather(running, telling, return_exceptions=True)


@contextlib.contextmanager
def _signals(is_told: asyncio.Event) -> Iterator[None]:
    """The first signal sets *is_told*; what the next one does is the system's business."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        is_told.set()
        forget()

    def forget() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, tell)
    try:
        yield
    finally:
        forget()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UnavailableError(f"cannot listen to {host}:{port}: there is no such address") from None
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # its connections inherit that
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise UnavailableError(f"cannot listen to {host}:{port}: {error.strerror}") from None
    return listening


def _is_local(host: str) -> bool:
    """Whether only this machine reaches *host*."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _grpc_server(guard: Guard, host: str, port: int, tls: Tls | None, max_bytes: int) -> tuple[Any, int]:
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", max_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", _MOST_STREAMS),
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.keepalive_timeout_ms", _PONG_MS),
        ],
    )
    server.add_generic_rpc_handlers((guard,))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            pair = tls.key.read_bytes(), tls.certificate.read_bytes()
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError:
        bound = 0
    if not bound:
        raise UnavailableError(f"cannot listen to {address}")
    return server, bound
