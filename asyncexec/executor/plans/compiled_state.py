"""CompiledState: a step of a compiled plan that may take several slices, or awaits something.

A plan yields None now and then where it has much to do, and where it awaits, the node and its awaitable.  From the
first of these on the step has a task, which awaits them one after the other and runs what comes between; so there is a
task for each step, and none for each node.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from types import CoroutineType, GeneratorType
from typing import Any, Final, Protocol, TypeAlias

from asyncexec.compilation.graph_view import NOTHING, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import KernelStats
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.ending import Ending
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.grace_period import GracePeriod
from asyncexec.executor.engine.step_scope import Launched, StepScope, Waiter
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.cooperative import let_others_go_on
from asyncexec.framework.errors import CancelledError
from asyncexec.process.plain_tasks import makes_plain_tasks


@dataclass(frozen=True, slots=True, eq=False)
class AwaitedNode:
    """A node whose kernel is awaited: what the general executor knows of it, and its *stats*."""

    item: NodeItem
    stats: KernelStats


_COROUTINES: Final = (CoroutineType, GeneratorType)
# A node, and what its kernel gave.
Request: TypeAlias = tuple[AwaitedNode, Coroutine[Any, Any, Any]]


class SlicedPlan(Protocol):
    """What a step needs to know of its plan (compiled_plan.py)."""

    holds: LoopHolds
    pool: WorkerPool
    num_feeds: int
    num_fetches: int
    clock: Callable[[], int]

    @property
    def begin(self) -> Callable[..., Generator[Request | None, Any, list[Any]]]: ...

    def note(self, elapsed_ns: int, /) -> None: ...

    def note_end(self) -> None: ...

    def error_of(self, raised: BaseException, /) -> BaseException: ...

    def rounds_of(self, generator: Generator[Any, Any, Any], /) -> Sequence[str]: ...


class CompiledState(StepScope):
    """A step that goes on in slices."""

    __slots__ = (
        "_awaited",
        "_end_ns",
        "_ending",
        "_feeds",
        "_generator",
        "_num_missing",
        "_plan",
        "_task",
        "_values",
    )

    def __init__(self, plan: SlicedPlan, feeds: Sequence[object] | None, slice_ns: int) -> None:
        super().__init__(slice_ns, plan.holds)
        self._plan = plan
        self._feeds: list[Any] = []  # as long as some are missing
        self._num_missing = 0
        self._values: list[Any] = []
        self._generator: Generator[Request | None, Any, list[Any]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._awaited: AwaitedNode | None = None  # by the task
        self._end_ns = 0  # of the task's slice
        self._ending: Ending | None = None
        if feeds is not None:
            self._generator = plan.begin(*feeds)
        else:
            self._expect_feeds()

    def _expect_feeds(self) -> None:
        self._num_missing = self._plan.num_feeds
        self._feeds = [NOTHING] * self._num_missing
        self._values = [NOTHING] * self._plan.num_fetches

    def deliver_feed(self, index: int, value: object) -> None:
        self._feeds[index] = value
        self._num_missing -= 1
        if not self._num_missing and self._failure is None:
            feeds, self._feeds = self._feeds, []
            self._generator = self._plan.begin(*feeds)
        self.wake()

    def release(self) -> BaseException | None:
        if self._failure is not None or self._generator is not None:
            return super().release()
        self._waiter = None
        return None

    def reset(self) -> bool:
        self._values = []
        return True

    def restart(self, feeds: Sequence[object] | None, waiter: Waiter) -> None:
        self._waiter = waiter
        if feeds is not None:
            self._generator = self._plan.begin(*feeds)
        else:
            self._expect_feeds()

    @property
    def has_ready(self) -> bool:
        return self._generator is not None and self._task is None

    @property
    def is_waiting(self) -> bool:
        return self._task is not None

    def fetched(self) -> list[Any]:
        return self._values

    def run_ready(self, now: int, end: int) -> int:
        """Go on until the step has ended, failed or got a task, or *end* has come; the time that it is then."""
        generator = self._generator
        if generator is None or self._task is not None:  # the step was aborted, or runs by itself
            return now
        request = self._go_on(generator.send, None, end)
        if request is not None:
            self._launch(request)
        return self.holds.clock.now_ns()

    def _go_on(self, resume: Callable[[Any], Request | None], value: object, end: int) -> Request | None:
        """Run until something is to be awaited, the time *end* has come, or the step has ended or failed."""
        plan, generator = self._plan, self._generator
        now_ns = self.holds.clock.now_ns
        assert generator is not None
        try:
            while True:
                clock = plan.clock
                now = before = clock()
                try:
                    request = resume(value)
                finally:  # the last stretch ends with StopIteration
                    now = clock()
                    if now - before > self.holds.costs.expensive_ns or clock is not now_ns:
                        plan.note(now - before)
                        now = now_ns()
                if request is not None or now > end or self._generator is None:
                    return request
                resume, value = generator.send, None
        except StopIteration as stop:
            self._values = stop.value
            self._generator = None
            if plan.clock is not now_ns:
                plan.note_end()
        except CATCHABLE as raised:
            self._generator = None
            self.abort(plan.error_of(raised))
        except BaseException:
            self._generator = None
            raise
        finally:
            del value, resume  # an error's traceback holds this frame
        return None

    def _launch(self, request: Request) -> None:
        """Let a task go on with *request*."""
        loop, follow = self._loop, self._follow(request)
        if makes_plain_tasks(loop):
            self._task = asyncio.Task(follow, loop=loop, name=request[0].item.node.name)
        else:
            task = loop.create_task(follow, name=request[0].item.node.name)
            if not task.done():  # an eager task has begun, and may have run to the end
                self._task = task

    async def _follow(self, request: Request | None) -> None:
        """What the task does: await *request* and those that follow, and run what comes between."""
        if self._task is None:  # an eager one
            self._task = asyncio.current_task()
        self._end_ns = self.holds.clock.now_ns() + self._slice_ns
        outputs = raised = None
        try:
            while request is not None:
                node, coroutine = request
                request = None
                if self._failure is not None:
                    coroutine.close()
                    break
                self._awaited = node
                try:
                    outputs = await self._in_own_context(node.stats.watch(node.item.id, coroutine))
                    if node.item.finish is not None:
                        outputs = node.item.finish(outputs)
                except BaseException as error:
                    if self._loop.is_closed():  # nobody is there to be told
                        break
                    raised = error
                del coroutine
                generator = self._generator
                if generator is None:
                    if raised is not None:
                        self.note_later(node.item, raised)
                    break
                if raised is None:
                    request = self._go_on(generator.send, outputs, self._end_ns)
                else:
                    request = self._go_on(generator.throw, raised, self._end_ns)
                outputs = raised = None
                while request is None and self._generator is not None:
                    await let_others_go_on()
                    self._end_ns = self.holds.clock.now_ns() + self._slice_ns
                    if self._generator is not None:
                        request = self._go_on(self._generator.send, None, self._end_ns)
        except BaseException as error:  # somebody has cancelled the task between two slices, or a KeyboardInterrupt
            is_cancelled = isinstance(error, asyncio.CancelledError)
            self.abort(CancelledError("the task of the step was cancelled") if is_cancelled else error)
        finally:
            del outputs, raised  # an error's traceback holds this frame
            self._task = None
            if not self._loop.is_closed():
                self.wake()

    @types.coroutine
    def _in_own_context(self, awaitable: Any) -> Generator[Any, Any, Any]:
        """What *awaitable* gives, awaited in a context of its own: what a kernel sets there is no other's to see."""
        run = copy_context().run
        coroutine = awaitable if type(awaitable) in _COROUTINES else _awaited(awaitable)
        try:
            awaited = run(coroutine.send, None)
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as thrown:
                    awaited = None  # a future holds what it throws, whose traceback holds this frame
                    self._end_ns = self.holds.clock.now_ns() + self._slice_ns
                    awaited = run(coroutine.throw, thrown)
                else:
                    self._end_ns = self.holds.clock.now_ns() + self._slice_ns
                    awaited = run(coroutine.send, value)
        except StopIteration as stop:
            return stop.value

    def _abort(self, error: BaseException) -> None:
        generator, self._generator = self._generator, None
        if generator is not None and not generator.gi_running:  # type: ignore[attr-defined]  # it may be a kernel in it that ends the step
            generator.close()

    def _cancel_launched(self, grace_period: GracePeriod) -> None:
        self._ending = Ending(self._plan.pool, self._loop, grace_period)
        self._ending.cancel(self.task_groups())

    def _abandon_launched(self) -> None:
        self._abort(asyncio.CancelledError())
        self._task = None

    async def _wait_for_launched(self) -> None:
        assert self._ending is not None  # _cancel_launched has been called
        if await self._ending.wait_for_tasks(self.task_groups()) is not None:
            self._task = None

    def _launched(self) -> Iterator[Launched]:
        if self._task is not None and self._awaited is not None:
            loops = () if self._generator is None else self._plan.rounds_of(self._generator)
            yield self._awaited.item, None, self._task.get_coro(), loops

    def task_groups(self) -> Iterable[TaskGroup]:
        task, node = self._task, self._awaited
        return () if task is None else ({None if node is None else node.item: task},)


async def _awaited(awaitable: Any) -> Any:
    """What *awaitable* gives; this has ``send``, ``throw`` and ``close``."""
    return await awaitable
