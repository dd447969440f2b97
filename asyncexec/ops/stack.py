"""Stacks, which carry values of a loop to the loop of its gradient: StackV2, StackPushV2, StackPopV2, StackCloseV2.

Rules from ``tensorflow/core/ops/data_flow_ops.cc`` and ``core/kernels/stack.cc``.  A handle is the stack itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType


class Stack:
    """Last in, first out; *max_size* elements at most, or any number when it is negative."""

    __slots__ = ("dtype", "elements", "is_closed", "max_size", "name")

    def __init__(self, name: str, dtype: DType, max_size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.max_size = max_size
        self.is_closed = False
        self.elements: list[Any] = []

    def push(self, element: Any) -> None:
        """Put *element* on top."""
        self._require_open()
        if 0 <= self.max_size <= len(self.elements):
            raise InvalidArgumentError(f"Stack[{self.name}] overflowed its max_size ({self.max_size})")
        self.elements.append(element)

    def pop(self) -> Any:
        """Take the top element."""
        self._require_open()
        if not self.elements:
            raise InvalidArgumentError(f"Stack[{self.name}] is empty when calling Pop().")
        return self.elements.pop()

    def close(self) -> None:
        """Let go of all elements."""
        self.is_closed = True
        self.elements = []

    def _require_open(self) -> None:
        if self.is_closed:
            raise InvalidArgumentError(f"Stack[{self.name}] has already been closed.")


def _handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [TensorShape([2])]


def _push_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.input(1)]


register_op(
    "StackV2",
    "max_size: int32 -> handle: resource",
    "elem_type: type; stack_name: string = ''",
    shape=_handle_shape,
    is_stateful=True,
)
register_op(
    "StackPushV2",
    "handle: resource, elem: T -> output: T",
    "T: type; swap_memory: bool = False",
    shape=_push_shape,
    is_stateful=True,
)
register_op("StackPopV2", "handle: resource -> elem: elem_type", "elem_type: type", is_stateful=True)
register_op("StackCloseV2", "handle: resource ->", shape=no_outputs, is_stateful=True)


@register_kernel("StackV2")
def _create(construction: OpKernelConstruction) -> Kernel:
    name = construction.attr("stack_name").decode("utf-8", "replace") or construction.name
    dtype = construction.attr("elem_type")

    def create(max_size: Any) -> Stack:
        if np.ndim(max_size):
            raise InvalidArgumentError(f"Stack size must be a scalar, not of shape {TensorShape(np.shape(max_size))}")
        return Stack(name, dtype, int(max_size))

    return create


@register_kernel("StackPushV2")
def _push(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("T")

    def push(stack: Stack, element: Any) -> Any:
        if stack.dtype is not dtype:
            raise InvalidArgumentError(f"Must have type {stack.dtype.name} but got {dtype.name}")
        stack.push(element)
        return element

    return push


def _pop(stack: Stack) -> Any:
    return stack.pop()


def _close(stack: Stack) -> tuple[()]:
    stack.close()
    return ()


register_function("StackPopV2", function=_pop)
register_function("StackCloseV2", function=_close)
