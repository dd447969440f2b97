"""The log: a line for each call, what is never in it, and that clients cannot forge it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import pytest

import asyncexec as ax
from asyncexec.service.observing.log_lines import ACCESS, JsonLines, TextLines, escaped
from asyncexec.service.protocol_messages import message
from asyncexec.service.server import Ports, serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums, until
from tests.service.test_server import FREE, INPUTS, call, url

pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library", "no_lingering")]

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACE_PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SECRET = "s3cret"


class Log:
    """What is logged by the service, in both forms."""

    def __init__(self) -> None:
        self.texts, self.objects = io.StringIO(), io.StringIO()
        self.handlers = [logging.StreamHandler(self.texts), logging.StreamHandler(self.objects)]
        for handler, formatter in zip(self.handlers, (TextLines(), JsonLines()), strict=True):
            handler.setFormatter(formatter)

    @property
    def lines(self) -> list[str]:
        return self.texts.getvalue().split("\n")[:-1]

    @property
    def calls(self) -> list[dict[str, Any]]:
        every = [json.loads(line) for line in self.objects.getvalue().splitlines()]
        return [each for each in every if each["logger"] == ACCESS.name]


@pytest.fixture
def log() -> Iterator[Log]:
    found, logger, level = Log(), logging.getLogger("asyncexec.service"), ACCESS.level
    for handler in found.handlers:
        logger.addHandler(handler)
    logger.propagate = False
    ACCESS.setLevel(logging.INFO)
    yield found
    ACCESS.setLevel(level)
    logger.propagate = True
    for handler in found.handlers:
        logger.removeHandler(handler)


def failing() -> ax.Graph:
    @ax.op
    async def divide(x: float) -> float:
        raise ZeroDivisionError("nothing\nto divide by")

    with ax.Graph() as graph:
        divide(ax.placeholder(ax.float64, [], name="x"), name="divide")
    return graph


FAILS = [{"name": "x", "datatype": "FP64", "shape": [], "data": [1.5]}]


@asynccontextmanager
async def service(**options: Any) -> AsyncIterator[tuple[Ports, httpx.AsyncClient]]:
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums(), "bad": failing()}, **FREE, tokens=[SECRET], **options) as ports,
        httpx.AsyncClient(base_url=url(ports), headers={"Authorization": f"Bearer {SECRET}"}) as client,
    ):
        yield ports, client


async def test_a_line_for_each_call_over_http(log: Log) -> None:
    async with service() as (_, client):
        headers = {"traceparent": TRACE_PARENT, "tracestate": "a=b"}
        answer = await client.post("/v2/models/m/infer?q=1", json={"inputs": INPUTS}, headers=headers)
        sent = len(answer.request.content)
    (line,) = log.calls
    assert line.pop("duration_ms") > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "INFO",
        "logger": "asyncexec.service.access",
        "protocol": "http",
        "method": "POST",
        "route": "/v2/models/{name}/infer",
        "status": 200,
        "bytes_in": sent,
        "bytes_out": len(answer.content),
        "client": "127.0.0.1",
        "trace_id": TRACE,
        "model": "m",
        "version": "1",
    }
    (text,) = log.lines
    assert "INFO asyncexec.service.access: protocol=http method=POST route=/v2/models/{name}/infer status=200" in text


async def test_a_line_for_each_call_over_grpc(log: Log) -> None:
    async with service() as (ports, _):
        metadata = [("authorization", f"Bearer {SECRET}"), ("traceparent", TRACE_PARENT)]
        request = message("ModelReadyRequest")(name="m")
        await call(ports, "ModelReady", request, "ModelReadyResponse", metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError):
            await call(ports, "ModelReady", request, "ModelReadyResponse")
        await until(lambda: len(log.calls) == 2)
    good, refused = log.calls
    assert good["method"] == refused["method"] == "/inference.GRPCInferenceService/ModelReady"
    assert (good["protocol"], good["status"], good["bytes_in"], good["client"]) == ("grpc", "OK", 3, "127.0.0.1")
    assert good["trace_id"] == TRACE
    assert (refused["status"], refused["level"]) == ("UNAUTHENTICATED", "INFO")
    assert "trace_id" not in refused


async def test_what_fails_names_the_model_and_the_node(log: Log) -> None:
    async with service() as (ports, client):
        assert (await client.post("/v2/models/bad/infer", json={"inputs": FAILS})).status_code == 500
        request = message("ModelInferRequest")(model_name="bad", raw_input_contents=[bytes(8)])
        request.inputs.add(name="x", datatype="FP64")
        metadata = [("authorization", f"Bearer {SECRET}")]
        with pytest.raises(grpc.aio.AioRpcError):
            await call(ports, "ModelInfer", request, "ModelInferResponse", metadata=metadata)
        await until(lambda: len(log.calls) == 2)
    for line in log.calls:
        assert (line["level"], line["model"], line["version"], line["node"]) == ("WARNING", "bad", "1", "divide")
        assert line["error"].endswith("ZeroDivisionError: nothing to divide by")
    assert [line["status"] for line in log.calls] == [500, "INTERNAL"]


async def test_a_mistake_of_a_caller_is_no_fault_and_not_repeated(log: Log) -> None:
    async with service() as (_, client):
        inputs = [{"name": "my private input", "datatype": "FP32", "shape": [1], "data": [1]}]
        answer = await client.post("/v2/models/m/infer", json={"inputs": inputs})
        assert "my private input" in answer.text
    (line,) = log.calls
    assert (line["status"], line["level"], line["code"]) == (400, "INFO", "INVALID_ARGUMENT")
    assert "private" not in log.texts.getvalue() + log.objects.getvalue()


async def test_what_the_service_cannot_do_is_no_fault_of_it(log: Log) -> None:
    async with service() as (ports, client):
        assert (await client.post("/v2/repository/models/m/unload")).status_code == 501
        metadata = [("authorization", f"Bearer {SECRET}")]
        request = message("RepositoryModelUnloadRequest")(model_name="m")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(ports, "RepositoryModelUnload", request, "RepositoryModelUnloadResponse", metadata=metadata)
        await until(lambda: len(log.calls) == 2)
    assert [(line["status"], line["level"]) for line in log.calls] == [(501, "INFO"), ("UNIMPLEMENTED", "INFO")]


async def test_bodies_and_tokens_are_not_logged(log: Log) -> None:
    async with service() as (ports, client):
        inputs = [{**each, "data": [41424344.0] * 3} for each in INPUTS]
        await client.post("/v2/models/m/infer", json={"inputs": inputs, "id": "41424344"})
        await client.post("/v2/models/m/infer", content=b'{"inputs": "41424344')
        await client.get("/v2?token=41424344", headers={"Authorization": "Bearer 41424344"})
        for path in ("/v2/models/bad/infer", "/v2/logging", "/v2/trace/setting"):
            await client.post(path, json={"inputs": [{**FAILS[0], "data": [41424344.0]}]})
        request = message("ModelReadyRequest")(name="m")
        metadata = [("authorization", "Bearer 41424344")]
        with pytest.raises(grpc.aio.AioRpcError):
            await call(ports, "ModelReady", request, "ModelReadyResponse", metadata=metadata)
        await until(lambda: len(log.calls) == 7)
    logged = log.texts.getvalue() + log.objects.getvalue()
    assert "41424344" not in logged
    assert SECRET not in logged


EVIL = "/v2/x%0A2026-01-01%20INFO%20asyncexec.service:%20all%20is%20well%0D%1B[31m%E2%80%AEstatus=200"


async def test_a_client_cannot_write_lines_of_its_own(log: Log) -> None:
    async with service() as (_, client):
        assert (await client.get(EVIL)).status_code == 404
        headers = {"traceparent": f"00-{TRACE[:-1]}\t-b7ad6b7169203331-01"}
        assert (await client.get("/v2", headers=headers)).status_code == 200
        assert (await client.get("/v2/" + "x" * 5000)).status_code == 404
    evil, plain, long = log.lines
    assert 'route="/v2/x\\\\n2026-01-01 INFO asyncexec.service: all is well\\\\r\\\\x1b[31m\\\\u202estatus=200"' in evil
    assert "trace_id" not in plain
    assert len(long) < 600
    assert log.calls[0]["route"].startswith("/v2/x\n2026")  # JSON escapes it
    assert len(log.objects.getvalue().splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("a\nb\r\x00\x1b[0m\x7f\x85\x9b", "a\\nb\\r\\x00\\x1b[0m\\x7f\\x85\\x9b"),
        ("\u2028\u2029\u202e\u2066", "\\u2028\\u2029\\u202e\\u2066"),
        ("\ud800", "\\ud800"),
        ("größe", "größe"),
    ],
)
def test_what_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_where_an_exception_was_raised_is_indented() -> None:
    try:
        raise ValueError("a\n2026-01-01 00:00:00 INFO root: forged\x1b")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("name", logging.ERROR, "path", 1, "it\nfailed", (), info)
    first, *others = TextLines().format(record).split("\n")
    assert first.endswith("ERROR name: it\\nfailed")
    assert all(line.startswith("  ") for line in others)
    assert others[-1] == "  2026-01-01 00:00:00 INFO root: forged\\x1b"
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["level"]) == ("it\nfailed", "ERROR")
    assert line["exception"].startswith("Traceback")


@pytest.mark.parametrize(("level", "count"), [(logging.CRITICAL, 0), (logging.WARNING, 1), (logging.INFO, 2)])
async def test_nothing_is_made_where_nothing_is_logged(log: Log, level: int, count: int) -> None:
    ACCESS.setLevel(level)
    made: list[logging.LogRecord] = []
    factory = logging.getLogRecordFactory()

    def make(*args: Any, **options: Any) -> logging.LogRecord:
        made.append(factory(*args, **options))
        return made[-1]

    logging.setLogRecordFactory(make)
    try:
        async with service() as (_, client):
            await client.post("/v2/models/m/infer", json={"inputs": INPUTS})
            await client.post("/v2/models/bad/infer", json={"inputs": FAILS})
    finally:
        logging.setLogRecordFactory(factory)
    assert len([record for record in made if record.name == ACCESS.name]) == count


async def test_a_client_that_goes_is_logged_as_one(log: Log) -> None:
    begun = asyncio.Event()

    @ax.op
    async def wait(x: float) -> float:
        begun.set()
        await asyncio.Event().wait()
        return x

    with ax.Graph() as graph:
        wait(ax.placeholder(ax.float64, [], name="x"))
    async with (
        nothing_of_grpc_left(),
        serving({"slow": graph}, **FREE) as ports,
        httpx.AsyncClient(base_url=url(ports)) as client,
    ):
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v2/models/slow/infer", json={"inputs": FAILS}, timeout=0.5)
        await begun.wait()
        await until(lambda: len(log.calls) == 1)
    assert (log.calls[0]["status"], log.calls[0]["level"]) == (499, "INFO")
