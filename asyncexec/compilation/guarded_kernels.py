"""Kernels of a session with a memory limit: before one runs, its outputs are reckoned from the shapes of its inputs.

What the shape function of an op tells is exact.  Where it cannot tell (the size depends on values, or is of strings),
``output_bounds.py`` may have a bound.  All other outputs are counted when they have been made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.compilation.output_bounds import BOUNDS, makes_text, text_bytes
from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import CheckedKernel, Kernel
from asyncexec.framework.memory_budget import LEAST_COUNTED, MemoryBudget, StepMemory
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.node import Node

# What these give has been there before.
_GIVES_STORED: Final = frozenset({"Const", "GetSessionTensor", "ReadVariableOp", "Variable", "VariableV2", "_Arg"})
_MOST_SHAPES: Final = 64  # combinations of input shapes that a node remembers the size of its outputs for


class GuardedKernel:
    """*kernel* of *node*, a plain function, called if its outputs have room in the memory of the step."""

    __slots__ = ("_budget", "_kernel", "_reckoner", "_stores")

    is_watched: Final = True

    def __init__(self, kernel: Kernel, node: Node, budget: MemoryBudget) -> None:
        self._kernel = kernel
        self._budget = budget
        self._reckoner = Reckoner(node)
        self._stores = node.op in _GIVES_STORED

    def __call__(self, *inputs: object) -> object:
        memory = None if self._stores else self._budget.running_step()
        if memory is None:
            return self._kernel(*inputs)
        memory.check(self._reckoner.num_bytes(inputs))
        outputs = memory.call(self._kernel, inputs)
        note_outputs(memory, outputs, inputs, has_text=self._reckoner.makes_text)
        return outputs


def guarded(kernel: Kernel, node: Node, budget: MemoryBudget) -> Kernel:
    """*kernel*, a plain function, within *budget*."""
    if isinstance(kernel, CheckedKernel):
        return CheckedKernel(GuardedKernel(kernel.function, node, budget), kernel.check)
    return GuardedKernel(kernel, node, budget)


def guarded_async(kernel: Kernel, node: Node, budget: MemoryBudget) -> Kernel:
    """*kernel*, a coroutine function, whose outputs are counted when they are there."""

    async def call(*inputs: object) -> Any:
        outputs = await kernel(*inputs)
        memory = budget.running_step()
        if memory is not None:
            note_outputs(memory, outputs, inputs, has_text=False)
        return outputs

    return call


class Reckoner:
    """How many bytes the outputs of *node* take for given inputs."""

    __slots__ = ("_bound", "_dtypes", "_known", "_node", "makes_text")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._bound: Callable[[Node, Sequence[Any]], int] | None = BOUNDS.get(node.op)
        self._dtypes = node.properties.output_dtypes
        self._known: dict[tuple[tuple[int, ...], ...], int] = {}
        self.makes_text: bool = makes_text(node)

    def num_bytes(self, inputs: Sequence[object]) -> int:
        """At most so many, as far as that can be told; inputs that the kernel is going to refuse count nothing."""
        try:
            return self._from_shapes(inputs) if self._bound is None else self._bound(self._node, inputs)
        except Exception:  # the kernel tells better what is wrong with them
            return 0

    def _from_shapes(self, inputs: Sequence[object]) -> int:
        shapes = tuple([np.shape(value) if isinstance(value, (np.ndarray, np.generic)) else () for value in inputs])
        known = self._known.get(shapes)
        if known is not None:
            return known
        context = InferenceContext(
            self._node.op_def,
            self._node.attrs,
            [
                TensorShape(None) if dtype.is_opaque else TensorShape(shape)
                for dtype, shape in zip(self._node.properties.input_dtypes, shapes, strict=True)
            ],
            self._node.properties.input_dtypes,
            lambda index: inputs[index],
        )
        outputs = self._node.properties.registration.shape_function(context)
        total = sum(
            (shape.num_elements or 0) * (dtype.as_numpy_dtype.itemsize if not dtype.is_opaque else 0)
            for shape, dtype in zip(outputs, self._dtypes, strict=False)
        )
        if not context.values_were_read and len(self._known) < _MOST_SHAPES:
            self._known[shapes] = total
        return total


def note_outputs(memory: StepMemory, outputs: Any, inputs: Sequence[object], *, has_text: bool) -> None:
    """Count the arrays of *outputs* that are not, or in, those of *inputs*.

    Raises:
        ResourceExhaustedError: they could not be foreseen, and the step takes more now than it may.
    """
    num_bytes = 0
    for value in outputs if type(outputs) in (tuple, list) else (outputs,):
        if isinstance(value, np.ndarray) and value.nbytes >= LEAST_COUNTED:
            owner = _owner(value)
            if all(owner is not _owner(given) for given in inputs if isinstance(given, np.ndarray)):
                made = owner.nbytes + (text_bytes(value) if has_text else 0)
                memory.count(owner, made)
                num_bytes += made
    if num_bytes:
        memory.check_made(num_bytes)


def _owner(array: Array) -> Array:
    """The array that has the memory of *array*."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return array
