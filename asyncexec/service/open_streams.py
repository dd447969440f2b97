"""OpenStreams: the streams of requests that are open, so that they can end when the service does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHUTTING_DOWN: Final = "the service is shutting down"


class OpenStreams:
    """The streams that clients have open.

    Attributes:
        are_ending: whether the service ends, so that no stream takes another request.
    """

    def __init__(self) -> None:
        self.are_ending: bool = False
        self._ends: set[Callable[[], None]] = set()

    @contextmanager
    def opened(self, end: Callable[[], None]) -> Iterator[None]:
        """While the block runs, a stream is open that *end* lets take no more requests."""
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.remove(end)

    def end(self) -> None:
        """Let no stream take another request; those that have been read are answered."""
        self.are_ending = True
        for end in list(self._ends):
            end()
