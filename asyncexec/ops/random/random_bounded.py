"""Normal numbers between bounds: ParameterizedTruncatedNormal and its stateless form.

The samplers and the order of numbers are those of ``tensorflow/core/kernels/parameterized_truncated_normal_op.cc``: C.
Robert, "Simulation of truncated normal variables", 1995.  TensorFlow divides the outputs among its threads, and starts
another stream in each: only where one thread has all of them are its numbers those of one stream, as they are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, float16, float32, float64
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.random_distributions import normal, uniform
from asyncexec.ops.random.random_rejection import require_ending
from asyncexec.ops.random.random_shape import from_first_input, spelled_shape
from asyncexec.ops.random.random_stateful import SEEDS, node_generator
from asyncexec.ops.random.random_stateless import seeded, seeded_shape

_FLOATS: Final = (float16, float32, float64)
_MAX_REJECTED: Final = 1000  # one after another
_SMALL_BATCH: Final = 100  # outputs of the same parameters that TensorFlow takes together
_MOST_UNITS: Final = 1 << 12


def _parameterized_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(1, 5):
        c.input(index).with_rank_at_most(1)
    return from_first_input(c)


register_op(
    "ParameterizedTruncatedNormal",
    "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype -> output: dtype",
    f"{SEEDS}; dtype: {{bfloat16, float16, float32, float64}}; T: {{int32, int64}}",
    is_stateful=True,
    shape=_parameterized_shape,
)
register_op(
    "StatelessParameterizedTruncatedNormal",
    "shape: S, seed: Tseed, means: dtype, stddevs: dtype, minvals: dtype, maxvals: dtype -> output: dtype",
    "S: {int32, int64}; Tseed: {int32, int64} = int64; dtype: {float16, float32, float64}",
    shape=seeded_shape,
)


class _Trials(NamedTuple):
    """How to draw: *blocks* at a time make *values*, of which some are accepted."""

    blocks: int
    per_unit: int
    draw: Callable[[Philox, int], tuple[Any, Any]]  # so many units: values and which are accepted, one row each
    limit: int  # how many may be rejected one after another


def _trials(dtype: DType, low: Any, high: Any) -> _Trials:
    """How to draw normal numbers of [low, high], one of which is in the dtype."""
    number = dtype.as_numpy_dtype.type
    per_block = 2 if dtype is float64 else 4
    inside, two = number(1.3), number(2)
    if (low < -inside and high >= 0) or (high > inside and low <= 0):
        return _by_normals(dtype, low, high, per_block)
    root = np.sqrt(low * low + number(4))
    cutoff = two * np.exp(number(0.5) + (low * (low - root)) / number(4)) / (low + root)
    if high - low < cutoff:
        return _by_uniforms(dtype, low, high - low, per_block)
    return _by_exponentials(dtype, low, high, per_block)


def _by_normals(dtype: DType, low: object, high: object, per_block: int) -> _Trials:
    sampler = normal(dtype)

    def draw(generator: Philox, units: int) -> tuple[Any, object]:
        values = sampler(generator, units * per_block)
        return values, (values >= low) & (values <= high)

    return _Trials(1, per_block, draw, _MAX_REJECTED + 1)


def _by_uniforms(dtype: DType, low: Any, span: np.generic, per_block: int) -> _Trials:
    sampler, number = uniform(dtype), dtype.as_numpy_dtype.type
    shift = number(0) if low < 0 else low * low

    def draw(generator: Philox, units: int) -> tuple[Any, object]:
        drawn = sampler(generator, units * 2 * per_block).reshape(units, 2, per_block)
        values = drawn[:, 0] * span + low
        return values, drawn[:, 1] <= np.exp((shift - values * values) / number(2))

    return _Trials(2, per_block, draw, _MAX_REJECTED)


def _by_exponentials(dtype: DType, low: Any, high: object, per_block: int) -> _Trials:
    sampler, number = uniform(dtype), dtype.as_numpy_dtype.type
    alpha = (low + np.sqrt(low * low + number(4))) / number(2)

    def draw(generator: Philox, units: int) -> tuple[Any, object]:
        drawn = sampler(generator, units * per_block).reshape(-1, 2)
        values = -np.log(drawn[:, 0]) / alpha + low
        x = alpha - values if low < alpha else np.full_like(values, low - alpha)
        return values, (drawn[:, 1] <= np.exp(-x * x / number(2))) & (values < high)

    return _Trials(1, per_block // 2, draw, _MAX_REJECTED)


def _accepted(generator: Philox, count: int, trials: _Trials) -> tuple[list[Any], Philox]:
    """The first *count* values that are accepted, and the generator after them."""
    found: list[object] = []
    rejected = 0  # since the last that was accepted
    while count:
        units = min(_MOST_UNITS, 2 * count // trials.per_unit + 4)
        values, is_accepted = (part.reshape(-1) for part in trials.draw(generator, units))
        places = np.flatnonzero(is_accepted)[:count]
        ends = places if len(places) == count else np.append(places, len(values))
        if np.diff(ends, prepend=-1 - rejected).max() > trials.limit:
            raise InternalError("TruncatedNormal rejection sampler failed to accept a sample.")
        found.append(values[places])
        count -= len(places)
        rejected = len(values) - 1 - int(places[-1]) if len(places) else rejected + len(values)
        used = units if count else int(places[-1]) // trials.per_unit + 1
        generator = generator.skip(used * trials.blocks)
    return found, generator


def _fill(generator: Philox, rows: Any, dtype: DType, parameters: Sequence[Array]) -> None:
    """Fill each of *rows* with numbers of its own parameters: vectors of means, deviations and both bounds."""
    for row, mean, deviation, low, high in zip(rows, *parameters, strict=True):
        if not (deviation > 0 and low < high and (np.isfinite(low) or np.isfinite(high))):
            raise InvalidArgumentError(f"Invalid parameters: stddev {deviation}, minval {low}, maxval {high}")
        if (np.isinf(low) and low < 0) or high < mean:
            low, high, deviation = high, low, -deviation
        trials = _trials(dtype, (low - mean) / deviation, (high - mean) / deviation)
        found, generator = _accepted(generator, len(row), trials)
        row[:] = np.concatenate(found) * deviation + mean if found else 0


@register_kernel("ParameterizedTruncatedNormal", dtypes={"dtype": _FLOATS})
def parameterized_truncated_normal(construction: OpKernelConstruction) -> Kernel:
    """Normal numbers between bounds; the parameters are those of the rows of the result, or of all of it."""
    state, dtype = node_generator(construction), construction.attr("dtype")

    def kernel(shape: Array, *parameters: ArrayOrScalar) -> Array:
        sizes = spelled_shape(shape, dtype.itemsize)
        if not sizes:
            raise InvalidArgumentError("Shape tensor must not be empty, got []")
        total, batches = math.prod(sizes), sizes[0]
        samples = math.prod(sizes[1:])
        _check_parameters(parameters, batches)
        if all(np.size(value) == 1 for value in parameters[:2]) and not any(map(np.ndim, parameters[2:])):
            batches, samples = -(-total // _SMALL_BATCH), _SMALL_BATCH
        generator = state.reserve(batches * 2 * _MAX_REJECTED * (samples + 3) // 4)
        result = np.empty(total, dtype.as_numpy_dtype)
        rows = [result[start : start + samples] for start in range(0, total, max(1, samples))]
        _fill(generator, rows, dtype, [np.broadcast_to(np.ravel(value), len(rows)) for value in parameters])
        return result.reshape(sizes)

    return kernel


def _check_parameters(parameters: Sequence[Any], batches: int) -> None:
    for name, value in zip(("means", "stddevs", "minvals", "maxvals"), parameters, strict=True):
        if np.ndim(value) > 1:
            raise InvalidArgumentError(f"Input {name} should be a scalar or vector, got shape: {list(value.shape)}")
        if np.ndim(value) and len(value) not in (1, batches):
            raise InvalidArgumentError(f"Input {name} should have length 1 or shape[0], got shape: {list(value.shape)}")


@register_kernel("StatelessParameterizedTruncatedNormal", dtypes={"dtype": _FLOATS})
def stateless_parameterized_truncated_normal(construction: OpKernelConstruction) -> Kernel:
    """Normal numbers between bounds, by seed; the result's last dimensions are those of the parameters."""
    dtype = construction.attr("dtype")

    def kernel(shape: Array, seed: object, *parameters: ArrayOrScalar) -> ArrayOrScalar:
        generator = seeded(seed)
        try:
            spread = np.broadcast_arrays(*parameters)
        except ValueError:
            shapes = " vs. ".join(str(list(np.shape(value))) for value in parameters)
            raise InvalidArgumentError(
                f"means, stddevs, minvals, maxvals must have compatible batch dimensions: {shapes}"
            ) from None
        sizes = spelled_shape(shape, dtype.itemsize)
        require_ending(sizes, spread[0].shape)
        total = math.prod(sizes)
        if not total:
            return np.empty(sizes, dtype.as_numpy_dtype)
        result = np.empty((spread[0].size, total // spread[0].size), dtype.as_numpy_dtype)
        _fill(generator, result, dtype, [np.ravel(values) for values in spread])
        return as_value(result.T.reshape(sizes))

    return kernel
