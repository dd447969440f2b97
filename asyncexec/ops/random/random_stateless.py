"""Random ops without state: the same seed gives the same numbers (``tensorflow/core/ops/stateless_random_ops*.cc``).

The first kind takes two seeds; V2 takes the Philox key and counter that ``StatelessRandomGetKeyCounter`` makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import bfloat16, float16, float32, float64, int32, int64, uint32, uint64
from asyncexec.ops.random.philox import Philox, from_stateless_seed
from asyncexec.ops.random.random_categorical import draw_classes
from asyncexec.ops.random.random_distributions import (
    FLOATS,
    Sampler,
    full_range,
    normal,
    truncated_normal,
    uniform,
    uniform_int,
)
from asyncexec.ops.random.random_shape import check_seed, from_first_input, multinomial_shape, spelled_shape

_PHILOX: Final = np.int32(1)
_AUTO_SELECT: Final = 3
_FLOAT_ATTRS: Final = "dtype: {float16, bfloat16, float32, float64} = float32"
_INTS: Final = (int32, int64)


def seeded_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1).merge_with([2])
    return from_first_input(c)


def _seeded_int_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(2)
    c.scalar(3)
    return seeded_shape(c)


def keyed_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1).merge_with([1])
    c.vector(2)
    c.scalar(3)
    return from_first_input(c)


def _keyed_int_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(4)
    c.scalar(5)
    return keyed_shape(c)


def _key_counter_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0).merge_with([2])
    return [TensorShape([1]), TensorShape([2]), SCALAR][: c.num_outputs]


def _multinomial_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(2).merge_with([2])
    return multinomial_shape(c)


_DISTRIBUTIONS: Final = {
    "RandomUniform": uniform,
    "RandomNormal": normal,
    "TruncatedNormal": truncated_normal,
}

for _name in _DISTRIBUTIONS:
    register_op(
        f"Stateless{_name}",
        "shape: T, seed: Tseed -> output: dtype",
        f"{_FLOAT_ATTRS}; T: {{int32, int64}} = int32; Tseed: {{int32, int64}} = int64",
        shape=seeded_shape,
    )
    register_op(
        f"Stateless{_name}V2",
        "shape: Tshape, key: uint64, counter: uint64, alg: int32 -> output: dtype",
        f"{_FLOAT_ATTRS}; Tshape: {{int32, int64}} = int32",
        shape=keyed_shape,
    )
register_op(
    "StatelessRandomUniformInt",
    "shape: T, seed: Tseed, minval: dtype, maxval: dtype -> output: dtype",
    "dtype: {int32, int64}; T: {int32, int64}; Tseed: {int32, int64} = int64",
    shape=_seeded_int_shape,
)
register_op(
    "StatelessRandomUniformIntV2",
    "shape: Tshape, key: uint64, counter: uint64, alg: int32, minval: dtype, maxval: dtype -> output: dtype",
    "dtype: {int32, int64, uint32, uint64}; Tshape: {int32, int64} = int32",
    shape=_keyed_int_shape,
)
register_op(
    "StatelessRandomUniformFullInt",
    "shape: T, seed: Tseed -> output: dtype",
    "dtype: {int32, int64, uint32, uint64} = uint64; T: {int32, int64} = int32;"
    " Tseed: {int32, int64, uint32, uint64} = int64",
    shape=seeded_shape,
)
register_op(
    "StatelessRandomUniformFullIntV2",
    "shape: Tshape, key: uint64, counter: uint64, alg: int32 -> output: dtype",
    "dtype: {int32, int64, uint32, uint64} = uint64; Tshape: {int32, int64} = int32",
    shape=keyed_shape,
)
register_op(
    "StatelessRandomGetKeyCounter",
    "seed: Tseed -> key: uint64, counter: uint64",
    "Tseed: {int32, int64} = int64",
    shape=_key_counter_shape,
)
register_op(
    "StatelessRandomGetKeyCounterAlg",
    "seed: Tseed -> key: uint64, counter: uint64, alg: int32",
    "Tseed: {int32, int64} = int64",
    shape=_key_counter_shape,
)
register_op("StatelessRandomGetAlg", "-> alg: int32", is_stateful=True, shape=lambda _: [SCALAR])
register_op(
    "StatelessMultinomial",
    "logits: T, num_samples: int32, seed: Tseed -> output: output_dtype",
    "T: realnumbertype; Tseed: {int32, int64} = int64; output_dtype: {int32, int64} = int64",
    shape=_multinomial_shape,
)


def generator_of_key(key: Any, counter: Any, alg: Any) -> Philox:
    """The generator of the V2 inputs; only Philox has a CPU kernel."""
    if np.ndim(alg) != 0:
        raise InvalidArgumentError(f"alg must be a scalar, not of shape {list(alg.shape)}")
    if alg not in (_PHILOX, _AUTO_SELECT):
        raise InvalidArgumentError(f"Unsupported algorithm id: {alg}")
    if np.shape(key) != (1,) or np.ndim(counter) != 1 or len(counter) < 2:
        raise InvalidArgumentError(
            f"key must be of shape [1] and counter of [2] or more, not {list(np.shape(key))}, {list(np.shape(counter))}"
        )
    return Philox(int(key[0]), int(counter[0]) | int(counter[1]) << 64)


def seeded(seed: object) -> Philox:
    check_seed(seed)
    return from_stateless_seed(seed)


def _sampling(sampler: Sampler, itemsize: int, generator_of: Callable[..., Philox]) -> Kernel:
    def kernel(shape: object, *place: object) -> Any:
        generator = generator_of(*place)
        sizes = spelled_shape(shape, itemsize)
        return as_value(sampler(generator, int(np.prod(sizes, dtype=np.int64))).reshape(sizes))

    return kernel


def _int_sampling(dtype: NumpyDType, generator_of: Callable[..., Philox]) -> Kernel:
    def kernel(shape: Array, *place_and_range: Any) -> Array:
        *place, low, high = place_and_range
        generator = generator_of(*place)
        sizes = spelled_shape(shape, dtype.itemsize)
        count = int(np.prod(sizes, dtype=np.int64))
        if count == 0:
            return np.empty(sizes, dtype)
        check_range(low, high)
        return as_value(uniform_int(dtype, int(low), int(high))(generator, count).reshape(sizes))

    return kernel


def check_range(low: Any, high: Any) -> None:
    """InvalidArgumentError unless both are scalars and low < high."""
    for name, bound in (("minval", low), ("maxval", high)):
        if np.ndim(bound) != 0:
            raise InvalidArgumentError(f"{name} must be 0-D, got shape {list(bound.shape)}")
    if not low < high:
        raise InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")


def _register(name: str, distribution: Callable[..., Sampler]) -> None:
    for op, generator_of in ((f"Stateless{name}", seeded), (f"Stateless{name}V2", generator_of_key)):

        @register_kernel(op, dtypes={"dtype": FLOATS})
        def factory(c: OpKernelConstruction, generator_of: Callable[..., Philox] = generator_of) -> Kernel:
            return _sampling(distribution(c.attr("dtype")), c.attr("dtype").itemsize, generator_of)


for _name, _distribution in _DISTRIBUTIONS.items():
    _register(_name, _distribution)


@register_kernel("StatelessRandomUniformInt", dtypes={"dtype": _INTS})
def stateless_random_uniform_int(construction: OpKernelConstruction) -> Kernel:
    """Integers of a range, by seed."""
    return _int_sampling(construction.np_dtype("dtype"), seeded)


@register_kernel("StatelessRandomUniformIntV2", dtypes={"dtype": _INTS})
def stateless_random_uniform_int_v2(construction: OpKernelConstruction) -> Kernel:
    """Integers of a range, by key and counter."""
    return _int_sampling(construction.np_dtype("dtype"), generator_of_key)


@register_kernel("StatelessRandomUniformFullInt", dtypes={"dtype": (*_INTS, uint32, uint64), "Tseed": _INTS})
def stateless_random_uniform_full_int(construction: OpKernelConstruction) -> Kernel:
    """Integers of the whole range, by seed."""
    dtype = construction.np_dtype("dtype")
    return _sampling(full_range(dtype), dtype.itemsize, seeded)


@register_kernel("StatelessRandomUniformFullIntV2", dtypes={"dtype": (*_INTS, uint32, uint64)})
def stateless_random_uniform_full_int_v2(construction: OpKernelConstruction) -> Kernel:
    """Integers of the whole range, by key and counter."""
    dtype = construction.np_dtype("dtype")
    return _sampling(full_range(dtype), dtype.itemsize, generator_of_key)


def _key_counter(seed: object) -> tuple[Array, Array]:
    generator = seeded(seed)
    counter = [generator.counter & 0xFFFFFFFFFFFFFFFF, generator.counter >> 64]
    return np.array([generator.key], np.uint64), np.array(counter, np.uint64)


register_function("StatelessRandomGetKeyCounter", function=_key_counter)
register_function("StatelessRandomGetKeyCounterAlg", function=lambda seed: (*_key_counter(seed), _PHILOX))
register_function("StatelessRandomGetAlg", function=lambda: _PHILOX)


@register_kernel("StatelessMultinomial", dtypes={"T": (bfloat16, float16, float32, float64)})
def stateless_multinomial(construction: OpKernelConstruction) -> Kernel:
    """Classes drawn by unnormalized log probabilities."""
    dtype = construction.np_dtype("output_dtype")

    def kernel(logits: object, num_samples: object, seed: object) -> Any:
        generator = seeded(seed)
        return draw_classes(logits, num_samples, dtype, lambda _: generator)

    return kernel
