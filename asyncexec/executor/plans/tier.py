"""Tier: which executor runs the steps of one signature.

The general executor runs the first steps, and measures the kernels.  Then what is cheap is compiled, the whole
signature or what lies between the nodes that await something or run on worker threads; and after many runs of that, or
where there is nothing to compile, the graph is optimized first.  Where no node runs on a worker thread any more, the
whole is compiled then.  All this is done in slices, one behind each run and others in later turns of the event loop,
which take no longer in all than the runs have.  A compiled plan that turns out to hold the event loop is dropped, and
the general executor, which can tell by which node, has its steps again.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary, ref

from asyncexec.executor.diagnostics.kernel_stats import has_large
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.feed_growth import BegunStep, FeedGrowth
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import SLICE_NS, Call, Stage, call_after_others
from asyncexec.process.gc_pause import paused_gc
from asyncexec.process.gil_switches import start_thread
from asyncexec.regions.program import UnstructuredError

WARM_UP: Final = 2  # runs before a plan is compiled; eight times as many after each that was dropped, or came to none
_MAX_WARM_UP: Final = 2**15
_LAST_WAIT: Final = 8 * WARM_UP
OPTIMIZE_AFTER: Final = 256  # compiled runs: to optimize takes two or three times as long as to compile
TURN_NS: Final = SLICE_NS // 2  # for how long it goes on at a stretch, beside steps that have slices of their own

AnyPlan: TypeAlias = CompiledPlan | RegionPlan
Compile: TypeAlias = Callable[[], Stage[AnyPlan | None]]


class Tier:
    """What the runs of one signature have led to so far.

    Args:
        make: makes the plan, as a stage that gives None where it cannot be had now, and raises UnstructuredError where
            it never can; None for no plan at all.
        make_better: the same for a plan of the optimized graph; None where there is no such.
        clock: measures for how long it compiles.
        varying: the positions of feeds whose size differs from run to run.
        growth: how large these may be.

    Attributes:
        compiled: the plan that steps are to be run by, if there is one.
        is_counting: whether compiled runs are counted, after some of which the graph is optimized.
        plain: the same if a step of it is one call, and need not be timed, or if it may be by now; where it has no
            entry, ``plan_for`` tells which feeds it is for.
        was_slow: whether a plan has been dropped that held the event loop; the next is to pause more often.
    """

    __slots__ = (
        "__weakref__",
        "_away",
        "_budget_ns",
        "_has_turn",
        "_late_ns",
        "_lock",
        "_loop",
        "_make",
        "_make_better",
        "_now_ns",
        "_num_left",
        "_num_optimized",
        "_num_runs",
        "_stage",
        "_varying",
        "_warm_up",
        "compiled",
        "growth",
        "is_counting",
        "plain",
        "was_slow",
    )

    def __init__(
        self,
        make: Compile | None,
        make_better: Compile | None = None,
        clock: Clock = CLOCK,
        varying: Sequence[int] = (),
        growth: FeedGrowth | None = None,
    ) -> None:
        self._make = make
        self._make_better = make_better
        self._now_ns = clock.now_ns
        self._varying = varying
        self.growth: FeedGrowth | None = growth
        self._num_runs = 0
        self._num_optimized = 0  # plans of the optimized graph, since the first one that was compiled
        self._num_left = OPTIMIZE_AFTER  # compiled runs, while they are counted
        self.is_counting: bool = True
        self._warm_up = WARM_UP
        self._stage: Stage[AnyPlan | None] | None = None
        self._budget_ns = 0  # for how long it may go on compiling
        self._late_ns = 0  # for how long it has, in later turns, while the next run may have been under way
        self._loop: ref[asyncio.AbstractEventLoop] | None = None  # in which it was last told of a run
        self._has_turn = False  # whether there is a later turn of that loop to come
        self._away: threading.Event | None = None  # set when the call is over that is being made on another thread
        self._lock = threading.Lock()  # for when the session goes to the loop of another thread
        self.compiled: AnyPlan | None = None
        self.plain: CompiledPlan | None = None
        self.was_slow: bool = False

    def plan_for(self, feeds: Sequence[object]) -> AnyPlan | None:
        """The plan for a step with *feeds*; None for the general executor, which is careful with large ones."""
        plan = self.compiled
        if self.growth is not None and not self.growth.admits(feeds):
            return None
        if plan is None or not self._varying:
            return plan
        if has_large([feeds[position] for position in self._varying]):
            return plan if isinstance(plan, RegionPlan) and plan.takes_large_feeds else None
        return plan if plan.limits is None or plan.limits.admit(feeds) else None

    @property
    def runs_on_loop(self) -> bool:
        """Whether a plan has the steps, all of whose kernels have turned out to be cheap."""
        return isinstance(self.compiled, CompiledPlan)

    @property
    def may_wait(self) -> bool:
        """Whether there is soon another time to compile, if it comes to no plan now."""
        return self._warm_up <= _LAST_WAIT

    def compile_at_once(self) -> Stage[None]:
        """Optimize and compile before the first run, as a stage."""
        for make in (self._make_better, self._make):
            if self.compiled is None and make is not None:
                try:
                    self._take((yield from make()))
                except UnstructuredError:
                    self._make = self._make_better = None
        self.is_counting = False

    def note_compiled_run(self, plan: AnyPlan, elapsed_ns: int = 0) -> None:
        """Take note of a run by *plan*; go on optimizing for as long as it took, where that is told.

        If *plan* holds the event loop, the general executor has the next runs.
        """
        if plan.compiles_nothing:  # so what has been slow until now may turn out to be cheap
            if elapsed_ns and plan is self.compiled:
                self._note_uncompiled(self._make, elapsed_ns, 1)
            return
        if self.is_counting:
            self._num_left -= 1
        if plan.is_quick and (self._num_left > 0 or not self.is_counting):
            if elapsed_ns and plan.may_be_called:
                self.plain = plan  # type: ignore[assignment]  # only that of a whole signature may be
            return
        if plan is not self.compiled:
            return
        if not plan.is_quick:
            self.was_slow = True
            if self.growth is not None:
                self.growth.forget()
            self._take(None)
            self._wait_longer()
            return
        if self._num_optimized and self._stage is None and not _is_cheap(plan):
            self._num_left = OPTIMIZE_AFTER
            return
        self.plain = None  # from here on runs are timed
        if elapsed_ns:
            self._go_on(self._make_better, elapsed_ns)

    def begin(self, feeds: Sequence[object]) -> BegunStep | None:
        """What a step of the general executor with *feeds* is to bring to its end."""
        return None if self.growth is None else self.growth.begin(feeds)

    def note_end(self, step: BegunStep | None) -> None:
        """Take note that a *step* of the general executor has ended well."""
        if self.growth is not None and step is not None:
            self.growth.note_end(step)

    def note_run(self, elapsed_ns: int, num_runs: int = 1) -> None:
        """Take note of runs by the general executor, and go on compiling for as long as they took.

        Nothing is awaited: a run that has its results is neither cancelled nor late for what comes behind it.
        """
        if self.compiled is None:  # else it is a run that is watched, or with large feeds
            self._note_uncompiled(self._make if self.may_wait else self._make_any, elapsed_ns, num_runs)

    def _note_uncompiled(self, make: Compile | None, elapsed_ns: int, num_runs: int) -> None:
        """Take note of runs in which nothing is compiled, and go on with what *make* does, if it is time to."""
        self._num_runs += num_runs
        if self._make is not None and self._num_runs >= self._warm_up:
            self._go_on(make, elapsed_ns)

    def _make_any(self) -> Stage[AnyPlan | None]:
        """The plan, or where there is nothing to compile, that of the optimized graph: it may have less to do."""
        for make in (self._make, self._make_better):
            plan = None if make is None else (yield from make())
            if plan is not None:
                return plan
        return None

    def _go_on(self, make: Compile | None, elapsed_ns: int) -> None:
        """Go on with what *make* does: for a slice now, and for the rest of *elapsed_ns* in later turns of the loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            self._loop, self._has_turn, self._away = ref(loop), False, None
        self._budget_ns += max(elapsed_ns - self._late_ns, 0)
        self._late_ns = 0
        self._advance(loop, make)

    def _advance(self, loop: asyncio.AbstractEventLoop, make: Compile | None = None) -> None:
        """Go on for a slice with what was begun, or with what *make* does, and later if there is time left."""
        if self._away is not None:
            if not self._away.is_set():
                return
            self._away = None  # also where runs follow one another, and the loop has had no turn to tell
        if self._lock.acquire(blocking=False):  # else a turn of the loop that the session had is not over
            try:
                with paused_gc():
                    self._advance_alone(loop, make)
            finally:
                self._lock.release()

    def _advance_alone(self, loop: asyncio.AbstractEventLoop, make: Compile | None) -> None:
        before = plan = self.compiled
        began = now = self._now_ns()
        end = began + min(self._budget_ns, TURN_NS)
        try:
            if self._stage is None and make is not None:
                self._stage = make()
            stage = self._stage
            while stage is not None and now < end:
                call: Call | None = next(stage)
                now = self._now_ns()
                if call is not None:
                    self._away = _make_elsewhere(loop, call, self)
                    break
            self._budget_ns = max(self._budget_ns - (now - began), 0)  # however long the last part took
            if stage is not None:
                if self._budget_ns > 0 and not (self._has_turn or self._away):
                    self._has_turn = True
                    _wait_for_turn(loop, self)
                return
        except StopIteration as stop:
            plan = stop.value or plan
        except UnstructuredError:
            self._make = self._make_better = None
        except Exception as error:  # of ours; the general executor will do
            self._make = self._make_better = None
            message = f"a signature could not be compiled, and runs as before: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        num_optimized = self._num_optimized
        self._take(plan)
        if plan is None or plan.compiles_nothing:
            self._wait_longer()
        elif before is not None and not before.compiles_nothing:
            self.is_counting = not _is_cheap(plan)
            self._num_left *= 8**num_optimized
            self._num_optimized = num_optimized + 1

    def advance_later(self) -> None:
        """Go on compiling in a turn of the event loop of its own, unless the session has another loop by now."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            return
        self._has_turn = False
        if self._stage is not None:
            began = self._now_ns()
            self._advance(loop)
            self._late_ns += self._now_ns() - began

    def come_back(self, loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
        """Go on compiling, as the call is over that was made on another thread, unless somebody has done so."""
        if self._away is over and self._loop is not None and self._loop() is loop and not self._has_turn:
            self.advance_later()

    def _take(self, plan: AnyPlan | None) -> None:
        self._stage = None
        self._budget_ns = self._late_ns = 0
        self.compiled = plan
        self.plain = plan if isinstance(plan, CompiledPlan) and plan.is_plain else None
        self._num_optimized, self._num_left, self.is_counting = 0, OPTIMIZE_AFTER, True

    def _wait_longer(self) -> None:
        """Compile only after eight times as many runs."""
        self._num_runs = 0
        self._warm_up = min(8 * self._warm_up, _MAX_WARM_UP)


def _is_cheap(plan: AnyPlan) -> bool:
    return not isinstance(plan, RegionPlan) or plan.is_cheap


# The tiers that go on compiling in later turns of an event loop, one of them in each.
_waiting: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, deque[ref[Tier]]]] = WeakKeyDictionary()


def _wait_for_turn(loop: asyncio.AbstractEventLoop, tier: Tier) -> None:
    """Let *tier* go on in a later turn of *loop*, unless it is dropped before: its session is closed, say."""
    waiting = _waiting.setdefault(loop, deque())
    waiting.append(ref(tier))
    if len(waiting) == 1:
        call_after_others(loop, _take_turn, loop, waiting, context=Context())


def _make_elsewhere(loop: asyncio.AbstractEventLoop, call: Call, tier: Tier) -> threading.Event:
    """Make *call* on another thread, and let *tier* come back then; gives what is set when it is over."""
    found, over = ref(tier), threading.Event()

    def tell() -> None:
        tier = found()
        if tier is not None:
            tier.come_back(loop, over)

    def make() -> None:
        try:
            call()
        finally:
            over.set()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell, context=Context())

    # Not one of the loop's: all of these may be waiting for what comes of runs.
    start_thread(threading.Thread(target=make, name="asyncexec-call", daemon=True))
    return over


def _take_turn(loop: asyncio.AbstractEventLoop, waiting: deque[ref[Tier]]) -> None:
    tier = waiting.popleft()()
    if waiting:
        call_after_others(loop, _take_turn, loop, waiting, context=Context())
    if tier is not None:
        tier.advance_later()
