"""WorkerPlan: a signature whose steps are one call each, on a worker thread.

Where one node alone is expensive, the event loop does no more for a step than to hand it over, and to take the results:
the nodes before and behind, which are cheap and may run on any thread, are one function with it.  So it is with a model
that a library runs as one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncexec.compilation.graph_view import NOTHING, NodeItem
from asyncexec.compilation.onnx_kernel import OnnxKernel
from asyncexec.executor.diagnostics.kernel_stats import SIZED, WORKER, KernelStats
from asyncexec.executor.engine.ending import Ending
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.grace_period import GracePeriod
from asyncexec.executor.engine.step_scope import Launched, StepScope
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.feed_limits import InputBytes
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.executor.plans.tiled_plan import TiledPlan
from asyncexec.executor.workers.job import Job, Outcome, told_of
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_chain import NodeCall, note_outcomes
from asyncexec.framework.cooperative import SLICE_NS
from asyncexec.framework.errors import InternalError
from asyncexec.framework.foreign_errors import as_op_error
from asyncexec.framework.under_way import NodeUnderWay
from asyncexec.graph.current_graph import outside_of_graphs
from asyncexec.process.cores import call_and_stay


class WorkerPlan(RegionPlan):
    """What the steps of one signature share that are one call.

    Args:
        executor: has measured the nodes, and runs the steps while the expensive one is not.
        regions: plans of the regions in it.
        whole: calls all kernels.
        item: the expensive node; input_bytes: how many bytes its inputs have, if feeds alone decide that.
    """

    __slots__ = ("_function", "_input_bytes", "_stats", "_whole", "item", "num_fetches", "pool")

    executor: GeneralExecutor

    def __init__(
        self,
        executor: GeneralExecutor,
        regions: Iterable[CompiledPlan | TiledPlan],
        whole: CompiledPlan,
        item: NodeItem,
        input_bytes: InputBytes | None,
    ) -> None:
        super().__init__(executor, regions)
        self._whole = whole
        self.item: NodeItem = item
        self._input_bytes = input_bytes
        self._stats: KernelStats = executor.stats
        self.pool: WorkerPool = executor.pool
        self.num_fetches: int = whole.num_fetches
        # Nothing of the user's runs behind a model on that thread, to be left on one core.
        self._function = partial(call_and_stay, self._make) if isinstance(item.kernel, OnnxKernel) else self._make

    @property
    def compiles_nothing(self) -> bool:
        """Whether there are no regions, and the node is expensive no more."""
        stats, item_id = self._stats, self.item.id
        place = stats.places[item_id]
        is_expensive = place == WORKER or (place == SIZED and not stats.has_been_quick(item_id))
        return not is_expensive and super().compiles_nothing

    def start(self, feeds: Sequence[object] | None) -> StepScope:
        """A step, which is on a worker thread where the node is expensive with *feeds*."""
        size = None if feeds is None else self._size_with(feeds)
        if feeds is None or size is None:
            return self.executor.start(feeds)
        return WorkerStep(self, list(feeds), size)

    def _size_with(self, feeds: Sequence[object]) -> int | None:
        """How many bytes the inputs of the node are with *feeds*, or -1 if it is all the same; None if it is cheap."""
        place = self._stats.places[self.item.id]
        if place != SIZED:
            return -1 if place == WORKER else None
        size = -1 if self._input_bytes is None else self._input_bytes.with_feeds(feeds)
        return None if size < 0 or self._stats.is_quick(self.item.id, size) else size

    def _make(self, *inputs: object) -> list[Any]:
        """The values of the fetches; on a worker thread, in a context of the call's own."""
        np.seterr(all="ignore")
        try:
            values: list[Any] = outside_of_graphs(self._whole.function, *inputs)
        except CATCHABLE as raised:
            self._whole.fail(raised)
        return values

    def call(self, feeds: list[Any], size: int) -> NodeCall:
        """The call that a step is."""
        call = NodeCall(self.item, feeds, size)
        call.function = self._function
        return call

    def note(self, call: NodeCall, outcomes: list[Outcome]) -> None:
        """Take note of what came of *call*, which takes as long as its expensive node."""
        note_outcomes([call], outcomes, 0, self._stats, None)


class WorkerStep(StepScope):
    """A step of *plan*, with *feeds*, of which the inputs of the expensive node have *size* bytes."""

    __slots__ = ("_ending", "_feeds", "_job", "_plan", "_size", "_values")

    def __init__(self, plan: WorkerPlan, feeds: list[Any], size: int) -> None:
        super().__init__(SLICE_NS, plan.executor.stats.holds)
        self._plan = plan
        self._size = size
        self._feeds: list[Any] | None = feeds  # until the call is submitted
        self._job: Job | None = None
        self._ending: Ending | None = None
        self._values: list[Any] = [NOTHING] * plan.num_fetches

    @property
    def has_ready(self) -> bool:
        return self._feeds is not None

    @property
    def is_waiting(self) -> bool:
        return self._job is not None

    def deliver_feed(self, index: int, value: object) -> None:
        raise InternalError("this step has been started with its feeds")

    def fetched(self) -> list[Any]:
        return self._values

    def run_ready(self, now: int, end: int) -> int:
        self._run_slice()
        return self.holds.clock.now_ns()

    def _run_slice(self) -> None:
        feeds, self._feeds = self._feeds, None
        if feeds is None or self._failure is not None:
            return
        plan = self._plan
        call = plan.call(feeds, self._size)  # in the context of who drives the step
        try:
            self._job = plan.pool.submit_calls([call], partial(self._on_done, call))
        except CATCHABLE as raised:
            self.abort(as_op_error(raised, plan.item.node))

    def _on_done(self, call: NodeCall, outcomes: list[Outcome]) -> None:
        self._job = None
        self._plan.note(call, outcomes)
        (outcome,) = outcomes
        if outcome.error is None:
            if self._failure is None:
                self._values = outcome.result
        elif self._failure is None:
            self.fail_node(call.item, outcome.error)
        elif getattr(outcome.error, "node", None) == call.name:  # what is behind the node would not have run any more
            self.note_later(call.item, outcome.error)
        self.wake()

    def found_under_way(self) -> Iterator[NodeUnderWay | tuple[str, StepScope]]:
        job = self._job
        if job is not None:
            assert isinstance(job.running, NodeCall)
            yield NodeUnderWay(job.name, job.running.item.node.op, (told_of(job),), None)

    def _abort(self, error: BaseException) -> None:
        self._feeds = None

    def _cancel_launched(self, grace_period: GracePeriod) -> None:
        self._ending = Ending(self._plan.pool, self._loop, grace_period)
        if self._job is not None and self._plan.pool.cancel(self._job):
            self._job = None

    async def _wait_for_launched(self) -> None:
        assert self._ending is not None  # _cancel_launched has been called
        await self._wait(self._ending.workers_left_s)
        if self._job is not None and self._ending.workers_left_s == 0:
            self._ending.abandon((self._job,))
            self._job = None

    def _abandon_launched(self) -> None:
        self._feeds = self._job = None

    def _launched(self) -> Iterator[Launched]:
        return iter(())

    def task_groups(self) -> Iterable[TaskGroup]:
        return ()
