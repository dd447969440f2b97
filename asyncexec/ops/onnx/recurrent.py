"""RNN, GRU and LSTM: forward, backward and both, with sequences of different lengths, in both layouts.

The inputs of all steps are multiplied with their weights in one product; what is left of a step is in
``recurrent_cells``.  Native code does the usual ones (``native_recurrent``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import empty, need, need_rank, need_shape, wide, zeros
from asyncexec.ops.onnx.native_recurrent import NativeRecurrent
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.onnx.recurrent_cells import Activation, Cell, activations, gru_cell, lstm_cell, rnn_cell


@dataclass(frozen=True, slots=True)
class _Family:
    """What tells the three ops apart."""

    gates: int
    defaults: tuple[str, ...]
    make_cell: Callable[..., Cell]
    has_cell_state: bool = False


_FAMILIES: Final = {
    "RNN": _Family(1, ("Tanh",), rnn_cell),
    "GRU": _Family(3, ("Sigmoid", "Tanh"), gru_cell),
    "LSTM": _Family(4, ("Sigmoid", "Tanh", "Tanh"), lstm_cell, has_cell_state=True),
}
_DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True, slots=True)
class _Layer:
    """What the attributes of a node tell."""

    family: _Family
    backward: tuple[bool, ...]
    functions: tuple[tuple[Activation, ...], ...]
    batch_first: bool
    hidden_size: int | None
    late_reset: bool
    input_forget: bool
    native: NativeRecurrent | None = None  # if native code may do it

    def run(self, x: Array, given: dict[str, Any]) -> tuple[Array, ...]:
        """Y, Y_h and, of an LSTM, Y_c."""
        found = None if self.native is None else self.native.run_again(x, given)
        if found is None:
            _check(self, x, given)
            found = None if self.native is None else self.native.run(x, given)
        return self._by_numpy(x, given) if found is None else found

    def _by_numpy(self, x: Array, given: dict[str, Any]) -> tuple[Array, ...]:
        steps_first = x.swapaxes(0, 1) if self.batch_first else x
        h, c = self._initial(given["initial_h"]), self._initial(given.get("initial_c"))
        cells = wide(steps_first)
        hidden = given["R"].shape[2]
        y = empty((len(cells), len(self.backward), cells.shape[1], hidden), cells.dtype)
        last_h, last_c = (empty((len(self.backward), cells.shape[1], hidden), cells.dtype) for _ in range(2))
        for i in range(len(self.backward)):
            first_h, first_c = (
                zeros((hidden, cells.shape[1]), cells.dtype)
                if state is None
                else np.ascontiguousarray(wide(state[i]).T)
                for state in (h, c)
            )
            last_h[i], last_c[i] = self._direction(i, cells, given, first_h, first_c, y[:, i])
        outputs = [y.transpose(2, 0, 1, 3) if self.batch_first else y]
        outputs += [one.swapaxes(0, 1) if self.batch_first else one for one in (last_h, last_c)]
        return tuple(np.ascontiguousarray(one).astype(x.dtype, copy=False) for one in outputs)

    def _initial(self, state: Array | None) -> Array | None:
        return None if state is None else state.swapaxes(0, 1) if self.batch_first else state

    def _direction(self, i: int, x: Array, given: dict[str, Any], h: Array, c: Array, y: Array) -> tuple[Array, Array]:
        weights, lengths = np.ascontiguousarray(wide(given["R"][i])), given["sequence_lens"]
        bias, late_bias = None, None
        size, hidden = weights.shape
        if given["B"] is not None:
            whole = wide(given["B"][i])
            bias = whole[:size] + whole[size:]
            if self.late_reset:
                bias[-hidden:] = whole[size - hidden : size]
                late_bias = whole[-hidden:]
        elif self.late_reset:
            late_bias = np.zeros(hidden, x.dtype)
        peepholes = given.get("P")
        step = self.family.make_cell(
            weights,
            self.functions[i],
            late_bias=late_bias,
            peepholes=None if peepholes is None else wide(peepholes[i]),
            input_forget=self.input_forget,
        )
        order = _backward(len(x), lengths) if self.backward[i] else None
        inputs = x if order is None else _in_order(x, order)
        gates = wide(given["W"][i]) @ inputs.swapaxes(1, 2)
        if bias is not None:
            gates += bias[:, np.newaxis]
        out = y if order is None else np.empty_like(y)
        h, c = _steps(step, gates, h, c, lengths, out)
        if order is not None:
            y[...] = _in_order(out, order)
        return h.T, c.T


def _steps(step: Cell, gates: Array, h: Array, c: Array, lengths: Array | None, y: Array) -> tuple[Array, Array]:
    """Run all steps; where a sequence has ended its states stay, and *y* is zero."""
    if lengths is None or (lengths == len(gates)).all():
        for t, now in enumerate(gates):
            h, c = step(now, h, c)
            y[t] = h.T
        return h, c
    for t, now in enumerate(gates):
        new_h, new_c = step(now, h, c)
        is_on = lengths > t
        y[t] = np.where(is_on, new_h, 0).T
        h, c = np.where(is_on, new_h, h), np.where(is_on, new_c, c)
    return h, c


def _backward(steps: int, lengths: Array | None) -> Array:
    """For each step and sequence, which step stands there when each sequence is turned round."""
    forward = np.arange(steps)[:, np.newaxis]
    if lengths is None:
        return forward[::-1]
    return np.where(forward < lengths, lengths - 1 - forward, forward)


def _in_order(x: Array, order: Array) -> Array:
    if order.shape[1] == 1:
        return x[order[:, 0]]
    return np.take_along_axis(x, order[:, :, np.newaxis], 0)


def _make_layer(node: OnnxNode) -> _Layer:
    family = _FAMILIES[node.op_type]
    direction = node.text("direction", "forward")
    need(direction in _DIRECTIONS, f"direction must be one of {', '.join(_DIRECTIONS)}, not {direction!r}")
    backward = _DIRECTIONS[direction]
    count = len(family.defaults)
    given = [name.decode() if isinstance(name, bytes) else name for name in node.attr("activations", ())]
    if node.op_type == "RNN" and len(given) == 2 and len(backward) == 1:
        given = given[:1]  # its default has one for each direction
    names = given or list(family.defaults) * len(backward)
    need(
        len(names) == count * len(backward),
        f"activations must have {count} names for each of {len(backward)} directions, not {names}",
    )
    alphas, betas = node.attr("activation_alpha", ()), node.attr("activation_beta", ())
    functions = activations(names, alphas, betas, node.attr("clip"), count)
    is_late, batch_first = bool(node.attr("linear_before_reset", 0)), bool(node.attr("layout", 0))
    native = None
    if _is_usual(node, names):
        kind = "lstm" if node.op_type == "LSTM" else "gru_late" if is_late else "gru"
        native = NativeRecurrent(kind, backward, batch_first=batch_first)
    return _Layer(
        family,
        backward,
        tuple(tuple(functions[i * count : (i + 1) * count]) for i in range(len(backward))),
        batch_first,
        node.attr("hidden_size"),
        is_late,
        bool(node.attr("input_forget", 0)),
        native,
    )


def _is_usual(node: OnnxNode, names: Sequence[str]) -> bool:
    """Whether it is an LSTM or a GRU with the default activations *names*, and nothing that few have."""
    family = _FAMILIES[node.op_type]
    is_default = all(name.lower() == family.defaults[i % len(family.defaults)].lower() for i, name in enumerate(names))
    return family.gates > 1 and is_default and node.attr("clip") is None and not node.attr("input_forget", 0)


def _with_rule(kernel: Kernel, layer: _Layer) -> Kernel:
    if layer.native is not None:
        kernel.layer_rule = layer.native.rule  # type: ignore[attr-defined]
    return kernel


def _check(layer: _Layer, x: Array, given: dict[str, Array]) -> None:
    """InvalidArgumentError unless the inputs fit each other and the attributes."""
    need_rank(x, 3, "X")
    need_rank(given["W"], 3, "W")
    need_rank(given["R"], 3, "R")
    gates, directions = layer.family.gates, len(layer.backward)
    hidden = given["R"].shape[2]
    steps, batch = (x.shape[1], x.shape[0]) if layer.batch_first else x.shape[:2]
    need(layer.hidden_size in (None, hidden), f"hidden_size is {layer.hidden_size}, but R is for {hidden}")
    need_shape(given["W"], (directions, gates * hidden, x.shape[2]), "W")
    need_shape(given["R"], (directions, gates * hidden, hidden), "R")
    state = (batch, directions, hidden) if layer.batch_first else (directions, batch, hidden)
    wanted = {
        "B": (directions, 2 * gates * hidden),
        "initial_h": state,
        "initial_c": state,
        "P": (directions, 3 * hidden),
    }
    for name, shape in wanted.items():
        if given.get(name) is not None:
            need_shape(given[name], shape, name)
    lengths = given["sequence_lens"]
    if lengths is not None:
        need_shape(lengths, (batch,), "sequence_lens")
        need(
            not lengths.size or (lengths.min() >= 0 and lengths.max() <= steps),
            f"sequence_lens must be from 0 to {steps}: {lengths.tolist()[:10]}",
        )


@onnx_kernel("RNN", "GRU", kind=KernelKind.EXPENSIVE)
def make_recurrent(node: OnnxNode) -> Kernel:
    """The kernel of RNN and GRU."""
    layer = _make_layer(node)

    def kernel(
        x: Array, w: Array, r: Array, b: object = None, sequence_lens: object = None, initial_h: object = None
    ) -> tuple[Array, ...]:
        given = {"W": w, "R": r, "B": b, "sequence_lens": sequence_lens, "initial_h": initial_h}
        return layer.run(x, given)[: node.num_outputs]

    return _with_rule(kernel, layer)


@onnx_kernel("LSTM", kind=KernelKind.EXPENSIVE)
def make_lstm(node: OnnxNode) -> Kernel:
    """The kernel of LSTM."""
    layer = _make_layer(node)

    def kernel(
        x: Array,
        w: Array,
        r: Array,
        b: object = None,
        sequence_lens: object = None,
        initial_h: object = None,
        initial_c: object = None,
        p: object = None,
    ) -> tuple[Array, ...]:
        given = {"W": w, "R": r, "B": b, "sequence_lens": sequence_lens, "initial_h": initial_h}
        given |= {"initial_c": initial_c, "P": p}
        return layer.run(x, given)[: node.num_outputs]

    return _with_rule(kernel, layer)
