"""BackgroundTasks: work that resources do between the steps, such as reading ahead.

It belongs to no step: each task begins in an empty context, so no limiter, deadline or trace of a step reaches it.  To
hooks, and to the memory limit of steps, a task is a step of its own.  A session ends all of it when it closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, ContextVar
from typing import Any, Final, TypeAlias

from asyncexec.framework.cooperative import outlast

Work: TypeAlias = Coroutine[Any, Any, None]
_is_inside: Final[ContextVar[bool]] = ContextVar("asyncexec_in_background", default=False)


class BackgroundTasks:
    """The tasks of the resources of one session, in the event loop that it is used in.

    A task raises nothing: what fails in it is kept for whoever asks for its result.

    Attributes:
        around: makes of some work the work that tells of it, as of a step.
    """

    def __init__(self) -> None:
        self.around: Callable[[Work], Work] = lambda work: work
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_in_use(self) -> bool:
        """Whether a task is under way."""
        return any(map(is_alive, self._tasks))

    def start(self, work: Work) -> asyncio.Task[None]:
        """A task that does *work*."""
        context = Context()
        context.run(_is_inside.set, True)
        task = asyncio.get_running_loop().create_task(self.around(work), context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        return task

    def cancel(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel *tasks*, from any thread; they end soon."""
        for task in list(tasks):
            if not is_alive(task):
                continue
            loop = task.get_loop()
            if asyncio._get_running_loop() is loop:
                task.cancel()
            else:
                loop.call_soon_threadsafe(task.cancel)

    async def end(self, tasks: Iterable[asyncio.Task[None]] | None = None) -> None:
        """Cancel *tasks*, or all there are, and wait until they have ended, whoever cancels meanwhile.

        Who is a part of such a task does not wait, for it would wait for itself.
        """
        ending = [task for task in (self._tasks if tasks is None else list(tasks)) if is_alive(task)]
        for task in ending:
            task.cancel()
        if not _is_inside.get():
            await outlast(lambda: not any(map(is_alive, ending)), lambda: asyncio.wait(ending))

    def drop_loop(self) -> None:
        """Forget the tasks: their loop is closed."""
        self._tasks.clear()


def is_alive(task: asyncio.Task[None] | None) -> bool:
    """Whether *task* is there, and may still run."""
    return task is not None and not task.done() and not task.get_loop().is_closed()
