"""Retry: which failures are worth another attempt, and how long to wait before it.

What is retried by default goes by the status code.  TensorFlow tries its file systems again after UNAVAILABLE,
DEADLINE_EXCEEDED and UNKNOWN (``tensorflow/tsl/platform/retrying_utils.cc``), and not after ABORTED, which is what
a call gets there whose retries are over.  RESOURCE_EXHAUSTED is added: it is the answer of a service that limits calls.

The loop is our own: it holds no error while the next attempt runs (an error's traceback holds the inputs of the
kernel), sleeps by the clock of the event loop, and costs a call that does not fail some 5 us, where tenacity took 60.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import CancelledError, Code, InvalidArgumentError, OpError
from asyncexec.framework.spans import Span, observed_span
from asyncexec.framework.under_way import tells

TRANSIENT_CODES: Final = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNKNOWN, Code.RESOURCE_EXHAUSTED})
# Exceptions that come again however often the call is made: mistakes in the code or in what it was given.
LASTING: Final = (
    ArithmeticError, AssertionError, AttributeError, FileExistsError, FileNotFoundError, ImportError, IsADirectoryError,
    LookupError, NameError, NotADirectoryError, NotImplementedError, PermissionError, RecursionError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Retry:
    """How a failed call is repeated.

    The wait before attempt n+1 is ``min(wait_max_s, wait_initial_s * 2**(n-1))`` seconds, less a random part of it.
    *jitter* is the largest such part: with 0 the wait is exact, with 1 it may be nothing.

    >>> @ax.op(retries=ax.Retry(attempts=5, wait_initial_s=0.1, on=ConnectionError))
    ... async def fetch(url: str) -> str: ...

    Args:
        attempts: the number of calls at most, the first one included.
        wait_initial_s: seconds before the second attempt, without jitter.
        wait_max_s: the longest wait.
        jitter: from 0 to 1.
        on: classes of exceptions to retry.  None: OSError (ConnectionError, TimeoutError, ...), the errors of libraries
            that derive from Exception alone, and ``ax.errors`` of the codes UNAVAILABLE, DEADLINE_EXCEEDED, UNKNOWN and
            RESOURCE_EXHAUSTED.  Errors that tell of a mistake are not retried: ValueError, TypeError, LookupError,
            FileNotFoundError, PermissionError, ... (``asyncexec.framework.retry.LASTING``).  A cancellation is never
            retried.
        seed: makes the jitter of each node repeatable.

    Raises:
        InvalidArgumentError: a value is out of range, or *on* is not exception classes.
    """

    attempts: int = 3
    wait_initial_s: float = 0.05
    wait_max_s: float = 5.0
    jitter: float = 0.5
    on: type[Exception] | tuple[type[Exception], ...] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not _is_int(self.attempts) or self.attempts < 1:
            raise InvalidArgumentError(f"Retry: attempts is a number of 1 or more, not {self.attempts!r}")
        for name in ("wait_initial_s", "wait_max_s"):
            _check_between(name, getattr(self, name), math.inf)
        _check_between("jitter", self.jitter, 1)
        if self.wait_max_s < self.wait_initial_s:
            raise InvalidArgumentError(
                f"Retry: wait_max_s={self.wait_max_s!r} is less than wait_initial_s={self.wait_initial_s!r}"
            )
        if self.on is not None:
            classes = self.on if isinstance(self.on, (tuple, list)) else (self.on,)
            for one in classes:
                _check_class(one)
            object.__setattr__(self, "on", tuple(classes))

    @classmethod
    def of(cls, retries: Retry | int | None) -> Retry | None:
        """The Retry of *retries*; a number counts the attempts after the first.  None for no further attempt."""
        if retries is None:
            return None
        if isinstance(retries, Retry):
            return retries if retries.attempts > 1 else None
        if not _is_int(retries) or retries < 0:
            raise InvalidArgumentError(f"retries is a number of 0 or more, or an ax.Retry, not {retries!r}")
        return cls(attempts=retries + 1) if retries else None

    def is_worth_another(self, error: BaseException) -> bool:
        """Whether to try again after *error*."""
        if isinstance(error, CancelledError) or not isinstance(error, Exception):
            return False
        if self.on is not None:
            return isinstance(error, self.on)
        if isinstance(error, OpError):
            return error.code in TRANSIENT_CODES
        return not isinstance(error, LASTING)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_between(name: str, value: object, most: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or value == math.inf:  # type: ignore[operator]
        allowed = f"from 0 to {most:g}" if most < math.inf else "of 0 or more"
        raise InvalidArgumentError(f"Retry: {name} is a number {allowed}, not {value!r}")


def _check_class(one: object) -> None:
    if not isinstance(one, type) or not issubclass(one, Exception):
        hint = "a cancellation is never tried again" if one is asyncio.CancelledError else None
        raise InvalidArgumentError(f"Retry: on= holds classes of exceptions, not {one!r}", hint=hint)


class AttemptNote(str):
    """A line on one attempt, among the ``__notes__`` of what the last attempt raised."""

    __slots__ = ()


class Retrying:
    """Makes calls as a Retry says; it belongs to one kernel, whose calls draw their jitter from the same series."""

    __slots__ = ("_random", "_retry")

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._random = Random(retry.seed)

    @tells(lambda variables: f"attempt {len(variables['notes']) + 1} of {variables['self']._retry.attempts}")
    async def __call__(self, attempt: Callable[[], Awaitable[object]]) -> Any:
        """The result of *attempt*, called until it succeeds, or fails for good, or for the last time.

        What the last attempt raised is raised, with a note for each attempt when there was more than one.
        """
        notes: list[AttemptNote] = []
        while True:
            try:
                return await attempt()
            except Exception as error:
                number = len(notes) + 1
                text = f"attempt {number} of {self._retry.attempts}: {one_line(error)}"
                if number == self._retry.attempts or not self._retry.is_worth_another(error):
                    if notes:
                        _add_notes(error, [*notes, AttemptNote(text)])
                    raise
                wait_s = self._wait_s(number)
                notes.append(AttemptNote(f"{text}; tried again after {wait_s:.3g} s"))
            # Out here it holds no error, whose traceback would hold this frame.
            span = observed_span()
            if span is None:
                await _sleep(wait_s)
            else:
                await _sleep_in_span(span, number, text, wait_s)

    def _wait_s(self, number: int) -> float:
        """How long to wait after attempt *number*."""
        retry = self._retry
        try:
            longest = min(retry.wait_max_s, math.ldexp(retry.wait_initial_s, number - 1))
        except OverflowError:
            longest = retry.wait_max_s
        return longest * (1 - retry.jitter * self._random.random())


@tells(lambda _: "waited to begin it")
async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _sleep_in_span(node: Span, number: int, text: str, seconds: float) -> None:
    """Wait; the retry after attempt *number* of *node*, which failed as *text* says, is a span."""
    with Span(node.spans, "retry", node.name, number, node, attributes={"error": text, "wait_s": seconds}):
        await _sleep(seconds)
    node.add_wait(seconds)


def _add_notes(error: BaseException, notes: list[AttemptNote]) -> None:
    """Put *notes* in place of those of a former call: a kernel may raise one instance again and again."""
    with contextlib.suppress(Exception):  # of an exception that takes no notes: it is what is to be seen
        others = [note for note in getattr(error, "__notes__", ()) if not isinstance(note, AttemptNote)]
        error.__notes__ = [*others, *notes]
