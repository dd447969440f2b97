"""Arrays that a node gets, and that others may see as well: other nodes, who fed or fetches them, what keeps them.

A kernel of ours never writes to its inputs.  A user's function might, so it gets a read-only view of every array that
it may not be alone in having.  It is alone in having what another node made for it, and for nobody else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.framework.kernel import CheckedKernel, Kernel
from asyncexec.graph.node import Node

# Functions that never give an array that they got, or a view of it.
_MAKE_NEW: Final = frozenset(
    map(
        id,
        (
            *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
            *(operator.pow, operator.matmul, operator.neg, operator.abs, operator.invert),
            *(operator.and_, operator.or_, operator.xor),
            *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
        ),
    )
)


def makes_new(kernel: object) -> bool:
    """Whether all arrays that *kernel* gives are surely new ones, which it does not keep."""
    function = kernel.function if isinstance(kernel, CheckedKernel) else kernel
    return isinstance(function, np.ufunc) or id(function) in _MAKE_NEW


def protected(kernel: Kernel, slots: Sequence[int]) -> Kernel:
    """*kernel*, which gets read-only views of the arrays in *slots*."""
    array_type = np.ndarray
    if slots == [0]:

        def call_with_first(first: object, *others: object) -> object:
            if type(first) is array_type:
                first = first.view()
                first.setflags(write=False)
            return kernel(first, *others)

        return call_with_first

    def call(*inputs: object) -> Any:
        values = list(inputs)
        for slot in slots:
            value = values[slot]
            if type(value) is array_type:
                view = values[slot] = value.view()
                view.setflags(write=False)
        return kernel(*values)

    return call


def watched(kernel: Kernel, node: Node, slots: Sequence[int] | None = None, *, is_async: bool = False) -> Kernel:
    """*kernel* of *node*, and an error if it changes an array in *slots* (None: in any), by whatever means."""

    def call(*inputs: object) -> Any:
        before = _snapshots(inputs, slots)
        outputs = kernel(*inputs)
        _check(before, node)
        return outputs

    async def start(*inputs: object) -> object:
        before = _snapshots(inputs, slots)
        result = await kernel(*inputs)
        _check(before, node)
        return result

    return start if is_async else call


class _Snapshot:
    """An array as it was."""

    def __init__(self, slot: int, array: Array) -> None:
        self.slot = slot
        self._array = array
        self._layout = _layout(array)
        self._content = array.copy()

    def is_same(self) -> bool:
        """Whether the array is still like that."""
        array, content = self._array, self._content
        if _layout(array) != self._layout:
            return False
        if array.dtype.kind == "O":
            return all(map(operator.is_, array.flat, content.flat))
        return array.tobytes() == content.tobytes()  # a NaN is unlike itself


def _layout(array: Array) -> tuple[object, ...]:
    return array.shape, array.strides, array.dtype


def _snapshots(inputs: Sequence[Any], slots: Sequence[int] | None) -> list[_Snapshot]:
    watched_slots = range(len(inputs)) if slots is None else slots
    return [_Snapshot(slot, inputs[slot]) for slot in watched_slots if isinstance(inputs[slot], np.ndarray)]


def _check(before: Sequence[_Snapshot], node: Node) -> None:
    for snapshot in before:
        if not snapshot.is_same():
            raise _changed(node, snapshot.slot)


def _changed(node: Node, slot: int) -> OpError:
    source = node.inputs[slot].name
    message = f"input {slot} ({source!r}), which others may see, was changed while {node.op} ran"
    make: Callable[..., OpError] = InvalidArgumentError if is_user_function(node) else InternalError
    return make(message, node=node, hint="an op changes a copy of its input: x = x.copy()")


def is_user_function(node: Node) -> bool:
    """Whether the kernel of *node* is a user's function."""
    kernel = node.properties.registration.kernel
    return kernel is not None and kernel.is_user_function
