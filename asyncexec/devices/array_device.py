"""Devices whose tensors are the arrays of an array-API library.

A kernel on such a device returns when its work is queued; whoever takes a value out of the device's memory waits for
it (device_events.py): a library's own ``synchronize`` would block the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Final, TypeAlias

import anyio.to_thread
import numpy as np

from asyncexec.devices.array_kernels import register_array_kernels
from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.device_events import device_events
from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import DeviceOptions
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.kernel import as_value
from asyncexec.framework.kernel_registry import KernelRegistry
from asyncexec.framework.kernel_registry import registry as kernel_registry

# Device index of a type -> the library, set up for that device.
MakeLibrary: TypeAlias = Callable[[int], ArrayLibrary]

_LARGE_COPY: Final = 2**20  # bytes: a copy that takes longer than a thread to and fro


class ArrayDeviceContext:
    """How values get into the memory of an array device and out of it, and how its work is waited for."""

    __slots__ = ("library",)

    def __init__(self, library: ArrayLibrary) -> None:
        self.library: ArrayLibrary = library

    async def copy_in(self, value: object) -> Any:
        """*value*, a numpy array or scalar, as an array of the library; where it can be without a copy.

        Raises:
            InvalidArgumentError: the library has no such dtype.
        """
        array = np.asarray(value)
        if array.nbytes < _LARGE_COPY or self.library.is_in_host_memory:
            return self.library.from_host(array)
        return await anyio.to_thread.run_sync(self.library.from_host, array)

    async def copy_out(self, value: object) -> Any:
        """*value*, an array of the library, as a numpy array; as a numpy scalar when it is 0-d."""
        copy = self.library.start_copy_out(value)
        await device_events.wait(copy.is_done)
        return as_value(copy.take())

    async def sync(self) -> None:
        """Return once all is done that was given to the device before."""
        await device_events.wait(self.library.mark())


def make_array_device(options: DeviceOptions, device_type: str, index: int, library: ArrayLibrary) -> Device:
    """Device *index* of a type, its tensors the arrays of *library*."""
    description = f"{library.name} {library.device}" if library.device is not None else library.name
    return Device(
        options.attributes(device_type, index, description),
        options.num_workers.get(device_type),
        library.name,
        ArrayDeviceContext(library),
        shares_host_memory=False,
    )


class ArrayDeviceType:
    """The devices of one type, all on one array library.

    *make_library* is called, and the kernels registered, when the first device is asked for.
    """

    def __init__(self, device_type: str, make_library: MakeLibrary, kernels: KernelRegistry = kernel_registry) -> None:
        self._device_type = device_type
        self._make_library = make_library
        self._kernels = kernels
        self._libraries: dict[int, ArrayLibrary] = {}
        self._lock = RLock()

    def make_devices(self, options: DeviceOptions) -> list[Device]:
        """As many devices as the options' ``device_count`` says: none unless it names the type.

        Raises:
            MissingExtraError: the library is not installed.
            InvalidArgumentError: it has fewer devices.
        """
        count = options.device_count.get(self._device_type, 0)
        return [make_array_device(options, self._device_type, i, self._library(i)) for i in range(count)]

    def library_on(self, device_name: str) -> ArrayLibrary:
        """The library as it is set up for the device of that name."""
        return self._library(parse_device_name(device_name).index or 0)

    def _library(self, index: int) -> ArrayLibrary:
        with self._lock:
            library = self._libraries.get(index)
            if library is None:
                library = self._make_library(index)
                is_first = not self._libraries
                self._libraries[index] = library
                if is_first:
                    register_array_kernels(self.library_on, self._device_type, self._kernels)
        return library
