"""Devices over array libraries: torch, on the CPU (type ``TORCH``) or on CUDA (``GPU``), and JAX (``JAX``).

A session has them when its ``device_count`` names their type: what is needed for one is imported then, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Final

from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import DEFAULT_PRIORITY, DeviceOptions, register_device_factory

GPU_PRIORITY: Final = 210  # above the CPU's, as in TensorFlow: what has a kernel there goes there

# type -> the module and the ArrayDeviceType in it, and how much it is preferred
_TYPES: Final = {
    "TORCH": ("torch_device", "CPU_DEVICES", DEFAULT_PRIORITY),
    "GPU": ("torch_device", "CUDA_DEVICES", GPU_PRIORITY),
    "JAX": ("jax_device", "JAX_DEVICES", DEFAULT_PRIORITY),
}


def _create(device_type: str, options: DeviceOptions) -> Sequence[Device]:
    if not options.device_count.get(device_type):
        return ()
    module, name, _ = _TYPES[device_type]
    devices: Sequence[Device] = getattr(import_module(f"{__name__}.{module}"), name).make_devices(options)
    return devices


for _type, (_, _, _priority) in _TYPES.items():
    register_device_factory(_type, partial(_create, _type), _priority)
