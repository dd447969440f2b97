"""Gamma, Poisson and binomial numbers (``random_ops.cc``, ``stateless_random_ops.cc`` in ``tensorflow/core/ops``).

Output *n* of the samplers is sample ``n % samples`` of parameter ``n // samples``, which lies at
``[sample, parameter]`` of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, float16, float32, float64, int32, int64
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.random_shape import spelled_shape
from asyncexec.ops.random.random_stateful import BLOCKS_PER_OUTPUT, SEEDS, node_generator
from asyncexec.ops.random.random_stateless import generator_of_key, keyed_shape, seeded, seeded_shape
from asyncexec.ops.random.rejection_samplers import binomial, gamma, poisson
from asyncexec.ops.random.streams import chunks

_NUMBERS: Final = (float16, float32, float64, int32, int64)
_NUMBER: Final = "{float16, float32, float64, int32, int64}"
_FLOATS: Final = (float16, float32, float64)
_INDEX: Final = "{int32, int64}"
# The numbers of some outputs, of the parameters of each.
Sampler = Callable[..., Any]


def _appended_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.input(0).with_rank(1)
    return [c.value_as_shape(0).concatenate(c.input(1))]


register_op(
    "RandomGamma",
    "shape: S, alpha: T -> output: T",
    f"{SEEDS}; S: {_INDEX}; T: {{float16, float32, float64}}",
    is_stateful=True,
    shape=_appended_shape,
)
register_op(
    "RandomPoisson",
    "shape: S, rate: dtype -> output: dtype",
    f"{SEEDS}; S: {_INDEX}; dtype: {{float16, float32, float64}}",
    is_stateful=True,
    shape=_appended_shape,
)
register_op(
    "RandomPoissonV2",
    "shape: S, rate: R -> output: dtype",
    f"{SEEDS}; S: {_INDEX}; R: {_NUMBER} = float64; dtype: {_NUMBER} = int64",
    is_stateful=True,
    shape=_appended_shape,
)
register_op(
    "StatelessRandomGammaV2",
    "shape: T, seed: Tseed, alpha: dtype -> output: dtype",
    f"dtype: {{float16, float32, float64}}; T: {_INDEX}; Tseed: {_INDEX} = int64",
    shape=seeded_shape,
)
register_op(
    "StatelessRandomGammaV3",
    "shape: shape_dtype, key: uint64, counter: uint64, alg: int32, alpha: dtype -> output: dtype",
    f"dtype: {{float16, float32, float64}}; shape_dtype: {_INDEX} = int32",
    shape=keyed_shape,
)
register_op(
    "StatelessRandomPoisson",
    "shape: T, seed: Tseed, lam: Rtype -> output: dtype",
    f"Rtype: {_NUMBER}; dtype: {_NUMBER}; T: {_INDEX}; Tseed: {_INDEX} = int64",
    shape=seeded_shape,
)
register_op(
    "StatelessRandomBinomial",
    "shape: S, seed: Tseed, counts: T, probs: T -> output: dtype",
    f"S: {_INDEX}; Tseed: {_INDEX} = int64; T: {_NUMBER} = float64; dtype: {_NUMBER} = int64",
    shape=seeded_shape,
)


def _gamma_sampler(generator: Philox, outputs: Array, alpha: Array) -> Array:
    return gamma(generator, outputs, alpha.astype(np.float64))


def _poisson_sampler(dtype: DType) -> Sampler:
    np_dtype = dtype.as_numpy_dtype
    highest = float(np.iinfo(np_dtype).max if np_dtype.kind == "i" else np.finfo(np_dtype).max)

    return lambda generator, outputs, rate: poisson(generator, outputs, rate.astype(np.float64), highest)


def _sampled(generator: Philox, sampler: Sampler, parameters: Sequence[Any], samples: int, dtype: DType) -> Array:
    """*samples* numbers of each of the *parameters* (vectors of one length): [samples, parameters]."""
    count = len(parameters[0])
    result = np.empty((count, samples), dtype.as_numpy_dtype)
    flat = result.reshape(-1)
    for outputs in chunks(flat.size):
        flat[outputs] = sampler(generator, outputs, *(values[outputs // samples] for values in parameters))
    return result.T


def _appended(shape: Array, parameter: ArrayOrScalar, dtype: DType) -> tuple[int, ...]:
    sizes = spelled_shape(shape, dtype.itemsize)
    return spelled_shape(np.array([*sizes, *np.shape(parameter)], np.int64), dtype.itemsize)


@register_kernel("RandomGamma", dtypes={"T": _FLOATS})
def random_gamma(construction: OpKernelConstruction) -> Kernel:
    """Numbers of gamma distributions, of the shape that the first input spells for each alpha."""
    state, dtype = node_generator(construction), construction.attr("T")

    def kernel(shape: Array, alpha: ArrayOrScalar) -> ArrayOrScalar:
        sizes = _appended(shape, alpha, dtype)
        samples = math.prod(shape.tolist())
        if not samples:
            return np.empty(sizes, dtype.as_numpy_dtype)
        if not np.size(alpha):
            raise InvalidArgumentError("Input alpha should have non-zero element count, got: 0")
        generator = state.reserve(math.prod(sizes) * BLOCKS_PER_OUTPUT)
        return as_value(_sampled(generator, _gamma_sampler, [np.ravel(alpha)], samples, dtype).reshape(sizes))

    return kernel


@register_kernel("RandomPoisson", dtypes={"dtype": _FLOATS})
@register_kernel("RandomPoissonV2", dtypes={"dtype": _NUMBERS})
def random_poisson(construction: OpKernelConstruction) -> Kernel:
    """Numbers of Poisson distributions, of the shape that the first input spells for each rate."""
    state, dtype = node_generator(construction), construction.attr("dtype")
    sampler = _poisson_sampler(dtype)

    def kernel(shape: Array, rate: Array) -> Array:
        sizes = _appended(shape, rate, dtype)
        samples, count = math.prod(shape.tolist()), math.prod(sizes)
        if not count:
            return np.empty(sizes, dtype.as_numpy_dtype)
        generator = state.reserve(count * BLOCKS_PER_OUTPUT)
        return as_value(_sampled(generator, sampler, [np.ravel(rate)], samples, dtype).reshape(sizes))

    return kernel


def require_ending(sizes: tuple[int, ...], ending: tuple[int, ...]) -> None:
    """InvalidArgumentError unless *sizes* ends with *ending*."""
    if sizes[len(sizes) - len(ending) :] != ending:
        raise InvalidArgumentError(
            f"Shape passed in must end with broadcasted shape: {list(sizes)} does not end with {list(ending)}."
        )


def _of_shape(dtype: DType, sampler: Sampler, generator_of: Callable[..., Philox]) -> Kernel:
    def kernel(shape: Array, *place_and_parameter: ArrayOrScalar) -> ArrayOrScalar:
        *place, parameter = place_and_parameter
        sizes, generator = spelled_shape(shape, dtype.itemsize), generator_of(*place)
        count = math.prod(sizes)
        if not count:
            return np.empty(sizes, dtype.as_numpy_dtype)
        require_ending(sizes, np.shape(parameter))
        samples = count // np.size(parameter)
        return as_value(_sampled(generator, sampler, [np.ravel(parameter)], samples, dtype).reshape(sizes))

    return kernel


@register_kernel("StatelessRandomGammaV2", dtypes={"dtype": _FLOATS})
def stateless_random_gamma(construction: OpKernelConstruction) -> Kernel:
    """Numbers of gamma distributions, by seed."""
    return _of_shape(construction.attr("dtype"), _gamma_sampler, seeded)


@register_kernel("StatelessRandomGammaV3", dtypes={"dtype": _FLOATS})
def stateless_random_gamma_v3(construction: OpKernelConstruction) -> Kernel:
    """Numbers of gamma distributions, by key and counter."""
    return _of_shape(construction.attr("dtype"), _gamma_sampler, generator_of_key)


@register_kernel("StatelessRandomPoisson", dtypes={"dtype": _NUMBERS})
def stateless_random_poisson(construction: OpKernelConstruction) -> Kernel:
    """Numbers of Poisson distributions, by seed."""
    dtype = construction.attr("dtype")
    return _of_shape(dtype, _poisson_sampler(dtype), seeded)


def binomial_sizes(shape: Any, counts: Any, probs: Any, dtype: DType) -> tuple[int, ...]:
    """The sizes that *shape* spells; InvalidArgumentError unless they end with those of the parameters."""
    sizes = spelled_shape(shape, dtype.itemsize)
    try:
        ending = np.broadcast_shapes(np.shape(counts), np.shape(probs))
    except ValueError:
        raise InvalidArgumentError(
            f"counts and probs must have compatible batch dimensions: {list(np.shape(counts))} vs. "
            f"{list(np.shape(probs))}"
        ) from None
    require_ending(sizes, ending)
    return sizes


def binomial_numbers(generator: Philox, sizes: tuple[int, ...], counts: Any, probs: Any, dtype: DType) -> Array:
    """Numbers of binomial distributions, of the shape *sizes*."""
    total = math.prod(sizes)
    if not total:
        return np.empty(sizes, dtype.as_numpy_dtype)
    parameters = [np.ravel(values) for values in np.broadcast_arrays(counts, probs)]
    samples = total // len(parameters[0])
    return as_value(_sampled(generator, binomial, parameters, samples, dtype).reshape(sizes))


@register_kernel("StatelessRandomBinomial", dtypes={"T": _FLOATS, "dtype": _NUMBERS})
def stateless_random_binomial(construction: OpKernelConstruction) -> Kernel:
    """Numbers of binomial distributions, by seed."""
    dtype = construction.attr("dtype")

    def kernel(shape: object, seed: object, counts: object, probs: object) -> Any:
        generator, sizes = seeded(seed), binomial_sizes(shape, counts, probs, dtype)
        return binomial_numbers(generator, sizes, counts, probs, dtype)

    return kernel
