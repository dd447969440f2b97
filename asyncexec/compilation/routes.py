"""Edges as a propagator of frames wants them: with what is to happen at the other end decided already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from asyncexec.compilation.graph_view import SINK, Action, EdgeInfo, FrameInfo, NodeItem, Role, Route, RouteKind
from asyncexec.framework.cooperative import PART, STRIDE, Stage, in_parts

_PASSING: Final = {
    Role.NORMAL: RouteKind.PASS_ON,
    Role.NEXT_ITERATION: RouteKind.NEXT_ITERATION,
    Role.EXIT: RouteKind.EXIT,
}
_FETCH: Final = int(RouteKind.FETCH)
_NO_SLOT: Final = -1


class Routes:
    """Makes routes of edges, once all pending counts are known."""

    def __init__(self, items: Sequence[NodeItem]) -> None:
        self._items = items
        self._kinds: list[int] = []
        self._control_kinds: list[int] = []

    @classmethod
    def stage(cls, items: Sequence[NodeItem], frames: Sequence[FrameInfo]) -> Stage[Self]:
        """The maker of the routes to *items*, as a stage."""
        routes = cls(items)
        for start in range(0, len(items), STRIDE):
            for item in items[start : start + STRIDE]:
                pending = frames[item.frame].initial_pending[item.pending_id]
                routes._kinds.append(int(_kind(item, pending)))
                routes._control_kinds.append(int(_control_kind(item, pending)))
            yield
        return routes

    def add(self) -> Stage[None]:
        """Give every item its routes, as a stage."""
        for item in self._items:
            if item.returns_tuple:
                controls = (self.of((), item.control_edges),) if item.control_edges else ()
                routes: list[tuple[Route, ...]] = []
                for edges in in_parts(item.output_edges):
                    routes += map(self.of, edges)
                    if len(routes) >= PART:
                        yield
                item.routes = (*routes, *controls)
            else:
                item.routes = (self.of(item.output_edges[0], item.control_edges),)
            if not item.id % STRIDE:
                yield

    def of_feeds(
        self, edges: Sequence[Sequence[EdgeInfo]], controls: Sequence[Sequence[int]]
    ) -> Stage[list[tuple[Route, ...]]]:
        """Those that stand for the edges of each feed, as a stage."""
        routes: list[tuple[Route, ...]] = []
        for numbers in in_parts(range(len(edges))):
            routes += [self.of(edges[i], controls[i]) for i in numbers]
            yield
        return routes

    def of(self, edges: Sequence[EdgeInfo], controls: Sequence[int] = ()) -> tuple[Route, ...]:
        """The routes that stand for *edges* and for control edges to *controls*."""
        items, kinds = self._items, self._kinds
        anybody: Any = items[0] if items else None  # a fetch needs no consumer
        return (
            *[
                (_FETCH, slot, anybody) if consumer == SINK else (kinds[consumer], slot, items[consumer])
                for slot, consumer in edges
            ],
            *[(self._control_kinds[consumer], _NO_SLOT, items[consumer]) for consumer in controls],
        )


def _kind(item: NodeItem, pending: int) -> RouteKind:
    """How values arrive at *item*, which at first waits for so many."""
    if item.is_merge:
        only_passes_on = item.action and pending == 1 and not item.output_edges[1] and not item.control_edges
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
