"""SessionEvents: runs whose caller gets values before the result; a base of Session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.events import EventChannel, channel_here
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.fetch_types import Feeds, Fetches
from asyncexec.session.session_config import RunOptions


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What ``session.run_events`` gives.

    >>> ax.RunEvent("tea", is_result=False).value
    'tea'

    Attributes:
        value: what was emitted, or what ``session.run`` would have returned.
        is_result: whether it is that result, and so the last event.
    """

    value: Any
    is_result: bool


class SessionEvents:
    """What a session has of events."""

    if TYPE_CHECKING:
        run: Any

        def _check_open(self) -> None: ...

    def run_events(
        self,
        fetches: Fetches,
        feeds: Feeds | None = None,
        *,
        targets: Iterable[Node | Tensor | str] = (),
        options: RunOptions | None = None,
        max_events: int = 64,
    ) -> AsyncGenerator[RunEvent, None]:
        """A run, with what its ops emit: ``async for event in session.run_events(fetches, feeds)``.

        The events come in the order of their ``ax.emit``; the last one is the result.  Values that were emitted before
        the run failed come before the error.  The run begins with the first event that is asked for.  Closing the
        generator cancels the run and waits for its end; ``contextlib.aclosing`` does so on ``break``.

        Args:
            fetches, feeds, targets, options: as of ``run``.
            max_events: how many events may wait to be taken; then ``await ax.emit(value)`` waits.

        Raises:
            InvalidArgumentError: *max_events* is no number of 1 or more.
            OpError: as of ``run``, from the generator.
        """
        if type(max_events) is not int or max_events < 1:
            raise InvalidArgumentError(f"max_events is a number of 1 or more, not {max_events!r}")
        self._check_open()
        return self._events(max_events, fetches, feeds, targets, options)

    async def _events(
        self,
        max_events: int,
        fetches: Fetches,
        feeds: Feeds | None,
        targets: Iterable[Node | Tensor | str],
        options: RunOptions | None,
    ) -> AsyncGenerator[RunEvent, None]:
        channel, context = EventChannel(max_events), copy_context()
        context.run(channel_here.set, channel)
        run = self.run(fetches, feeds, targets=targets, options=options)
        task = channel.loop.create_task(run, context=context)
        task.add_done_callback(lambda _: channel.wake())
        try:
            while channel.has_event or not task.done():
                if channel.has_event:
                    yield RunEvent(channel.take(), is_result=False)
                else:
                    await channel.wait()
            yield RunEvent(task.result(), is_result=True)
        finally:
            channel.close()
            task.cancel()
            await outlast(task.done, partial(asyncio.wait, [task]))
            if not task.cancelled():
                task.exception()  # it has been told, or nobody wants it any more
            del task, run  # an error's traceback holds this frame
