"""CompiledPlan: a signature as Python functions.

What the general executor decides for each node of each step has been decided once.  The functions yield now and then
where they have much to do, and where something is to be awaited; a step of such is a CompiledState.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextvars import Context
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.kernel_surroundings import call_among_kernels
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.executor.plans.compiled_state import CompiledState
from asyncexec.executor.plans.feed_limits import FeedLimits
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.errors import InternalError, OpError
from asyncexec.framework.foreign_errors import as_op_error, explained_by
from asyncexec.framework.under_way import frames_of
from asyncexec.regions.code import Code, Line

Begin: TypeAlias = Callable[..., Generator[Any, Any, list[Any]]]
Take: TypeAlias = Callable[[Collection[Any]], list[Any] | None]

_NUM_TRIES: Final = 16  # to call native code that refuses what it is given
_NUM_WATCHED: Final = 64  # stretches that are measured by the CPU's time after one that was long
_VERY_LONG: Final = 40  # times what is expensive, as pauses of the machine seldom are; it may come rarely
_MANY_WATCHED: Final = (
    4096  # stretches after such a one; of a user's node nothing tells beforehand that it will be long
)


class CompiledPlan:
    """What the compiled steps of one signature share.

    Args:
        code: its functions.
        slice_ns: how long a step may hold the event loop; holds: is told how long it was.
        pool: knows how long a step that has ended waits for what it awaits.
        is_region: whether it is one node of another step, which tells the loops around.
        limits: of the feeds, where they decide whether kernels are cheap.
        is_light: whether it takes so little that nobody need measure it.

    Attributes:
        is_plain: whether a step is one call of ``call``; else ``start`` gives what is to be run.
        is_awaited: whether anything is awaited.
        function: the program's, which takes values as they travel along edges.
        take: takes all these at once; gives the values of the fetches, or None if a step is to be started.
        entry: the same for values as they are fed; gives None, too, if one is to be converted.  None if there is none.
        begin: takes the feeds; gives what yields as a CompiledState wants it, and then gives the values of the fetches.
        gives_all: whether there is a value of each fetch.
        num_feeds, num_fetches: how many values a step takes and gives.
        num_tries: how often ``call`` is still tried where the plan is not plain.
        is_quick: whether it has not turned out to hold the loop for long at a stretch.
        clock: what its stretches are measured by: the time, or after one that was long, the CPU's time.
        enter: calls a function, with its arguments, so that numpy says nothing of floating-point errors.
    """

    __slots__ = (
        "__weakref__",
        "_code",
        "_cost_ns",
        "_has_users_nodes",
        "_is_light",
        "_is_region",
        "_nodes",
        "_now_ns",
        "_num_to_watch",
        "_num_watched",
        "_sampled_at_ns",
        "_slice_ns",
        "_slow_ns",
        "_was_slow",
        "begin",
        "clock",
        "enter",
        "entry",
        "function",
        "gives_all",
        "holds",
        "is_plain",
        "is_quick",
        "limits",
        "num_feeds",
        "num_fetches",
        "num_tries",
        "pool",
        "take",
    )

    compiles_nothing = False

    def __init__(
        self,
        code: Code,
        slice_ns: int,
        holds: LoopHolds,
        pool: WorkerPool,
        *,
        is_region: bool = False,
        limits: FeedLimits | None = None,
        is_light: bool = False,
    ) -> None:
        self._code = code
        self.pool: WorkerPool = pool
        self.function: Callable[..., Any] = code.function
        called = code.quick or code.function
        self.take: Take = lambda feeds: called(*feeds)
        self.entry: Take | None = None
        self.gives_all: bool = code.gives_all
        self._is_light = is_light
        self.num_tries: int = 0 if code.quick is None or limits is not None else _NUM_TRIES
        self._is_region = is_region
        self.limits: FeedLimits | None = limits
        self._slice_ns = slice_ns
        self.holds: LoopHolds = holds
        self.num_feeds: int = code.num_inputs
        self.num_fetches: int = code.num_outputs
        self.is_plain: bool = not code.is_generator
        self.begin: Begin = partial(_once, code.function) if self.is_plain else code.function
        self.is_quick: bool = True
        self._was_slow = False  # whether a stretch was, of the step under way
        self._cost_ns = self._sampled_at_ns = self._num_watched = 0
        self._num_to_watch = _NUM_WATCHED
        self._has_users_nodes = any(node.properties.registration.kernel is not None for node in code.suspects)
        self._now_ns = holds.clock.now_ns
        self.clock: Callable[[], int] = self._now_ns
        self._slow_ns = holds.costs.expensive_ns
        self.enter: Callable[..., Any] = call_among_kernels if code.is_foreign else _quiet_context().run
        weakref.finalize(self, _forget_source, [function.co_filename for function in code.lines])

    @property
    def may_be_called(self) -> bool:
        """Whether ``call`` is worth a try, where the plan is not plain: what it does seems to be native code by now."""
        return self.num_tries > 0 and self._code.is_native

    def call(self, take: Take, feeds: Collection[object]) -> list[Any] | None:
        """What *take*, or the ``entry``, gives for *feeds*; raises what the step fails with."""
        clock = self.clock
        start = 0 if self._is_light else clock()
        try:
            values: list[Any] | None = self.enter(take, feeds)
        except CATCHABLE as raised:
            self.fail(raised)
        if values is None:
            self.num_tries -= take is self.take
        elif start:
            elapsed = clock() - start
            if elapsed > self._slow_ns or clock is not self._now_ns:
                self.note(elapsed)
        return values

    def start(self, feeds: Sequence[object] | None) -> CompiledState:
        """A step with the values of *feeds*, or one that begins when ``deliver_feed`` has brought the last of them."""
        return CompiledState(self, feeds, self._slice_ns)

    @property
    def may_change_threads(self) -> bool:
        """Whether it has no loop, calls nothing of the user's, awaits nothing, and no node keeps a state.

        Nor may it have parts that are native code: all calls of one share its memory, on the thread of the event loop.
        """
        code = self._code
        if code.is_foreign or code.is_awaited or code.has_native_parts:
            return False
        if any(node.op_def.is_stateful or node.op_def.takes_references for node in code.suspects):
            return False
        return not any(line.loops for lines in code.lines.values() for line in lines.values())

    @property
    def is_awaited(self) -> bool:
        return self._code.is_awaited

    def note(self, elapsed_ns: int) -> None:
        """Take note of a stretch that was long, or that was measured by the CPU's time because one before was.

        A stretch that took long though the CPU had little to do with it, was a pause of the machine.
        """
        holds, is_slow = self.holds, elapsed_ns > self._slow_ns
        if elapsed_ns > holds.longest_slice_ns:
            holds.longest_slice_ns = elapsed_ns
        if is_slow:
            suspects = self._code.suspects
            if len(suspects) == 1:
                holds.note(suspects[0], elapsed_ns)
            else:
                holds.note_one_of(suspects, elapsed_ns)
            is_slow = holds.without_collections(elapsed_ns) > self._slow_ns
            if is_slow and elapsed_ns > _VERY_LONG * holds.costs.expensive_ns and not self._has_users_nodes:
                self._num_to_watch = _MANY_WATCHED
        was_measured = self.clock is not self._now_ns
        self._num_watched = 0 if is_slow else self._num_watched + 1
        if self._num_watched < self._num_to_watch:
            self.clock = holds.clock.cpu_ns
        else:
            self.clock, self._num_to_watch = self._now_ns, _NUM_WATCHED
        if was_measured and is_slow:  # a short stretch says nothing of the long one
            self._was_slow = True
            self._sample(elapsed_ns)
        if self.is_plain:
            self.note_end()

    def note_end(self) -> None:
        """Take note of the end of a step, as long as stretches are measured by the CPU's time.

        A step with no long stretch counts, too: what is long now and then, and mostly is not, holds nobody up.
        """
        if self._was_slow:
            self._was_slow = False
        elif self._cost_ns:
            self._sample(0)

    def _sample(self, elapsed_ns: int) -> None:
        now = self._now_ns()
        since_ns = now - self._sampled_at_ns
        self._cost_ns = self.holds.costs.average(self._cost_ns, elapsed_ns, since_ns, is_certain=True)
        self._sampled_at_ns = now
        if self._cost_ns > self.holds.costs.leave_ns:
            self.is_quick = False

    def error_of(self, raised: BaseException) -> BaseException:
        """What a step fails with in which a kernel has *raised*: it names the node, and the rounds of loops."""
        calls = self._calls(raised.__traceback__)
        cause = raised.__cause__
        if isinstance(raised, RuntimeError) and isinstance(cause, StopIteration) and not _is_in_kernel(calls):
            raised = cause  # which cannot leave a generator
            calls += self._calls(raised.__traceback__)
        line, frame = calls[-1] if calls else (None, None)
        if line is None or line.node is None or frame is None:
            unknown = InternalError("a compiled step was left by an error that none of its kernels raised")
            unknown.__cause__ = raised
            return unknown
        names = frame.f_locals
        inputs = [names.get(name, frame.f_globals.get(name)) for name in line.arguments]
        error = as_op_error(explained_by(raised, line.check, inputs), line.node)
        if isinstance(error, OpError):
            error.locate_iteration(list(_rounds(calls)), has_outer=self._is_region)
        for _, each in calls:
            each.clear()  # the error is not to keep the tensors of the step
            each.f_locals  # noqa: B018 - before Python 3.13, what it gave before is brought up to date by this
        return error

    def fail(self, raised: BaseException) -> NoReturn:
        """Raise ``error_of(raised)``."""
        error = self.error_of(raised)
        try:
            raise error from error.__cause__
        finally:
            del error, raised  # the traceback of either holds this frame: a cycle would keep the tensors of the step

    def rounds_of(self, generator: Generator[Any, Any, Any]) -> Sequence[str]:
        """The loops that *generator*, a step that is suspended, is in, each with the number of its round."""
        frames = ((self._code.lines.get(frame.f_code), frame) for frame in frames_of(generator))
        return list(_rounds((lines.get(frame.f_lineno), frame) for lines, frame in frames if lines is not None))

    def _calls(self, trace: TracebackType | None) -> list[tuple[Line | None, FrameType]]:
        """The lines of ours in *trace*, from the outside in.

        What stands behind the first of them and is not ours belongs to the kernel.  If it has raised an error that was
        raised before, the frames of earlier steps are there.
        """
        calls: list[tuple[Line | None, FrameType]] = []
        while trace is not None:
            lines = self._code.lines.get(trace.tb_frame.f_code)
            if lines is not None:
                calls.append((lines.get(trace.tb_lineno), trace.tb_frame))
            elif calls:
                break
            trace = trace.tb_next
        return calls


def _is_in_kernel(calls: Sequence[tuple[Line | None, FrameType]]) -> bool:
    """Whether the innermost of *calls* is that of a kernel."""
    line = calls[-1][0] if calls else None
    return line is not None and line.node is not None


def _rounds(calls: Iterable[tuple[Line | None, FrameType]]) -> Iterator[str]:
    """The loops around the innermost of *calls*, each with the number of its round."""
    for line, frame in calls:
        if line is not None:
            names = frame.f_locals
            yield from (f"{loop.frame} {names[loop.base] + names[loop.index]}" for loop in line.loops)


def _once(function: Callable[..., list[Any]], *feeds: object) -> Generator[None, None, list[Any]]:
    """What a plain function gives, in the form of one that goes on in slices."""
    yield from ()
    return function(*feeds)


def _quiet_context() -> Context:
    """A context in which numpy says nothing of floating-point errors: to enter one costs a tenth of ``np.errstate``.

    It cannot be entered twice, so it is only for what calls nothing of the user's.
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


def _forget_source(files: Iterable[str]) -> None:
    for file in files:
        linecache.cache.pop(file, None)
