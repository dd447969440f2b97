"""Cluster: the workers of a session's steps, as the process of the session knows them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from asyncexec.distributed.client_session import ClientSession
from asyncexec.distributed.cluster_spec import CLIENT_JOB, ClusterSpec, worker_name
from asyncexec.distributed.launcher import Launcher
from asyncexec.distributed.messages import (
    Kind,
    pack_json,
    session_of,
)
from asyncexec.distributed.peer_link import PeerLink
from asyncexec.distributed.remote_worker import RemoteWorker
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security
from asyncexec.distributed.wire_errors import note_loss
from asyncexec.distributed.worker import PROGRAM
from asyncexec.distributed.worker_inbound import CLIENT_ROLE
from asyncexec.framework.device import Device
from asyncexec.framework.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
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
        self._workers: dict[str, RemoteWorker] = {}
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
                self._workers[name] = RemoteWorker(self, name, address)
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

    async def add_worker(self, job: str, task: int, address: str) -> str:
        """Take in a worker that listens at *address*; its name.

        Sessions that are open place nodes on it in signatures that they have not run yet, and maps whose ``workers``
        name it send it items, those under way, too.

        Raises:
            AlreadyExistsError: there is a worker of that name.
            InvalidArgumentError: the job, the task or the address is malformed.
            FailedPreconditionError: the cluster is not open.
            OpError: the worker cannot be reached.
        """
        ((name, address),) = ClusterSpec({job: {task: address}})
        if not self._is_open:
            raise FailedPreconditionError("this cluster is not open")
        if name in self._workers:
            raise AlreadyExistsError(f"there is a worker {name} already")
        worker = self._workers[name] = RemoteWorker(self, name, address, is_launched=False)
        for session in self._sessions.values():
            session.expect_worker()
        try:
            await worker.link.connected()
        except BaseException:
            await self.remove_worker(name)
            raise
        return name

    async def remove_worker(self, name: str) -> None:
        """Let go of a worker; steps that it takes part in fail, and items of maps that it has go to others.

        Raises:
            InvalidArgumentError: there is no worker of that name.
        """
        worker = self._workers.pop(name, None)
        if worker is None:
            raise InvalidArgumentError(f"there is no worker {name!r}; there are {', '.join(self._workers)}")
        self.lose(name, UnavailableError(f"{name} has been removed from the cluster"))
        for session in self._sessions.values():
            session.remove_worker()
        await worker.link.close()

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
        while session.number in self._sessions:
            session = ClientSession(self)
        self._begin(session)
        return session

    def _begin(self, session: ClientSession) -> None:
        self._sessions[session.number] = session
        told = self._open_message(session, self._workers.values())
        for worker in self._workers.values():
            if worker.link.connection is not None:
                worker.link.connection.send(Kind.OPEN, told)

    def renumber(self, session: ClientSession, before: int) -> None:
        """Tell the workers that *session*, whose number was *before*, has another one."""
        del self._sessions[before]
        for worker in self._workers.values():
            if worker.link.connection is not None:
                worker.link.connection.send(Kind.CLOSE, pack_json({"session": before}))
        self._begin(session)

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

    def joined(self, worker: RemoteWorker, connection: Connection) -> None:
        """A worker has been reached: it is told of the sessions and of all others, and they of it."""
        for session in self._sessions.values():
            if session.is_closing:
                continue
            connection.send(Kind.OPEN, self._open_message(session, self._workers.values()))
            told = self._open_message(session, [worker])
            for other in self._workers.values():
                if other is not worker and other.link.connection is not None:
                    other.link.connection.send(Kind.OPEN, told)

    def _open_message(self, session: ClientSession, workers: Iterable[RemoteWorker]) -> bytes:
        """What tells a worker of a session, and where *workers* are."""
        peers = {worker.name: (worker.address, worker.incarnation) for worker in workers if worker.incarnation}
        return pack_json({"session": session.number, "peers": peers})

    def refused(self, worker: RemoteWorker, number: int, error: OpError) -> None:
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

    async def dial(self, worker: RemoteWorker) -> Connection:
        """A connection to *worker*, which is started again if need be.

        Raises:
            OpError: it cannot be reached in time, or refuses.
        """
        loop = asyncio.get_running_loop()
        until_s, wait_s = loop.time() + self._reconnect_timeout_s, _FIRST_RETRY_S
        while True:
            if worker.incarnation and worker.is_launched:
                worker.address = await self._launcher.revive(worker.name)
            try:
                return await worker.dial(self._identity, self._security, self._options)
            except UnavailableError:
                if loop.time() + wait_s >= until_s:
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_RETRY_S)


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
