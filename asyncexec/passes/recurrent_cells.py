"""The cells of ONNX's LSTM, GRU and RNN, found in what a round of a loop makes of its input and its states.

::

    LSTM  c' = f * c + i * g,  h' = o * tanh(c')       i, f, o: sigmoid, g: tanh, of x @ W + h @ U + b
    GRU   h' = z * h + (1 - z) * g                     z, r: sigmoid of the same
          g = tanh(x @ W + b + r * (h @ U + d))        "linear before reset"
          g = tanh(x @ W + b + (r * h) @ U)
    RNN   h' = tanh(x @ W + h @ U + b)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.ownership import freeze
from asyncexec.passes.recurrent_algebra import Affine, Factor, Source, Sum, UnknownFormError


class Cell(NamedTuple):
    """A cell as ONNX has it.

    Attributes:
        op: LSTM, GRU or RNN.
        states: the hidden state, and of an LSTM the cell state.
        weights: W, R and B, for one direction.
        attrs: of the node.
    """

    op: str
    states: tuple[Any, ...]
    weights: tuple[Array, Array, Array]
    attrs: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Of the hidden state."""
        return int(self.weights[1].shape[-1])


class _Gate(NamedTuple):
    """``x @ by_x + h @ by_h + bias``, and what is added to ``h @ by_h`` alone."""

    by_x: Array | None
    by_h: Array | None
    bias: Array
    late_bias: Array = np.zeros((), np.float32)


def find_cell(x: Source, after: Mapping[Source, Sum]) -> Cell:
    """The cell with the input *x*, which gives its states the values *after* each round.

    Raises:
        UnknownFormError: it is none of them.
    """
    states = list(after)
    if len(states) == 1:
        (h,) = states
        return _rnn(x, h, after[h]) if len(after[h]) == 1 else _gru(x, h, after[h])
    _require(len(states) == 2)
    h, c = states if len(after[states[0]]) == 1 else states[::-1]
    return _lstm(x, h, c, after)


def _lstm(x: Source, h: Source, c: Source, after: Mapping[Source, Sum]) -> Cell:
    o, last = _pair(after[h])
    _require(last.argument is after[c] and len(after[c]) == 2)
    (keeping, kept), (adding, added) = sorted(after[c].items(), key=lambda term: len(term[0]))
    _require(len(keeping) == 1 and keeping[0].kind == "Sigmoid" and _is_just(kept, c) and _is_one(added))
    i, g = _by_kind(adding)
    gates = [_gate(factor, x, h) for factor in (i, o, keeping[0], g)]
    return _cell("LSTM", (h, c), gates)


def _gru(x: Source, h: Source, after: Sum) -> Cell:
    _require(len(after) == 3)
    by_size = sorted(after.items(), key=lambda term: (len(term[0]), not term[1].weights))
    (keeping, kept), (new, added), (both, taken) = by_size
    _require(len(keeping) == len(new) == 1 and len(both) == 2)
    z, g = keeping[0], new[0]
    _require((z.kind, g.kind) == ("Sigmoid", "Tanh") and set(both) == {z, g})
    _require(_is_just(kept, h) and _is_one(added) and _is_one(taken, -1))
    r, candidate, is_late = _candidate(g.argument, x, h)
    attrs = {"linear_before_reset": int(is_late)}
    return _cell("GRU", (h,), [_gate(z, x, h), _gate(r, x, h), candidate], attrs)


def _candidate(argument: Sum, x: Source, h: Source) -> tuple[Factor, _Gate, bool]:
    """The reset gate, the candidate, and whether that is linear before the reset."""
    plain = argument.get((), Affine({}, np.zeros((), np.float32)))
    others = [(factors, affine) for factors, affine in argument.items() if factors]
    if others:
        _require(len(others) == 1 and len(others[0][0]) == 1 and set(plain.weights) <= {x})
        ((r,), late) = others[0]
        _require(set(late.weights) == {h})
        gate = _Gate(plain.weights.get(x), late.weights[h], plain.bias, late.bias)
        is_late = True
    else:
        gated = [name for name in plain.weights if name != x]
        _require(len(gated) == 1 and isinstance(gated[0], tuple) and gated[0][1:] == (h,))  # it is h by a factor
        (name,) = gated
        r = name[0]  # type: ignore[index]
        gate = _Gate(plain.weights.get(x), plain.weights[name], plain.bias)
        is_late = False
    _require(r.kind == "Sigmoid")
    return r, gate, is_late


def _rnn(x: Source, h: Source, after: Sum) -> Cell:
    ((factors, affine),) = after.items()
    _require(len(factors) == 1 and factors[0].kind == "Tanh" and _is_one(affine))
    return _cell("RNN", (h,), [_gate(factors[0], x, h)])


def _gate(factor: Factor, x: Source, h: Source) -> _Gate:
    _require(list(factor.argument) == [()])
    affine = factor.argument[()]
    _require(set(affine.weights) <= {x, h})
    return _Gate(affine.weights.get(x), affine.weights.get(h), affine.bias)


def _pair(found: Sum) -> tuple[Factor, Factor]:
    """The sigmoid and the tanh that *found* is the product of."""
    _require(len(found) == 1)
    ((factors, affine),) = found.items()
    _require(_is_one(affine))
    return _by_kind(factors)


def _by_kind(factors: Sequence[Factor]) -> tuple[Factor, Factor]:
    _require(len(factors) == 2)
    one, other = sorted(factors, key=lambda factor: factor.kind)
    _require((one.kind, other.kind) == ("Sigmoid", "Tanh"))
    return one, other


def _is_just(affine: Affine, name: Source) -> bool:
    """Whether *affine* is the source *name* itself."""
    weight = affine.weights.get(name)
    return len(affine.weights) == 1 and weight is not None and not weight.ndim and weight == 1 and not affine.bias.any()


def _is_one(affine: Affine, number: int = 1) -> bool:
    return not affine.weights and bool((affine.bias == number).all())


def _cell(
    op: str, states: tuple[Source, ...], gates: Sequence[_Gate], attrs: Mapping[str, object] | None = None
) -> Cell:
    """The cell whose *gates* stand in ONNX's order.  Matrices are views, so that a product from the right is quick."""
    size = next((gate.by_h.shape[-1] for gate in gates if gate.by_h is not None), 0)
    num_inputs = next((len(gate.by_x) for gate in gates if gate.by_x is not None and gate.by_x.ndim), 0)
    _require(size and num_inputs)
    by_x = [_of_shape(gate.by_x, (num_inputs, size)) for gate in gates]
    by_h = [_of_shape(gate.by_h, (size, size)) for gate in gates]
    biases = [_row(gate.bias, size) for gate in gates] + [_row(gate.late_bias, size) for gate in gates]
    matrices = [freeze(np.concatenate(each, axis=1)).T[np.newaxis] for each in (by_x, by_h)]
    weights = (matrices[0], matrices[1], freeze(np.concatenate(biases))[np.newaxis])
    return Cell(op, states, weights, {"hidden_size": size, **(attrs or {})})


def _of_shape(matrix: Array | None, shape: tuple[int, int]) -> Array:
    _require(matrix is None or matrix.shape == shape)
    return np.zeros(shape, np.float32) if matrix is None else matrix


def _row(bias: Array, size: int) -> Array:
    _require(not bias.ndim or bias.shape == (size,))
    return np.broadcast_to(bias, (size,))


def _require(condition: object) -> None:
    if not condition:
        raise UnknownFormError("it is none of the cells")
