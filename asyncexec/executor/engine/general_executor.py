"""GeneralExecutor: runs the steps of one signature, or of one partition of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

from asyncexec.compilation.graph_view import GraphView
from asyncexec.executor.diagnostics.kernel_stats import ASYNC, KernelStats
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.diagnostics.step_observer import StepObserver
from asyncexec.executor.engine.part_of_step import PartOfStep
from asyncexec.executor.engine.propagator import TaggedQueue
from asyncexec.executor.engine.ready_queue import RandomReadyQueue
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_chain import WorkerChains
from asyncexec.framework.cooperative import SLICE_NS
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.lazy_module import LazyModule

if TYPE_CHECKING:
    from asyncexec.durable.journal_scope import JournaledStep

_journaled_state = LazyModule("asyncexec.executor.engine.journaled_state")


class GeneralExecutor:
    """What the steps of one signature share: the plan, and what its kernels have cost so far.

    A *schedule_seed* makes each step take ready nodes in an order drawn from it: results must not depend on the order.
    *places* is what ``first_places`` gives, where that was done in slices.

    Attributes:
        has_run: whether a step has begun.
        pool: whose threads take what is expensive.
        first_places: where kernels run in the first step, if that has been found.
    """

    __slots__ = (
        "_journaled",
        "_schedule_seed",
        "_slice_ns",
        "chains",
        "first_places",
        "has_run",
        "pool",
        "stats",
        "view",
    )

    def __init__(
        self,
        view: GraphView,
        pool: WorkerPool,
        slice_ns: int = SLICE_NS,
        schedule_seed: int | None = None,
        holds: LoopHolds | None = None,
        places: list[int] | None = None,
    ) -> None:
        self.view: GraphView = view
        self.stats: KernelStats = KernelStats(view.items, holds=holds, places=places)
        self.chains: WorkerChains = WorkerChains()
        self.pool: WorkerPool = pool
        self._slice_ns = slice_ns
        self._schedule_seed = schedule_seed
        self.has_run: bool = False
        self.first_places: list[int] | None = None
        self._journaled: frozenset[int] | None = None  # what runs once in runs with a journal; not looked for yet

    def start(
        self,
        feeds: Sequence[object] | None,
        observer: StepObserver | None = None,
        args: ExecutorArgs | None = None,
        context: Context | None = None,
        journaled: JournaledStep | None = None,
    ) -> PartOfStep:
        """A step with the values of *feeds*, or the part of one that others are parts of, too; nothing has run yet.

        Where *feeds* is None, they come one by one through ``deliver_feed``.  *args* is what all parts are
        given.  Async kernels run in *context*, where one is given.  *journaled* is a step of a run with a journal.
        """
        ready: TaggedQueue = deque()
        if self._schedule_seed is not None:
            ready = RandomReadyQueue(Random(self._schedule_seed))
        pool = self.pool if args is None or args.runner is None else args.runner
        if journaled is not None:
            state = self._start_journaled(journaled, (pool, self._slice_ns, feeds, observer, ready))
        else:
            state = PartOfStep(self, pool, self._slice_ns, feeds, observer, ready)
        if args is not None:
            state.rendezvous, state.context = args.rendezvous, context
        if not self.has_run:
            self.has_run = True
            state.be_careful(self.first_places)
            self.first_places = None
            self.stats.have_grown(feeds or ())
        elif feeds and self.stats.have_grown(feeds):
            state.be_careful()
        return state

    def _start_journaled(self, step: JournaledStep, given: tuple[object, ...]) -> PartOfStep:
        if self._journaled is None:
            self._journaled = _journaled_state.journaled_items(self.view)
        state: Any = _journaled_state.JournaledState(self, *given)
        state.join(step, self._journaled)
        started: PartOfStep = state
        return started

    @property
    def awaits(self) -> bool:
        """Whether there are async kernels."""
        return ASYNC in self.stats.places

    @property
    def stays_on_loop(self) -> bool:
        """Whether no node runs on a worker thread, as long as none has larger inputs than it has had."""
        return self.stats.stays_on_loop

    @property
    def may_stay_on_loop(self) -> bool:
        """Whether some more runs may show that no node needs a worker thread."""
        return self.stats.may_stay_on_loop

    @property
    def is_all_cheap(self) -> bool:
        """Whether every node runs in the step's own coroutine."""
        return self.stats.is_all_cheap

    @property
    def parts(self) -> Sequence[GeneralExecutor]:
        """The executors of the partitions: there is but one."""
        return (self,)
