"""TensorFlow Serving's REST API: its routes, both formats of a Predict, Examples, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework import errors
from asyncexec.service.http.front import http_app
from asyncexec.service.models.files import ModelSource
from tests.service.http_models import FakeRepository, calling, made, unary
from tests.service.models import sums
from tests.service.serving_models import model_of, of_examples, reading_examples

pytestmark = pytest.mark.one_of("loop")

MODELS = "/v1/models"
SUMS = f"{MODELS}/sums:predict"


def two_outputs() -> ax.Graph:
    """Input x; outputs: x as it is, and the sum of all, a scalar."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 2], name="x")
        ax.identity(x, name="same")
        ax.reduce_sum(x, name="total")
    return graph


@pytest.fixture
async def repository() -> AsyncIterator[FakeRepository]:
    served = FakeRepository(
        made("sums", sums(), "1"),
        made("sums", sums(), "2"),
        made("texts", unary(ax.string, None, ax.identity)),
        made("raw", renamed(ax.string, "y_bytes")),
        made("flags", unary(ax.bool, [None], ax.logical_not)),
        made("ints", unary(ax.int32, None, ax.identity)),
        made("floats", unary(ax.float32, None, ax.identity)),
        made("halves", unary(ax.float16, None, ax.identity)),
        made("brains", unary(ax.bfloat16, None, ax.identity)),
        made("mixed", two_outputs()),
        reading_examples(),
        of_examples("scored", scores=np.array([[0.1, math.inf]], np.float32)),
        of_examples("both", classes=np.array([[b"a", b"\xff"]], object), scores=np.array([[0.25, 1]], np.float32)),
        of_examples("valued", outputs=np.array([0.1, math.nan], np.float32)),
        of_examples("column", outputs=np.array([[0.5]], np.float32)),
    )
    yield served
    await served.close()


def renamed(dtype: Any, name: str) -> ax.Graph:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(dtype, None, name="x"), name=name)
    return graph


@pytest.fixture
async def client(repository: FakeRepository) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(http_app(repository, 2**20))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as found:
        yield found


def told(response: httpx.Response, status: int = 200) -> Any:
    """The JSON of *response*, which has *status*."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json"), response.text
    return response.json()


def version_status(version: str, state: str = "AVAILABLE", code: str = "OK", text: str = "") -> dict[str, Any]:
    return {"version": version, "state": state, "status": {"error_code": code, "error_message": text}}


async def test_status(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    both = told(await client.get(f"{MODELS}/sums"))
    assert both == {"model_version_status": [version_status("2"), version_status("1")]}
    first = told(await client.get(f"{MODELS}/sums/versions/01"))
    assert first == {"model_version_status": [version_status("1")]}
    repository.unready.add("texts")
    failed = told(await client.get(f"{MODELS}/texts"))
    assert failed == {"model_version_status": [version_status("1", "END", "UNKNOWN", "it broke")]}
    unknown = told(await client.get(f"{MODELS}/none"), 404)
    assert unknown == {"error": "Could not find any versions of model none"}
    unknown = told(await client.get(f"{MODELS}/sums/versions/7"), 404)
    assert unknown == {"error": "Could not find version 7 of model sums"}


async def test_metadata(client: httpx.AsyncClient) -> None:
    found = told(await client.get(f"{MODELS}/mixed/metadata"))
    assert found["model_spec"] == {"name": "mixed", "signature_name": "", "version": "1"}
    row = {"dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}], "unknown_rank": False}
    scalar = {"dim": [], "unknown_rank": False}
    assert found["metadata"]["signature_def"]["signature_def"] == {
        "serving_default": {
            "inputs": {"x": {"name": "x:0", "dtype": "DT_FLOAT", "tensor_shape": row}},
            "outputs": {
                "same": {"name": "same:0", "dtype": "DT_FLOAT", "tensor_shape": row},
                "total": {"name": "total:0", "dtype": "DT_FLOAT", "tensor_shape": scalar},
            },
            "defaults": {},
            "method_name": "tensorflow/serving/predict",
        }
    }
    texts = told(await client.get(f"{MODELS}/texts/versions/1/metadata"))["metadata"]["signature_def"]["signature_def"]
    assert texts["serving_default"]["inputs"]["x"]["tensor_shape"] == {"dim": [], "unknown_rank": True}
    read = told(await client.get(f"{MODELS}/read/metadata"))["metadata"]["signature_def"]["signature_def"]
    assert read["serving_default"]["method_name"] == "tensorflow/serving/classify"
    assert "Latest(none)" in told(await client.get(f"{MODELS}/none/metadata"), 404)["error"]


async def test_rows(client: httpx.AsyncClient) -> None:
    rows = [{"x": [1, 2, 3], "y": [1, 1, 0.5]}, {"x": [0.1, 0, 0], "y": [0, 0, 0]}]
    answer = told(await client.post(SUMS, json={"instances": rows}))
    assert answer == {
        "predictions": [
            {"sum": [2.0, 3.0, 3.5], "diff": [0.0, 1.0, 2.5]},
            {"sum": [0.1, 0.0, 0.0], "diff": [0.1, 0.0, 0.0]},
        ]
    }
    first = f"{MODELS}/sums/versions/1:predict"
    assert told(await client.post(first, json={"instances": rows, "signature_name": "serving_default"})) == answer
    plain = told(await client.post(f"{MODELS}/ints:predict", json={"instances": [[[1]], [[2]]]}))
    assert plain == {"predictions": [[[1]], [[2]]]}
    assert told(await client.post(f"{MODELS}/ints:predict", json={"instances": [7]})) == {"predictions": [7]}


async def test_columns(client: httpx.AsyncClient) -> None:
    columns = {"x": [[1, 2, 3]], "y": [[1, 1, 1]]}
    answer = told(await client.post(SUMS, json={"inputs": columns}))
    assert answer == {"outputs": {"sum": [[2.0, 3.0, 4.0]], "diff": [[0.0, 1.0, 2.0]]}}
    assert told(await client.post(f"{MODELS}/flags:predict", json={"inputs": [True]})) == {"outputs": [False]}
    assert told(await client.post(f"{MODELS}/floats:predict", json={"inputs": {"x": 0.1}})) == {"outputs": 0.1}
    assert told(await client.post(f"{MODELS}/ints:predict", json={"inputs": [[], []]})) == {"outputs": [[], []]}
    mixed = told(await client.post(f"{MODELS}/mixed:predict", json={"inputs": [[1, 2]]}))
    assert mixed == {"outputs": {"same": [[1.0, 2.0]], "total": 3.0}}


async def test_strings_and_bytes(client: httpx.AsyncClient) -> None:
    given = {"instances": ["é", {"b64": "/w=="}]}
    assert told(await client.post(f"{MODELS}/texts:predict", json=given)) == {"predictions": ["é", {"b64": "/w=="}]}
    assert told(await client.post(f"{MODELS}/raw:predict", json=given)) == {
        "predictions": [{"b64": "w6k="}, {"b64": "/w=="}]
    }
    named = {"instances": [{"x": {"b64": "YQ=="}}]}
    assert told(await client.post(f"{MODELS}/texts:predict", json=named)) == {"predictions": ["a"]}
    alone = {"inputs": {"b64": "YQ=="}}
    assert told(await client.post(f"{MODELS}/texts:predict", json=alone)) == {"outputs": "a"}


async def test_floats_of_all_sizes(client: httpx.AsyncClient) -> None:
    for name in ("halves", "brains"):
        answer = told(await client.post(f"{MODELS}/{name}:predict", json={"inputs": [1.5, -2]}))
        assert answer == {"outputs": [1.5, -2.0]}
    response = await client.post(f"{MODELS}/floats:predict", json={"instances": [[1e39, 0.1], [-1e39, 0]]})
    assert json.loads(response.content) == {"predictions": [[math.inf, 0.1], [-math.inf, 0.0]]}


@pytest.mark.parametrize(
    ("model", "document", "error"),
    [
        ("sums", {}, "Missing 'inputs' or 'instances' key"),
        ("sums", {"inputs": {}, "instances": []}, "has both"),
        ("sums", {"instances": []}, "'instances' is no list that has elements"),
        ("sums", {"instances": {"x": 1}}, "'instances' is no list that has elements"),
        ("sums", {"instances": [1]}, "a plain value is for a model with one input, but 'sums' has: x, y"),
        ("sums", {"inputs": [1]}, "a plain value is for a model with one input"),
        ("sums", {"instances": [{"x": [1, 2, 3]}]}, "missing required input(s) ['y']"),
        ("sums", {"instances": [{"x": 1}, {"y": 1}]}, "'instances[1]' has not the names of the first: x"),
        ("sums", {"instances": [{"x": 1}, 1]}, "'instances[1]' has not the names of the first: x"),
        ("sums", {"inputs": {"z": 1}}, "does not have named input: z; the inputs are: x, y"),
        ("sums", {"inputs": {"x": [1, 2, 3], "y": [[1, 2, 3]]}}, "Expected [-1,3], got [3]"),
        ("sums", {"inputs": {}, "signature_name": 1}, "'signature_name' is an integer, not a string"),
        ("sums", {"inputs": {}, "signature_name": "z"}, 'Serving signature name: "z" not found in signature def'),
        ("ints", {"inputs": [[1, 2], [3]]}, "input 'x' has a list of 1 at level 1, expected 2 values"),
        ("ints", {"inputs": [[1], 2]}, "input 'x' has no list at level 1, expected 1 values"),
        ("ints", {"inputs": [1, [2]]}, "not all elements are INT32"),
        ("ints", {"inputs": [1.5]}, "not all elements are INT32"),
        ("ints", {"inputs": [2**31]}, "has elements that INT32 cannot hold"),
        ("ints", {"inputs": [{"b64": "YQ=="}]}, "not all elements are INT32"),
        ("texts", {"inputs": [{"b64": "?"}]}, "a value of 'x' is no base64"),
        ("texts", {"inputs": [{"b64": 1}]}, "not all elements are BYTES"),
        ("texts", {"inputs": [None]}, "not all elements are BYTES"),
        ("floats", {"inputs": json.loads("[" * 33 + "]" * 33)}, "at most 32 sizes"),
        ("mixed", {"instances": [[1, 2]]}, "output 'total' has no batch size; ask with 'inputs'"),
    ],
)
async def test_malformed_predicts(client: httpx.AsyncClient, model: str, document: Any, error: str) -> None:
    assert error in told(await client.post(f"{MODELS}/{model}:predict", json=document), 400)["error"]


async def test_outputs_of_different_batch_sizes(client: httpx.AsyncClient, repository: FakeRepository) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        ax.identity(x, name="same")
        ax.concat([x, x], 0, name="twice")
    repository.all["odd", "1"] = made("odd", graph)
    refused = told(await client.post(f"{MODELS}/odd:predict", json={"instances": [1, 2]}), 400)
    assert refused["error"] == "output 'twice' has the batch size 4, not 2; ask with 'inputs'"


async def test_examples_are_classified(client: httpx.AsyncClient) -> None:
    examples = [
        {"i": [1, True], "f": [0.5, 2.0], "t": ["é", {"b64": "/w=="}], "none": []},
        {"i": -(2**63), "q": "of the example"},
    ]
    document = {"context": {"q": "of the context", "c": 1}, "examples": examples, "signature_name": "serving_default"}
    results = told(await client.post(f"{MODELS}/read:classify", json=document))["results"]
    first, second = (json.loads(label)["feature"] for ((label, score),) in results if score == 0.0)
    assert first == {
        "c": {"int64List": {"value": ["1"]}},
        "f": {"floatList": {"value": [0.5, 2.0]}},
        "i": {"int64List": {"value": ["1", "1"]}},
        "none": {},
        "q": {"bytesList": {"value": ["b2YgdGhlIGNvbnRleHQ="]}},
        "t": {"bytesList": {"value": ["w6k=", "/w=="]}},
    }
    assert second["i"] == {"int64List": {"value": [str(-(2**63))]}}
    assert second["q"] == {"bytesList": {"value": ["b2YgdGhlIGV4YW1wbGU="]}}
    one = {"examples": [{}]}
    scored = await client.post(f"{MODELS}/scored/versions/1:classify", json=one)
    assert json.loads(scored.content) == {"results": [[["", 0.1], ["", math.inf]]]}
    both = told(await client.post(f"{MODELS}/both:classify", json=one))
    assert both == {"results": [[["a", 0.25], ["\ufffd", 1.0]]]}


async def test_examples_are_regressed(client: httpx.AsyncClient) -> None:
    response = await client.post(f"{MODELS}/valued:regress", json={"examples": [{}, {}]})
    assert response.content == b'{"results":[0.1,NaN]}'
    assert told(await client.post(f"{MODELS}/column:regress", json={"examples": [{}]})) == {"results": [0.5]}


@pytest.mark.parametrize(
    ("call", "document", "error"),
    [
        ("read:classify", {}, "'examples' is no list that has elements"),
        ("read:classify", {"examples": []}, "'examples' is no list that has elements"),
        ("read:classify", {"examples": {}}, "'examples' is an object, not a list"),
        ("read:classify", {"examples": [1]}, "'examples[0]' is no object"),
        ("read:classify", {"examples": [{}], "context": 1}, "'context' is no object"),
        ("read:classify", {"examples": [{"a": [1, 0.5]}]}, "'examples[0].a' has values of more than one type"),
        ("read:classify", {"examples": [{"a": None}]}, "has a value that is no string, float, int64 or boolean"),
        ("read:classify", {"examples": [{"a": [[1]]}]}, "has a value that is no string, float, int64 or boolean"),
        ("read:classify", {"examples": [{"a": 2**63}]}, "has a value that is no string, float, int64 or boolean"),
        ("read:classify", {"examples": [{"a": {"b64": "?"}}]}, "a value of 'examples[0].a' is no base64"),
        ("read:classify", {"examples": [{}], "signature_name": "z"}, 'Serving signature name: "z" not found'),
        ("read:regress", {"examples": [{}]}, "has the single output 'outputs', but model 'read' has: classes"),
        ("valued:classify", {"examples": [{}]}, "has an output 'classes' or 'scores' and at most one other"),
        ("sums:classify", {"examples": [{}]}, "but model 'sums' has: sum, diff; call Predict"),
        ("named:regress", {"examples": [{}]}, "has the single input 'inputs', of strings, but model 'named' has: x"),
        (
            "scored:classify",
            {"examples": [{}] * 2},
            "output 'scores' of model 'scored' is FP32 [1, 2], expected FP32 for 2",
        ),
        ("valued:regress", {"examples": [{}]}, "output 'outputs' of model 'valued' is FP32 [2], expected FP32 for 1"),
        (
            "wide:regress",
            {"examples": [{}]},
            "expected [batch_size] or [batch_size, 1] of model 'wide', but got [1, 2]",
        ),
        ("whole:regress", {"examples": [{}]}, "is INT32 [1], expected FP32"),
        ("uneven:classify", {"examples": [{}]}, "but got 'classes' [1, 1], 'scores' [1, 2]"),
        (
            "flat:classify",
            {"examples": [{}]},
            "expected [batch_size, num_classes] of model 'flat', but got 'scores' [1]",
        ),
    ],
)
async def test_examples_that_are_refused(
    client: httpx.AsyncClient, repository: FakeRepository, call: str, document: Any, error: str
) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.string, [None], name="x")
        y = ax.constant(np.ones(1, np.float32), name="y")
    for model in (
        model_of("named", ModelSource(graph, {"x": x}, {"outputs": y})),
        of_examples("wide", outputs=np.ones((1, 2), np.float32)),
        of_examples("whole", outputs=np.ones(1, np.int32)),
        of_examples("uneven", classes=np.array([[b"a"]], object), scores=np.ones((1, 2), np.float32)),
        of_examples("flat", scores=np.ones(1, np.float32)),
    ):
        repository.all[model.name, "1"] = model
    assert error in told(await client.post(f"{MODELS}/{call}", json=document), 400)["error"]


async def test_paths_that_are_refused(client: httpx.AsyncClient) -> None:
    unknown = told(await client.post(f"{MODELS}/none:predict", content=b""), 404)
    assert unknown == {"error": "Servable not found for request: Latest(none)"}
    unknown = told(await client.post(f"{MODELS}/sums/versions/7:predict", content=b""), 404)
    assert unknown == {"error": "Servable not found for request: Specific(sums, 7)"}
    for path in ("sums/labels/stable", "sums/labels/stable/metadata"):
        label = told(await client.get(f"{MODELS}/{path}"), 404)
        assert label == {"error": "Unrecognized servable version label: stable"}
    told(await client.post(f"{MODELS}/sums/labels/stable:predict", content=b""), 404)
    for version in ("x", "-1", "1" * 19, "1" * 5000, "٣"):
        refused = told(await client.post(f"{MODELS}/sums/versions/{version}:predict", content=b""), 400)
        assert "Malformed request" in refused["error"]
    refused = told(await client.post(f"{MODELS}/sums:explain", content=b""), 400)
    assert refused == {"error": "Malformed request: POST /v1/models/sums:explain"}
    assert told(await client.get("/v1"), 404) == {"error": "Not Found"}


async def test_bodies_are_limited_and_errors_have_their_statuses(repository: FakeRepository) -> None:
    raised: list[Exception] = []

    async def fail(_: Any) -> Any:
        raise raised[-1]

    repository.all["fails", "1"] = made("fails", calling(fail))
    transport = httpx.ASGITransport(http_app(repository, 100))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        told(await client.post(SUMS, content=b" " * 101), 413)
        assert "is no JSON" in told(await client.post(SUMS, content=b"{"), 400)["error"]
        expected = {
            errors.AlreadyExistsError: 409,
            errors.ResourceExhaustedError: 429,
            errors.AbortedError: 409,
            errors.OutOfRangeError: 400,
            errors.InternalError: 500,
            errors.UnavailableError: 503,
        }
        for kind, status in expected.items():
            raised.append(kind("it failed"))
            response = await client.post(f"{MODELS}/fails:predict", json={"inputs": 1})
            assert "it failed" in told(response, status)["error"]
            assert ("retry-after" in response.headers) == (status in (429, 503))
