"""SessionStatistics: how a session is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from asyncexec.executor.diagnostics.step_counts import StepCounts
from asyncexec.executor.workers.pool_statistics import PoolStatistics
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.session.admission import AdmissionControl
from asyncexec.session.executor_cache import ExecutorCache
from asyncexec.session.graph_execution_state import GraphExecutionState
from asyncexec.session.steps_under_way import StepsUnderWay


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """How a session is doing, at one moment.

    Attributes:
        running_steps: steps that have begun and wait for something.
        queued_steps: calls that wait for their turn, where there is a limit to the steps under way.
        completed_steps: steps that ran to their end.
        failed_steps: steps that ended by an error or were cancelled.
        longest_node: the name of the node whose kernel held the event loop longest at a stretch; None as long as none
            has taken more than half a millisecond.
        longest_node_ms: for how long that was.
        longest_slice_ms: the longest time that a step held the loop at a stretch.
        cached_signatures: combinations of feeds, fetches and targets that are ready to run.
        worker_pools: of each device, by name.
    """

    running_steps: int
    queued_steps: int
    completed_steps: int
    failed_steps: int
    longest_node: str | None
    longest_node_ms: float
    longest_slice_ms: float
    cached_signatures: int
    worker_pools: Mapping[str, PoolStatistics]


def statistics_of(
    steps: StepsUnderWay,
    admission: AdmissionControl,
    counts: StepCounts,
    cache: ExecutorCache,
    state: GraphExecutionState,
) -> SessionStatistics:
    """How the session with these parts is doing."""
    holds = state.holds
    return SessionStatistics(
        running_steps=len(steps),
        queued_steps=admission.waiting,
        completed_steps=counts.completed,
        failed_steps=counts.failed,
        longest_node=holds.longest_node,
        longest_node_ms=holds.longest_node_ns / NS_PER_MS,
        longest_slice_ms=holds.longest_slice_ns / NS_PER_MS,
        cached_signatures=len(cache),
        worker_pools={device: pool.statistics() for device, pool in state.pools.items()},
    )
