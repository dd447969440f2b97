"""ServerSpans: a span of OpenTelemetry for each call of a client, below the span that the client says it is in.

Names and attributes are those of OpenTelemetry's semantic conventions for servers of HTTP and RPC.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.extras import require
from asyncexec.framework.spans import Hook
from asyncexec.hooks.opentelemetry import OpenTelemetry

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_NAME: Final = "asyncexec.service"


class ServerSpans:
    """Begins spans; *tracer_provider* is by default the global one.

    Raises:
        MissingExtraError: opentelemetry-api is not installed: ``pip install "asyncexec[otel]"``.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._trace = require("opentelemetry.trace", extra="otel")
        self._context = require("opentelemetry.context", extra="otel")
        self._propagate = require("opentelemetry.propagate", extra="otel")
        self._tracer = self._trace.get_tracer(_NAME, tracer_provider=tracer_provider)

    def begin(self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, object]) -> ServerSpan:
        """A span that begins now, and is the current one; *carrier* has what the client says (``traceparent``)."""
        around = self._propagate.extract(carrier)
        kind = self._trace.SpanKind.SERVER
        span = self._tracer.start_span(name, around, kind=kind, attributes=dict(attributes))
        token = self._context.attach(self._trace.set_span_in_context(span, around))
        return ServerSpan(span, lambda: self._context.detach(token), self._trace.Status(self._trace.StatusCode.ERROR))


class ServerSpan:
    """The span of one call."""

    __slots__ = ("_detach", "_failed", "_span")

    def __init__(self, span: Any, detach: Any, failed: object) -> None:
        self._span = span
        self._detach = detach
        self._failed = failed

    @property
    def trace_id(self) -> str:
        """The number of its trace, in hexadecimal."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def end(self, attributes: Mapping[str, Any], name: str = "", error_type: str = "") -> None:
        """It ends; *error_type* is the status of a call that the service has failed."""
        self._detach()
        if name:
            self._span.update_name(name)
        self._span.set_attributes({key: value for key, value in attributes.items() if value != ""})
        if error_type:
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(self._failed)
        self._span.end()


def with_telemetry(hooks: Sequence[Hook]) -> tuple[Sequence[Hook], ServerSpans | None]:
    """*hooks*, and what makes spans of calls, where somebody wants to have spans.

    That is so if one of *hooks* is for OpenTelemetry, or if the process has a tracer provider: then there is such a
    hook, too.
    """
    for hook in hooks:
        if isinstance(hook, OpenTelemetry):
            return hooks, ServerSpans(hook.tracer_provider)
    if not _has_provider():
        return hooks, None
    return (*hooks, OpenTelemetry()), ServerSpans()


def _has_provider() -> bool:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:  # so nobody has given it a provider
        return False
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))
