"""Cycles in an imported graph: the one that a loop's Merge closes, and those that are mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import NodeDef
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.shape_refiner import ShapeRefiner

_SHOWN_AT_MOST: Final = 20


def infer_merge(refiner: ShapeRefiner, node: Node, inputs: Sequence[Tensor | None]) -> None:
    """Shapes of a loop's Merge before its back edge is there: what comes round may have any sizes."""
    live = tuple(tensor for tensor in inputs if tensor is not None)
    if not live:
        raise InvalidArgumentError("a Merge needs an input that is no NextIteration", node=node)
    whole = node.inputs
    node.inputs = live + live[:1] * (len(whole) - len(live))
    refiner.infer(node)
    node.inputs = whole
    first, *others = node.output_shapes
    node.output_shapes = (first.most_general([None] * len(first.dims)) if first.dims else first, *others)


def cycle_error(
    node_defs: Sequence[NodeDef], stuck: Sequence[int], sources_of: Callable[[int], Sequence[int]]
) -> InvalidArgumentError:
    """The error that shows a cycle among *stuck*, nodes that each wait for another of them."""
    left = set(stuck)
    position = {stuck[0]: 0}
    path = [stuck[0]]
    while True:
        step = next(source for source in sources_of(path[-1]) if source in left)
        if step in position:
            break
        position[step] = len(path)
        path.append(step)
    cycle = path[position[step] :]
    names = [node_defs[i].name for i in reversed(cycle)][:_SHOWN_AT_MOST]
    return InvalidArgumentError(
        f"{len(cycle)} nodes in a cycle: {' -> '.join([*names, names[0]])}",
        node=names[0],
        op=node_defs[cycle[-1]].op,
        hint="only a loop built of Enter, Merge, Switch, NextIteration and Exit may go round",
    )
