"""Logging: a line for each span that ends, and the step and node of the lines that ops log themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.spans import Hook, Span, SpanKind, running_span

_ALL: Final[tuple[SpanKind, ...]] = ("step", "stream", "item", "node", "retry", "batch", "cancellation")


class Log(Hook):
    """Logs a line for each span that ends: ``node 'fetch' of step 7 took 12.3 ms``.

    The record has ``span``, a dict of the span's kind, name, number, attributes and seconds, for formatters that write
    JSON.

    Args:
        logger: where to, by default the logger "asyncexec".
        level: of spans that end well.
        failure_level: of those that end with an error, and of retries.
        kinds: of spans, by default all.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        level: int = logging.DEBUG,
        failure_level: int = logging.WARNING,
        kinds: Collection[SpanKind] = _ALL,
    ) -> None:
        self._logger = logger or logging.getLogger("asyncexec")
        self._level = level
        self._failure_level = failure_level
        self._kinds = frozenset(kinds)

    def end(self, span: Span, error: BaseException | None) -> None:
        if span.kind not in self._kinds:
            return
        has_failed = error is not None or span.kind == "retry"
        level = self._failure_level if has_failed else self._level
        if not self._logger.isEnabledFor(level):
            return
        told = {**as_dict(span), "duration_s": span.duration_s}
        if error is not None:
            told["error"] = one_line(error)
        self._logger.log(level, "%s %s", span_title(span), _outcome(span, error), extra={"span": told})


def _outcome(span: Span, error: BaseException | None) -> str:
    took = f"{span.duration_s * 1e3:.3g} ms"
    if isinstance(error, (asyncio.CancelledError, CancelledError)):
        return f"was cancelled after {took}"
    if error is not None:
        return f"failed after {took}: {one_line(error)}"
    return f"after {span.attributes['error']}, waited {took}" if span.kind == "retry" else f"took {took}"


def span_title(span: Span) -> str:
    """What a line says of *span*: ``node 'fetch' of step 7``."""
    title = f"{span.kind} {span.number}" if span.kind in ("step", "stream", "item") else span.kind
    if span.name != span.kind:
        title += f" {span.name!r}"
    around = span.step if span.step is not span else span.parent
    return title if around is None else f"{title} of {span_title(around)}"


def as_dict(span: Span) -> dict[str, Any]:
    """*span* as a mapping: its kind, name, number and attributes, and the numbers of the steps around it."""
    found: dict[str, object] = {"kind": span.kind, "name": span.name, **span.attributes}
    if span.kind in ("step", "stream", "item", "retry"):
        found["number"] = span.number
    around: Span | None = span.step
    while around is not None:
        found.setdefault(around.kind, around.number)
        around = around.parent and around.parent.step
    return found


class LogContext(logging.Filter):
    """Gives each record that passes the ``step`` and the ``node`` that it was logged in: ``handler.addFilter(...)``.

    ``step`` is text such as ``step 7`` or ``item 3 of stream 2``, and ``node`` the name of the node, which is known in
    sessions with hooks alone.  Both are "" outside of ops.  As a filter of a handler it knows the records of all
    loggers::

        handler.addFilter(ax.hooks.LogContext())
        handler.setFormatter(logging.Formatter("%(levelname)s %(step)s %(node)s %(message)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        span = running_span()
        record.step = "" if span is None else span_title(span.step)
        record.node = span.name if span is not None and span.step is not span else ""
        return True
