"""What each sync kernel costs, and so where it runs (``KernelStats`` in TensorFlow's ``executor.cc``)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from asyncexec.compilation.graph_view import NodeItem
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.kernel import KernelKind

INLINE: Final = 0
WORKER: Final = 1
ASYNC: Final = 2

# A hop to a thread and back costs 100-200 microseconds; below this a worker does not pay.
EXPENSIVE_NS: Final = NS_PER_MS // 2
# One sample counts for a quarter, and never for more than this: one pause of the machine is soon forgotten,
# while a kernel that takes milliseconds is moved after its first run.
_SAMPLE_CAP_NS: Final = 8 * EXPENSIVE_NS


class KernelStats:
    """Moving averages of one executor, shared by its steps.

    ``places[item.id]`` is INLINE, WORKER or ASYNC.
    """

    __slots__ = ("_costs_ns", "_items", "places")

    def __init__(self, items: Sequence[NodeItem]) -> None:
        first = {key: _first_place(*key) for key in itertools.product(KernelKind, (None, True, False))}
        self.places = [first[item.kind, item.is_expensive] for item in items]
        self._costs_ns: list[int] = [0] * len(items)
        self._items = items

    def update(self, item_id: int, elapsed_ns: int) -> None:
        """Take a sample of a sync kernel into account."""
        item = self._items[item_id]
        if item.is_expensive is not None or item.kind is KernelKind.ASYNC:
            return  # not for measurements to decide
        cost = self._costs_ns[item_id]
        cost += (min(elapsed_ns, _SAMPLE_CAP_NS) - cost) // 4
        self._costs_ns[item_id] = cost
        self.places[item_id] = WORKER if cost > EXPENSIVE_NS else INLINE


def _first_place(kind: KernelKind, is_expensive: bool | None) -> int:
    if kind is KernelKind.ASYNC:
        return ASYNC
    return WORKER if kind is KernelKind.EXPENSIVE and is_expensive is not False else INLINE
