"""Classes drawn by unnormalized log probabilities (``tensorflow/core/kernels/multinomial_op.cc``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.random_distributions import unit_doubles
from asyncexec.process.free_memory import check_array


def draw_classes(logits: Any, num_samples: Any, dtype: NumpyDType, reserve: Callable[[int], Philox]) -> Array:
    """*num_samples* classes for each row; ``reserve(count)`` gives the generator, with that many samples set aside."""
    if logits.ndim != 2:
        raise InvalidArgumentError(f"logits should be a matrix, got shape {list(logits.shape)}")
    if np.ndim(num_samples) != 0:
        raise InvalidArgumentError(f"num_samples should be a scalar, got shape {list(num_samples.shape)}")
    count, (rows, classes) = int(num_samples), logits.shape
    if count < 0:
        raise InvalidArgumentError(f"num_samples should be non-negative, got {count}")
    if classes == 0:
        raise InvalidArgumentError("num_classes should be positive, got 0")
    check_array((rows, count), np.dtype(np.float64))
    if rows * count == 0:
        return np.empty((rows, count), dtype)
    generator = reserve(rows * ((count + 3) // 4 * 4) * 2)
    draws = unit_doubles(generator, rows * count).reshape(rows, count)
    result = np.empty((rows, count), dtype)
    for row, sums in enumerate(_cumulative(logits)):
        result[row] = np.searchsorted(sums, draws[row] * sums[-1], side="right")
    return result


def _cumulative(logits: Array) -> Array:
    """Running sums of the unnormalized probabilities; what is not finite counts nothing."""
    wide = logits.astype(np.float64)
    is_finite = np.isfinite(wide)
    largest = np.max(np.where(is_finite, wide, -np.finfo(np.float64).max), axis=1, keepdims=True)
    return np.cumsum(np.where(is_finite, np.exp(wide - largest), 0.0), axis=1)
