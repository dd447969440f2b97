"""OpenTelemetry: spans and metrics of what a session does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
_USUAL: Final = {"attempts": 1, "waited_s": 0}  # of a node that has ended: what is not told


# What stands for a span in OpenTelemetry: its span, a context in which that is current, the token of that.
_Told: TypeAlias = tuple[Any, Any, Any]


class _Keys(dict[str, str]):
    """Names of attributes, by ours."""

    def __missing__(self, key: str) -> str:
        name = self[key] = f"{_NAME}.{key}"
        return name


class OpenTelemetry(Hook):
    """A span of OpenTelemetry for each span of the session, under the one that is current where ``run`` is called.

    While a user's function runs, the span of its node is the current one: what the function traces stands below it.
    The names are those of the nodes, else the kind; attributes begin with ``asyncexec.``.  Metrics:
    ``asyncexec.step.duration``, ``asyncexec.item.duration`` and ``asyncexec.node.duration`` (seconds, by outcome, a
    node's by name and op, too), ``asyncexec.retries`` and ``asyncexec.batch.rows``.

    Args:
        tracer_provider, meter_provider: by default the global ones.
        kinds: of spans to tell of, by default all.

    Attributes:
        tracer_provider: what was given.

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
        self.tracer_provider: TracerProvider | None = tracer_provider
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
        self._keys = _Keys()

    def begin(self, span: Span) -> None:
        kind, name = span.kind, span.name
        if kind not in self._kinds:
            return
        keys = self._keys
        attributes: dict[str, object] = {_KIND: kind}
        for key, value in span.attributes.items():
            attributes[keys[key]] = value
        if span.number or kind == "item":
            attributes[_NUMBER] = span.number
        around = self._nearest(span.parent)
        told = self._tracer.start_span(
            name if name != kind else f"{_NAME} {kind}",
            None if around is None else around[1],
            attributes=attributes,
            links=self._links_to(span.links) if span.links else (),
        )
        context = self._trace.set_span_in_context(told)
        self._open[span] = told, context, self._context.attach(context) if kind in _CURRENT else None

    def end(self, span: Span, error: BaseException | None) -> None:
        self._measure(span, error)
        found = self._open.pop(span, None)
        if found is None:
            return
        told, _, token = found
        if token is not None:
            self._context.detach(token)
        attributes = span.attributes
        for key in _USUAL:
            if key in attributes and attributes[key] != _USUAL[key]:
                told.set_attribute(self._keys[key], attributes[key])
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

    def _links_to(self, spans: Iterable[Span]) -> list[object]:
        return [self._trace.Link(each[0].get_span_context()) for each in map(self._nearest, spans) if each]

    def _measure(self, span: Span, error: BaseException | None) -> None:
        histogram = self._durations.get(span.kind)
        if histogram is not None:
            labels: dict[str, Any] = {"outcome": "ok"}
            if error is not None:
                labels["outcome"] = "cancelled" if _is_cancellation(error) else "error"
            if span.kind == "node":
                labels["node"], labels["op"] = span.name, span.attributes["op"]
            histogram.record(span.duration_s, labels)
        elif span.kind == "retry":
            self._retries.add(1, {"node": span.name})
        elif span.kind == "batch":
            self._rows.record(span.attributes["rows"], {"node": span.name})


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, (asyncio.CancelledError, CancelledError))
