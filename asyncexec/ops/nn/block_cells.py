"""LSTM and GRU cells as one op each, LSTM layers over time as one op, and their gradients.

Rules from ``tensorflow/core/ops/rnn_ops.cc`` and ``core/kernels/rnn/lstm_ops.cc``, ``lstm_ops.h``, ``gru_ops.h``.
A matrix of weights has the columns of all gates side by side: input, cell, forget, output; in the second version of
BlockLSTM the forget gate comes before the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.math.math import sigmoid

_HALF: Final = frozenset({types.float16, types.float32})


class Cell(NamedTuple):
    """What an LSTM cell gives: gates, the state before and after the hyperbolic tangent, and the output."""

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


class _Lstm(NamedTuple):
    """How the cells of one node compute."""

    forget_bias: float
    cell_clip: float
    use_peephole: bool
    forget_is_second: bool

    def gates(self, columns: Array) -> tuple[Array, Array, Array, Array]:
        """The columns of the input gate, the cell, the forget gate and the output gate."""
        first, second, third, last = np.split(columns, 4, axis=-1)
        return (first, third, second, last) if self.forget_is_second else (first, second, third, last)

    def joined(self, di: Array, dci: Array, df: Array, do: Array) -> Array:
        """The same the other way round."""
        inner = (df, dci) if self.forget_is_second else (dci, df)
        return np.concatenate((di, *inner, do), axis=-1)

    def forward(self, x: Array, cs_prev: Array, h_prev: Array, w: Array, peep: Sequence[Array], b: Array) -> Cell:
        """One step in time."""
        wci, wcf, wco = peep
        of_i, of_c, of_f, of_o = self.gates(_product(np.concatenate((x, h_prev), axis=1), w) + b)
        bias = of_f.dtype.type(self.forget_bias)
        i = sigmoid(of_i + cs_prev * wci if self.use_peephole else of_i)
        ci = np.tanh(of_c)
        f = sigmoid(of_f + bias + cs_prev * wcf if self.use_peephole else of_f + bias)
        cs = i * ci + f * cs_prev
        if self.cell_clip > 0:
            clip = cs.dtype.type(self.cell_clip)
            cs = np.clip(cs, -clip, clip)
        co = np.tanh(cs)
        o = sigmoid(of_o + cs * wco if self.use_peephole else of_o)
        return Cell(i, cs, f, o, ci, co, o * co)

    def backward(
        self, cell: Cell, cs_prev: Array, peep: Sequence[Array], cs_grad: Array, h_grad: Array
    ) -> tuple[Array, Array, list[Array]]:
        """The gradients of the former state, of the gates' columns and of the peephole weights."""
        wci, wcf, wco = peep
        i, cs, f, o, ci, co, _ = cell
        do = o * (1 - o) * h_grad * co
        dcs = (1 - co * co) * h_grad * o + cs_grad
        if self.use_peephole:
            dcs = dcs + do * wco
        dci = (1 - ci * ci) * dcs * i
        df = f * (1 - f) * dcs * cs_prev
        di = i * (1 - i) * dcs * ci
        cs_prev_grad = dcs * f
        if not self.use_peephole:
            return cs_prev_grad, self.joined(di, dci, df, do), [np.zeros_like(weights) for weights in peep]
        peep_grads = [(d * state).sum(axis=0, dtype=d.dtype) for d, state in ((di, cs_prev), (df, cs_prev), (do, cs))]
        return cs_prev_grad + di * wci + df * wcf, self.joined(di, dci, df, do), peep_grads


def _product(a: Array, b: Array) -> Array:
    """The product of matrices; halves are summed up as floats."""
    if a.dtype == np.float16:
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    product: Array = a @ b
    return product


def _lstm_of(c: OpKernelConstruction) -> _Lstm:
    attrs = c.attrs
    return _Lstm(attrs.get("forget_bias", 0.0), attrs.get("cell_clip", 0.0), attrs["use_peephole"], c.op.endswith("V2"))


# The shape of each input, in sizes of: time, batch, input, cell, a multiple of cell.
_LAYOUT: Final[Mapping[str, str]] = {
    "cs_prev": "bc",
    "h_prev": "bc",
    "w": "s4",
    "wci": "c",
    "wcf": "c",
    "wco": "c",
    "b": "4",
    "w_ru": "s2",
    "w_c": "sc",
    "b_ru": "2",
    "b_c": "c",
    "d_h": "bc",
    "r": "bc",
    "u": "bc",
    "c": "bc",
}


def _check_inputs(given: Mapping[str, Any], rank: int, prev: str) -> None:
    """InvalidArgumentError unless all inputs fit ``x`` and the former state."""
    if np.ndim(given["x"]) != rank:
        raise InvalidArgumentError(f"x must be {rank}D")
    if np.ndim(given[prev]) != 2:
        raise InvalidArgumentError(f"{prev} must be 2D")
    *time, batch, size = given["x"].shape
    cell = given[prev].shape[1]
    sizes = {"b": batch, "c": cell, "s": size + cell, "4": 4 * cell, "2": 2 * cell}
    for name, value in given.items():
        layout = _LAYOUT.get(name)
        if layout is None and name == "x":
            continue
        # What is not in the table is of all times: outputs of the cells, and gradients of these.
        wanted = (*time, batch, cell) if layout is None else tuple(sizes[letter] for letter in layout)
        if np.shape(value) != wanted:
            raise InvalidArgumentError(f"{name} must be of shape {TensorShape(wanted)}, not {TensorShape(value.shape)}")


_WEIGHTS: Final = "w: T, wci: T, wcf: T, wco: T, b: T"
_STATES: Final = "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T"
_FORWARD: Final = f"x: T, cs_prev: T, h_prev: T, {_WEIGHTS}"
_FORWARD_NAMES: Final = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
_STATE_NAMES: Final = ("i", "cs", "f", "o", "ci", "co", "h")
_CELL_ATTRS: Final = "use_peephole: bool = False; T: {float16, float32}"


def _cell_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, state = c.with_rank(0, 2), c.with_rank(1, 2)
    return [TensorShape([x[0], state[1]])] * 7


def _cell_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, state = c.with_rank(0, 2), c.with_rank(1, 2)
    cell = state[1]
    gates = TensorShape([x[0], None if cell is None else 4 * cell])
    return [TensorShape([x[0], cell]), gates, *[TensorShape([cell])] * 3]


def _block_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, b = c.with_rank(1, 3), c.vector(8)
    cell = None if b[0] is None else b[0] // 4
    return [TensorShape([x[0], x[1], cell])] * 7


def _block_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    ranks = (3, 2, 2, 2, 1, 1, 1, 1)
    return [c.with_rank(index + 1, rank) for index, rank in enumerate(ranks)]


register_op(
    "LSTMBlockCell",
    f"{_FORWARD} -> {_STATES}",
    f"forget_bias: float = 1.0; cell_clip: float = 3.0; {_CELL_ATTRS}",
    shape=_cell_shape,
)
register_op(
    "LSTMBlockCellGrad",
    f"{_FORWARD}, i: T, cs: T, f: T, o: T, ci: T, co: T, cs_grad: T, h_grad: T -> cs_prev_grad: T, dicfo: T,"
    " wci_grad: T, wcf_grad: T, wco_grad: T",
    "use_peephole: bool; T: {float16, float32}",
    shape=_cell_grad_shape,
)
for _version, _attrs in (
    ("", f"forget_bias: float = 1.0; cell_clip: float = 3.0; {_CELL_ATTRS}"),
    ("V2", f"cell_clip: float = 0.0; {_CELL_ATTRS}"),
):
    register_op(f"BlockLSTM{_version}", f"seq_len_max: int64, {_FORWARD} -> {_STATES}", _attrs, shape=_block_shape)
    register_op(
        f"BlockLSTMGrad{_version}",
        f"seq_len_max: int64, {_FORWARD}, {_STATES}, cs_grad: T, h_grad: T -> x_grad: T, cs_prev_grad: T,"
        " h_prev_grad: T, w_grad: T, wci_grad: T, wcf_grad: T, wco_grad: T, b_grad: T",
        "use_peephole: bool; T: {float16, float32}",
        shape=_block_grad_shape,
    )


@register_kernel("LSTMBlockCell", dtypes={"T": _HALF})
def _lstm_cell(c: OpKernelConstruction) -> Kernel:
    lstm = _lstm_of(c)

    def cell(*inputs: Array) -> Cell:
        _check_inputs(dict(zip(_FORWARD_NAMES, inputs, strict=True)), 2, "cs_prev")
        x, cs_prev, h_prev, w, *peep, b = inputs
        return lstm.forward(x, cs_prev, h_prev, w, peep, b)

    return lambda *inputs: tuple(cell(*inputs))


@register_kernel("LSTMBlockCellGrad", dtypes={"T": _HALF})
def _lstm_cell_grad(c: OpKernelConstruction) -> Kernel:
    lstm = _lstm_of(c)
    names = (*_FORWARD_NAMES, *_STATE_NAMES[:-1], "cs_grad", "h_grad")

    def cell_grad(*inputs: Any) -> tuple[object, ...]:
        _check_inputs(dict(zip(names, inputs, strict=True)), 2, "cs_prev")
        states, cs_grad, h_grad = inputs[8:14], inputs[14], inputs[15]
        cs_prev_grad, gates, peep_grads = lstm.backward(
            Cell._make((*states, h_grad)), inputs[1], inputs[4:7], cs_grad, h_grad
        )
        return cs_prev_grad, gates, *peep_grads

    return cell_grad


def _times(limit: Any, times: int) -> int:
    """How many of the times count."""
    if np.ndim(limit):
        raise InvalidArgumentError(f"`seq_len_max_tensor` must be rank 0 but is rank {np.ndim(limit)}")
    if not 0 <= limit <= times:
        raise InvalidArgumentError(f"seq_len_max must be between 0 and {times} but is {limit}")
    return int(limit)


@register_kernel("BlockLSTM", "BlockLSTMV2", kind=KernelKind.EXPENSIVE, dtypes={"T": _HALF})
def _block_lstm(c: OpKernelConstruction) -> Kernel:
    lstm = _lstm_of(c)

    def block(limit: object, *inputs: Array) -> tuple[Array, ...]:
        _check_inputs(dict(zip(_FORWARD_NAMES, inputs, strict=True)), 3, "cs_prev")
        x, cs_prev, h_prev, w, *peep, b = inputs
        outputs = [np.zeros((*x.shape[:2], cs_prev.shape[1]), x.dtype) for _ in _STATE_NAMES]
        for time in range(_times(limit, len(x))):
            cell = lstm.forward(x[time], cs_prev, h_prev, w, peep, b)
            cs_prev, h_prev = cell.cs, cell.h
            for output, value in zip(outputs, cell, strict=True):
                output[time] = value
        return tuple(outputs)

    return block


@register_kernel("BlockLSTMGrad", "BlockLSTMGradV2", kind=KernelKind.EXPENSIVE, dtypes={"T": _HALF})
def _block_lstm_grad(c: OpKernelConstruction) -> Kernel:
    lstm = _lstm_of(c)
    names = (*_FORWARD_NAMES, *_STATE_NAMES, "cs_grad", "h_grad")

    def block_grad(limit: np.generic, *inputs: Array) -> tuple[Array, ...]:
        _check_inputs(dict(zip(names, inputs, strict=True)), 3, "cs_prev")
        x, cs_prev, h_prev, w, *peep, b = inputs[:8]
        states, (cs_grad, h_grad) = inputs[8:15], inputs[15:]
        x_grad, w_grad, b_grad = (np.zeros_like(value) for value in (x, w, b))
        peep_grads = [np.zeros_like(weights) for weights in peep]
        cs_prev_grad, h_prev_grad = np.zeros_like(cs_prev), np.zeros_like(h_prev)
        for time in reversed(range(_times(limit, len(x)))):
            cell = Cell._make(value[time] for value in states)
            former_cs, former_h = (states[1][time - 1], states[6][time - 1]) if time else (cs_prev, h_prev)
            cs_prev_grad, gates, grads = lstm.backward(
                cell, former_cs, peep, cs_prev_grad + cs_grad[time], h_prev_grad + h_grad[time]
            )
            xh_grad = _product(gates, w.T)
            x_grad[time], h_prev_grad = xh_grad[:, : x.shape[2]], xh_grad[:, x.shape[2] :]
            w_grad += _product(np.concatenate((x[time], former_h), axis=1).T, gates)
            b_grad += gates.sum(axis=0, dtype=gates.dtype)
            for total, grad in zip(peep_grads, grads, strict=True):
                total += grad
        return x_grad, cs_prev_grad, np.ascontiguousarray(h_prev_grad), w_grad, *peep_grads, b_grad

    return block_grad


_GRU: Final = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T"
_GRU_NAMES: Final = ("x", "h_prev", "w_ru", "w_c", "b_ru", "b_c")


def _gru_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([c.with_rank(0, 2)[0], c.with_rank(1, 2)[1]])] * 4


def _gru_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, cell = c.with_rank(0, 2), c.with_rank(1, 2)[1]
    state = TensorShape([x[0], cell])
    return [x, state, state, TensorShape([x[0], None if cell is None else 2 * cell])]


register_op("GRUBlockCell", f"{_GRU} -> r: T, u: T, c: T, h: T", "T: {float32}", shape=_gru_shape)
register_op(
    "GRUBlockCellGrad",
    f"{_GRU}, r: T, u: T, c: T, d_h: T -> d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T",
    "T: {float32}",
    shape=_gru_grad_shape,
)


def _gru_cell(x: Array, h_prev: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array) -> tuple[Array, ...]:
    r, u = np.split(sigmoid(np.concatenate((x, h_prev), axis=1) @ w_ru + b_ru), 2, axis=1)
    c = np.tanh(np.concatenate((x, h_prev * r), axis=1) @ w_c + b_c)
    return np.ascontiguousarray(r), np.ascontiguousarray(u), c, u * (h_prev - c) + c


def _gru_cell_grad(x: Array, h_prev: Array, w_ru: Array, w_c: Array, *rest: Array) -> tuple[Array, ...]:
    _, _, r, u, c, d_h = rest
    size = x.shape[1]
    d_c = d_h * (1 - u) * (1 - c * c)
    d_u = d_h * (h_prev - c) * u * (1 - u)
    by_c = d_c @ w_c.T
    d_hr = by_c[:, size:]
    d_ru = np.concatenate((d_hr * h_prev * r * (1 - r), d_u), axis=1)
    by_ru = d_ru @ w_ru.T
    return by_ru[:, :size] + by_c[:, :size], by_ru[:, size:] + d_hr * r + d_h * u, d_c, d_ru


def _register_gru(op: str, function: Callable[..., tuple[Array, ...]], names: Sequence[str]) -> None:
    @register_kernel(op, dtypes={"T": {types.float32}})
    def make(c: OpKernelConstruction) -> Kernel:
        def kernel(*inputs: object) -> tuple[Array, ...]:
            _check_inputs(dict(zip(names, inputs, strict=True)), 2, "h_prev")
            return function(*inputs)

        return kernel


_register_gru("GRUBlockCell", _gru_cell, _GRU_NAMES)
_register_gru("GRUBlockCellGrad", _gru_cell_grad, (*_GRU_NAMES, "r", "u", "c", "d_h"))
