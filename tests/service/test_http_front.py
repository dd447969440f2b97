"""The HTTP front: each route, compression, limits, errors, and clients that go."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
import zlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

import asyncexec as ax
from asyncexec.framework import errors
from asyncexec.service.datatypes import from_raw
from asyncexec.service.http.errors import error_response
from asyncexec.service.http.front import http_app
from tests.service.http_models import FakeRepository, calling, made, unary
from tests.service.models import sums

pytestmark = pytest.mark.one_of("loop")

LIMIT = 2**20
X = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
Y = {**X, "name": "y"}
INFER = "/v2/models/sums/infer"


@pytest.fixture
async def repository() -> AsyncIterator[FakeRepository]:
    served = FakeRepository(
        made("sums", sums(), "1"),
        made("sums", sums(), "2", platform="tensorflow_graphdef"),
        made("texts", unary(ax.string, [None], ax.identity)),
        made("flags", unary(ax.bool, [None], ax.logical_not)),
        made("floats", unary(ax.float32, [None], ax.identity)),
        made("halves", unary(ax.float16, [None], ax.identity)),
    )
    yield served
    await served.close()


@pytest.fixture
async def client(repository: FakeRepository) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(repository) as found:
        yield found


def client_of(repository: FakeRepository, limit: int = LIMIT) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(http_app(repository, limit))
    return httpx.AsyncClient(transport=transport, base_url="http://test", headers={"Accept-Encoding": "identity"})


def told(response: httpx.Response, status: int = 200) -> Any:
    """The JSON of *response*, which has *status*."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json"), response.text
    return response.json()


async def test_health_and_server_metadata(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    assert told(await client.get("/v2/health/live")) == {"live": True}
    assert told(await client.get("/v2/health/ready")) == {"ready": True}
    metadata = told(await client.get("/v2"))
    assert (metadata["name"], metadata["version"]) == ("asyncexec", version("asyncexec"))
    assert {"binary_tensor_data", "statistics", "model_repository", "model_configuration"} <= {*metadata["extensions"]}
    repository.unready.add("sums")
    assert told(await client.get("/v2/health/ready"), 503) == {"ready": False}


async def test_models_tell_whether_they_are_ready(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    assert told(await client.get("/v2/models/sums/ready")) == {"name": "sums", "ready": True}
    assert told(await client.get("/v2/models/sums/versions/2/ready")) == {"name": "sums", "ready": True}
    assert told(await client.get("/v2/models/sums/versions/3/ready"), 503) == {"name": "sums", "ready": False}
    assert told(await client.get("/v2/models/none/ready"), 503) == {"name": "none", "ready": False}
    repository.unready.add("sums")
    assert told(await client.get("/v2/models/sums/ready"), 503) == {"name": "sums", "ready": False}


async def test_metadata_of_a_model(client: httpx.AsyncClient) -> None:
    shape = {"datatype": "FP32", "shape": [-1, 3]}
    expected = {
        "name": "sums",
        "versions": ["1", "2"],
        "platform": "tensorflow_graphdef",
        "inputs": [{"name": "x", **shape}, {"name": "y", **shape}],
        "outputs": [{"name": "sum", **shape}, {"name": "diff", **shape}],
    }
    assert told(await client.get("/v2/models/sums")) == expected
    first = told(await client.get("/v2/models/sums/versions/1"))
    assert first == {**expected, "platform": "asyncexec"}
    assert "not found" in told(await client.get("/v2/models/none"), 404)["error"]
    assert "not found" in told(await client.get("/v2/models/sums/versions/7"), 404)["error"]


async def test_config_has_all_fields_and_numbers_for_numbers() -> None:
    config = {
        "max_batch_size": 4,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}],
        "dynamic_batching": {
            "max_queue_delay_microseconds": 1000,
            "priority_queue_policy": {7: {"default_timeout_microseconds": 2**60}},
        },
        "parameters": {"a": {"string_value": "1"}},
    }
    repository = FakeRepository(made("m", unary(ax.float32, [None, 3], ax.negative), **config))
    async with client_of(repository) as client:
        found = told(await client.get("/v2/models/m/config"))
    assert found["max_batch_size"] == 4
    assert found["runtime"] == ""
    assert found["input"][0]["dims"] == [3]
    assert found["dynamic_batching"]["max_queue_delay_microseconds"] == 1000
    assert found["dynamic_batching"]["priority_queue_policy"]["7"]["default_timeout_microseconds"] == 2**60
    assert found["parameters"] == {"a": {"string_value": "1"}}
    await repository.close()


async def test_statistics(client: httpx.AsyncClient) -> None:
    for document in ({"inputs": [X, Y]}, {"inputs": [X, Y]}, {"inputs": [X]}):
        await client.post("/v2/models/sums/versions/1/infer", json=document)
    (stats,) = told(await client.get("/v2/models/sums/versions/1/stats"))["model_stats"]
    assert (stats["name"], stats["version"]) == ("sums", "1")
    assert (stats["inference_count"], stats["execution_count"]) == (2, 2)
    (size,) = stats["batch_stats"]
    assert (size["batch_size"], size["compute_infer"]["count"], size["compute_output"]["count"]) == (1, 2, 2)
    assert size["compute_infer"]["ns"] == stats["inference_stats"]["compute_infer"]["ns"]
    assert stats["last_inference"] > 0
    counts = {name: each["count"] for name, each in stats["inference_stats"].items()}
    of_calls = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    assert [counts[name] for name in of_calls] == [2] * 5
    assert (counts["fail"], counts["cache_hit"], counts["cache_miss"]) == (1, 0, 0)
    assert stats["inference_stats"]["success"]["ns"] >= stats["inference_stats"]["compute_infer"]["ns"] > 0
    both = told(await client.get("/v2/models/sums/stats"))["model_stats"]
    assert [each["version"] for each in both] == ["1", "2"]
    every = told(await client.get("/v2/models/stats"))["model_stats"]
    assert [each["name"] for each in every] == ["sums", "sums", "texts", "flags", "floats", "halves"]
    assert "not found" in told(await client.get("/v2/models/none/stats"), 404)["error"]


async def test_index_of_the_repository(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    repository.unready.add("texts")
    every = told(await client.post("/v2/repository/index"))
    assert every[0] == {"name": "sums", "version": "1", "state": "READY"}
    assert {"name": "texts", "version": "1", "state": "UNAVAILABLE", "reason": "it broke"} in every
    ready = told(await client.post("/v2/repository/index", json={"ready": True}))
    assert [each["name"] for each in ready] == ["sums", "sums", "flags", "floats", "halves"]
    assert told(await client.post("/v2/repository/index", json={"ready": False})) == every


async def test_models_are_loaded_and_unloaded(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    told(await client.post("/v2/repository/models/sums/load"))
    parameters = {"config": "{}", "a": 1, "b": True, "file:1/model.pb": base64.b64encode(b"\xff").decode()}
    told(await client.post("/v2/repository/models/sums/load", json={"parameters": parameters}))
    told(await client.post("/v2/repository/models/sums/unload", json={"parameters": {"unload_dependents": False}}))
    assert repository.asked == [
        ("load", "sums", {}),
        ("load", "sums", {**parameters, "file:1/model.pb": b"\xff"}),
        ("unload", "sums"),
    ]
    refused = told(await client.post("/v2/repository/models/none/load"), 400)
    assert refused == {"error": "failed to load 'none'; there is no such folder"}


@pytest.mark.parametrize(
    ("path", "content", "error"),
    [
        ("index", b"[]", "'the request' is a list, not an object"),
        ("index", b'{"ready": 1}', "'ready' is an integer, not a boolean"),
        ("models/sums/load", b"{", "the request is no JSON"),
        ("models/sums/load", b'{"parameters": []}', "'parameters' is a list"),
        ("models/sums/load", b'{"parameters": {"a": 0.5}}', "'parameters.a' is not a string"),
        ("models/sums/load", b'{"parameters": {"file:a": "?"}}', "'parameters.file:a' is not the content of a file"),
        ("models/sums/load", b'{"parameters": {"file:a": 1}}', "'parameters.file:a' is not the content of a file"),
        ("models/sums/load", '{"parameters": {"file:a": "é"}}'.encode(), "is not the content of a file"),
        ("models/sums/unload", b"1", "'the request' is an integer"),
    ],
)
async def test_malformed_calls_of_the_repository(
    client: httpx.AsyncClient, repository: FakeRepository, path: str, content: bytes, error: str
) -> None:
    assert error in told(await client.post(f"/v2/repository/{path}", content=content), 400)["error"]
    assert repository.asked == []


@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "text/plain"])
async def test_infer_in_json(client: httpx.AsyncClient, content_type: str | None) -> None:
    document = {"id": "a", "inputs": [X, Y], "outputs": [{"name": "sum"}]}
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = await client.post(INFER, content=orjson.dumps(document), headers=headers)
    assert told(response) == {
        "model_name": "sums",
        "model_version": "2",
        "id": "a",
        "outputs": [{"name": "sum", "datatype": "FP32", "shape": [1, 3], "data": [2, 4, 6]}],
    }
    assert "inference-header-content-length" not in response.headers
    first = told(await client.post("/v2/models/sums/versions/1/infer", json={"inputs": [X, Y]}))
    assert (first["model_version"], [each["name"] for each in first["outputs"]]) == ("1", ["sum", "diff"])


async def test_infer_in_binary(client: httpx.AsyncClient) -> None:
    array = np.arange(3, dtype=np.float32)
    document = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}, Y],
        "outputs": [{"name": "sum"}, {"name": "diff", "parameters": {"binary_data": False}}],
        "parameters": {"binary_data_output": True},
    }
    response = await post_binary(client, INFER, document, array.tobytes())
    assert response.headers["content-type"] == "application/octet-stream"
    (total, diff), data = parts(response)
    assert from_raw("sum", "FP32", total["shape"], data).tolist() == [[1, 3, 5]]
    assert (total["parameters"], diff["data"]) == ({"binary_data_size": 12}, [-1, -1, -1])


async def test_infer_of_texts_and_flags(client: httpx.AsyncClient) -> None:
    raw = b"\2\0\0\0\xff\0\0\0\0\0"
    given = {"name": "x", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(raw)}}
    document = {"inputs": [given], "parameters": {"binary_data_output": True}}
    _, data = parts(await post_binary(client, "/v2/models/texts/infer", document, raw))
    assert data == raw
    texts = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["é", "b"]}]}
    assert told(await client.post("/v2/models/texts/infer", json=texts))["outputs"][0]["data"] == ["é", "b"]
    flags = {"inputs": [{"name": "x", "datatype": "BOOL", "shape": [2], "data": [True, False]}]}
    assert told(await client.post("/v2/models/flags/infer", json=flags))["outputs"][0]["data"] == [False, True]


async def test_a_raw_body_is_answered_raw(client: httpx.AsyncClient) -> None:
    body = np.arange(5, dtype=np.float16).tobytes()
    headers = {"Inference-Header-Content-Length": "0"}
    (output,), data = parts(await client.post("/v2/models/halves/infer", content=body, headers=headers))
    assert (output["datatype"], output["shape"], data) == ("FP16", [5], body)
    refused = told(await client.post(INFER, content=body, headers=headers), 400)
    assert "must only have 1 input" in refused["error"]


async def test_outputs_that_cannot_be_json(client: httpx.AsyncClient) -> None:
    given = {"name": "x", "datatype": "FP16", "shape": [1], "parameters": {"binary_data_size": 2}}
    response = await post_binary(client, "/v2/models/halves/infer", {"inputs": [given]}, b"\0\0")
    assert "16-bit floats: ask for it as binary data" in told(response, 400)["error"]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({}, "'inputs' is missing"),
        ({"inputs": [X, X]}, "input 'x' is there twice"),
        ({"inputs": [X]}, "missing required input(s) ['y']"),
        ({"inputs": [X, {**Y, "name": "z"}]}, "unexpected inference input 'z'"),
        ({"inputs": [X, {**Y, "shape": [3]}]}, "Expected [-1,3], got [3]"),
        ({"inputs": [X, {**Y, "datatype": "FP64"}]}, "data-type is 'FP64'"),
        ({"inputs": [X, Y], "outputs": [{"name": "z"}]}, "allowed outputs are: sum, diff"),
        ({"inputs": [X, Y], "parameters": {"timeout": "1"}}, "'timeout' is a number of microseconds"),
    ],
)
async def test_malformed_calls(client: httpx.AsyncClient, document: Any, error: str) -> None:
    assert error in told(await client.post(INFER, json=document), 400)["error"]


async def test_bad_bytes_and_header_lengths(client: httpx.AsyncClient) -> None:
    for content in (b"", b"{", b'"\xff"', b"[" * 4000, b'{"inputs": [NaN]}'):
        assert "the request is no JSON" in told(await client.post(INFER, content=content), 400)["error"]
    for length in ("-1", "x", "99"):
        headers = {"Inference-Header-Content-Length": length}
        refused = told(await client.post(INFER, content=b"{}", headers=headers), 400)
        assert "Inference-Header-Content-Length is" in refused["error"]


async def test_generate(client: httpx.AsyncClient) -> None:
    answer = told(await client.post("/v2/models/texts/generate", json={"x": "hello", "parameters": {"top": 1}}))
    assert answer == {"model_name": "texts", "model_version": "1", "y": "hello"}
    answer = told(await client.post("/v2/models/floats/versions/1/generate", json={"id": "a", "x": [1, 2.5]}))
    assert answer == {"model_name": "floats", "model_version": "1", "id": "a", "y": [1.0, 2.5]}
    assert "neither an element" in told(await client.post("/v2/models/texts/generate", json={"x": [[]]}), 400)["error"]


async def test_generate_stream_is_one_event(client: httpx.AsyncClient) -> None:
    response = await client.post("/v2/models/texts/generate_stream", json={"x": "a\nb"})
    assert response.headers["content-type"].startswith("text/event-stream")
    data = response.content.removeprefix(b"data: ").removesuffix(b"\n\n")
    assert len(data) == len(response.content) - 8
    assert b"\n" not in data
    assert orjson.loads(data)["y"] == "a\nb"
    told(await client.post("/v2/models/texts/generate_stream", json={"x": 1}), 400)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw deflate", "identity", " GZip "])
async def test_compressed_requests(client: httpx.AsyncClient, coding: str) -> None:
    body = orjson.dumps({"inputs": [X, Y]})
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    content = {
        "gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "raw deflate": raw.compress(body) + raw.flush(),
        "identity": body,
    }[coding.strip().lower()]
    headers = {"Content-Encoding": coding.removeprefix("raw ")}
    assert told(await client.post(INFER, content=content, headers=headers))["outputs"][0]["data"] == [2, 4, 6]


@pytest.mark.parametrize(
    ("coding", "content", "error"),
    [
        ("gzip", b"{}", "the body is not gzip"),
        ("gzip", b"", "the body ends before its gzip does"),
        ("deflate", b"", "the body ends before its deflate does"),
        ("deflate", b"\xff\xff", "the body is not deflate"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-1], "the body ends before its gzip does"),
        ("gzip", gzip.compress(b"{}", mtime=0) * 2, "22 bytes follow the gzip of the body"),
    ],
)
async def test_malformed_compression(client: httpx.AsyncClient, coding: str, content: bytes, error: str) -> None:
    refused = told(await client.post(INFER, content=content, headers={"Content-Encoding": coding}), 400)
    assert error in refused["error"]


async def test_unknown_codings_are_refused(client: httpx.AsyncClient) -> None:
    response = await client.post(INFER, content=b"{}", headers={"Content-Encoding": "br"})
    assert "'br' is not known" in told(response, 415)["error"]
    assert response.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS + 16, zlib.MAX_WBITS])
async def test_bombs_are_refused(client: httpx.AsyncClient, wbits: int) -> None:
    packer = zlib.compressobj(level=9, wbits=wbits)
    zeros = bytes(2**20)
    first, other = (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    bomb = first + other * 999
    assert len(bomb) < LIMIT
    headers = {"Content-Encoding": "gzip" if wbits > zlib.MAX_WBITS else "deflate"}
    response = await client.post(INFER, content=bomb, headers=headers)
    assert f"at most {LIMIT} bytes" in told(response, 413)["error"]


async def test_a_body_may_be_as_large_as_the_limit(repository: FakeRepository) -> None:
    body = orjson.dumps({"inputs": [X, Y]})
    for limit, status in ((len(body), 200), (len(body) - 1, 413)):
        async with client_of(repository, limit) as client:
            for content, coding in ((body, "identity"), (gzip.compress(body), "gzip")):
                response = await client.post(INFER, content=content, headers={"Content-Encoding": coding})
                told(response, status)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("deflate, gzip;q=0.5", "gzip"),
        ("gzip;q=0, *", "deflate"),
        ("*", "gzip"),
        ("br", None),
        ("gzip;q=0", None),
        ("gzip;q=much", None),
        ("", None),
    ],
)
async def test_compressed_responses(client: httpx.AsyncClient, accepted: str, coding: str | None) -> None:
    array = np.zeros(1000, np.float32)
    given = {"name": "x", "datatype": "FP32", "shape": [1000], "parameters": {"binary_data_size": 4000}}
    document = {"inputs": [given], "parameters": {"binary_data_output": True}}
    headers = {"Accept-Encoding": accepted}
    response = await post_binary(client, "/v2/models/floats/infer", document, array.tobytes(), **headers)
    assert response.headers.get("content-encoding") == coding
    assert (int(response.headers["content-length"]) < 1000) == (coding is not None)
    assert parts(response)[1] == array.tobytes()
    # Triton's asynchronous client accepts any of them, and reads only answers to inference.
    statistics = await client.get("/v2/models/stats", headers=headers)
    assert len(statistics.content) > 1024
    assert "content-encoding" not in statistics.headers


async def test_large_bodies_are_handled_by_threads(client: httpx.AsyncClient) -> None:
    values = list(range(50_000))
    document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    response = await client.post("/v2/models/floats/infer", json=document, headers={"Accept-Encoding": "gzip"})
    assert told(response)["outputs"][0]["data"] == values
    answer = told(await client.post("/v2/models/floats/generate", json={"x": values}))
    assert answer["y"] == values


async def test_unknown_routes_and_wrong_methods(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v2/", "/v3", "/v2/models", "/v2/models/sums/other", "/v2/models/a/b/infer"):
        assert told(await client.get(path), 404) == {"error": "Not Found"}
    response = await client.get(INFER)
    assert told(response, 405) == {"error": "Method Not Allowed"}
    assert response.headers["allow"] == "POST"
    assert told(await client.post("/v2"), 405) == {"error": "Method Not Allowed"}
    assert "not found" in told(await client.post("/v2/models/none/infer", content=b"{"), 404)["error"]
    assert "not found" in told(await client.post("/v2/models/none/generate", content=b"{"), 404)["error"]


async def test_a_model_that_is_not_ready(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    repository.unready.add("sums")
    response = await client.post(INFER, json={"inputs": [X, Y]})
    assert "is not ready" in told(response, 503)["error"]
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidArgumentError, 400),
        (errors.NotFoundError, 404),
        (errors.AlreadyExistsError, 400),
        (errors.FailedPreconditionError, 400),
        (errors.UnauthenticatedError, 401),
        (errors.PermissionDeniedError, 403),
        (errors.ResourceExhaustedError, 503),
        (errors.UnavailableError, 503),
        (errors.DeadlineExceededError, 504),
        (errors.UnimplementedError, 501),
        (errors.CancelledError, 499),
        (errors.InternalError, 500),
        (errors.AbortedError, 500),
        (errors.DataLossError, 500),
        (errors.UnknownError, 500),
        (errors.OutOfRangeError, 500),
    ],
)
def test_each_error_has_a_status(error: type[errors.OpError], status: int) -> None:
    response = error_response(error("text", hint="help"))
    # The hint of a queue that is full is for those who configure the session.
    text = "text" if error is errors.ResourceExhaustedError else "text; help"
    assert (response.status_code, orjson.loads(response.body)) == (status, {"error": text})
    assert (response.headers.get("retry-after") == "1") == (status == 503)


def test_texts_of_errors_are_short_and_can_be_sent() -> None:
    for error in (errors.NotFoundError("a" * 10**6), HTTPException(404, "a" * 10**6)):
        assert len(error_response(error).body) < 3000
    assert orjson.loads(error_response(errors.NotFoundError("\ud800")).body) == {"error": "?"}
    located = errors.InvalidArgumentError("text", node="n", op="Add", user_line="a.py:1", hint="help")
    shown = orjson.loads(error_response(located).body)["error"]
    assert shown == "text\n  [[{{node n}} = Add]]"


async def test_errors_of_nodes_and_surprises(caplog: pytest.LogCaptureFixture) -> None:
    async def divide(x: Any) -> Any:
        return 1 // int(x)

    repository = FakeRepository(made("m", calling(divide)))
    async with client_of(repository) as client:
        failed = told(await client.post("/v2/models/m/generate", json={"x": 0}), 500)
        assert "division" in failed["error"]
        assert "{{node" in failed["error"]
        assert failed["error"].count("\n") < 3
        del repository.all[("m", "1")].config  # type: ignore[attr-defined]
        with caplog.at_level(logging.ERROR, "asyncexec.service"):
            assert told(await client.get("/v2/models/m/config"), 500) == {"error": "internal error"}
    (record,) = caplog.records
    assert (record.name, record.exc_info is not None) == ("asyncexec.service", True)
    await repository.close()


@pytest.mark.virtual_clock
async def test_a_deadline_that_passes() -> None:
    async def sleep(x: Any) -> Any:
        await asyncio.sleep(3600)
        return x

    repository = FakeRepository(made("m", calling(sleep)))
    async with client_of(repository) as client:
        given = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [], "data": [1]}]}
        response = await client.post("/v2/models/m/infer", json={**given, "parameters": {"timeout": 1000}})
    assert "error" in told(response, 504)
    await repository.close()


class Connection:
    """An ASGI client driven by hand: it sends *messages*, and goes once *leaves* is set."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.leaves = asyncio.Event()
        self.answers: list[Message] = []

    async def receive(self) -> Message:
        if self.messages:
            return self.messages.pop(0)
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.answers.append(message)

    async def post(
        self, repository: FakeRepository, path: str, *headers: tuple[bytes, bytes], body_timeout_s: float = 60.0
    ) -> int:
        """Post to *path*; the status of the answer."""
        scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers), "query_string": b""}
        await http_app(repository, LIMIT, body_timeout_s)(scope, self.receive, self.send)
        status: int = self.answers[0]["status"]
        return status


def body(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": content, "more_body": more}


@pytest.mark.parametrize("call", ["infer", "generate", "generate_stream"])
async def test_a_client_that_goes_cancels_its_call(call: str) -> None:
    log: list[str] = []
    content = b'{"x": 1}' if call != "infer" else orjson.dumps({"inputs": [{**X, "shape": [], "data": [1]}]})
    connection = Connection(body(content[:3], more=True), body(content[3:]))

    async def wait(x: Any) -> Any:
        connection.leaves.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cancelled")
        return x

    model = made("m", calling(wait))
    repository = FakeRepository(model)
    before = asyncio.all_tasks()
    assert await connection.post(repository, f"/v2/models/m/{call}") == 499
    assert log == ["cancelled"]
    assert model.statistics.cancel.count == 1
    await repository.close()
    assert asyncio.all_tasks() == before


async def test_a_server_that_ends_cancels_its_calls() -> None:
    begun, log = asyncio.Event(), list[str]()

    async def wait(x: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cancelled")
        return x

    repository = FakeRepository(made("m", calling(wait)))
    connection = Connection(body(b'{"x": 1}'))
    call = asyncio.create_task(connection.post(repository, "/v2/models/m/generate"))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert log == ["cancelled"]
    assert connection.answers == []
    await repository.close()


async def test_a_connection_that_breaks_cancels_its_call(caplog: pytest.LogCaptureFixture) -> None:
    async def wait(x: Any) -> Any:
        await asyncio.Event().wait()
        return x

    class Broken(Connection):
        async def receive(self) -> Message:
            if not self.messages:
                raise OSError("it broke")
            return await super().receive()

    repository = FakeRepository(made("m", calling(wait)))
    assert await Broken(body(b'{"x": 1}')).post(repository, "/v2/models/m/generate") == 500
    assert "an HTTP request failed" in caplog.text
    await repository.close()


async def test_a_body_that_does_not_come_is_not_waited_for(repository: FakeRepository) -> None:
    connection = Connection(body(b"{", more=True))
    assert await connection.post(repository, INFER, body_timeout_s=0.001) == 408
    assert (b"connection", b"close") in connection.answers[0]["headers"]


async def test_a_client_that_goes_while_it_sends(repository: FakeRepository) -> None:
    connection = Connection(body(b"{", more=True))
    connection.leaves.set()
    assert await connection.post(repository, INFER) == 499


@pytest.mark.parametrize("length", [b"1048577", b"9" * 5000])
async def test_a_length_over_the_limit_is_refused_unread(repository: FakeRepository, length: bytes) -> None:
    connection = Connection(body(b"{}"))
    assert await connection.post(repository, INFER, (b"content-length", length)) == 413
    assert len(connection.messages) == 1


async def test_a_body_over_the_limit_is_not_read_on(repository: FakeRepository) -> None:
    connection = Connection(*[body(bytes(LIMIT // 2), more=True) for _ in range(5)])
    assert await connection.post(repository, INFER) == 413
    assert len(connection.messages) == 2


async def post_binary(
    client: httpx.AsyncClient, path: str, document: Any, *tensors: bytes, **headers: str
) -> httpx.Response:
    """The answer to *document* with *tensors* after it."""
    head = orjson.dumps(document)
    told_length = {"Inference-Header-Content-Length": str(len(head)), **headers}
    return await client.post(path, content=b"".join((head, *tensors)), headers=told_length)


def parts(response: httpx.Response) -> tuple[list[Any], bytes]:
    """The outputs as the JSON of *response* describes them, and what follows the JSON."""
    assert response.status_code == 200, response.text
    length = int(response.headers["inference-header-content-length"])
    return orjson.loads(response.content[:length])["outputs"], response.content[length:]


@pytest.mark.parametrize("path", [INFER, "/v2/models/sums/generate", "/v1/models/sums:predict", "/v2/repository/index"])
async def test_json_is_bounded_by_less_than_binary_data(repository: FakeRepository, path: str) -> None:
    async with client_of(repository, 2**25) as client:
        refused = told(await client.post(path, content=b"{" + b" " * 2**24 + b"}"), 413)
    assert refused == {"error": f"the body of a request has at most {2**24} bytes"}


async def test_binary_data_may_be_larger_than_json(repository: FakeRepository) -> None:
    floats = np.zeros(2**22 + 1, np.float32)
    x = {"name": "x", "datatype": "FP32", "shape": [len(floats)], "parameters": {"binary_data_size": floats.nbytes}}
    document = {"inputs": [x], "parameters": {"binary_data_output": True}}
    async with client_of(repository, 2**25) as client:
        for spaces, status in ((0, 200), (2**24, 400)):
            head = orjson.dumps(document) + b" " * spaces
            headers = {"Inference-Header-Content-Length": str(len(head))}
            content = head if spaces else head + floats.tobytes()
            answer = await client.post("/v2/models/floats/infer", content=content, headers=headers)
            assert answer.status_code == status
        assert "JSON has at most" in answer.json()["error"]
