"""Recurrent networks as one op: CudnnRNN, V2, V3, and the ops for their parameters.

TensorFlow has them by cuDNN only (``tensorflow/core/ops/cudnn_rnn_ops.cc``, ``core/kernels/cudnn_rnn_ops.cc``).
Nothing is reserved for a gradient: the outputs for that are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape, unknown_shape
from asyncexec.framework.types import bfloat16, float16, float32, float64
from asyncexec.ops.math.math import sigmoid
from asyncexec.ops.nn.cudnn_params import Network, network_of
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.random_distributions import uniform
from asyncexec.ops.random.random_stateful import BLOCKS_PER_OUTPUT, SEEDS, node_generator

_FLOATS: Final = (bfloat16, float16, float32, float64)
_T: Final = "T: {bfloat16, float16, float32, float64}"
_MODES: Final = (
    "rnn_mode: {'gru', 'lstm', 'rnn_relu', 'rnn_tanh'} = 'lstm'; "
    "input_mode: {'auto_select', 'linear_input', 'skip_input'} = 'linear_input'; "
    "direction: {'bidirectional', 'unidirectional'} = 'unidirectional'; "
    f"dropout: float = 0.0; {SEEDS}"
)
_SIZES: Final = "num_layers: int32, num_units: int32, input_size: int32"
_STATES: Final = "input: T, input_h: T, input_c: T, params: T"
_OUTPUTS: Final = "output: T, output_h: T, output_c: T, reserve_space: T"


def _rnn_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data, state = c.with_rank(0, 3), c.with_rank(1, 3)
    c.vector(3)
    directions = 2 if c.attr("direction") == b"bidirectional" else 1
    size = None if state.dims is None or state[2] is None else state[2] * directions
    first = [None, None] if data.dims is None else list(data.dims[:2])
    cell = c.with_rank(2, 3) if c.attr("rnn_mode") == b"lstm" else SCALAR
    return [TensorShape([*first, size]), state, cell, *[unknown_shape(1)] * (c.num_outputs - 3)]


def _size_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(3):
        c.scalar(index)
    return [TensorShape([1])]


def _params_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(3):
        c.scalar(index)
    return [unknown_shape(1)]


def _canonical_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(3):
        c.scalar(index)
    num_weights = c.attr("num_params_weights" if c.op_def.name.endswith("V2") else "num_params")
    return [unknown_shape(2)] * num_weights + [unknown_shape(1)] * (c.num_outputs - num_weights)


register_op(
    "CudnnRNN",
    f"{_STATES} -> {_OUTPUTS}",
    f"{_T}; {_MODES}; is_training: bool = True",
    is_stateful=True,
    shape=_rnn_shape,
)
register_op(
    "CudnnRNNV2",
    f"{_STATES} -> {_OUTPUTS}, host_reserved: int8",
    f"{_T}; {_MODES}; is_training: bool = True",
    is_stateful=True,
    shape=_rnn_shape,
)
register_op(
    "CudnnRNNV3",
    f"{_STATES}, sequence_lengths: int32 -> {_OUTPUTS}, host_reserved: int8",
    f"{_T}; {_MODES}; num_proj: int = 0; is_training: bool = True; time_major: bool = True",
    is_stateful=True,
    shape=_rnn_shape,
)
register_op(
    "CudnnRNNParamsSize",
    f"{_SIZES} -> params_size: S",
    f"{_T}; S: {{int32, int64}}; {_MODES}; num_proj: int = 0",
    shape=_size_shape,
)
for _version, _counts, _more, _weights, _biases in (
    ("", "num_params: int >= 1", "", "num_params", "num_params"),
    (
        "V2",
        "num_params_weights: int >= 1; num_params_biases: int >= 1",
        "; num_proj: int = 0",
        "num_params_weights",
        "num_params_biases",
    ),
):
    _parts = f"weights: {_weights}*T, biases: {_biases}*T"
    _attrs = f"{_T}; {_counts}; {_MODES}{_more}"
    register_op(f"CudnnRNNCanonicalToParams{_version}", f"{_SIZES}, {_parts} -> params: T", _attrs, shape=_params_shape)
    register_op(
        f"CudnnRNNParamsToCanonical{_version}", f"{_SIZES}, params: T -> {_parts}", _attrs, shape=_canonical_shape
    )


def _network(construction: OpKernelConstruction, sizes: Sequence[np.generic]) -> Network:
    for name, size in zip(("num_layers", "num_units", "input_size"), sizes, strict=True):
        if np.ndim(size):
            raise InvalidArgumentError(f"{name} must be scalar, got shape {list(np.shape(size))}")
    return network_of(construction.attrs, *(int(size) for size in sizes))


@register_kernel("CudnnRNNParamsSize")
def cudnn_rnn_params_size(construction: OpKernelConstruction) -> Kernel:
    """How many numbers the parameters are."""
    dtype = construction.np_dtype("S")
    return lambda *sizes: np.array([_network(construction, sizes).num_params], dtype)


@register_kernel("CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2", dtypes={"T": _FLOATS})
def cudnn_rnn_canonical_to_params(construction: OpKernelConstruction) -> Kernel:
    """All parameters as one vector."""

    def kernel(num_layers: np.generic, num_units: np.generic, input_size: np.generic, *parts: Any) -> ArrayOrScalar:
        network = _network(construction, (num_layers, num_units, input_size))
        shapes: list[tuple[int, ...]] = [*network.all_matrix_shapes(), *[(network.num_units,)] * network.num_biases]
        if len(parts) != len(shapes):
            raise InvalidArgumentError(f"the network has {len(shapes)} weights and biases, not {len(parts)}")
        for number, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
            if np.size(part) != np.prod(shape, dtype=np.int64):
                raise InvalidArgumentError(
                    f"weight or bias {number} must be of shape {list(shape)}, not {list(np.shape(part))}"
                )
        return np.concatenate([np.ravel(part) for part in parts])

    return kernel


@register_kernel("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2", dtypes={"T": _FLOATS})
def cudnn_rnn_params_to_canonical(construction: OpKernelConstruction) -> Kernel:
    """The weights and biases that a vector of all parameters holds."""
    is_new = construction.op.endswith("V2")
    num_weights = construction.attr("num_params_weights" if is_new else "num_params")
    num_biases = construction.attr("num_params_biases" if is_new else "num_params")

    def kernel(num_layers: np.generic, num_units: np.generic, input_size: np.generic, params: Any) -> tuple[Any, ...]:
        network = _network(construction, (num_layers, num_units, input_size))
        matrices, biases = network.split(params)
        if (len(matrices), len(biases)) != (num_weights, num_biases):
            raise InvalidArgumentError(
                f"the network has {len(matrices)} weights and {len(biases)} biases, not {num_weights} and {num_biases}"
            )
        return *matrices, *biases

    return kernel


@register_kernel("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", kind=KernelKind.EXPENSIVE, dtypes={"T": _FLOATS})
def cudnn_rnn(construction: OpKernelConstruction) -> Kernel:
    """All layers of a network over whole sequences."""
    attrs, dtype = construction.attrs, construction.np_dtype("T")
    mode, is_time_major = attrs["rnn_mode"], attrs.get("time_major", True)
    dropout, state = attrs["dropout"] if attrs["is_training"] else 0.0, node_generator(construction)
    if not 0 <= dropout <= 1:
        raise InvalidArgumentError(f"dropout must be in [0, 1], not {dropout}", op=construction.op)
    wide = np.float64 if dtype == np.float64 else np.float32
    reserved = [np.empty(0, dtype), np.empty(0, np.int8)][: construction.num_outputs - 3]

    def kernel(data: Array, h: Array, c: Array, params: Array, lengths: Any = None) -> tuple[Any, ...]:
        if not is_time_major:
            data, h, c = (np.swapaxes(x, 0, 1) if np.ndim(x) == 3 else x for x in (data, h, c))
        network = _checked(attrs, data, h, c, lengths)
        run = _Run(network, lengths, dropout, state.reserve)
        output, last_h, last_c = run(*(np.asarray(x, wide) for x in (data, h, c, params)))
        if not is_time_major:
            output, last_h, last_c = (np.swapaxes(x, 0, 1) for x in (output, last_h, last_c))
        found = [np.ascontiguousarray(x.astype(dtype, copy=False)) for x in (output, last_h, last_c)]
        if mode != b"lstm":
            found[2] = dtype.type(0)
        return *found, *reserved

    return kernel


def _checked(attrs: Any, data: Any, h: Array, c: Array, lengths: Array | None) -> Network:
    """The network that the inputs belong to, which are in the order of time."""
    if np.ndim(data) != 3:
        raise InvalidArgumentError(f"RNN input must be a 3-D vector, not of shape {list(np.shape(data))}.")
    if np.ndim(h) != 3:
        raise InvalidArgumentError(f"RNN input_h must be a 3-D vector, not of shape {list(np.shape(h))}.")
    directions = 2 if attrs["direction"] == b"bidirectional" else 1
    is_lstm, num_proj = attrs["rnn_mode"] == b"lstm", attrs.get("num_proj", 0)
    if is_lstm and (np.ndim(c) != 3 or np.shape(c)[:2] != np.shape(h)[:2]):
        raise InvalidArgumentError(f"input_c must be of shape {list(h.shape)}, not {list(np.shape(c))}")
    num_units = c.shape[2] if is_lstm else h.shape[2]
    network = network_of(attrs, h.shape[0] // directions, num_units, data.shape[2])
    wanted = (network.num_layers * directions, data.shape[1], network.state_size)
    if h.shape != wanted:
        raise InvalidArgumentError(f"Invalid input_h shape: {list(h.shape)}, expected {list(wanted)}")
    if num_proj and not is_lstm:
        raise InvalidArgumentError("only an LSTM has a projection")
    if lengths is not None and (
        np.shape(lengths) != (data.shape[1],) or np.any(lengths < 0) or np.any(lengths > len(data))
    ):
        raise InvalidArgumentError(
            f"sequence_lengths must have a length in [0, {len(data)}] for each of {data.shape[1]} sequences"
        )
    return network


class _Run:
    """One call: the layers of *network*, one after another."""

    def __init__(
        self, network: Network, lengths: Array | None, dropout: float, reserve: Callable[[int], Philox]
    ) -> None:
        self._network, self._dropout, self._reserve = network, dropout, reserve
        self._lengths = lengths

    def __call__(self, data: Any, h: Array, c: Array, params: Array) -> tuple[Any, Array, Array]:
        network = self._network
        matrices, biases = network.split(params)
        per_layer, gates = len(network.matrix_shapes(0)), network.num_gates
        last_h, last_c = np.empty_like(h), np.zeros_like(c) if network.mode == b"lstm" else h
        for layer in range(network.num_layers):
            outputs = []
            data = self._dropped(data) if layer else data
            for direction in range(network.num_directions):
                place = layer * network.num_directions + direction
                mine = matrices[place * per_layer : (place + 1) * per_layer]
                bias = np.concatenate(biases[place * 2 * gates : (place + 1) * 2 * gates]).reshape(2, -1)
                cell = _Cell(network, mine, bias)
                source = self._turned(data) if direction else data
                start = h[place], c[place] if network.mode == b"lstm" else None
                output, last_h[place], memory = self._over_time(cell, source, *start)
                if network.mode == b"lstm":
                    last_c[place] = memory
                outputs.append(self._turned(output) if direction else output)
            data = np.concatenate(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
        return data, last_h, last_c

    def _over_time(self, cell: _Cell, data: Array, h: Any, c: Any) -> tuple[Any, Array | None, Any]:
        inputs = cell.inputs(data)
        output = np.zeros((*data.shape[:2], self._network.state_size), data.dtype)
        for time in range(len(data)):
            new_h, new_c = cell.step(inputs[time], h, c)
            if self._lengths is None:
                output[time], h, c = new_h, new_h, new_c
                continue
            goes_on = (time < self._lengths)[:, None]
            output[time] = np.where(goes_on, new_h, 0)
            h, c = np.where(goes_on, new_h, h), None if c is None else np.where(goes_on, new_c, c)
        return output, h, c

    def _turned(self, data: Array) -> Any:
        """*data* backwards in time, each sequence within its length."""
        if self._lengths is None:
            return data[::-1]
        times = np.arange(len(data))[:, None]
        places = np.where(times < self._lengths, self._lengths - 1 - times, times)
        return np.take_along_axis(data, places[:, :, None], axis=0)

    def _dropped(self, data: Array) -> Array:
        """*data* with some of it set to zero, and the rest scaled up."""
        if not self._dropout:
            return data
        drawn = uniform(float32)(self._reserve(data.size * BLOCKS_PER_OUTPUT), data.size).reshape(data.shape)
        scale = 1 / (1 - self._dropout) if self._dropout < 1 else 0.0
        return data * np.where(drawn >= self._dropout, scale, 0.0).astype(data.dtype)


class _Cell:
    """The cell of one layer in one direction; *bias* has two rows: what joins the input's part, and the state's."""

    def __init__(self, network: Network, matrices: Sequence[Array], bias: Array) -> None:
        gates = network.num_gates
        self._mode, self._gates = network.mode, gates
        self._for_input = np.concatenate(matrices[:gates])
        self._for_state = np.ascontiguousarray(np.concatenate(matrices[gates : 2 * gates]).T)
        self._projection = matrices[2 * gates].T if len(matrices) > 2 * gates else None
        self._bias = bias

    def inputs(self, data: Array) -> Any:
        """What the input gives to the gates, at all times."""
        if not self._for_input.shape[1]:  # it meets each gate as it is
            return np.concatenate([data] * self._gates, axis=-1) + self._bias[0]
        return data @ self._for_input.T + self._bias[0]

    def step(self, from_input: Array, h: Array, c: Array | None) -> tuple[Any, Any]:
        """The next state, and memory."""
        from_state = h @ self._for_state + self._bias[1]
        if self._mode == b"gru":
            size = h.shape[-1]
            reset, update = np.split(sigmoid(from_input[:, : 2 * size] + from_state[:, : 2 * size]), 2, axis=-1)
            new = np.tanh(from_input[:, 2 * size :] + reset * from_state[:, 2 * size :])
            return (1 - update) * new + update * h, None
        gates = from_input + from_state
        if self._mode == b"rnn_tanh":
            return np.tanh(gates), None
        if self._mode == b"rnn_relu":
            return np.maximum(gates, 0), None
        enter, forget, new, give = np.split(gates, 4, axis=-1)
        memory = sigmoid(forget) * c + sigmoid(enter) * np.tanh(new)
        output = sigmoid(give) * np.tanh(memory)
        return output if self._projection is None else output @ self._projection, memory
