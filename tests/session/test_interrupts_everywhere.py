"""An exception that reaches a waiting thread at any of its bytecodes leaves a ``BlockingSession`` usable."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.session import loop_thread, running
from tests.session.test_interrupts import ONE_AT_A_TIME, Waiting, run

FILES = {loop_thread.__file__, running.__file__}
Action = Callable[[Waiting, ax.BlockingSession], Any]


class Interrupts:
    """Raises KeyboardInterrupt before bytecodes of this thread in FILES.

    Python ends the tracing when it does: it goes on with the next callback that is sent to the loop.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._points: list[int] = []  # how many bytecodes after the last
        self._is_time: Callable[[], object] = bool
        self._counts = False
        send = loop_thread.LoopThread._send

        def send_traced(thread: loop_thread.LoopThread, callback: Callable[[], object]) -> None:
            if self._points and sys.gettrace() is None and not thread.is_current:
                self._begin()
            send(thread, callback)

        monkeypatch.setattr(loop_thread.LoopThread, "_send", send_traced)
        monkeypatch.setattr(loop_thread, "_WAKE_S", 0.001)

    def _begin(self) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            self._trace(frame, "call", None)
            frame = frame.f_back
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self._trace, True, False
        if event == "opcode" and self._points and (self._counts or self._is_time()):
            self._counts = True
            self._points[0] -= 1
            if not self._points[0]:
                del self._points[0]
                raise KeyboardInterrupt
        return self._trace

    def during(self, action: Callable[[], object], *points: int, once: Callable[[], object] = lambda: True) -> int:
        """Call *action*, and interrupt it at *points*, counted from when *once* is true; how many it came to."""
        self._points, self._is_time, self._counts = list(points), once, False
        sys.settrace(self._trace)
        try:
            with suppress(KeyboardInterrupt):
                action()
        finally:
            sys.settrace(None)
            num_left, self._points = len(self._points), []
        return len(points) - num_left


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    return Interrupts(monkeypatch)


def run_that_ends(waiting: Waiting, session: ax.BlockingSession) -> None:
    session.run(waiting.z, {waiting.x: 1.0})


def map_that_ends(waiting: Waiting, session: ax.BlockingSession) -> None:
    list(session.map(waiting.z, [{waiting.x: 1.0}, {waiting.x: 2.0}]))


def left_map(waiting: Waiting, session: ax.BlockingSession) -> None:
    mapped = session.map(waiting.y, [{waiting.x: 0.0}, {waiting.x: 2.0}])
    next(mapped)
    mapped.close()  # type: ignore[attr-defined]


def waiting_map(waiting: Waiting, session: ax.BlockingSession) -> None:
    list(session.map(waiting.y, [{waiting.x: 1.0}, {waiting.x: 2.0}]))


ENDING: list[Action] = [run_that_ends, map_that_ends, left_map]
WAITING: list[Action] = [run, waiting_map]
# Bytecodes: until a thread waits, in two rounds of its loop, and from an interrupt until it waits again.
NUM_BEFORE, NUM_WAITING, NUM_IN_HANDLER = 220, 50, 80


def check(waiting: Waiting, session: ax.BlockingSession, where: object) -> None:
    try:
        waiting.check_usable(session)
    except BaseException as error:
        error.add_note(f"after interrupts at {where}")
        raise
    assert waiting.log.count("began") == waiting.log.count("cleaned up"), where


@pytest.mark.parametrize("action", ENDING, ids=lambda action: action.__name__)
def test_an_interrupt_anywhere_in_what_ends_by_itself(interrupts: Interrupts, action: Action) -> None:
    waiting = Waiting(lambda: None)
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        for point in count(1):
            if not interrupts.during(lambda: action(waiting, session), point):
                break
            check(waiting, session, point)
    assert point > 50


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("action", WAITING, ids=lambda action: action.__name__)
def test_an_interrupt_anywhere_in_what_waits(interrupts: Interrupts, action: Action, has_begun: bool) -> None:
    waiting = Waiting(lambda: None)
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        for point in range(1, NUM_WAITING if has_begun else NUM_BEFORE):
            waiting.log.clear()
            once = (lambda: waiting.log) if has_begun else lambda: True
            assert interrupts.during(lambda: action(waiting, session), point, once=once) == 1
            check(waiting, session, point)


@pytest.mark.parametrize("stride", [7, pytest.param(3, marks=pytest.mark.deep)])
@pytest.mark.parametrize("action", [*ENDING, *WAITING], ids=lambda action: action.__name__)
def test_two_interrupts_anywhere(interrupts: Interrupts, action: Action, stride: int) -> None:
    waiting = Waiting(lambda: None)
    num_both = 0
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        for first in range(1, NUM_BEFORE, stride):
            for second in range(1, NUM_IN_HANDLER, stride):
                if interrupts.during(lambda: action(waiting, session), first, second) < 2:
                    break
                num_both += 1
                check(waiting, session, (first, second))
    print(f"{num_both} pairs")
    assert num_both > 20


@pytest.mark.parametrize("stride", [7, pytest.param(3, marks=pytest.mark.deep)])
def test_two_interrupts_anywhere_once_the_step_has_begun(interrupts: Interrupts, stride: int) -> None:
    waiting = Waiting(lambda: None)
    num_both = 0
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        for first in range(1, NUM_WAITING, stride):
            for second in range(1, NUM_IN_HANDLER, stride):
                waiting.log.clear()
                num = interrupts.during(lambda: run(waiting, session), first, second, once=lambda: waiting.log)
                num_both += num == 2
                check(waiting, session, (first, second))
    print(f"{num_both} pairs")
    assert num_both > 5


@pytest.mark.parametrize("points", [1, 2])
def test_interrupts_anywhere_in_close(interrupts: Interrupts, points: int) -> None:
    waiting = Waiting(lambda: None)
    for first in range(1, NUM_BEFORE, 1 if points == 1 else 10):
        for second in range(1, 2 if points == 1 else NUM_IN_HANDLER, 10):
            session = ax.BlockingSession(waiting.graph).__enter__()
            run_that_ends(waiting, session)
            interrupts.during(session.close, *(first, second)[:points])
            session.close()
            assert session._thread is None


def test_an_interrupt_anywhere_on_entering_leaves_no_thread(interrupts: Interrupts) -> None:
    """What was entered all the same, without a ``with`` that knows of it, is closed when it is collected."""
    waiting = Waiting(lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for point in count(1):
            session = ax.BlockingSession(waiting.graph)
            num_interrupts = interrupts.during(session.__enter__, point)
            del session
            for thread in threading.enumerate():
                if thread.name == "asyncexec-loop":
                    thread.join()
            if not num_interrupts:
                break
    assert point > 50
