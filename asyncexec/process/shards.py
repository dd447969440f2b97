"""Work in parts that do not depend on one another, on the cores that are idle (TensorFlow's ``work_sharder.cc``).

A kernel that goes over its data piece by piece hands the pieces to ``share``.  The calling thread works through them;
where cores are idle, threads that live as long as the call help.  What is written must be as if it had done so alone:
which thread has which part is left to chance.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from typing import Final, NamedTuple, TypeVar

from asyncexec.process.cores import core_budget

T = TypeVar("T")

LARGE: Final = 2**21  # bytes that are written, from which on it is worth while to start threads and look for cores


class _Grant(NamedTuple):
    """How many cores a call may take, and what it does while it takes them."""

    num_cores: int
    around: Callable[[], AbstractContextManager[object]]


class _Local(threading.local):
    grant: _Grant | None = None  # of the call under way on this thread; nothing is known beforehand


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


def share(work: Callable[[T], object], parts: Sequence[T], num_bytes: int) -> None:
    """Call *work* for each of *parts*, which write *num_bytes* in all; the first error of any is raised.

    On the thread of an event loop, and for little, nobody helps.
    """
    if len(parts) < 2 or num_bytes < LARGE or asyncio._get_running_loop() is not None:
        for part in parts:
            work(part)
    elif _local.grant is not None:
        with _local.grant.around():
            _share(work, parts, min(_local.grant.num_cores, len(parts)))
    else:
        try:
            _share(work, parts, min(core_budget.begin(is_large=True), len(parts)))
        finally:
            core_budget.end()


def _share(work: Callable[[T], object], parts: Sequence[T], count: int) -> None:
    todo, lock = iter(range(len(parts))), threading.Lock()
    failures: list[BaseException] = []

    def go_on() -> None:
        try:
            with cores_granted(1):
                while not failures:
                    with lock:
                        number = next(todo, None)
                    if number is None:
                        return
                    work(parts[number])
        except BaseException as error:  # for the thread that has the call
            failures.append(error)

    helpers: list[threading.Thread] = []
    with suppress(RuntimeError):  # the system has no more threads, or the interpreter ends: fewer help
        for _ in range(count - 1):
            helper = threading.Thread(target=copy_context().run, args=(go_on,))
            helper.start()
            helpers.append(helper)
    go_on()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
