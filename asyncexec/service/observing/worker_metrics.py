"""Metrics of the workers that models run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from asyncexec.service.models.model import Model
from asyncexec.session.worker_statistics import WorkerStatistics

_LABELS: Final = ("model", "version", "worker")
_Value = Callable[[WorkerStatistics], float | None]

_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "asyncexec_worker_connected": ("1 for a worker that can be reached, else 0", lambda w: w.is_connected),
    "asyncexec_worker_running_steps": ("steps of the model that it takes part in", lambda w: w.running_steps),
    "asyncexec_worker_queued_bytes": ("what waits to be sent to it", lambda w: w.queued_bytes),
    "asyncexec_worker_round_trip_seconds": (
        "of the last ping, in both event loops, too",
        lambda w: _seconds(w.round_trip_ms),
    ),
    "asyncexec_worker_shortest_round_trip_seconds": (
        "of the fastest of the last pings",
        lambda w: _seconds(w.shortest_round_trip_ms),
    ),
}
_COUNTERS: Final[dict[str, tuple[str, _Value]]] = {
    "asyncexec_worker_losses": ("how often the connection to it was lost", lambda w: w.times_lost),
    "asyncexec_worker_sent_tensors": ("values that were sent to it", lambda w: w.tensors_sent),
    "asyncexec_worker_received_tensors": ("values that came from it", lambda w: w.tensors_received),
    "asyncexec_worker_sent_bytes": ("of values that were sent to it", lambda w: w.bytes_sent),
    "asyncexec_worker_received_bytes": ("of values that came from it", lambda w: w.bytes_received),
    "asyncexec_worker_tensors_from_workers": ("values other workers sent to it", lambda w: w.tensors_from_workers),
    "asyncexec_worker_bytes_from_workers": ("of values other workers sent to it", lambda w: w.bytes_from_workers),
}


def of_workers(models: Sequence[Model]) -> Iterator[Metric]:
    """The metrics of the workers of *models*; what is not known of a worker that is lost is left out."""
    found = [(model, worker) for model in models for worker in model.session.statistics().workers]
    for kind, families in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, (told, value) in families.items():
            family: Any = kind(name, told, labels=_LABELS)
            for model, worker in found:
                number = value(worker)
                if number is not None:
                    family.add_metric((model.name, model.version, worker.name), number)
            yield family


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3
