"""PoolStatistics: how a pool of threads or processes is doing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """How a pool is doing.

    Attributes:
        threads: how many have been started, also for others that share them.
        busy: of them, those that make a call of this pool, abandoned or not.
        abandoned: of those, the ones whose result nobody waits for.
        queued: calls that wait for a thread.
        completed: calls that have ended.
        given_up: calls that have been abandoned so far.
    """

    threads: int
    busy: int
    abandoned: int
    queued: int
    completed: int
    given_up: int = 0
