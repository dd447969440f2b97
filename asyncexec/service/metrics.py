"""Prometheus metrics of what is served: with Triton's names (``nv_inference_*``), and our own (``asyncexec_*``).

They are read from the models' statistics when somebody asks for them, so that a call pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, UnknownMetricFamily

from asyncexec.service.model import Model
from asyncexec.service.repository import ModelRepository

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_NS_PER_US: Final = 1_000
_MODEL: Final = ("model", "version")

_Value = Callable[[Model], float]

# Of no type, for the library gives counters other names than Triton's.
_COUNTERS: Final[dict[str, tuple[str, _Value]]] = {
    "nv_inference_request_success": ("calls that succeeded", lambda m: m.statistics.success.count),
    "nv_inference_request_failure": ("calls that failed or were cancelled", lambda m: m.num_failures),
    "nv_inference_count": ("rows of calls that succeeded", lambda m: m.statistics.inference_count),
    "nv_inference_exec_count": ("runs of the model, of a batch or a call", lambda m: m.num_runs),
    "nv_inference_request_duration_us": ("of calls, in all", lambda m: m.statistics.success.ns // _NS_PER_US),
    "nv_inference_compute_input_duration_us": (
        "of reading what was sent",
        lambda m: m.statistics.compute_input.ns // _NS_PER_US,
    ),
    "nv_inference_compute_infer_duration_us": (
        "of running, with the time in queues",
        lambda m: m.statistics.compute_infer.ns // _NS_PER_US,
    ),
    "nv_inference_compute_output_duration_us": (
        "of making what is sent",
        lambda m: m.statistics.compute_output.ns // _NS_PER_US,
    ),
    "nv_cache_num_hits_per_model": ("calls whose answer was known", lambda m: m.statistics.cache_hit.count),
    "nv_cache_num_misses_per_model": ("calls whose answer was not known", lambda m: m.statistics.cache_miss.count),
}
_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "nv_inference_pending_request_count": ("calls that wait to begin", lambda m: m.session.statistics().queued_steps),
    "asyncexec_running_steps": ("steps under way", lambda m: m.session.statistics().running_steps),
    "asyncexec_sequences": ("sequences that have begun and not ended", lambda m: m.num_sequences),
    "asyncexec_longest_slice_seconds": (
        "the longest time that a step held the event loop",
        lambda m: m.session.statistics().longest_slice_ms / 1e3,
    ),
}


class Metrics:
    """The metrics of the models of *repository*."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        found: bytes = generate_latest(self._registry)
        return found

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
        yield from self._of_nodes(models)

    def _of_nodes(self, models: Iterable[Model]) -> Iterator[Metric]:
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
