"""What sessions and streams say of themselves, as text and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from asyncexec.framework.html import ACCENT, card, rect, svg
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.session.session_config import SessionConfig

if TYPE_CHECKING:
    from asyncexec.executor.streams.stream_options import StreamOptions
    from asyncexec.executor.streams.stream_scope import StreamScope
    from asyncexec.graph.graph import Graph
    from asyncexec.session.admission import AdmissionControl
    from asyncexec.session.executor_cache import ExecutorCache
    from asyncexec.session.graph_execution_state import GraphExecutionState
    from asyncexec.session.statistics import SessionStatistics
    from asyncexec.session.steps_under_way import StepsUnderWay
    from asyncexec.session.worker_statistics import WorkerStatistics

_graph_html = LazyModule("asyncexec.graph.graph_html")
_MOST_CELLS = 64  # of a window that is drawn


class ShownSession:
    """What a session says of itself; a base of Session."""

    if TYPE_CHECKING:
        graph: Graph
        config: SessionConfig
        _state: GraphExecutionState
        _cache: ExecutorCache
        _steps: StepsUnderWay
        _admission: AdmissionControl

        def statistics(self) -> SessionStatistics: ...

    def __repr__(self) -> str:
        if "_cache" not in self.__dict__:
            return "<ax.Session, not made yet>"
        words = [
            _count(len(self._state.pools), "device"),
            f"{_count(len(self._cache), 'signature')} compiled",
            f"{_count(len(self._steps), 'step')} under way",
        ]
        words += _workers_in_words(self._state.worker_statistics())
        if self._admission.is_closed:
            words.append("closed")
        return f"<ax.Session of {self.graph.num_nodes:,} operations: {', '.join(words)}>"

    def _repr_html_(self) -> str:
        statistics = self.statistics()
        facts: dict[str, object] = {
            "devices": ", ".join(statistics.worker_pools),
            "signatures compiled": f"{statistics.cached_signatures:,}",
            "steps": f"{statistics.running_steps:,} under way, {statistics.queued_steps:,} queued, "
            f"{statistics.completed_steps:,} completed, {statistics.failed_steps:,} failed",
        }
        if statistics.longest_node is not None:
            facts["held the loop longest"] = f"{statistics.longest_node}, {statistics.longest_node_ms:.3g} ms"
        if statistics.workers:
            facts["workers"] = ", ".join(_worker_in_words(worker) for worker in statistics.workers[:_MOST_CELLS])
        if self._admission.is_closed:
            facts["closed"] = "yes"
        return card("Session", facts, _graph_html.graph_html(self.graph))


def _workers_in_words(workers: Sequence[WorkerStatistics]) -> list[str]:
    if not workers:
        return []
    lost = sum(not worker.is_connected for worker in workers)
    return [_count(len(workers), "worker") + (f" ({lost:,} not connected)" if lost else "")]


def _worker_in_words(worker: WorkerStatistics) -> str:
    if worker.round_trip_ms is None:
        return f"{worker.name} (not connected)"
    return f"{worker.name} ({_count(worker.running_steps, 'step')}, round trip {worker.round_trip_ms:.3g} ms)"


def stream_text(kind: str, fetches: object, options: StreamOptions, scope: StreamScope | None) -> str:
    """What a stream or map says of itself: ``<ax.Stream of 'y:0': window of 32, 3 in flight, 5 not taken>``."""
    return f"<ax.{kind} of {_fetched(fetches)}: window of {options.window:,}, {', '.join(_words(scope))}>"


def stream_html(kind: str, fetches: object, options: StreamOptions, scope: StreamScope | None) -> str:
    """The HTML of a stream or map: its window, with the items that are in it."""
    facts = {"fetches": _fetched(fetches), "window": f"{options.window:,}", "state": ", ".join(_words(scope))}
    if options.window > _MOST_CELLS:
        return card(kind, facts)
    taken, begun = (0, 0) if scope is None else (scope.window.occupied, len(scope.window.in_flight))
    cells = [_cell(i, "in flight", 0.8, ACCENT) for i in range(begun)]
    cells += [_cell(i, "waits to begin or to be taken", 0.35, ACCENT) for i in range(begun, taken)]
    cells += [_cell(i, "free", 0.08, "currentColor") for i in range(taken, options.window)]
    label = f"{taken} of {options.window} places in the window are taken"
    return card(kind, facts, svg(14 * options.window + 2, 18, label, cells))


def _cell(index: int, title: str, opacity: float, color: str) -> str:
    return rect(14 * index + 1, 1, 12, 16, title, f'fill="{color}" fill-opacity="{opacity}"')


def _words(scope: StreamScope | None) -> list[str]:
    if scope is None:
        return ["not open"]
    left = f"{scope.window.occupied:,} not taken"
    if scope.has_ended:
        return ["ended", left] if scope.window.occupied else ["ended"]
    words = [f"{len(scope.window.in_flight):,} in flight", left]
    return [*words, "closed"] if scope.is_closed else words


def _fetched(fetches: object) -> str:
    name = getattr(fetches, "name", None)
    text = repr(name) if isinstance(name, str) else repr(fetches)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"
