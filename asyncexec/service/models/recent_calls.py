"""What the last calls of a model took, and how the last ones failed."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.errors import OpError

_MOST_SAMPLES: Final = 1024
_MOST_FAILURES: Final = 20
_LONGEST_TEXT: Final = 500  # of an error, which may repeat what the client sent


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed.

    Attributes:
        at_ms: when, in milliseconds since 1970.
        kind, text: the class of the error, and what it says.
        node, op, line, iteration: which node failed, where it was made, and in which iteration; "" if unknown.
    """

    at_ms: int
    kind: str
    text: str
    node: str = ""
    op: str = ""
    line: str = ""
    iteration: str = ""


class RecentCalls:
    """Takes note of each call of a model.

    Attributes:
        failures: the last ones.
    """

    def __init__(self) -> None:
        self._durations_ns: deque[int] = deque(maxlen=_MOST_SAMPLES)
        self.failures: deque[Failure] = deque(maxlen=_MOST_FAILURES)

    def note(self, ns: int) -> None:
        """A call took *ns* nanoseconds."""
        self._durations_ns.append(ns)

    def note_failure(self, error: BaseException) -> None:
        """A call failed with *error*."""
        at_ms, kind = time.time_ns() // NS_PER_MS, type(error).__name__
        if not isinstance(error, OpError):
            self.failures.append(Failure(at_ms, kind, _shortened(str(error))))
            return
        text = f"{error.message}; {error.hint}" if error.hint else error.message
        where = (error.node or "", error.op or "", error.user_line or "", error.iteration)
        self.failures.append(Failure(at_ms, kind, _shortened(text), *where))

    def percentiles_ms(self, *percents: int) -> tuple[float, ...]:
        """The percentiles of what the last 1,024 calls took; none if there was no call."""
        durations = sorted(self._durations_ns)
        return tuple(durations[(len(durations) * each - 1) // 100] / NS_PER_MS for each in percents if durations)


def _shortened(text: str) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
