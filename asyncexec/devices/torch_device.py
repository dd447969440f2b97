"""torch as an array library: its CPU, where all is done when a call returns, and CUDA, where work is queued.

A CUDA device works off one queue, torch's default stream, whichever thread calls; an event at its end tells when all
before it is done.  Copies into host memory go to pinned memory, or they would wait in the calling thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.devices.array_device import ArrayDeviceType
from asyncexec.devices.array_library import ArrayLibrary, IsDone, PendingCopy, compat_namespace, standard_dtypes
from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.ownership import read_only
from asyncexec.framework.types import DType

EXTRA: Final = "torch"
# torch has arrays of these, and next to no functions of them.
_ONLY_HELD: Final = frozenset({types.uint16, types.uint32, types.uint64})
_BFLOAT16_AS: Final = "int16"  # which DLPack carries, of the same size


@dataclass(frozen=True, slots=True, eq=False)
class TorchLibrary(ArrayLibrary):
    """torch on the CPU."""

    def imported(self, array: Array) -> Any:
        """A tensor over the memory of *array*."""
        if array.dtype.name == types.bfloat16.name:
            return self.xp.from_dlpack(array.view(_BFLOAT16_AS)).view(self.xp.bfloat16)
        return ArrayLibrary.imported(self, array)

    def placed(self, array: object) -> Any:
        return array

    def start_copy_out(self, array: object) -> PendingCopy:
        return PendingCopy(lambda: read_only(self.exported(array)))

    def exported(self, array: Any) -> Array:
        """A numpy array over the memory of *array*, which is the host's."""
        if array.is_conj() or array.is_neg():  # bits that DLPack has no place for
            array = array.resolve_conj().resolve_neg()
        if array.dtype == self.xp.bfloat16:
            return np.from_dlpack(array.view(self.xp.int16)).view(types.bfloat16.as_numpy_dtype)
        return np.from_dlpack(array)


@dataclass(frozen=True, slots=True, eq=False)
class CudaLibrary(TorchLibrary):
    """torch on a CUDA device."""

    @property
    def is_in_host_memory(self) -> bool:
        return False

    def placed(self, array: Any) -> Any:
        """A copy of *array* on the device; *array* may be changed as soon as this returns."""
        return array.pin_memory().to(self.device, non_blocking=True)

    def start_copy_out(self, array: Any) -> PendingCopy:
        host = self.xp.empty(array.shape, dtype=array.dtype, pin_memory=True)
        host.copy_(array, non_blocking=True)
        return PendingCopy(lambda: self.exported(host), self.mark())

    def mark(self) -> IsDone:
        cuda = self.xp.cuda
        event = cuda.Event()
        event.record(cuda.current_stream(self.device))
        is_done: IsDone = event.query
        return is_done


def torch_cpu_library(index: int = 0) -> ArrayLibrary:
    """torch on the CPU; MissingExtraError when it is not installed.  All devices of the type are alike."""
    xp = compat_namespace("torch", extra=EXTRA)
    return _set_up(TorchLibrary, xp, xp.device("cpu"))


def cuda_library(index: int) -> ArrayLibrary:
    """torch on a CUDA device.

    Raises:
        MissingExtraError: torch is not installed.
        InvalidArgumentError: the machine, or torch as it was built, has no such device.
    """
    xp = compat_namespace("torch", extra=EXTRA)
    count = xp.cuda.device_count() if xp.cuda.is_available() else 0
    if index >= count:
        version = require("torch", extra=EXTRA).__version__
        raise InvalidArgumentError(
            f"there is no GPU {index} here; torch {version} finds {count}",
            hint='the same kernels run on the CPU with device_count={"TORCH": 1}',
        )
    return _set_up(CudaLibrary, xp, xp.device("cuda", index))


def _set_up(kind: type[TorchLibrary], xp: Any, device: Any) -> ArrayLibrary:
    return kind("torch", xp, device, torch_dtypes(xp), held_dtypes(xp), torch_functions(), xp.Tensor.view)


def torch_dtypes(xp: Any) -> dict[DType, Any]:
    """What torch computes with."""
    dtypes = {dtype: own for dtype, own in standard_dtypes(xp).items() if dtype not in _ONLY_HELD}
    return {**dtypes, types.float16: xp.float16, types.bfloat16: xp.bfloat16}


def held_dtypes(xp: object) -> frozenset[DType]:
    """What torch has arrays of, and no more."""
    return frozenset(dtype for dtype in _ONLY_HELD if hasattr(xp, dtype.name))


def torch_functions() -> dict[str, Any]:
    """Functions of torch's own that do in one pass over the data what takes the standard several."""
    torch = require("torch", extra=EXTRA)
    return {
        "Relu": torch.relu,
        "Rsqrt": torch.rsqrt,
        "Sigmoid": torch.sigmoid,
        "Softmax": lambda x: torch.softmax(x, -1),
        "LogSoftmax": lambda x: torch.log_softmax(x, -1),
        "Elu": torch.nn.functional.elu,
        "Selu": torch.selu,
        "Relu6": torch.nn.functional.relu6,
    }


CPU_DEVICES: Final = ArrayDeviceType("TORCH", torch_cpu_library)
CUDA_DEVICES: Final = ArrayDeviceType("GPU", cuda_library)
