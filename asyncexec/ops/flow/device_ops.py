"""Ops that tell what runs them: DeviceIndex, IsTensorFloat32Enabled; and FakeQueue, a queue by reference."""

from __future__ import annotations

import numpy as np

from asyncexec.framework.kernel import Kernel, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.state.queue_state import Queue

register_op("DeviceIndex", "-> index: int32", "device_names: list(string)", is_stateful=True, shape=scalars)
register_op("IsTensorFloat32Enabled", "-> enabled: bool", is_stateful=True, shape=scalars)
register_op(
    "FakeQueue",
    "resource: resource -> handle: Ref(string)",
    is_stateful=True,
    shape=lambda _: [TensorShape([2])],
)


@register_kernel("DeviceIndex")
def device_index(construction: OpKernelConstruction) -> Kernel:
    """Where the type of the device is in a list; behind its end where it is not there."""
    names = [name.decode("utf-8", "replace").upper() for name in construction.attr("device_names")]
    kind = construction.device.rpartition("device:")[2].partition(":")[0].upper() or "CPU"
    index = np.int32(names.index(kind) if kind in names else len(names))
    return lambda: index


# TensorFlow's setting for GPUs, where it has not been changed.
register_function("IsTensorFloat32Enabled", function=lambda: np.True_)


def _fake_queue(handle: object) -> object:
    return require_kind(handle, Queue)  # type: ignore[type-abstract]


register_function("FakeQueue", function=_fake_queue)
