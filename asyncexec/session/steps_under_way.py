"""StepsUnderWay: the steps and streams of a session that have begun and wait for something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.framework.under_way import NodeUnderWay

if TYPE_CHECKING:
    from asyncexec.executor.streams.stream_scope import StreamScope


class StepsUnderWay:
    """Knows them all, to end them when the session is closed; its length is how many there are."""

    def __init__(self) -> None:
        self._steps: set[StepScope | StreamScope] = set()
        self.add: Callable[[StepScope], None] = self._steps.add  # the set's own: a call less for each step
        self._streams: set[StreamScope] = set()  # those of them that are streams
        self._idle: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def is_in_use(self) -> bool:
        """Whether there are any."""
        return bool(self._steps)

    def drop_loop(self) -> None:
        """Let go of all of them: their loop is closed."""
        steps, self._idle = list(self._steps), None
        self._steps.clear()
        self._streams.clear()
        for step in steps:
            step.release()

    def discard(self, step: StepScope | StreamScope) -> None:
        """*step*, which may be gone already, has ended."""
        self._steps.discard(step)
        if not self._steps and self._idle is not None:
            self._idle.set()

    def begin_stream(self, stream: StreamScope) -> None:
        self._streams.add(stream)
        self._steps.add(stream)

    def end_stream(self, stream: StreamScope) -> None:
        self._streams.discard(stream)
        self.discard(stream)

    def close_streams(self, error: BaseException) -> None:
        """Let streams take no more items; *error* is raised behind their results."""
        for stream in list(self._streams):
            stream.close(error)

    def abort(self, error: BaseException) -> None:
        """End all of them with *error*."""
        for step in list(self._steps):
            step.abort(error)

    @property
    def streams(self) -> Sequence[StreamScope]:
        """Those of them that are streams."""
        return list(self._streams)

    def under_way(self) -> Iterator[NodeUnderWay]:
        """The nodes that have begun and not ended, in all of them."""
        for step in list(self._steps):
            yield from step.under_way()

    def has_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether *task* is an async kernel of one of the steps, or draws from the sources of a stream."""
        if any(stream.has_task(task) for stream in self._streams):
            return True
        scopes = [step for step in self._steps if isinstance(step, StepScope)]
        return any(task in group.values() for step in scopes for group in step.task_groups())

    async def wait_until_none(self) -> None:
        """Returns when all have ended that there are now, and any that came meanwhile."""
        if self._idle is None or self._idle.is_set():
            self._idle = asyncio.Event()
        if self._steps:
            await self._idle.wait()
