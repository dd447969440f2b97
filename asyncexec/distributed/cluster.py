"""Cluster: the workers of a session's steps, as the process of the session knows them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from asyncexec.distributed.client_session import ClientSession
from asyncexec.distributed.cluster_spec import CLIENT_JOB, worker_name
from asyncexec.distributed.launcher import Launcher
from asyncexec.distributed.messages import (
    Kind,
    pack_json,
    session_of,
    told_number,
    told_object,
    unpack_done,
    unpack_json,
)
from asyncexec.distributed.peer_link import PeerLink
from asyncexec.distributed.transport.connection import Connection, Crossings
from asyncexec.distributed.transport.dialing import dial
from asyncexec.distributed.transport.identity import Expected, Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security
from asyncexec.distributed.wire_errors import decode_error, note_loss
from asyncexec.distributed.worker import PROGRAM
from asyncexec.distributed.worker_inbound import CLIENT_ROLE
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.device import Device, DeviceAttributes, DeviceLocality
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, OpError, UnavailableError
from asyncexec.session.worker_statistics import WorkerStatistics

_FIRST_RETRY_S: Final = 0.05
_MAX_RETRY_S: Final = 1.0


class Cluster:
    """Workers, for sessions: ``async with ax.cluster.local(2) as cluster, ax.Session(graph, cluster=cluster) as s:``.

    Functions of ``ax.cluster`` make it.  Nodes go to a worker if they ask for its devices: ``with
    ax.device("/job:worker/task:1"):``.  A worker that is lost fails the steps that it takes part in with
    UnavailableError; it is started, or dialed, again, gets its graphs again, and takes part in the next steps.

    >>> cluster = ax.cluster.local(2)
    >>> isinstance(cluster, ax.Cluster)
    True

    Args:
        launcher: starts the workers.
        security: what the workers want to know.
        options: limits and times of connections.
        reconnect_timeout_s: how long steps wait for a worker that is lost before they fail.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        security: Security | None = None,
        options: TransportOptions | None = None,
        reconnect_timeout_s: float = 30.0,
    ) -> None:
        self._launcher = launcher
        self._security = security or Security()
        self._options = options or TransportOptions()
        self._reconnect_timeout_s = reconnect_timeout_s
        self._identity = Identity(worker_name(CLIENT_JOB, 0), secrets.randbits(64) or 1, CLIENT_ROLE, PROGRAM)
        self._workers: dict[str, _RemoteWorker] = {}
        self._sessions: dict[int, ClientSession] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise FailedPreconditionError("this cluster has been opened already")
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        try:
            spec = await self._launcher.start()
            for name, address in spec:
                self._workers[name] = _RemoteWorker(self, name, address)
            await _all_connected([worker.link for worker in self._workers.values()])
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def is_open(self) -> bool:
        """Whether sessions may use it."""
        return self._is_open

    @property
    def objects(self) -> bool:
        """Whether Python objects, and functions by name, travel to the workers."""
        return self._options.objects

    @property
    def workers(self) -> Sequence[str]:
        """The names of the workers, such as ``/job:worker/replica:0/task:1``."""
        return list(self._workers)

    def connected(self) -> Mapping[str, bool]:
        """Whether each worker can be reached now, by its name."""
        return {name: worker.link.connection is not None for name, worker in self._workers.items()}

    def statistics(self) -> Sequence[WorkerStatistics]:
        """How each worker is doing, with the steps of all sessions."""
        return self.statistics_with(sum((session.running_steps() for session in self._sessions.values()), Counter()))

    def statistics_with(self, running: Mapping[str, int]) -> Sequence[WorkerStatistics]:
        """How each worker is doing; *running* has the number of its steps, by its name."""
        return tuple(worker.statistics(running.get(name, 0)) for name, worker in self._workers.items())

    def __repr__(self) -> str:
        if self._loop is None:
            return "<ax.Cluster, not open yet>"
        words = [f"{sum(self.connected().values())} of {len(self._workers)} workers connected"]
        words += [] if self._is_open else ["closed"]
        return f"<ax.Cluster: {', '.join(words)}>"

    def begin_session(self) -> ClientSession:
        """What one session may use; FailedPreconditionError when the cluster is not open here."""
        if not self._is_open:
            raise FailedPreconditionError("this cluster is not open", hint="async with the cluster, around the session")
        if asyncio.get_running_loop() is not self._loop:
            raise FailedPreconditionError("this cluster was opened in another event loop")
        session = ClientSession(self)
        self._sessions[session.number] = session
        told = self._open_message(session, self._workers.values())
        for worker in self._workers.values():
            if worker.link.connection is not None:
                worker.link.connection.send(Kind.OPEN, told)
        return session

    def end_session(self, number: int) -> None:
        """Forget a session."""
        self._sessions.pop(number, None)

    def devices(self) -> Sequence[Device]:
        """The devices of all workers."""
        return [device for worker in self._workers.values() for device in worker.devices]

    def link(self, worker: str) -> PeerLink | None:
        """The way to *worker*; None if there is no such worker."""
        found = self._workers.get(worker)
        return None if found is None else found.link

    def links(self) -> Sequence[PeerLink]:
        """The ways to all workers."""
        return [worker.link for worker in self._workers.values()]

    async def close(self) -> None:
        """Close the connections, and end the workers that were started for this cluster.

        Steps under way fail.  Sessions that use the cluster should be closed first.
        """
        self._is_open = False
        error = UnavailableError("the cluster has been closed")
        for session in list(self._sessions.values()):
            for name in self._workers:
                session.lose(name, error)
        try:
            await asyncio.gather(*(worker.link.close() for worker in self._workers.values()))
        finally:
            await self._launcher.close()

    def session(self, number: int) -> ClientSession | None:
        """The session of that number."""
        return self._sessions.get(number)

    def joined(self, worker: _RemoteWorker, connection: Connection) -> None:
        """A worker has been reached: it is told of the sessions and of all others, and they of it."""
        for session in self._sessions.values():
            if session.is_closing:
                continue
            connection.send(Kind.OPEN, self._open_message(session, self._workers.values()))
            told = self._open_message(session, [worker])
            for other in self._workers.values():
                if other is not worker and other.link.connection is not None:
                    other.link.connection.send(Kind.OPEN, told)

    def _open_message(self, session: ClientSession, workers: Iterable[_RemoteWorker]) -> bytes:
        """What tells a worker of a session, and where *workers* are."""
        peers = {worker.name: (worker.address, worker.incarnation) for worker in workers if worker.incarnation}
        return pack_json({"session": session.number, "peers": peers})

    def refused(self, worker: _RemoteWorker, number: int, error: OpError) -> None:
        """A worker does not take a session."""
        session = self._sessions.get(number)
        if session is not None:
            session.refused(worker.name, error)

    def fail_step(self, step_id: int, error: OpError) -> None:
        """Something of a step could not be sent."""
        session = self._sessions.get(session_of(step_id))
        if session is not None:
            session.refuse(step_id, error)

    def lose(self, name: str, error: OpError) -> None:
        """A worker cannot be reached."""
        note_loss(error, name)
        for session in list(self._sessions.values()):
            session.lose(name, error)

    async def dial(self, worker: _RemoteWorker) -> Connection:
        """A connection to *worker*, which is started again if need be.

        Raises:
            OpError: it cannot be reached in time, or refuses.
        """
        loop = asyncio.get_running_loop()
        until_s, wait_s = loop.time() + self._reconnect_timeout_s, _FIRST_RETRY_S
        while True:
            if worker.incarnation:
                worker.address = await self._launcher.revive(worker.name)
            try:
                return await worker.dial(self._identity, self._security, self._options)
            except UnavailableError:
                if loop.time() + wait_s >= until_s:
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_RETRY_S)


class _RemoteWorker:
    """A worker, and the way to it.

    Attributes:
        incarnation: that of the process that was reached last; 0 before.
    """

    incarnation: int
    link: PeerLink

    def __init__(self, cluster: Cluster, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.incarnation = 0
        self.devices: Sequence[Device] = ()
        self._times_lost = 0
        self._crossings = Crossings()  # by connections that are lost
        self._cluster = cluster
        self.link = PeerLink(name, lambda: cluster.dial(self), cluster.lose, cluster.fail_step)

    async def dial(self, identity: Identity, security: Security, options: TransportOptions) -> Connection:
        """A connection over which the worker has told of its devices."""
        status = asyncio.get_running_loop().create_future()
        connection = await dial(
            self.address,
            identity,
            security,
            partial(_Inbound, self._cluster, self, status),
            expects=Expected(self.name),
            options=options,
        )
        try:
            told = await asyncio.wait_for(status, options.handshake_timeout_s)
            devices = told.get("devices")
            if not isinstance(devices, list) or not devices:
                raise InvalidArgumentError(f"{self.name} has told of no devices")
            self.devices = [_device(each, self.name) for each in devices]
        except TimeoutError:
            connection.abort()
            raise UnavailableError(f"{self.name} at {self.address} has not told of its devices") from None
        except BaseException:
            connection.abort()
            raise
        self.incarnation = connection.peer.incarnation
        self._cluster.joined(self, connection)
        return connection

    def lose(self, error: OpError) -> None:
        """The connection is lost: dial again."""
        self._crossings = self._crossings_so_far()
        self._times_lost += 1
        self.link.lose()
        self._cluster.lose(self.name, error)
        if self._cluster.is_open:
            self.link.dial()

    def statistics(self, running_steps: int) -> WorkerStatistics:
        """How it is doing, with so many steps under way."""
        connection, crossings = self.link.connection, self._crossings_so_far()
        return WorkerStatistics(
            name=self.name,
            is_connected=connection is not None,
            times_lost=self._times_lost,
            running_steps=running_steps,
            tensors_sent=crossings.tensors_sent,
            tensors_received=crossings.tensors_received,
            bytes_sent=crossings.bytes_sent,
            bytes_received=crossings.bytes_received,
            queued_bytes=0 if connection is None else connection.queued_bytes,
            round_trip_ms=None if connection is None else connection.round_trip_ns / NS_PER_MS,
            shortest_round_trip_ms=None if connection is None else connection.shortest_round_trip_ns / NS_PER_MS,
        )

    def _crossings_so_far(self) -> Crossings:
        connection = self.link.connection
        now = Crossings() if connection is None else connection.crossings
        return Crossings(*map(sum, zip(self._crossings, now, strict=True)))


async def _all_connected(links: Sequence[PeerLink]) -> None:
    """Returns when all of *links* are; raises what the first has failed with, at once."""
    try:
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(link.connected())
    except* OpError as errors:
        failure = errors.exceptions[0]
    else:
        return
    raise failure


def _device(told: Any, worker: str) -> Device:
    """The device that *worker* has told of; InvalidArgumentError when that is none of its own."""
    try:
        attributes = DeviceAttributes(
            str(told["name"]),
            str(told["device_type"]),
            int(told["memory_limit"]),
            DeviceLocality(int(told["locality"]["bus_id"]), int(told["locality"]["numa_node"])),
            int(told["incarnation"]),
            str(told["physical_device_desc"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{worker} told of a device, and left out or mistook {error}") from None
    device = Device(attributes, is_remote=True)
    if str(device.parsed_name.address_space) != worker:
        raise InvalidArgumentError(f"{worker} told of a device that is not its own: {device.name}")
    return device


class _Inbound:
    """Gets what a worker says."""

    def __init__(
        self, cluster: Cluster, worker: _RemoteWorker, status: asyncio.Future[dict[str, Any]], connection: Connection
    ) -> None:
        self._cluster = cluster
        self._worker = worker
        self._status = status
        self._connection = connection

    def on_message(self, kind: int, body: bytes) -> None:
        try:
            self._take(kind, body)
        except Exception as error:
            shown = error.message if isinstance(error, OpError) else repr(error)
            self._connection.lose(f"it has sent a malformed message: {shown}")

    def _take(self, kind: int, body: bytes) -> None:
        if kind == Kind.DONE:
            done = unpack_done(body)
            session = self._cluster.session(session_of(done.step_id))
            if session is not None:
                session.done(self._worker.name, done, self._connection.clock_offset_ns)
        elif kind == Kind.STATUS:
            if not self._status.done():
                self._status.set_result(unpack_json(body))
        elif kind in (Kind.OPENED, Kind.CLOSED):
            session = self._cluster.session(told_number(unpack_json(body), "session"))
            if session is not None and kind == Kind.OPENED:
                session.opened_by(self._worker.name)
            elif session is not None:
                session.closed_by(self._worker.name)
        elif kind == Kind.REFUSED:
            self._refused(unpack_json(body))
        else:
            raise InvalidArgumentError(f"there are no messages of kind {kind}")

    def _refused(self, told: dict[str, Any]) -> None:
        error = decode_error(told_object(told, "error") or {}, self._worker.name, lambda _: None, objects=False)
        if "session" in told:
            self._cluster.refused(self._worker, told_number(told, "session"), error)
        elif self._worker.link.connection is self._connection:
            self._worker.lose(error)

    def on_tensor(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        session = self._cluster.session(session_of(step_id))
        if session is not None:
            session.arrive(step_id, key, value, is_dead)

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        session = self._cluster.session(session_of(step_id))
        if session is not None:
            message = f"{self._worker.name} sent for {key}: {error.message}"
            session.refuse(step_id, InvalidArgumentError(message))

    def on_lost(self, error: OpError) -> None:
        if not self._status.done():
            self._status.set_exception(error)
        elif self._worker.link.connection is self._connection:
            self._worker.lose(error)
