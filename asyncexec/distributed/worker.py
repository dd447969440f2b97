"""Worker: a process that runs partitions for the sessions of others."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, Self

from asyncexec.distributed.cluster_spec import CLIENT_JOB, ClusterSpec, worker_name
from asyncexec.distributed.exposure import check_exposure
from asyncexec.distributed.graph_wire import WorkerPolicy, unpack_register
from asyncexec.distributed.messages import (
    CONSTANTS_STEP,
    Kind,
    pack_json,
    session_of,
    step_in_session,
    unpack_forget,
    unpack_halt,
    unpack_json,
    unpack_run,
)
from asyncexec.distributed.peer_link import PeerLink
from asyncexec.distributed.step_rendezvous import Channel
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import Listener, dial, listen
from asyncexec.distributed.transport.identity import Expected, Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security, Tls
from asyncexec.distributed.wire_errors import note_loss
from asyncexec.distributed.worker_session import WorkerSession
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.framework.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.session.session_config import SessionConfig

PROGRAM: Final = sys.implementation.cache_tag or ""  # objects of another version of Python may not be readable
CLIENT_SPACE: Final = worker_name(CLIENT_JOB, 0)
WORKER_ROLE: Final = "worker"
CLIENT_ROLE: Final = "client"
_INCARNATION_BITS: Final = 64
_DRAIN_LOOK_S: Final = 0.02


class Worker:
    """Runs the nodes that sessions of other processes place on its devices.

    ``async with ax.Worker("worker", 0) as worker: address = await worker.listen("127.0.0.1:7000")``; then
    ``ax.cluster.connect`` finds it there.  Leaving the block ends all steps under way.

    >>> worker = ax.Worker("worker", 0, token="a secret of this cluster")
    >>> worker.name
    '/job:worker/replica:0/task:0'

    Args:
        job, task: its name in the cluster: its devices are ``/job:worker/task:0/cpu:0`` and so on.
        config: how its executors behave, and how many devices it has.
        token: a secret that clients and other workers must know.
        tls: what connections over TCP are encrypted with (``ax.cluster.Tls.from_files``).
        objects: whether functions may be imported and objects unpickled: clients are of the same program, and trusted.
        allowed_ops: op types that may reach outside the graph; with *objects*, all may.
        shared: whether sessions share variables, queues and tables by name; else each has its own.
        options: limits and times of connections.

    Raises:
        InvalidArgumentError: *job* or *task* cannot be the name of a worker; it has no devices of a type.

    Attributes:
        name: its name in full; incarnation: a number that another start of it would not have.
        is_draining: whether no more steps begin.
    """

    def __init__(
        self,
        job: str = "worker",
        task: int = 0,
        *,
        config: SessionConfig | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        objects: bool = False,
        allowed_ops: Collection[str] = (),
        shared: bool = False,
        options: TransportOptions | None = None,
    ) -> None:
        ClusterSpec({job: {task: "here"}})  # which checks both
        self.name: str = worker_name(job, task)
        self.incarnation: int = secrets.randbits(_INCARNATION_BITS) or 1
        self._identity = Identity(self.name, self.incarnation, WORKER_ROLE, PROGRAM)
        self._config = config or SessionConfig()
        self._security = Security(token, tls)
        self._policy = WorkerPolicy(objects, frozenset(allowed_ops))
        self._options = replace(options or TransportOptions(), objects=objects)
        self._shared = ResourceMgr() if shared else None
        self._listeners: list[Listener] = []
        self._sessions: dict[int, WorkerSession] = {}
        self._peers: dict[str, PeerLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.is_draining: bool = False
        devices = create_devices(DeviceOptions(self._config.device_count, self.name))
        self._devices = [asdict(device.attributes) | {"on_host": device.shares_host_memory} for device in devices]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def listen(self, address: str) -> str:
        """Take connections at *address*; the address itself, with the port that was chosen for port 0.

        Raises:
            FailedPreconditionError: the worker is closed.
            InvalidArgumentError: strangers could connect: it is an address of TCP that other machines reach, or
                *objects* are allowed, and there is neither a token nor an authority that signs clients' certificates.
            OpError: the address is malformed, or in use.
        """
        if self._is_closed:
            raise FailedPreconditionError(f"{self.name} is closed")
        check_exposure(address, self._security, objects=self._policy.objects)
        listener = await listen(address, self._identity, self._security, partial(_Inbound, self), options=self._options)
        self._listeners.append(listener)
        return listener.address

    @property
    def num_sessions(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def num_steps(self) -> int:
        """How many steps are under way, in all sessions."""
        return sum(session.num_steps for session in self._sessions.values())

    async def drain(self, timeout_s: float) -> None:
        """Begin no more steps, and wait until those under way have ended, for *timeout_s* seconds at most."""
        self.is_draining = True
        until_s = asyncio.get_running_loop().time() + timeout_s
        while self.num_steps and asyncio.get_running_loop().time() < until_s:  # noqa: ASYNC110 - for a moment
            await asyncio.sleep(_DRAIN_LOOK_S)

    async def close(self) -> None:
        """End all steps under way, close all connections, and let go of everything."""
        self._is_closed = True
        for number in list(self._sessions):
            self._end_session(number, note_loss(UnavailableError(f"{self.name} is closed"), self.name))
        if self._closing:
            await asyncio.wait(self._closing)
        for link in self._peers.values():
            await link.close()
        self._peers.clear()
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        if self._shared is not None:
            self._shared.close()

    def session(self, number: int) -> WorkerSession | None:
        """The session of that number."""
        return self._sessions.get(number)

    def status(self) -> bytes:
        """What a client is told when it has connected."""
        return pack_json({"devices": self._devices})

    def open_session(self, number: int, connection: Connection, peers: dict[str, Any]) -> None:
        """Begin a session, or let it know where the other workers are now."""
        if self._is_closed:
            raise AbortedError(f"{self.name} is closed")
        for name, (address, incarnation) in peers.items():
            self._learn(str(name), str(address), int(incarnation))
        if number not in self._sessions:
            route = _Router(self.name, connection, self._peers)
            self._sessions[number] = WorkerSession(
                number, self.name, connection, self._config, self._policy, self._shared, route
            )

    def close_session(self, number: int, connection: Connection) -> None:
        """End a session that *connection* has begun, and tell when that is done."""
        session = self._sessions.get(number)
        if session is not None and session.connection is connection:
            closing = self._end_session(number, UnavailableError("the session has been closed"))
            closing.add_done_callback(lambda _: connection.send(Kind.CLOSED, pack_json({"session": number})))

    def lose(self, connection: Connection, error: OpError) -> None:
        """A connection is lost: end the sessions that came by it, and let the others know."""
        name = connection.peer.name
        note_loss(error, name)
        for number, session in list(self._sessions.items()):
            if session.connection is connection:
                self._end_session(number, error)
            elif connection.peer.role == WORKER_ROLE:
                session.lose(name, error)

    def lose_peer(self, connection: Connection, error: OpError) -> None:
        """A connection to another worker is lost."""
        link = self._peers.get(connection.peer.name)
        if link is not None and link.connection is connection:
            link.lose()
        self._lose_peer(connection.peer.name, error)

    def _end_session(self, number: int, error: OpError) -> asyncio.Task[None]:
        session = self._sessions.pop(number)
        closing = asyncio.get_running_loop().create_task(session.close(error))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    def _learn(self, name: str, address: str, incarnation: int) -> None:
        """Take note of where another worker is."""
        known = self._peers.get(name)
        if name == self.name or (known is not None and known.connection is not None):
            return
        expects = Expected(name, incarnation)

        async def connect() -> Connection:
            make = partial(_Outbound, self)
            return await dial(address, self._identity, self._security, make, expects=expects, options=self._options)

        self._peers[name] = PeerLink(name, connect, self._lose_peer)

    def _lose_peer(self, name: str, error: OpError) -> None:
        note_loss(error, name)
        for session in self._sessions.values():
            session.lose(name, error)


class _Router:
    """Finds the way to the process of a device."""

    def __init__(self, own: str, client: Connection, peers: dict[str, PeerLink]) -> None:
        self._own = own
        self._client = client
        self._peers = peers
        self._known: dict[str, Channel | None] = {}

    def __call__(self, device: str) -> Channel | None:
        space = device.split("/device:", 1)[0]
        if space == self._own:
            return None
        if space == CLIENT_SPACE:
            return self._client
        if space not in self._peers:
            raise UnavailableError(f"{space} is not known to {self._own}")
        return self._peers[space]


class _Inbound:
    """Gets what comes by a connection that a client, or another worker, has made."""

    def __init__(self, worker: Worker, connection: Connection) -> None:
        self._worker = worker
        self._connection = connection
        if connection.peer.role == CLIENT_ROLE:
            connection.send(Kind.STATUS, worker.status())

    def on_message(self, kind: int, body: bytes) -> None:
        if self._connection.peer.role == CLIENT_ROLE:
            _HANDLERS[Kind(kind)](self._worker, self._connection, body)

    def on_tensor(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        session = self._worker.session(session_of(step_id))
        if session is None:
            return  # it has ended
        if step_in_session(step_id) != CONSTANTS_STEP:
            session.arrive(step_id, key, value, is_dead)
        elif session.connection is self._connection:
            graph_id, device, name = key.split(";", 2)
            session.take_constant(int(graph_id), (device, name), value)

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        session = self._worker.session(session_of(step_id))
        if session is not None:
            session.refuse(step_id, InvalidArgumentError(f"{self._worker.name} got for {key}: {error.message}"))

    def on_lost(self, error: OpError) -> None:
        self._worker.lose(self._connection, error)


class _Outbound(_Inbound):
    """Gets what comes by a connection to another worker that was made here: that it is lost."""

    def on_lost(self, error: OpError) -> None:
        self._worker.lose_peer(self._connection, error)


def _open(worker: Worker, connection: Connection, body: bytes) -> None:
    told = unpack_json(body)
    worker.open_session(int(told["session"]), connection, told["peers"])


def _close(worker: Worker, connection: Connection, body: bytes) -> None:
    worker.close_session(int(unpack_json(body)["session"]), connection)


def _of_client(worker: Worker, connection: Connection, number: int) -> WorkerSession | None:
    """The session *number*, if *connection* has begun it."""
    session = worker.session(number)
    return session if session is not None and session.connection is connection else None


def _register(worker: Worker, connection: Connection, body: bytes) -> None:
    registration = unpack_register(body)
    session = _of_client(worker, connection, registration.session)
    if session is not None:
        session.register(registration)


def _deregister(worker: Worker, connection: Connection, body: bytes) -> None:
    told = unpack_json(body)
    session = _of_client(worker, connection, int(told["session"]))
    if session is not None:
        session.deregister(int(told["graph"]))


def _run(worker: Worker, connection: Connection, body: bytes) -> None:
    run = unpack_run(body)
    session = _of_client(worker, connection, session_of(run.step_id))
    if session is None:
        return
    if worker.is_draining:
        session.refuse_run(run, UnavailableError(f"{worker.name} is about to end"))
    else:
        session.run(run)


def _halt(worker: Worker, connection: Connection, body: bytes) -> None:
    halt = unpack_halt(body)
    session = _of_client(worker, connection, session_of(halt.step_id))
    if session is not None:
        session.halt(halt)


def _forget(worker: Worker, connection: Connection, body: bytes) -> None:
    forget = unpack_forget(body)
    session = _of_client(worker, connection, session_of(forget.step_id))
    if session is not None:
        session.forget(forget)


_HANDLERS: Final[dict[Kind, Callable[[Worker, Connection, bytes], None]]] = {
    Kind.OPEN: _open,
    Kind.CLOSE: _close,
    Kind.REGISTER: _register,
    Kind.DEREGISTER: _deregister,
    Kind.RUN: _run,
    Kind.HALT: _halt,
    Kind.FORGET: _forget,
}
