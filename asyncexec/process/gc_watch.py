"""How long full garbage collections have taken: whoever times something else takes them off.

A full collection walks all objects of the process: hundreds of milliseconds, with a million of them.  It begins
wherever an object happens to be made, on any thread, and would be taken for the fault of the code that made it.
"""

from __future__ import annotations

import gc
import threading
from typing import Any, Final

from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.interpreter import IS_FREE_THREADED

_FULL: Final = 0 if IS_FREE_THREADED else 2  # the generation from which on a collection walks all objects
_KEPT: Final = 8

_lock: Final = threading.Lock()
_last: tuple[tuple[int, int], ...] = ()  # full collections: when each has ended, and how long it took
_start_ns = 0  # of the one under way: there is one at a time


def watch_collections() -> None:
    """From now on take note of full collections."""
    with _lock:
        if _note not in gc.callbacks:
            gc.callbacks.append(_note)


def collected_ns(since_ns: int) -> int:
    """How much of the time since then (by ``monotonic_ns``) went to full collections."""
    return sum(min(elapsed, end - since_ns) for end, elapsed in _last if end > since_ns)


def _note(phase: str, info: dict[str, Any]) -> None:
    global _last, _start_ns
    if info["generation"] < _FULL:
        return
    if phase == "start":
        _start_ns = monotonic_ns()
    else:
        end = monotonic_ns()
        _last = (*_last[1 - _KEPT :], (end, end - _start_ns))
