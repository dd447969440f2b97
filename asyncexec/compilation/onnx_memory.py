"""ClusterMemory: whether a step has room for the arrays of a cluster that ONNX Runtime runs.

ONNX Runtime asks nobody before it takes memory.  So the outputs of the members are reckoned from the shapes of the
inputs, as if one member ran after the other and freed what nothing takes any more, with its outputs in another layout
beside it.  Shapes that are computed (of a Shape, Pack and so on) are computed here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.errors import ResourceExhaustedError
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.node import Node
from asyncexec.passes.onnx_cluster import MemberCall, OnnxCluster

BoundCall: TypeAlias = tuple[MemberCall, Kernel, bool]  # with whether the kernel returns a tuple

_TELL_SHAPES: Final = frozenset({"Shape", "Onnx>Shape"})
_MOST_ELEMENTS: Final = 64  # of values that are computed here: axes and sizes
_MOST_SHAPES: Final = 64  # combinations of input shapes that are remembered


class _Known(NamedTuple):
    """What is known of a tensor: its sizes, and perhaps its value."""

    dims: tuple[int, ...]
    value: Any = None


class ClusterMemory:
    """The memory that *cluster*, of which *calls* are those of our own kernels, takes of *budget*."""

    __slots__ = ("_budget", "_calls", "_peaks", "_slots")

    def __init__(self, cluster: OnnxCluster, calls: Sequence[BoundCall], budget: MemoryBudget) -> None:
        self._calls = calls
        self._slots = [None if value is None else _Known(np.shape(value), value) for value in cluster.slots]
        self._budget = budget
        self._peaks: dict[tuple[tuple[int, ...], ...], int | None] = {}

    def has_room(self, inputs: Sequence[object]) -> bool:
        """Whether the running step has room for a call with *inputs*; no, where it cannot be told how much it takes."""
        memory = self._budget.running_step()
        if memory is None:
            return True
        num_bytes = self.num_bytes(inputs)
        if num_bytes is None:
            return False
        try:
            memory.check(num_bytes)
        except ResourceExhaustedError:
            return False
        return True

    def num_bytes(self, inputs: Sequence[Any]) -> int | None:
        """The bytes that a call with *inputs* takes at its peak; None where sizes depend on values."""
        shapes = tuple(np.shape(value) for value in inputs)
        if shapes not in self._peaks:
            if len(self._peaks) >= _MOST_SHAPES:
                self._peaks.clear()
            try:
                self._peaks[shapes] = self._peak(shapes)
            except Exception:  # our own kernels tell better what is wrong
                self._peaks[shapes] = None
        return self._peaks[shapes]

    def _peak(self, shapes: Sequence[tuple[int, ...]]) -> int | None:
        slots = [*map(_Known, shapes), *self._slots[len(shapes) :]]
        sizes: dict[int, int] = {}
        taken = peak = 0
        for call, kernel, returns_tuple in self._calls:
            given = [each for slot in call.takes if (each := slots[slot]) is not None]
            outputs = _outputs(call.node, kernel, given, returns_tuple=returns_tuple)
            if outputs is None:
                return None
            made = 0
            for index, (known, dtype) in enumerate(zip(outputs, call.node.properties.output_dtypes, strict=True)):
                slots[call.gives + index] = known
                size = int(np.prod(known.dims, dtype=object)) * dtype.as_numpy_dtype.itemsize
                sizes[call.gives + index] = size
                made += size
            taken += made
            peak = max(peak, taken + made)
            taken -= sum(sizes.pop(slot, 0) for slot in call.releases)
        return peak


def _outputs(node: Node, kernel: Kernel, given: Sequence[_Known], *, returns_tuple: bool) -> list[_Known] | None:
    """What is known of the outputs of *node*; None where their sizes are not."""
    if node.op in _TELL_SHAPES:
        return [_known(kernel(np.broadcast_to(np.float32(0), given[0].dims)), returns_tuple=returns_tuple)[0]]
    shapes = [TensorShape(known.dims) for known in given]
    values = [known.value for known in given]
    properties = node.properties
    if all(value is not None and np.size(value) <= _MOST_ELEMENTS for value in values):
        return _known(kernel(*values), returns_tuple=returns_tuple)
    context = InferenceContext(node.op_def, node.attrs, shapes, properties.input_dtypes, lambda index: values[index])
    inferred = properties.registration.shape_function(context)
    if not all(shape.is_fully_defined for shape in inferred):
        return None
    return [_Known(tuple(dim or 0 for dim in shape.dims or ())) for shape in inferred]


def _known(result: Any, *, returns_tuple: bool) -> list[_Known]:
    return [_Known(np.shape(value), value) for value in (result if returns_tuple else (result,))]
