"""Which nodes hold the GIL on worker threads, found out by watching a few of their calls.

A call that keeps a core busy for some milliseconds makes its node a suspect.  While a suspect's next calls run, a
thread beside them sleeps for two milliseconds, over and over.  When somebody holds the GIL, it wakes late: by the
interpreter's switch interval, five milliseconds, or by all that a call into C takes.  It is the node's doing if its
call was busy all the while, no other node was at work in the pool, and the process used no more than one core; so
neither a loop that is busy itself, nor a machine that is, nor a kernel that lets go of the GIL is taken for it.

One call at a time is watched, and a node of which nothing is known yet has to wait while nobody is for some time: on
a busy machine, where calls take longer than they should, all nodes may be suspects.

A node is judged once: guilty, or, after enough calls or wake-ups in time, beyond suspicion.  From then on its calls
cost nothing; nor do any where there is no GIL.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, NamedTuple

from asyncexec.framework.clock import CLOCK, NS_PER_MS, NS_PER_S, Clock
from asyncexec.framework.interpreter import gil_is_enabled
from asyncexec.process.gil_switches import usual_switches

_SUSPECT_NS: Final = 10 * NS_PER_MS  # a call that takes so long ...
_SUSPECT_SHARE: Final = 0.2  # ... and keeps a core busy for so much of it: four may share the GIL
_PROBE_NS: Final = 2 * NS_PER_MS
_PROBE_S: Final = _PROBE_NS / NS_PER_S
_LATE_SHARE: Final = 0.7  # of the switch interval
_ONE_CORE: Final = 1.3
_OWN_SHARE: Final = 0.7
_ENOUGH_NS: Final = 50 * NS_PER_MS  # of evidence
_GUILTY_RATIO: Final = 4
_MAX_CALLS: Final = 32
_REST_RATIO: Final = 8  # of the time in which nobody is watched to the time before, in which somebody was


class Finding(NamedTuple):
    """What one call showed; ``held_ns`` and ``free_ns`` are None where nobody watched."""

    name: str
    wall_ns: int
    cpu_ns: int
    held_ns: int | None = None
    free_ns: int | None = None


class _Evidence:
    """What is known of one node."""

    __slots__ = ("calls", "free_ns", "held_ns", "is_judged", "is_suspect")

    def __init__(self) -> None:
        self.calls = self.held_ns = self.free_ns = 0
        self.is_suspect = self.is_judged = False


class GilWatch:
    """The evidence on the nodes of one pool.  Worker threads find, the event loop's thread judges."""

    __slots__ = ("_clock", "_evidence", "_names_at_work", "_rests_until_ns", "_watching")

    def __init__(self, names_at_work: Callable[[], Collection[str]], clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._names_at_work = names_at_work
        self._evidence: dict[str, _Evidence] = {}
        self._watching = threading.Lock()
        self._rests_until_ns = 0

    def is_judged(self, name: str) -> bool:
        """Whether calls of that node are no longer looked at."""
        evidence = self._evidence.get(name)
        return evidence is not None and evidence.is_judged

    def call(self, name: str, function: Callable[[], Any]) -> tuple[Any, Finding | None]:
        """``function()``, and what it showed of the node *name*; None once that node is judged.  On a worker thread."""
        now_ns, cpu_ns = self._clock.now_ns, self._clock.cpu_ns
        if not gil_is_enabled() or self.is_judged(name):
            return function(), None
        evidence = self._evidence.get(name)
        if evidence is not None and self._begins_to_watch(evidence):
            start = now_ns()
            try:
                return self._watched(name, function)
            finally:
                end = now_ns()
                self._rests_until_ns = end + _REST_RATIO * (end - start)
                self._watching.release()
        start, cpu = now_ns(), cpu_ns()
        result = function()
        return result, Finding(name, now_ns() - start, cpu_ns() - cpu)

    def _begins_to_watch(self, evidence: _Evidence) -> bool:
        if not evidence.is_suspect or (not evidence.held_ns and self._clock.now_ns() < self._rests_until_ns):
            return False
        return self._watching.acquire(blocking=False)

    def _watched(self, name: str, function: Callable[[], Any]) -> tuple[object, Finding]:
        probe = _Probe(partial(self._num_at_work, name))
        now_ns, cpu_ns = self._clock.now_ns, self._clock.cpu_ns
        start, cpu = now_ns(), cpu_ns()
        with usual_switches():
            probe.start()
            try:
                result = function()
            finally:
                cpu, wall = cpu_ns() - cpu, now_ns() - start
                probe.stop()
        is_busy = cpu * probe.most_at_work >= _OWN_SHARE * wall
        return result, Finding(name, wall, cpu, probe.held_ns if is_busy else 0, probe.free_ns)

    def _num_at_work(self, name: str) -> int:
        """How many calls of that node are at work; 0 if another node is, too."""
        names = self._names_at_work()
        return len(names) if all(each == name for each in names) else 0

    def judge(self, finding: Finding) -> bool:
        """Take *finding* into account; whether the node is now known to hold the GIL."""
        evidence = self._evidence.setdefault(finding.name, _Evidence())
        if evidence.is_judged:
            return False
        evidence.calls += not evidence.is_suspect or finding.held_ns is not None
        if finding.held_ns is None or finding.free_ns is None:
            if finding.wall_ns >= _SUSPECT_NS and finding.cpu_ns >= _SUSPECT_SHARE * finding.wall_ns:
                evidence.is_suspect = True
        else:
            evidence.held_ns += finding.held_ns
            evidence.free_ns += finding.free_ns
        is_guilty = evidence.held_ns >= max(_ENOUGH_NS, _GUILTY_RATIO * evidence.free_ns)
        evidence.is_judged = is_guilty or evidence.free_ns >= _ENOUGH_NS or evidence.calls >= _MAX_CALLS
        return is_guilty


class _Probe:
    """Wakes every two milliseconds, and adds up how long that could not be, and how long it could."""

    __slots__ = ("_num_at_work", "_over", "_thread", "free_ns", "held_ns", "most_at_work")

    def __init__(self, num_at_work: Callable[[], int]) -> None:
        self._num_at_work = num_at_work
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="asyncexec-gil-probe", daemon=True)
        self.held_ns = self.free_ns = 0
        self.most_at_work = 1

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        late_ns = _LATE_SHARE * sys.getswitchinterval() * NS_PER_S
        is_over = False
        while not is_over and max(self.held_ns, self.free_ns) < 2 * _ENOUGH_NS:
            start, cpu = CLOCK.now_ns(), time.process_time_ns()
            is_over = self._over.wait(_PROBE_S)
            elapsed = CLOCK.now_ns() - start
            at_work = self._num_at_work()
            if elapsed - _PROBE_NS < late_ns:
                self.free_ns += 0 if is_over else elapsed
            elif at_work and time.process_time_ns() - cpu <= _ONE_CORE * elapsed:
                self.held_ns += elapsed
                self.most_at_work = max(self.most_at_work, at_work)
