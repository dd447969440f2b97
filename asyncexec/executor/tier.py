"""Tier: which executor runs the steps of one signature.

The general executor runs the first steps, and measures the kernels.  Then what is cheap is compiled, the whole
signature or what lies between the nodes that await something or run on worker threads; in pieces behind the runs,
which take no longer than the run itself has, or a slice.  A compiled plan that turns out to hold the event loop is
dropped, and the general executor, which can tell by which node, has its steps again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final, TypeAlias

from asyncexec.executor.compiled_plan import CompiledPlan
from asyncexec.executor.region_plan import RegionPlan
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.cooperative import SLICE_NS, Stage
from asyncexec.regions.program import UnstructuredError

WARM_UP: Final = 2  # runs before a plan is compiled; four times as many after each that was dropped, or came to none
_MAX_WARM_UP: Final = 2048

AnyPlan: TypeAlias = CompiledPlan | RegionPlan
Compile: TypeAlias = Callable[[], Stage[AnyPlan | None]]


class Tier:
    """What the runs of one signature have led to so far.

    Args:
        make: makes the plan, as a stage that gives None where it cannot be had now, and raises UnstructuredError where
            it never can; None for no plan at all.

    Attributes:
        compiled: the plan that steps are to be run by, if there is one.
    """

    __slots__ = ("_make", "_num_runs", "_stage", "_warm_up", "compiled")

    def __init__(self, make: Compile | None) -> None:
        self._make = make
        self._num_runs = 0
        self._warm_up = WARM_UP
        self._stage: Stage[AnyPlan | None] | None = None
        self.compiled: AnyPlan | None = None

    def compile_at_once(self) -> Stage[None]:
        """Compile before the first run, as a stage."""
        assert self._make is not None
        try:
            self.compiled = yield from self._make()
        except UnstructuredError:
            self._make = None

    @property
    def plain(self) -> CompiledPlan | None:
        """The plan, if a step of it is one call."""
        plan = self.compiled
        return plan if isinstance(plan, CompiledPlan) and plan.is_plain else None

    def note_compiled_run(self, plan: AnyPlan) -> None:
        """Go back to the general executor if *plan*, by which a step has been run, holds the event loop."""
        if plan.is_quick or plan is not self.compiled:
            return
        self.compiled = None
        self._wait_longer()

    def note_run(self, elapsed_ns: int, num_runs: int = 1) -> None:
        """Take note of runs by the general executor, and go on compiling for as long as they took, or for a slice.

        Nothing is awaited: a run that has its results is neither cancelled nor late for what comes behind it.
        """
        if self.compiled is not None:  # a run that is watched, or with large feeds
            return
        self._num_runs += num_runs
        if self._make is None or self._num_runs < self._warm_up:
            return
        if self._stage is None:
            self._stage = self._make()
        now = monotonic_ns()
        end = now + min(elapsed_ns, SLICE_NS)
        try:
            while now < end:
                next(self._stage)
                now = monotonic_ns()
        except StopIteration as stop:
            self._stage = None
            self.compiled = stop.value
            if self.compiled is None:
                self._wait_longer()
        except UnstructuredError:
            self._stage = self._make = None
        except Exception as error:  # of ours; the general executor will do
            self._stage = self._make = None
            message = f"a signature could not be compiled, and runs uncompiled: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _wait_longer(self) -> None:
        """Compile only after four times as many runs."""
        self._num_runs = 0
        self._warm_up = min(4 * self._warm_up, _MAX_WARM_UP)
