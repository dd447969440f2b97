"""OnnxKernel: the kernel of a cluster, by ONNX Runtime or by our own kernels, whichever is quicker.

The model is loaded on a thread of its own after the first call; until then our own kernels run.  Then both ways are
timed on inputs of about that size, until it is clear which is quicker, and that one stays.  Unless it was far quicker,
both are timed anew now and then, on worker threads: the machine may have been busy, and ONNX Runtime had few threads.
Where our own kernels are to have native code that is far quicker, it is made then, and nothing is timed before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf
from typing import Final, Self, TypeAlias

from asyncexec.compilation.onnx_loader import Load, OnnxLoader
from asyncexec.compilation.onnx_memory import BoundCall, ClusterMemory
from asyncexec.framework.cancellation import CancellationManager, call_around
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import FEW, Stage
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.foreign_errors import as_op_error
from asyncexec.framework.kernel import Kernel, as_values
from asyncexec.framework.layer_rule import FindLayers
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.passes.onnx_cluster import MemberCall, OnnxCluster
from asyncexec.process.cores import leave_first_core
from asyncexec.process.load_threads import LoadThreads
from asyncexec.process.onnx_session import OnnxSession
from asyncexec.process.onnx_session import load as load_model
from asyncexec.process.shards import waited_ns

# Calls that are timed of each way, of which the quickest counts, where the two are close: more, if they are quick.
SAMPLES: Final = 4
MANY_SAMPLES: Final = 16
_QUICK_NS: Final = 400_000  # both may be called in the event loop, where no thread is in the way
# Times as long that are not close, by the calls of a way that has had fewer of them.
_FAR: Final = {1: 4}
_RATHER_FAR: Final = 2
# The calls of a way, behind the first ones, from which on it may be known to be slow: those that begin before one has
# ended start threads, find memory, lay out constants.
_WARM: Final = (1, 2)  # of our own kernels, of ONNX Runtime
# The calls that are not timed take so many times as long as those of the slower way that were timed: longer each time
# that the same way is quicker.
_REST: Final = 20
_LONGEST_REST: Final = 5120
_TOO_SLOW: Final = 4  # times as long: such a call is a surprise, however rare
_MOST_LOST: Final = 3  # calls of a way that did not come to an end, while the other's did
_MOST_FAILED: Final = 3  # calls in a row: one alone may have had an image that is smaller than a filter
_Case: TypeAlias = tuple[int, bool]  # about how large inputs are; whether our own kernels may have native code
_OWN: Final = 0
_ONNX: Final = 1


class Trial:
    """Which of two ways is quicker, on inputs of one size.  Threads that both take a sample do no harm.

    Attributes:
        choice: the one that was quicker when both were timed; None until that is known.
    """

    __slots__ = (
        *("_best_ns", "_num_begun", "_num_first", "_num_left", "_num_lost", "_num_samples", "_rest"),
        "choice",
    )

    def __init__(self) -> None:
        self._begin()
        self._rest = _REST
        self.choice: int | None = None

    def _begin(self) -> None:
        self._num_begun = [0, 0]
        self._num_lost = [0, 0]
        self._num_samples = [0, 0]
        self._num_first = [0, 0]
        self._best_ns: list[int | None] = [None, None]
        self._num_left: float = 0  # calls that are not timed before the next one that is

    def rest(self, *, is_in_loop: bool = False) -> int | None:
        """The way of the next call, if it is not to be timed; none in the event loop is, once there is a choice."""
        if not self._num_left:
            return self.choice if is_in_loop else None
        self._num_left -= 1
        if self._num_left <= 0:
            self._begin()
        return self.choice

    def next(self, *, is_loading: bool = False) -> int:
        """The way of the next call that is timed: two of ONNX Runtime, two of our own; our own while it *is_loading*.

        The first call of a way finds caches cold, and threads of the other one in the way, which spin for a while.
        """
        own, onnx = self._num_begun
        way = _OWN if is_loading or (own < onnx and not onnx % 2) else _ONNX
        self._num_begun[way] += 1
        return way

    def take_back(self, way: int) -> None:
        """A call that was to go this *way* has failed, and tells nothing of it."""
        self._num_begun[way] -= 1

    def lose(self, way: int) -> None:
        """A call has not come to its end on this *way*: that may be too slow for who waits, or not do what is asked."""
        if self._num_left:
            return
        self._num_lost[way] += 1
        other = _ONNX if way == _OWN else _OWN
        if self.choice == way:
            self._settle(way, SAMPLES, 1.0)
        elif self.choice == other:  # which is not to happen again
            self._num_left = inf
        elif self._num_lost[way] >= _MOST_LOST and not self._num_samples[way] and self._num_samples[other]:
            self.choice, self._num_left = other, inf

    @property
    def has_begun(self) -> bool:
        """Whether there are calls that tell something."""
        return self.choice is not None or any(self._num_samples)

    @property
    def is_settled(self) -> bool:
        """Whether it is known which way is quicker, or that both are quick."""
        if self.choice is not None:
            return True
        own, onnx = self._best_ns
        is_warm = all(num > first for num, first in zip(self._num_samples, self._num_first, strict=True))
        return is_warm and own is not None and onnx is not None and max(own, onnx) <= _QUICK_NS

    def add(self, way: int, elapsed_ns: int) -> None:
        """Take a call into account, unless it is known by now which way is quicker."""
        if self._num_left:
            return
        best = self._best_ns[way]
        self._best_ns[way] = elapsed_ns if best is None else min(best, elapsed_ns)
        self._num_first[way] = self._num_first[way] or self._num_begun[way]
        self._num_samples[way] += 1
        own, onnx = self._best_ns
        if own is None or onnx is None:
            return
        count = min(self._num_samples)
        needed = MANY_SAMPLES if max(own, onnx) <= _QUICK_NS else SAMPLES
        far = _FAR.get(count, _RATHER_FAR) if count < needed else 1
        slower, quicker = (_OWN, _ONNX) if onnx < own else (_ONNX, _OWN)
        num_warm = self._num_samples[slower] - self._num_first[slower]
        if max(own, onnx) >= far * min(own, onnx) and num_warm >= _WARM[slower]:
            self._settle(quicker, count, max(own, onnx) / max(min(own, onnx), 1))

    def _settle(self, quicker: int, count: int, ratio: float) -> None:
        """*quicker* is so many times as quick as the other one, of which *count* calls were timed."""
        is_final = self.choice is None and ratio > _TOO_SLOW  # later, a busy moment may have told so
        self._rest = min(2 * self._rest, _LONGEST_REST) if quicker == self.choice else _REST
        self.choice = quicker
        self._num_left = inf if is_final else max(1, ceil(self._rest * count * min(ratio, _TOO_SLOW)))


class OwnKernels:
    """The members of *cluster* one after the other; made by ``bound``.

    Attributes:
        calls: each member's, with its kernel.
    """

    __slots__ = ("_outputs", "_slots", "calls")

    def __init__(self, cluster: OnnxCluster, calls: Sequence[BoundCall]) -> None:
        self.calls: Sequence[BoundCall] = calls
        self._slots = cluster.slots
        self._outputs = cluster.outputs

    @classmethod
    def bound(cls, cluster: OnnxCluster, bind: Callable[[MemberCall], Kernel]) -> Stage[Self]:
        """Those of *cluster*, by the kernels that *bind* gives, as a stage."""
        calls: list[BoundCall] = []
        for count, call in enumerate(cluster.calls):
            if not count % FEW:
                yield
            calls.append((call, bind(call), call.node.op_def.returns_tuple))
        return cls(cluster, calls)

    def __call__(self, inputs: Sequence[object], manager: CancellationManager | None) -> tuple[object, ...]:
        """The outputs; what a member raises names that member."""
        slots = [*inputs, *self._slots[len(inputs) :]]
        for call, kernel, returns_tuple in self.calls:
            if manager is not None and manager.is_cancelled:
                raise CancelledError("nobody waits for the call any more")
            try:
                result = kernel(*[slots[slot] for slot in call.takes])
            except Exception as raised:
                error = as_op_error(raised, call.node)
                raise error from error.__cause__
            if returns_tuple:
                slots[call.gives : call.gives + len(result)] = result
            else:
                slots[call.gives] = result
            for slot in call.releases:
                slots[slot] = None
        return tuple(slots[slot] for slot in self._outputs)


class OnnxKernel:
    """The kernel of *cluster*.

    Args:
        own: the same by our own kernels.
        is_forced: whether ONNX Runtime runs it from the first call on, however quick it is.
        budget: the memory that a call is to stay within; our own kernels run where it may not.
        clock: tells how long calls take.
        load: loads a model; threads: on which it is loaded, and which tell how long it is wanted.
    """

    __slots__ = (
        *("_clock", "_find_native", "_has_native", "_is_forced", "_loader", "_memory", "_num_failed", "_num_given"),
        *("_own", "_trials"),
    )

    def __init__(
        self,
        cluster: OnnxCluster,
        own: OwnKernels,
        *,
        is_forced: bool,
        budget: MemoryBudget | None = None,
        clock: Clock = CLOCK,
        load: Load | None = None,
        threads: LoadThreads | None = None,
    ) -> None:
        threads = threads or LoadThreads()
        if load is None:
            load = partial(load_model, stop=threads.stop)
        self._own = own
        self._is_forced = is_forced
        self._memory = None if budget is None else ClusterMemory(cluster, own.calls, budget)
        self._clock = clock
        self._loader = OnnxLoader(cluster, load, waits=is_forced, threads=threads)
        self._num_failed = 0
        self._num_given = len(cluster.translation.inputs)  # the others are values of variables
        self._trials: dict[_Case, Trial] = {}
        rules = (getattr(kernel, "layer_rule", None) for _, kernel, _ in own.calls)
        finds = [rule.find_native for rule in rules if rule is not None and rule.is_far_quicker]
        self._find_native: FindLayers | None = next(iter(finds), None)  # until our own kernels have what they will have
        self._has_native: bool = self._find_native is not None

    def __call__(self, *inputs: object) -> tuple[object, ...]:
        call = call_around.get()
        manager = None if call is None else call.manager()
        session = self._loader.session(inputs[self._num_given :])
        size, is_empty = 0, False
        for value in inputs[: self._num_given]:
            its_size: int = getattr(value, "size", 1)
            size += its_size
            is_empty = is_empty or not its_size
        if (
            self._loader.has_failed
            or is_empty  # ONNX Runtime takes 0 for the mean of nothing, and lets shapes pass that do not fit
            or not (self._memory is None or self._memory.has_room(inputs))
        ):
            return self._own(inputs, manager)
        if self._is_forced:
            return self._by(_ONNX, session, inputs, manager)
        trial = self._trial(session, size)
        way = trial.rest(is_in_loop=asyncio._get_running_loop() is not None)
        if way is not None:
            return self._by(way, session, inputs, manager)
        if self._awaits_native(session):
            return self._by(_ONNX, session, inputs, manager)
        way = trial.next(is_loading=session is None)
        # To wait for the GIL, or for a core, says nothing of a way; to wait for threads that help does.
        start_ns, num_failed = self._clock.cpu_ns() + waited_ns(), self._num_failed
        try:
            outputs = self._by(way, session, inputs, manager)
        except CancelledError:
            trial.lose(way)
            raise
        except BaseException:
            trial.take_back(way)
            raise
        elapsed_ns = self._clock.cpu_ns() + waited_ns() - start_ns
        if self._num_failed > num_failed:
            trial.lose(way)
        else:
            trial.add(way, elapsed_ns)
        return outputs

    def _awaits_native(self, session: OnnxSession | None) -> bool:
        """Whether our own kernels are about to have native code; it is made once the model is loaded."""
        find = self._find_native
        if find is None:
            return False
        if session is not None and not find.is_coming():
            self._find_native = None
            return False
        return True

    @property
    def is_settled(self) -> bool:
        """Whether it is known how it runs, for all sizes that have come here or to others like it."""
        if self._is_forced or self._loader.has_failed:
            return True
        trials = list((self._trials or self._loader.lasting).items())  # others may add some
        own = [trial for (_, has_native), trial in trials if has_native == self._has_native and trial.has_begun]
        return bool(own) and all(trial.is_settled for trial in own)

    def prepare(self, before: OnnxKernel | None = None) -> None:
        """Load the model, so that the first call need not do without: it blocks, and raises nothing.

        It is loaded for the values of variables that *before* has, which did the same until now.
        """
        self._loader.load_ahead(() if before is None else before._loader.values)

    def _trial(self, session: OnnxSession | None, size: int) -> Trial:
        """That of inputs of about this *size*, which all that have the model share once it is loaded."""
        case = size.bit_length(), self._has_native
        trial = self._trials.get(case)
        if trial is None:
            trial = self._trials.setdefault(case, Trial())
        if session is not None and session.lasting.get(case) is not trial:
            trial = self._trials[case] = session.lasting.setdefault(case, trial)
        return trial

    def _by(
        self, way: int, session: OnnxSession | None, inputs: Sequence[object], manager: CancellationManager | None
    ) -> tuple[object, ...]:
        """The outputs by ONNX Runtime; by our own kernels where it fails, which tell what is wrong if they do, too."""
        if way == _OWN or session is None:
            return self._own(inputs, manager)
        try:
            outputs = session.run(inputs[: self._num_given], manager)
        except CancelledError:
            raise
        except Exception as error:
            leave_first_core()
            given = self._own(inputs, manager)
            self._num_failed += 1
            if self._num_failed >= _MOST_FAILED:
                self._loader.give_up(error)
            return given
        self._num_failed = 0
        if outputs is None:
            leave_first_core()
            return self._own(inputs, manager)
        return as_values(outputs)
