"""If, Loop and Scan of ONNX models as functions of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, OpError
from tests.importers.onnx.models import parsed, results

pytestmark = pytest.mark.filterwarnings("ignore:these ops have no kernel")

BRANCHES = """
t (bool c, float[n] x, float[n] w) => (float[n] y) {
    y = If (c) <
        then_branch = a () => (float[n] p) { h = Add(x, w)\n p = Neg(h) },
        else_branch = b () => (float[n] q) { q = Identity(x) }
    >
}
"""


@pytest.mark.parametrize(("chosen", "want"), [(True, [-11, -22]), (False, [1, 2])])
@pytest.mark.parametrize("shape", [(), (1,)])
async def test_branches_with_captured_names(chosen: bool, want: list[float], shape: tuple[int, ...]) -> None:
    model = parsed(BRANCHES)
    for size in shape:
        model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = size
    feeds = {"c": np.full(shape, chosen), "x": np.float32([1, 2]), "w": np.float32([10, 20])}
    (y,) = await results(model, feeds)
    np.testing.assert_array_equal(y, want)


async def test_the_branch_not_taken_does_not_run() -> None:
    model = parsed("""
    t (bool c, float[n] x, int64[m] shape) => (float[k] y) {
        y = If (c) <
            then_branch = a () => (float[k] p) { p = Reshape(x, shape) },
            else_branch = b () => (float[k] q) { q = Identity(x) }
        >
    }
    """)
    feeds = {"c": np.bool_(False), "x": np.ones(3, np.float32), "shape": np.array([2])}
    (y,) = await results(model, feeds)
    np.testing.assert_array_equal(y, [1, 1, 1])
    with pytest.raises(OpError):
        await results(model, feeds | {"c": np.bool_(True)})


LOOP = """
t (int64 m, bool c, float[n] x, float limit) => (float[n] y, float[k, n] each) {
    y, each = Loop (m, c, x) <body =
    b (int64 i, bool c_in, float[n] before) => (bool c_out, float[n] after, float[n] out) {
        after = Add(before, before)
        sum = ReduceSum <keepdims = 0> (after)
        c_out = Less(sum, limit)
        out = Identity(before)
    }>
}
"""


@pytest.mark.parametrize(
    ("most", "begins", "limit", "rounds"),
    [(3, True, 1e6, 3), (100, True, 15, 3), (0, True, 1e6, 0), (5, False, 1e6, 0)],
)
async def test_loops(most: int, begins: bool, limit: float, rounds: int) -> None:
    x = np.float32([1, 1])
    feeds = {"m": np.int64(most), "c": np.bool_(begins), "x": x, "limit": np.float32(limit)}
    y, each = await results(parsed(LOOP), feeds)
    np.testing.assert_array_equal(y, x * 2**rounds)
    np.testing.assert_array_equal(each, np.array([x * 2**i for i in range(rounds)]).reshape(rounds, each.shape[1]))
    assert each.dtype == np.float32


async def test_a_loop_in_a_branch_in_a_loop() -> None:
    model = parsed("""
    t (float x, bool c) => (float y) {
        three = Constant <value = int64 {3}> ()
        one = Constant <value = float {1}> ()
        y = Loop (three, , x) <body = outer (int64 i, bool c_in, float a) => (bool go, float b) {
            go = Identity(c_in)
            b = If (c) <
                then_branch = t () => (float p) {
                    p = Loop (three, , a) <body = inner (int64 j, bool d_in, float s) => (bool d, float r) {
                        d = Identity(d_in)
                        r = Add(s, one)
                    }>
                },
                else_branch = e () => (float q) { q = Sub(a, one) }
            >
        }>
    }
    """)
    assert await results(model, {"x": np.float32(0), "c": np.bool_(True)}) == [9]
    assert await results(model, {"x": np.float32(0), "c": np.bool_(False)}) == [-3]


async def test_a_variable_of_a_loop_may_change_its_shape() -> None:
    model = parsed("""
    t (int64 m, float[n] x) => (float[k] y) {
        y = Loop (m, , x) <body = b (int64 i, bool c_in, float[p] before) => (bool c_out, float[q] after) {
            c_out = Identity(c_in)
            after = Concat <axis = 0> (before, x)
        }>
    }
    """)
    (y,) = await results(model, {"m": np.int64(2), "x": np.float32([1, 2])})
    np.testing.assert_array_equal(y, [1, 2] * 3)


SCAN = """
t (float[n] start, float[len, n] x, float[n, len] w) => (float[n] last, float[n, len] sums) {
    last, sums = Scan (start, x, w) <
        num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1], scan_output_axes = [1],
        scan_output_directions = [1],
        body = b (float[n] before, float[n] a, float[n] c) => (float[n] after, float[n] out) {
            p = Mul(a, c)
            after = Add(before, p)
            out = Identity(after)
        }
    >
}
"""


async def test_scans_have_axes_and_directions() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    w = np.array([[1, 10, 100], [2, 20, 200]], np.float32)
    last, sums = await results(parsed(SCAN), {"start": np.float32([1, 1]), "x": x, "w": w})
    steps = [1 + sum(x[k] * w[:, 2 - k] for k in range(i + 1)) for i in range(3)]
    np.testing.assert_array_equal(last, steps[-1])
    np.testing.assert_array_equal(sums, np.stack(steps[::-1], 1))


async def test_scan_inputs_of_different_lengths() -> None:
    feeds = {"start": np.float32([1]), "x": np.ones((3, 1), np.float32), "w": np.ones((1, 2), np.float32)}
    with pytest.raises(InvalidArgumentError, match="different lengths"):
        await results(parsed(SCAN), feeds)


def sequence_loop() -> ModelProto:
    """Collects the squares of 0, 1, 2 ... in a sequence, and tells how many there are."""
    squares = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c_in"], ["c_out"]),
            helper.make_node("Mul", ["i", "i"], ["square"]),
            helper.make_node("SequenceInsert", ["before", "square"], ["after"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c_in", TensorProto.BOOL, []),
            squares("before", TensorProto.INT64, None),
        ],
        [helper.make_tensor_value_info("c_out", TensorProto.BOOL, []), squares("after", TensorProto.INT64, None)],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"], dtype=TensorProto.INT64),
        helper.make_node("Loop", ["m", "", "none"], ["all"], body=body),
        helper.make_node("SequenceLength", ["all"], ["length"]),
        helper.make_node("SequenceAt", ["all", "last"], ["at_end"]),
        helper.make_node("ConcatFromSequence", ["all"], ["joined"], axis=0, new_axis=1),
    ]
    outputs = [squares("all", TensorProto.INT64, None)] + [
        helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("length", "at_end", "joined")
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("m", TensorProto.INT64, [])],
        outputs,
        [numpy_helper.from_array(np.array(-1), "last")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


async def test_a_sequence_goes_round() -> None:
    squares, length, at_end, joined = await results(sequence_loop(), {"m": np.int64(4)})
    assert (squares, length, at_end, joined.tolist()) == ([0, 1, 4, 9], 4, 9, [0, 1, 4, 9])


async def test_each_member_of_a_sequence_is_mapped() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["member", "x"], ["sum"])],
        "body",
        [helper.make_tensor_value_info("member", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["n"])],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"]),
        helper.make_node("SequenceMap", ["parts"], ["sums"], body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_sequence_value_info("sums", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(1), "two")],
    )
    (sums,) = await results(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), {"x": np.float32([1, 2])}
    )
    assert [member.tolist() for member in sums] == [[2, 3], [3, 4]]


@pytest.mark.parametrize("text", [BRANCHES, LOOP, SCAN])
def test_functions_come_through_json(text: str) -> None:
    with ax.Graph() as graph:
        ax.import_onnx(parsed(text))
    graph_def = graph.as_graph_def()
    again = ax.GraphDef.model_validate_json(graph_def.to_json())
    with ax.Graph() as imported:
        ax.import_graph_def(again)
    assert imported.as_graph_def() == graph_def


async def test_two_models_with_functions_in_one_graph() -> None:
    other = BRANCHES.replace("Neg", "Abs")
    feeds: dict[str, Any] = {"c": np.bool_(True), "x": np.float32([1]), "w": np.float32([2])}
    with ax.Graph() as graph:
        first = ax.import_onnx(parsed(BRANCHES), feeds, name="a")
        second = ax.import_onnx(parsed(other), feeds, name="b")
        third = ax.import_onnx(parsed(BRANCHES), feeds, name="c")
    async with ax.Session(graph) as session:
        values = await session.run([*first, *second, *third])
    assert [value.tolist() for value in values] == [[-3], [3], [-3]]
