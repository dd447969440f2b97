"""Emit: gives what it gets, and tells the caller of the run.  No op of TensorFlow's."""

from __future__ import annotations

from typing import Any

from asyncexec.framework.events import emit_value
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged

register_op("Emit", "x: T -> output: T", "T: type", shape=unchanged, is_stateful=True)


@register_kernel("Emit", kind=KernelKind.ASYNC)
def _emit(_: OpKernelConstruction) -> Kernel:
    async def run(value: object) -> Any:
        await emit_value(value)
        return value

    return run
