"""Accumulators of gradients: gradients are added up until somebody takes their mean (or sum).

The rules are TensorFlow's (``core/kernels/conditional_accumulator_base.cc`` and the two accumulators beside it).  A
gradient of an older step than the accumulator's is dropped.  Who takes waits until enough gradients are in; those who
wait are served in order.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.ownership import freeze
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

# Rows of a tensor: their indices along axis 0, and their values.
Rows: TypeAlias = tuple[Any, Any]
UNKNOWN_SIZE: Final = -1


class Accumulator(ProcessBound, ABC):
    """What both kinds share: counting, steps, who waits.  All of it happens in one event loop.

    Attributes:
        name: its name, for messages.
        dtype: what gradients are made of.
        shape: the shape they have, as far as it was declared.
        is_mean: whether the mean of the gradients is taken, else their sum.
        count: how many gradients are in.
        global_step: gradients of an older step are dropped.
    """

    def __init__(self, name: str, dtype: DType, shape: TensorShape, *, is_mean: bool) -> None:
        self.name: str = name
        self.dtype: DType = dtype
        self.shape: TensorShape = shape
        self.is_mean: bool = is_mean
        self.count: int = 0
        self.global_step: int = 0
        self._waiting: deque[tuple[int, asyncio.Future[object]]] = deque()

    def require_dtype(self, dtype: DType) -> None:
        """InvalidArgumentError unless it accumulates gradients of *dtype*."""
        if dtype is not self.dtype:
            raise InvalidArgumentError(
                f"accumulator {self.name!r} is of dtype {self.dtype.name}, but the op is for {dtype.name}"
            )

    def apply(self, local_step: int, gradient: object) -> None:
        """Add *gradient*, or drop it where it is stale; InvalidArgumentError when its shape does not fit."""
        if local_step >= self.global_step:
            self._check(gradient)
            self._add(gradient)
            self.count += 1
            self._serve()

    async def take(self, num_required: int) -> Any:
        """The mean or sum of the gradients, once *num_required* are in; none are in afterwards."""
        if num_required <= 0:
            raise InvalidArgumentError(f"Argument num_required must be positive, but was {num_required}")
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((num_required, waiter))
        self._serve()
        try:
            return await waiter
        finally:
            self._serve()  # where this one was cancelled, the next may need less

    def _serve(self) -> None:
        while self._waiting:
            num_required, waiter = self._waiting[0]
            is_gone = waiter.cancelled() or waiter.get_loop().is_closed()
            if not is_gone and self.count < num_required:
                return
            self._waiting.popleft()
            if not is_gone:
                result = self._result()
                self.global_step += 1
                self.count = 0
                waiter.set_result(result)

    @abstractmethod
    def _check(self, gradient: Any) -> None:
        """InvalidArgumentError unless *gradient* fits the declared shape and the gradients that are in."""

    @abstractmethod
    def _add(self, gradient: Any) -> None:
        """Add *gradient* to those that are in, or let it be the first."""

    @abstractmethod
    def _result(self) -> object:
        """What the op gives that takes the gradients."""


class DenseAccumulator(Accumulator):
    """Accumulates whole tensors."""

    _total: Any = None

    def _check(self, gradient: ArrayOrScalar) -> None:
        shape = np.shape(gradient)
        if self.count and np.shape(self._total) != shape:
            raise InvalidArgumentError(
                f"Shape mismatch: expected {TensorShape(np.shape(self._total))}, got {TensorShape(shape)}"
            )
        if not self.shape.accepts(shape):
            raise InvalidArgumentError(f"Shape mismatch: expected {self.shape}, got {TensorShape(shape)}")

    def _add(self, gradient: object) -> None:
        self._total = self._total + gradient if self.count else gradient

    def _result(self) -> Array:
        total, self._total = self._total, None
        return freeze(total / total.dtype.type(self.count)) if self.is_mean else total


class SparseAccumulator(Accumulator):
    """Accumulates rows of tensors; the mean of a row is over the gradients that have it."""

    _indices: Any = None
    _values: Any = None
    _counts: Any = None

    def check_shape(self, shape: Array) -> None:
        """InvalidArgumentError unless *shape*, that of a whole gradient, fits the declared one."""
        if self.shape.rank is None:
            return
        if self.shape.rank > len(shape):
            raise InvalidArgumentError(
                f"Shape mismatch: expected shape rank at least {self.shape.rank}, got {len(shape)}"
            )
        for axis, size in enumerate(self.shape.dims or ()):
            if size is not None and size != shape[axis]:
                raise InvalidArgumentError(f"Shape mismatch: expected shape dim {axis} to be {size}, got {shape[axis]}")

    def _check(self, gradient: Rows) -> None:
        indices, values = gradient
        declared = self.shape.dims or ()
        if declared and declared[0] is not None:
            beyond = np.flatnonzero(indices >= declared[0])
            if beyond.size:
                raise InvalidArgumentError(
                    f"Shape mismatch: index of slice {beyond[0]} exceeded limits of shape; "
                    f"index is {indices[beyond[0]]} exceeded {declared[0]}"
                )
        wanted = np.shape(self._values) if self.count else declared
        if values.ndim != len(wanted) if self.count else values.ndim < len(wanted):
            at_least = "" if self.count else " at least"
            raise InvalidArgumentError(
                f"Shape mismatch: expected values rank{at_least} {len(wanted)}, got {values.ndim}"
            )
        for axis, size in enumerate(wanted):
            if axis and size is not None and size != values.shape[axis]:
                raise InvalidArgumentError(
                    f"Shape mismatch: expected values dim {axis} to be {size}, got {values.shape[axis]}"
                )

    def _add(self, gradient: Rows) -> None:
        indices, values = gradient
        if not self.count:
            self._indices, self._values, self._counts = indices, values, np.ones(len(indices), np.int64)
            return
        from_total, from_gradient = _merged(self._indices, indices)
        has_total, has_gradient = from_total >= 0, from_gradient >= 0
        total = np.zeros((len(from_total), *values.shape[1:]), values.dtype)
        counts, rows = np.zeros(len(from_total), np.int64), np.empty(len(from_total), np.int64)
        for has, place, row, value, count in (
            (has_total, from_total, self._indices, self._values, self._counts),
            (has_gradient, from_gradient, indices, values, np.ones(len(indices), np.int64)),
        ):
            total[has] += value[place[has]]
            counts[has] += count[place[has]]
            rows[has] = row[place[has]]
        self._indices, self._values, self._counts = rows, total, counts

    def _result(self) -> tuple[Array, Array, Array]:
        indices, values, counts = self._indices, self._values, self._counts
        self._indices = self._values = self._counts = None
        if self.is_mean:
            values = values / counts.astype(values.dtype).reshape(-1, *(1,) * (values.ndim - 1))
        first = (self.shape.dims or (None,))[0]
        shape = np.array([UNKNOWN_SIZE if first is None else first, *values.shape[1:]], np.int64)
        return indices, freeze(values), shape


def _merged(a: Any, b: Any) -> tuple[Any, Any]:
    """Two lists of indices as one: where in *a* and in *b* each stands, -1 where it does not.

    Both are walked in step, as if they were in order: of lists that are not, equal ones may stay apart.
    """
    if (np.diff(a) > 0).all() and (np.diff(b) > 0).all():
        union = np.union1d(a, b)
        return _places(union, a), _places(union, b)
    pairs, i, j = [], 0, 0
    first, second = a.tolist(), b.tolist()
    while i < len(first) and j < len(second):
        takes_a, takes_b = first[i] <= second[j], second[j] <= first[i]
        pairs.append((i if takes_a else -1, j if takes_b else -1))
        i, j = i + takes_a, j + takes_b
    pairs += [(place, -1) for place in range(i, len(first))] + [(-1, place) for place in range(j, len(second))]
    places = np.array(pairs, np.int64).reshape(-1, 2)
    return places[:, 0], places[:, 1]


def _places(union: Array, indices: Array) -> Any:
    places = np.full(len(union), -1, np.int64)
    places[np.searchsorted(union, indices)] = np.arange(len(indices))
    return places
