"""Tier: which executor runs the steps of one signature.

The general executor runs the first steps, and measures the kernels.  Then what is cheap is compiled, the whole
signature or what lies between the nodes that await something or run on worker threads; and after many runs of that it
is compiled again, of a graph that has been optimized.  Either is done in pieces behind the runs, which take no longer
than the run itself has, or a slice.  A compiled plan that turns out to hold the event loop is dropped, and the general
executor, which can tell by which node, has its steps again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final, TypeAlias

from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import SLICE_NS, Stage
from asyncexec.regions.program import UnstructuredError

WARM_UP: Final = 2  # runs before a plan is compiled; eight times as many after each that was dropped, or came to none
_MAX_WARM_UP: Final = 2**15
OPTIMIZE_AFTER: Final = 256  # compiled runs: to optimize takes two or three times as long as to compile
_NEVER: Final = 1 << 62

AnyPlan: TypeAlias = CompiledPlan | RegionPlan
Compile: TypeAlias = Callable[[], Stage[AnyPlan | None]]


class Tier:
    """What the runs of one signature have led to so far.

    Args:
        make: makes the plan, as a stage that gives None where it cannot be had now, and raises UnstructuredError where
            it never can; None for no plan at all.
        make_better: the same for a plan of the optimized graph; None where there is no such.
        clock: measures for how long it compiles.

    Attributes:
        compiled: the plan that steps are to be run by, if there is one.
        plain: the same if a step of it is one call, and need not be timed, or if it may be by now.
    """

    __slots__ = (
        "_make",
        "_make_better",
        "_now_ns",
        "_num_left",
        "_num_runs",
        "_stage",
        "_warm_up",
        "compiled",
        "plain",
    )

    def __init__(self, make: Compile | None, make_better: Compile | None = None, clock: Clock = CLOCK) -> None:
        self._make = make
        self._make_better = make_better
        self._now_ns = clock.now_ns
        self._num_runs = 0
        self._num_left = OPTIMIZE_AFTER  # compiled runs before the graph is optimized
        self._warm_up = WARM_UP
        self._stage: Stage[AnyPlan | None] | None = None
        self.compiled: AnyPlan | None = None
        self.plain: CompiledPlan | None = None

    @property
    def for_large_feeds(self) -> RegionPlan | None:
        """The plan, if there is one, for feeds that may be larger than those that its kernels were measured by."""
        plan = self.compiled
        return plan if isinstance(plan, RegionPlan) and plan.takes_large_feeds else None

    def compile_at_once(self) -> Stage[None]:
        """Optimize and compile before the first run, as a stage."""
        for make in (self._make_better, self._make):
            if self.compiled is None and make is not None:
                try:
                    self._take((yield from make()))
                except UnstructuredError:
                    self._make = self._make_better = None
        self._num_left = _NEVER

    def note_compiled_run(self, plan: AnyPlan, elapsed_ns: int = 0) -> None:
        """Take note of a run by *plan*; go on optimizing for as long as it took, where that is told.

        If *plan* holds the event loop, the general executor has the next runs.
        """
        self._num_left -= 1
        if self._num_left > 0 and plan.is_quick:
            if elapsed_ns and plan.may_be_called:
                self.plain = plan  # type: ignore[assignment]  # only that of a whole signature may be
            return
        if plan is not self.compiled:
            return
        if not plan.is_quick:
            self._take(None)
            self._wait_longer()
            return
        self.plain = None  # from here on runs are timed
        if elapsed_ns and self._go_on(self._make_better, elapsed_ns):
            self._num_left = _NEVER

    def note_run(self, elapsed_ns: int, num_runs: int = 1) -> None:
        """Take note of runs by the general executor, and go on compiling for as long as they took, or for a slice.

        Nothing is awaited: a run that has its results is neither cancelled nor late for what comes behind it.
        """
        if self.compiled is not None:  # a run that is watched, or with large feeds
            return
        self._num_runs += num_runs
        if self._make is None or self._num_runs < self._warm_up:
            return
        if self._go_on(self._make, elapsed_ns) and self.compiled is None:
            self._wait_longer()

    def _go_on(self, make: Compile | None, elapsed_ns: int) -> bool:
        """Go on with what *make* does; whether it has come to its end."""
        plan = self.compiled
        now = self._now_ns()
        end = now + min(elapsed_ns, SLICE_NS)
        try:
            if self._stage is None and make is not None:
                self._stage = make()
            while self._stage is not None and now < end:
                next(self._stage)
                now = self._now_ns()
            if self._stage is not None:
                return False
        except StopIteration as stop:
            plan = stop.value or plan
        except UnstructuredError:
            self._make = self._make_better = None
        except Exception as error:  # of ours; the general executor will do
            self._make = self._make_better = None
            message = f"a signature could not be compiled, and runs as before: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        self._take(plan)
        return True

    def _take(self, plan: AnyPlan | None) -> None:
        self._stage = None
        self.compiled = plan
        self.plain = plan if isinstance(plan, CompiledPlan) and plan.is_plain else None
        self._num_left = OPTIMIZE_AFTER

    def _wait_longer(self) -> None:
        """Compile only after eight times as many runs."""
        self._num_runs = 0
        self._warm_up = min(8 * self._warm_up, _MAX_WARM_UP)
