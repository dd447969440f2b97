"""Telemetry: what a service tells of the calls of its clients, over all protocols."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from asyncexec.framework.spans import Hook
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.observing.call_record import CallRecord, current_call
from asyncexec.service.observing.log_lines import ACCESS
from asyncexec.service.observing.log_settings import LogSettings
from asyncexec.service.observing.request_counts import RequestCounts
from asyncexec.service.observing.server_spans import ServerSpans, with_telemetry
from asyncexec.service.observing.traces import Traces


class Telemetry:
    """Counts, traces, spans and log lines of one service.

    Args:
        hooks: those of the sessions of models.
        trace_file: where the timelines of sampled requests are written.

    Attributes:
        hooks: those of the sessions of models; after start(), with that of OpenTelemetry, if that is used.
        counts: the calls of clients.
        lag: how late the event loop is.
        traces: the timelines of sampled requests.
        log_settings: what is logged.
        num_connections: tells how many connections over HTTP there are, where the service knows.
    """

    def __init__(self, hooks: Sequence[Hook] = (), trace_file: Path | None = None) -> None:
        self.hooks: tuple[Hook, ...] = tuple(hooks)
        self.counts: RequestCounts = RequestCounts()
        self.lag: LoopLag = LoopLag()
        self.traces: Traces = Traces(trace_file)
        self.log_settings: LogSettings = LogSettings()
        self.num_connections: Callable[[], int] | None = None
        self.spans: ServerSpans | None = None

    def start(self) -> None:
        """Look at the running loop, and find out whether spans are wanted."""
        hooks, self.spans = with_telemetry(self.hooks)
        self.hooks = tuple(hooks)
        self.lag.start()

    async def close(self) -> None:
        """Write what is left to write."""
        self.lag.stop()
        await self.traces.close()
        self.log_settings.close()

    @property
    def is_watching(self) -> bool:
        """Whether anything but counts and faults is to be told of calls."""
        return self.traces.is_on or self.spans is not None or ACCESS.isEnabledFor(logging.INFO)

    def begin_call(self) -> bool:
        """A call begins; it gets a record if anything but counts is to be told of it: whether that is so."""
        is_watching = self.is_watching
        if is_watching:
            current_call.set(CallRecord(self.traces if self.traces.is_on else None))
        return is_watching
