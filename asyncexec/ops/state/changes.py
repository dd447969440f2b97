"""Waiting for a resource to change: tries of the running loop, again after each change.

Nothing is handed to whoever waits.  It looks for itself when it goes on, so one that is cancelled has taken nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from asyncexec.framework.parking_lot import ParkingLot

T = TypeVar("T")


class Changes:
    """Who waits for a change of a resource; all of it happens in one event loop."""

    __slots__ = ("_lot",)

    def __init__(self) -> None:
        self._lot = ParkingLot()

    async def until(self, attempt: Callable[[], T | None]) -> T:
        """What *attempt* gives, called now and after each change until it gives something."""
        while (found := attempt()) is None:
            await self._lot.wait()
        return found

    def tell(self) -> None:
        """Let all that wait try again, in the order in which they came."""
        self._lot.wake_all()
