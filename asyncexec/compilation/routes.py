"""Routes of edges: with what is to happen at the other end decided already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from asyncexec.compilation.graph_view import (
    CONTROL,
    COUNT,
    DELIVERED,
    FETCH,
    SOLE,
    Action,
    NodeItem,
    Role,
    Route,
    RouteKind,
)

# (input slot, id of the consumer); for a Merge, (index of the input, id of the Merge)
EdgeInfo: TypeAlias = tuple[int, int]

SINK: Final = -1  # stands for the fetches as a consumer

_PASSING: Final = {
    Role.NORMAL: RouteKind.PASS_ON,
    Role.NEXT_ITERATION: RouteKind.NEXT_ITERATION,
    Role.EXIT: RouteKind.EXIT,
}
_NO_SLOT: Final = -1


class Routes:
    """Makes the routes to *items*, of which each is added once its pending count is known."""

    def __init__(self, items: Sequence[NodeItem]) -> None:
        self._items = items
        self._kinds: list[int] = []
        self._control_kinds: list[int] = []

    def add(self, item: NodeItem, pending: int, *, gives_index: bool = False) -> None:
        """Add the next item, which at first waits for *pending*; *gives_index*: a Merge that does more than pass on."""
        if item.action or item.is_merge:
            self._kinds.append(int(_kind(item, pending, gives_index)))
            self._control_kinds.append(int(_control_kind(item, pending)))
        else:
            self._kinds.append(SOLE if pending == 1 else COUNT)
            self._control_kinds.append(CONTROL)

    def of(self, edges: Sequence[EdgeInfo]) -> tuple[Route, ...]:
        """The routes that stand for *edges*."""
        items, kinds = self._items, self._kinds
        return tuple(
            [
                (FETCH, slot, DELIVERED) if consumer == SINK else (kinds[consumer], slot, items[consumer])
                for slot, consumer in edges
            ]
        )

    def of_controls(self, consumers: Sequence[int]) -> tuple[Route, ...]:
        """The routes that stand for control edges to *consumers*."""
        items, kinds = self._items, self._control_kinds
        return tuple([(kinds[consumer], _NO_SLOT, items[consumer]) for consumer in consumers])


def _kind(item: NodeItem, pending: int, gives_index: bool) -> RouteKind:
    """How values arrive at *item*."""
    if item.is_merge:
        only_passes_on = item.action and pending == 1 and not gives_index
        return RouteKind.FIRST if only_passes_on else RouteKind.MERGE
    if item.action == Action.SWITCH:
        return RouteKind.SWITCH
    if pending != 1:
        return RouteKind.COUNT
    if item.action != Action.PASS_ON or item.returns_tuple:
        return RouteKind.SOLE
    return _PASSING.get(Role(item.role), RouteKind.SOLE)


def _control_kind(item: NodeItem, pending: int) -> RouteKind:
    if item.is_merge:
        return RouteKind.CONTROL_MERGE
    is_constant = item.action == Action.CONSTANT and pending == 1
    return RouteKind.CONSTANT if is_constant else RouteKind.CONTROL
