"""Random numbers.

Names and arguments are those of ``tf.random`` (``tensorflow/python/ops/random_ops.py``, ``stateless_random_ops.py``,
``tensorflow/python/framework/random_seed.py``).  Without *seed* each session draws other numbers.  With a seed each
session draws the same series of numbers, one after the other, run after run.  The ``stateless_...`` functions always
give the same numbers for the same *seed*, two integers.

Raises:
    InvalidArgumentError: the op does not draw this dtype; or, when the graph runs, a size is negative, or *minval* is
        not below *maxval*.
"""

from __future__ import annotations

from typing import Any, Final

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.array_functions import size_vector
from asyncexec.frontend.calls import DTypeLike, TensorLike, composite, tensor_op
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.math_functions import add, multiply, subtract
from asyncexec.graph.node import Tensor

DEFAULT_GRAPH_SEED: Final = 87654321  # what TensorFlow pairs with the seed of an op in a graph that has none


def op_seeds(seed: int | None) -> dict[str, Any]:
    """The attrs that make an op random by *seed*; without one by nothing that can be known."""
    return {"seed": 0, "seed2": 0} if seed is None else {"seed": DEFAULT_GRAPH_SEED, "seed2": seed}


def random_uniform(
    shape: TensorLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = types.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of *shape*, uniformly distributed in [*minval*, *maxval*); *maxval* is 1 for floats by default.

    >>> dice = ax.random_uniform([100], 1, 7, ax.int32)
    >>> show(ax.reduce_all((dice >= 1) & (dice <= 6)))
    True
    """
    wanted = as_dtype(dtype)
    with composite(name, "random_uniform", [shape, minval, maxval]) as scope:
        low, high = _bounds(minval, maxval, wanted)
        if wanted.is_integer:
            return tensor_op("RandomUniformInt", [size_vector(shape), low, high], scope, **op_seeds(seed))
        unit = tensor_op("RandomUniform", [size_vector(shape)], dtype=wanted, **op_seeds(seed))
        return add(multiply(unit, subtract(high, low)), low, scope)


def _bounds(minval: TensorLike, maxval: TensorLike | None, dtype: types.DType) -> tuple[Tensor, Tensor]:
    if maxval is None:
        if dtype.is_integer:
            raise InvalidArgumentError(f"random numbers of {dtype.name} need maxval")
        maxval = 1
    return as_tensor(minval, dtype), as_tensor(maxval, dtype)


def random_normal(
    shape: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = types.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed floats of *shape*.

    >>> show(ax.shape(ax.random_normal([2, 3], seed=7)))
    [2 3]
    """
    return _scaled("RandomStandardNormal", "random_normal", [shape], mean, stddev, dtype, name, op_seeds(seed))


def truncated_normal(
    shape: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = types.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Normally distributed floats of *shape*, all within two standard deviations of the mean.

    >>> show(ax.reduce_all(ax.abs(ax.truncated_normal([100])) <= 2.0))
    True
    """
    return _scaled("TruncatedNormal", "truncated_normal", [shape], mean, stddev, dtype, name, op_seeds(seed))


def _scaled(
    op: str,
    default_name: str,
    inputs: list[TensorLike],
    mean: TensorLike,
    stddev: TensorLike,
    dtype: DTypeLike,
    name: str | None,
    seeds: dict[str, Any],
) -> Tensor:
    wanted = as_dtype(dtype)
    with composite(name, default_name, [*inputs, mean, stddev]) as scope:
        unit = tensor_op(op, [size_vector(inputs[0]), *inputs[1:]], dtype=wanted, **seeds)
        return add(multiply(unit, as_tensor(stddev, wanted)), as_tensor(mean, wanted), scope)


def random_shuffle(value: TensorLike, seed: int | None = None, name: str | None = None) -> Tensor:
    """*value* with its rows in random order.

    >>> show(ax.sort(ax.random_shuffle([30, 10, 20])))
    [10 20 30]
    """
    return tensor_op("RandomShuffle", [value], name, **op_seeds(seed))


def stateless_random_uniform(
    shape: TensorLike,
    seed: TensorLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = types.float32,
    name: str | None = None,
) -> Tensor:
    """Uniformly distributed numbers of *shape*, determined by *seed* alone.

    >>> a, b = (ax.stateless_random_uniform([3], seed=[1, 2]) for _ in "ab")
    >>> show(ax.equal(a, b))
    [ True  True  True]
    """
    wanted = as_dtype(dtype)
    with composite(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as scope:
        low, high = _bounds(minval, maxval, wanted)
        if wanted.is_integer:
            return tensor_op("StatelessRandomUniformInt", [size_vector(shape), seed, low, high], scope)
        unit = tensor_op("StatelessRandomUniform", [size_vector(shape), seed], dtype=wanted)
        return add(multiply(unit, subtract(high, low)), low, scope)


def stateless_random_normal(
    shape: TensorLike,
    seed: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = types.float32,
    name: str | None = None,
) -> Tensor:
    """Normally distributed floats of *shape*, determined by *seed* alone.

    >>> a, b = (ax.stateless_random_normal([3], seed=[1, 2]) for _ in "ab")
    >>> show(ax.equal(a, b))
    [ True  True  True]
    """
    return _scaled("StatelessRandomNormal", "stateless_random_normal", [shape, seed], mean, stddev, dtype, name, {})


def stateless_truncated_normal(
    shape: TensorLike,
    seed: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = types.float32,
    name: str | None = None,
) -> Tensor:
    """Floats of *shape* as of truncated_normal, determined by *seed* alone.

    >>> a, b = (ax.stateless_truncated_normal([3], seed=[1, 2]) for _ in "ab")
    >>> show(ax.equal(a, b))
    [ True  True  True]
    """
    return _scaled(
        "StatelessTruncatedNormal", "stateless_truncated_normal", [shape, seed], mean, stddev, dtype, name, {}
    )
