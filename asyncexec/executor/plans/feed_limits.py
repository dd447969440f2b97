"""FeedLimits: how large the feeds of a step may be, for its kernels to be cheap in the event loop.

What a convolution costs, or a cluster that a library has, is decided by the size of its inputs.  A plan calls it inline
where that is known before the step begins: its inputs are feeds, or of shapes that the graph tells.  Larger feeds than
it has had in the general executor go there, and are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asyncexec.executor.diagnostics.kernel_stats import KernelStats
from asyncexec.graph.node import Node, Tensor


class InputBytes(NamedTuple):
    """How many bytes the inputs of a node have, which the feeds of a step decide.

    Attributes:
        positions: of the feeds among them; num_bytes: of the others.
    """

    positions: tuple[int, ...]
    num_bytes: int

    def with_feeds(self, feeds: Sequence[object]) -> int:
        """How many they are with *feeds*; -1 where one of these is no array."""
        size = self.num_bytes
        for position in self.positions:
            value = feeds[position]
            if not isinstance(value, (np.ndarray, np.generic)):
                return -1
            size += value.nbytes
        return size


class FeedSizes:
    """What the feeds of a graph, which are tensors, tell of the inputs of its nodes."""

    def __init__(self, feeds: Sequence[Tensor]) -> None:
        self._positions = {(tensor.op, tensor.index): position for position, tensor in enumerate(feeds)}

    def input_bytes(self, node: Node) -> InputBytes | None:
        """How many bytes the inputs of *node* have; None where something else than feeds decides."""
        positions: list[int] = []
        total = 0
        for tensor in node.inputs:
            position = self._positions.get((tensor.op, tensor.index))
            num_elements = tensor.op.output_shapes[tensor.index].num_elements
            dtype = tensor.dtype.as_numpy_dtype
            if tensor.dtype.is_opaque or tensor.dtype.is_ref or dtype.hasobject:
                return None
            if position is not None:
                positions.append(position)
            elif num_elements is None:
                return None
            else:
                total += num_elements * dtype.itemsize
        return InputBytes(tuple(positions), total)


class FeedLimits:
    """The limits of *feeds*, which are tensors, in the order of their values."""

    def __init__(self, feeds: Sequence[Tensor]) -> None:
        self._sizes = FeedSizes(feeds)
        self._limits: list[tuple[KernelStats, int, InputBytes]] = []

    def __bool__(self) -> bool:
        return bool(self._limits)

    def add(self, node: Node, stats: KernelStats, item_id: int) -> bool:
        """Limit the feeds that *node* takes to what *stats* know of it; False where they do not decide alone."""
        found = self._sizes.input_bytes(node)
        if found is None:
            return False
        self._limits.append((stats, item_id, found))
        return True

    def admit(self, feeds: Sequence[object]) -> bool:
        """Whether all kernels have been quick with inputs as large as *feeds* make them."""
        for stats, item_id, input_bytes in self._limits:
            size = input_bytes.with_feeds(feeds)
            if size < 0 or not stats.has_been_quick(item_id, size):
                return False
        return True
