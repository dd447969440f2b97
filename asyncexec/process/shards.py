"""Work in parts that do not depend on one another, on the cores that are idle (TensorFlow's ``work_sharder.cc``).

A kernel that goes over its data piece by piece hands the pieces to ``share``.  The calling thread works through them;
where cores are idle, worker threads that have nothing else to do help.  What is written must be as if it had done so
alone: which thread has which part is left to chance.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from asyncexec.process.cores import core_budget

T = TypeVar("T")

GoOn: TypeAlias = Callable[[], bool]  # does a part; whether there may be more
Help: TypeAlias = Callable[[GoOn, int], Callable[[], object]]

LARGE: Final = 2**19  # bytes that are written, from which on it is worth while to look for idle cores
LITTLE: Final = 2**16  # and to wake a thread, where these are known


class _Grant(NamedTuple):
    """How many cores a call may take, and what it does while it takes them."""

    num_cores: int
    around: Callable[[], AbstractContextManager[object]]


class _Local(threading.local):
    grant: _Grant | None = None  # of the call under way on this thread; nothing is known beforehand
    help: Help | None = None  # has up to so many threads go on with parts, and gives what ends that
    waited_ns: int = 0  # for who helps
    is_shared: bool = False  # whether others may be at other parts of the work under way


_local: Final = _Local()


@contextmanager
def cores_granted(count: int, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> Iterator[None]:
    """Let ``share`` take *count* cores inside, each time within what *around* gives."""
    before, _local.grant = _local.grant, _Grant(count, around)
    try:
        yield
    finally:
        _local.grant = before


def spare(unused: list[T], make: Callable[[], T]) -> T:
    """One of what nobody works with just now, or what *make* gives where there is none."""
    try:
        return unused.pop()
    except IndexError:
        return make()


def waited_ns() -> int:
    """For how long this thread has waited, in all, for others that did parts of its work."""
    return _local.waited_ns


def is_shared() -> bool:
    """Whether other threads may be at work on parts beside that which this thread does."""
    return _local.is_shared


def let_help(help_with: Help | None) -> None:
    """Let *help_with* help with what this thread shares: it has up to so many threads do parts until there are none."""
    _local.help = help_with


def share(work: Callable[[T], object], parts: Sequence[T], num_bytes: int, *, calls_blas: bool = False) -> None:
    """Call *work* for each of *parts*, which write *num_bytes* in all; the first error of any is raised.

    On the thread of an event loop, and for little, nobody helps.  Nor does anybody with what does nothing but call
    BLAS, unless cores are granted: BLAS may take them all for each part, if the host application lets it.
    """
    grant, help_with = _local.grant, _local.help
    least = LARGE if grant is None else LITTLE
    is_refused = calls_blas if grant is None else grant.num_cores < 2
    is_little = len(parts) < 2 or num_bytes < least
    if help_with is None or is_refused or is_little or asyncio._get_running_loop() is not None:
        for part in parts:
            work(part)
    elif grant is not None:
        with grant.around():
            _share(work, parts, grant.num_cores, help_with)
    else:
        try:
            _share(work, parts, core_budget.begin(is_large=True), help_with)
        finally:
            core_budget.end()


def _share(work: Callable[[T], object], parts: Sequence[T], count: int, help_with: Help) -> None:
    shared = _Shared(work, parts, count)
    leave = help_with(shared.go_on, min(count, len(parts)) - 1) if count > 1 else None
    try:
        while shared.go_on():
            pass
        began_ns = time.perf_counter_ns()
        shared.over.wait()  # who helps has begun a part
        _local.waited_ns += time.perf_counter_ns() - began_ns
    finally:
        if leave is not None:
            leave()
    shared.let_go()
    if shared.failures:
        error = shared.failures[0]
        shared.failures.clear()  # its traceback leads to them
        try:
            raise error
        finally:
            del error


class _Shared(Generic[T]):
    """Parts that *count* threads take, one after the other.

    Attributes:
        failures: what parts have raised; no part begins any more then.
        over: set when no part is to begin, and none is under way.
    """

    __slots__ = ("_is_shared", "_lock", "_num_under_way", "_todo", "_work", "failures", "over")

    def __init__(self, work: Callable[[T], object], parts: Sequence[T], count: int) -> None:
        self._work = work
        self._is_shared = count > 1
        self._todo = list(reversed(parts))
        self._lock = threading.Lock()
        self._num_under_way = 0
        self.failures: list[BaseException] = []
        self.over: threading.Event = threading.Event()

    def let_go(self) -> None:
        """Hold nothing of the work, which is over: a thread that was asked to help may come late, and hold this."""
        del self._work

    def go_on(self) -> bool:
        """Do a part; whether there may be more.  It raises nothing: who has the call is told."""
        with self._lock:
            if not self._todo:
                return False
            part = self._todo.pop()
            self._num_under_way += 1
        before, _local.is_shared = _local.is_shared, self._is_shared
        try:
            with cores_granted(1):
                self._work(part)
        except BaseException as error:
            self.failures.append(error)
        finally:
            _local.is_shared = before
            del part
            with self._lock:
                if self.failures:
                    self._todo.clear()
                self._num_under_way -= 1
                if not (self._todo or self._num_under_way):
                    self.over.set()
        return bool(self._todo)
