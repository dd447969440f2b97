"""The service on its ports: both protocols beside each other, tokens, TLS, metrics, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service import server
from asyncexec.service.app import create_app
from asyncexec.service.http import server as http_server
from asyncexec.service.http.server import BoundedProtocol, HttpServer
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.server import Ports, serve, serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import rows, sums, write_model
from tests.service.test_model import waiting

# uvicorn closes its sockets in the loop
pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library")]

FREE: dict[str, Any] = {"http_port": 0, "grpc_port": 0}
INPUTS = [
    {"name": name, "datatype": "FP32", "shape": [1, 3], "data": rows(5 - 3 * i).array.ravel().tolist()}
    for i, name in enumerate(("x", "y"))
]


def url(ports: Ports) -> str:
    return f"http://127.0.0.1:{ports.http}"


async def call(ports: Ports, name: str, request: Any, answer: str, **options: Any) -> Any:
    """What the gRPC call *name* gives."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        made = channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=message(answer).FromString,
        )
        return await made(request, **options)


async def test_both_protocols_serve_the_same_models() -> None:
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums()}, **FREE) as ports,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(f"{url(ports)}/v2/models/m/infer", json={"inputs": INPUTS})
        assert [each["data"] for each in answer.json()["outputs"]] == [[7.0] * 3, [3.0] * 3]
        ready = await call(ports, "ModelReady", message("ModelReadyRequest")(name="m"), "ModelReadyResponse")
        assert ready.ready
        metrics = (await client.get(f"{url(ports)}/metrics")).text
    assert 'nv_inference_request_success{model="m",version="1"} 1.0' in metrics
    assert 'nv_inference_count{model="m",version="1"} 1.0' in metrics
    assert 'asyncexec_running_steps{model="m",version="1"} 0.0' in metrics


@pytest.mark.parametrize("host", ["a..b", "fe80::1%none", "x" * 300])
async def test_an_address_that_is_none(host: str) -> None:
    with pytest.raises(ax.errors.UnavailableError, match=f"cannot listen to {host}:8000: there is no such address"):
        async with serving({"m": sums()}, host=host):
            pass


async def test_tokens_are_asked_for_on_both_ports() -> None:
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tokens": ["first", "second"]}
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums()}, **options) as ports,
        httpx.AsyncClient(base_url=url(ports)) as client,
    ):
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert (await client.get(path)).status_code == 200
        for path in (
            "/v2",
            "/v2/models/m",
            "/metrics",
            "/live/events",
            "/live/models/m/versions/1",
            "/v2/health/live/x",
        ):
            refused = await client.get(path)
            assert (refused.status_code, refused.json()) == (401, {"error": "unauthorized"})
        for header in ("second", "Bearer", "Bearer third", "Basic second", "Bearer secondx"):
            assert (await client.get("/v2", headers={"Authorization": header})).status_code == 401
        assert (await client.get("/v2", headers={"Authorization": "Bearer second"})).status_code == 200
        live = message("ServerLiveRequest")()
        assert (await call(ports, "ServerLive", live, "ServerLiveResponse")).live
        asked = message("ServerMetadataRequest")()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(ports, "ServerMetadata", asked, "ServerMetadataResponse")
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        metadata = [("authorization", "Bearer first")]
        assert (await call(ports, "ServerMetadata", asked, "ServerMetadataResponse", metadata=metadata)).name


async def test_a_request_that_the_end_does_not_wait_for_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    begun, never = asyncio.Event(), asyncio.Event()
    inputs = [{"name": "x", "datatype": "FP64", "shape": [], "data": [1.5]}]
    async with httpx.AsyncClient() as client:
        async with nothing_of_grpc_left(), serving({"m": waiting(begun, never)}, **FREE, drain_s=0) as ports:
            asked = asyncio.create_task(client.post(f"{url(ports)}/v2/models/m/infer", json={"inputs": inputs}))
            await begun.wait()
        answer = await asked
    assert (answer.status_code, answer.json()) == (503, {"error": "the service ended before the request did"})
    assert not any(record.exc_info for record in caplog.records)


def test_requests_may_have_less_than_a_second_to_end() -> None:
    assert HttpServer(None, None, None, 0.5, 1).config.timeout_graceful_shutdown == 0.5


async def test_requests_under_way_are_answered_at_the_end() -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    inputs = [{"name": "x", "datatype": "FP64", "shape": [], "data": [1.5]}]
    async with httpx.AsyncClient() as client:
        async with nothing_of_grpc_left(), serving({"m": waiting(begun, released)}, **FREE) as ports:
            asked = asyncio.create_task(client.post(f"{url(ports)}/v2/models/m/infer", json={"inputs": inputs}))
            await begun.wait()
            asyncio.get_running_loop().call_soon(released.set)
        answer = await asked
        assert answer.json()["outputs"][0]["data"] == [1.5]
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{url(ports)}/v2")


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with nothing_of_grpc_left():
            with pytest.raises(ax.errors.UnavailableError, match=f"cannot listen to 127.0.0.1:{port}"):
                await serve({"m": sums()}, http_port=port, grpc_port=None)
            with pytest.raises(ax.errors.UnavailableError, match=f"cannot listen to 127.0.0.1:{port}"):
                await serve({"m": sums()}, http_port=0, grpc_port=port)


async def test_an_app_loads_its_models_with_the_first_request() -> None:
    app = create_app({"m": sums()})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answers = await asyncio.gather(*[client.get("/v2/models/m/ready") for _ in range(5)])
    assert {answer.status_code for answer in answers} == {200}
    await app.close()


async def test_an_app_in_another_one() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async with create_app({"m": sums()}, tokens=["t"]) as service:
        outer = Starlette(routes=[Mount("/models", service)])
        headers = {"Authorization": "Bearer t"}
        transport = httpx.ASGITransport(outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://test/models", headers=headers) as client:
            answer = await client.post("/v2/models/m/infer", json={"inputs": INPUTS})
            assert answer.json()["outputs"][1]["data"] == [3.0] * 3
            assert b"nv_inference_count" in (await client.get("/metrics")).content


async def told(port: int, *parts: bytes) -> bytes:
    """What the server answers to *parts*, until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b"closed"
    finally:
        writer.close()


START = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [START, b"a: b\r\n" * 20_000],
        [START, b"a: " + b"b" * 100_000],
        [b"GET /" + b"a" * 100_000],
        [START, *[b"a:\r\n" * 5_000] * 10],
    ],
    ids=["many headers", "a long header", "a long path", "many parts"],
)
async def test_a_head_without_an_end_is_cut_off(parts: list[bytes]) -> None:
    async with serving({"m": sums()}, http_port=0, grpc_port=None) as ports:
        answer = await asyncio.wait_for(told(ports.http, *parts), 20)
        assert answer == b"closed" or answer.startswith(b"HTTP/1.1 400") or not answer
        ended = await told(ports.http, START, b"Connection: close\r\n\r\n")
        assert ended.startswith(b"HTTP/1.1 200")


async def test_what_follows_a_body_is_no_header() -> None:
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    async with serving({"m": sums()}, http_port=0, grpc_port=None, tokens=["secret"]) as ports:
        answer = await told(ports.http, head, b"2\r\n{}\r\n0\r\nAuthorization: Bearer secret\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401")


async def test_callers_that_keep_their_connections_are_told_to_close_them() -> None:
    request = START + b"\r\n"
    async with serving({"m": sums()}, http_port=0, grpc_port=None) as ports:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
        writer.write(request)
        assert b"connection: close" not in await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}")
        writer.write(request)  # nobody has read it when the service begins to end
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only there is no answer to be had from who is there")
@pytest.mark.one_of("loop")
async def test_a_client_that_has_vanished_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.service.server._KEEP_ALIVE", dict.fromkeys(server._KEEP_ALIVE, 1))
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @ax.op
    async def wait_long(x: float) -> float:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return x

    with ax.Graph() as graph:
        wait_long(ax.placeholder(ax.float64, [], name="x"), name="y")
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[],"data":[1]}]}'
    async with serving({"m": graph}, http_port=0, grpc_port=None) as ports:
        caller = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", ports.http))
        caller.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await begun.wait()
        http_server._drop_packets(caller)  # its system hears and says nothing from now on
        await cancelled.wait()
        caller.close()


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.service.http.connections._STUCK_S", 0.05)
    lost, lose = asyncio.Event(), BoundedProtocol.connection_lost

    def note(connection: BoundedProtocol, error: Exception | None) -> None:
        lost.set()
        lose(connection, error)

    monkeypatch.setattr(BoundedProtocol, "connection_lost", note)
    with ax.Graph() as graph:
        ax.fill(ax.placeholder(ax.int32, [1], name="x"), ax.constant(0.0, ax.float32), name="y")
    body = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[4000000]}]}'
    async with serving({"m": graph}, http_port=0, grpc_port=None) as ports:
        caller = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", ports.http))
        caller.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await lost.wait()
        caller.close()


async def test_what_has_arrived_when_connections_are_closed_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    request, loop = START + b"\r\n", asyncio.get_running_loop()
    close = BoundedProtocol.shutdown

    def close_while_one_comes(connection: BoundedProtocol) -> None:
        caller.send(request)
        close(connection)

    monkeypatch.setattr(BoundedProtocol, "shutdown", close_while_one_comes)
    async with serving({"m": sums()}, http_port=0, grpc_port=None) as ports:
        caller = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", ports.http))
        caller.setblocking(False)
        await loop.sock_sendall(caller, request)
        assert (await loop.sock_recv(caller, 4096)).startswith(b"HTTP/1.1 200")
    assert (await loop.sock_recv(caller, 4096)).startswith(b"HTTP/1.1 200")
    caller.close()


async def test_new_calls_are_refused_at_the_end_so_that_clients_go_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released, is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr("asyncexec.service.grpc.guard._linger", is_over.wait)
    async with nothing_of_grpc_left():
        service = serving({"m": waiting(begun, released)}, **FREE)
        ports = await service.__aenter__()
        first = message("ModelInferRequest")(model_name="m", raw_input_contents=[np.float64(1.5).tobytes()])
        first.inputs.add(name="x", datatype="FP64")
        asked = asyncio.create_task(call(ports, "ModelInfer", first, "ModelInferResponse"))
        await begun.wait()
        ending = asyncio.create_task(service.__aexit__(None, None, None))
        await asyncio.sleep(0)
        refused = asyncio.create_task(call(ports, "ServerLive", message("ServerLiveRequest")(), "ServerLiveResponse"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(refused), 0.1)  # what is refused now would come back
        is_over.set()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await refused
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        released.set()
        assert (await asked).raw_output_contents == [np.float64(1.5).tobytes()]
        await ending


def test_a_signal_ends_a_service_that_loads(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    slow = (
        "import time, sys, asyncexec as ax\n"
        "print('loading', flush=True)\n"
        "@ax.op\n"
        "async def wait_long(x: float) -> float:\n"
        "    import asyncio\n"
        "    await asyncio.sleep(600)\n"
        "    return x\n"
        "with ax.Graph() as graph:\n"
        "    wait_long(ax.placeholder(ax.float64, [], name='x'), name='y')\n"
    )
    (tmp_path / "m" / "1" / "graph.py").write_text(slow)
    warm_up = 'model_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP64 zero_data: true } } }'
    (tmp_path / "m" / "config.pbtxt").write_text(warm_up)
    command = [sys.executable, "-m", "asyncexec.cli.main", "serve", str(tmp_path), "--http-port=0", "--grpc-port=0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*command, "--allow-python"], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    write_model(tmp_path / "m", sums())
    command = [
        sys.executable,
        "-m",
        "asyncexec.cli.main",
        "serve",
        str(tmp_path),
        "--http-port",
        "0",
        "--grpc-port",
        "0",
        "--access-log",
        "--log-format",
        "json",
        "--trace-file",
        str(tmp_path / "trace.json"),
    ]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        assert process.stderr is not None
        while not (where := json.loads(process.stderr.readline())["message"]).startswith("HTTP on "):
            assert where == "m version 1 READY"
        port = int(where.split(",")[0].rpartition(":")[2])
        assert json.loads(process.stderr.readline())["message"].startswith("live page: ")
        answer = httpx.post(f"http://127.0.0.1:{port}/v2/models/m/infer", json={"inputs": INPUTS})
        assert answer.json()["outputs"][0]["data"] == [7.0] * 3
        if sys.platform == "linux":  # it may have many connections
            import resource

            soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            assert soft == min(hard, 2**20)
        line = json.loads(process.stderr.readline())
        assert (line["route"], line["status"], line["model"]) == ("/v2/models/{name}/infer", 200, "m")
        setting = httpx.get(f"http://127.0.0.1:{port}/v2/trace/setting").json()
        assert setting["trace_file"] == "trace.json"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_all_lines_of_a_log_in_json_are_json(tmp_path: Path) -> None:
    write_model(tmp_path / "m", sums())
    command = [sys.executable, "-m", "asyncexec.cli.main", "serve", str(tmp_path), "--http-port=0", "--grpc-port=0"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*command, "--log-format", "json"], **pipe) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline())]
        while not lines[-1]["message"].startswith("live page: "):
            lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        lines += map(json.loads, process.stdout)
        assert process.wait(30) == 0
    assert "m version 1 READY" in [line["message"] for line in lines]
