"""Shapes that follow from values: from constants, and from what is known of shapes that tensors spell."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.shape_inference import MAX_VALUES, InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from tests.graph.testing_ops import load

PREAMBLE = """
    x: Placeholder[float32, [?, 28, 28]]
    known: Placeholder[float32, [4, 6]]
    anything: Placeholder[float32]
    n: Placeholder[int32, []]
    sizes: Placeholder[int32, [3]]
    any_sizes: Placeholder[int32]
    zero: Const[0]
    one: Const[1]
    minus_one: Const[-1]
    first: Const[[0]]
    second: Const[[1]]
    third: Const[[2]]
"""


SLICED_BATCH = """
    s: Shape({of})
    b: StridedSlice[shrink_axis_mask=1](s, first, second, second)
    d: Const[{size}]
    p: Pack(b, d)
    y: Reshape({of}, p)
"""


def shape(text: str, name: str) -> str:
    return str(load(PREAMBLE + text).tensor(f"{name}:0").shape)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s: Const[[2, 12]]\ny: Reshape(known, s)", "[2,12]"),
        ("s: Const[[-1, 8]]\ny: Reshape(known, s)", "[3,8]"),
        ("s: Shape(known)\ny: Reshape(anything, s)", "[4,6]"),
        ("s: Shape(x)\ny: Reshape(anything, s)", "[?,28,28]"),
        ("s: Shape(x)\ni: Identity(s)\nc: Cast[DstT=int64](i)\ny: Reshape(anything, c)", "[?,28,28]"),
        ("y: Reshape(anything, sizes)", "[?,?,?]"),
        ("y: Reshape(anything, any_sizes)", "<unknown>"),
        # The batch of x, sliced out of its shape and packed again: how every exported model flattens.
        (SLICED_BATCH.format(of="x", size=784), "[?,784]"),
        (SLICED_BATCH.format(of="known", size=-1), "[4,6]"),
        ("s: Shape(x)\nb: StridedSlice(s, second, first, second)\ny: Reshape(anything, b)", "[]"),
        ("s: Shape(x)\nb: StridedSlice[end_mask=1](s, second, first, second)\ny: Reshape(anything, b)", "[28,28]"),
        ("s: Shape(x)\nb: StridedSlice[begin_mask=1](s, first, third, second)\ny: Reshape(anything, b)", "[?,28]"),
        ("s: Shape(x)\nt: Const[[7]]\nc: ConcatV2(t, s, zero)\ny: Reshape(anything, c)", "[7,?,28,28]"),
        ("s: Shape(x)\nc: ConcatV2(sizes, s, zero)\ny: Reshape(anything, c)", "[?,?,?,?,28,28]"),
        ("p: Pack(n, one)\ny: Reshape(anything, p)", "[?,1]"),
        ("s: Shape(known)\nt: Mul(s, two)\ntwo: Const[2]\ny: Fill(t, f)\nf: Const[0.5]", "[8,12]"),
        ("s: Size(known)\np: Pack(s)\nf: Const[0.5]\ny: Fill(p, f)", "[24]"),
        ("r: Rank(x)\nd: Const[1]\ny: Range(zero, r, d)", "[3]"),
        ("s: Shape(known)\ng: Prod(s, first)\np: Pack(g)\ny: Reshape(anything, p)", "[24]"),
        ("y: Sum(x, second)", "[?,28]"),
        ("y: ExpandDims(x, minus_one)", "[?,28,28,1]"),
        ("y: Transpose(x, perm)\nperm: Const[[2, 0, 1]]", "[28,?,28]"),
        ("y: Sum(known, n)", "<unknown>"),
    ],
)
def test_shapes_from_values(text: str, expected: str) -> None:
    assert shape(text, "y") == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s: Const[[5, 5]]\ny: Reshape(known, s)", "24"),
        ("s: Const[[-2]]\ny: Reshape(known, s)", "-2"),
        ("y: MatMul(known, known)", "6 and 4"),
        ("y: Add(known, b)\nb: Placeholder[float32, [5]]", "5 and 6"),
        ("y: ConcatV2(known, x, zero)", "rank"),
        ("s: Const[[4294967296, 4294967296], int64]\nf: Const[1.0]\ny: Fill(s, f)", "elements"),
        ("s: Placeholder[int32, [35184372088832]]\nf: Const[1.0]\ny: Fill(s, f)", "254 dimensions, not 35184372088832"),
        (
            "l: Const[2147483647]\ns: Range(zero, l, one)\ny: Fill(s, zero)",
            "254 dimensions, not 2147483647",
        ),
    ],
)
def test_shapes_that_cannot_fit(text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(PREAMBLE + text)
    assert said in caught.value.message
    assert caught.value.node == "y"


def test_a_merge_agrees_with_all_that_may_come() -> None:
    text = """
        p: Placeholder[bool, []]
        a: Placeholder[float32, [2, 3]]
        b: Placeholder[float32, [2, 4]]
        m: Merge(a, b)
        e: Enter[frame_name='w', is_constant=true](a)
        l: Merge(e, n)
        n: NextIteration(l)
    """
    graph = load(text)
    assert str(graph.tensor("m:0").shape) == "[2,?]"
    assert str(graph.tensor("l:0").shape) == "[?,?]"  # the loop may change the sizes


def test_no_large_value_is_computed() -> None:
    graph = load(
        "n: Const[2000000000]\nz: Const[0]\no: Const[1]\nr: Range(z, n, o)\ns: Sum(r, z)\np: Pack(s)\ny: Fill(p, o)"
    )
    assert graph.tensor("r:0").shape == [2_000_000_000]
    assert str(graph.tensor("y:0").shape) == "[?]"


def test_a_slice_of_a_vector_too_long_for_a_shape() -> None:
    slots = "b: Const[[0]]\ne: Const[[2]]\no: Const[[1]]\nf: Const[1.0]\n"
    graph = load(slots + "v: Placeholder[int32, [1000]]\ns: StridedSlice(v, b, e, o)\ny: Fill(s, f)")
    assert str(graph.tensor("y:0").shape) == "[?,?]"


def test_a_shape_function_does_not_see_large_values() -> None:
    shapes = [TensorShape([MAX_VALUES + 1])]
    context = InferenceContext(parse_op_def("X", "x: int32 -> y: int32", ""), {}, shapes, (), lambda index: values)
    values = np.zeros(MAX_VALUES + 1, np.int32)
    assert context.value(0) is None
    values = values[1:]
    assert context.value(0) is values


@pytest.mark.parametrize("op", ["Pack", "Chain"])
def test_deep_shape_arithmetic_neither_recurses_nor_explodes(op: str) -> None:
    """Each level asks the one before twice: without a memory of its answers that is 2 ** 500 questions."""
    lines = [
        "x: Placeholder[float32, [?, ?]]",
        "s0: Shape(x)",
        "zero: Const[[0]]",
        "one: Const[[1]]",
        "two: Const[[2]]",
    ]
    for i in range(500):
        lines.append(f"a{i}: StridedSlice[shrink_axis_mask=1](s{i}, zero, one, one)")
        lines.append(f"b{i}: StridedSlice[shrink_axis_mask=1](s{i}, one, two, one)")
        lines.append(f"s{i + 1}: Pack(a{i}, b{i})" if op == "Pack" else f"s{i + 1}: AddV2(s{i}, s{i})")
    lines.append("y: Reshape(x, s500)")
    assert load("\n".join(lines)).tensor("y:0").shape.rank == 2


def test_a_shape_function_that_stumbles_names_its_node() -> None:
    with pytest.raises(InvalidArgumentError, match="its output shapes cannot be inferred: no such thing") as caught:
        load("a: TestStumbles")
    assert caught.value.node == "a"
    assert isinstance(caught.value.__cause__, ValueError)


def test_attrs_that_contradict_each_other_are_refused_with_their_node() -> None:
    """One says that there is a sparse feature, the other that there is none."""
    text, texts = np.array(b""), np.array([], object)
    with ax.Graph(), pytest.raises(InvalidArgumentError, match="gives 0 shapes, but it has 2 outputs") as caught:
        ax.raw_ops.ParseSingleSequenceExample(
            serialized=text,
            feature_list_dense_missing_assumed_empty=texts,
            context_sparse_keys=[b"key"],
            context_dense_keys=[],
            feature_list_sparse_keys=[],
            feature_list_dense_keys=[],
            context_dense_defaults=[],
            debug_name=text,
            context_sparse_types=[],
            name="parsed",
        )
    assert caught.value.node == "parsed"


def test_a_shape_is_of_integers() -> None:
    with ax.Graph():
        handle, sizes = ax.raw_ops.VarHandleOp(dtype=ax.int64, shape=[3]), ax.constant(np.ones(2, np.complex64))
        with pytest.raises(InvalidArgumentError, match="a shape is a vector of integers, not of complex64"):
            ax.raw_ops.StatefulUniformInt(
                resource=handle, algorithm=np.int64(1), shape=sizes, minval=np.int64(0), maxval=np.int64(9)
            )


@pytest.mark.parametrize(
    "text",
    [
        "x: Placeholder[float32, [2]]\ns: Const['text']\ny: Reshape[T=float32, Tshape=int32](x, s)",
        "x: Placeholder[float32, [2]]\na: Const[[9]]\ny: Sum(x, a)",
        "x: Placeholder[float32, [2]]\np: Const[[0, 0]]\ny: Transpose(x, p)",
        "x: Placeholder[float32, [2, 2]]\np: Const[[0, 5]]\ny: Transpose(x, p)",
        "v: Const[[1, 2]]\no: Const[0]\ny: Range(v, o, o)",
        "a: Const[0]\nb: Const[9]\nd: Const[0]\ny: Range(a, b, d)",
        "x: Placeholder[float32, [2]]\na: Const[5]\ny: Split[num_split=3](a, x)",
        "x: Placeholder[float32, [2]]\nb: Const[[[0]]]\nz: Const[[1]]\ny: StridedSlice(x, b, z, z)",
        "x: Placeholder[float32, [2]]\nb: Const[[0]]\nz: Const[[0]]\ny: StridedSlice(x, b, b, z)",
    ],
)
def test_crafted_values_give_typed_errors(text: str) -> None:
    with pytest.raises(OpError) as caught:
        load(text)
    assert caught.value.node == "y"
