"""No garbage collection while hundreds of thousands of objects are made that all stay.

Building a graph makes nothing but survivors: each collection meanwhile walks all of them in vain, for hundreds of
milliseconds at a time in a large graph, during which the event loop stands still.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_pauses = 0
_was_enabled = False


@contextmanager
def paused_gc() -> Iterator[None]:
    """Switch the cyclic collector off inside; pauses may overlap, and the last to end switches it on again."""
    global _pauses, _was_enabled
    if not _pauses:
        _was_enabled = gc.isenabled()
        gc.disable()
    _pauses += 1
    try:
        yield
    finally:
        _pauses -= 1
        if not _pauses and _was_enabled:
            gc.enable()
