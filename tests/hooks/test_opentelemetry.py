"""ax.hooks.OpenTelemetry, with the SDK's own exporters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import asyncexec as ax
from tests.hooks.programs import Program


class Telemetry:
    """Providers that keep what they are given."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def hook(self, **options: Any) -> ax.Hook:
        return ax.hooks.OpenTelemetry(self.tracers, self.meters, **options)

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def paths(self) -> list[str]:
        """Each span with those around it."""
        spans = self.spans()
        by_id = {span.context.span_id: span for span in spans if span.context is not None}

        def path(span: ReadableSpan) -> str:
            parent = None if span.parent is None else by_id[span.parent.span_id]
            return span.name if parent is None else f"{path(parent)}/{span.name}"

        return [path(span) for span in spans]

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: list(metric.data.data_points) for metric in metrics}


async def test_tree_of_spans() -> None:
    telemetry = Telemetry()
    with telemetry.tracer.start_as_current_span("request"):
        await Program().run(telemetry.hook())
    step, stream = "request/asyncexec step", "request/asyncexec stream"
    paths = telemetry.paths()
    assert {"request", step, f"{step}/fetch", f"{step}/fetch/fetch", f"{step}/work"} <= set(paths)
    assert [paths.count(path) for path in (step, f"{step}/fetch", f"{step}/fetch/fetch", f"{step}/work")] == [
        3,
        2,
        1,
        1,
    ]
    assert paths.count(f"{step}/model/model") == 1  # the batch of the node
    assert paths.count(f"{stream}/asyncexec item/fetch") == 2
    assert len(telemetry.spans()) == len(paths)


async def test_attributes_status_and_links() -> None:
    telemetry = Telemetry()
    await Program().run(telemetry.hook())
    by_kind: dict[Any, list[ReadableSpan]] = {}
    for span in telemetry.spans():
        assert span.attributes is not None
        by_kind.setdefault(span.attributes["asyncexec.kind"], []).append(span)
    node = by_kind["node"][0]
    assert node.attributes is not None
    assert (node.attributes["asyncexec.op"], node.attributes["asyncexec.attempts"]) == ("fetch", 2)
    failed = [span for span in by_kind["node"] if span.status.status_code is trace.StatusCode.ERROR]
    assert [span.status.description for span in failed] == ["ValueError: negative"] * 2
    assert failed[0].events[0].name == "exception"
    (batch,) = by_kind["batch"]
    assert batch.attributes is not None
    assert batch.attributes["asyncexec.rows"] == 1
    model = next(span for span in by_kind["node"] if span.name == "model")
    assert model.context is not None
    assert [link.context.span_id for link in batch.links] == [model.context.span_id]
    assert {span.attributes["asyncexec.number"] for span in by_kind["item"] if span.attributes} == {0, 1}


async def test_what_an_op_traces_stands_below_its_node() -> None:
    telemetry = Telemetry()

    @ax.op
    async def fetch(x: float) -> float:
        with telemetry.tracer.start_as_current_span("GET"):
            await asyncio.sleep(0)
        return x

    @ax.op(expensive=True)
    def work(x: float) -> float:
        with telemetry.tracer.start_as_current_span("decode"):
            return x

    with ax.Graph() as graph:
        y = work(fetch(ax.placeholder(ax.float64, [], name="x")))
    async with ax.Session(graph, hooks=[telemetry.hook()]) as session:
        with telemetry.tracer.start_as_current_span("request"):
            await session.run(y, {"x:0": 1.0})
        [out async for out in session.map(y, [{"x:0": 1.0}])]
    assert "request/asyncexec step/fetch/GET" in telemetry.paths()
    assert "request/asyncexec step/work/decode" in telemetry.paths()
    assert "asyncexec stream/asyncexec item/fetch/GET" in telemetry.paths()
    assert not trace.get_current_span().get_span_context().is_valid


async def test_cancelled_step_is_no_error() -> None:
    telemetry = Telemetry()
    begun = asyncio.Event()

    @ax.op
    async def waiting(x: float) -> float:
        begun.set()
        await asyncio.Event().wait()
        return x

    with ax.Graph() as graph:
        y = waiting(ax.placeholder(ax.float64, [], name="x"))
    async with ax.Session(graph, hooks=[telemetry.hook()]) as session:
        run = asyncio.create_task(session.run(y, {"x:0": 1.0}))
        await begun.wait()
        run.cancel()
        await asyncio.wait([run])
    cancelled = [span.name for span in telemetry.spans() if (span.attributes or {}).get("asyncexec.cancelled")]
    assert cancelled == ["waiting", "asyncexec step"]
    assert all(span.status.status_code is trace.StatusCode.UNSET for span in telemetry.spans())


async def test_kinds_that_are_left_out_are_passed_by() -> None:
    telemetry = Telemetry()
    await Program().run(telemetry.hook(kinds=["step", "retry"]))
    assert sorted(set(telemetry.paths())) == ["asyncexec step", "asyncexec step/fetch"]


async def test_metrics() -> None:
    telemetry = Telemetry()
    await Program().run(telemetry.hook())
    points = telemetry.points()
    steps = {point.attributes["outcome"]: point.count for point in points["asyncexec.step.duration"]}
    assert steps == {"ok": 2, "error": 1}
    nodes = {
        (point.attributes["node"], point.attributes["outcome"]): point.count
        for point in points["asyncexec.node.duration"]
    }
    assert nodes == {("fetch", "ok"): 2, ("fetch", "error"): 2, ("work", "ok"): 2, ("model", "ok"): 1}
    items = {point.attributes["outcome"]: point.count for point in points["asyncexec.item.duration"]}
    assert items == {"ok": 1, "error": 1}
    assert [(point.attributes["node"], point.value) for point in points["asyncexec.retries"]] == [("fetch", 1)]
    assert [(point.attributes["node"], point.sum) for point in points["asyncexec.batch.rows"]] == [("model", 1)]


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.trace", None)
    with pytest.raises(ax.errors.MissingExtraError, match=r'pip install "asyncexec\[otel\]"'):
        ax.hooks.OpenTelemetry()
