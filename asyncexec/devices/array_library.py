"""An array library as a device sees it: its namespace, its dtypes, and the ways into its memory and out.

The namespace is that of the array-API standard, through ``array-api-compat`` where the library's own differs.  Values
cross by DLPack where the memory is the host's, without a copy; libraries with memory or queues of their own say how
they copy, and how one asks whether work has been done, without ever waiting for it in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.ownership import read_only
from asyncexec.framework.types import DType, as_dtype

# Whether work that was given to a device is done.  Asks, and returns at once.
IsDone: TypeAlias = Callable[[], bool]

STANDARD_DTYPES: Final = (
    types.bool,
    types.int8,
    types.int16,
    types.int32,
    types.int64,
    types.uint8,
    types.uint16,
    types.uint32,
    types.uint64,
    types.float32,
    types.float64,
    types.complex64,
    types.complex128,
)


def done_at_once() -> bool:
    """Of a device whose work is done when its call returns."""
    return True


@dataclass(frozen=True, slots=True)
class PendingCopy:
    """A copy into host memory that has begun: ``take()`` gives it once ``is_done()``.

    It is read-only where it is the memory of the library's array itself.
    """

    take: Callable[[], Array]
    is_done: IsDone = done_at_once


@dataclass(frozen=True, slots=True, eq=False)
class ArrayLibrary:
    """An array library whose arrays are in host memory and whose work is done when a call returns.

    Attributes:
        name: as ``array_namespace`` of a device has it.
        xp: the namespace.
        device: which of the library's devices, as its creation functions take it; None: the one it takes by itself.
        dtypes: what its kernels compute with, and what they are in the namespace.
        held_dtypes: further ones that it can hold but not compute with.
        functions: by op, elementwise functions that the library has and the standard has not, or has them slower.
        view: gives the bits of an array as another dtype of that size; None: the library cannot.
    """

    name: str
    xp: Any
    device: Any = None
    dtypes: Mapping[DType, Any] = field(default_factory=dict)
    held_dtypes: frozenset[DType] = frozenset()
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    view: Callable[[Any, Any], Any] | None = None

    @property
    def is_in_host_memory(self) -> bool:
        """Whether its arrays are in host memory and there when a call returns: to copy one costs a header mostly."""
        return True

    def dtype(self, dtype: DType) -> Any:
        """What *dtype* is in the namespace."""
        return self.dtypes[dtype]

    def check_dtype(self, array: Array) -> None:
        """InvalidArgumentError when the library has no such arrays as *array*."""
        dtype = as_dtype(array.dtype)
        if dtype not in self.dtypes and dtype not in self.held_dtypes:
            raise InvalidArgumentError(
                f"a tensor of {dtype.name} has no form in the memory of a {self.name} device",
                hint="keep what gives it and what takes it on one CPU device, or put a Cast before it",
            )

    def from_host(self, array: Array) -> Any:
        """*array* as one of the library's; InvalidArgumentError when it has no such dtype."""
        self.check_dtype(array)
        return self.placed(self.imported(exportable(array)))

    def imported(self, array: Array) -> Any:
        """*array*, whose layout is exportable, as one of the library's in host memory."""
        try:
            return self.xp.from_dlpack(array)
        except (BufferError, TypeError, ValueError, RuntimeError):  # a dtype that this numpy cannot export
            return self.xp.asarray(array.copy())

    def placed(self, array: Any) -> Any:
        """*array* of the library on this device."""
        return array if self.device is None else array.to_device(self.device)

    def start_copy_out(self, array: Any) -> PendingCopy:
        """Begin to copy *array* into host memory."""
        return PendingCopy(lambda: read_only(np.from_dlpack(array)))  # it may be a constant

    def mark(self) -> IsDone:
        """Tells whether all is done that was given to the device before this call."""
        return done_at_once


def exportable(array: Array) -> Array:
    """*array*, or a copy of it that DLPack can carry.

    A negative stride must not get there: some libraries end the process over it.
    """
    if array.dtype.isnative and array.flags.aligned and min(array.strides, default=0) >= 0:
        return array
    return native_copy(array)


def native_copy(array: Array) -> Array:
    """*array* once more, in the machine's byte order, one element after the other."""
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def compat_namespace(library: str, *, extra: str) -> Any:
    """The array-API namespace of *library*, such as ``torch``; MissingExtraError when it is not installed."""
    require(library, extra=extra)
    return require(f"array_api_compat.{library}", extra=extra)


def standard_dtypes(xp: object) -> dict[DType, Any]:
    """The dtypes of the standard that *xp* has."""
    return {dtype: getattr(xp, dtype.name) for dtype in STANDARD_DTYPES if hasattr(xp, dtype.name)}
