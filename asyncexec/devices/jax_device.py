"""JAX as an array library: calls return when their work is queued, and every array knows whether it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.devices.array_device import ArrayDeviceType
from asyncexec.devices.array_library import (
    STANDARD_DTYPES,
    ArrayLibrary,
    IsDone,
    PendingCopy,
    native_copy,
)
from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require

EXTRA: Final = "jax"


@dataclass(frozen=True, slots=True, eq=False)
class JaxLibrary(ArrayLibrary):
    """JAX on one of its devices."""

    @property
    def is_in_host_memory(self) -> bool:
        return False

    def from_host(self, array: Array) -> Any:
        """A copy of *array*: JAX may take over the memory it is given, and never writes to it, but others may."""
        self.check_dtype(array)
        return require("jax", extra=EXTRA).device_put(native_copy(array), self.device)

    def start_copy_out(self, array: Any) -> PendingCopy:
        array.copy_to_host_async()
        return PendingCopy(lambda: np.asarray(array), array.is_ready)

    def mark(self) -> IsDone:
        arrays = require("jax", extra=EXTRA).live_arrays()
        return lambda: all(array.is_deleted() or array.is_ready() for array in arrays)


def jax_library(index: int) -> ArrayLibrary:
    """JAX on its device *index*; its 64-bit types are switched on, for the whole process.

    Raises:
        MissingExtraError: JAX is not installed.
        InvalidArgumentError: it has no such device.
    """
    jax = require("jax", extra=EXTRA)
    jax.config.update("jax_enable_x64", True)
    devices = jax.devices()
    if index >= len(devices):
        raise InvalidArgumentError(f"there is no JAX device {index} here; there are {len(devices)}")
    xp = require("jax.numpy", extra=EXTRA)
    dtypes = {dtype: getattr(xp, dtype.name) for dtype in (*STANDARD_DTYPES, types.float16, types.bfloat16)}
    return JaxLibrary("jax", xp, devices[index], {dtype: np.dtype(own) for dtype, own in dtypes.items()})


JAX_DEVICES: Final = ArrayDeviceType("JAX", jax_library)
