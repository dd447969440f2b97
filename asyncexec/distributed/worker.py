"""Worker: a process that runs partitions for the sessions of others."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Final, Self

from asyncexec.distributed.cluster_spec import CLIENT_JOB, ClusterSpec, worker_name
from asyncexec.distributed.exposure import check_exposure
from asyncexec.distributed.graph_wire import WorkerPolicy
from asyncexec.distributed.messages import (
    Kind,
    pack_json,
    session_of,
)
from asyncexec.distributed.peer_link import PeerLink
from asyncexec.distributed.step_rendezvous import Channel
from asyncexec.distributed.transport.address import parse_address
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import Listener, dial, listen
from asyncexec.distributed.transport.identity import Expected, Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security, Tls
from asyncexec.distributed.wire_errors import encode_error, note_loss
from asyncexec.distributed.worker_inbound import CLIENT_ROLE, WORKER_ROLE, Inbound, Outbound
from asyncexec.distributed.worker_limits import WorkerLimits
from asyncexec.distributed.worker_session import WorkerSession
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.framework.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
)
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.session.session_config import SessionConfig

PROGRAM: Final = sys.implementation.cache_tag or ""  # objects of another version of Python may not be readable
CLIENT_SPACE: Final = worker_name(CLIENT_JOB, 0)
_INCARNATION_BITS: Final = 64
_DRAIN_LOOK_S: Final = 0.02
_MAX_PEERS: Final = 10_000  # other workers that a worker knows


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
        limits: how much clients may make it hold (``ax.cluster.WorkerLimits``).
        options: limits and times of connections.

    Raises:
        InvalidArgumentError: *job* or *task* cannot be the name of a worker; it has no devices of a type.

    Attributes:
        name: its name in full; incarnation: a number that another start of it would not have.
        is_closed: whether it has ended, or is about to; is_draining: whether no more steps begin.
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
        limits: WorkerLimits | None = None,
        options: TransportOptions | None = None,
    ) -> None:
        ClusterSpec({job: {task: "here"}})  # which checks both
        self.name: str = worker_name(job, task)
        self.incarnation: int = secrets.randbits(_INCARNATION_BITS) or 1
        self._identity = Identity(self.name, self.incarnation, WORKER_ROLE, PROGRAM)
        self._config = config or SessionConfig()
        self._security = Security(token, tls)
        self._policy = WorkerPolicy(objects, frozenset(allowed_ops), limits or WorkerLimits())
        self._options = replace(options or TransportOptions(), objects=objects)
        self._shared = ResourceMgr() if shared else None
        self._listeners: list[Listener] = []
        self._sessions: dict[int, WorkerSession] = {}
        self._peers: dict[str, PeerLink] = {}
        self._addresses: dict[str, str] = {}  # of them
        self._inbound: dict[str, Connection] = {}  # by name, the connection that another worker has made
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed: bool = False
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
        if self.is_closed:
            raise FailedPreconditionError(f"{self.name} is closed")
        check_exposure(address, self._security, objects=self._policy.objects)
        listener = await listen(address, self._identity, self._security, partial(Inbound, self), options=self._options)
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
        self.is_closed = True
        for number in list(self._sessions):
            self._end_session(number, note_loss(UnavailableError(f"{self.name} is closed"), self.name))
        if self._closing:
            await asyncio.wait(self._closing)
        await asyncio.gather(
            *(link.close() for link in self._peers.values()), *(listener.close() for listener in self._listeners)
        )
        self._peers.clear()
        self._listeners.clear()
        if self._closing:  # who was refused meanwhile
            await asyncio.wait(self._closing)
        if self._shared is not None:
            self._shared.close()

    def session(self, number: int) -> WorkerSession | None:
        """The session of that number."""
        return self._sessions.get(number)

    def status(self) -> bytes:
        """What a client is told when it has connected."""
        return pack_json({"devices": self._devices})

    def open_session(self, number: int, connection: Connection, peers: dict[str, object]) -> None:
        """Begin a session, or let it know where other workers are now.

        Raises:
            InvalidArgumentError: *peers* is malformed.
            AlreadyExistsError: another process has a session of that number.
            ResourceExhaustedError: there are too many sessions.
            UnavailableError: the worker is closed.
        """
        if self.is_closed:
            raise UnavailableError(f"{self.name} is closed")
        session = self._sessions.get(number)
        if session is not None and session.connection is not connection:
            before = session.connection.peer
            if before != connection.peer:
                raise AlreadyExistsError(f"{self.name} has a session {number} of {before}")
            # Its process has lost the old connection, and we are yet to hear of that.
            self._end_session(number, UnavailableError(f"{before} has connected again"))
            session = None
        if session is None and len(self._sessions) >= self._policy.limits.max_sessions:
            most = self._policy.limits.max_sessions
            raise ResourceExhaustedError(f"{self.name} has {most} sessions, and takes no more (max_sessions)")
        for name, address, incarnation in _checked_peers(peers):
            self._learn(name, address, incarnation)
        if session is None:
            route = _Router(self.name, connection, self._peers)
            self._sessions[number] = WorkerSession(
                number, self.name, connection, self._config, self._policy, self._shared, route
            )

    def close_session(self, number: int, connection: Connection) -> None:
        """End a session that *connection* has begun, and tell when that is done."""
        session = self._sessions.get(number)
        if session is None or session.connection is not connection:
            _tell_closed(connection, number)
        else:
            closing = self._end_session(number, UnavailableError("the session has been closed"))
            closing.add_done_callback(lambda _: _tell_closed(connection, number))

    def joined(self, connection: Connection) -> None:
        """Another worker has connected.  An older connection of it is lost, even if nobody has noticed yet."""
        name = connection.peer.name
        before = self._inbound.get(name)
        self._inbound[name] = connection
        if before is not None:
            before.abort()
            self._lose_peer(name, UnavailableError(f"{before.peer} has connected again"))

    def limit_queue(self, connection: Connection) -> None:
        """End *connection* when its peer reads so slowly that too much waits for it."""
        most = self._policy.limits.max_queued_bytes
        error = ResourceExhaustedError(
            f"more than {most} bytes (max_queued_bytes) wait for {connection.peer}, which does not read them"
        )
        connection.limit_queue(most, lambda: self.refuse(connection, error))

    def refuse(self, connection: Connection, error: OpError) -> None:
        """Tell a peer that what it has sent cannot be taken, and end the connection."""
        if not connection.is_open:
            return
        if connection.peer.role == CLIENT_ROLE:
            told = encode_error(type(error)(f"{self.name} has refused what came: {error.message}"), objects=False)
            connection.send(Kind.REFUSED, pack_json({"error": told}))
        self.lose(connection, error)
        self.lose_peer(connection, error)
        self._keep(asyncio.get_running_loop().create_task(connection.close()))

    def lose(self, connection: Connection, error: OpError) -> None:
        """A connection is lost: end the sessions that came by it, and let the others know."""
        name = connection.peer.name
        note_loss(error, name)
        for number, session in list(self._sessions.items()):
            if session.connection is connection:
                self._end_session(number, error)
        if self._inbound.get(name) is connection:
            del self._inbound[name]
            self._lose_peer(name, error)

    def lose_peer(self, connection: Connection, error: OpError) -> None:
        """A connection to another worker is lost."""
        link = self._peers.get(connection.peer.name)
        if link is not None and link.connection is connection:
            link.lose()
            self._lose_peer(connection.peer.name, error)

    def fail_step(self, step_id: int, error: OpError) -> None:
        """Something of a step could not be sent."""
        session = self._sessions.get(session_of(step_id))
        if session is not None:
            session.refuse(step_id, error)

    def _end_session(self, number: int, error: OpError) -> asyncio.Task[None]:
        session = self._sessions.pop(number)
        closing = asyncio.get_running_loop().create_task(session.close(error))
        self._keep(closing)
        return closing

    def _keep(self, closing: asyncio.Task[None]) -> None:
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _learn(self, name: str, address: str, incarnation: int) -> None:
        """Take note of where another worker is.

        Whoever answers there under that name is taken: steps that the worker has lost by being started again are
        failed by their coordinator, and what is told here may be older than what we see.
        """
        if name == self.name:
            return
        link = self._peers.get(name)
        if link is None:
            if len(self._peers) >= _MAX_PEERS:
                raise ResourceExhaustedError(f"{self.name} knows {_MAX_PEERS} workers, and takes note of no more")
            self._addresses[name] = address
            self._peers[name] = PeerLink(name, partial(self._dial, name), self._lose_peer, self.fail_step)
            return
        connection, is_elsewhere = link.connection, self._addresses[name] != address
        self._addresses[name] = address
        if connection is None and is_elsewhere:
            link.redial()
        elif connection is not None and connection.peer.incarnation != incarnation:
            connection.abort()
            self.lose_peer(connection, UnavailableError(f"{connection.peer} has been started again"))

    async def _dial(self, name: str) -> Connection:
        make, expects = partial(Outbound, self), Expected(name)
        return await dial(
            self._addresses[name], self._identity, self._security, make, expects=expects, options=self._options
        )

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

    def __call__(self, device: str) -> Channel | None:
        space = device.split("/device:", 1)[0]
        if space == self._own:
            return None
        if space == CLIENT_SPACE:
            return self._client
        if space not in self._peers:
            raise UnavailableError(f"{space} is not known to {self._own}")
        return self._peers[space]


def _tell_closed(connection: Connection, number: int) -> None:
    if connection.is_open:
        connection.send(Kind.CLOSED, pack_json({"session": number}))


def _checked_peers(peers: dict[str, object]) -> Iterator[tuple[str, str, int]]:
    """Name, address and incarnation of workers that a client has told of."""
    for name, told in peers.items():
        if not (isinstance(told, list) and len(told) == 2 and isinstance(told[0], str) and type(told[1]) is int):
            raise InvalidArgumentError(f"of worker {name[:100]!r} an address and an incarnation were to be told")
        parse_address(told[0])
        yield name, told[0], told[1]
