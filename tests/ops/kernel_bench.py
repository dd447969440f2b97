"""Makes kernels of single ops that share one session's resources, for tests of stateful ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from tests.ops.op_runner import decode_attr

CPU: Final = "/job:localhost/replica:0/task:0/device:CPU:0"


class KernelBench:
    """A session's resources, and kernels made of op name and attrs."""

    def __init__(self) -> None:
        self.resource_mgr = ResourceMgr()

    def kernel(self, op: str, *, name: str = "", device: str = CPU, **attrs: Any) -> Kernel:
        """The kernel of one node; attrs as in an OpCase."""
        op_def = op_registry.lookup(op).op_def
        complete = op_def.complete_attrs({key: decode_attr(op_def.attrs[key].kind, v) for key, v in attrs.items()})
        construction = OpKernelConstruction(
            name or op.lower(),
            op_def,
            complete,
            op_def.input_dtypes(complete),
            op_def.output_dtypes(complete),
            self.resource_mgr,
            device=device,
        )
        return kernel_registry.lookup(op, "CPU", complete).factory(construction)

    def run(self, op: str, *inputs: Any, name: str = "", device: str = CPU, **attrs: Any) -> Any:
        """What one node gives; a coroutine for an async op."""
        return self.kernel(op, name=name, device=device, **attrs)(*inputs)


def infer(op: str, *shapes: Sequence[int | None] | None, values: Sequence[Any] = (), **attrs: Any) -> list[Any]:
    """The inferred output shapes as lists, None for an unknown rank; *values* of inputs where known."""
    registration = op_registry.lookup(op)
    op_def = registration.op_def
    complete = op_def.complete_attrs({key: decode_attr(op_def.attrs[key].kind, v) for key, v in attrs.items()})
    known = dict(enumerate(values))
    context = InferenceContext(op_def, complete, [TensorShape(shape) for shape in shapes], (), known.get)
    result = registration.shape_function(context)
    assert len(result) == len(op_def.output_dtypes(complete))
    return [None if shape.dims is None else list(shape.dims) for shape in result]
