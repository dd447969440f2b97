"""No garbage collection while hundreds of thousands of objects are made that all stay.

Building a graph makes nothing but survivors: each collection meanwhile walks all of them in vain, for hundreds of
milliseconds at a time in a large graph, during which the event loop stands still.

Afterwards all of them are young, and the next collection, of the young alone, would walk them in one go.  So they are
made old: ``gc.freeze`` puts everything aside, and ``gc.unfreeze`` puts it where the oldest are, neither looking at a
single object.  What garbage there is among it, of anybody, goes with the next full collection.  A process that has
frozen objects of its own keeps them so.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Young objects from which on it is worth it: to walk them takes some 5 ms.
_MANY: Final = 50_000

# There may be an event loop in each of several threads; a pause may also end within a collection, anywhere.
_lock: Final = threading.RLock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused_gc() -> Iterator[None]:
    """Switch the cyclic collector off inside; pauses may overlap, and the last to end switches it on again."""
    global _pauses, _was_enabled
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _was_enabled:
                _age_many()
                gc.enable()


def _age_many() -> None:
    """Let young objects be old, if they are many."""
    if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
