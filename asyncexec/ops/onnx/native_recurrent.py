"""LSTM and GRU by native code, where there is some: float32 numbers, the usual activations, sequences of one length.

The inputs of some steps are multiplied with their weights in one product; then one call does these steps.  Neither
holds the GIL.  Directions, and rows of a large batch, do not depend on one another: idle cores share them.  Each row
gets the same bits however that is cut.  Weights are laid out anew, panel by panel; constant ones once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.layer_rule import LayerRule, NativeLayers
from asyncexec.framework.ownership import is_frozen
from asyncexec.ops.nn.panels import Laid, LaidOut, aligned, panels_of
from asyncexec.ops.onnx.arrays import Array, empty, zeros
from asyncexec.process.cores import num_cores
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share

_Part: TypeAlias = tuple[int, range]  # a direction, and rows of the batch
_FLOAT: Final = np.dtype(np.float32)
_ITEM: Final = _FLOAT.itemsize
_FEW: Final = 3  # steps: with fewer, numpy has done them before a call is prepared
_FEW_EACH: Final = 32  # steps for which weights are laid out that may be others at the next call
_STEP: Final = 40_000  # multiplications: what numpy does in a step besides them takes as long
_GATES_BYTES: Final = 2**20  # of the gates' inputs, about: they stay in the cache
_ROWS: Final = 16  # of a part: with fewer, weights are read more often than they are worth
_TOGETHER: Final = 4  # rows from which on native code multiplies at full speed


class _Product(NamedTuple):
    """Weights of so many *columns* as native code takes them, and a bias."""

    panels: Laid
    bias: Laid
    columns: int

    def arguments(
        self, at: tuple[int, int], sizes: tuple[int, int], distances: tuple[int, int], out_row: int
    ) -> Sequence[int]:
        """Those of a convolution that sees one pixel at a time.

        Args:
            at: where input and output are.
            sizes: how many rows there are, and pixels in each; distances: between rows, and between pixels.
            out_row: how far pixels of the output are from one another.
        """
        at_x, at_out = at
        num_panels, depth, panel = self.panels.array.shape
        window = (1, 0, 1, 0, depth)
        outputs = (out_row, self.columns, depth * panel * _ITEM, 0, sizes[0], 0, num_panels)
        return (at_x, self.panels.address, at_out, self.bias.address, 0, 0, *distances, *window, *sizes, *outputs)


class _Call(NamedTuple):
    """The arrays of a call, whichever axis comes first there.

    Attributes:
        x: [steps, batch, numbers]; y: [directions, steps, batch, hidden]; states: [directions, batch, hidden] each.
        products: for each direction, that with the inputs, and those of a step.
    """

    code: NativeLayers
    x: Array
    y: Array
    states: Sequence[Array]
    products: Sequence[Sequence[_Product]]


class NativeRecurrent:
    """The layers of one node.

    Args:
        kind: "lstm", "gru" or "gru_late", which resets behind the product.
        backward: for each direction, whether it goes from the last step to the first.
        batch_first: whether the batch comes before the steps.

    Attributes:
        rule: what gives the native code.
    """

    __slots__ = ("_backward", "_batch_first", "_kind", "_laid_out", "rule")

    def __init__(self, kind: str, backward: tuple[bool, ...], *, batch_first: bool) -> None:
        self.rule: LayerRule = LayerRule(is_far_quicker=True)
        self._kind, self._backward, self._batch_first = kind, backward, batch_first
        self._laid_out = LaidOut()

    def run(self, x: Array, given: dict[str, Any]) -> tuple[Array, ...] | None:
        """Y, Y_h and, of an LSTM, Y_c; None if that is not for native code."""
        if self.rule.find_native is None or not _is_usual(x, given, x.shape[1 if self._batch_first else 0]):
            return None
        w, r = given["W"], given["R"]
        steps, batch = x.shape[1::-1] if self._batch_first else x.shape[:2]
        if steps < (_FEW if is_frozen(w) and is_frozen(r) else _FEW_EACH):
            return None
        work = steps * (batch * (w.size + r.size) + _STEP * len(r))
        code = self.rule.find_native(work) if x.size and r.size else None
        if code is None:
            return None
        x = np.ascontiguousarray(x)
        directions, size, hidden = r.shape
        shape = (batch, directions, hidden) if self._batch_first else (directions, batch, hidden)
        y = empty((batch, steps, *shape[1:]) if self._batch_first else (steps, *shape), _FLOAT)
        states = [_state(given[name], shape) for name in ("initial_h", "initial_c") if name in given]
        products = [self._products(code, given, i) for i in range(directions)]
        call = _Call(code, x, y.swapaxes(0, 1), states, products)
        if self._batch_first:
            turned = [state.swapaxes(0, 1) for state in states]
            call = _Call(code, x.swapaxes(0, 1), y.transpose(2, 1, 0, 3), turned, products)
        parts = [(i, rows) for i in range(directions) for rows in _cut(batch)]
        share(lambda part: self._run(call, part), parts, y.nbytes * (1 + size // hidden))
        return (y, *states)

    def _run(self, call: _Call, part: _Part) -> None:
        """All steps of a *part*."""
        i, rows = part
        is_backward = self._backward[i]
        inputs, *others = call.products[i]
        y = call.y[i, :: -1 if is_backward else 1, rows.start : rows.stop]
        h, *c = (state[i, rows.start : rows.stop] for state in call.states)
        steps, count, hidden = y.shape
        gates_row, (y_step, y_row, _) = inputs.columns * _ITEM, y.strides
        gates_step = count * gates_row
        piece = min(steps, max(1, _GATES_BYTES // gates_step))
        check_array((piece, count, inputs.columns), _FLOAT)
        _gates, at_gates = aligned((piece, count, inputs.columns), _FLOAT)
        products = [product.arguments((0, 0), (1, count), (0, 0), gates_row) for product in others]
        if self._kind == "gru_late":  # its candidate is made in the result
            products[1] = others[1].arguments((0, 0), (1, count), (0, 0), y_row)
        at_h, h_row, at_y = address_of(h), h.strides[0], address_of(y)
        at_c, c_row = (address_of(c[0]), c[0].strides[0]) if c else (0, 0)
        for first in range(0, steps, piece):
            num = min(piece, steps - first)
            start = steps - first - num if is_backward else first
            seen = call.x[start : start + num, rows.start : rows.stop]
            call.code.convolve(_of_inputs(inputs, seen, at_gates, gates_row), -math.inf, math.inf)
            places = (at_gates + (num - 1) * gates_step * is_backward, at_h, at_c, at_y + first * y_step)
            distances = (-gates_step if is_backward else gates_step, gates_row, h_row, c_row, y_step, y_row)
            call.code.recur(self._kind, products, (*places, *distances, num, count, hidden))
            at_h, h_row = at_y + (first + num - 1) * y_step, y_row
        h[...] = y[-1]

    def _products(self, code: NativeLayers, given: dict[str, Any], i: int) -> Sequence[_Product]:
        """Of direction *i*: with the inputs of all gates, and those of a step; only a GRU's candidate is alone."""
        r, b = given["R"], given["B"]
        _, size, hidden = r.shape
        gates = slice(size if self._kind == "lstm" else size - hidden)
        candidate = slice(gates.stop, size)
        nothing = _laid(np.zeros(_padded(size, code.panel), _FLOAT))
        bias = late_bias = nothing
        if b is not None:
            bias, late_bias = self._biases(code, b, i, hidden)

        def panels(of: str, some: slice) -> Laid:
            weights: Array = given[of]
            key = (id(weights), ord(of), i, some.start or 0)
            return self._laid_out.get(weights, key, lambda: panels_of(weights[i, some].T, code.panel))

        found = [_Product(panels("W", slice(size)), bias, size), _Product(panels("R", gates), nothing, gates.stop)]
        if self._kind != "lstm":
            behind = late_bias if self._kind == "gru_late" else nothing
            found.append(_Product(panels("R", candidate), behind, hidden))
        return found

    def _biases(self, code: NativeLayers, b: Array, i: int, hidden: int) -> tuple[Laid, Laid]:
        """The bias of the inputs' product of direction *i*, and that of a late candidate."""
        size = b.shape[1] // 2
        is_late = self._kind == "gru_late"

        def whole() -> Array:
            padded = np.zeros(_padded(size, code.panel), _FLOAT)
            np.add(b[i, :size], b[i, size:], out=padded[:size])
            if is_late:
                padded[size - hidden : size] = b[i, size - hidden : size]
            return padded

        def late() -> Array:
            padded = np.zeros(_padded(hidden, code.panel), _FLOAT)
            padded[:hidden] = b[i, -hidden:]
            return padded

        first = self._laid_out.get(b, (id(b), i, 0), whole)
        return first, self._laid_out.get(b, (id(b), i, 1), late) if is_late else first


def _is_usual(x: Array, given: dict[str, Any], steps: int) -> bool:
    """Whether all is float32, no gate sees the cell state, and each sequence has all *steps*, always."""
    lengths = given["sequence_lens"]
    if given.get("P") is not None or not (lengths is None or (is_frozen(lengths) and (lengths == steps).all())):
        return False
    arrays = (x, *(given.get(name) for name in ("W", "R", "B", "initial_h", "initial_c")))
    return all(array is None or array.dtype == _FLOAT for array in arrays)


def _of_inputs(product: _Product, x: Array, at_out: int, out_row: int) -> Sequence[int]:
    """The arguments of the product with *x* [steps, rows, numbers]: as one row of pixels, if it may be seen so."""
    steps, count = x.shape[:2]
    step, row = x.strides[:2]
    sizes, distances = (steps, count), (step, row)
    if count == 1 or step == count * row:
        sizes, distances = (1, steps * count), (0, step if count == 1 else row)
    return product.arguments((address_of(x), at_out), sizes, distances, out_row)


def _state(given: Array | None, shape: tuple[int, ...]) -> Array:
    """A state that can be written: a copy of what is *given*, or zeros."""
    if given is None:
        return zeros(shape, _FLOAT)
    state = empty(shape, _FLOAT)
    state[...] = given
    return state


def _laid(array: Array) -> Laid:
    return Laid(array, address_of(array))


def _padded(size: int, panel: int) -> int:
    return -(-size // panel) * panel


def _cut(count: int) -> Sequence[range]:
    """*count* rows in parts, as many as cores, unless they are few."""
    parts = max(1, min(num_cores(), count // _ROWS))
    step = -(-count // (parts * _TOGETHER)) * _TOGETHER
    return [range(start, min(start + step, count)) for start in range(0, count, step)]
