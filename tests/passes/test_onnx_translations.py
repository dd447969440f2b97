"""Each translation to ONNX gives what our own kernel gives, in both layouts of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.graph.node import Node
from asyncexec.passes.onnx_emitter import Emitter, UntranslatableError
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.process.onnx_model import FROM_NCHW, TO_NCHW
from asyncexec.process.onnx_session import load

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

Rng = np.random.Generator
SPECIAL: Final = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, 0.5, -3.0, 6.5, 100.0], np.float32)


class Const(NamedTuple):
    """An input that is a constant of the graph."""

    value: Any


class Case(NamedTuple):
    """A node: its inputs, from arrays, and its attrs; some dimensions of the arrays are unknown in the graph."""

    op: str
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = {}
    is_batched: bool = True  # whether the first dimension is unknown
    stacks: bool = False  # whether the inputs are one list


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def whole(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-5, 6, shape).astype(dtype)


def ints(*values: int) -> Const:
    return Const(np.array(values, np.int32))


def image(rows: int = 9, columns: int = 8, channels: int = 4, batch: int = 2) -> np.ndarray:
    return normal(batch, rows, columns, channels)


def convolutions() -> list[Case]:
    found = []
    for padding in ("SAME", "VALID", "EXPLICIT"):
        for stride, dilation, size in ((1, 1, (3, 3)), (2, 1, (3, 2)), (3, 1, (2, 5)), (1, 2, (3, 3)), (2, 1, (1, 1))):
            attrs: dict[str, Any] = {
                "strides": [1, stride, stride, 1],
                "padding": padding,
                "dilations": [1, dilation, dilation, 1],
            }
            if padding == "EXPLICIT":
                attrs["explicit_paddings"] = [0, 0, 2, 1, 0, 3, 0, 0]
            found.append(Case("Conv2D", (image(), Const(normal(*size, 4, 6))), attrs))
            found.append(Case("Conv2D", (image(), normal(*size, 4, 6)), attrs, is_batched=False))
            found.append(Case("Conv2D", (image(), Const(normal(*size, 2, 6))), attrs))
            if padding != "EXPLICIT":
                found.append(Case("DepthwiseConv2dNative", (image(), Const(normal(*size, 4, 3))), attrs))
    for padding, stride, given, wanted in (
        ("SAME", 2, 5, 9),
        ("SAME", 2, 5, 10),
        ("VALID", 2, 4, 10),
        ("SAME", 1, 6, 6),
    ):
        attrs = {"strides": [1, stride, stride, 1], "padding": padding}
        inputs = (ints(2, wanted, wanted, 3), Const(normal(3, 3, 3, 4)), image(given, given, 4))
        found.append(Case("Conv2DBackpropInput", inputs, attrs, is_batched=False))
    return found


def poolings() -> list[Case]:
    holes = image()
    holes[0, 1, 1, 1] = holes[1, 8, 7, 3] = np.nan
    found = []
    for op in ("MaxPool", "AvgPool"):
        for padding in ("SAME", "VALID"):
            for size, stride in ((2, 2), (3, 2), (3, 1)):
                attrs = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
                found.append(Case(op, (image(),), attrs))
                found.append(Case(op, (np.abs(image()) - 9,), attrs))
                found.append(Case(op, (holes,), attrs))
    return found


def elementwise() -> list[Case]:
    x = np.stack([SPECIAL, normal(12), normal(12) * 10]).astype(np.float32)
    unary = ("Relu", "Relu6", "Sigmoid", "Tanh", "Elu", "Softplus", "Softsign", "Erf", "Exp", "Log", "Sqrt", "Rsqrt")
    unary += ("Neg", "Abs", "Floor", "Ceil", "Reciprocal", "Square", "Identity", "Softmax", "LogSoftmax")
    found = [Case(op, (value,)) for op in unary for value in (x, image())]
    found += [Case("LeakyRelu", (x,), {"alpha": 0.1})]
    binary = ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference")
    binary += ("Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual")
    across = np.repeat(SPECIAL, 12).reshape(12, 12), np.tile(SPECIAL, (12, 1))
    for op in binary:
        found.append(Case(op, across))
        found.append(Case(op, (image(), image(9, 8, 4, 1))))
        found.append(Case(op, (image(), Const(normal(4)))))
        found.append(Case(op, (Const(normal(8, 1)), image())))
        found.append(Case(op, (image(), Const(np.float32(0.5)))))
        found.append(Case(op, (image(), normal(4)), is_batched=False))
    for op in ("AddV2", "Sub", "Mul", "Greater", "Equal"):
        for dtype in ("int32", "int64"):
            found.append(Case(op, (whole(3, 4, dtype=dtype), whole(4, dtype=dtype)), is_batched=False))
    yes, no = whole(3, 4) > 0, whole(4, 3).T > 0
    found += [Case("LogicalAnd", (yes, no)), Case("LogicalOr", (yes, no)), Case("LogicalNot", (yes,))]
    found += [Case("SelectV2", (yes, normal(3, 4), Const(np.float32(-1e9))))]
    found += [Case("SelectV2", (image() > 0, image(), normal(1, 1, 1, 4)), is_batched=False)]
    for source, target in (("int32", ax.float32), ("int64", ax.float32), ("int64", ax.int32), ("int32", ax.int64)):
        found.append(Case("Cast", (whole(3, 4, dtype=source) * 2**29,), {"DstT": target}))
    found += [Case("Cast", (yes,), {"DstT": ax.float32}), Case("Cast", (x,), {"DstT": ax.bool})]
    found += [Case("AddN", (image(), image(9, 8, 4), normal(2, 9, 8, 4)), stacks=True)]
    found += [
        Case("BiasAdd", (image(), Const(normal(4)))),
        Case("BiasAdd", (normal(3, 4), normal(4)), is_batched=False),
    ]
    return found


def products() -> list[Case]:
    found = []
    for flags in ((False, False), (True, False), (False, True), (True, True)):
        a = normal(5, 3) if flags[0] else normal(3, 5)
        b = normal(4, 5) if flags[1] else normal(5, 4)
        attrs = {"transpose_a": flags[0], "transpose_b": flags[1]}
        found += [Case("MatMul", (a, b), attrs, is_batched=False), Case("MatMul", (a, Const(b)), attrs)]
        attrs = {"adj_x": flags[0], "adj_y": flags[1]}
        stacked = np.stack([a, a * 2]), np.stack([b, b - 1])
        found += [Case("BatchMatMulV2", stacked, attrs), Case("BatchMatMul", stacked, attrs, is_batched=False)]
        found += [Case("BatchMatMulV2", (stacked[0], Const(b)), attrs)]
    empty = np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32)
    found += [Case("MatMul", empty, is_batched=False), Case("MatMul", (np.zeros((0, 5), np.float32), normal(5, 4)))]
    for equation, left, right in (
        ("abc,cde->abde", (2, 3, 4), (4, 5, 6)),
        ("abcd,cde->abe", (2, 3, 4, 5), (4, 5, 6)),
        ("abc,cd->abd", (2, 3, 4), (4, 5)),
        ("acbe,aecd->abcd", (2, 3, 4, 5), (2, 5, 3, 6)),
        ("aecd,abcd->acbe", (2, 3, 4, 5), (2, 6, 4, 5)),
        ("ab,cb->ca", (2, 3), (4, 3)),
    ):
        inputs = (normal(*left), normal(*right))
        attrs = {"equation": equation}
        found.append(Case("Einsum", inputs, attrs, is_batched=False, stacks=True))
        found.append(Case("Einsum", (inputs[0], Const(inputs[1])), attrs, stacks=True))
    return found


def reductions() -> list[Case]:
    holes = image()
    holes[0, 1, 1, 1] = holes[1, :, :, 3] = np.nan
    found = []
    for op in ("Mean", "Sum", "Max", "Min"):
        for axes in ((1, 2), (3,), (-1,), (0,), (0, 1, 2, 3), (2,), (1,), (2, 3)):
            for keeps in (False, True):
                for value in (image(), holes):
                    found.append(Case(op, (value, ints(*axes)), {"keep_dims": keeps}))
    found += [Case(op, (whole(3, 4), ints(1))) for op in ("Sum", "Prod")]
    found += [Case("Prod", (whole(3, dtype="int64"), Const(np.int32(0))))]
    return found


def moves() -> list[Case]:
    x = image()
    found = [
        *(Case("Reshape", (x, ints(*shape))) for shape in ((2, -1), (-1,), (2, 8, 9, 4), (-1, 4))),
        Case("Reshape", (x, np.array([2, 72, 4], np.int32)), is_batched=False),
        Case("Squeeze", (normal(2, 1, 1, 3),), {"squeeze_dims": [1, 2]}),
        Case("Squeeze", (normal(2, 1, 1, 3),), {"squeeze_dims": [-2]}),
        Case("Squeeze", (normal(2, 1, 1, 3),), is_batched=False),
        *(Case("ExpandDims", (normal(2, 3), Const(np.int32(axis)))) for axis in (0, 1, -1)),
        *(Case("Transpose", (x, ints(*perm))) for perm in ((0, 3, 1, 2), (0, 2, 3, 1), (1, 0, 3, 2), (3, 2, 1, 0))),
        Case("Transpose", (normal(3, 4, 5), ints(2, 0, 1))),
        *(Case("ReverseV2", (normal(3, 4, 5), ints(*axes))) for axes in ((0,), (1,), (-1, 0))),
        *(Case("Pad", (x, Const(np.array(pads, np.int32)))) for pads in ([[0, 0], [1, 2], [0, 3], [0, 0]],)),
        Case("Pad", (normal(3, 4), Const(np.array([[0, 1], [2, 0]])))),
        Case("PadV2", (x, Const(np.array([[0, 0], [1, 2], [0, 3], [1, 0]])), Const(np.float32(-np.inf)))),
        *(Case("Tile", (normal(2, 3), ints(*multiples))) for multiples in ((2, 1), (3, 2), (1, 0))),
        *(Case("Shape", (x,), {"out_type": dtype}) for dtype in (ax.int32, ax.int64)),
        Case("Slice", (x, ints(0, 1, 2, 0), ints(-1, 3, 4, -1))),
        Case("Slice", (normal(5, 6), ints(1, 0), ints(3, 6)), is_batched=False),
        Case("GatherV2", (normal(5, 6), ints(4, 0, 0, 2), Const(np.int32(0))), is_batched=False),
        Case("GatherV2", (normal(5, 6), Const(np.int32(2)), Const(np.int32(-1)))),
        Case("Pack", (normal(3, 4), normal(3, 4) + 1), {"axis": 1}, stacks=True),
        Case("Pack", (whole(3), whole(3) + 1), {"axis": -1}, stacks=True),
        Case("Split", (Const(np.int32(3)), x), {"num_split": 2}),
        Case("Split", (Const(np.int32(1)), normal(2, 6)), {"num_split": 3}),
        *(
            Case("ResizeBilinear", (x, ints(*size)), attrs)
            for size in ((18, 16), (5, 20), (9, 8))
            for attrs in ({"half_pixel_centers": True}, {"align_corners": True}, {})
        ),
        Case("ResizeNearestNeighbor", (x, ints(18, 32))),
        Case("ResizeNearestNeighbor", (x, ints(36, 16)), {"half_pixel_centers": True}),
    ]
    for begin, end, strides, attrs in (
        ((0, 1), (0, 4), (1, 1), {"begin_mask": 1, "end_mask": 1}),
        ((1, -3), (3, -1), (1, 1), {}),
        ((0, 5), (10, 100), (2, 3), {}),
        ((-1, 0), (0, 2), (1, 1), {"shrink_axis_mask": 1}),
        ((1, 2), (2, 3), (1, 1), {"shrink_axis_mask": 3}),
        ((0, 0, 0), (0, 0, 4), (1, 1, 1), {"begin_mask": 5, "end_mask": 1, "new_axis_mask": 2}),
        ((3, 1), (1, 4), (1, 1), {}),
    ):
        inputs = (normal(5, 7), ints(*begin), ints(*end), ints(*strides))
        found.append(Case("StridedSlice", inputs, attrs))
    return found


def normalizations() -> list[Case]:
    given = [Const(np.abs(normal(4)) + shift) for shift in (0.5, 0, 0.1, 1)]
    return [Case("FusedBatchNormV3", (image(), *given), {"is_training": False, "epsilon": 1e-3})]


CASES: Final[Mapping[str, Callable[[], list[Case]]]] = {
    "convolutions": convolutions,
    "poolings": poolings,
    "elementwise": elementwise,
    "products": products,
    "reductions": reductions,
    "moves": moves,
    "normalizations": normalizations,
}


def graph_of(case: Case, *, in_nchw: bool = False) -> tuple[ax.Graph, Node, dict[Any, Any]]:
    """The graph of *case*, its node, and what is fed; *in_nchw*: images are fed so, and transposed."""
    feeds: dict[Any, Any] = {}
    with ax.Graph() as graph:
        tensors = []
        for value in case.inputs:
            if isinstance(value, Const):
                tensors.append(ax.constant(value.value))
                continue
            turned = in_nchw and value.ndim == 4
            fed = np.ascontiguousarray(value.transpose(TO_NCHW)) if turned else value
            shape = (None, *fed.shape[1:]) if case.is_batched else fed.shape
            tensor = ax.placeholder(ax.as_dtype(fed.dtype), shape)
            feeds[tensor] = fed
            tensors.append(ax.raw_ops.Transpose(tensor, ax.constant(FROM_NCHW)) if turned else tensor)
        given = [tensors] if case.stacks else tensors
        made = getattr(ax.raw_ops, case.op)(*given, **case.attrs)
    first = made[0] if isinstance(made, (tuple, list)) else made
    return graph, first.op, feeds


def outputs_of(node: Node) -> list[Any]:
    return list(node.outputs)[:1] if node.op.startswith("FusedBatchNorm") else list(node.outputs)


def by_onnx(node: Node, feeds: Mapping[Any, Any]) -> list[Any] | None:
    """The outputs of *node*, and of what transposes its inputs, by ONNX Runtime."""
    emitter = Emitter(lambda tensor: False)
    for tensor in node.inputs:
        if tensor.op.op == "Transpose":
            TRANSLATIONS["Transpose"](emitter, tensor.op)
    TRANSLATIONS[node.op](emitter, node)
    model = run_at_once(emitter.model(outputs_of(node)))
    return load(model).run([feeds[tensor] for tensor in emitter.inputs])


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("in_nchw", [False, True], ids=["as_is", "nchw"])
@pytest.mark.parametrize("kind", CASES)
async def test_translation_gives_what_our_kernel_gives(kind: str, in_nchw: bool) -> None:
    for case in CASES[kind]():
        if in_nchw and not any(np.ndim(value) == 4 for value in case.inputs if not isinstance(value, Const)):
            continue
        graph, node, feeds = graph_of(case, in_nchw=in_nchw)
        async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
            wanted = await session.run(outputs_of(node), feeds)
        got = by_onnx(node, feeds)
        if got is None:  # a guard has seen a NaN
            assert any(np.isnan(value).any() for value in feeds.values()), case
            continue
        for one, other in zip(got, wanted, strict=True):
            assert one.dtype == other.dtype, case
            assert one.shape == np.shape(other), case
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6, err_msg=f"{case.op} {case.attrs}")


def test_what_has_another_meaning_is_refused() -> None:
    for case in (
        Case("FusedBatchNormV3", (image(), *[Const(np.ones(4, np.float32))] * 4), {"is_training": True}),
        Case("GatherV2", (normal(5, 6), np.array([1], np.int32), Const(np.int32(0))), is_batched=False),
        Case("Cast", (normal(3),), {"DstT": ax.int32}),
        Case("StridedSlice", (normal(5), ints(4), ints(0), ints(-1))),
        Case("ResizeNearestNeighbor", (image(), ints(27, 24)), {"half_pixel_centers": True}),
        Case("Mean", (image(), np.array([1], np.int32)), is_batched=False),
        Case("Sum", (image(), ints())),
        Case(
            "Conv2DBackpropInput",
            (ints(2, 9, 8, 4), normal(3, 3, 4, 6), normal(2, 3)),
            {"strides": [1, 1, 1, 1], "padding": "SAME"},
            is_batched=False,
        ),
        Case("MaxPool", (image(),), {"ksize": [1, 2, 2, 1], "strides": [1, 3, 3, 1], "padding": "SAME"}),
    ):
        _, node, _ = graph_of(case)
        with pytest.raises(UntranslatableError):
            TRANSLATIONS[node.op](Emitter(lambda tensor: False), node)
