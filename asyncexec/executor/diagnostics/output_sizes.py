"""What a trace keeps of the outputs of an execution: shapes and bytes, and never a value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

import numpy as np

from asyncexec.framework.kernel import DEAD
from asyncexec.framework.step_stats import AllocationDescription, AllocatorMemoryUsed, NodeOutput, TensorDescription
from asyncexec.framework.tensor_proto import encode_shape
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.graph.node import Node, Tensor

# Of each output the shape of an array, the length of a string, or what is here below; its dtype tells the rest.
Size: TypeAlias = "tuple[int, ...] | int"
Sizes: TypeAlias = Sequence[Size]

_OBJECT: Final = -1  # of a Python object, which has no bytes that are known
_NONE: Final = -2  # of a dead output
# To ask numpy's scalars would take longer than all else that is recorded.
SCALAR: Final = ((),)
SCALAR_TYPES: Final = frozenset(np.sctypeDict.values())
# TensorFlow names an allocator here.  What kernels allocate besides their outputs is not known.
_ALLOCATOR: Final = "outputs"


def sizes_of(node: Node, outputs: object, is_tuple: bool) -> Sizes:
    """The sizes of *outputs*, as the kernel of *node* gives them: a tuple of them, or the only one.

    They may not be what the op promises: whoever takes them looks at that.
    """
    if type(outputs) is np.ndarray:
        return (outputs.shape,)
    if isinstance(outputs, np.generic):
        return SCALAR
    if not is_tuple:
        return (_size(node.outputs[0], outputs),)
    if isinstance(outputs, (tuple, list)):
        return [_size(tensor, value) for tensor, value in zip(node.outputs, outputs, strict=False)]
    return ()


def sizes_of_constant(node: Node) -> Sizes:
    """The sizes of what *node*, a constant, gives, by what is known of its shape."""
    dims = node.output_shapes[0].dims
    return () if dims is None or None in dims else (tuple(size or 0 for size in dims),)


def _size(tensor: Tensor, value: object) -> Size:
    if isinstance(value, np.ndarray):
        shape: tuple[int, ...] = value.shape
        return shape
    if isinstance(value, np.generic):
        return ()
    if type(value) is bytes:
        return len(value)
    if value is DEAD:
        return _NONE
    found = None if tensor.dtype.is_opaque else getattr(value, "shape", None)
    return tuple(found) if isinstance(found, tuple) else _OBJECT  # an array of another library, or any object


def _num_bytes(dtype: DType, size: Size) -> int | None:
    """How many bytes that is; None where nobody knows."""
    if isinstance(size, int):
        return size if size >= 0 else None
    return None if dtype.is_opaque else math.prod(size) * dtype.as_numpy_dtype.itemsize


class OutputRecords:
    """Makes the records of sizes; those that are alike are made once."""

    __slots__ = ("_memory", "_output")

    def __init__(self) -> None:
        self._output = cache(_node_output)
        self._memory = cache(_memory_used)

    def of(self, node: Node, sizes: Sizes) -> tuple[list[NodeOutput], list[AllocatorMemoryUsed]]:
        """The records of the live outputs of *node*, and that of the bytes of all of them, if there are any."""
        found = [
            self._output(slot, tensor.dtype.base_dtype, size)
            for slot, (tensor, size) in enumerate(zip(node.outputs, sizes, strict=False))
            if size != _NONE
        ]
        allocated = (output.tensor_description.allocation_description for output in found)
        total = sum(each.allocated_bytes for each in allocated if each is not None)
        return found, [self._memory(total)] if total else []


def _node_output(slot: int, dtype: DType, size: Size) -> NodeOutput:
    num_bytes, allocated = _num_bytes(dtype, size), None
    if num_bytes is not None:
        allocated = AllocationDescription(
            requested_bytes=num_bytes, allocated_bytes=num_bytes, allocator_name=_ALLOCATOR
        )
    shape = encode_shape(TensorShape([] if isinstance(size, int) else size))
    described = TensorDescription(dtype=dtype.enum, shape=shape, allocation_description=allocated)
    return NodeOutput(slot=slot, tensor_description=described)


def _memory_used(num_bytes: int) -> AllocatorMemoryUsed:
    return AllocatorMemoryUsed(
        allocator_name=_ALLOCATOR, total_bytes=num_bytes, peak_bytes=num_bytes, live_bytes=num_bytes
    )
