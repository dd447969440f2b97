"""Loops over time steps become recurrent layers: those of Keras, those written here, and those that stay loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.session import library_passes
from tests.passes.recurrent_graphs import CASES, GOLDEN, KINDS, LAYERS, assert_close, golden, outputs_and_ops

LOOPS: Final = ("masked", "relu", "hard")
STEPS, ROWS, FEATURES, UNITS = 5, 2, 3, 4
RNG: Final = np.random.default_rng(0)
X: Final = RNG.normal(size=(STEPS, ROWS, FEATURES)).astype(np.float32)
W, U, B = (RNG.normal(size=size).astype(np.float32) for size in ((FEATURES, 12), (UNITS, 12), (12,)))
ops = ax.raw_ops
number = ax.constant


@pytest.fixture
def no_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_passes, "has_onnx_runtime", lambda: False)


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("optimizes", [False, True])
async def test_a_layer_of_keras_becomes_one_node(name: str, kind: str, optimizes: bool) -> None:
    graph, fetches, wanted = golden(name, kind)
    feeds = {"x:0": GOLDEN["x"]}
    got, found = await outputs_and_ops(graph, fetches, feeds, ax.SessionConfig(), optimizes=optimizes)
    assert_close(got, wanted)
    assert found["LoopCond"] == 0
    assert sorted(op for op in found.elements() if op.startswith("Onnx>")) == sorted(
        f"Onnx>{op}" for op in LAYERS[name]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOOPS)
async def test_other_layers_stay_loops_that_onnx_runtime_has_no_part_of(name: str, kind: str) -> None:
    graph, fetches, wanted = golden(name, kind)
    got, found = await outputs_and_ops(graph, fetches, {"x:0": GOLDEN["x"]}, ax.SessionConfig())
    assert_close(got, wanted)
    assert (found["LoopCond"], found["_OnnxCluster"]) == (1, 0)
    assert not [op for op in found if op.startswith("Onnx>")]


@pytest.mark.parametrize("kind", KINDS)
async def test_without_jit_the_loop_stays(kind: str) -> None:
    graph, fetches, wanted = golden("lstm", kind)
    got, found = await outputs_and_ops(graph, fetches, {"x:0": GOLDEN["x"]}, ax.SessionConfig(jit="off"))
    assert_close(got, wanted)
    assert found["LoopCond"] == 1


async def test_with_a_memory_limit_the_loop_stays() -> None:
    graph, fetches, wanted = golden("lstm", "lowered")
    config = ax.SessionConfig(memory_limit=1 << 30)
    got, found = await outputs_and_ops(graph, fetches, {"x:0": GOLDEN["x"]}, config)
    assert_close(got, wanted)
    assert found["LoopCond"] == 1


# Loops that are written here.


def gru_of(z: Any, h: Any, new: Any) -> Any:
    return z * h + (number(np.float32(1)) - z) * new


def gru_by_difference(z: Any, h: Any, new: Any) -> Any:
    return new + z * (h - new)


def gates_by_split(value: Any) -> list[Any]:
    return list(ops.Split(number(np.int32(1)), value, num_split=3))


def gates_by_slices(value: Any) -> list[Any]:
    return [value[:, i * UNITS : (i + 1) * UNITS] for i in range(3)]


def loop(
    x: Any,
    *,
    combined: Callable[[Any, Any, Any], Any] = gru_of,
    gates: Callable[[Any], list[Any]] = gates_by_split,
    first: Any = None,
    steps: Any = STEPS,
    start: int = 0,
    length: int = STEPS,
    written: Callable[[Any, Any], Any] = lambda x, h: h,
    added: Callable[[Any], Any] = lambda h: h,
) -> tuple[Any, Any, Any]:
    """A GRU over *x*: how many steps there were, the last state, and all states."""
    w, u, b = map(number, (W, U, B))
    row, rows = number(np.array([-1, FEATURES], np.int32)), number(np.array([ROWS, UNITS], np.int32))
    given = ops.TensorListFromTensor(x, row, element_dtype=ax.float32)
    made = ops.TensorListReserve(rows, number(np.int32(length)), element_dtype=ax.float32)

    def body(t: Any, h: Any, made: Any) -> Any:
        now = ops.TensorListGetItem(given, t, row, element_dtype=ax.float32)
        of_x, of_h = gates(ops.BiasAdd(ax.matmul(now, w), b)), gates(ax.matmul(h, u))
        z, r = ops.Sigmoid(of_x[0] + of_h[0]), ops.Sigmoid(of_x[1] + of_h[1])
        h = added(combined(z, h, ops.Tanh(of_x[2] + r * of_h[2])))
        return t + 1, h, ops.TensorListSetItem(made, t, written(now, h), element_dtype=ax.float32)

    if first is None:
        first = number(np.zeros((ROWS, UNITS), np.float32))
    t, h, made = ax.while_loop(lambda t, *_: t < steps, body, [number(np.int32(start)), first, made])
    return t, h, ops.TensorListStack(made, rows, element_dtype=ax.float32)


async def both(graph: ax.Graph, fetches: Any, feeds: Any) -> Counter[str]:
    """The ops that run; what comes of them is what comes of the loop."""
    wanted, _ = await outputs_and_ops(graph, fetches, feeds, ax.SessionConfig(jit="off"))
    got, found = await outputs_and_ops(graph, fetches, feeds, ax.SessionConfig())
    assert_close(got, wanted)
    return found


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize("combined", [gru_of, gru_by_difference])
@pytest.mark.parametrize("gates", [gates_by_split, gates_by_slices])
async def test_however_a_cell_is_written(combined: Any, gates: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, X.shape)
        _, h, y = loop(x, combined=combined, gates=gates)
    found = await both(graph, [y, h], {x: X})
    assert (found["Onnx>GRU"], found["LoopCond"]) == (1, 0)


@pytest.mark.usefixtures("no_onnx_runtime")
async def test_initial_states_are_kept() -> None:
    with ax.Graph() as graph:
        x, first = ax.placeholder(ax.float32, X.shape), ax.placeholder(ax.float32, [ROWS, UNITS])
        _, h, y = loop(x, first=first)
    found = await both(graph, [y, h], {x: X, first: RNG.normal(size=(ROWS, UNITS)).astype(np.float32)})
    assert found["Onnx>GRU"] == 1


STAY: Final[dict[str, dict[str, Any]]] = {
    "fewer steps": {"steps": STEPS - 1},
    "a later start": {"start": 1},
    "a longer list": {"length": STEPS + 1},
    "another output": {"written": lambda x, h: ops.Neg(h)},
    "another cell": {"added": lambda h: h + h},
    "a check": {"added": lambda h: ops.CheckNumerics(h, message="")},
}


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize("what", STAY)
async def test_what_does_not_match_stays_a_loop(what: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, X.shape)
        _, h, y = loop(x, **STAY[what])
    found = await both(graph, [h, y], {x: X})
    assert (found["Onnx>GRU"], found["LoopCond"]) == (0, 1)


@pytest.mark.usefixtures("no_onnx_runtime")
async def test_the_number_of_steps_keeps_the_loop() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, X.shape)
        t, h, _ = loop(x)
    assert (await both(graph, [t, h], {x: X}))["LoopCond"] == 1


@pytest.mark.usefixtures("no_onnx_runtime")
async def test_rows_that_may_not_be_as_many_keep_the_loop() -> None:
    with ax.Graph() as graph:
        x, first = ax.placeholder(ax.float32, [STEPS, None, FEATURES]), ax.placeholder(ax.float32, [None, UNITS])
        _, h, y = loop(x, first=first)
    found = await both(graph, [y, h], {x: X, first: np.ones((1, UNITS), np.float32)})
    assert found["LoopCond"] == 1


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize("taken", [True, False])
async def test_a_layer_of_a_branch_stays_a_loop(taken: bool) -> None:
    with ax.Graph() as graph:
        x, p = ax.placeholder(ax.float32, X.shape), ax.placeholder(ax.bool, [])
        y = ax.cond(p, lambda: loop(x)[1], lambda: number(np.full((ROWS, UNITS), 7, np.float32)))
    assert (await both(graph, [y], {x: X, p: taken}))["LoopCond"] == 1


@pytest.mark.usefixtures("no_onnx_runtime")
async def test_a_loop_in_a_loop_stays() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, X.shape)
        zeros = number(np.zeros((ROWS, UNITS), np.float32))
        _, y = ax.while_loop(
            lambda i, _: i < 2, lambda i, h: (i + 1, loop(x, first=h)[1]), [number(np.int32(0)), zeros]
        )
    assert (await both(graph, [y], {x: X}))["LoopCond"] == 2


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize("name", ["TensorArray", "TensorArray_1"])
async def test_an_array_that_others_use_keeps_the_loop(name: str) -> None:
    graph, fetches, wanted = golden("dynamic_rnn", "lowered")
    flows = {
        "TensorArray": "TensorArrayUnstack/TensorArrayScatter/TensorArrayScatterV3:0",
        "TensorArray_1": "while/Exit_1:0",
    }
    with graph:
        size = ops.TensorArraySizeV3(graph.tensor(f"{name}:0"), graph.tensor(flows[name]))
    got, found = await outputs_and_ops(graph, [*fetches, size], {"x:0": GOLDEN["x"]}, ax.SessionConfig())
    assert_close(got, [*wanted, np.int32(4)])
    assert found["LoopCond"] == 1


def loop_of_any_length(x: Any, first: Any, steps: Any) -> tuple[Any, Any]:
    """A layer over *x*: its last state, and the list of it, in which nothing is before the first step."""
    row, rows = number(np.array([-1, FEATURES], np.int32)), number(np.array([ROWS, UNITS], np.int32))
    given = ops.TensorListFromTensor(x, row, element_dtype=ax.float32)
    made = ops.TensorListReserve(rows, number(np.int32(1)), element_dtype=ax.float32)

    def body(t: Any, h: Any, made: Any) -> Any:
        now = ops.TensorListGetItem(given, t, row, element_dtype=ax.float32)
        h = ops.Tanh(ax.matmul(now, number(W[:, :UNITS])) + ax.matmul(h, number(U[:, :UNITS])))
        return t + 1, h, ops.TensorListSetItem(made, number(np.int32(0)), h, element_dtype=ax.float32)

    _, h, made = ax.while_loop(lambda t, *_: t < steps, body, [number(np.int32(0)), first, made])
    return h, ops.TensorListStack(made, rows, element_dtype=ax.float32)


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize("value", [0, 1])
async def test_without_steps_the_last_output_is_zero_whatever_the_state_is(value: int) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, ROWS, FEATURES])
        first = number(np.full((ROWS, UNITS), value, np.float32))
        h, y = loop_of_any_length(x, first, ops.Shape(x)[0])
    found = await both(graph, [y, h], {x: X[:0]})
    assert found["Onnx>RNN"] == (value == 0)


@pytest.mark.usefixtures("no_onnx_runtime")
@pytest.mark.parametrize(("kind", "count"), [(ax.int64, 1), (ax.bool, 0), (ax.int8, 0)])
async def test_a_number_of_steps_in_a_type_that_cannot_hold_it_keeps_the_loop(kind: Any, count: int) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, ROWS, FEATURES])
        steps = ops.Cast(ops.Cast(ops.Shape(x)[0], DstT=kind), DstT=ax.int32)
        h, _ = loop_of_any_length(x, number(np.zeros((ROWS, UNITS), np.float32)), steps)
    assert (await both(graph, [h], {x: X}))["Onnx>RNN"] == count


@pytest.mark.usefixtures("no_onnx_runtime")
async def test_rows_that_are_fed_keep_the_loop() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [STEPS, None, FEATURES])
        shape = ops.Pack([ops.Shape(x)[1], number(np.int32(UNITS))], axis=0)
        _, h, y = loop(x, first=ops.Fill(shape, number(np.float32(1))))
    assert (await both(graph, [y, h], {x: X}))["Onnx>GRU"] == 1
    assert (await both(graph, [y, h], {x: X, shape: np.array([1, UNITS], np.int32)}))["LoopCond"] == 1


@pytest.mark.usefixtures("no_onnx_runtime")
async def test_what_leaves_the_loop_by_way_of_an_identity_keeps_it() -> None:
    graph, fetches, _ = golden("dynamic_rnn", "lowered")
    with graph:
        left = ops.Exit(ops.Identity(graph.tensor("while/Switch_3:0")))
    found = await both(graph, [*fetches, left], {"x:0": GOLDEN["x"]})
    assert found["LoopCond"] == 1
