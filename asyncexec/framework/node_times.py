"""NodeTimes: how often each node was called, how it went, and how long it took, for ``session.statistics()``."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asyncexec.framework.spans import Hook, Span

_MAX_SAMPLES: Final = 1024


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """The calls of one node, in all steps of a session.

    Attributes:
        op: its op.
        count: calls that have ended.
        errors: those of them that failed, after all attempts, or were cancelled.
        retries: attempts that were made again.
        p50_s, p95_s, p99_s: percentiles of the seconds that a call took, of the last 1,024.
        total_s: seconds that all calls took together.
        waited_s: seconds in which they waited: for a limiter, a worker thread, or their next attempt.
    """

    op: str
    count: int
    errors: int
    retries: int
    p50_s: float
    p95_s: float
    p99_s: float
    total_s: float
    waited_s: float


class _Calls:
    """What is known of the calls of one node."""

    __slots__ = ("count", "errors", "op", "retries", "samples_s", "total_s", "waited_s")

    def __init__(self) -> None:
        self.op = ""
        self.count = self.errors = self.retries = 0
        self.total_s = self.waited_s = 0.0
        self.samples_s: deque[float] = deque(maxlen=_MAX_SAMPLES)

    def statistics(self) -> NodeStatistics:
        samples = sorted(self.samples_s)
        p50_s, p95_s, p99_s = (samples[(len(samples) * percent - 1) // 100] for percent in (50, 95, 99))
        return NodeStatistics(
            self.op, self.count, self.errors, self.retries, p50_s, p95_s, p99_s, self.total_s, self.waited_s
        )


class NodeTimes(Hook):
    """Counts the calls of nodes, by name."""

    def __init__(self) -> None:
        self._calls: dict[str, _Calls] = {}
        self._lock = threading.Lock()  # calls on worker threads end there

    def end(self, span: Span, error: BaseException | None) -> None:
        if span.kind not in ("node", "retry"):
            return
        with self._lock:
            calls = self._calls.get(span.name)
            if calls is None:
                calls = self._calls[span.name] = _Calls()
            if span.kind == "retry":
                calls.retries += 1
                return
            took_s, waited_s = span.duration_s, span.attributes.get("waited_s", 0.0)
            assert isinstance(waited_s, (int, float))
            calls.op = str(span.attributes["op"])
            calls.count += 1
            calls.errors += error is not None
            calls.total_s += took_s
            calls.waited_s += waited_s
            calls.samples_s.append(took_s)

    def statistics(self) -> Mapping[str, NodeStatistics]:
        """What there is to tell of each node whose calls have ended, by name."""
        with self._lock:
            return {name: calls.statistics() for name, calls in self._calls.items() if calls.count}
