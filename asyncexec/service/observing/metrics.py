"""Prometheus metrics of what is served: with Triton's names (``nv_inference_*``), and our own (``asyncexec_*``).

They are read from the statistics of models when somebody asks for them.  Labels are names of models that are served, of
nodes of their graphs, and of statuses; clients choose none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from asyncexec.framework.clock import NS_PER_S, NS_PER_US
from asyncexec.process.loop_lag import BOUNDS_MS as LAG_BOUNDS_MS
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.models.statistics import BOUNDS_MS
from asyncexec.service.observing.machine_metrics import MachineMetrics
from asyncexec.service.observing.request_counts import PROTOCOLS, ProtocolCounts
from asyncexec.service.observing.telemetry import Telemetry
from asyncexec.service.observing.worker_metrics import of_workers

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_MODEL: Final = ("model", "version")
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_Value = Callable[[Model], float]

# Of no type, for the library gives counters other names than Triton's.
_COUNTERS: Final[dict[str, tuple[str, _Value]]] = {
    "nv_inference_request_success": ("calls that succeeded", lambda m: m.statistics.success.count),
    "nv_inference_count": ("rows of calls that ran and succeeded", lambda m: m.statistics.inference_count),
    "nv_inference_exec_count": ("runs of the model, of a batch or a call", lambda m: m.statistics.execution_count),
    "nv_inference_request_duration_us": ("of calls, in all", lambda m: m.statistics.success.ns // NS_PER_US),
    "nv_inference_queue_duration_us": (
        "of waiting for a turn or for a batch",
        lambda m: m.statistics.queue_ns // NS_PER_US,
    ),
    "nv_inference_compute_input_duration_us": (
        "of checking what was sent",
        lambda m: m.statistics.input_ns // NS_PER_US,
    ),
    "nv_inference_compute_infer_duration_us": ("of running", lambda m: m.statistics.infer_ns // NS_PER_US),
    "nv_inference_compute_output_duration_us": (
        "of making what is sent",
        lambda m: m.statistics.output_ns // NS_PER_US,
    ),
    "nv_cache_num_hits_per_model": ("calls whose answer was known", lambda m: m.statistics.cache_hit.count),
    "nv_cache_num_misses_per_model": ("calls whose answer was not known", lambda m: m.statistics.cache_miss.count),
}
_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "nv_inference_pending_request_count": ("calls that wait for their turn or their batch", lambda m: m.num_waiting),
    "asyncexec_running_steps": ("steps under way", lambda m: m.session.statistics().running_steps),
    "asyncexec_sequences": ("sequences that have begun and not ended", lambda m: m.num_sequences),
    "asyncexec_longest_slice_seconds": (
        "the longest time that a step held the event loop",
        lambda m: m.session.statistics().longest_slice_ms / 1e3,
    ),
}
_HISTOGRAMS: Final[dict[str, tuple[str, Callable[[Model], tuple[Sequence[int], int]]]]] = {
    "asyncexec_request_seconds": (
        "how long calls that succeeded took",
        lambda m: (m.statistics.durations, m.statistics.success.ns),
    ),
    "asyncexec_queue_seconds": (
        "how long they waited for their turn or their batch",
        lambda m: (m.statistics.waits, m.statistics.queue_ns),
    ),
}


class Metrics:
    """The metrics of the models of *repository*, and of what *telemetry* knows."""

    def __init__(self, repository: ModelRepository, telemetry: Telemetry) -> None:
        self._repository = repository
        self._telemetry = telemetry
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._of_process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._of_process)
        GCCollector(registry=self._of_process)
        self._of_process.register(MachineMetrics())

    async def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        found: bytes = generate_latest(self._registry)
        of_process: bytes = await asyncio.to_thread(generate_latest, self._of_process)  # it reads files
        return found + of_process

    def describe(self) -> Iterable[Metric]:
        """Nothing: which metrics there are depends on no call."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        models = self._repository.models()
        for kind, families in ((UnknownMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, (told, value) in families.items():
                family: Any = kind(name, told, labels=_MODEL)
                for model in models:
                    family.add_metric((model.name, model.version), value(model))
                yield family
        yield from _of_models(models)
        yield from _of_nodes(models)
        yield from of_workers(models)
        yield from self._of_calls()
        yield from self._of_loop()

    def _of_calls(self) -> Iterator[Metric]:
        counts = self._telemetry.counts
        told = "calls of clients by protocol and status"
        requests = CounterMetricFamily("asyncexec_requests", told, labels=("protocol", "status"))
        received = CounterMetricFamily("asyncexec_received_bytes", "of bodies and messages", labels=("protocol",))
        sent = CounterMetricFamily("asyncexec_sent_bytes", "of bodies and messages", labels=("protocol",))
        under_way = GaugeMetricFamily("asyncexec_requests_under_way", "calls of clients", labels=("protocol",))
        for protocol in PROTOCOLS:
            each: ProtocolCounts = getattr(counts, protocol)
            for status, count in each.by_status.items():
                requests.add_metric((protocol, str(status)), count)
            received.add_metric((protocol,), each.bytes_in)
            sent.add_metric((protocol,), each.bytes_out)
            under_way.add_metric((protocol,), each.under_way)
        yield from (requests, received, sent, under_way)
        if self._telemetry.num_connections is not None:
            count = self._telemetry.num_connections()
            yield GaugeMetricFamily("asyncexec_http_connections", "open connections over HTTP", count)

    def _of_loop(self) -> Iterator[Metric]:
        lag = self._telemetry.lag
        told = "how late the event loop was, looked at ten times a second"
        histogram = HistogramMetricFamily("asyncexec_loop_lag_seconds", told)
        histogram.add_metric((), _buckets(LAG_BOUNDS_MS, lag.counts), lag.total_ns / NS_PER_S)
        yield histogram
        last_s = lag.last_ns / NS_PER_S
        yield GaugeMetricFamily("asyncexec_loop_lag_last_seconds", "how late the event loop was last", last_s)


def _of_models(models: Sequence[Model]) -> Iterator[Metric]:
    failures = UnknownMetricFamily(
        "nv_inference_request_failure", "calls that failed or were cancelled", labels=(*_MODEL, "reason")
    )
    rows = HistogramMetricFamily("asyncexec_run_rows", "rows of runs, of a batch or a call", labels=_MODEL)
    for model in models:
        labels = model.name, model.version
        for reason, count in model.statistics.failures.items():
            failures.add_metric((*labels, reason), count)
        sizes = {size: runs.count for size, runs in model.statistics.sizes.items()}
        buckets = [(f"{bound}.0", sum(n for size, n in sizes.items() if size <= bound)) for bound in _ROWS]
        total = sum(size * count for size, count in sizes.items())
        rows.add_metric(labels, [*buckets, ("+Inf", sum(sizes.values()))], total)
    yield from (failures, rows)
    for name, (told, value) in _HISTOGRAMS.items():
        histogram = HistogramMetricFamily(name, told, labels=_MODEL)
        for model in models:
            counts, ns = value(model)
            histogram.add_metric((model.name, model.version), _buckets(BOUNDS_MS, counts), ns / NS_PER_S)
        yield histogram


def _of_nodes(models: Iterable[Model]) -> Iterator[Metric]:
    labels = (*_MODEL, "node")
    calls = CounterMetricFamily("asyncexec_node_calls", "calls of nodes that are timed", labels=labels)
    errors = CounterMetricFamily("asyncexec_node_errors", "those that failed or were cancelled", labels=labels)
    slowest = GaugeMetricFamily("asyncexec_node_p99_seconds", "99 % of calls took no longer", labels=labels)
    for model in models:
        for node, statistics in model.session.statistics().nodes.items():
            values = (model.name, model.version, node)
            calls.add_metric(values, statistics.count)
            errors.add_metric(values, statistics.errors)
            slowest.add_metric(values, statistics.p99_s)
    yield from (calls, errors, slowest)


def _buckets(bounds_ms: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """The buckets of a histogram in seconds, each with those before it."""
    bounds = [*(str(bound / 1e3) for bound in bounds_ms), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))
