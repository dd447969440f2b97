"""ClientSession: what one session of the coordinator has on the workers.

After ``MasterSession`` in ``tensorflow/core/distributed_runtime/master_session.cc``.  Nothing is awaited before a step
begins: a graph is registered in the same breath as its first step begins, and messages of one connection keep their
order.  But a step is held while one of its workers does not know of the session yet: others might send it values.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from asyncexec.distributed.cluster_spec import CLIENT_JOB, worker_name
from asyncexec.distributed.collective_calls import LEADER
from asyncexec.distributed.collective_executor import ClusterCollectiveExecutor
from asyncexec.distributed.collective_leader import CollectiveLeader
from asyncexec.distributed.graph_wire import encode_partitions
from asyncexec.distributed.lost_state import LostState, Restore
from asyncexec.distributed.messages import (
    CONSTANTS_STEP,
    SESSION_BITS,
    Abort,
    Done,
    Forget,
    Kind,
    pack_abort,
    pack_forget,
    pack_json,
    step_in_session,
)
from asyncexec.distributed.peer_link import Action, PeerLink
from asyncexec.distributed.remote_runner import RemotePart, RemoteRunner
from asyncexec.distributed.step_rendezvous import Channel, StepRendezvous
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.partition_runner import PartitionRunner
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.derived import copy_of
from asyncexec.framework.device import Device
from asyncexec.framework.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.session.worker_statistics import WorkerStatistics

_MAX_NUMBERS: Final = 5  # that a session tries
_CLOSE_S: Final = 5.0  # how long workers may take to end a session


class RemoteWorkers(Protocol):
    """What a ClientSession needs of its cluster."""

    @property
    def is_open(self) -> bool: ...

    @property
    def objects(self) -> bool:
        """Whether Python objects may travel."""
        ...

    @property
    def workers(self) -> Sequence[str]: ...

    def devices(self) -> Sequence[Device]: ...

    def link(self, worker: str) -> PeerLink | None:
        """The way to *worker*, or None if there is no such worker."""
        ...

    def links(self) -> Sequence[PeerLink]: ...

    def statistics_with(self, running: Mapping[str, int]) -> Sequence[WorkerStatistics]:
        """How each worker is doing; *running* has the number of its steps, by its name."""
        ...

    def renumber(self, session: ClientSession, before: int) -> None:
        """Tell the workers that *session*, whose number was *before*, has another one."""
        ...

    def end_session(self, number: int) -> None:
        """Forget a session."""
        ...


class _Step:
    """A step that workers take part in."""

    __slots__ = ("held", "parts", "rendezvous", "restores")

    def __init__(self, rendezvous: StepRendezvous, *, restores: bool) -> None:
        self.rendezvous = rendezvous
        self.restores = restores  # whether it is one of those that bring lost variables back
        self.parts: dict[str, RemotePart] = {}  # by worker
        self.held: list[tuple[RemotePart, Action]] = []  # what begins them, until all of the workers are ready


class ClientSession:
    """See the head of this module; it is a ``Workers`` of asyncexec.session.

    Attributes:
        number: what the numbers of its steps begin with.
        is_closing: whether no worker is to be told of it any more.
    """

    number: int

    def __init__(self, cluster: RemoteWorkers) -> None:
        self.number = _draw_number()
        self._num_numbers = 1  # that it has had
        self._has_begun = False  # whether any worker has been told of a step
        self.is_closing: bool = False
        self._cluster = cluster
        self._steps: dict[int, _Step] = {}  # in the order of their numbers
        self._last_step = _first_step(self.number) + CONSTANTS_STEP
        self._last_graph = 0
        self._routes: dict[str, Channel | None] = {}
        self._closed_by: dict[str, asyncio.Future[None]] = {}
        self._refused_by: dict[str, OpError] = {}
        self._held: dict[int, _Step] = {}
        self._ready: set[str] = set()  # workers that take values of this session
        self._is_ready = False  # whether all of them do, and have what they are to have of it
        self._lost_state = LostState(self._restored)

    @property
    def objects(self) -> bool:
        """Whether Python objects may travel."""
        return self._cluster.objects

    def devices(self) -> Sequence[Device]:
        """The devices of all workers."""
        return self._cluster.devices()

    def names(self) -> Sequence[str]:
        """The names of all workers."""
        return self._cluster.workers

    def is_up(self, worker: str) -> bool:
        """Whether there is a connection to *worker*."""
        link = self._cluster.link(worker)
        return link is not None and link.connection is not None

    def runner(self, worker: str, partitions: Mapping[str, PartitionedGraph]) -> Stage[PartitionRunner]:
        """What runs *partitions* on *worker*; see ``Workers``."""
        wire = yield from encode_partitions(partitions, objects=self._cluster.objects)
        self._last_graph += 1
        return RemoteRunner(self, worker, self._last_graph, wire)

    def restore_with(self, restore: Restore) -> None:
        """Have variables that are lost with a worker brought back; see ``Workers``."""
        self._lost_state.restore_by(restore)

    def make_args(self, collector: StepStatsCollector | None, calls: WorkerCalls | None) -> ExecutorArgs:
        """What the partitions of a new step are given; with collectives where there are *calls* for them."""
        self._check_open()
        self._last_step += 1
        step_id = self._last_step
        if step_id >> SESSION_BITS != self.number:
            raise ResourceExhaustedError(f"the {1 << SESSION_BITS} steps of a session are over", hint="open another")
        rendezvous = StepRendezvous(step_id, self._route)
        if not self._is_ready:
            rendezvous.hold()
        collectives = None
        if calls is not None:
            leader = CollectiveLeader(rendezvous, lambda error: self.refuse(rendezvous.step_id, error))
            leader.listen(LEADER)
            collectives = ClusterCollectiveExecutor(rendezvous, LEADER, calls.call, leader)
        return ExecutorArgs(rendezvous, step_id, collector, CancellationManager(), collective_executor=collectives)

    @property
    def num_steps(self) -> int:
        """How many steps are under way that workers take part in."""
        return len(self._steps)

    def running_steps(self) -> Counter[str]:
        """The number of steps under way that each worker takes part in, by its name."""
        return Counter(worker for step in self._steps.values() for worker in step.parts)

    def statistics(self) -> Sequence[WorkerStatistics]:
        """How each worker is doing; see ``Workers``."""
        return self._cluster.statistics_with(self.running_steps())

    def link(self, worker: str) -> PeerLink:
        """The way to *worker*; InvalidArgumentError when there is no such worker any more."""
        found = self._cluster.link(worker)
        if found is None:
            raise InvalidArgumentError(f"there is no worker {worker}")
        return found

    def begin(self, part: RemotePart, rendezvous: StepRendezvous, action: Action) -> None:
        """Take note of a worker's part of a step, and have *action* begin it."""
        step = self._steps.get(part.step_id)
        if step is None:
            step = self._steps[part.step_id] = _Step(rendezvous, restores=self._lost_state.is_restored_here)
        step.parts[part.worker] = part
        if self._is_ready and not step.held:
            self._do(part, action)
        else:
            if not step.held:
                self._held[part.step_id] = step
                asyncio.get_running_loop().call_soon(self._release, part.step_id)
            step.held.append((part, action))

    def _release(self, step_id: int) -> None:
        """Begin a step that is held, if its workers are ready: else one may send values to another that is not."""
        step = self._held.get(step_id)
        if step is None:
            return
        for part, _ in step.held:
            if part.worker not in self._ready and not self._fails(part):
                return
        if not step.restores and any(part.worker in self._lost_state for part, _ in step.held if not part.has_ended):
            self._lost_state.begin()
            return
        del self._held[step_id]
        for part, action in step.held:
            if not part.has_ended:
                self._do(part, action)
        step.held.clear()
        try:
            if step.rendezvous.error is None:
                step.rendezvous.release()
        except OpError as error:
            self.refuse(step_id, error)

    def _restored(self, error: OpError | None) -> None:
        """What was lost with workers is back, or is not: then those fail that wait for it."""
        for step in list(self._held.values()) if error is not None else ():
            if not step.restores and any(part.worker in self._lost_state for part, _ in step.held):
                assert error is not None
                for part in list(step.parts.values()):
                    part.end(copy_of(error))
        self._look_who_is_ready()

    def _fails(self, part: RemotePart) -> bool:
        """Whether a worker will not be ready; else it is dialed, if need be."""
        if self._cluster.is_open and part.worker not in self._refused_by:
            link = self._cluster.link(part.worker)
            if link is not None:
                link.dial()
                return False
        return True

    def _do(self, part: RemotePart, action: Action) -> None:
        try:
            self._check_open()
            if part.worker in self._refused_by:
                raise copy_of(self._refused_by[part.worker])
            part.has_begun = self._has_begun = True
            self.link(part.worker).do(action, part.step_id)
        except OpError as error:
            asyncio.get_running_loop().call_soon(part.end, error)

    def _check_open(self) -> None:
        if not self._cluster.is_open:
            raise FailedPreconditionError("the cluster of this session is closed")

    def abort(self, part: RemotePart, *, is_cancelled: bool) -> None:
        """A step has failed: its part on a worker is to end."""
        link = self._cluster.link(part.worker)
        if link is None or link.connection is None or not part.has_begun:
            asyncio.get_running_loop().call_soon(part.end, None)
        else:
            link.connection.send(Kind.ABORT, pack_abort(Abort(part.step_id, is_cancelled)))

    def forget(self, part: RemotePart) -> None:
        """A step has ended everywhere."""
        self._steps.pop(part.step_id, None)
        self._held.pop(part.step_id, None)
        link = self._cluster.link(part.worker)
        if link is None:
            return
        link.drop_step(part.step_id)
        if link.connection is not None:
            oldest = next(iter(self._steps), self._last_step + 1)
            link.connection.send(Kind.FORGET, pack_forget(Forget(part.step_id, oldest)))

    def done(self, worker: str, done: Done, clock_offset_ns: int) -> None:
        """A worker's part of a step has ended."""
        step = self._steps.get(done.step_id)
        part = None if step is None else step.parts.get(worker)
        if part is None:
            return
        if part.has_ended and done.error is not None:  # what it has sent to another worker has not arrived
            self.refuse(done.step_id, part.error_of(done.error))
        else:
            part.done(done, clock_offset_ns)

    def arrive(self, step_id: int, key: str, value: object, is_dead: bool) -> None:
        """Take a value that a worker has pushed."""
        step = self._steps.get(step_id)
        if step is not None:
            step.rendezvous.arrive(key, value, is_dead)

    def refuse(self, step_id: int, error: OpError) -> None:
        """End a step: what came for it was no value."""
        for part in self._parts_of(step_id):
            part.end(copy_of(error))

    def refused(self, worker: str, error: OpError) -> None:
        """A worker does not take this session."""
        if isinstance(error, AlreadyExistsError) and not self._has_begun and self._num_numbers < _MAX_NUMBERS:
            self._renumber()
            return
        self.lose(worker, error)
        self._refused_by[worker] = copy_of(error)
        self._release_all()

    def _renumber(self) -> None:
        """Take another number, and let the steps that are held have it: another client has a session of this one."""
        before, self.number = self.number, _draw_number()
        self._num_numbers += 1
        self._last_step = _first_step(self.number) + step_in_session(self._last_step)
        self._steps = {_first_step(self.number) + step_in_session(number): step for number, step in self._steps.items()}
        for step_id, step in self._steps.items():
            step.rendezvous.step_id = step_id
            for part in step.parts.values():
                part.step_id = step_id
        self._held = {step_id: step for step_id, step in self._steps.items() if step.held}
        self._ready.clear()
        self._is_ready = False
        self._cluster.renumber(self, before)

    def lose(self, worker: str, error: OpError) -> None:
        """Expect nothing from *worker* any more, for the steps under way."""
        self._refused_by.pop(worker, None)
        if worker in self._ready:
            self._ready.remove(worker)
            self._lost_state.lose(worker)
        self._is_ready = False
        for step in list(self._steps.values()):
            part = step.parts.get(worker)
            if part is not None:
                part.end(copy_of(error))
        if worker in self._closed_by and not self._closed_by[worker].done():
            self._closed_by[worker].set_result(None)

    def opened_by(self, worker: str) -> None:
        """A worker takes values of this session."""
        self._ready.add(worker)
        self._look_who_is_ready()

    def expect_worker(self) -> None:
        """There is another worker, which does not know of this session yet."""
        self._is_ready = False

    def remove_worker(self) -> None:
        """There is a worker less, which may come again by another way."""
        self._routes.clear()
        self._look_who_is_ready()

    def _look_who_is_ready(self) -> None:
        self._is_ready = not self._lost_state and all(link.name in self._ready for link in self._cluster.links())
        self._release_all()

    def _release_all(self) -> None:
        for step_id in list(self._held):
            self._release(step_id)

    def closed_by(self, worker: str) -> None:
        """A worker has ended the session."""
        future = self._closed_by.get(worker)
        if future is not None and not future.done():
            future.set_result(None)

    def deregister(self, worker: str, graph_id: int) -> None:
        """Nobody will run a graph any more."""
        link = self._cluster.link(worker)
        if link is not None and link.connection is not None:
            link.connection.send(Kind.DEREGISTER, pack_json({"session": self.number, "graph": graph_id}))

    async def close(self) -> None:
        """End the session on all workers, and wait until they have."""
        if self.is_closing:
            return
        loop = asyncio.get_running_loop()
        self.is_closing = True
        await self._lost_state.close()
        for link in self._cluster.links():
            if link.connection is not None:
                self._closed_by[link.name] = loop.create_future()
                link.connection.send(Kind.CLOSE, pack_json({"session": self.number}))
        try:
            if self._closed_by:
                await asyncio.wait(self._closed_by.values(), timeout=_CLOSE_S)
        finally:
            self._cluster.end_session(self.number)

    def _parts_of(self, step_id: int) -> Iterator[RemotePart]:
        step = self._steps.get(step_id)
        yield from () if step is None else list(step.parts.values())

    def _route(self, device: str) -> Channel | None:
        if device not in self._routes:
            space = device.split("/device:", 1)[0]
            self._routes[device] = None if space == worker_name(CLIENT_JOB, 0) else self.link(space)
        return self._routes[device]


def _draw_number() -> int:
    """The number of a session, which others are unlikely to have; numbers of steps are signed."""
    return secrets.randbits(SESSION_BITS - 1)


def _first_step(session: int) -> int:
    """What the numbers of a session's steps begin at."""
    return session << SESSION_BITS
