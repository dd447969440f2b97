"""A propagator without cascades: every node goes through the ready queue, to be traced or shuffled."""

from __future__ import annotations

from asyncexec.compilation.graph_view import NodeItem, RouteKind
from asyncexec.executor.engine.cascade import TaggedQueue
from asyncexec.executor.engine.frame import IterationState
from asyncexec.executor.engine.propagator_state import PropagatorState
from asyncexec.framework.kernel import DEAD

_MERGES = (int(RouteKind.FIRST), int(RouteKind.MERGE))
_WITHOUT_SLOT = (int(RouteKind.CONTROL), int(RouteKind.CONSTANT))
_CONTROL_MERGE, _FETCH = int(RouteKind.CONTROL_MERGE), int(RouteKind.FETCH)


class OneByOnePropagatorState(PropagatorState):
    """Leaves it to the executor when a node has its turn: the dead, and those without kernels, too."""

    __slots__ = ()

    def _cascade(self, ready: TaggedQueue) -> None:
        work = self._work
        while work:
            value, routes, target = work.pop()
            if value is DEAD:
                self._deliver_dead(routes, target, ready)
                continue
            for kind, slot, item in routes:
                if kind == _FETCH:
                    self._fetch(slot, value)
                elif kind == _CONTROL_MERGE:
                    self._control_to_merge(item, target, ready)
                elif kind in _MERGES:
                    self._to_merge(item, value, slot, target, ready)
                else:
                    if kind not in _WITHOUT_SLOT:
                        target.inputs[slot] = value
                    self._count_down(item, target, ready)

    def _make_ready(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        target.outstanding_ops += 1
        ready.append((item, target, False))

    def _make_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        target.outstanding_ops += 1
        ready.append((item, target, not item.is_control_trigger))
