"""Bodies of calls over HTTP: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.http.codec import (
    InferCall,
    decode_generate,
    decode_infer,
    encode_generate,
    encode_infer,
)
from asyncexec.service.models.model import Model
from asyncexec.service.requests import InferRequest, InferResponse, InferTensor
from tests.service.http_models import made, unary
from tests.service.models import sums

X: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}


@pytest.fixture(scope="module")
def model() -> Model:
    return made("m", sums())


def identity(dtype: Any, shape: Any, **config: Any) -> Model:
    return made("m", unary(dtype, shape, ax.identity), **config)


def raw(size: int, **members: Any) -> dict[str, Any]:
    """An input whose *size* bytes follow the JSON."""
    given = {key: value for key, value in X.items() if key != "data"}
    return {**given, **members, "parameters": {"binary_data_size": size}}


def sent(document: Any, *tensors: bytes) -> tuple[bytes, str]:
    """A body with *tensors* after *document*, and its header."""
    head = orjson.dumps(document)
    return b"".join((head, *tensors)), str(len(head))


def test_json_and_raw_inputs_stand_side_by_side(model: Model) -> None:
    array = np.arange(3, dtype=np.float32)
    body, length = sent(
        {
            "id": "a",
            "parameters": {"timeout": 5, "binary_data_output": True},
            "inputs": [raw(12), {**X, "name": "y"}],
            "outputs": [{"name": "diff"}, {"name": "sum", "parameters": {"binary_data": False}}],
            "unknown": [{}],
        },
        array.tobytes(),
    )
    call = decode_infer(model, "2", body, length)
    request = call.request
    assert (request.model_name, request.model_version, request.id) == ("m", "2", "a")
    assert (request.outputs, request.parameters) == (["diff", "sum"], {"timeout": 5})
    assert call.is_binary == {"diff": True, "sum": False}
    assert request.inputs["x"].array.tolist() == [[0, 1, 2]]
    assert request.inputs["y"].array.tolist() == [[1, 2, 3]]
    assert request.inputs["x"].array.flags.aligned


@pytest.mark.parametrize("padding", range(4))
def test_raw_inputs_are_aligned_wherever_they_begin(model: Model, padding: int) -> None:
    body, length = sent({"id": "a" * padding, "inputs": [raw(12)]}, b"\0" * 12)
    assert decode_infer(model, "", body, length).request.inputs["x"].array.flags.aligned


def test_null_is_as_good_as_absent(model: Model) -> None:
    document = {"id": None, "parameters": None, "outputs": None, "inputs": [{**X, "parameters": None}]}
    request = decode_infer(model, "", orjson.dumps(document), None).request
    assert (request.id, request.outputs, request.parameters) == ("", None, {})


def test_texts_and_booleans(model: Model) -> None:
    document = {
        "inputs": [
            {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["é", ""]},
            {"name": "b", "datatype": "BOOL", "shape": [1, 2], "data": [[True, False]]},
        ]
    }
    inputs = decode_infer(model, "", orjson.dumps(document), None).request.inputs
    assert inputs["t"].array.tolist() == ["é".encode(), b""]
    assert inputs["b"].array.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "'the request' is a list, not an object"),
        ({}, "'inputs' is missing"),
        ({"inputs": {}}, "'inputs' is an object, not a list"),
        ({"inputs": ["x"]}, "'inputs[0]' is a string, not an object"),
        ({"inputs": [X, {}]}, "'inputs[1].name' is missing"),
        ({"inputs": [{**X, "name": 1}]}, "'inputs[0].name' is an integer, not a string"),
        ({"inputs": [{**X, "datatype": None}]}, "'inputs[0].datatype' is missing"),
        ({"inputs": [{**X, "datatype": "FLOAT"}]}, "unknown data-type 'FLOAT'"),
        ({"inputs": [{**X, "datatype": "FP16"}]}, "is sent as binary data"),
        ({"inputs": [{**X, "shape": 3}]}, "'inputs[0].shape' is an integer, not a list"),
        ({"inputs": [{**X, "shape": [1, "3"]}]}, "the shape of input 'x' is a list of at most 32 sizes"),
        ({"inputs": [{**X, "shape": [-1, 3]}]}, "the shape of input 'x' is a list of at most 32 sizes"),
        ({"inputs": [{**X, "shape": [True, 3]}]}, "the shape of input 'x' is a list of at most 32 sizes"),
        ({"inputs": [{**X, "shape": [1.0, 3]}]}, "the shape of input 'x' is a list of at most 32 sizes"),
        ({"inputs": [{**X, "shape": [1] * 33}]}, "the shape of input 'x' is a list of at most 32 sizes"),
        ({"inputs": [{**X, "shape": [2**40, 2**40]}]}, "is too large"),
        ({"inputs": [{**X, "shape": [2, 3]}]}, "input 'x' got 3 elements, expected 6"),
        ({"inputs": [{**X, "data": "abc"}]}, "'inputs[0].data' is a string, not a list"),
        ({"inputs": [{**X, "data": None}]}, "'inputs[0].data' is missing"),
        ({"inputs": [{**X, "data": [1, [2], 3]}]}, "not all elements are FP32"),
        ({"inputs": [{**X, "data": [[1, 2, 3], 4]}]}, "has lists beside elements"),
        ({"inputs": [{**X, "data": [1, 2, "3"]}]}, "not all elements are FP32"),
        ({"inputs": [{**X, "data": [1, 2, None]}]}, "not all elements are FP32"),
        ({"inputs": [{**X, "datatype": "INT8", "data": [1, 2, 128]}]}, "that INT8 cannot hold"),
        ({"inputs": [{**X, "datatype": "INT8", "data": [1, 2, 0.5]}]}, "not all elements are INT8"),
        ({"inputs": [{**X, "datatype": "BOOL"}]}, "not all elements are BOOL"),
        ({"inputs": [X, X]}, "input 'x' is there twice"),
        ({"inputs": [{**X, "parameters": []}]}, "'inputs[0].parameters' is a list, not an object"),
        ({"inputs": [{**X, "parameters": {"a": [1]}}]}, "'inputs[0].parameters.a' is a list, not a boolean"),
        ({"inputs": [{**X, "parameters": {"binary_data_size": 12}}]}, "has both 'data' and binary data"),
        ({"inputs": [], "id": 7}, "'id' is an integer, not a string"),
        ({"inputs": [], "parameters": "a"}, "'parameters' is a string, not an object"),
        ({"inputs": [], "parameters": {"a": {}}}, "'parameters.a' is an object, not a boolean"),
        ({"inputs": [], "parameters": {"binary_data_output": 1}}, "'parameters.binary_data_output' is an integer"),
        ({"inputs": [], "outputs": {}}, "'outputs' is an object, not a list"),
        ({"inputs": [], "outputs": ["sum"]}, "'outputs[0]' is a string, not an object"),
        ({"inputs": [], "outputs": [{"name": []}]}, "'outputs[0].name' is a list, not a string"),
        ({"inputs": [], "outputs": [{"name": "a"}] * 2}, "output 'a' already exists in request"),
        (
            {"inputs": [], "outputs": [{"name": "a", "parameters": {"binary_data": "yes"}}]},
            "'outputs[0].parameters.binary_data' is a string, not a boolean",
        ),
    ],
)
def test_malformed_json_says_what_and_where(model: Model, document: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode_infer(model, "", orjson.dumps(document), None)
    assert told in caught.value.message


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nan", b'{"inputs": [NaN]}', b'{"id": "\xff"}', b'{"id": "\\ud800"}', b'{"inputs":' + b"[" * 5000],
)
def test_what_is_no_json_is_refused(model: Model, body: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="the request is no JSON"):
        decode_infer(model, "", body, None)


@pytest.mark.parametrize(
    ("document", "tensors", "told"),
    [
        ({"inputs": [raw(12)]}, b"", "has binary_data_size 12, and 0 bytes of binary data are left"),
        ({"inputs": [raw(-1)]}, b"", "has binary_data_size -1"),
        ({"inputs": [raw(2**63)]}, b"", "and 0 bytes of binary data are left"),
        ({"inputs": [raw(12), raw(4, name="y")]}, b"\0" * 12, "input 'y' has binary_data_size 4, and 0 bytes"),
        ({"inputs": [raw(8)]}, b"\0" * 8, "expected 12, got 8"),
        ({"inputs": [raw(12)]}, b"\0" * 13, "1 bytes of binary data are left after all inputs"),
        ({"inputs": [X]}, b"\0", "1 bytes of binary data are left after all inputs"),
        ({"inputs": [raw(1, datatype="BOOL", shape=[1])]}, b"\2", "bytes other than 0 and 1"),
        ({"inputs": [raw(3, datatype="BYTES", shape=[1])]}, b"\0\0\0", "incorrect number of string elements"),
        ({"inputs": [raw(5, datatype="BYTES", shape=[1])]}, b"\2\0\0\0a", "incomplete string data"),
        ({"inputs": [raw(5, datatype="BYTES", shape=[1])]}, b"\0\0\0\0a", "incomplete string length"),
        ({"inputs": [raw(8, datatype="BYTES", shape=[1])]}, b"\0" * 8, "unexpected number of string elements 2"),
        ({"inputs": [{**raw(0), "parameters": {"binary_data_size": True}}]}, b"", "binary_data_size' is a boolean"),
    ],
)
def test_malformed_raw_tensors_are_refused(model: Model, document: Any, tensors: bytes, told: str) -> None:
    body, length = sent(document, tensors)
    with pytest.raises(InvalidArgumentError) as caught:
        decode_infer(model, "", body, length)
    assert told in caught.value.message


@pytest.mark.parametrize("length", ["-1", "", "a", "1.5", "3", "9" * 5000])
def test_wrong_header_lengths_are_refused(model: Model, length: str) -> None:
    with pytest.raises(InvalidArgumentError, match="Inference-Header-Content-Length is"):
        decode_infer(model, "", b"{}", length)


@pytest.mark.parametrize(
    "document",
    [
        {"inputs": [{**X, "parameters": {"shared_memory_region": "a"}}]},
        {"inputs": [], "outputs": [{"name": "sum", "parameters": {"shared_memory_region": "a"}}]},
        {"inputs": [], "outputs": [{"name": "sum", "parameters": {"shared_memory_byte_size": 4}}]},
        {"inputs": [], "outputs": [{"name": "sum", "parameters": {"classification": -3}}]},
        {"inputs": [], "outputs": [{"name": "sum", "parameters": {"classification": True}}]},
    ],
)
def test_wrong_parameters_of_tensors_are_refused(model: Model, document: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"has the parameter|is an integer from 0"):
        decode_infer(model, "", orjson.dumps(document), None)


@pytest.mark.parametrize(
    ("shape", "max_batch_size", "expected"),
    [
        (None, 0, (6,)),
        ([None], 0, (6,)),
        ([None, 3], 0, (2, 3)),
        ([2, None], 0, (2, 3)),
        ([6], 0, (6,)),
        ([None, 3], 8, (2, 3)),
        ([None, None], 8, (1, 6)),
        ([None, None, 2], 8, (1, 3, 2)),
    ],
)
def test_the_shape_of_a_raw_body_is_deduced(shape: Any, max_batch_size: int, expected: tuple[int, ...]) -> None:
    model = identity(ax.int16, shape, max_batch_size=max_batch_size)
    call = decode_infer(model, "", np.arange(6, dtype=np.int16).tobytes(), "0")
    assert call.request.inputs["x"].array.shape == expected
    assert call.is_binary_by_default


@pytest.mark.parametrize("shape", [[1], [None], [], [None, 1]])
def test_a_raw_body_of_bytes_is_one_element(shape: Any) -> None:
    call = decode_infer(identity(ax.string, shape), "", b"\xff\0", "0")
    assert call.request.inputs["x"].array.reshape(-1).tolist() == [b"\xff\0"]


@pytest.mark.parametrize(
    ("dtype", "shape", "body", "told"),
    [
        (ax.float32, [None, None], b"\0" * 4, "can not be deduced"),
        (ax.float32, [None, 2], b"\0" * 12, "expected 16, got 12"),
        (ax.float32, [None], b"\0" * 5, "expected 4, got 5"),
        (ax.float32, [0, None], b"\0" * 4, "expected 0, got 4"),
        (ax.float32, [2], b"", "expected 8, got 0"),
        (ax.string, [2], b"a", "got 1 elements, expected 2"),
    ],
)
def test_a_raw_body_that_fits_no_shape_is_refused(dtype: Any, shape: Any, body: bytes, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        decode_infer(identity(dtype, shape), "", body, "0")


def test_a_raw_body_is_for_models_of_one_input(model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="got 2 inputs in 'm' model"):
        decode_infer(model, "", b"", "0")


def response(**outputs: InferTensor) -> InferResponse:
    return InferResponse("m", "1", "a", outputs, {"final": True})


HALVES = InferTensor("FP16", np.ones(2, np.float16))
FLOATS = InferTensor("FP32", np.array([[1.5, np.nan]], np.float32))


def test_raw_outputs_follow_the_json() -> None:
    call = InferCall(InferRequest("m", {}), is_binary_by_default=True, is_binary={"f": False})
    texts = InferTensor("BYTES", np.array([b"ab"], object))
    encoded = encode_infer(call, response(h=HALVES, f=FLOATS, t=texts))
    assert encoded.header_length is not None
    assert orjson.loads(encoded.content[: encoded.header_length]) == {
        "model_name": "m",
        "model_version": "1",
        "id": "a",
        "parameters": {"final": True},
        "outputs": [
            {"name": "h", "datatype": "FP16", "shape": [2], "parameters": {"binary_data_size": 4}},
            {"name": "f", "datatype": "FP32", "shape": [1, 2], "data": [1.5, None]},
            {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
        ],
    }
    assert encoded.content[encoded.header_length :] == HALVES.array.tobytes() + b"\2\0\0\0ab"


@pytest.mark.parametrize("tensor", [HALVES, InferTensor("BYTES", np.array([b"\xff"], object))])
def test_outputs_that_cannot_be_json_are_refused(tensor: InferTensor) -> None:
    with pytest.raises(InvalidArgumentError, match="ask for it as binary data"):
        encode_infer(InferCall(InferRequest("m", {})), response(h=tensor))


def test_generate_takes_elements_and_flat_lists() -> None:
    with ax.Graph() as graph:
        ax.placeholder(ax.string, [None, None], name="text")
        ax.placeholder(ax.int32, [None, 2], name="pair")
        ax.identity(ax.placeholder(ax.float32, [], name="scalar"), name="y")
    model = made("m", graph, max_batch_size=4)
    body = {"id": "a", "text": "hello", "pair": [1, 2], "parameters": {"scalar": 0.5, "top": 3}, "stream": False}
    request = decode_generate(model, "1", orjson.dumps(body))
    assert {name: tensor.array.tolist() for name, tensor in request.inputs.items()} == {
        "text": [[b"hello"]],
        "pair": [[1, 2]],
        "scalar": 0.5,
    }
    assert (request.id, request.parameters, request.model_version) == ("a", {"top": 3, "stream": False}, "1")


def test_inputs_of_generate_may_be_called_id_and_parameters() -> None:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.int32, [], name="id"), name="y")
        ax.identity(ax.placeholder(ax.int32, [None], name="parameters"), name="z")
    request = decode_generate(made("m", graph), "", b'{"id": 1, "parameters": [2, 3]}')
    assert request.inputs["id"].array.tolist() == 1
    assert request.inputs["parameters"].array.tolist() == [2, 3]
    assert request.id == ""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[]", "'the request' is a list"),
        (b'{"x": [[1]]}', "input 'x' is neither an element nor a flat list"),
        (b'{"x": {}}', "input 'x' is neither an element nor a flat list"),
        (b'{"x": ["a", 1, 2]}', "not all elements are FP32"),
        (b'{"x": [null, 1, 2]}', "not all elements are FP32"),
        (b'{"x": [1, 2, 3], "parameters": {"x": 2}}', "input 'x' is there twice"),
        (b'{"z": [1]}', "'z' is a list, not a boolean"),
        (b'{"id": 1}', "'id' is an integer"),
        (b'{"parameters": 1}', "'parameters' is an integer"),
        (b'{"x": [1, 2, 3, 4]}', "got 4 elements, expected 6"),
    ],
)
def test_malformed_bodies_of_generate_are_refused(model: Model, body: bytes, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        decode_generate(model, "", body)
    assert told in caught.value.message


def test_generate_gives_an_element_or_a_flat_list() -> None:
    one = InferTensor("INT64", np.array([[7]]))
    assert orjson.loads(encode_generate(response(one=one, many=FLOATS))) == {
        "model_name": "m",
        "model_version": "1",
        "id": "a",
        "parameters": {"final": True},
        "one": 7,
        "many": [1.5, None],
    }
