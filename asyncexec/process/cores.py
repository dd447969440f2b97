"""The cores that this process may use, how many of them are idle just now, and which calls may take several."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from asyncexec.process.control_groups import ROOT, ControlGroup, control_groups

T = TypeVar("T")

_LOAD: Final = "/proc/loadavg"
_LONGEST_LOAD: Final = 128  # bytes of that file
_LOOKS: Final = 4  # of some 10 microseconds each
_RECENT_NS: Final = 2_000_000  # what was found then, a short call takes for true: it takes no longer than to look
_IDLE_NS: Final = 10_000_000  # all calls take it for true for so long that all cores are idle


def usable_cores() -> int:
    """The cores that this process may run on."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) or 1


def core_limit(root: Path = ROOT) -> float | None:
    """How many cores the control groups of this process let it keep busy at a time; None where they set no limit."""
    limits = map(_limit_of, control_groups("cpu", root))
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_of(group: ControlGroup) -> float | None:
    files = ("cpu.max",) if group.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        time_us, period_us = map(int, " ".join((group.folder / file).read_text("ascii") for file in files).split())
    except (OSError, ValueError):  # no limit is "max"
        return None
    return time_us / period_us if time_us > 0 and period_us > 0 else None


_LIMIT: Final = core_limit()  # read with the module, and not in an event loop


def num_cores() -> int:
    """How many threads are worth their while: one a core, and in a container no more than it lets be busy."""
    return _worth_while(usable_cores())


def _worth_while(count: int) -> int:
    return count if _LIMIT is None else max(1, min(count, round(_LIMIT)))


def other_cores() -> Sequence[int]:
    """The cores for the threads beside a ``call_on_first_core``; none where threads are to find their own.

    They are told their cores where there is one for each core of the system that this process may use: others who share
    these, each with less than all, would choose the same.
    """
    cores = _own_cores()
    return cores[1:] if len(cores) == _worth_while(len(cores)) else ()


class _Staying(threading.local):
    """Of a thread: whether it may stay on the first core behind a call, and the cores that it is to have again."""

    is_allowed = False
    cores: Sequence[int] = ()


_staying: Final = _Staying()


def call_on_first_core(function: Callable[..., T], *arguments: object) -> T:
    """What *function* gives; the calling thread leaves the ``other_cores`` alone meanwhile."""
    cores = () if _staying.cores else _own_cores()
    if not 1 < len(cores) == _worth_while(len(cores)):
        return function(*arguments)
    try:
        be_on(cores[:1])
        return function(*arguments)
    finally:
        if _staying.is_allowed:
            _staying.cores = cores
        else:
            try:
                move(0, cores[:1], cores)
            except BaseException:  # an interrupt of the main thread
                be_on(cores)
                raise


def call_and_stay(function: Callable[..., T], *arguments: object) -> T:
    """What *function* gives; from a ``call_on_first_core`` in it on the thread stays there till ``leave_first_core``.

    So others need not wait until it has its cores again.
    """
    _staying.is_allowed = True
    try:
        return function(*arguments)
    finally:
        _staying.is_allowed = False


def leave_first_core() -> None:
    """Have the calling thread run on all its cores again."""
    cores, _staying.cores = _staying.cores, ()
    if cores:
        move(0, cores[:1], cores)


def be_on(cores: Iterable[int], thread: int = 0) -> None:
    """Have *thread*, or the calling one, run on *cores* alone, if the system lets it."""
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:
        return


def move(thread: int, before: Collection[int], cores: Iterable[int]) -> None:
    """Have *thread*, 0 for the calling one, run on *cores*, unless somebody has moved it from those *before*."""
    try:
        if os.sched_getaffinity(thread) == set(before):
            os.sched_setaffinity(thread, cores)
    except OSError:  # it has ended
        return


def this_core_and_others() -> tuple[int, Sequence[int]] | None:
    """The core that the calling thread is on, and the others that it may run on; None if the system does not tell."""
    if _this_core is None:
        return None
    core = _this_core()
    return core, [other for other in _own_cores() if other != core]


_this_core: Final[Callable[[], int] | None] = (
    getattr(ctypes.PyDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None
)


def _own_cores() -> Sequence[int]:
    """Those that the calling thread may run on, in order; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()


def num_idle_cores() -> int:
    """How many cores nobody needs just now, but for the calling thread; where the system does not tell, all of them.

    It reads a file of the kernel, up to four times, which takes some 10 microseconds each: not for the event loop's
    thread.  The thread that has handed the work over here may be about to sleep, which is why it looks again.
    """
    cores = num_cores()
    found = _num_idle_of(cores)
    for _ in range(_LOOKS - 1):
        if found >= cores:
            break
        os.sched_yield()  # to sleep for no time takes as long as all these looks
        found = max(found, _num_idle_of(cores))
    return found


def _num_idle_of(cores: int) -> int:
    try:
        file = os.open(_LOAD, os.O_RDONLY)  # takes half the time of open()
        try:
            runnable = int(os.read(file, _LONGEST_LOAD).split()[3].partition(b"/")[0])
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return cores
    return max(1, min(cores, (os.cpu_count() or cores) - runnable + 1))


class CoreBudget:
    """Shares the cores among calls of libraries: a large one that runs alone may take those that are idle.

    All sessions of the process share one, whatever library they call.  *num_idle* tells how many cores are idle.
    """

    def __init__(self, num_idle: Callable[[], int] = num_idle_cores) -> None:
        self._num_idle = num_idle
        self._lock = threading.Lock()
        self._num_calls = 0
        self._found, self._found_at_ns = 1, -_RECENT_NS
        self._was_idle = False  # whether all cores were, when they were looked at last

    def begin(self, *, is_large: bool, patience_s: float = 0.0) -> int:
        """How many threads a call may take; end() is to follow it.

        A call that is worth it waits for *patience_s* seconds where cores are taken: threads of other libraries spin
        for a millisecond or so after they have worked.
        """
        with self._lock:
            is_alone = not self._num_calls
            self._num_calls += 1
        if not (is_large and is_alone):
            return 1
        now_ns = time.monotonic_ns()
        if now_ns - self._found_at_ns >= self._holds_ns(is_patient=patience_s > 0):
            idle = self._num_idle()
            if patience_s and idle < num_cores():
                time.sleep(patience_s)
                idle = max(idle, self._num_idle())
            self._found, self._found_at_ns, self._was_idle = idle, now_ns, idle >= num_cores()
        return self._found

    def _holds_ns(self, *, is_patient: bool) -> int:
        """For how long what was found is taken for true."""
        if self._was_idle:
            return _IDLE_NS
        return 0 if is_patient else _RECENT_NS

    def end(self) -> None:
        """A call has ended."""
        with self._lock:
            self._num_calls -= 1


core_budget: Final = CoreBudget()
