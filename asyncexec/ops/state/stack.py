"""Stacks, which carry values of a loop to the loop of its gradient: StackV2, StackPushV2, StackPopV2, StackCloseV2.

Rules from ``tensorflow/core/ops/data_flow_ops.cc`` and ``core/kernels/stack.cc``.  A handle is the stack itself, in the
reference form of the ops (Stack, StackPush, ...) as in the resource form: a stack is its step's own, whatever its name,
and goes with the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from threading import Lock
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import InferenceContext, no_outputs
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

_numbers: Final = count()


class Stack(ProcessBound):
    """Last in, first out; *max_size* elements at most, or any number when it is negative.

    What changes it takes its lock, because kernels may run on several worker threads.
    """

    __slots__ = ("_lock", "dtype", "elements", "is_closed", "max_size", "name")

    def __init__(self, name: str, dtype: DType, max_size: int) -> None:
        self.name: str = f"{name}_{next(_numbers)}"
        self.dtype: DType = dtype
        self.max_size: int = max_size
        self.is_closed: bool = False
        self.elements: list[Any] = []
        self._lock = Lock()

    def push(self, element: object) -> None:
        """Put *element* on top."""
        with self._lock:
            self._require_open()
            if 0 <= self.max_size <= len(self.elements):
                raise InvalidArgumentError(f"Stack[{self.name}] overflowed its max_size ({self.max_size})")
            self.elements.append(element)

    def pop(self) -> Any:
        """Take the top element."""
        with self._lock:
            self._require_open()
            if not self.elements:
                raise InvalidArgumentError(f"Stack[{self.name}] is empty when calling Pop().")
            return self.elements.pop()

    def close(self) -> None:
        """Let go of all elements."""
        with self._lock:
            self.is_closed = True
            self.elements = []

    def read(self) -> Any:
        """The handle as a string tensor, which is what is seen of it from outside."""
        return np.array([b"_stacks", self.name.encode()], object)

    def _require_open(self) -> None:
        if self.is_closed:
            raise InvalidArgumentError(f"Stack[{self.name}] has already been closed.")


def _handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [TensorShape([2])]


def _push_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.input(1)]


def _ref_handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([2])]


_ELEMENT = "elem_type: type; stack_name: string = ''"
register_op("Stack", "-> handle: Ref(string)", _ELEMENT, shape=_ref_handle_shape, is_stateful=True)
register_op("StackV2", "max_size: int32 -> handle: resource", _ELEMENT, shape=_handle_shape, is_stateful=True)
for _handle, _version in (("Ref(string)", ""), ("resource", "V2")):
    _is_new = _version == "V2"
    register_op(
        "StackPush" + _version,
        f"handle: {_handle}, elem: T -> output: T",
        "T: type; swap_memory: bool = False",
        shape=_push_shape,
        is_stateful=_is_new,
    )
    register_op("StackPop" + _version, f"handle: {_handle} -> elem: elem_type", "elem_type: type", is_stateful=_is_new)
    register_op("StackClose" + _version, f"handle: {_handle} ->", shape=no_outputs, is_stateful=_is_new)


@register_kernel("Stack", "StackV2")
def _create(construction: OpKernelConstruction) -> Kernel:
    name = construction.attr("stack_name").decode("utf-8", "replace") or construction.name
    dtype = construction.attr("elem_type")

    def create(max_size: Any = -1) -> Stack:
        if np.ndim(max_size):
            raise InvalidArgumentError(f"Stack size must be a scalar, not of shape {TensorShape(np.shape(max_size))}")
        return Stack(name, dtype, int(max_size))

    return create


@register_kernel("StackPush", "StackPushV2")
def _push(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("T")

    def push(handle: object, element: object) -> object:
        stack = require_kind(handle, Stack)
        if stack.dtype is not dtype:
            raise InvalidArgumentError(f"Must have type {stack.dtype.name} but got {dtype.name}")
        stack.push(element)
        return element

    return push


def _pop(handle: object) -> object:
    return require_kind(handle, Stack).pop()


def _close(handle: object) -> tuple[()]:
    require_kind(handle, Stack).close()
    return ()


register_function("StackPop", "StackPopV2", function=_pop)
register_function("StackClose", "StackCloseV2", function=_close)
