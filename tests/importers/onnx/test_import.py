"""ONNX models in graphs: their nodes beside others, their inputs, their names, their wire form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import asyncexec as ax
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    OpError,
)
from asyncexec.importers.load_onnx import load_onnx
from tests.importers.onnx.models import of_nodes, parsed, results

pytestmark = pytest.mark.filterwarnings("ignore:these ops have no kernel")

LINEAR = "test (float[n, 2] x) => (float[n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"
X = np.array([[1, 1], [0, 2]], np.float32)
Y = np.array([[5, 7, 9], [8, 10, 12]], np.float32)


async def test_a_model_runs() -> None:
    (y,) = await results(parsed(LINEAR), {"x": X})
    np.testing.assert_array_equal(y, Y)


def test_nodes_are_those_of_the_model() -> None:
    with ax.Graph() as graph:
        (y,) = ax.import_onnx(parsed(LINEAR))
    assert {(node.name, node.type) for node in graph} == {
        ("x", "Placeholder"),
        ("w", "Const"),
        ("MatMul/y", "Onnx>MatMul"),
        ("y", "Identity"),
    }
    assert (y.dtype, y.shape) == (ax.float32, ax.TensorShape([None, 3]))
    assert graph["x"].outputs[0].shape == ax.TensorShape([None, 2])


async def test_a_model_stands_between_ops_of_tensorflow_and_async_ops() -> None:
    @ax.op(outputs=[ax.float32])
    async def fetched(x: Any) -> Any:
        return x + np.float32(1)

    with ax.Graph() as graph:
        before = ax.multiply(ax.placeholder(ax.float32, [2, 2], name="in"), 2.0)
        (y,) = ax.import_onnx(parsed(LINEAR), {"x": before}, name="model")
        after = fetched(ax.reduce_sum(y))
    assert "x" not in graph.names
    assert "model/x" not in graph.names
    async with ax.Session(graph) as session:
        assert await session.run(after, {"in:0": X}) == 2 * Y.sum() + 1


async def test_elements_are_returned_by_their_onnx_names() -> None:
    model = parsed("t (float[n] x) => (float[n] y) { h = Neg(x)\n y = Neg(h) }")
    with ax.Graph() as graph:
        h, x = ax.import_onnx(model, return_elements=["h", "x"], name="a")
    async with ax.Session(graph) as session:
        got = await session.run(h, {x: np.ones(2, np.float32)})
    np.testing.assert_array_equal(got, [-1, -1])


async def test_the_same_model_twice() -> None:
    model = parsed("t (float[n] x) => (float[n] y) { y = Neg(x) }")
    with ax.Graph() as graph:
        (first,) = ax.import_onnx(model, {"x": [1.0]}, name="m")
        (second,) = ax.import_onnx(model, {"x": first}, name="m")
    async with ax.Session(graph) as session:
        np.testing.assert_array_equal(await session.run(second), [1])


@pytest.mark.parametrize(("fed", "want"), [({}, [11, 12]), ({"b/fed:0": np.float32([1])}, [2, 3])])
async def test_an_initializer_that_is_an_input_is_a_default(fed: dict[str, Any], want: list[float]) -> None:
    model = of_nodes([helper.make_node("Add", ["x", "b"], ["y"])], ["x", "b"], ["y"], [_floats("b", [10])])
    with ax.Graph() as graph:
        (y,) = ax.import_onnx(model, {"x": np.float32([1, 2])})
    async with ax.Session(graph) as session:
        np.testing.assert_array_equal(await session.run(y, fed), want)
    assert list(load_onnx(model).signatures["serving_default"].inputs) == ["x"]


def test_initializers_of_old_models_are_constants() -> None:
    model = of_nodes([helper.make_node("Add", ["x", "b"], ["y"])], ["x", "b"], ["y"], [_floats("b", [10])])
    model.ir_version = 3
    with ax.Graph() as graph:
        ax.import_onnx(model)
    assert graph["b"].type == "Const"


async def test_strings() -> None:
    model = parsed("t (string[n] x) => (string[n] y) { y = Identity(x) }")
    (y,) = await results(model, {"x": ["a", "ü"]})
    assert y.tolist() == [b"a", "ü".encode()]


async def test_an_optional_input_in_the_middle_may_be_left_out() -> None:
    model = parsed("t (float[n] x, float high) => (float[n] y) { y = Clip(x, , high) }")
    (y,) = await results(model, {"x": np.float32([-5, 5]), "high": np.float32(1)})
    np.testing.assert_array_equal(y, [-5, 1])


async def test_an_optional_output_may_be_left_out() -> None:
    model = parsed("t (float[n] x) => (int64[m] places) { , places = TopK <axis = 0> (x, k) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "k"))
    (places,) = await results(model, {"x": np.float32([1, 9, 5])})
    np.testing.assert_array_equal(places, [1, 2])


async def test_a_function_of_the_model() -> None:
    functions = """
    t (float[n] x) => (float[n] y) { y = my.Twice <by = 3.0> (x) }
    <domain: "my", opset_import: ["" : 18]>
    Twice <by> (a) => (c) { b = Constant <value_float : float = @by> ()\n c = Mul(a, b) }
    """
    (y,) = await results(parsed(functions, head=', "my" : 1'), {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(y, [3, 6])


async def test_an_op_that_onnx_defines_by_a_body() -> None:
    model = parsed("t (float[n] x) => (float[n] y) { y = ThresholdedRelu <alpha = 2.0> (x) }")
    (y,) = await results(model, {"x": np.float32([1, 2, 3])})
    np.testing.assert_array_equal(y, [0, 0, 3])


@pytest.mark.allow_blocking
@pytest.mark.parametrize("suffix", [".json", ".pb", ".pbtxt"])
async def test_a_graph_with_onnx_nodes_is_saved_and_loaded(tmp_path: Path, suffix: str) -> None:
    model = parsed("t (float[n] x) => (float[m] y, int64[m] i) { y, i = TopK <axis = 0, largest = 0> (x, k) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "k"))
    with ax.Graph() as graph:
        ax.import_onnx(model)
    ax.save_graph_def(graph.as_graph_def(), tmp_path / f"graph{suffix}")
    with ax.Graph() as again:
        y, i = ax.import_graph_def(ax.load_graph_def(tmp_path / f"graph{suffix}"), return_elements=["y:0", "i:0"])
    assert again["TopK/y"].attrs["largest"] == 0
    async with ax.Session(again) as session:
        values, places = await session.run([y, i], {"x:0": np.float32([3, 1, 2])})
    assert (values.tolist(), places.tolist()) == ([1, 2], [1, 2])


ODD_DTYPES = "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn int4 uint4 int2 uint2 bfloat16".split()


@pytest.mark.parametrize("name", ODD_DTYPES)
async def test_dtypes_of_few_bits_come_through_a_graph_def(name: str) -> None:
    dtype = ax.as_dtype(name)
    value = np.ones(3).astype(dtype.as_numpy_dtype)
    tensor = numpy_helper.from_array(value, "c")
    kind = tensor.data_type
    graph = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["y"])],
        "t",
        [],
        [helper.make_tensor_value_info("y", kind, [3])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    (y,) = await results(model, {})
    assert y.dtype == value.dtype
    assert y.tobytes() == value.tobytes()
    with ax.Graph() as built:
        ax.import_onnx(model)
    again = json.loads(built.as_graph_def().to_json())
    assert f"DT_{name.upper()}" in json.dumps(again)


def test_names_that_a_graph_cannot_have() -> None:
    model = parsed("t (float[n] x) => (float[n] y) { y = Neg(x) }")
    model.graph.input[0].name = model.graph.node[0].input[0] = "serving input:0"
    model.graph.node[0].name = "/layer (1)/Neg"
    with ax.Graph() as graph:
        ax.import_onnx(model)
    assert {node.name for node in graph} == {"serving_input_0", "layer__1_/Neg", "y"}


async def test_an_error_of_a_kernel_names_the_node() -> None:
    model = parsed("t (float[n] x, int64[m] shape) => (float[k] y) { y = Reshape(x, shape) }")
    model.graph.node[0].name = "/fc/Reshape"
    with pytest.raises(OpError) as caught:
        await results(model, {"x": np.ones(3, np.float32), "shape": np.array([2])})
    assert caught.value.node == "fc/Reshape"
    assert caught.value.op == "Onnx>Reshape"


def test_ops_of_onnx_can_be_made_by_hand() -> None:
    with ax.Graph():
        (y,) = ax.create_op("Onnx>Neg", [[np.float32([1, 2])]], {"opset": 13, "Tout": [ax.float32]})
        (z,) = ax.create_op(
            "Onnx>StringNormalizer",
            [[["b", "a"]]],
            {"opset": 10, "Tout": [ax.string], "case_change_action": "UPPER", "stopwords": ["a"]},
        )
    assert (y.dtype, z.op.attrs["stopwords"]) == (ax.float32, (b"a",))


@pytest.mark.parametrize(
    ("mapped", "error", "message"),
    [
        ({"z": [1.0]}, NotFoundError, "the model has no value 'z'"),
        ({"x": np.int32([1])}, InvalidTypeError, "int32"),
        ({"x": np.float32([[1, 2, 3]])}, InvalidArgumentError, "has shape [1,3], but the model takes [?,2]"),
    ],
)
def test_inputs_that_do_not_fit(mapped: dict[str, Any], error: type[OpError], message: str) -> None:
    with ax.Graph() as graph, pytest.raises(error, match=re.escape(message)):
        ax.import_onnx(parsed(LINEAR), {key: ax.constant(value) for key, value in mapped.items()})
    assert all(node.type == "Const" for node in graph)


async def test_the_shape_of_a_mapped_tensor_is_checked_when_it_is_known() -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, name="fed")
        (y,) = ax.import_onnx(parsed(LINEAR), {"x": fed})
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match=re.escape("[1, 3] is not compatible")):
            await session.run(y, {fed: np.ones((1, 3), np.float32)})


def test_there_must_be_a_graph() -> None:
    with pytest.raises(FailedPreconditionError):
        ax.import_onnx(parsed(LINEAR))


def test_the_signature_has_inputs_and_outputs_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parsed(LINEAR), path)
    signature = load_onnx(path).signatures["serving_default"]
    assert {key: (info.name, info.dtype, info.shape) for key, info in signature.inputs.items()} == {
        "x": ("x:0", ax.float32, ax.TensorShape([None, 2]))
    }
    assert {key: (info.name, info.dtype) for key, info in signature.outputs.items()} == {"y": ("y:0", ax.float32)}


@pytest.mark.allow_blocking
async def test_external_data(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    weights = np.arange(2000, dtype=np.float32)
    model = of_nodes(
        [helper.make_node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [numpy_helper.from_array(weights, "w")]
    )
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size == weights.nbytes
    (y,) = await results(path, {"x": np.float32([1])})
    np.testing.assert_array_equal(y, weights + 1)


def _floats(name: str, values: list[float]) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)
