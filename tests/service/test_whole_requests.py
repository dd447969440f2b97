"""Requests that come as a whole, of models whose runs are one call: answers that need no task, and those that do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest

import asyncexec as ax
from asyncexec.service.app import InferenceApp, create_app
from asyncexec.service.http.infer import Answer
from asyncexec.service.requests import InferRequest
from asyncexec.service.server import serving
from tests.service.http_models import calling, unary
from tests.service.models import model_of, rows, sums

RUNS = 12  # until a run is one call
TOKEN = {"Authorization": "Bearer t"}


def body(*values: float) -> bytes:
    given = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    return orjson.dumps({"inputs": [given]})


def scope(path: str = "/v2/models/m/infer", method: str = "POST", **headers: str) -> dict[str, Any]:
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": told}


async def warm(app: InferenceApp) -> None:
    """Have model "m" of *app* run often enough to be one call."""
    model = app.repository.model("m")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        while not isinstance(app.begin(scope(), body(1.0)), Answer):
            assert (await client.post("/v2/models/m/infer", content=body(1.0))).status_code == 200
            assert model.statistics.success.count < 100


async def test_what_runs_in_one_call_is_answered_at_once() -> None:
    async with create_app({"m": unary(ax.float32, [None], ax.identity)}) as app:
        await warm(app)
        counts, model = app.telemetry.counts.http, app.repository.model("m")
        ok, runs = counts.by_status[200], model.statistics.execution_count
        for path in ("/v2/models/m/infer", "/v2/models/m/versions/1/infer"):
            answer = app.begin(scope(path), body(2.0, 3.0))
            assert isinstance(answer, Answer)
            assert (answer.status, orjson.loads(answer.content)["outputs"][0]["data"]) == (200, [2.0, 3.0])
            assert (b"content-length", b"%d" % len(answer.content)) in answer.headers
        wrong = app.begin(scope(), b"{")
        assert isinstance(wrong, Answer)
        assert wrong.status == 400
        assert isinstance(app.begin(scope("/v2/models/n/infer"), body(1.0)), Answer)
        assert (counts.by_status[200], counts.by_status[400], counts.by_status[404]) == (ok + 2, 1, 1)
        assert model.statistics.execution_count == runs + 2


async def test_requests_that_the_app_has_to_look_at() -> None:
    async with create_app({"m": unary(ax.float32, [None], ax.identity)}, tokens=["t"], max_body_bytes=1000) as app:
        refused = [
            scope(),
            scope(authorization="Bearer other"),
            scope(authorization="Bearer t", sec_fetch_site="cross-site"),
            scope(authorization="Bearer t", content_encoding="gzip"),
            scope("/v2/models/m", authorization="Bearer t"),
            scope("/v2/models/m/infer", "GET", authorization="Bearer t"),
            scope("/v2/models//infer", authorization="Bearer t"),
        ]
        assert [app.begin(each, body(1.0)) for each in refused] == [None] * len(refused)
        assert app.begin(scope(authorization="Bearer t"), b" " * 1001) is None
        assert app.begin(scope(authorization="Bearer t"), body(1.0)) is not None


async def test_nothing_is_answered_at_once_before_the_models_are_loaded() -> None:
    app = create_app({"m": unary(ax.float32, [None], ax.identity)})
    assert app.begin(scope(), body(1.0)) is None
    async with app:
        assert app.begin(scope(), body(1.0)) is not None
    assert app.begin(scope(), body(1.0)) is None


@pytest.mark.allow_blocking
@pytest.mark.parametrize("is_async", [False, True])
async def test_functions_of_users_are_called_by_a_task(is_async: bool) -> None:
    async def later(x: Any) -> Any:
        assert asyncio.current_task() is not None
        return x

    def now(x: Any) -> Any:
        assert asyncio.current_task() is not None
        return x

    graph = calling(later if is_async else now)  # type: ignore[arg-type]
    given = orjson.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [], "data": [1.0]}]})
    async with serving({"m": graph}, http_port=0, grpc_port=None) as ports, httpx.AsyncClient() as client:
        for _ in range(RUNS):
            response = await client.post(f"http://127.0.0.1:{ports.http}/v2/models/m/infer", content=given)
            assert response.status_code == 200, response.text


@pytest.mark.allow_blocking
@pytest.mark.parametrize("count", [2, 1000, 40_000])
async def test_a_model_runs_once_for_each_request_whatever_becomes_of_its_answer(count: int) -> None:
    """The answers are small, compressed, and encoded on a thread."""
    graph = unary(ax.float32, [None], lambda x, name: ax.tile(x, [count], name=name))
    async with serving({"m": graph}, http_port=0, grpc_port=None) as ports, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{ports.http}/v2/models/m"
        for number in range(RUNS):
            response = await client.post(f"{url}/infer", content=body(number), headers={"Accept-Encoding": "gzip"})
            assert response.json()["outputs"][0]["data"] == [number] * count
            assert ("content-encoding" in response.headers) == (count > 2)
        stats = (await client.get(f"{url}/stats")).json()["model_stats"][0]
        assert (stats["inference_count"], stats["execution_count"]) == (RUNS, RUNS)


@pytest.mark.allow_blocking
async def test_many_requests_at_once_are_answered_in_their_order() -> None:
    count = 300
    async with serving({"m": unary(ax.float32, [None], ax.identity)}, http_port=0, grpc_port=None) as ports:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
        for number in range(count):
            given = body(number)
            last = b"Connection: close\r\n" if number == count - 1 else b""
            head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n" % (last, len(given))
            writer.write(head + given)
        answers = (await reader.read()).split(b"HTTP/1.1 200 OK\r\n")[1:]
        writer.close()
    told = [orjson.loads(answer.partition(b"\r\n\r\n")[2])["outputs"][0]["data"] for answer in answers]
    assert told == [[number] for number in range(count)]
    assert [b"connection: close" in answer for answer in answers] == [False] * (count - 1) + [True]


async def test_models_whose_calls_need_more_than_a_run_do_not_answer_at_once() -> None:
    for config in ({"dynamic_batching": {}}, {"instance_group": [{"count": 1}]}):
        model = model_of(sums(), max_batch_size=4, **config)
        request = InferRequest("m", {"x": rows(1), "y": rows(2)})
        for _ in range(RUNS):
            assert model.answer_at_once(request) is None
            await model.infer(request)
        await model.close()
