"""One step of RNN, GRU and LSTM, over what the inputs of all steps have been multiplied with before.

A cell takes the gates' inputs of a step [gates * hidden, batch], the hidden state and the cell state [hidden, batch],
and gives the two states after it: so each gate lies together in memory, and a step takes three quarters of the time.
All arrays are of one dtype. Gates stand in ONNX's order: z, r, h in a GRU; i, o, f, c in an LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.onnx.activations import hard_sigmoid, sigmoid

Activation: TypeAlias = Callable[[Array], Array]
Cell: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]

# Which of alpha and beta each takes, and what they are where the node does not tell.
_PARAMETERS: Final[dict[str, tuple[float, ...]]] = {
    "relu": (), "tanh": (), "sigmoid": (), "softsign": (), "softplus": (), "affine": (1.0, 0.0), "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,), "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5), "elu": (1.0,),
}  # fmt: skip
_PLAIN: Final[dict[str, Activation]] = {
    "relu": lambda x: np.asarray(np.maximum(x, 0)),
    "tanh": lambda x: np.asarray(np.tanh(x)),
    "sigmoid": sigmoid,
    "softsign": lambda x: np.asarray(x / (1 + np.abs(x))),
    "softplus": lambda x: np.asarray(np.logaddexp(x, x.dtype.type(0))),
}


def activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None, count: int
) -> list[Activation]:
    """The activations by those names, *count* for each direction, which take alphas and betas in their order.

    Their inputs are cut to *clip*; but not the cell state, the input of the third, as in ONNX Runtime.
    """
    more_alphas, more_betas = iter(alphas), iter(betas)
    found = [_activation(name, more_alphas, more_betas) for name in names]
    return [one if clip is None or i % count == 2 else _clipped(one, clip) for i, one in enumerate(found)]


def _clipped(function: Activation, clip: float) -> Activation:
    return lambda x: function(np.clip(x, -clip, clip))


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    key = name.lower()
    if key not in _PARAMETERS:
        raise InvalidArgumentError(f"{name!r} is no activation of a recurrent op; there are {', '.join(_PARAMETERS)}")
    if key in _PLAIN:
        return _PLAIN[key]
    defaults = _PARAMETERS[key]
    alpha = next(alphas, defaults[0])
    beta = next(betas, defaults[1]) if len(defaults) > 1 else 0.0
    made: dict[str, Activation] = {
        "affine": lambda x: x * x.dtype.type(alpha) + x.dtype.type(beta),
        "leakyrelu": lambda x: np.where(x < 0, x * x.dtype.type(alpha), x),
        "thresholdedrelu": lambda x: np.where(x > alpha, x, x.dtype.type(0)),
        "scaledtanh": lambda x: np.asarray(x.dtype.type(alpha) * np.tanh(x * x.dtype.type(beta))),
        "hardsigmoid": hard_sigmoid(alpha, beta),
        "elu": lambda x: np.where(x < 0, x.dtype.type(alpha) * np.expm1(x), x),
    }
    return made[key]


def rnn_cell(weights: Array, functions: Sequence[Activation], **_: object) -> Cell:
    """A step of RNN; *weights* [gates * hidden, hidden] multiply the state from the left."""
    (f,) = functions

    def step(gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        total = weights @ h
        total += gates
        return f(total), c

    return step


def gru_cell(weights: Array, functions: Sequence[Activation], late_bias: Array | None = None, **_: object) -> Cell:
    """A step of GRU; with *late_bias* the reset gate multiplies the product, to which that is added before."""
    f, g = functions
    size = weights.shape[1]
    for_gates, for_state = weights[: 2 * size], weights[2 * size :]
    added = None if late_bias is None else late_bias[:, np.newaxis]

    def step(gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        if added is None:
            both = f(for_gates @ h + gates[: 2 * size])
            z, r = both[:size], both[size:]
            new = g(for_state @ (r * h) + gates[2 * size :])
        else:
            products = weights @ h
            both = f(products[: 2 * size] + gates[: 2 * size])
            z, r = both[:size], both[size:]
            new = g(r * (products[2 * size :] + added) + gates[2 * size :])
        return new + z * (h - new), c

    return step


def lstm_cell(
    weights: Array,
    functions: Sequence[Activation],
    peepholes: Array | None = None,
    input_forget: bool = False,
    **_: object,
) -> Cell:
    """A step of LSTM; *peepholes* [3 * hidden] let the gates i, o, f see the cell state."""
    f, g, last = functions
    size = weights.shape[1]
    if peepholes is None:

        def step(gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
            total = weights @ h
            total += gates
            opened = f(total[: 3 * size])
            new = g(total[3 * size :])
            new *= opened[:size]
            c = c * (1 - opened[:size] if input_forget else opened[2 * size :])
            c += new
            h = last(c)
            h *= opened[size : 2 * size]
            return h, c

        return step
    see_i, see_o, see_f = np.split(peepholes[:, np.newaxis], 3)

    def step_with_peepholes(gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        total = weights @ h + gates
        i = f(total[:size] + see_i * c)
        forget = 1 - i if input_forget else f(total[2 * size : 3 * size] + see_f * c)
        c = forget * c + i * g(total[3 * size :])
        o = f(total[size : 2 * size] + see_o * c)
        return o * last(c), c

    return step_with_peepholes
