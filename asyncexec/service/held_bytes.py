"""How much memory the bodies of requests take that are under way, in the whole process."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Final, Self

from asyncexec.framework.errors import UnavailableError

MOST_HELD_BYTES: Final = 2**30
SMALL_BYTES: Final = 2**16  # fewer are not counted


class HeldBytes:
    """The bytes that one request holds while a ``with`` block runs.

    Attributes:
        total: what all requests hold.
    """

    __slots__ = ("_num_bytes",)

    total: ClassVar[int] = 0

    def __init__(self) -> None:
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Hold nothing."""
        HeldBytes.total -= self._num_bytes
        self._num_bytes = 0

    def grow_to(self, num_bytes: int) -> None:
        """Hold *num_bytes*.

        Raises:
            UnavailableError: the requests under way would hold too many; a request that is alone may hold any number.
        """
        more = num_bytes - self._num_bytes
        if num_bytes <= SMALL_BYTES or more <= 0:
            return
        total = HeldBytes.total
        if total > self._num_bytes and total + more > MOST_HELD_BYTES:
            raise UnavailableError(f"the service holds {total} bytes of requests, and takes {MOST_HELD_BYTES} at most")
        HeldBytes.total = total + more
        self._num_bytes = num_bytes
