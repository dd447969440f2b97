"""What a session asks of the cluster that it is given: devices, runners of their partitions, and channels to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.partition_runner import PartitionRunner
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.device import Device
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.session.worker_statistics import WorkerStatistics


class Workers(Protocol):
    """The workers that a session may use.  All calls are made in the event loop of the cluster."""

    def devices(self) -> Sequence[Device]:
        """The devices of all workers; each ``is_remote``."""
        ...

    def names(self) -> Sequence[str]:
        """The names of all workers, in the order in which they have joined."""
        ...

    def is_up(self, worker: str) -> bool:
        """Whether *worker* can be reached now."""
        ...

    def runner(self, worker: str, partitions: Mapping[str, PartitionedGraph]) -> Stage[PartitionRunner]:
        """What runs *partitions*, by the devices of *worker*, in each step of a signature, as a stage.

        Raises:
            InvalidArgumentError: a node of them has no form that could be sent.
        """
        ...

    def make_args(self, collector: StepStatsCollector | None, calls: WorkerCalls | None) -> ExecutorArgs:
        """What the partitions of a step that workers take part in are given.

        Where the step has collectives, *calls* merge their large values.
        """
        ...

    def restore_with(self, restore: Callable[[], Awaitable[object]]) -> None:
        """Call *restore* when a worker was lost and is back, before the next step that it takes part in.

        The steps that *restore* runs do not wait for that.
        """
        ...

    def statistics(self) -> Sequence[WorkerStatistics]:
        """How each worker is doing, with the steps of this session."""
        ...

    async def close(self) -> None:
        """The session has ended: what it has on the workers goes."""
        ...


class Cluster(Protocol):
    """What gives its workers to sessions."""

    def begin_session(self) -> Workers:
        """What one session may use; FailedPreconditionError when the cluster is not open."""
        ...

    def connected(self) -> Mapping[str, bool]:
        """Whether each worker can be reached now, by its name."""
        ...

    def statistics(self) -> Sequence[WorkerStatistics]:
        """How each worker is doing, with the steps of all sessions."""
        ...
