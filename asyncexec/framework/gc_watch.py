"""How long full garbage collections have taken: whoever times something else takes them off.

A full collection walks all objects of the process: hundreds of milliseconds, with a million of them.  It begins
wherever an object happens to be made, and would be taken for the fault of the code that made it.
"""

from __future__ import annotations

import gc
from collections import deque
from typing import Any, Final

from asyncexec.framework.clock import monotonic_ns

_FULL: Final = 2  # the oldest generation

_last: Final[deque[tuple[int, int]]] = deque(maxlen=8)  # full collections: when each has ended, and how long it took
_start_ns = 0


def watch_collections() -> None:
    """From now on take note of full collections."""
    if _note not in gc.callbacks:
        gc.callbacks.append(_note)


def collected_ns(since_ns: int) -> int:
    """How much of the time since then (by ``monotonic_ns``) went to full collections."""
    return sum(min(elapsed, end - since_ns) for end, elapsed in _last if end > since_ns)


def _note(phase: str, info: dict[str, Any]) -> None:
    global _start_ns
    if info["generation"] != _FULL:
        return
    if phase == "start":
        _start_ns = monotonic_ns()
    else:
        end = monotonic_ns()
        _last.append((end, end - _start_ns))
