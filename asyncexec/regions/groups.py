"""Nodes -> groups: sets of elementwise nodes of large arrays, each of which can be one node that goes by tiles.

Theory
------
Let all nodes be hard but those that are cheap or elementwise, and take the clusters of the others (``clusters.py``).
Along an edge inside of a cluster the *layer* grows where it leads from an elementwise node to one that is cheap, or has
another shape; nowhere does it shrink.  The elementwise nodes of one cluster and one layer that run under the same
conditions can be one node: what stands on a path between two of them is of the same cluster and layer, so it is
elementwise, and of the same shape.  The same holds for the parts of such a set that have nothing in common, each of
which becomes a group: one need not wait for the other.

The other cheap nodes have clusters of their own, for which every member of a group is hard.  Whatever waits for one
node of such a cluster waits for all that come before any of them, so they add no cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from typing import Final, NamedTuple

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.node import Node, Tensor
from asyncexec.pruning.prune import ClientGraph
from asyncexec.regions.clusters import Place, find_places

_FEW: Final = 2  # nodes from which on a group is worth it
_MANY: Final = 64  # inputs: with a thousand, a node is for a worker thread whatever their size
_DECIDES: Final = "LoopCond"  # a loop has one: where it is hard, the nodes of the loop are told apart


class _Spot(NamedTuple):
    """What the members of a group have in common."""

    place: Place
    layer: int
    dims: Hashable


def find_groups(
    graph: ClientGraph, is_hard: Callable[[Node], bool], is_elementwise: Callable[[Node], bool]
) -> Stage[list[list[Node]]]:
    """The groups of *graph*, as a stage: the nodes of each in order.

    *is_hard* holds of all nodes that are not cheap, *is_elementwise* of those that may be members, cheap or not.  Each
    group has a member that is not cheap.

    Raises:
        UnstructuredError: as of ``find_clusters``.
    """
    members: dict[Node, None] = {}
    for count, node in enumerate(graph.nodes):
        if is_elementwise(node) and _keeps_shape(node):
            members[node] = None
        if not count % STRIDE:
            yield
    if len(members) < _FEW or not any(map(is_hard, members)):
        return []
    place_of = yield from find_places(
        graph, lambda node: node not in members and (is_hard(node) or node.op == _DECIDES)
    )
    spots: dict[Node, _Spot] = {}
    for count, node in enumerate(graph.nodes):
        place = place_of(node)
        if place is not None:
            spots[node] = _spot(node, place, spots, members)
        if not count % STRIDE:
            yield
    parts = yield from _connected({node: spots[node] for node in members if node in spots})
    return [part for part in parts if len(part) >= _FEW and any(map(is_hard, part))]


def _keeps_shape(node: Node) -> bool:
    """Whether, as far as is known, all inputs of *node*, not very many, are scalars or of the shape of its output."""
    if len(node.inputs) > _MANY:
        return False
    (shape,) = node.output_shapes
    shapes = [tensor.shape for tensor in node.inputs]
    return shape.rank != 0 and all(each.rank == 0 or each.is_compatible_with(shape) for each in shapes)


def _is_array(tensor: Tensor) -> bool:
    return tensor.shape.rank != 0


def _spot(node: Node, place: Place, spots: Mapping[Node, _Spot], members: Container[Node]) -> _Spot:
    dims = node.output_shapes[0].dims if node in members else None
    layer = 0
    for source in (*[tensor.op for tensor in node.inputs], *node.control_inputs):
        spot = spots.get(source)
        if spot is not None and spot.place.cluster == place.cluster:
            grows = source in members and (node not in members or spot.dims != dims)
            layer = max(layer, spot.layer + grows)
    return _Spot(place, layer, dims)


def _connected(spots: Mapping[Node, _Spot]) -> Stage[list[list[Node]]]:
    """The nodes of each spot, in parts that have no array in common."""
    part_of: dict[Node, list[Node]] = {}
    takers: dict[tuple[Node, int, _Spot], Node] = {}  # the first of each spot
    for count, (node, spot) in enumerate(spots.items()):
        part_of[node] = [node]
        for tensor in node.inputs:
            near = takers.setdefault((tensor.op, tensor.index, spot), node) if _is_array(tensor) else node
            for other in (near, tensor.op):
                if spots.get(other) == spot and part_of[other] is not part_of[node]:
                    _join(part_of, part_of[other], part_of[node])
        if not count % STRIDE:
            yield
    order = {node: position for position, node in enumerate(spots)}
    parts = {id(part): part for part in part_of.values()}
    return [sorted(part, key=order.__getitem__) for part in parts.values()]


def _join(part_of: dict[Node, list[Node]], one: list[Node], other: list[Node]) -> None:
    small, large = sorted((one, other), key=len)
    large += small
    part_of.update(dict.fromkeys(small, large))
