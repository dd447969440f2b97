"""Requests that come as a whole, of models whose runs are one call: answers that need no task, and those that do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest

import asyncexec as ax
from asyncexec.service.app import InferenceApp, create_app
from asyncexec.service.http.infer import Answer, Waiting
from asyncexec.service.models.files import ModelSource
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


class Batched:
    """A model whose batches of two wait until *go* is set; *ran* has the numbers of those that have begun."""

    def __init__(self, **batching: Any) -> None:
        self.ran: list[list[float]] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()

        @ax.op(outputs=[ax.float32])
        async def work(x: Any) -> Any:
            self.ran.append(x.tolist())
            self.begun.set()
            await self.go.wait()
            if x[0] == 9:
                raise ValueError("nine")
            return x

        with ax.Graph() as graph:
            ax.identity(work(ax.placeholder(ax.float32, [None], name="x")), name="y")
        self.source = ModelSource(graph, config={"max_batch_size": 2, "dynamic_batching": batching})


def waiting(app: InferenceApp, number: float) -> Waiting:
    """A call that *app* has begun."""
    found = app.begin(scope(), body(number))
    assert isinstance(found, Waiting)
    return found


def told(found: object) -> Any:
    assert isinstance(found, Answer)
    document = orjson.loads(found.content)
    return document["outputs"][0]["data"] if found.status == 200 else document["error"]


LONG = {"max_queue_delay_microseconds": 1_000_000_000}


async def test_what_waits_for_its_batch_needs_no_task() -> None:
    batched = Batched(**LONG)
    async with create_app({"m": batched.source}) as app:
        tasks, model, counts = asyncio.all_tasks(), app.repository.model("m"), app.telemetry.counts.http
        one = waiting(app, 1)
        assert (asyncio.all_tasks(), model.num_waiting, counts.under_way) == (tasks, 1, 1)
        two = waiting(app, 2)
        batched.go.set()
        await asyncio.wait([one.outcome, two.outcome])
        assert [told(one.answer()), told(two.answer())] == [[1.0], [2.0]]
        done = model.statistics
        assert (done.success.count, done.execution_count, done.batch_stats()[2]["compute_infer"].count) == (2, 1, 1)
        assert (counts.under_way, counts.by_status[200], model.num_waiting) == (0, 2, 0)


async def test_who_leaves_takes_its_rows_out_of_the_batch() -> None:
    batched = Batched(**LONG)
    async with create_app({"m": batched.source}) as app:
        model = app.repository.model("m")
        gone = waiting(app, 1)
        gone.outcome.cancel()
        with pytest.raises(asyncio.CancelledError):
            gone.answer()
        one, two = waiting(app, 2), waiting(app, 3)
        batched.go.set()
        await asyncio.wait([one.outcome, two.outcome])
        assert [told(one.answer()), told(two.answer()), batched.ran] == [[2.0], [3.0], [[2.0, 3.0]]]
        assert (model.statistics.cancel.count, model.statistics.success.count) == (1, 2)
        assert app.telemetry.counts.http.by_status[499] == 1


async def test_a_batch_that_fails_and_a_queue_that_is_full() -> None:
    batched = Batched(**LONG, default_queue_policy={"max_queue_size": 2})
    async with create_app({"m": batched.source}) as app:
        failing = [waiting(app, 9), waiting(app, 1)]
        asked = [waiting(app, 2), waiting(app, 3)]
        refused = app.begin(scope(), body(4))
        assert isinstance(refused, Answer)
        assert (refused.status, "Exceeds maximum queue size" in told(refused)) == (503, True)
        batched.go.set()
        await asyncio.wait([each.outcome for each in (*failing, *asked)])
        assert ["nine" in told(each.answer()) for each in failing] == [True, True]
        assert [told(each.answer()) for each in asked] == [[2.0], [3.0]]
        assert app.repository.model("m").statistics.failures["REJECTED"] == 1


async def test_a_model_is_closed_when_the_last_batch_has_ended() -> None:
    batched = Batched()
    app = create_app({"m": batched.source})
    await app.start()
    call = waiting(app, 1)
    await batched.begun.wait()
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    batched.go.set()
    await asyncio.wait([call.outcome])
    assert told(call.answer()) == [1.0]
    await closing


async def test_requests_of_batches_that_need_a_task() -> None:
    batched = Batched()
    batched.go.set()
    async with (
        create_app({"m": batched.source}) as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client,
    ):
        given = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
        for more in (
            {"parameters": {"timeout": 9_000_000}},
            {"outputs": [{"name": "y", "parameters": {"classification": 1}}]},
        ):
            content = orjson.dumps({**given, **more})
            assert not isinstance(app.begin(scope(), content), (Answer, Waiting))
            assert (await client.post("/v2/models/m/infer", content=content)).status_code == 200


async def post(port: int, number: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    given = body(number)
    writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(given), given))
    return reader, writer


@pytest.mark.allow_blocking
async def test_a_client_that_goes_leaves_its_batch() -> None:
    batched = Batched(**LONG)
    async with serving({"m": batched.source}, http_port=0, grpc_port=None) as ports:
        gone = await post(ports.http, 1)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}/v2/models/m") as client:
            await until_pending(client, 1)
            gone[1].close()
            await until_pending(client, 0)
        others = [await post(ports.http, number) for number in (2, 3)]
        batched.go.set()
        for reader, writer in others:
            assert (await reader.readline()).split()[1] == b"200"
            writer.close()
    assert [sorted(rows) for rows in batched.ran] == [[2.0, 3.0]]


async def until_pending(client: httpx.AsyncClient, count: int) -> None:
    """Wait until so many calls wait for their batch."""
    sought = f'nv_inference_pending_request_count{{model="m",version="1"}} {count}'
    while sought not in (await client.get(client.base_url.join("/metrics"))).text:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.allow_blocking
async def test_a_server_that_ends_tells_those_who_wait_for_a_batch() -> None:
    batched = Batched()
    async with serving({"m": batched.source}, http_port=0, grpc_port=None, drain_s=0.1) as ports:
        reader, writer = await post(ports.http, 1)
        await batched.begun.wait()
    answer = await reader.read()
    writer.close()
    assert answer.split()[1] == b"503"
    assert b"the service ended before the request did" in answer
