"""Random ops whose state is a variable (``tensorflow/core/ops/stateful_random_ops.cc``), what tf.random.Generator uses.

The variable is a vector of int64: the two halves of a Philox counter, the low one first, and the key.  A run takes its
numbers from there, and moves the counter on by 256 blocks for each of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, float16, float32, float64, int32, int64, uint32, uint64
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.random_distributions import (
    FLOATS,
    Sampler,
    full_range,
    normal,
    truncated_normal,
    uniform,
    uniform_int,
)
from asyncexec.ops.random.random_rejection import binomial_numbers, binomial_sizes
from asyncexec.ops.random.random_shape import spelled_shape
from asyncexec.ops.random.random_stateful import BLOCKS_PER_OUTPUT
from asyncexec.ops.random.random_stateless import check_range
from asyncexec.ops.state.variable_state import Variable

_PHILOX: Final = 1
_STATE_SIZE: Final = 3
_MASK64: Final = 0xFFFFFFFFFFFFFFFF
_INTS: Final = (int32, int64, uint32, uint64)


def _shape_at(index: int) -> Callable[[InferenceContext], Sequence[TensorShape]]:
    return lambda c: [c.value_as_shape(index)]


_FLOAT: Final = "dtype: type = float32; shape_dtype: type = int64"
register_op(
    "StatefulStandardNormal",
    "resource: resource, shape: shape_dtype -> output: dtype",
    _FLOAT,
    is_stateful=True,
    shape=_shape_at(1),
)
for _op in ("StatefulStandardNormalV2", "StatefulUniform", "StatefulTruncatedNormal"):
    register_op(
        _op,
        "resource: resource, algorithm: int64, shape: shape_dtype -> output: dtype",
        _FLOAT,
        is_stateful=True,
        shape=_shape_at(2),
    )
register_op(
    "StatefulUniformInt",
    "resource: resource, algorithm: int64, shape: shape_dtype, minval: dtype, maxval: dtype -> output: dtype",
    "dtype: type = int64; shape_dtype: type = int64",
    is_stateful=True,
    shape=_shape_at(2),
)
register_op(
    "StatefulUniformFullInt",
    "resource: resource, algorithm: int64, shape: shape_dtype -> output: dtype",
    "dtype: type = uint64; shape_dtype: type = int64",
    is_stateful=True,
    shape=_shape_at(2),
)
register_op(
    "StatefulRandomBinomial",
    "resource: resource, algorithm: int64, shape: S, counts: T, probs: T -> output: dtype",
    "S: {int32, int64}; T: {float16, float32, float64, int32, int64} = float64; "
    "dtype: {float16, float32, float64, int32, int64} = int64",
    is_stateful=True,
    shape=_shape_at(2),
)
register_op("RngSkip", "resource: resource, algorithm: int64, delta: int64 ->", is_stateful=True, shape=no_outputs)
register_op(
    "RngReadAndSkip",
    "resource: resource, alg: int32, delta: uint64 -> value: int64",
    is_stateful=True,
    shape=lambda _: [TensorShape([_STATE_SIZE])],
)
register_op(
    "NonDeterministicInts",
    "shape: shape_dtype -> output: dtype",
    "dtype: type = int64; shape_dtype: type = int64",
    is_stateful=True,
    shape=_shape_at(0),
)


def _require_philox(algorithm: Any, name: str = "algorithm") -> None:
    if np.ndim(algorithm):
        raise InvalidArgumentError(f"{name} must have shape [], not {list(np.shape(algorithm))}")
    if algorithm != _PHILOX:
        raise InvalidArgumentError(f"Unsupported algorithm id: {algorithm}")


def _advance(variable: Variable, blocks: int, start: int = 0) -> Philox:
    """The generator of *variable*, whose state begins at *start*; the variable moves on by *blocks*."""
    with variable.lock:
        state = variable.lookup()
        if state.dtype != np.int64:
            raise InvalidArgumentError(f"dtype of RNG state variable must be int64, not {variable.dtype.name}")
        if np.ndim(state) != 1:
            raise InvalidArgumentError(f"RNG state must have one and only one dimension, not {np.ndim(state)}")
        if len(state) < start + _STATE_SIZE:
            raise InvalidArgumentError(
                f"For the Philox algorithm, the size of state must be at least {start + _STATE_SIZE}; got {len(state)}"
            )
        if start and state[0] != _PHILOX:
            raise InvalidArgumentError(f"Unsupported algorithm id: {state[0]}")
        low, high, key = state[start : start + _STATE_SIZE].view(np.uint64).tolist()
        generator = Philox(key, low | high << 64)
        counter = generator.skip(blocks).counter
        moved = state.copy()
        moved[start : start + 2] = np.array([counter & _MASK64, counter >> 64], np.uint64).view(np.int64)
        variable.assign(moved)
    return generator


def _numbers(variable: Variable, shape: object, itemsize: int, sampler: Sampler, start: int = 0) -> Any:
    sizes = spelled_shape(shape, itemsize)
    count = math.prod(sizes)
    return as_value(sampler(_advance(variable, count * BLOCKS_PER_OUTPUT, start), count).reshape(sizes))


@register_kernel("StatefulStandardNormal", dtypes={"dtype": FLOATS}, handles=Variable)
def stateful_standard_normal(construction: OpKernelConstruction) -> Kernel:
    """Normal numbers; the state has the number of the algorithm before it."""
    dtype: DType = construction.attr("dtype")
    sampler = normal(dtype)
    return lambda variable, shape: _numbers(variable, shape, dtype.itemsize, sampler, 1)


def _register(op: str, dtypes: Sequence[DType], sampler_of: Callable[[DType], Sampler]) -> None:
    @register_kernel(op, dtypes={"dtype": dtypes}, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        dtype: DType = construction.attr("dtype")
        sampler = sampler_of(dtype)

        def kernel(variable: Variable, algorithm: object, shape: object) -> Array:
            _require_philox(algorithm)
            return _numbers(variable, shape, dtype.itemsize, sampler)

        return kernel


_register("StatefulStandardNormalV2", FLOATS, normal)
_register("StatefulUniform", FLOATS, uniform)
_register("StatefulTruncatedNormal", FLOATS, truncated_normal)
_register("StatefulUniformFullInt", _INTS, lambda dtype: full_range(dtype.as_numpy_dtype))


@register_kernel("StatefulUniformInt", dtypes={"dtype": (int32, int64)}, handles=Variable)
def stateful_uniform_int(construction: OpKernelConstruction) -> Kernel:
    """Integers in [minval, maxval)."""
    dtype = construction.np_dtype("dtype")

    def kernel(variable: Variable, algorithm: object, shape: Any, low: np.generic, high: np.generic) -> ArrayOrScalar:
        _require_philox(algorithm)
        check_range(low, high)
        return _numbers(variable, shape, dtype.itemsize, uniform_int(dtype, int(low), int(high)))

    return kernel


@register_kernel(
    "StatefulRandomBinomial",
    dtypes={"T": (float16, float32, float64), "dtype": (float16, float32, float64, int32, int64)},
    handles=Variable,
)
def stateful_random_binomial(construction: OpKernelConstruction) -> Kernel:
    """Numbers of binomial distributions."""
    dtype: DType = construction.attr("dtype")

    def kernel(
        variable: Variable, algorithm: object, shape: object, counts: ArrayOrScalar, probs: ArrayOrScalar
    ) -> ArrayOrScalar:
        sizes = binomial_sizes(shape, counts, probs, dtype)
        _require_philox(algorithm)
        batch = max(1, math.prod(np.broadcast_shapes(np.shape(counts), np.shape(probs))))
        samples = math.prod(sizes) // batch
        generator = _advance(variable, batch * 200 * (samples + 3) // 4 * BLOCKS_PER_OUTPUT)
        return binomial_numbers(generator, sizes, counts, probs, dtype)

    return kernel


def _delta(delta: Any) -> int:
    if np.ndim(delta):
        raise InvalidArgumentError(f"delta must have shape [], not {list(np.shape(delta))}")
    return int(delta) * BLOCKS_PER_OUTPUT


@register_kernel("RngSkip", handles=Variable)
def rng_skip(construction: OpKernelConstruction) -> Kernel:
    """Move the state on as if *delta* numbers had been taken."""

    def kernel(variable: Variable, algorithm: object, delta: object) -> tuple[()]:
        _require_philox(algorithm)
        _advance(variable, _delta(delta))
        return ()

    return kernel


@register_kernel("RngReadAndSkip", handles=Variable)
def rng_read_and_skip(construction: OpKernelConstruction) -> Kernel:
    """The state, which is moved on as if *delta* numbers had been taken."""

    def kernel(variable: Variable, algorithm: object, delta: object) -> Any:
        _require_philox(algorithm, "alg")
        found = _advance(variable, _delta(delta))
        return np.array([found.counter & _MASK64, found.counter >> 64, found.key], np.uint64).view(np.int64)

    return kernel


@register_kernel("NonDeterministicInts", dtypes={"dtype": _INTS})
def non_deterministic_ints(construction: OpKernelConstruction) -> Kernel:
    """Integers of the operating system's generator."""
    dtype = construction.np_dtype("dtype")

    def kernel(shape: object) -> Any:
        sizes = spelled_shape(shape, dtype.itemsize)
        data = bytearray(os.urandom(math.prod(sizes) * dtype.itemsize))
        return as_value(np.frombuffer(data, dtype).reshape(sizes))

    return kernel
