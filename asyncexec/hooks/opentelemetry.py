"""OpenTelemetry: spans and metrics of what a session does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.extras import require
from asyncexec.framework.spans import Hook, Span, SpanKind

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_ALL: Final[tuple[SpanKind, ...]] = ("step", "stream", "item", "node", "retry", "batch", "cancellation")
# What becomes the current span of the code that runs in it; items of a stream share the context that they run in.
_CURRENT: Final = ("step", "node", "batch")
_NAME: Final = "asyncexec"
_KIND: Final = f"{_NAME}.kind"
_NUMBER: Final = f"{_NAME}.number"


class _Told(NamedTuple):
    """What stands for a span in OpenTelemetry: its span, a context in which that is current, the token of that."""

    told: Any
    context: Any
    token: Any


class OpenTelemetry(Hook):
    """A span of OpenTelemetry for each span of the session, under the one that is current where ``run`` is called.

    While a user's function runs, the span of its node is the current one: what the function traces stands below it.
    The names are those of the nodes, else the kind; attributes begin with ``asyncexec.``.  Metrics:
    ``asyncexec.step.duration``, ``asyncexec.item.duration`` and ``asyncexec.node.duration`` (seconds, by outcome, a
    node's by name and op, too), ``asyncexec.retries`` and ``asyncexec.batch.rows``.

    Args:
        tracer_provider, meter_provider: by default the global ones.
        kinds: of spans to tell of, by default all.

    Raises:
        MissingExtraError: opentelemetry-api is not installed: ``pip install "asyncexec[otel]"``.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        kinds: Collection[SpanKind] = _ALL,
    ) -> None:
        self._trace = require("opentelemetry.trace", extra="otel")
        self._context = require("opentelemetry.context", extra="otel")
        metrics = require("opentelemetry.metrics", extra="otel")
        self._tracer = self._trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._kinds = frozenset(kinds)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._durations = {
            kind: meter.create_histogram(f"{_NAME}.{kind}.duration", unit="s", description=f"how long each {kind} took")
            for kind in ("step", "item", "node")
        }
        self._retries = meter.create_counter(f"{_NAME}.retries", description="attempts that failed and were made again")
        self._rows = meter.create_histogram(f"{_NAME}.batch.rows", description="rows of each batch")
        self._open: dict[Span, _Told] = {}
        self._keys: dict[str, str] = {}  # names of attributes, by ours

    def begin(self, span: Span) -> None:
        if span.kind not in self._kinds:
            return
        kind, keys = span.kind, self._keys
        attributes: dict[str, Any] = {_KIND: kind}
        for key, value in span.attributes.items():
            attributes[keys.get(key) or keys.setdefault(key, f"{_NAME}.{key}")] = value
        if span.number or kind == "item":
            attributes[_NUMBER] = span.number
        around = self._nearest(span.parent)
        told = self._tracer.start_span(
            span.name if span.name != kind else f"{_NAME} {kind}",
            None if around is None else around.context,
            attributes=attributes,
            links=[self._trace.Link(each.told.get_span_context()) for each in map(self._nearest, span.links) if each],
        )
        context = self._trace.set_span_in_context(told)
        self._open[span] = _Told(told, context, self._context.attach(context) if kind in _CURRENT else None)

    def end(self, span: Span, error: BaseException | None) -> None:
        self._measure(span, error)
        found = self._open.pop(span, None)
        if found is None:
            return
        told = found.told
        if found.token is not None:
            self._context.detach(found.token)
        for key in ("attempts", "waited_s"):
            if key in span.attributes:
                told.set_attribute(f"{_NAME}.{key}", span.attributes[key])
        if error is not None:
            if _is_cancellation(error):
                told.set_attribute(f"{_NAME}.cancelled", True)
            else:
                told.record_exception(error)
                told.set_status(self._trace.Status(self._trace.StatusCode.ERROR, one_line(error)))
        told.end()

    def _nearest(self, span: Span | None) -> _Told | None:
        """What stands for *span*, or for what is around it, if anything does."""
        found = None
        while span is not None and found is None:
            found = self._open.get(span)
            span = span.parent
        return found

    def _measure(self, span: Span, error: BaseException | None) -> None:
        if span.kind in self._durations:
            labels = {"outcome": "ok" if error is None else "cancelled" if _is_cancellation(error) else "error"}
            if span.kind == "node":
                labels |= {"node": span.name, "op": str(span.attributes["op"])}
            self._durations[span.kind].record(span.duration_s, labels)
        elif span.kind == "retry":
            self._retries.add(1, {"node": span.name})
        elif span.kind == "batch":
            self._rows.record(span.attributes["rows"], {"node": span.name})


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, (asyncio.CancelledError, CancelledError))
