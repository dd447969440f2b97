"""Begun: a coroutine run up to where it first waits."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A *coroutine* that has run, in the task of the caller, up to where it first waits.

    What does not wait needs no timer and nobody who watches over it.  The rest runs when this is awaited, once.

    Raises:
        Exception: what *coroutine* raises before it waits.

    Attributes:
        has_ended: whether it has run to its end.
        value: what it returned; None until it has ended.
    """

    __slots__ = ("_coroutine", "_waits_for", "has_ended", "value")

    has_ended: bool
    value: T | None

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        self.has_ended = False
        self.value = None
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as end:
            self._end(end)

    def _end(self, end: StopIteration) -> T:
        self.has_ended = True
        self.value = end.value
        value: T = end.value
        return value

    def __await__(self) -> Generator[Any, Any, T]:
        # As ``yield from`` does, but for what the coroutine has yielded already.
        coroutine = self._coroutine
        while True:
            try:
                try:
                    sent = yield self._waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    self._waits_for = coroutine.throw(error)
                else:
                    self._waits_for = coroutine.send(sent)
            except StopIteration as end:
                return self._end(end)
