"""LSTM and GRU by native code: those of numpy but for the last bits, for all sizes; and when there is any."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans.native_layers import CompiledLayers
from asyncexec.framework.onnx_kernels import OnnxNode
from asyncexec.framework.ownership import freeze
from asyncexec.ops.onnx import native_recurrent
from asyncexec.ops.onnx.recurrent import make_lstm, make_recurrent
from asyncexec.process import shards
from tests.ops.native_kinds import KINDS, compiled, native_soon
from tests.passes.recurrent_graphs import GOLDEN, assert_close, golden

pytest.importorskip("llvmlite")
CELLS: Final = {"LSTM": ("LSTM", 4, False), "GRU": ("GRU", 3, False), "GRU late": ("GRU", 3, True)}
DIRECTIONS: Final = {"forward": 1, "reverse": 1, "bidirectional": 2}


@pytest.fixture(params=KINDS, scope="module")
def code(request: pytest.FixtureRequest) -> Iterator[CompiledLayers]:
    """The native code for each kind of processor that this one is."""
    with compiled(request.param) as found:
        yield found


class Watched:
    """Native code that counts how many times it did steps."""

    def __init__(self, code: CompiledLayers) -> None:
        self._code = code
        self.lanes, self.panel = code.lanes, code.panel
        self.convolve, self.convolve_depthwise = code.convolve, code.convolve_depthwise
        self.activate, self.normalize = code.activate, code.normalize
        self.num_calls = 0

    def recur(self, name: str, table: Any) -> None:
        self.num_calls += 1
        self._code.recur(name, table)


class Layer:
    """A kernel of a cell, and inputs for it; what is not given is None."""

    def __init__(self, cell: str, direction: str = "forward", **attrs: Any) -> None:
        self.op, self.gates, is_late = CELLS[cell]
        self.directions = DIRECTIONS[direction]
        self.batch_first = bool(attrs.get("layout"))
        attrs |= {"direction": direction, "linear_before_reset": int(is_late)}
        node = OnnxNode(self.op, attrs=attrs, outputs=(True,) * (self.gates - 1))
        self.kernel: Any = (make_lstm if self.op == "LSTM" else make_recurrent)(node)

    def inputs(self, steps: int, batch: int, numbers: int, hidden: int, *, seed: int = 0, **absent: bool) -> list[Any]:
        rng = np.random.default_rng((seed, steps, batch, numbers, hidden))

        def random(*shape: int, scale: float = 1.0) -> Any:
            return np.asarray(rng.standard_normal(shape) * scale, np.float32)

        size, d = self.gates * hidden, self.directions
        state = (batch, d, hidden) if self.batch_first else (d, batch, hidden)
        found = [
            random(*((batch, steps) if self.batch_first else (steps, batch)), numbers),
            random(d, size, numbers, scale=numbers**-0.5),
            random(d, size, hidden, scale=hidden**-0.5),
            None if absent.get("bias") else random(d, 2 * size),
            None,
            *(None if absent.get("states") else random(*state) for _ in range(self.gates - 2)),
        ]
        for weights in found[1:4]:
            if weights is not None:
                weights.setflags(write=False)
        return found[: 7 if self.op == "LSTM" else 6]

    def native(self, code: CompiledLayers, *inputs: Any) -> Any:
        """What native code gives; None where numpy did it."""
        watched = Watched(code)
        self.kernel.layer_rule.find_native = lambda work: watched
        try:
            found = self.kernel(*inputs)
        finally:
            self.kernel.layer_rule.find_native = None
        return found if watched.num_calls else None

    def check(self, code: CompiledLayers, *inputs: Any) -> None:
        """Native code gives what numpy gives."""
        found, wanted = self.native(code, *inputs), self.kernel(*inputs)
        assert found is not None
        for one, other in zip(found, wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, np.float32)
            assert one.flags.c_contiguous
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_all_sizes_give_what_numpy_gives(code: CompiledLayers, cell: str, direction: str, layout: int) -> None:
    layer, rng = Layer(cell, direction, layout=layout), np.random.default_rng(layout)
    sizes = [(3, 1, 1, 1), (3, 2, 5, 3), (4, 5, 3, 8), (7, 1, 7, 16), (5, 17, 4, 17), (9, 16, 32, 64), (3, 33, 1, 40)]
    sizes += [(steps, *map(int, rng.integers(1, 50, 3))) for steps in range(3, 11)]
    for number, size in enumerate(sizes):
        layer.check(code, *layer.inputs(*size, bias=number % 2 == 1, states=number % 3 == 1))


@pytest.mark.parametrize("cell", CELLS)
def test_inputs_in_any_order(code: CompiledLayers, cell: str) -> None:
    layer = Layer(cell, "bidirectional")
    inputs = layer.inputs(5, 6, 7, 9)
    inputs[0] = np.asfortranarray(inputs[0])
    inputs[1:4] = [np.asfortranarray(each) for each in inputs[1:4]]
    for each in inputs[1:4]:
        each.setflags(write=False)
    inputs[5] = inputs[5][:, ::-1]
    layer.check(code, *inputs)
    x = layer.inputs(8, 12, 7, 9)[0]
    for some in (x[:5, :6], x[4::-1, ::-2], x[::-1][:5, 2:8], np.asfortranarray(x)[:5, 3:9], x[:1, :6].repeat(5, 0)):
        for _ in range(2):  # what is prepared is used again
            layer.check(code, some, *inputs[1:])
    lengths = freeze(np.full(6, 5, np.int32))  # which may not be shorter in the next call
    layer.check(code, *inputs[:4], lengths, *inputs[5:])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_what_is_not_a_number_stays_so(code: CompiledLayers, cell: str, direction: str) -> None:
    layer = Layer(cell, direction)
    inputs = layer.inputs(4, 40, 6, 19)
    numbers = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40, 90.0, -90.0, 0.0, -0.0]
    for row, number in enumerate(numbers):
        inputs[0][1, row, 2] = number
        inputs[5][0, 10 + row, 3] = number
        if layer.op == "LSTM":
            inputs[6][0, 20 + row, 4] = number
            inputs[0][0, 20 + row] *= 100  # gates are as far open or closed as they can be
    with np.errstate(all="ignore"):
        layer.check(code, *inputs)
        assert np.isnan(layer.kernel(*inputs)[0]).any()


@pytest.mark.parametrize("cell", CELLS)
def test_one_gate_that_is_not_a_number(code: CompiledLayers, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits of a NaN would make a number of its exponential."""
    monkeypatch.setattr(native_recurrent, "_FEW", 1)
    layer = Layer(cell)
    for gate in range(layer.gates):
        inputs = layer.inputs(1, 2, 3, 20)
        inputs[3] = inputs[3].copy()
        inputs[3].view(np.uint32)[0, 20 * gate + 5] = 0x7FC001FF
        layer.check(code, *inputs)
        assert np.isnan(layer.kernel(*inputs)[0][0, 0, :, 5]).all()


def test_functions_are_off_by_a_few_units_of_the_last_place(code: CompiledLayers) -> None:
    """A cell state of tanh or sigmoid of the bias: other gates are open, and what was before is forgotten."""
    x = np.concatenate(
        [
            *(np.linspace(-end, end, 2_001) for end in (1e-30, 0.01, 0.63, 1.0, 10.0, 120.0)),
            [-0.0, 0.62499, 0.625, 0.62501, 87.0, -87.0, -88.3, -88.6, 1e38, -1e38, np.inf, -np.inf],
        ]
    ).astype(np.float32)
    layer, steps = Layer("LSTM"), np.ones((3, 1, 1), np.float32)
    for gate, exact in ((3, np.tanh), (0, lambda v: 1 / (1 + np.exp(-v)))):
        for given in np.array_split(x, 250):  # few units each: weights of the states are a square
            weights = [np.zeros((1, 4 * len(given), numbers), np.float32) for numbers in (1, len(given))]
            for each in weights:
                each.setflags(write=False)
            bias = np.zeros((1, 2, 4, len(given)), np.float32)
            bias[0, 0] = [[100], [-200], [-200], [100]]
            bias[0, 0, gate] = given
            found = layer.native(code, steps, *weights, bias.reshape(1, -1))
            assert found is not None
            with np.errstate(over="ignore"):
                wanted = exact(given.astype(float))
            np.testing.assert_allclose(found[2][0, 0], wanted, rtol=4e-7, atol=1e-37)


@pytest.mark.parametrize("cell", CELLS)
def test_bits_are_the_same_however_it_is_cut(code: CompiledLayers, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Layer(cell, "bidirectional").inputs(7, 70, 20, 33)
    found: list[Any] = []
    numbers: list[int] = []

    def share(work: Any, parts: Sequence[Any], num_bytes: int) -> None:
        numbers.append(len(parts))
        shards.share(work, parts[::-1], num_bytes)

    monkeypatch.setattr(native_recurrent, "share", share)
    for num_cores, size in ((1, 2**24), (1, 1), (3, 2**24), (4, 2**15)):
        monkeypatch.setattr(native_recurrent, "num_cores", lambda count=num_cores: count)
        monkeypatch.setattr(native_recurrent, "_GATES_BYTES", size)
        found.append(Layer(cell, "bidirectional").native(code, *inputs))
    assert numbers == [2, 2, 6, 8]
    for each in found[1:]:
        for one, other in zip(each, found[0], strict=True):
            np.testing.assert_array_equal(one, other)


def test_few_rows_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_recurrent, "num_cores", lambda: 4)
    for count, wanted in ((1, [1]), (15, [15]), (16, [8, 8]), (23, [12, 11]), (70, [20, 20, 20, 10])):
        assert [len(part) for part in native_recurrent._cut(count)] == wanted


@pytest.mark.parametrize("cell", CELLS)
def test_constant_weights_are_laid_out_once_and_go_with_them(
    code: CompiledLayers, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[int] = []

    def panels_of(weights: Any, size: int) -> Any:
        laid_out.append(weights.size)
        return made(weights, size)

    made = native_recurrent.panels_of
    monkeypatch.setattr(native_recurrent, "panels_of", panels_of)
    layer = Layer(cell, "bidirectional")
    kept = next(each.cell_contents for each in layer.kernel.__closure__ if hasattr(each.cell_contents, "native"))
    inputs = layer.inputs(4, 2, 3, 8)
    for _ in range(2):
        layer.check(code, *inputs)
    assert len(laid_out) == (4 if cell == "LSTM" else 6)
    assert len(kept.native._laid_out) > len(laid_out)  # biases, too
    del inputs
    gc.collect()
    assert not len(kept.native._laid_out)
    assert not kept.native._prepared


def test_weights_that_somebody_may_write_to_are_laid_out_each_time(
    code: CompiledLayers, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Layer("LSTM")
    inputs = layer.inputs(6, 2, 3, 8)
    inputs[1:4] = [each.copy() for each in inputs[1:4]]
    assert layer.native(code, *inputs) is None  # few steps
    monkeypatch.setattr(native_recurrent, "_FEW_EACH", 6)
    for _ in range(2):
        layer.check(code, *inputs)
        for each in inputs[1:4]:
            each *= 2


def test_results_are_new(code: CompiledLayers) -> None:
    layer = Layer("LSTM")
    inputs = layer.inputs(4, 2, 3, 8)
    before = [None if each is None else each.copy() for each in inputs]
    first = layer.native(code, *inputs)
    kept = [each.copy() for each in first]
    for each in layer.native(code, *inputs):
        each += 1
    for one, other in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_others_are_left_to_numpy(code: CompiledLayers) -> None:
    layer = Layer("LSTM")
    inputs = layer.inputs(4, 2, 3, 8)
    assert layer.native(code, *inputs) is not None
    for shorter in ([4, 3], [0, 0]):
        assert layer.native(code, *inputs[:4], np.int32(shorter)) is None
    assert layer.native(code, *inputs, np.ones((1, 24), np.float32)) is None  # peepholes
    assert layer.native(code, inputs[0][:2], *inputs[1:]) is None  # few steps
    for number in (0, 1, 2, 3, 5, 6):
        others = list(inputs)
        others[number] = others[number].astype(float)
        assert layer.native(code, *others) is None
    for attrs in ({"clip": 3.0}, {"input_forget": 1}, {"activations": ["Sigmoid", "Tanh", "Relu"]}):
        assert not hasattr(Layer("LSTM", **attrs).kernel, "layer_rule")
    assert hasattr(Layer("LSTM", activations=["sigmoid", b"tanh", "Tanh"]).kernel, "layer_rule")
    assert not hasattr(Layer("GRU", activations=["Tanh", "Sigmoid"]).kernel, "layer_rule")
    assert not hasattr(make_recurrent(OnnxNode("RNN")), "layer_rule")


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("size", [(4, 0, 3, 8), (0, 2, 3, 8), (4, 2, 0, 8), (4, 2, 3, 0)])
def test_nothing_is_left_to_numpy(code: CompiledLayers, cell: str, size: Sequence[int]) -> None:
    layer = Layer(cell, "bidirectional")
    steps, batch, numbers, hidden = size
    x, w, r, *_ = layer.inputs(4, 2, 3, 8, bias=True, states=True)
    rows = layer.gates * hidden
    for number in (x, w, r):
        number.setflags(write=False)
    assert layer.native(code, x[:steps, :batch, :numbers], w[:, :rows, :numbers], r[:, :rows, :hidden]) is None


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Lets layers become native at once, without ONNX Runtime; the work that native code was asked for."""
    return native_soon(monkeypatch)


@pytest.mark.allow_blocking
@pytest.mark.parametrize("name", ["lstm", "gru", "gru_reset_first", "bidirectional", "stack"])
async def test_layers_of_keras_are_native(name: str, soon: list[float]) -> None:
    graph, fetches, wanted = golden(name, "lowered")
    async with ax.Session(graph) as session:
        for _ in range(2):
            assert_close(await session.run(fetches, {"x:0": GOLDEN["x"]}), wanted)
    assert soon


def _graph(layer: Layer, inputs: Sequence[Any], absent: Sequence[int]) -> ax.Graph:
    attrs = {"Tout": [ax.float32] * (3 - len(absent)), "opset": 17, "direction": "bidirectional", "absent_inputs": [4]}
    attrs |= {"absent_outputs": list(absent), "output_shapes": []}
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None, name="x")
        given = [x, *map(ax.constant, inputs[1:4]), *map(ax.constant, inputs[5:])]
        ax.create_op("Onnx>LSTM", [given], attrs, name="y")
    return graph


@pytest.mark.allow_blocking
@pytest.mark.parametrize("absent", [(), (0,)])
async def test_a_session_says_which_code_there_is(soon: list[float], absent: Sequence[int]) -> None:
    layer = Layer("LSTM", "bidirectional")
    inputs = layer.inputs(6, 3, 4, 10)
    graph, feeds = _graph(layer, inputs, absent), {"x:0": inputs[0]}
    fetches = [f"y:{number}" for number in range(3 - len(absent))]
    wanted = layer.kernel(*inputs)[len(absent) :]
    kinds: list[dict[str, Any]] = [{"jit": "off"}, {"debug": True}, {"schedule_seed": 1}, {"memory_limit": 2**30}]
    for config in kinds:
        async with ax.Session(graph, ax.SessionConfig(**config)) as session:
            for one, other in zip(await session.run(fetches, feeds), wanted, strict=True):
                np.testing.assert_array_equal(one, other)
    assert not soon
    async with ax.Session(graph) as session:
        assert_close(await session.run(fetches, feeds), wanted)
    assert soon == [6 * 2 * (3 * 40 * (4 + 10) + native_recurrent._STEP)]
