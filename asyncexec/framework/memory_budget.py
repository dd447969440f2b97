"""MemoryBudget: how many bytes the arrays take that the kernels of a step have made, and how many they may take.

It is a hook of the session, so it knows when steps begin and end.  Guarded kernels (``compilation/guarded_kernels.py``)
ask for the memory of their step before they run, and tell of the arrays that they have made; an array is counted until
nobody has it any more.  Meanwhile ``check_running`` holds the kernel to what its step may take.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.errors import ResourceExhaustedError
from asyncexec.framework.spans import Hook, Span, running_span

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array
    from asyncexec.framework.kernel import Kernel

# Arrays of fewer bytes are not counted: to watch them would cost more than to have them.
LEAST_COUNTED: Final = 4096


class _Counted(weakref.ref[Any]):
    """A reference to an array that is counted, of *num_bytes*, with its *key* in the table of the step."""

    __slots__ = ("key", "num_bytes")

    key: int
    num_bytes: int


class _Running(threading.local):
    """The memory of the step that this thread runs a guarded kernel for."""

    memory: StepMemory | None = None


_RUNNING: Final = _Running()


def check_running(num_bytes: int) -> None:
    """ResourceExhaustedError unless the step of the running kernel has room for *num_bytes* more, or no limit."""
    if _RUNNING.memory is not None:
        _RUNNING.memory.check(num_bytes)


class StepMemory:
    """The arrays of one step.  Any thread may call its methods."""

    __slots__ = ("_counted", "_gone", "_lock", "_taken", "limit")

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._lock = threading.Lock()
        self._taken = 0
        self._counted: dict[int, _Counted] = {}
        # Arrays end anywhere, also inside of these methods, so their end takes no lock.
        self._gone: deque[_Counted] = deque()

    @property
    def taken(self) -> int:
        """Bytes of the arrays that there are."""
        with self._lock:
            self._forget_gone()
            return self._taken

    def check(self, num_bytes: int) -> None:
        """ResourceExhaustedError unless there is room for *num_bytes* more."""
        if num_bytes < LEAST_COUNTED:
            return
        taken = self.taken
        if taken + num_bytes > self.limit:
            raise ResourceExhaustedError(
                f"the outputs of this node take up to {num_bytes:,} bytes; of the {self.limit:,} bytes that a step may"
                f" take (memory_limit) {taken:,} are taken"
            )

    def check_made(self, num_bytes: int) -> None:
        """ResourceExhaustedError if the step takes too much now that a node has made *num_bytes*."""
        taken = self.taken
        if taken > self.limit:
            raise ResourceExhaustedError(
                f"the outputs of this node take {num_bytes:,} bytes; of the {self.limit:,} bytes that a step may take"
                f" (memory_limit) {taken:,} are taken now"
            )

    def call(self, kernel: Kernel, inputs: Sequence[object]) -> Any:
        """What *kernel* gives of *inputs*; ``check_running`` asks here meanwhile."""
        outer, _RUNNING.memory = _RUNNING.memory, self
        try:
            return kernel(*inputs)
        finally:
            _RUNNING.memory = outer

    def count(self, array: Array, num_bytes: int) -> None:
        """Count *array*, of *num_bytes*, until it is gone; once, however often this is called."""
        key = id(array)
        with self._lock:
            self._forget_gone()
            if key in self._counted:
                return
            counted = _Counted(array, self._gone.append)
            counted.key, counted.num_bytes = key, num_bytes
            self._counted[key] = counted
            self._taken += num_bytes

    def _forget_gone(self) -> None:
        while self._gone:
            counted = self._gone.popleft()
            del self._counted[counted.key]
            self._taken -= counted.num_bytes


class MemoryBudget(Hook):
    """The memory of all steps of a session, each of which may take *limit* bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._steps: dict[int, StepMemory] = {}

    def begin(self, span: Span) -> None:
        if span.kind in ("step", "item"):
            self._steps[id(span)] = StepMemory(self._limit)

    def end(self, span: Span, error: BaseException | None) -> None:
        self._steps.pop(id(span), None)

    def running_step(self) -> StepMemory | None:
        """The memory of the step that the running kernel is called for; None once that has ended."""
        span = running_span()
        return None if span is None else self._steps.get(id(span.step))
