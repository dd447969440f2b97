"""How the kernels of an array library are registered, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.memory_types import ALWAYS_ON_HOST
from asyncexec.framework import types
from asyncexec.framework.arrays import NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration, KernelRegistry
from asyncexec.framework.types import DType
from asyncexec.ops.math.elementwise import check_broadcast

# Full name of a device, or "" -> the library, set up for that device.
LibraryOn: TypeAlias = Callable[[str], ArrayLibrary]
# The factory of a kernel on a library's arrays.
Make: TypeAlias = Callable[[ArrayLibrary, OpKernelConstruction], Kernel | AsyncKernel]

HALVES: Final = frozenset({types.float16, types.bfloat16})
_MOST_BYTES: Final = 2**40


class KernelTable:
    """The kernels of one library for one type of device, as they are registered."""

    def __init__(self, library_on: LibraryOn, device_type: str, registry: KernelRegistry) -> None:
        self._library_on = library_on
        self._dtypes = frozenset(library_on("").dtypes)
        self._held_dtypes = self._dtypes | library_on("").held_dtypes | ALWAYS_ON_HOST
        self._queues_work = not library_on("").is_in_host_memory
        self._device_type = device_type
        self._registry = registry

    def add(
        self,
        ops: str,
        make: Make,
        dtypes: Collection[DType] | None = None,
        *,
        attrs: str = "T",
        kind: KernelKind = KernelKind.CHEAP,
        looks_at_values: bool = False,
        only_holds: bool = False,
    ) -> None:
        """Register *make* for *ops*, where their type *attrs* are among *dtypes* (None: any) and the library's own.

        A kernel that *only_holds* values takes also what the library can only hold, and what stays in host memory.
        A kernel that *looks_at_values* waits for a device that queues its work: it must not do so in the event loop.
        """
        library_on = self._library_on
        own = self._held_dtypes if only_holds else self._dtypes
        allowed = own if dtypes is None else own & frozenset(dtypes)
        registration = KernelRegistration(
            lambda op: make(library_on(op.device), op),
            kind,
            dict.fromkeys(attrs.split(), allowed),
            is_expensive=True if looks_at_values and self._queues_work else None,
        )
        if allowed:
            for op in ops.split():
                self._registry.register(op, self._device_type, registration)


def explained(function: Kernel, check: Callable[..., None] = check_broadcast) -> Kernel:
    """*function*; where the library raises over its inputs, *check* raises what TensorFlow would say of them."""

    def kernel(*inputs: object) -> Any:
        try:
            return function(*inputs)
        except Exception:
            check(*inputs)
            raise

    return kernel


def in_float32(library: ArrayLibrary, op: OpKernelConstruction, function: Kernel) -> Kernel:
    """*function*, computed in float32 and rounded once where the node's type is a half-size float."""
    dtype = op.attr("T")
    if dtype not in HALVES:
        return function
    xp, own = library.xp, library.dtype(dtype)

    def kernel(*inputs: object) -> Any:
        return xp.astype(function(*(xp.astype(x, xp.float32) for x in inputs)), own)

    return kernel


def check_size(shape: Sequence[int], dtype: NumpyDType) -> None:
    """ResourceExhaustedError when an array of that shape is more than any device has memory for."""
    if any(size < 0 for size in shape):
        raise InvalidArgumentError(f"a shape cannot have negative sizes: {list(shape)}")
    if math.prod(shape) * dtype.itemsize > _MOST_BYTES:
        raise ResourceExhaustedError(f"OOM when allocating tensor with shape {list(shape)} and type {dtype.name}")


def shape_list(array: Any) -> list[int]:
    """The shape of *array* as a message shows it."""
    return [int(size) for size in array.shape]


def size_of(shape: Sequence[int]) -> int:
    """The number of elements of an array of that *shape*."""
    size = 1
    for dim in shape:
        size *= dim
    return size


def check_same_shape(first: Any, *others: Any) -> None:
    """InvalidArgumentError unless all are of one shape."""
    for other in others:
        if tuple(first.shape) != tuple(other.shape):
            raise InvalidArgumentError(f"Inputs must have the same shape: {shape_list(first)} vs. {shape_list(other)}")


def broadcast_size(*arrays: Any) -> int:
    """The number of elements of what *arrays* broadcast to; ValueError when they do not."""
    return size_of(np.broadcast_shapes(*(tuple(array.shape) for array in arrays)))
