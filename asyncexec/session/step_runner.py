"""StepRunner: runs one step of a signature that is ready, by whichever executor its tier has come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from threading import get_ident
from typing import Any

from asyncexec.durable.journal_scope import JournaledStep
from asyncexec.executor.diagnostics.run_recorder import take_collector
from asyncexec.executor.diagnostics.step_counts import StepCounts
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.plans.feed_growth import BegunStep
from asyncexec.executor.plans.tier import AnyPlan, Tier
from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import run_in_slices
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import OpError, UnavailableError
from asyncexec.framework.spans import Spans, leave_step
from asyncexec.framework.step_stats import RunMetadata, TraceToken, begin_trace, end_trace
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, explained
from asyncexec.session.held_state import StateFinder
from asyncexec.session.large_feeds import LargeFeedError
from asyncexec.session.run_metadata import fill_metadata
from asyncexec.session.session_config import RunOptions
from asyncexec.session.session_loop import SessionLoop
from asyncexec.session.steps_under_way import StepsUnderWay


class NotCalledError(Exception):
    """The plan is none that can be called: nothing has run."""


class StepRunner:
    """Runs the steps of one session.

    Args:
        loop: the session's; steps: those that wait for something.
        counts: is told of steps that have ended.
        clock: measures them.
        spans: makes the spans of those that call users' functions.
        check_open: raises CancelledError if the session has been closed.
        state_finder: tells which signatures have state.
        retries: how often a step is begun again after a worker was lost, where its options do not say.
    """

    __slots__ = ("_check_open", "_clock", "_counts", "_loop", "_retries", "_spans", "_steps", "state_finder")

    def __init__(
        self,
        loop: SessionLoop,
        steps: StepsUnderWay,
        counts: StepCounts,
        clock: Clock,
        spans: Spans,
        check_open: Callable[[], None],
        state_finder: StateFinder,
        retries: int,
    ) -> None:
        self._loop = loop
        self._steps = steps
        self._counts = counts
        self._clock = clock
        self._spans = spans
        self._check_open = check_open
        self.state_finder: StateFinder = state_finder
        self._retries = retries

    def call(self, prepared: ExecutorsAndKeys, values: Collection[object], converts: bool = False) -> Any:
        """The caller's nest, by the plan that is one plain function: no task, no step, no suspension.

        What the values are is looked at where they are taken, unless the call *converts* them all the same.

        Raises:
            LargeFeedError: a value takes long to convert; nothing has run.
            NotCalledError: the step is to be started; nothing has run.
            OpError: what the step failed with.
        """
        tier = prepared.tier
        plan = tier.plain
        if plan is None:
            raise NotCalledError
        loop = self._loop
        # As good as to ask which loop is running, which takes a system call before Python 3.12.
        if get_ident() != loop.thread_id or not loop.current.is_running():  # type: ignore[union-attr]
            loop.enter()
        feeds, take = values, plan.entry
        if take is None or converts or not prepared.is_in_order:
            feeds, take = prepared.convert(values), plan.take
            if (plan.entry is None or tier.growth is not None) and tier.plan_for(feeds) is not plan:
                raise NotCalledError
        counts = self._counts
        span = self._spans.enter_step() if prepared.tells_step else None
        try:
            fetched = plan.call(take, feeds)
        except OpError as error:
            counts.failed += 1
            raise explained(error, prepared) from error.__cause__
        except BaseException:
            counts.failed += 1
            raise
        finally:
            if span is not None:
                leave_step(span)
        if fetched is None:
            if feeds is values:
                return self.call(prepared, values, converts=True)
            tier.plain = None
            raise NotCalledError
        counts.completed += 1
        if tier.is_counting or not plan.is_quick:
            tier.note_compiled_run(plan)
        if plan.gives_all and prepared.is_as_fetched:
            return prepared.build(fetched)
        return prepared.result(fetched)

    def run(
        self,
        prepared: ExecutorsAndKeys,
        values: Collection[object],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        journaled: JournaledStep | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Gives the caller's nest, for the *values* of the feeds; *metadata* is filled in place.

        *journaled* is what the step is of a run with a journal; Parked is raised if nodes wait for something then.
        """
        retries = self._retries if options is None or options.retries is None else options.retries
        if retries:
            return self._run_again(prepared, tuple(values), retries, options, metadata, journaled)
        return self._run_once(prepared, values, options, metadata, journaled)

    async def _run_again(
        self,
        prepared: ExecutorsAndKeys,
        values: Sequence[object],
        retries: int,
        options: RunOptions | None,
        metadata: RunMetadata | None,
        journaled: JournaledStep | None,
    ) -> Any:
        """The same, and the step is begun again after a worker was lost, up to *retries* times."""
        if options is not None and options.retries:
            await self.state_finder.check_has_none(prepared.graph, f"retries={retries}")
        elif await self.state_finder.find(prepared.graph) is not None:
            retries = 0
        attempts: list[str] = []
        while True:
            try:
                return await self._run_once(prepared, values, options, metadata, journaled)
            except UnavailableError as error:
                if error.lost_worker is None:
                    raise
                attempts.append(f"attempt {len(attempts) + 1} of {retries + 1}: {one_line(error)}")
                if len(attempts) > retries:
                    if retries:
                        error.add_attempts(attempts)
                    raise
            # Out here it holds no error, whose traceback would hold this frame.

    async def _run_once(
        self,
        prepared: ExecutorsAndKeys,
        values: Collection[object],
        options: RunOptions | None,
        metadata: RunMetadata | None,
        journaled: JournaledStep | None,
    ) -> Any:
        try:
            feeds = prepared.convert(values)
        except LargeFeedError:
            feeds = await run_in_slices(prepared.convert_large(tuple(values)), self._clock)
            self._check_open()  # close() may have come meanwhile
        tier = prepared.tier
        plan = None if journaled else tier.plan_for(feeds)
        collector = token = step = None
        if options is not None and options.trace:
            (collector, token), plan = self._begin_trace(prepared, feeds), None
        begun = tier.begin(feeds) if plan is None else None
        span = self._spans.enter_step() if prepared.tells_step else None
        began_ns = self._clock.now_ns()
        try:
            try:
                executor = prepared.executor
                step = executor.start(feeds, collector, journaled=journaled) if plan is None else plan.start(feeds)
                if step._loop is not self._loop.current:
                    self._loop.enter()
                if prepared.awaits:  # where tasks are eager, a kernel may close the session before it awaits anything
                    self._steps.add(step)
                if not step.run_inline():
                    self._steps.add(step)
                    await step.run()
            finally:
                if step is not None:
                    self._steps.discard(step)
                if span is not None:
                    leave_step(span)
                if token is not None or metadata is not None:
                    await self._end_trace(token, metadata, prepared, collector, options)
        except OpError as error:
            self._counts.failed += 1
            raise explained(error, prepared) from error.__cause__
        except BaseException:
            self._counts.failed += 1
            if step is not None:
                step.undo()  # cancelled while the metadata are filled
            raise
        self._counts.completed += 1
        values = step.fetched()
        if journaled is not None:  # which is never compiled
            journaled.check()
        elif plan is None or plan.compiles_nothing or tier.is_counting or plan.num_tries or not plan.is_quick:
            _note_run(tier, plan, begun, self._clock.now_ns() - began_ns)
        return prepared.result(values, options)

    def _begin_trace(
        self, prepared: ExecutorsAndKeys, feeds: Sequence[object]
    ) -> tuple[StepStatsCollector, TraceToken | None]:
        """What is told of the step, and what ``end_trace`` takes, if others see it as well."""
        collector = take_collector() or StepStatsCollector(self._clock)
        collector.note_feeds(prepared.feeds, feeds)
        return collector, begin_trace(collector) if collector.is_trace else None

    async def _end_trace(
        self,
        token: TraceToken | None,
        metadata: RunMetadata | None,
        prepared: ExecutorsAndKeys,
        collector: StepStatsCollector | None,
        options: RunOptions | None,
    ) -> None:
        if token is not None:
            end_trace(token)
        if metadata is not None:
            await fill_metadata(metadata, prepared.graph, collector, options, self._loop, self._clock)


def _note_run(tier: Tier, plan: AnyPlan | None, begun: BegunStep | None, elapsed_ns: int) -> None:
    if plan is not None:
        tier.note_compiled_run(plan, elapsed_ns)
    else:
        tier.note_end(begun)
        tier.note_run(elapsed_ns)
