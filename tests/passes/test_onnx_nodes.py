"""Nodes of imported ONNX models in clusters: the same results as by our own kernels, and which are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.graph.node import Node
from asyncexec.passes.onnx_emitter import Emitter, UntranslatableError
from asyncexec.passes.onnx_nodes import opset_of
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.process.onnx_session import load

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(0)


class Const(NamedTuple):
    """An input that is an initializer."""

    value: Any


class Case(NamedTuple):
    """A node: its op, its inputs, where None is left out, and its attributes."""

    op: str
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = {}
    num_outputs: int = 1
    opset: int = 17
    absent_outputs: tuple[int, ...] = ()


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> Const:
    return Const(np.array(values, np.int64))


def floats(*values: float) -> Const:
    return Const(np.array(values, np.float32))


def model_of(case: Case) -> Any:
    """The model of one node."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(case.inputs)]
    outputs = ["" if i in case.absent_outputs else f"y{i}" for i in range(case.num_outputs)]
    inputs, initializers = [], []
    for name, value in zip(names, case.inputs, strict=True):
        if isinstance(value, Const):
            initializers.append(numpy_helper.from_array(value.value, name))
        elif value is not None:
            dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
            inputs.append(helper.make_tensor_value_info(name, dtype, value.shape))
    graph = helper.make_graph(
        [helper.make_node(case.op, names, outputs, "node", **case.attrs)],
        "graph",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
        initializers,
    )
    opsets = [helper.make_opsetid("", case.opset)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def imported(case: Case) -> tuple[ax.Graph, Node, dict[Any, Any]]:
    """The graph of *case*, its node, and what is fed."""
    with ax.Graph() as graph:
        ax.import_onnx(model_of(case))
    feeds = {
        graph.tensor(f"x{i}:0"): value
        for i, value in enumerate(case.inputs)
        if value is not None and not isinstance(value, Const)
    }
    return graph, graph.operation("node"), feeds


def cases() -> list[Case]:
    image, rows = normal(2, 4, 9, 8), normal(3, 5)
    positive = np.abs(rows) + 0.5
    filters = Const(normal(6, 4, 3, 3))
    vector = [Const(normal(4)), Const(normal(4)), Const(normal(4)), Const(np.abs(normal(4)))]
    mask = rows > 0
    recurrent = [Const(normal(2, 12, 5)), Const(normal(2, 12, 3)), Const(normal(2, 24))]
    lstm = [Const(normal(1, 12, 5)), Const(normal(1, 12, 3)), Const(normal(1, 24))]
    rnn = [Const(normal(1, 3, 5)), Const(normal(1, 3, 3))]
    return [
        Case("Conv", (image, filters, Const(normal(6)))),
        Case("Conv", (image, filters), {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        Case("Conv", (image, filters), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        Case("Conv", (image, Const(normal(8, 1, 3, 3))), {"group": 4}),
        Case("Conv", (image, normal(6, 4, 3, 3))),
        Case("Conv", (normal(2, 4, 9), Const(normal(6, 4, 3)))),
        Case("ConvTranspose", (image, Const(normal(4, 5, 3, 3))), {"strides": [2, 2], "output_padding": [1, 1]}),
        Case("MatMul", (rows, Const(normal(5, 4)))),
        Case("MatMul", (normal(2, 3, 5), normal(5))),
        Case("Gemm", (normal(5, 3), Const(normal(4, 5)), Const(normal(4))), {"transA": 1, "transB": 1, "alpha": 0.5}),
        Case("Gemm", (rows, Const(normal(5, 4))), opset=11),
        Case("LSTM", (normal(4, 2, 5), *lstm), {"hidden_size": 3}, 3),
        Case("LSTM", (normal(4, 2, 5), *lstm, None, normal(1, 2, 3)), {"hidden_size": 3}, 3, absent_outputs=(0,)),
        Case("LSTM", (normal(4, 2, 5), *recurrent), {"hidden_size": 3, "direction": "bidirectional"}, 2, opset=14),
        Case("GRU", (normal(4, 2, 5), Const(normal(1, 9, 5)), Const(normal(1, 9, 3))), {"hidden_size": 3}, 2),
        Case("RNN", (normal(4, 2, 5), *rnn), {"hidden_size": 3, "direction": "reverse"}, 2),
        Case("BatchNormalization", (image, *vector), {"epsilon": 1e-3}),
        Case("BatchNormalization", (image, *vector), opset=9),
        Case("LayerNormalization", (rows, Const(normal(5)), Const(normal(5))), {"epsilon": 1e-3}),
        Case("InstanceNormalization", (image, Const(normal(4)), Const(normal(4)))),
        Case("LRN", (image,), {"size": 3}),
        Case("MaxPool", (image,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        Case("AveragePool", (image,), {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
        Case("AveragePool", (image,), {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1]}),
        *(Case(op, (image,)) for op in ("GlobalAveragePool", "GlobalMaxPool")),
        Case(
            "Resize",
            (image, None, floats(1, 1, 2, 2)),
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ),
        Case("Resize", (image, None, None, ints(2, 4, 18, 12)), {"mode": "linear"}),
        Case(
            "Resize",
            (image, None, None, ints(2, 4, 5, 12)),
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        ),
        *(Case(op, (rows, normal(5))) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual")),
        Case("Add", (np.arange(4), ints(1, 2, 3, 4))),
        Case("Pow", (positive, Const(np.float32(2.5)))),
        *(Case(op, (rows,)) for op in ("Relu", "Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Softsign", "Erf", "Exp")),
        *(Case(op, (rows,)) for op in ("Neg", "Abs", "Floor", "Ceil", "Sin", "Cos", "Celu", "HardSwish", "LeakyRelu")),
        *(Case(op, (positive,)) for op in ("Log", "Sqrt", "Reciprocal")),
        *(Case(op, (rows,), opset=20) for op in ("Gelu", "Mish")),
        Case("PRelu", (rows, Const(normal(5)))),
        Case("HardSigmoid", (rows,), {"alpha": 0.3}),
        Case("Clip", (rows, None, floats(0.5).value.reshape(()))),
        Case("Clip", (rows,), {"min": -0.5}, opset=9),
        *(Case(op, (rows, rows, rows)) for op in ("Sum", "Mean")),
        *(Case(op, (mask, ~mask)) for op in ("And", "Or")),
        Case("Not", (mask,)),
        Case("Equal", (np.arange(4), np.array([0, 2, 2, 3]))),
        Case("Where", (mask, rows, Const(np.float32(-1e9)))),
        Case("Cast", (mask,), {"to": 1}),
        *(Case(op, (rows,), {"axis": -1}) for op in ("Softmax", "LogSoftmax")),
        Case("Softmax", (normal(2, 3, 4),), {"axis": 1}, opset=11),
        *(Case(op, (rows,), {"axes": [1]}) for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")),
        Case("ReduceMean", (rows, ints(0)), {"keepdims": 0}, opset=18),
        Case("ReduceSum", (rows, ints(1))),
        Case("Transpose", (image,)),
        Case("Transpose", (image,), {"perm": [0, 2, 3, 1]}),
        Case("Flatten", (image,)),
        Case("Reshape", (image, ints(0, -1))),
        Case("Reshape", (image, np.array([8, -1]))),
        Case("Squeeze", (normal(1, 3), ints(0))),
        Case("Squeeze", (normal(1, 3),), {"axes": [0]}, opset=11),
        Case("Unsqueeze", (rows, ints(0, 3))),
        Case("Concat", (rows, rows), {"axis": 1}),
        Case("Split", (rows, ints(2, 3)), {"axis": 1}, 2),
        Case("Slice", (rows, ints(0), ints(-1), ints(1), ints(2))),
        Case("Gather", (rows, np.array([[1, -1], [0, 2]])), {"axis": 1}),
        Case("Shape", (rows,)),
        Case("Pad", (image, ints(0, 0, 1, 2, 0, 0, 0, 1), Const(np.float32(0.5)))),
        Case("Expand", (normal(3, 1), ints(2, 3, 4))),
        Case("Tile", (rows, ints(2, 1))),
        Case("Dropout", (rows,)),
        *(Case(op, (image,), {"blocksize": 2}) for op in ("DepthToSpace",)),
        Case("SpaceToDepth", (normal(1, 2, 4, 4),), {"blocksize": 2}),
        Case("Identity", (rows,)),
    ]


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.op)
async def test_onnx_runtime_gives_what_our_kernel_gives(case: Case) -> None:
    graph, node, feeds = imported(case)
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run(list(node.outputs), feeds)
    emitter = Emitter(lambda tensor: False)
    TRANSLATIONS[node.op](emitter, node)
    got = load(run_at_once(emitter.model(node.outputs, opset_of(node)))).run(
        [feeds[tensor] for tensor in emitter.inputs]
    )
    assert got is not None
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, np.shape(other))
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "case",
    [
        Case("Div", (np.arange(4), np.arange(4))),
        Case("Cast", (normal(3),), {"to": 7}),
        Case("Conv", (normal(1, 4, 9, 8), normal(6, 4, 3, 3)), {"auto_pad": "SAME_UPPER", "dilations": [2, 2]}),
        Case("MaxPool", (normal(1, 4, 9, 8),), {"kernel_shape": [2, 2]}, 2),
        Case("Expand", (normal(3, 1), np.array([2, 3, 4]))),
        Case("Dropout", (normal(3), floats(0.5), Const(np.bool_(True)))),
        Case("LSTM", (normal(2, 4, 5), normal(1, 12, 5), normal(1, 12, 3)), {"hidden_size": 3, "layout": 1}),
        Case("Relu", (normal(3),), opset=24),
    ],
    ids=lambda case: case.op,
)
def test_what_is_not_safe_or_has_another_meaning_is_left_out(case: Case) -> None:
    _, node, _ = imported(case)
    with pytest.raises(UntranslatableError):
        TRANSLATIONS[node.op](Emitter(lambda tensor: False), node)


def mlp(opset: int) -> Any:
    """Two products with a Relu between, which several outputs take from."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w", "b"], ["y"], "last"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", 1, ["n", 5])],
        [value("h", 1, ["n", 5]), value("y", 1, ["n", 5])],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(W[0], "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


W = normal(5, 5)


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("opset", [13, 17, 21])
async def test_an_imported_model_is_one_cluster_beside_nodes_of_tensorflow(opset: int) -> None:
    x = normal(3, 5)
    with ax.Graph() as graph:
        h, y = ax.import_onnx(mlp(opset))
        z = ax.matmul(ax.tanh(y), ax.constant(W), name="z")
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run([h, y, z], {"x:0": x})
    metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
    async with ax.Session(graph, ax.SessionConfig(jit="onnxruntime")) as session:
        got = await session.run([h, y, z], {"x:0": x}, metadata=metadata, options=options)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    (found,) = (each for each in metadata.passes if each.name == "onnx_clusters")
    assert found.graph is not None
    clusters = sorted(node.name for node in found.graph.node if node.op == "_OnnxCluster")
    assert clusters == (["z/onnx"] if opset == 17 else ["last/onnx", "z/onnx"])


SPECIAL = np.array([[np.nan, np.inf, -np.inf, 0, -0.0, 1e38, -1e38, 1e-40, 3, -3, 100, -100]], np.float32)
OPS_OF_ONE = (
    "Relu LeakyRelu Sigmoid Tanh Elu Selu Celu Softplus Softsign HardSigmoid HardSwish Gelu Mish Erf Exp Log Sqrt Neg "
    "Abs Reciprocal Floor Ceil Sin Cos Softmax LogSoftmax ReduceMean ReduceSum ReduceL2 ReduceSumSquare"
)


@pytest.mark.allow_blocking
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.one_of("loop")
async def test_nan_and_infinities_are_those_of_our_kernels() -> None:
    others = Const(np.array([[np.nan], [1], [np.inf]], np.float32))
    given = [Case(op, (SPECIAL,), opset=20) for op in OPS_OF_ONE.split()]
    given += [Case(op, (SPECIAL, others)) for op in ("Max", "Min", "Add", "Mul", "Div", "Pow", "Greater", "Equal")]
    for case in given:
        graph, node, feeds = imported(case)
        async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
            (wanted,) = await session.run(list(node.outputs), feeds)
        emitter = Emitter(lambda tensor: False)
        TRANSLATIONS[node.op](emitter, node)
        (got,) = load(run_at_once(emitter.model(node.outputs, opset_of(node)))).run([SPECIAL]) or ()
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6, err_msg=case.op)


@pytest.mark.parametrize(
    ("op", "hidden_size", "rows", "is_shared"),
    [
        ("LSTM", 8, 4, False),
        ("LSTM", 8, 1000, True),  # threads share the rows
        ("LSTM", 256, 1, True),
        ("GRU", 8, 1000, False),  # threads share each product, which stays as narrow
        ("GRU", 256, 1, True),
    ],
)
def test_threads_share_the_steps_of_a_recurrence_that_are_large(
    op: str, hidden_size: int, rows: int, is_shared: bool
) -> None:
    gates = {"LSTM": 4, "GRU": 3}[op] * hidden_size
    weights = [Const(normal(1, gates, 5)), Const(normal(1, gates, hidden_size))]
    _, node, _ = imported(Case(op, (normal(3, rows, 5), *weights), {"hidden_size": hidden_size}, 2))
    emitter = Emitter(lambda tensor: False)
    TRANSLATIONS[node.op](emitter, node)
    assert (emitter.kinds_of_work.on_threads(1) > 0) == is_shared
