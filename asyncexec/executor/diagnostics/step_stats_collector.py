"""Gathers what ran, when and for how long, into StepStats (``step_stats_collector.cc``)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import operator
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import ClassVar, Final, TypeAlias

from asyncexec.executor.diagnostics.output_sizes import (
    SCALAR,
    SCALAR_TYPES,
    OutputRecords,
    Sizes,
    sizes_of,
    sizes_of_constant,
)
from asyncexec.executor.diagnostics.step_observer import NOT_KNOWN, Executed
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.step_stats import CallStats, DeviceStepStats, NodeExecStats, StepStats, ended_call
from asyncexec.graph.node import Node, Tensor

# A node, when it was scheduled, started and ended, the thread it ran on, what its kernel counted, why it gave nothing,
# and the sizes of what it gave, None for a constant.
_Record: TypeAlias = tuple[Node, int, int, int, int, CallStats | None, str, Sizes | None]
_started_ns: Final = operator.itemgetter(2)
_started_nanos: Final = operator.attrgetter("all_start_nanos")
_name_of_device: Final = operator.attrgetter("device")
_SORTED_AT_ONCE: Final = 64 * STRIDE


LOOP_THREAD: Final = "event loop"  # what the thread that the step belongs to is called in a trace


class StepStatsCollector:
    """A StepObserver: live executions of one step, one entry each; times by *clock*, threads by their native ids.

    Attributes:
        epoch_offset_ns: what is added to times of *clock* to get nanoseconds since 1970.
        wants_outputs: whether ``record`` is to be told the outputs of each node, those on worker threads, too.
    """

    wants_outputs: ClassVar[bool] = False

    __slots__ = ("_clock", "_constants", "_included", "_loop_thread", "_records", "_remote", "epoch_offset_ns")

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self.epoch_offset_ns: int = clock.epoch_offset_ns()
        self._loop_thread = threading.get_native_id()
        self._included: list[StepStats] = []
        self._remote: list[StepStats] = []
        self._records: list[_Record] = []
        self._constants: list[tuple[Collection[Node], int]] = []  # with when they were there

    @property
    def num_records(self) -> int:
        """How many executions there are."""
        return len(self._records) + sum(len(nodes) for nodes, _ in self._constants)

    @property
    def is_trace(self) -> bool:
        """Whether it gathers StepStats, those of steps that run inside of this one, too."""
        return True

    def note_feeds(self, feeds: Sequence[Tensor], values: Sequence[object]) -> None:
        """The step begins, with *values* of *feeds*."""

    def note_launch(self, item: Executed, where: Sequence[str], inputs: Sequence[object]) -> None:
        """*item* is going to be called with *inputs* in the iterations *where*: as a task, or on a worker thread."""

    def record(
        self,
        item: Executed,
        scheduled_ns: int,
        start_ns: int,
        end_ns: int,
        thread_id: int = 0,
        error: BaseException | None = None,
        outputs: object = NOT_KNOWN,
        sizes: Sizes = (),
        where: Sequence[str] = (),
    ) -> None:
        """An execution of *item*, in the iterations *where*, and of the constants that it guards.

        It has given *outputs*, or ended with *error*.  Of the outputs only their *sizes* are kept.
        """
        counts = ended_call() if item.kind is KernelKind.ASYNC else None
        failure = "" if error is None else _told(error)
        if outputs is not NOT_KNOWN:
            sizes = SCALAR if type(outputs) in SCALAR_TYPES else sizes_of(item.node, outputs, item.returns_tuple)
        self._records.append((item.node, scheduled_ns, start_ns, end_ns, thread_id, counts, failure, sizes))
        if item.guarded:
            self._constants.append((item.guarded, end_ns))

    def record_constants(self, nodes: Collection[Node]) -> None:
        """Constants whose values were there from the start."""
        self._constants.append((nodes, self._clock.now_ns()))

    def include(self, stats: StepStats) -> None:
        """Let *stats*, of a step that has run for this one and perhaps for others, be a part of it."""
        self._included.append(stats)

    def include_remote(self, stats: StepStats) -> None:
        """Let *stats* be a part of it, of devices and threads of another process."""
        self._remote.append(stats)

    def step_stats(self, device_of: Callable[[Node], str]) -> Stage[StepStats]:
        """All entries, device by device, by the time they started, as a stage."""
        stats: dict[str, list[NodeExecStats]] = {}
        runs: list[list[_Record]] = []
        outputs = OutputRecords()
        records = itertools.chain(self._records, self._records_of_constants())
        while part := sorted(itertools.islice(records, _SORTED_AT_ONCE), key=_started_ns):
            runs.append(part)
            yield
        for count, record in enumerate(heapq.merge(*runs, key=_started_ns), 1):
            stats.setdefault(device_of(record[0]), []).append(self._node_stats(outputs, *record))
            if not count % STRIDE:
                yield
        for included in self._included:
            for device in included.dev_stats:
                nodes = stats.setdefault(device.device, [])
                nodes += device.node_stats
                nodes.sort(key=_started_nanos)  # two that are in order
            yield
        found = StepStats()
        names = {self._loop_thread: LOOP_THREAD}
        for name in sorted(stats):
            named: dict[int, str] = {}
            for count, each in enumerate(stats[name]):
                if each.thread_id not in named:
                    named[each.thread_id] = names.setdefault(each.thread_id, f"worker thread {len(names)}")
                if not count % _SORTED_AT_ONCE:
                    yield
            found.dev_stats.append(DeviceStepStats(device=name, node_stats=stats[name], thread_names=named))
        found.dev_stats += (device for remote in self._remote for device in remote.dev_stats)
        found.dev_stats.sort(key=_name_of_device)
        return found

    def _records_of_constants(self) -> Iterator[_Record]:
        return ((node, ns, ns, ns, 0, None, "", None) for nodes, ns in self._constants for node in nodes)

    def _node_stats(
        self,
        outputs: OutputRecords,
        node: Node,
        scheduled_ns: int,
        start_ns: int,
        end_ns: int,
        thread_id: int,
        counts: CallStats | None,
        failure: str,
        sizes: Sizes | None,
    ) -> NodeExecStats:
        start, elapsed = start_ns + self.epoch_offset_ns, end_ns - start_ns
        scheduled = scheduled_ns + self.epoch_offset_ns
        output, memory = outputs.of(node, sizes_of_constant(node) if sizes is None else sizes)
        sources = ", ".join(tensor.name for tensor in node.inputs)
        return NodeExecStats(
            node_name=node.name,
            all_start_micros=start // 1000,
            op_start_rel_micros=0,
            op_end_rel_micros=elapsed // 1000,
            all_end_rel_micros=elapsed // 1000,
            all_start_nanos=start,
            op_start_rel_nanos=0,
            op_end_rel_nanos=elapsed,
            all_end_rel_nanos=elapsed,
            scheduled_micros=scheduled // 1000,
            scheduled_nanos=scheduled,
            memory=[] if sizes is None else memory,  # a constant was there before the step
            output=output,
            timeline_label=f"{node.name} = {node.op}({sources}){_remark(counts)}",
            thread_id=thread_id or self._loop_thread,
            attempts=counts.attempts if counts else 0,
            limiter_wait_micros=counts.limiter_wait_micros if counts else 0,
            failure=failure,
        )


def _told(error: BaseException) -> str:
    """What a trace says of an execution that has ended with *error*."""
    if isinstance(error, (asyncio.CancelledError, CancelledError)):
        return "cancelled"
    return one_line(error)


def _remark(counts: CallStats | None) -> str:
    """What a timeline says of a call that was not plain."""
    if counts is None:
        return ""
    attempts = f" in {counts.attempts} attempts" if counts.attempts > 1 else ""
    waited = counts.limiter_wait_micros
    return attempts + (f", {waited} us in the queue of its limiter" if waited else "")
