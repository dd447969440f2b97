"""LSTM and GRU by native code, where there is some: float32 numbers, the usual activations, sequences of one length.

The inputs of some steps are multiplied with their weights in one product; then one call does these steps.  Neither
holds the GIL.  Directions, and rows of a large batch, do not depend on one another: idle cores share them.  Each row
gets the same bits however that is cut.  Weights are laid out anew, panel by panel; constant ones once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.arrays import Array
from asyncexec.framework.layer_rule import LayerRule, NativeLayers
from asyncexec.framework.ownership import is_frozen
from asyncexec.ops.nn.panels import Laid, LaidOut, aligned, panels_of
from asyncexec.ops.onnx.arrays import empty, zeros
from asyncexec.process.cores import num_cores
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share

_Key: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
_FLOAT: Final = np.dtype(np.float32)
_ITEM: Final = _FLOAT.itemsize
_FEW: Final = 3  # steps: with fewer, numpy has done them before a call is prepared
_FEW_EACH: Final = 32  # steps for which weights are laid out that may be others at the next call
_STEP: Final = 40_000  # multiplications: what numpy does in a step besides them takes as long
_GATES_BYTES: Final = 2**20  # of the gates' inputs, about: they stay in the cache
_ROWS: Final = 8  # of a part, which takes some hundred microseconds then
_MOST_PREPARED: Final = 8  # shapes and strides of inputs
_STATES: Final = ("initial_h", "initial_c")
# What a call is told (``regions/native_recurrent.py``): the product of all steps with the inputs, and those of a step,
# all as convolutions, and what is left; where in that the places are.
_WIDTH: Final = 22
_X_AT: Final = 0
_OUT_AT: Final = 2
_GATES_AT, _H_AT, _C_AT, _Y_AT = range(3 - _WIDTH, 7 - _WIDTH)
_TOGETHER: Final = 4  # rows from which on native code multiplies at full speed


class _Product(NamedTuple):
    """Weights of so many *columns* as native code takes them, and a bias."""

    panels: Laid
    bias: Laid
    columns: int

    def arguments(self, sizes: tuple[int, int], distances: tuple[int, int], out_row: int) -> tuple[int, ...]:
        """Those of a convolution that sees one pixel at a time, but for the places of input and output.

        Args:
            sizes: how many rows there are, and pixels in each; distances: between rows, and between pixels.
            out_row: how far pixels of the output are from one another.
        """
        num_panels, depth, panel = self.panels.array.shape
        window = (1, 0, 1, 0, depth)
        outputs = (out_row, self.columns, depth * panel * _ITEM, 0, sizes[0], 0, num_panels)
        return (0, self.panels.address, 0, self.bias.address, 0, 0, *distances, *window, *sizes, *outputs)


class _Piece(NamedTuple):
    """Some steps of a part.

    Attributes:
        table: what native code is told, but for places.
        x, gates, h, c, y: how far the places are from the starts of the arrays; h is in y where it *is_later*.
    """

    table: Array
    x: int
    gates: int
    h: int
    c: int
    y: int
    is_later: bool


class _Part(NamedTuple):
    """Some rows of a direction: the pieces one after the other, and the shape of the gates of one."""

    pieces: Sequence[_Piece]
    gates: tuple[int, ...]


class _Prepared(NamedTuple):
    """What calls have in common that have the same weights, and inputs of the same shape and strides.

    Attributes:
        weights: W, R and B; held are *products* of them.
        work: how many multiplications a call is.
        y, state: the shapes of results.
    """

    weights: Sequence[Callable[[], Array | None]]
    lengths: Array | None
    products: Sequence[Sequence[_Product]]
    parts: Sequence[_Part]
    work: float
    y: tuple[int, ...]
    state: tuple[int, ...]


class NativeRecurrent:
    """The layers of one node.

    Args:
        kind: "lstm", "gru" or "gru_late", which resets behind the product.
        backward: for each direction, whether it goes from the last step to the first.
        batch_first: whether the batch comes before the steps.

    Attributes:
        rule: what gives the native code.
    """

    __slots__ = ("_backward", "_batch_first", "_kind", "_laid_out", "_prepared", "rule")

    def __init__(self, kind: str, backward: tuple[bool, ...], *, batch_first: bool) -> None:
        self.rule: LayerRule = LayerRule(is_far_quicker=True)
        self._kind, self._backward, self._batch_first = kind, backward, batch_first
        self._laid_out = LaidOut()
        self._prepared: dict[_Key, _Prepared] = {}  # of constant weights

    def run_again(self, x: Array, given: dict[str, Any]) -> tuple[Array, ...] | None:
        """What ``run`` gives; None if nothing is prepared for such inputs, which need not be looked at otherwise."""
        prepared = self._fitting(x, given)
        if prepared is None or self.rule.find_native is None:
            return None
        code = self.rule.find_native(prepared.work)
        return None if code is None else self._run(code, prepared, x, given)

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
        if x.strides[2] != _ITEM:
            x = np.ascontiguousarray(x)
        prepared = self._fitting(x, given) or self._prepare(code, x, given, work)
        return self._run(code, prepared, x, given)

    def _fitting(self, x: Array, given: dict[str, Array]) -> _Prepared | None:
        """What is prepared for such inputs."""
        prepared = self._prepared.get((x.shape, x.strides))
        if prepared is None or x.dtype != _FLOAT:
            return None
        w, r, b = prepared.weights
        if w() is not given["W"] or r() is not given["R"] or b() is not given["B"]:
            return None
        if given["sequence_lens"] is not prepared.lengths or given.get("P") is not None:
            return None
        for name in _STATES:
            state = given.get(name)
            if state is not None and (state.dtype != _FLOAT or state.shape != prepared.state):
                return None
        return prepared

    def _run(self, code: NativeLayers, prepared: _Prepared, x: Array, given: dict[str, Any]) -> tuple[Array, ...]:
        y = empty(prepared.y, _FLOAT)
        states = [_state(given[name], prepared.state) for name in _STATES if name in given]
        at_x, at_y = address_of(x), address_of(y)
        at_h, at_c = address_of(states[0]), address_of(states[-1])

        def run(part: _Part) -> None:
            check_array(part.gates, _FLOAT)
            gates, at_gates = aligned(part.gates, _FLOAT)
            for piece in part.pieces:
                table = piece.table.copy()
                table[_X_AT], table[_OUT_AT], table[_GATES_AT] = at_x + piece.x, at_gates, at_gates + piece.gates
                table[_H_AT] = (at_y if piece.is_later else at_h) + piece.h
                table[_C_AT], table[_Y_AT] = at_c + piece.c, at_y + piece.y
                code.recur(self._kind, table)
            del gates

        share(run, prepared.parts, y.nbytes * (1 + prepared.products[0][0].columns // y.shape[-1]))
        for i, is_backward in enumerate(self._backward):
            last = 0 if is_backward else -1
            if self._batch_first:
                states[0][:, i] = y[:, last, i]
            else:
                states[0][i] = y[last, i]
        return (y, *states)

    def _prepare(self, code: NativeLayers, x: Array, given: dict[str, Any], work: float) -> _Prepared:
        """What is known before a call with *x*, whose numbers are side by side; kept if the weights are constant."""
        w, r, b, lengths = given["W"], given["R"], given["B"], given["sequence_lens"]
        key = x.shape, x.strides
        kept = self._prepared
        is_constant = all(array is None or is_frozen(array) for array in (w, r, b, lengths))
        directions, _, hidden = r.shape
        batch, steps = x.shape[:2] if self._batch_first else x.shape[1::-1]
        products = [self._products(code, given, i) for i in range(directions)]
        prepared = _Prepared(
            [_reference(array, lambda: kept.pop(key, None)) for array in (w, r, b)],
            lengths,
            products,
            [self._part(x, products[i], i, rows, hidden) for i in range(directions) for rows in _cut(batch)],
            work,
            (batch, steps, directions, hidden) if self._batch_first else (steps, directions, batch, hidden),
            (batch, directions, hidden) if self._batch_first else (directions, batch, hidden),
        )
        if is_constant:
            if len(kept) >= _MOST_PREPARED:
                kept.clear()
            kept[key] = prepared
        return prepared

    def _part(self, x: Array, products: Sequence[_Product], i: int, rows: range, hidden: int) -> _Part:
        """The *rows* of direction *i*."""
        (batch, x_row), (steps, x_step) = zip(x.shape[:2], x.strides[:2], strict=True)
        if not self._batch_first:
            (batch, x_row), (steps, x_step) = (steps, x_step), (batch, x_row)
        one, directions, count = hidden * _ITEM, len(self._backward), len(rows)
        y_step, y_row, y_direction = directions * batch * one, one, batch * one
        state_row, state_direction = one, batch * one
        if self._batch_first:
            y_step, y_row, y_direction = directions * one, steps * directions * one, one
            state_row, state_direction = directions * one, one
        is_backward = self._backward[i]
        inputs, *others = products
        gates_row = inputs.columns * _ITEM
        gates_step = count * gates_row
        y = i * y_direction + rows.start * y_row
        if is_backward:
            y, y_step = y + (steps - 1) * y_step, -y_step
        tables = [product.arguments((1, count), (0, 0), gates_row) for product in others]
        if self._kind == "gru_late":  # its candidate is made in the result
            tables[1] = others[1].arguments((1, count), (0, 0), y_row)
        most = min(steps, max(1, _GATES_BYTES // gates_step))
        state = i * state_direction + rows.start * state_row
        pieces: list[_Piece] = []
        for first in range(0, steps, most):
            num = min(most, steps - first)
            sizes, distances = (num, count), (x_step, x_row)
            if count == 1 or x_step == count * x_row:  # it may be seen as one row of pixels
                sizes, distances = (1, num * count), (0, x_step if count == 1 else x_row)
            steps_of = (-gates_step if is_backward else gates_step, gates_row)
            h_row = y_row if first else state_row
            left = (*(0,) * (_WIDTH + _Y_AT + 1), *steps_of, h_row, state_row, y_step, y_row, num, count, hidden)
            table = [inputs.arguments(sizes, distances, gates_row), *tables, left + (0,) * (_WIDTH - len(left))]
            pieces.append(
                _Piece(
                    np.array(table, np.int64).ravel(),
                    (steps - first - num if is_backward else first) * x_step + rows.start * x_row,
                    (num - 1) * gates_step if is_backward else 0,
                    y + (first - 1) * y_step if first else state,
                    state,
                    y + first * y_step,
                    first > 0,
                )
            )
        return _Part(pieces, (most, count, inputs.columns))

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


def _is_usual(x: Array, given: dict[str, Array | None], steps: int) -> bool:
    """Whether all is float32, no gate sees the cell state, and each sequence has all *steps*, always."""
    lengths = given["sequence_lens"]
    if given.get("P") is not None or not (lengths is None or (is_frozen(lengths) and (lengths == steps).all())):
        return False
    arrays = (x, *(given.get(name) for name in ("W", "R", "B", "initial_h", "initial_c")))
    return all(array is None or array.dtype == _FLOAT for array in arrays)


def _reference(array: Array | None, end: Callable[[], object]) -> Callable[[], Array | None]:
    """Gives *array* as long as it is there; calls *end* when it is no more."""
    return _nothing if array is None else weakref.ref(array, lambda _: end())


def _nothing() -> None:
    """Gives None."""


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
