"""Forked processes that each run some of the tests that this one has collected, and tell how it went.

A child begins with everything imported and collected, so it costs next to nothing to start, and what it changes is gone
with it.  It leads a process group of its own, and is ended with whatever it started.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, TypeVar

T = TypeVar("T")
# A process that gets next to no processor time for so long waits for ever.
_SILENCE_S: Final = 10.0
_NO_TIME_S: Final = 0.1
_LOOK_S: Final = 1.0
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Child:
    """A process under way, its job, and what it has said so far."""

    job: Any
    process: int
    output: BinaryIO
    silent_s: float = 0.0  # since it has said something, or has had some processor time
    time_then_s: float = 0.0  # processor time, when that began
    time_heard_s: float = 0.0  # processor time, when it said something
    messages: list[Any] = field(default_factory=list)

    def hear(self) -> bool:
        """Take the next message; False when there is none any more."""
        size = self.output.read(4)
        if len(size) < 4:
            return False
        self.messages.append(pickle.loads(self.output.read(int.from_bytes(size, "big"))))
        self.silent_s = 0.0
        self.time_heard_s = self.time_then_s = _processor_time_s(self.process)
        return True

    def is_lost(self, elapsed_s: float, busy_s: float) -> bool:
        """Whether it takes more than *busy_s* of processor time for what it does, or waits for ever.

        It has said nothing in the last *elapsed_s*.
        """
        taken_s = _processor_time_s(self.process)
        if taken_s - self.time_then_s < _NO_TIME_S:
            self.silent_s += elapsed_s
        else:
            self.silent_s, self.time_then_s = 0.0, taken_s
        return self.silent_s > _SILENCE_S or taken_s - self.time_heard_s > busy_s


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job.

    Attributes:
        messages: what its process has said.
        is_done: whether it has come to its end; else it waited for ever, took too much time, or crashed.
    """

    messages: list[Any]
    is_done: bool


def run_in_children(
    jobs: Sequence[T], work: Callable[[T, Callable[[Any], None]], None], num_processes: int, busy_s: float
) -> Iterator[tuple[T, Ended]]:
    """Each of *jobs* with what became of it, as they end.

    Args:
        work: called in a process of its own with the job and a function that sends a message to this one.
        busy_s: processor time that a process may take between two messages.
    """
    waiting = list(reversed(jobs))
    children: dict[int, _Child] = {}
    looked_at_s = time.monotonic()
    while waiting or children:
        while waiting and len(children) < num_processes:
            child = _start(waiting.pop(), work)
            children[child.output.fileno()] = child
        ready, _, _ = select.select(list(children), [], [], _LOOK_S)
        now = time.monotonic()
        elapsed_s, looked_at_s = min(now - looked_at_s, 2 * _LOOK_S), now  # all of them may have been stopped
        for number, child in list(children.items()):
            if child.hear() if number in ready else not child.is_lost(elapsed_s, busy_s):
                continue
            del children[number]
            yield child.job, _end(child)


def _start(job: T, work: Callable[[T, Callable[[Any], None]], None]) -> _Child:
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return _Child(job, process, os.fdopen(reading, "rb"))
    status = 1
    try:
        os.setsid()
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        output = os.fdopen(writing, "wb")

        def tell(message: Any) -> None:
            data = pickle.dumps(message)
            output.write(len(data).to_bytes(4, "big") + data)
            output.flush()

        work(job, tell)
        tell(_DONE)
        status = 0
    finally:
        os._exit(status)


_DONE: Final = "done"


def _processor_time_s(process: int) -> float:
    """What a process has had so far."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def _end(child: _Child) -> Ended:
    for target in (-child.process, child.process):
        with suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
    os.waitpid(child.process, 0)
    child.output.close()
    is_done = bool(child.messages) and child.messages[-1] == _DONE
    return Ended(child.messages[:-1] if is_done else child.messages, is_done)
