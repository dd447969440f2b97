"""How soon a thread gets the GIL beside a busy event loop.

A thread asks for the GIL when nobody has let go of it for the switch interval, five milliseconds.  A busy loop lets go
at each turn, for an instant that is too short for a thread that has to wake up first, and with each turn the five
milliseconds begin anew (``take_gil`` in CPython's ceval_gil.c).  So a call on a worker thread that takes two
milliseconds may come back after sixty, and waking its thread in vain costs the loop a tenth of its time.

While the loop waits for a thread, the interval is a tenth of a millisecond here, and then again what it was.  It is
that of the process, so all of its loops share one count of who waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from asyncexec.framework.interpreter import gil_is_enabled
from asyncexec.process.cores import leave_first_core

_QUICK_US: Final = 100  # shorter than the turn of a busy loop; two threads that compute in Python lose a tenth by it
_US_PER_S: Final = 1_000_000

_lock: Final = threading.Lock()
_num_waiting = 0
_num_watching = 0
_usual_us = 0  # what the user has it at, where it is ours


def begin_quick_switches() -> None:
    """Let threads get the GIL soon, until ``end_quick_switches`` has been called as often."""
    _change(waiting=1)


def end_quick_switches() -> None:
    """See ``begin_quick_switches``."""
    _change(waiting=-1)


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads get the GIL soon inside."""
    _change(waiting=1)
    try:
        yield
    finally:
        _change(waiting=-1)


def start_thread(thread: threading.Thread) -> None:
    """Start *thread*, and have the GIL back soon: Python waits until it runs, and it goes on with what it is for.

    It may run on all cores of the calling thread, which stays on none (``cores.py``).
    """
    leave_first_core()
    with quick_switches():
        thread.start()


@contextmanager
def usual_switches() -> Iterator[None]:
    """Let the interval be the user's inside, to see who holds the GIL."""
    _change(watching=1)
    try:
        yield
    finally:
        _change(watching=-1)


def _change(*, waiting: int = 0, watching: int = 0) -> None:
    global _num_waiting, _num_watching, _usual_us
    with _lock:
        _num_waiting += waiting
        _num_watching += watching
        is_quick = _num_waiting > 0 and not _num_watching and gil_is_enabled()
        if is_quick == bool(_usual_us):
            return
        interval_us = round(sys.getswitchinterval() * _US_PER_S)
        if is_quick and interval_us > _QUICK_US:
            _usual_us = interval_us
            _set(_QUICK_US)
        elif not is_quick:
            if interval_us == _QUICK_US:  # else the user has set it meanwhile
                _set(_usual_us)
            _usual_us = 0


def _set(interval_us: int) -> None:
    sys.setswitchinterval((interval_us + 0.5) / _US_PER_S)  # Python cuts off what is less than a microsecond
