"""Ending: how long a step that has ended waits for what it has launched.

Calls on worker threads are waited for as long as the step's GracePeriod says, and are then abandoned.  Async kernels
have been cancelled, and get ``Grace.async_s`` to clean up; one that is still there has swallowed its cancellation, is
cancelled a few times more, and then abandoned.  Either is named in a warning.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection, Iterable
from typing import Final

from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.grace_period import Grace, GracePeriod
from asyncexec.executor.workers.job import Job
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.kernel_warning import warn_of_kernel

REPEATS: Final = 3  # how often a task is cancelled again
REPEAT_S: Final = 0.01  # between two of these

_abandoned: set[asyncio.Task[None]] = set()  # a loop does not hold on to its tasks


class Ending:
    """How long a step, or one partition's part of it, still waits; *grace_period* is that of the whole step."""

    __slots__ = ("_grace", "_grace_period", "_loop", "_pool", "_repeats", "_tasks_until_s")

    def __init__(self, pool: WorkerPool, loop: asyncio.AbstractEventLoop, grace_period: GracePeriod) -> None:
        self._pool = pool
        self._loop = loop
        self._grace: Grace = pool.grace
        self._grace_period = grace_period
        self._tasks_until_s = None if self._grace.async_s is None else loop.time() + self._grace.async_s
        self._repeats = 0

    @property
    def workers_left_s(self) -> float | None:
        """Seconds until calls on worker threads are abandoned."""
        return self._grace_period.left_s(self._grace)

    @property
    def tasks_left_s(self) -> float | None:
        """Seconds until something is done about tasks."""
        return None if self._tasks_until_s is None else max(0.0, self._tasks_until_s - self._loop.time())

    def cancel(self, groups: Iterable[TaskGroup]) -> None:
        """Cancel the tasks in *groups*; what they await has the step's grace period, too."""
        for task in [task for group in groups for task in group.values()]:
            self._grace_period.cover(task)
            # A task that has not begun sees the failure when it does; cancelled now, it would never run at all.
            if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:  # type: ignore[arg-type]
                task.cancel()

    async def wait_for_tasks(self, groups: Iterable[TaskGroup]) -> bool | None:
        """Wait for the tasks in *groups*: whether all have ended, or the rest is left behind; None to wait on."""
        groups = list(groups)
        _, late = await asyncio.wait([task for group in groups for task in group.values()], timeout=self.tasks_left_s)
        if late and self.cancel_again(late):
            return None
        if late:
            self.abandon_tasks(groups)
        return not late

    def cancel_again(self, tasks: Collection[asyncio.Task[None]]) -> bool:
        """Cancel *tasks* once more; False when that has been done often enough."""
        if self._repeats == REPEATS:
            return False
        self._repeats += 1
        self._tasks_until_s = self._loop.time() + REPEAT_S
        for task in tasks:
            task.cancel()
        return True

    def abandon_tasks(self, groups: Iterable[TaskGroup]) -> None:
        """Leave the tasks in *groups* to themselves."""
        tasks = {task: _name_of(entry) for group in groups for entry, task in group.items() if not task.done()}
        for task in tasks:
            abandon_task(task)
        names = ", ".join(sorted(map(repr, tasks.values())))
        warn_of_kernel(
            f"the kernel of node {names} swallows its cancellation: it was cancelled {REPEATS + 1} times and has not"
            f" ended within {self._grace.async_s:g} s; the step has ended without it"
        )

    def abandon(self, jobs: Collection[Job]) -> None:
        """Leave calls that are under way to their threads."""
        for job in jobs:
            self._pool.abandon(job)
        self._pool.warn_of_late(jobs, self._grace_period.limit_s(self._grace))


def abandon_task(task: asyncio.Task[None]) -> None:
    """Leave *task*, which swallows its cancellation, to itself."""
    _abandoned.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[None]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # nobody else asks


def _name_of(entry: object) -> str:
    item = entry[0] if isinstance(entry, tuple) else entry
    assert isinstance(item, NodeItem)  # what stands in a ready queue has one
    return item.node.name
