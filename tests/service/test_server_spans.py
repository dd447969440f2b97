"""OpenTelemetry: a span for each call, below the caller's, with the steps of models below it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import asyncexec as ax
from asyncexec.service.app import create_app
from asyncexec.service.models.files import ModelSource
from asyncexec.service.protocol_messages import message
from asyncexec.service.server import Ports, serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums, until
from tests.service.test_access_log import FAILS, failing
from tests.service.test_server import FREE, INPUTS, call, url

pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library", "no_lingering")]

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
HEADERS = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01", "tracestate": "vendor=1"}


class Spans:
    """What is traced."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def hook(self) -> ax.Hook:
        return ax.hooks.OpenTelemetry(self.provider)

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all() if span.name == name]
        return found

    def servers(self) -> list[ReadableSpan]:
        return [span for span in self.all() if span.kind is SpanKind.SERVER]


@pytest.fixture
def spans() -> Spans:
    return Spans()


@asynccontextmanager
async def service(spans: Spans, **models: Any) -> AsyncIterator[tuple[Ports, httpx.AsyncClient]]:
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums(), **models}, **FREE, hooks=[spans.hook]) as ports,
        httpx.AsyncClient(base_url=url(ports)) as client,
    ):
        yield ports, client


def around(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_call_over_http_is_below_its_caller_and_above_its_step(spans: Spans) -> None:
    async with service(spans) as (ports, client):
        await client.post("/v2/models/m/infer", json={"inputs": INPUTS}, headers=HEADERS)
    (server,) = spans.servers()
    assert server.name == "POST /v2/models/{name}/infer"
    assert server.context is not None
    assert (server.context.trace_id, around(server)) == (TRACE, PARENT)
    assert server.context.trace_state.get("vendor") == "1"
    assert attributes(server) == {
        "http.request.method": "POST",
        "http.route": "/v2/models/{name}/infer",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/v2/models/m/infer",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "server.address": "127.0.0.1",
        "server.port": ports.http,
        "asyncexec.model": "m",
        "asyncexec.version": "1",
    }
    assert server.status.status_code is StatusCode.UNSET
    step = spans.named("asyncexec step")
    assert step.context is not None
    assert (step.context.trace_id, around(step)) == (TRACE, server.context.span_id)


async def test_a_call_over_grpc_is_below_its_caller_and_above_its_step(spans: Spans) -> None:
    async with service(spans, bad=failing()) as (ports, _):
        request = message("ModelInferRequest")(model_name="bad", raw_input_contents=[bytes(8)])
        request.inputs.add(name="x", datatype="FP64")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(ports, "ModelInfer", request, "ModelInferResponse", metadata=list(HEADERS.items()))
        ready = message("ModelReadyRequest")(name="m")
        await call(ports, "ModelReady", ready, "ModelReadyResponse")
        await until(lambda: len(spans.servers()) == 2)
    failed, good = sorted(spans.servers(), key=lambda span: span.name)
    assert failed.name == "inference.GRPCInferenceService/ModelInfer"
    assert failed.context is not None
    assert (failed.context.trace_id, around(failed)) == (TRACE, PARENT)
    assert attributes(failed) == {
        "rpc.system": "grpc",
        "rpc.service": "inference.GRPCInferenceService",
        "rpc.method": "ModelInfer",
        "rpc.grpc.status_code": 13,
        "error.type": "INTERNAL",
        "client.address": "127.0.0.1",
        "asyncexec.model": "bad",
        "asyncexec.version": "1",
    }
    assert failed.status.status_code is StatusCode.ERROR
    step, node = spans.named("asyncexec step"), spans.named("divide")
    assert step.context is not None
    assert (around(step), around(node)) == (failed.context.span_id, step.context.span_id)
    assert good.parent is None  # nobody said where it belongs
    assert (attributes(good)["rpc.grpc.status_code"], good.status.status_code) == (0, StatusCode.UNSET)


@pytest.mark.parametrize(
    ("method", "path", "body", "name", "status", "is_error"),
    [
        ("POST", "/v2/models/bad/infer", {"inputs": FAILS}, "POST /v2/models/{name}/infer", 500, True),
        ("POST", "/v2/models/m/infer", {"inputs": []}, "POST /v2/models/{name}/infer", 400, False),
        ("GET", "/v2/models/unknown", None, "GET /v2/models/{name}", 404, False),
        ("GET", "/unknown/path", None, "GET", 404, False),
        ("EVIL", "/unknown/path", None, "_OTHER", 404, False),
    ],
)
async def test_names_and_statuses(
    spans: Spans, method: str, path: str, body: Any, name: str, status: int, is_error: bool
) -> None:
    app = create_app({"m": sums(), "bad": failing()}, hooks=[spans.hook])
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.request(method, path, json=body)).status_code == status
    (server,) = spans.servers()
    assert (server.name, attributes(server)["http.response.status_code"]) == (name, status)
    assert attributes(server).get("error.type") == (str(status) if is_error else None)
    assert server.status.status_code is (StatusCode.ERROR if is_error else StatusCode.UNSET)


async def test_a_batch_is_linked_to_the_calls_that_it_runs_for(spans: Spans) -> None:
    config = {"max_batch_size": 2, "dynamic_batching": {"max_queue_delay_microseconds": 10_000_000}}
    app = create_app({"m": ModelSource(sums(), config=config)}, hooks=[spans.hook])
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        calls = [client.post("/v2/models/m/infer", json={"inputs": INPUTS}) for _ in range(2)]
        assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200, 200]
    every = {span.context.span_id: span for span in spans.all() if span.context is not None}
    (batch,) = [span for span in every.values() if attributes(span).get("asyncexec.kind") == "batch"]

    def server_of(span_id: int) -> int:
        span = every[span_id]
        return span_id if span.kind is SpanKind.SERVER else server_of(around(span))

    servers = {span.context.span_id for span in spans.servers() if span.context is not None}
    assert {server_of(link.context.span_id) for link in batch.links} == servers
    assert len(servers) == 2


@pytest.mark.parametrize("header", ["", "00-0-0-01", f"00-{0:032x}-{PARENT:016x}-01", "x" * 5000, "00-\n"])
async def test_a_caller_that_says_nonsense_is_no_parent(spans: Spans, header: str) -> None:
    app = create_app({"m": sums()}, hooks=[spans.hook])

    async def get(scope: Any, receive: Any, send: Any) -> None:
        scope["headers"] = [(b"traceparent", header.encode())]
        await app(scope, receive, send)

    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(get), base_url="http://test") as client:
        assert (await client.get("/v2/models/m")).status_code == 200
    assert spans.servers()[0].parent is None


PROGRAM = """
import sys
import httpx
import asyncexec as ax
from tests.service.models import sums

async def main():
    app = ax.service.create_app({"m": sums()})
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        await client.get("/v2/models/m")

ax.run(main)
print("opentelemetry.trace" in sys.modules)

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + chr(10))))
trace.set_tracer_provider(provider)
ax.run(main)
"""


def test_the_provider_of_the_process_is_used_and_nothing_is_imported_without_one() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\nGET /v2/models/{name}\n"
