"""RemoteRunner: runs the partitions of one signature on one worker; RemotePart: what it runs of one step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asyncexec.distributed.collective_executor import ClusterCollectiveExecutor
from asyncexec.distributed.collective_leader import CollectiveLeader
from asyncexec.distributed.graph_wire import WireGraph, pack_register
from asyncexec.distributed.messages import (
    CONSTANTS_STEP,
    SESSION_BITS,
    Done,
    Kind,
    Run,
    RunFlags,
    pack_run,
)
from asyncexec.distributed.step_rendezvous import StepRendezvous
from asyncexec.distributed.traced_steps import unpack_stats
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.wire_errors import decode_error
from asyncexec.executor.engine.partition_runner import OnEnd
from asyncexec.framework.clock import CLOCK
from asyncexec.framework.errors import OpError
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.under_way import NodeUnderWay

if TYPE_CHECKING:
    from asyncexec.distributed.client_session import ClientSession

_NS_PER_S: Final = 1e9


class RemoteRunner:
    """Runs the partitions of one signature on one worker."""

    def __init__(self, session: ClientSession, worker: str, graph_id: int, wire: WireGraph) -> None:
        self.worker: str = worker
        self.has_collectives: bool = wire.has_collectives
        self._session = session
        self._graph_id = graph_id
        self._wire = wire
        self._registered_by: Connection | None = None
        weakref.finalize(self, session.deregister, worker, graph_id).atexit = False

    def start(self, args: ExecutorArgs, on_end: OnEnd) -> RemotePart:
        """Begin the worker's part of a step."""
        part = RemotePart(self._session, self.worker, args, on_end, self._wire.nodes.get)
        flags = RunFlags.NONE if args.stats_collector is None else RunFlags.TRACE
        leader = _leader_of(args)
        if leader is not None:
            leader.listen(self.worker)
        assert isinstance(args.rendezvous, StepRendezvous)  # as the session has made it
        self._session.begin(part, args.rendezvous, partial(self._begin, part, flags))
        return part

    def _begin(self, part: RemotePart, flags: RunFlags, connection: Connection) -> None:
        if self._registered_by is not connection:
            self._register(connection)
        connection.send(Kind.RUN, pack_run(Run(part.step_id, self._graph_id, flags)))

    def _register(self, connection: Connection) -> None:
        session, wire = self._session.number, self._wire
        connection.send(Kind.REGISTER, pack_register(session, self._graph_id, wire))
        for (device, name), value in wire.constants.items():
            step_id = (session << SESSION_BITS) + CONSTANTS_STEP
            connection.send_tensor(step_id, f"{self._graph_id};{device};{name}", value)
        self._registered_by = connection


class RemotePart:
    """A worker's part of one step; a ``RunningPartitions``."""

    __slots__ = ("_args", "_find", "_on_end", "_session", "_start_ns", "has_begun", "step_id", "worker")

    def __init__(
        self,
        session: ClientSession,
        worker: str,
        args: ExecutorArgs,
        on_end: OnEnd,
        find: Callable[[str], Any],
    ) -> None:
        self.worker: str = worker
        self.step_id: int = args.step_id
        self.has_begun: bool = False  # whether the worker has been told
        self._session = session
        self._args: ExecutorArgs | None = args
        self._on_end: OnEnd | None = on_end
        self._find = find
        self._start_ns = CLOCK.now_ns()

    def abort(self, error: BaseException) -> None:
        """Tell the worker that the step has failed."""
        self._session.abort(self, is_cancelled=False)

    def cancel(self, error: BaseException) -> None:
        """The same, and that nobody waits for its results."""
        self._session.abort(self, is_cancelled=True)

    @property
    def has_ended(self) -> bool:
        """Whether the step has been told that this part of it has ended."""
        return self._on_end is None

    def release(self) -> None:
        """Let the worker forget the step."""
        leader = None if self._args is None else _leader_of(self._args)
        if leader is not None:
            leader.close()
        self._on_end = self._args = None
        self._session.forget(self)

    def under_way(self) -> NodeUnderWay:
        since_s = (CLOCK.now_ns() - self._start_ns) / _NS_PER_S
        return NodeUnderWay(self.worker, "Worker", ("was running its part of the step",), since_s)

    def done(self, done: Done, clock_offset_ns: int) -> None:
        """The worker has ended its part."""
        if done.stats is not None and self._args is not None and self._args.stats_collector is not None:
            stats = unpack_stats(done.stats, clock_offset_ns, CLOCK.epoch_offset_ns())
            self._args.stats_collector.include_remote(stats)
        self.end(None if done.error is None else self.error_of(done.error))

    def error_of(self, told: dict[str, object]) -> OpError:
        """The error that the worker has told of."""
        return decode_error(told, self.worker, self._find, objects=self._session.objects)

    def end(self, error: BaseException | None) -> None:
        """Tell the step, once, that this part of it has ended."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(error)


def _leader_of(args: ExecutorArgs) -> CollectiveLeader | None:
    """The leader of a step's collectives, if it has any."""
    collectives = args.collective_executor
    return collectives.leader if isinstance(collectives, ClusterCollectiveExecutor) else None
