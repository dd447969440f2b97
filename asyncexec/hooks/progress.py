"""Progress: bars of ``rich`` for runs and streams."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from asyncexec.framework.extras import require
from asyncexec.framework.spans import Hook, Span
from asyncexec.hooks.log import span_title

if TYPE_CHECKING:
    from rich.console import Console

_ENDED: Final = 10  # bars of streams that stay when these have ended


class Progress(Hook):
    """A bar for each stream and run that is under way, and for the last streams that have ended::

        with ax.hooks.Progress(total=len(items)) as progress:
            async with ax.Session(graph, hooks=[progress]) as session:
                async for out in session.map(y, items): ...

    That of a stream counts its items, those that failed apart.  That of a run counts the calls of its nodes, and says
    which was called last.

    Args:
        total: items of a stream, where that is known.
        console: of rich, by default one on standard error.

    Raises:
        MissingExtraError: rich is not installed: ``pip install "asyncexec[progress]"``.
    """

    def __init__(self, total: int | None = None, *, console: Console | None = None) -> None:
        library = require("rich.progress", extra="progress")
        self._total = total
        self._progress = library.Progress(
            library.SpinnerColumn(),
            library.TextColumn("{task.description}"),
            library.BarColumn(),
            library.MofNCompleteColumn(),
            library.TimeElapsedColumn(),
            library.TextColumn("{task.fields[note]}"),
            console=console or require("rich.console", extra="progress").Console(stderr=True),
        )
        self._tasks: dict[Span, Any] = {}
        self._failed: dict[Span, int] = {}
        self._ended: deque[object] = deque()  # bars of streams

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def begin(self, span: Span) -> None:
        if span.kind == "stream" or (span.kind == "step" and span.parent is None):
            total = self._total if span.kind == "stream" else None
            self._tasks[span] = self._progress.add_task(span_title(span), total=total, note="")
        elif span.kind == "node" and span.step in self._tasks:
            self._progress.update(self._tasks[span.step], note=span.name)

    def end(self, span: Span, error: BaseException | None) -> None:
        if span in self._tasks:
            self._failed.pop(span, None)
            task = self._tasks.pop(span)
            if span.kind == "step":
                self._progress.remove_task(task)
            else:
                self._progress.stop_task(task)
                self._ended.append(task)
                if len(self._ended) > _ENDED:
                    self._progress.remove_task(self._ended.popleft())
        elif span.kind == "item" and span.parent in self._tasks:
            task = self._tasks[span.parent]
            if error is not None:
                failed = self._failed[span.parent] = self._failed.get(span.parent, 0) + 1
                self._progress.update(task, note=f"{failed} failed")
            self._progress.advance(task)
        elif span.kind == "node" and span.step in self._tasks:
            self._progress.advance(self._tasks[span.step])
