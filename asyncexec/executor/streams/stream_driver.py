"""StreamDriver: drives a step for each item of a stream that is in flight.

There is no task for an item besides those of its async kernels.  What comes back puts the item in a queue, and one
callback of the loop looks after all items in it, under the slice budget: with many items in flight, one turn of the
loop serves all that came back in the turn before.  Where a step has failed with something still under way, a task
waits for that.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from contextvars import Context

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.kernel_surroundings import call_among_kernels
from asyncexec.executor.engine.lost_fetches import LostFetches
from asyncexec.executor.engine.step_scope import StepMaker, StepScope
from asyncexec.executor.engine.undo_log import UndoLog, undo_all
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.executor.plans.tier import AnyPlan, Tier
from asyncexec.executor.streams.keyed_items import cells_around, has_no_key, no_key, tell_keys
from asyncexec.executor.streams.spread import Spread
from asyncexec.executor.streams.stream_cuts import StreamCuts
from asyncexec.executor.streams.stream_item import StreamItem
from asyncexec.executor.streams.stream_options import StreamOptions, StreamPlan
from asyncexec.executor.streams.stream_window import StreamWindow
from asyncexec.framework.cooperative import call_after_others
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.spans import Span, running


class StreamDriver(ABC):
    """The items of one stream, from when they begin until they are done.

    Attributes:
        window: knows which these are.
        cuts: where checkpoints are made, if they are.
        span: of the stream.
    """

    def __init__(self, options: StreamOptions, places: WaitQueue | None, context: Context) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context  # what kernels run in, whoever sends
        self._options = options
        self._now_ns = options.clock.now_ns
        self._places = places
        self._num_granted = 0  # places that were waited for, for items that have not begun
        self._place_task: asyncio.Task[None] | None = None  # who waits for one
        self.window: StreamWindow[StreamItem] = StreamWindow(options.window, is_ordered=options.ordered)
        self._plan: StreamPlan | None = None
        self._letters: deque[object] = deque()  # what is told of each in the inbox if it fails, where that is asked for
        self._active: deque[StreamItem] = deque()  # that have something to do
        self._endings: set[asyncio.Task[None]] = set()
        self._ending_steps: set[StepScope] = set()  # that some of these wait for
        self._undo_logs: dict[StreamItem, UndoLog] = {}  # of those done and not taken that have changed queues
        self._spare: list[StreamItem] = []  # done and taken, to be used again
        self._num_measured = 0  # items that the general executor has run, since the tier was told
        self.cuts: StreamCuts | None = None
        self._free_until = sys.maxsize  # items before this number begin without asking the cuts
        self._notes: deque[object] = deque()  # the positions of sources behind what is in the inbox
        self.span: Span | None = None
        self._schedule_drive = self._schedule  # one for all items
        self._drive_is_due = False

    @abstractmethod
    def abort(self, error: BaseException) -> None:
        """Let nothing more begin, and cancel what is in flight; who takes results gets *error*."""

    @abstractmethod
    def _fill_inbox(self, end: int) -> bool:
        """Draw items from a source, until the time *end*; whether there is more, and room for it."""

    @abstractmethod
    def _end_item(self, item: StreamItem, error: BaseException | None) -> None:
        """Take what became of *item*."""

    @abstractmethod
    def _end_well(self, item: StreamItem) -> None:
        """Take the value of *item*, whose step is reset and may be used again."""

    @abstractmethod
    def _may_go_on(self) -> bool:
        """Whether an item could begin now, but for the place that it takes."""

    @abstractmethod
    def _take_note(self, position: object) -> None:
        """Take note of the *position* behind the item that begins."""

    @abstractmethod
    def _cuts_let_begin(self) -> bool:
        """Whether no checkpoint has to be stored before the next item begins."""

    @abstractmethod
    def _begin_on_worker(self, spread: Spread, end: int) -> int | None:
        """Begin an item on the worker that *spread* chooses; the time that it is then, None where none may begin."""

    @abstractmethod
    def _start_on_worker(self, item: StreamItem, plan: StreamPlan, values: list[object], worker: str) -> None:
        """Begin the step of *item* on *worker*."""

    @abstractmethod
    def _settle_end(self) -> None:
        """See whether nothing is in flight any more."""

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._endings.add(task)
        task.add_done_callback(self._on_ending_done)

    def _abandon_ending(self, task: asyncio.Task[None]) -> None:
        """Wait no more for *task*."""
        task.remove_done_callback(self._on_ending_done)
        self._endings.discard(task)
        self._settle_end()

    def _schedule(self, *, is_spent: bool = False) -> None:
        """Drive the stream in the next turn of the loop; if its slice *is_spent*, when others have gone on."""
        if not self._drive_is_due:
            self._drive_is_due = True
            if is_spent:
                call_after_others(self._loop, self._drive, context=self._context)
            else:
                self._loop.call_soon(self._drive, context=self._context)

    def _drive(self) -> None:
        """Look after all items that something has come back for, and begin others."""
        try:
            self._drive_for_a_slice()
        except BaseException as raised:  # nobody else would be told
            self._drive_is_due = False
            self.abort(raised)

    def _drive_for_a_slice(self) -> None:
        start = self._now_ns()
        end = start + self._options.slice_ns
        is_more_to_come = self._fill_inbox(start + self._options.slice_ns // 2)
        now = self._now_ns()
        end = max(end, now + self._options.slice_ns // 2)  # a slow source does not keep items waiting
        now = call_among_kernels(self._run_items, now, end)
        if self._plan is not None:
            if now - start > self._plan.holds.longest_slice_ns:
                self._plan.holds.longest_slice_ns = now - start
            self._tell_tier(self._plan.tier, now - start)
        self._drive_is_due = False
        if self._active or (self._place_task is None and self._may_go_on()) or is_more_to_come:
            self._schedule(is_spent=now > end)

    def _run_items(self, now: int, end: int) -> int:
        """Go on with items, and begin others, until the time *end* has come; the time that it is then."""
        active, window = self._active, self.window
        inbox = window.inbox
        while now <= end:
            if active:
                now = self._advance(active.popleft(), now, end)
            elif self._plan is not None and self._plan.spread is not None:
                begun = self._begin_on_worker(self._plan.spread, end)
                if begun is None:
                    break
                now = begun
            elif (
                inbox
                and (window.number < self._free_until or self._cuts_let_begin())
                and (self._places is None or self._may_begin(self._places))
            ):
                now = self._begin(inbox.popleft(), end)
            else:
                break
        return now

    def _tell_tier(self, tier: Tier, elapsed_ns: int) -> None:
        """Let *tier* know how items have run, and go on compiling for no longer than that took."""
        if tier.compiled is not None:
            tier.note_compiled_run(tier.compiled, elapsed_ns)
        elif self._num_measured:
            tier.note_run(elapsed_ns, self._num_measured)
            self._num_measured = 0

    def _may_begin(self, places: WaitQueue) -> bool:
        """Take a place for an item; if there is none, let somebody wait for one."""
        if self._num_granted:
            self._num_granted -= 1
            return True
        if self._place_task is None:
            if places.try_acquire():
                return True
            self._place_task = self._loop.create_task(self._wait_for_place(places))
            self._keep(self._place_task)
        return False

    async def _wait_for_place(self, places: WaitQueue) -> None:
        try:
            await places.acquire()
        finally:
            self._place_task = None
        self._num_granted += 1
        if self._may_go_on():
            self._schedule()

    def _release_places(self) -> None:
        """Wait for no place any more, and give back what nobody has used."""
        if self._places is not None:
            if self._place_task is not None:
                self._place_task.cancel()
            while self._num_granted:
                self._num_granted -= 1
                self._places.release()

    def _give_back_place(self, item: StreamItem) -> None:
        if self._places is not None and item.has_place:
            item.has_place = False
            self._places.release()

    def _begin(self, values: list[object] | BaseException, end: int, worker: str | None = None) -> int:
        plan, spare = self._plan, self._spare
        assert plan is not None  # who sends opens it
        item = spare.pop() if spare else StreamItem(self._active, self._schedule_drive)
        if self._notes:
            self._take_note(self._notes.popleft())
        if self._letters:
            item.letter = self._letters.popleft()
        item.has_place = True
        self.window.begin(item)
        if plan.spans is not None:
            try:
                item.span = plan.spans.begin_item(item.number, self.span)
            except BaseException as interrupt:  # of a hook
                self._end_item(item, interrupt)
                return self._now_ns()
        if isinstance(values, BaseException):
            self._end_item(item, values)
            return self._now_ns()
        if plan.records is not None:
            plan.records.begin(item.number, tuple(values))
        try:
            if plan.states:
                self._start_with_states(item, plan, values)
            elif worker is not None:
                self._start_on_worker(item, plan, values, worker)
            else:
                self._start(item, plan, values)
        except BaseException as error:  # a KeyboardInterrupt, say
            self._end_item(item, error)
            return self._now_ns()
        item.is_queued = True
        item.began_ns = now = self._now_ns()
        return self._advance(item, now, end)

    def _start(self, item: StreamItem, plan: StreamPlan, values: list[object]) -> None:
        """Begin the step of *item*: that of an item which is done, where there is one.

        Where it awaits states, *values* are what is there of its feeds; they are delivered to it.
        """
        feeds = None if item.num_awaited else values
        collector = plan.collector if plan.records is None else plan.records.collector_of(item.number)
        if collector is not None:
            item.step, item.maker = plan.executor.start(feeds, collector), plan.executor
            item.step.watch(item)
            return
        maker: StepMaker = plan.executor
        compiled = plan.tier.plan_for(values)
        if compiled is not None and not plan.states:
            maker = compiled
        elif compiled is not None and self._keeps_apart(compiled):
            maker = compiled.executor if isinstance(compiled, RegionPlan) else compiled
        item.begun = plan.tier.begin(values) if maker is plan.executor else None
        if item.step is not None and item.maker is maker:
            item.step.restart(feeds, item)
        else:
            item.step, item.maker = maker.start(feeds), maker
            item.step.watch(item)

    def _keeps_apart(self, compiled: AnyPlan) -> bool:
        """Whether an update of a state fails only by what it needs, where the stream goes on after a failure.

        And whether keys of states can be computed before the states are there.
        """
        assert self._plan is not None
        return isinstance(compiled, RegionPlan) or not (self._options.yields_errors or self._plan.has_keys)

    def _start_with_states(self, item: StreamItem, plan: StreamPlan, values: list[object]) -> None:
        """Start with what of the states is there; the rest is delivered when it comes."""
        item.keeps_failures = self._options.yields_errors
        item.read, item.written = cells_around(item, plan.states, self.window.cells)
        values += [NOTHING] * len(plan.states)
        for slot, cell in zip(plan.states, item.read, strict=True):
            values[slot.feed] = cell.value
            if cell.value is NOTHING:
                item.num_awaited += 1
                cell.reader = item, slot.feed
        item.is_queued = bool(item.num_awaited)
        self._start(item, plan, values)
        assert item.step is not None
        for index, value in enumerate(values) if item.num_awaited else ():
            if value is not NOTHING:
                item.step.deliver_feed(index, value)

    def _advance(self, item: StreamItem, now: int, end: int) -> int:
        """Run what is ready of *item*; the time that it is then."""
        step, plan = item.step, self._plan
        if step is None:
            return now
        assert plan is not None
        if item.span is not None:
            running.set(item.span)  # the drive has a context of its own
        try:
            now = step.run_ready(now, end)
        except BaseException as raised:  # a KeyboardInterrupt, say
            step.abort(raised)
        if item.visits:
            tell_keys(item, step)
        item.is_queued = False
        if step._failure is not None:
            self._fail(item, step)
        elif item.failure is not None:
            self._go_on_after_failure(item, step)
        elif step.has_ready:
            item.set_result(None)
        elif item.num_awaited or step.is_waiting:
            if has_no_key(item, step):
                step.abort(no_key(item))
                self._fail(item, step)
            elif not item.num_awaited and step.is_stuck():
                self._fail(item, step)
            elif item.written:
                item.hand_on(plan.states, step.fetched())
        else:
            self._complete(item, step)
        return now

    def _complete(self, item: StreamItem, step: StepScope) -> None:
        plan = self._plan
        assert plan is not None
        values = step.fetched()
        if item.written:
            item.hand_on(plan.states, values)
        error = step.release()
        if error is None:
            try:
                item.value = plan.result(values)
            except Exception as raised:
                error = raised
        if error is not None:
            self._end_item(item, error)
            return
        if step.undo_log is not None:
            self._keep_undo_log(item, step)
        if item.maker is plan.executor:
            self._num_measured += 1
            plan.tier.note_end(item.begun)
        if not step.reset():
            item.step = None
        self._end_well(item)

    def _go_on_after_failure(self, item: StreamItem, step: StepScope) -> None:
        """Let the failed *item* go on as long as it may come to updates of states."""
        plan, failure = self._plan, item.failure
        assert plan is not None
        assert failure is not None
        item.hand_on(plan.states, step.fetched())
        missing = [slot.fetch for slot, cell in zip(plan.states, item.written, strict=True) if cell.value is NOTHING]
        if missing and not self._lost_fetches(item, plan).issuperset(missing):
            if step.has_ready:
                item.set_result(None)
                return
            awaits = item.num_awaited and not has_no_key(item, step)
            if awaits or (step.is_waiting and not step.is_stuck()):
                return
        item.is_queued = True  # nobody is to be told
        step.abort(failure)
        self._fail(item, step)

    def _lost_fetches(self, item: StreamItem, plan: StreamPlan) -> set[int]:
        maker = item.maker
        executor = maker if isinstance(maker, (GeneralExecutor, PartitionedExecutor)) else plan.executor
        lost = item.lost = item.lost or LostFetches(executor)
        while item.failed:
            lost.add(item.failed.pop())
        return lost.positions

    def _keep_undo_log(self, item: StreamItem, step: StepScope) -> None:
        """Keep what *step* has changed until the result of *item* is taken: its step may be used again."""
        assert step.undo_log is not None
        self._undo_logs[item], step.undo_log = step.undo_log, None

    def _undo(self, items: Iterable[StreamItem]) -> None:
        """Undo what *items* have changed in queues: they are done, and nobody takes their results."""
        undo_all([self._undo_logs.pop(item) for item in items if item in self._undo_logs])

    def _fail(self, item: StreamItem, step: StepScope) -> None:
        if item.written:
            assert self._plan is not None
            item.hand_on(self._plan.states, step.fetched())
        if item.step is not step:  # a kernel in an eager task has ended the stream, and with it this item
            item.is_queued = True
        elif step.is_waiting:
            item.step = None  # nobody is to look at it any more
            self._end_in_task(item, step)
        else:
            self._end_item(item, step.release())

    def _end_in_task(self, item: StreamItem, step: StepScope) -> None:
        self._ending_steps.add(step)
        self._keep(self._loop.create_task(self._end_step(item, step)))

    async def _end_step(self, item: StreamItem, step: StepScope) -> None:
        """Cancel what a failed step has launched, and wait for it."""
        running.set(item.span)  # whoever has ended the item
        error = step._failure
        try:
            await step.drain()
        finally:
            self._ending_steps.discard(step)
            step.release()
            self._give_back_place(item)
            if item in self.window.in_flight:
                self._end_item(item, error)
            if item not in self.window.in_flight:  # else it begins again
                item.end_span(error)
            del error, step

    def _release_items(self) -> None:
        """Be no part of a cycle, whoever keeps the results that have not been taken."""
        del self._schedule_drive
        for item in self.window.results:
            item.release()

    def _on_ending_done(self, task: asyncio.Task[None]) -> None:
        self._endings.discard(task)
        if not task.cancelled():
            task.exception()
        self._settle_end()
