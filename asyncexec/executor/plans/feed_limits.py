"""FeedLimits: how large the feeds of a step may be, for its kernels to be cheap in the event loop.

What a convolution costs, or a cluster that a library has, is decided by the size of its inputs.  A plan calls it inline
where that is known before the step begins: its inputs are feeds, or of shapes that the graph tells.  Larger feeds than
it has had in the general executor go there, and are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.executor.diagnostics.kernel_stats import KernelStats, size_of
from asyncexec.framework.element_rule import Array
from asyncexec.graph.node import Node, Tensor

_MOST: Final = 2**40  # elements: no array has so many


class _Limit(NamedTuple):
    """Of one kernel.

    Attributes:
        node, stats, item_id: the kernel's; *stats* know how large its inputs have been.
        inputs: each the position of the feed that it is, or an array of its shape.
    """

    node: Node
    stats: KernelStats
    item_id: int
    inputs: tuple[int | Array, ...]


class FeedLimits:
    """The limits of *feeds*, which are tensors, in the order of their values."""

    def __init__(self, feeds: Sequence[Tensor]) -> None:
        self._positions = {(tensor.op, tensor.index): position for position, tensor in enumerate(feeds)}
        self._limits: list[_Limit] = []

    def __bool__(self) -> bool:
        return bool(self._limits)

    def add(self, node: Node, stats: KernelStats, item_id: int) -> bool:
        """Limit the feeds that *node* takes to what *stats* know of it; False where they do not decide alone."""
        inputs: list[int | Array] = []
        for tensor in node.inputs:
            position = self._positions.get((tensor.op, tensor.index))
            shape = tensor.shape
            dtype = tensor.dtype.as_numpy_dtype
            if tensor.dtype.is_opaque or tensor.dtype.is_ref or dtype.hasobject:
                return False
            if position is not None:
                inputs.append(position)
            elif shape.dims is None or shape.num_elements is None or shape.num_elements > _MOST:
                return False
            else:
                inputs.append(np.broadcast_to(np.empty((), dtype), [dim or 0 for dim in shape.dims]))
        self._limits.append(_Limit(node, stats, item_id, tuple(inputs)))
        return True

    def admit(self, feeds: Sequence[Any]) -> bool:
        """Whether all kernels have been quick with inputs as large as *feeds* make them."""
        for node, stats, item_id, inputs in self._limits:
            values = [feeds[each] if type(each) is int else each for each in inputs]
            if not all(isinstance(value, (np.ndarray, np.generic)) for value in values):
                return False
            if not stats.has_been_quick(item_id, size_of(node, values)):
                return False
        return True
