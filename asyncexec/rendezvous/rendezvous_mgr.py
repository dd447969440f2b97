"""RendezvousMgr: the rendezvous of each step that is running (``tensorflow/core/common_runtime/rendezvous_mgr.h``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from asyncexec.framework.errors import AbortedError
from asyncexec.framework.rendezvous import RendezvousInterface

R = TypeVar("R", bound=RendezvousInterface)


class RendezvousMgr(Generic[R]):
    """Step id -> the rendezvous of that step, made by *create* when first asked for."""

    __slots__ = ("_create", "_table")

    def __init__(self, create: Callable[[], R]) -> None:
        self._create = create
        self._table: dict[int, R] = {}

    def find(self, step_id: int) -> R:
        """The rendezvous of a step, new if nobody has asked for it before."""
        found = self._table.get(step_id)
        if found is None:
            found = self._table[step_id] = self._create()
        return found

    def cleanup(self, step_id: int) -> None:
        """Forget a step's rendezvous; who still waits in it gets an AbortedError."""
        found = self._table.pop(step_id, None)
        if found is not None:
            found.start_abort(AbortedError(f"Cleanup {step_id}"))

    def cleanup_all(self) -> None:
        """Forget the rendezvous of every step."""
        for step_id in list(self._table):
            self.cleanup(step_id)

    def __len__(self) -> int:
        return len(self._table)
