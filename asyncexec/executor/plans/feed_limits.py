"""FeedLimits: how large the feeds of a step may be, for its kernels to be cheap in the event loop.

What a convolution costs, or a cluster that a library has, is decided by the size of its inputs.  A plan calls it inline
where that is known before the step begins: its inputs are feeds, or of shapes that the graph tells.  Larger feeds than
it has had in the general executor go there, and are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncexec.executor.diagnostics.kernel_stats import KernelStats
from asyncexec.graph.node import Node, Tensor


class _Limit(NamedTuple):
    """Of one kernel.

    Attributes:
        stats, item_id: know how large its inputs have been.
        positions: of the feeds among them; num_bytes: of the others.
    """

    stats: KernelStats
    item_id: int
    positions: tuple[int, ...]
    num_bytes: int


class FeedLimits:
    """The limits of *feeds*, which are tensors, in the order of their values."""

    def __init__(self, feeds: Sequence[Tensor]) -> None:
        self._positions = {(tensor.op, tensor.index): position for position, tensor in enumerate(feeds)}
        self._limits: list[_Limit] = []

    def __bool__(self) -> bool:
        return bool(self._limits)

    def add(self, node: Node, stats: KernelStats, item_id: int) -> bool:
        """Limit the feeds that *node* takes to what *stats* know of it; False where they do not decide alone."""
        positions: list[int] = []
        total = 0
        for tensor in node.inputs:
            position = self._positions.get((tensor.op, tensor.index))
            num_elements = tensor.op.output_shapes[tensor.index].num_elements
            dtype = tensor.dtype.as_numpy_dtype
            if tensor.dtype.is_opaque or tensor.dtype.is_ref or dtype.hasobject:
                return False
            if position is not None:
                positions.append(position)
            elif num_elements is None:
                return False
            else:
                total += num_elements * dtype.itemsize
        self._limits.append(_Limit(stats, item_id, tuple(positions), total))
        return True

    def admit(self, feeds: Sequence[Any]) -> bool:
        """Whether all kernels have been quick with inputs as large as *feeds* make them."""
        for stats, item_id, positions, size in self._limits:
            for position in positions:
                value = feeds[position]
                if not isinstance(value, (np.ndarray, np.generic)):
                    return False
                size += value.nbytes
            if not stats.has_been_quick(item_id, size):
                return False
        return True
