"""QueuePolicy: how a run waits for its turn, in the wait queue of its session and in those of its batches."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from asyncexec.framework.errors import UnavailableError

T = TypeVar("T")
Level = tuple[bool, int]  # whether it is late, and its priority: the least has its turn first

NORMAL: Final[Level] = (False, 0)


class QueuePolicy(BaseModel):
    """How a run waits for its turn; pydantic.ValidationError, a ValueError, if a field is unknown or wrong.

    It waits where its session has ``max_concurrent_steps``, and for the batches of ``ax.batch``.

    >>> options = ax.RunOptions(queue=ax.QueuePolicy(priority=1, max_queued=100, timeout=0.5))

    Attributes:
        priority: runs with the lowest number have their turn first; those with the same, first come, first served.
        max_queued: the largest number of waiting runs of this priority.  If as many wait, the run raises
            UnavailableError at once.
        timeout: the longest wait in seconds.
        timeout_action: what happens then: "reject", the run raises UnavailableError; "delay", it waits on, and all
            that are in time go before it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    priority: int = 0
    max_queued: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    timeout_action: Literal["reject", "delay"] = "reject"

    def check_room(self, waiting: int) -> None:
        """Raise UnavailableError if *waiting* runs of this priority are as many as may wait."""
        if self.max_queued is not None and waiting >= self.max_queued:
            raise UnavailableError(f"Exceeds maximum queue size: {waiting} of at most {self.max_queued} wait already")

    def expired(self) -> UnavailableError:
        """What a run raises that has waited too long, and is not delayed."""
        return UnavailableError(f"Request timeout expired: it has waited {self.timeout:g} s for its turn")


# Of the run that the running code is a part of.
_policy: Final[ContextVar[QueuePolicy | None]] = ContextVar("asyncexec_queue_policy", default=None)


def current_policy() -> QueuePolicy | None:
    """How the running code waits for batches."""
    return _policy.get()


def forget_policy() -> None:
    """What runs in this context from now on waits by no policy: it is a part of many runs."""
    _policy.set(None)


async def waiting_by(policy: QueuePolicy, run: Awaitable[T]) -> T:
    """What *run* gives, which waits for batches by *policy*."""
    token = _policy.set(policy)
    try:
        return await run
    finally:
        _policy.reset(token)
