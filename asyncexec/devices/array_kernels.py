"""All kernels on the arrays of a library, for one type of device."""

from __future__ import annotations

from asyncexec.devices.activation_kernels import register_activations
from asyncexec.devices.elementwise_kernels import register_elementwise
from asyncexec.devices.joining_kernels import register_joining
from asyncexec.devices.kernel_table import KernelTable, LibraryOn
from asyncexec.devices.reduction_kernels import register_reductions
from asyncexec.devices.structure_kernels import register_structure
from asyncexec.devices.torch_windows import register_windows
from asyncexec.framework.kernel_registry import KernelRegistry
from asyncexec.framework.kernel_registry import registry as kernel_registry


def register_array_kernels(library_on: LibraryOn, device_type: str, registry: KernelRegistry = kernel_registry) -> None:
    """Register what runs on the arrays of a library as the kernels for *device_type*.

    *library_on* gives the library as it is set up for a device of that type; for ``""``, for any of them.
    """
    table = KernelTable(library_on, device_type, registry)
    register_structure(table)
    register_elementwise(table)
    register_activations(table)
    register_reductions(table)
    register_joining(table)
    if library_on("").name == "torch":
        register_windows(table)
