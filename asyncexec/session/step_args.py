"""What a session gives the executors of the partitions of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.rendezvous.intra_process import Rendezvous

_collective_executor = LazyModule("asyncexec.rendezvous.collective_executor")


def rendezvous_alone(collector: StepStatsCollector | None) -> ExecutorArgs:
    """What partitions need that do no more than send and receive."""
    return ExecutorArgs(Rendezvous(), stats_collector=collector)


@dataclass(frozen=True, slots=True)
class FullArgs:
    """Makes what all others are given.

    Attributes:
        step_ids: the numbers of the steps to come.
        calls: merges the large values of collectives.
        has_collectives: whether there are any.
    """

    step_ids: Iterator[int]
    calls: WorkerCalls
    has_collectives: bool

    def __call__(self, collector: StepStatsCollector | None) -> ExecutorArgs:
        return ExecutorArgs(
            Rendezvous(),
            next(self.step_ids),
            collector,
            CancellationManager(),
            collective_executor=_collective_executor.LocalCollectiveExecutor(self.calls.call)
            if self.has_collectives
            else None,
        )
