"""No garbage collection while hundreds of thousands of objects are made that all stay.

Building a graph makes nothing but survivors: each collection meanwhile walks all of them in vain, for hundreds of
milliseconds at a time in a large graph, during which the event loop stands still.

Afterwards all of them are young, and the next collection, of the young alone, would walk them in one go.  So they are
made old: ``gc.freeze`` puts everything aside, and ``gc.unfreeze`` puts it where the oldest are, neither looking at a
single object.  What garbage there is among it, of anybody, goes with the next full collection.  On free-threaded builds
nothing is young or old, and both would walk all objects.

A process that has frozen objects of its own keeps them so.  There, from then on, only the full collections wait: those
of the young, a few at a time, make them old as well, at some cost.  The middle generation is collected more often than
otherwise, so that it never holds many either.

The collector is paused by a threshold that is never reached, and not by ``gc.disable``: whether it is on is for the
user to say, also while a pause goes on, and so are thresholds that are set meanwhile.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from asyncexec.framework.clock import NS_PER_S, monotonic_ns
from asyncexec.framework.interpreter import IS_FREE_THREADED

# Young objects from which on it is worth it: fewer than Python's own threshold, so that it walks none of a slice's.
_MANY: Final = 500

# Frozen objects from which on somebody has frozen some: Python puts some hundred aside that are immortal.
_FROZEN: Final = 2_000
_SOON: Final = 4  # collections of the young, after which the middle ones are collected, too
# More than there ever are; and nobody else's, so that it shows who has set it.
_NEVER: Final = 2_147_483_629
# Whether there are collections of the young alone, and full ones have a threshold of their own.
_HAS_GENERATIONS: Final = sys.version_info < (3, 14) and not IS_FREE_THREADED

# There may be an event loop in each of several threads; a pause may also end within a collection, anywhere.
_lock: Final = threading.RLock()
_pauses = 0
_looked_at_ns = -2 * NS_PER_S
_saw_frozen = False
_thresholds: Final = list(gc.get_threshold())  # what they are to be after the pause


@contextmanager
def paused_gc() -> Iterator[None]:
    """Let the cyclic collector not begin by itself inside; pauses may overlap, and it may again when the last ends."""
    global _pauses
    with _lock:
        if not _pauses:
            _set_threshold()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses:
                if gc.isenabled() and gc.get_threshold()[0] == _NEVER:
                    _age_many()
                _set_thresholds(_without_ours())


def _set_threshold() -> None:
    """Let all collections wait, or the full ones."""
    paused = _without_ours()
    _thresholds[:] = paused
    if _HAS_GENERATIONS and _had_frozen():
        paused[1:] = _SOON, _NEVER
    else:
        paused[0] = _NEVER
    _set_thresholds(paused)


def _set_thresholds(thresholds: list[int]) -> None:
    first, second, third = thresholds
    gc.set_threshold(first, second, third)


def _without_ours() -> list[int]:
    """The thresholds, those of the user in place of ours, in a pause or where somebody has put back what was in one."""
    now = gc.get_threshold()
    ours = (now[0] == _NEVER, now[1] == _SOON and now[2] == _NEVER, now[2] == _NEVER)
    return [old if is_ours else new for is_ours, old, new in zip(ours, _thresholds, now, strict=True)]


def _had_frozen() -> bool:
    """``_has_frozen``, of a second ago at most."""
    now = monotonic_ns()
    return _saw_frozen if now - _looked_at_ns < NS_PER_S else _has_frozen()


def _has_frozen() -> bool:
    """Whether anybody has frozen objects, now or when it was asked before.

    They are counted one by one, a million in a tenth of a second, so they are counted once; no objects take no time.
    """
    global _looked_at_ns, _saw_frozen
    if not _saw_frozen:
        _looked_at_ns, _saw_frozen = monotonic_ns(), gc.get_freeze_count() >= _FROZEN
    return _saw_frozen


def _age_many() -> None:
    """Let young objects be old, if they are many."""
    if not IS_FREE_THREADED and gc.get_count()[0] > _MANY and not _has_frozen():
        gc.freeze()
        gc.unfreeze()


def freeze_what_is_loaded() -> None:
    """Let the collector never look again at what is there now, for a service that begins: it would hold the loop long.

    They are counted now, and not in the first pause.
    """
    gc.collect()
    gc.freeze()
    _has_frozen()
