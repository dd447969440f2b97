"""Triton's trace extension: its settings over both protocols, which requests are traced, and what is in the files."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from asyncexec.service.app import create_app
from asyncexec.service.models.files import ModelSource
from asyncexec.service.observing.traces import Traces
from asyncexec.service.protocol_messages import message
from asyncexec.service.requests import InferRequest
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums, until
from tests.service.test_access_log import FAILS, failing
from tests.service.test_server import FREE, INPUTS, call, url

pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library", "no_lingering")]

DEFAULTS = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "trace.json",
    "trace_mode": "triton",
}
EVERY = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
FIXED = "trace file location can not be updated through network protocol"


@asynccontextmanager
async def client_of(file: Path | None, **models: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app({"m": sums(), **models}, trace_file=file)
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def change(client: httpx.AsyncClient, settings: Any, model: str = "") -> Any:
    path = f"/v2/models/{model}/trace/setting" if model else "/v2/trace/setting"
    answer = await client.post(path, json=settings)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def infer(client: httpx.AsyncClient, **fields: Any) -> None:
    assert (await client.post("/v2/models/m/infer", json={"inputs": INPUTS, **fields})).status_code == 200


def events_in(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text())
    assert set(document) == {"traceEvents", "displayTimeUnit"}
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def titles(events: list[dict[str, Any]]) -> list[str]:
    return [event["args"]["name"] for event in events if event["name"] == "process_name"]


async def test_settings_of_all_and_of_one_model(tmp_path: Path) -> None:
    async with client_of(tmp_path / "trace.json") as client:
        for path in ("/v2/trace/setting", "/v2/models/m/trace/setting"):
            assert (await client.get(path)).json() == DEFAULTS
        assert await change(client, {"trace_rate": "12", "log_frequency": "34"}, "m") == {
            **DEFAULTS,
            "trace_rate": "12",
            "log_frequency": "34",
        }
        levels = ["TIMESTAMPS", "TENSORS"]
        changed = {**DEFAULTS, "trace_level": levels, "trace_rate": "56", "trace_count": "78"}
        new = {"trace_rate": "56", "trace_count": "78", "trace_level": levels}
        assert await change(client, new) == changed
        of_model = (await client.get("/v2/models/m/trace/setting")).json()
        assert of_model == {**changed, "trace_rate": "12", "log_frequency": "34"}
        assert await change(client, {"trace_rate": None, "trace_count": None, "trace_level": None}) == DEFAULTS
        cleared = await change(client, {"trace_rate": None, "log_frequency": None}, "m")
        assert cleared == DEFAULTS
        assert await change(client, {}) == DEFAULTS


@pytest.mark.parametrize(
    ("settings", "status", "told"),
    [
        ({"trace_file": "/etc/passwd"}, 501, FIXED),
        ({"trace_file": None}, 501, FIXED),
        ({"trace_rate": "2", "trace_file": "trace.json"}, 501, FIXED),
        ({"trace_level": ["OFF", "TENSORS"]}, 400, "Expect only one trace level 'OFF'"),
        ({"trace_level": ["ALL"]}, 400, "TIMESTAMPS"),
        ({"trace_level": []}, 400, "TIMESTAMPS"),
        ({"trace_level": "OFF"}, 400, "array of strings"),
        ({"trace_level": [1]}, 400, "array of strings"),
        ({"trace_rate": 1}, 400, "'trace_rate' is a string"),
        ({"trace_rate": "0"}, 400, "'trace_rate' is a number from 1"),
        ({"trace_rate": "x" * 1000}, 400, "'trace_rate' is a number"),
        ({"trace_rate": "9" * 5000}, 400, "'trace_rate' is a number"),
        ({"trace_rate": "²"}, 400, "'trace_rate' is a number"),
        ({"trace_rate": "2", "trace_count": "-2"}, 400, "'trace_count' is a number from -1"),
        ({"log_frequency": "-1"}, 400, "'log_frequency' is a number from 0"),
        ({"log_frequency": "4294967296"}, 400, "'log_frequency' is a number"),
        ({"trace_mode": "opentelemetry"}, 400, "trace_mode"),
        ({"unknown": "1"}, 400, "there is no trace setting 'unknown'"),
        ([], 400, ""),
    ],
)
async def test_what_is_no_setting(tmp_path: Path, settings: Any, status: int, told: str) -> None:
    async with client_of(tmp_path / "trace.json") as client:
        answer = await client.post("/v2/trace/setting", json=settings)
        assert answer.status_code == status
        assert told in answer.json()["error"]
        assert (await client.get("/v2/trace/setting")).json() == DEFAULTS
        unknown = await client.post("/v2/models/unknown/trace/setting", json=settings)
        assert (unknown.status_code, unknown.json()["error"]) == (400, "Request for unknown model : unknown")
    assert await asyncio.to_thread(os.listdir, tmp_path) == []


async def test_nothing_is_traced_without_a_file() -> None:
    async with client_of(None) as client:
        answer = await client.post("/v2/trace/setting", json=EVERY)
        assert answer.status_code == 400
        assert "there is no file for traces" in answer.json()["error"]
        assert await change(client, {"trace_rate": "5"}) == {**DEFAULTS, "trace_file": "", "trace_rate": "5"}


async def test_settings_over_grpc(tmp_path: Path) -> None:
    async def ask(**fields: Any) -> dict[str, list[str]]:
        made = message("TraceSettingRequest")(model_name=fields.pop("model_name", ""))
        for name, values in fields.items():
            made.settings[name].value.extend(values)
        answer = await call(ports, "TraceSetting", made, "TraceSettingResponse")
        return {name: list(each.value) for name, each in answer.settings.items()}

    defaults = {name: value if isinstance(value, list) else [value] for name, value in DEFAULTS.items()}
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums()}, **FREE, trace_file=tmp_path / "trace.json") as ports,
        httpx.AsyncClient(base_url=url(ports)) as client,
    ):
        assert await ask() == defaults
        levels = ["TIMESTAMPS", "TENSORS"]
        assert await ask(model_name="m", trace_level=levels, trace_rate=["7"]) == {
            **defaults,
            "trace_level": levels,
            "trace_rate": ["7"],
        }
        assert (await client.get("/v2/models/m/trace/setting")).json()["trace_rate"] == "7"
        assert await ask(model_name="m", trace_rate=[], trace_level=[]) == defaults
        refused = {
            "trace_file": (["x"], grpc.StatusCode.UNIMPLEMENTED),
            "trace_rate": (["1", "2"], grpc.StatusCode.INVALID_ARGUMENT),
            "trace_level": (["ON"], grpc.StatusCode.INVALID_ARGUMENT),
            "model_name": ("unknown", grpc.StatusCode.INVALID_ARGUMENT),
        }
        for name, (value, status) in refused.items():
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ask(**{name: value})
            assert raised.value.code() is status


async def test_the_timeline_of_a_request_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with client_of(file) as client:
        await infer(client)  # before it is on
        await change(client, EVERY)
        await infer(client, id="first")
        await infer(client, id="second")
        assert not file.exists()
    events = await asyncio.to_thread(events_in, file)
    assert titles(events) == ["m 1, request first", "m 1, request second"]
    for pid in (0, 1):
        spans = {event["name"]: event for event in events if event["pid"] == pid and event["ph"] == "X"}
        whole = spans["request"]
        begin, end = whole["ts"], whole["ts"] + whole["dur"]
        assert {"queue", "compute_input", "compute_infer", "compute_output"} < set(spans)
        for span in spans.values():
            assert span["ts"] >= begin - 1000  # times of nodes are by two clocks
            assert span["ts"] + span["dur"] <= end + 1000
        parts = ("queue", "compute_input", "compute_infer", "compute_output")
        assert sum(spans[name]["dur"] for name in parts) == pytest.approx(whole["dur"], abs=0.01)
        assert {event.get("args", {}).get("op") for event in spans.values()} >= {"AddV2", "Sub"}
        assert whole["args"] == {"rows of the run": 1}


async def test_tensors_are_told_without_their_values(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with client_of(file) as client:
        await change(client, {"trace_level": ["TENSORS"], "trace_rate": "1"})
        await infer(client)
    events = await asyncio.to_thread(events_in, file)
    (args,) = [event["args"] for event in events if event["name"] == "request"]
    assert args["inputs"] == ["x: FP32 [1, 3]", "y: FP32 [1, 3]"]
    assert args["outputs"] == ["sum: FP32 [1, 3]", "diff: FP32 [1, 3]"]
    assert not any(event["cat"] == "Op" for event in events if event["ph"] == "X")


async def test_a_request_that_fails_is_told(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with client_of(file, bad=failing()) as client:
        await change(client, EVERY, "bad")
        await infer(client)  # of another model
        assert (await client.post("/v2/models/bad/infer", json={"inputs": FAILS})).status_code == 500
    events = await asyncio.to_thread(events_in, file)
    assert titles(events) == ["bad 1"]
    (whole,) = [event for event in events if event["name"] == "request"]
    assert "ZeroDivisionError" in whole["args"]["failure"]
    assert any("failed" in event["name"] for event in events)


async def test_a_batch_tells_when_its_run_began(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    config = {"max_batch_size": 2, "dynamic_batching": {"max_queue_delay_microseconds": 10_000_000}}
    async with client_of(file, m=ModelSource(sums(), config=config)) as client:
        await change(client, EVERY)
        await asyncio.gather(infer(client), infer(client))
    events = await asyncio.to_thread(events_in, file)
    assert [event["args"] for event in events if event["name"] == "request"] == [{"rows of the run": 2}] * 2
    begins = {event["ts"] for event in events if event["name"] == "compute_infer"}
    assert len(begins) == 1  # one run
    for pid in (0, 1):
        ops = {event.get("args", {}).get("op") for event in events if event["pid"] == pid and event["ph"] == "X"}
        assert {"AddV2", "Sub"} <= ops


async def test_every_so_many_requests_and_so_many_in_all(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with client_of(file) as client:
        await change(client, {**EVERY, "trace_rate": "3", "trace_count": "2"})
        for i in range(1, 12):
            await infer(client, id=str(i))
        assert (await client.get("/v2/trace/setting")).json()["trace_count"] == "0"
    events = await asyncio.to_thread(events_in, file)
    assert titles(events) == ["m 1, request 3", "m 1, request 6"]


async def test_files_are_written_as_often_as_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with client_of(file) as client:
        await change(client, {**EVERY, "log_frequency": "2"})
        for i in range(5):
            await infer(client, id=str(i))
    found = {name: titles(events_in(tmp_path / name)) for name in await asyncio.to_thread(os.listdir, tmp_path)}
    requests = [f"m 1, request {i}" for i in range(5)]
    assert found == {"trace.json": requests[4:], "trace.json.0": requests[:2], "trace.json.1": requests[2:4]}


async def test_clients_cannot_fill_memory_or_disk(tmp_path: Path) -> None:
    traces, request = Traces(tmp_path / "trace.json"), InferRequest("m", {})
    traces.update({"trace_level": ["TENSORS"], "trace_rate": ["1"]})
    for _ in range(3000):
        trace = traces.sample("m", "1", request)
        if trace is not None:
            trace.fail(ValueError())
    traces.update({"log_frequency": ["1"]})
    await traces.close()
    assert len(titles(await asyncio.to_thread(events_in, tmp_path / "trace.json"))) == 1000
    for _ in range(300):
        trace = traces.sample("m", "1", request)
        assert trace is not None
        trace.fail(ValueError())
    await traces.close()
    assert len(await asyncio.to_thread(os.listdir, tmp_path)) <= 101


async def test_a_file_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(tmp_path / "missing" / "trace.json") as client:
        await change(client, {**EVERY, "log_frequency": "1"})
        await infer(client)
        await until(lambda: "traces cannot be written" in caplog.text)
        await infer(client)
