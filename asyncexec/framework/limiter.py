"""Named concurrency limits, shared by all nodes, steps and sessions that use them."""

from __future__ import annotations

import asyncio
from typing import ClassVar
from weakref import WeakKeyDictionary

from asyncexec.framework.errors import InvalidArgumentError


class Limiter:
    """At most *total* async kernels under it run at once in one event loop.

    ``Limiter(32, name="api")`` can be named elsewhere by ``limiter="api"``.  An event loop has slots of its own, since
    a waiter can only be woken in the loop it waits in.

    Raises:
        InvalidArgumentError: *total* is below 1, or the name is taken by a limiter of another size.
    """

    total: int
    name: str | None
    _by_name: ClassVar[dict[str, Limiter]] = {}

    def __init__(self, total: int, *, name: str | None = None) -> None:
        if total < 1:
            raise InvalidArgumentError(f"a limiter lets at least 1 through, not {total}")
        known = self._by_name.get(name) if name is not None else None
        if known is not None and known.total != total:
            raise InvalidArgumentError(f"there is already a limiter {name!r}, of {known.total}")
        self.total = total
        self.name = name
        if name is not None:
            self._by_name.setdefault(name, self)
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @classmethod
    def get(cls, limiter: Limiter | int | str) -> Limiter:
        """The limiter meant: itself, the one of that name, or a new one of that size."""
        if isinstance(limiter, Limiter):
            return limiter
        if isinstance(limiter, int):
            return cls(limiter)
        found = cls._by_name.get(limiter)
        if found is None:
            raise InvalidArgumentError(f"there is no limiter {limiter!r}", hint="make one: ax.Limiter(32, name=...)")
        return found

    def slots(self) -> asyncio.Semaphore:
        """The semaphore of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._slots.get(loop)
        if found is None:
            found = self._slots[loop] = asyncio.Semaphore(self.total)
        return found

    def __repr__(self) -> str:
        return f"<ax.Limiter {self.name or ''} of {self.total}>"
