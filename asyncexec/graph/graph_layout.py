"""Places for the boxes of a picture of a graph: folded by name scope, in rows by topological level.

A graph above ``MAX_BOXES`` nodes is folded: all nodes that share the first parts of their names (``layer1/conv/...``)
become one box, with as many parts kept as the limit allows; if even the first part is too many, nodes are folded by op.
A box stands in the row of its earliest node; an edge that goes up then closes a loop (or one made by folding).
Within a row boxes are ordered by the mean place of their neighbours, a few times up and down (the barycenter method
of layered graph drawing).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_BOXES: Final = 60
BARYCENTER_SWEEPS: Final = 4
# An edge out of one of these closes a loop, so it says nothing about levels.
BACK_EDGE_OPS: Final = frozenset({"NextIteration", "RefNextIteration"})


class PictureNode(NamedTuple):
    """A node as the picture needs it."""

    name: str
    op: str
    inputs: Sequence[str] = ()  # names of nodes
    control_inputs: Sequence[str] = ()


class Line(NamedTuple):
    """An edge between two boxes; a control edge if no data goes that way."""

    source: str
    target: str
    is_control: bool


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or all nodes folded into one, and its place: row from the top, column from the left."""

    name: str
    label: str  # the op, or how many nodes are folded into it
    row: int
    column: int
    ops: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture of a graph, but for the drawing."""

    boxes: Mapping[str, Box]
    lines: Sequence[Line]


def lay_out(nodes: Sequence[PictureNode], max_boxes: int = MAX_BOXES) -> Layout:
    """The picture of a graph of *nodes*, in at most about *max_boxes* boxes."""
    box_of = fold(nodes, max_boxes)
    levels = node_levels(nodes)
    level_of_box: dict[str, int] = {}
    members: defaultdict[str, list[PictureNode]] = defaultdict(list)
    for node in nodes:
        box = box_of[node.name]
        members[box].append(node)
        level_of_box[box] = min(level_of_box.get(box, levels[node.name]), levels[node.name])
    lines = lines_between(nodes, box_of)
    rows = ordered_rows(level_of_box, lines)
    boxes = {
        name: _box(name, members[name], row, column)
        for row, names in enumerate(rows)
        for column, name in enumerate(names)
    }
    return Layout(boxes, lines)


def _box(name: str, members: Sequence[PictureNode], row: int, column: int) -> Box:
    ops = dict(Counter(node.op for node in members).most_common())
    label = members[0].op if len(members) == 1 else f"{len(members)} nodes"
    return Box(name, label, row, column, ops)


def fold(nodes: Sequence[PictureNode], max_boxes: int) -> dict[str, str]:
    """The box of each node: itself, or a name scope that ends in ``/``, or an op type with ``*``."""
    if len(nodes) <= max_boxes:
        return {node.name: node.name for node in nodes}
    deepest = max(node.name.count("/") for node in nodes)
    by_depth = {depth: _by_scope(depth) for depth in range(1, deepest + 1)}
    for depth in sorted(by_depth, reverse=True):
        folded = {node.name: by_depth[depth](node) for node in nodes}
        if len(set(folded.values())) <= max_boxes:
            return folded
    return {node.name: f"{node.op} *" for node in nodes}


def _by_scope(depth: int) -> Callable[[PictureNode], str]:
    def box_of(node: PictureNode) -> str:
        parts = node.name.split("/")
        return node.name if len(parts) <= depth else "/".join(parts[:depth]) + "/"

    return box_of


def node_levels(nodes: Sequence[PictureNode]) -> dict[str, int]:
    """The length of the longest way to each node from one without inputs; edges that close loops left out.

    What has no inputs, such as a constant, stands right above the first that takes it.
    """
    forward = {node.name for node in nodes if node.op not in BACK_EDGE_OPS}
    consumers: defaultdict[str, list[str]] = defaultdict(list)
    waiting: dict[str, int] = {}
    for node in nodes:
        sources = [name for name in (*node.inputs, *node.control_inputs) if name in forward]
        waiting[node.name] = len(sources)
        for source in sources:
            consumers[source].append(node.name)
    levels = {name: 0 for name, count in waiting.items() if count == 0}
    first = list(levels)
    ready = deque(levels)
    while ready:
        name = ready.popleft()
        for consumer in consumers[name]:
            levels[consumer] = max(levels.get(consumer, 0), levels[name] + 1)
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    for name in first:
        levels[name] = max(0, min((levels[consumer] for consumer in consumers[name]), default=1) - 1)
    return {node.name: levels.get(node.name, 0) for node in nodes}


def lines_between(nodes: Iterable[PictureNode], box_of: Mapping[str, str]) -> list[Line]:
    """One line for each pair of boxes with an edge between them."""
    has_data: dict[tuple[str, str], bool] = {}
    for node in nodes:
        target = box_of[node.name]
        for names, is_data in ((node.inputs, True), (node.control_inputs, False)):
            for name in names:
                source = box_of.get(name, target)
                if source != target:
                    has_data[source, target] = has_data.get((source, target), False) or is_data
    return [Line(source, target, not is_data) for (source, target), is_data in has_data.items()]


def ordered_rows(level_of_box: Mapping[str, int], lines: Iterable[Line]) -> list[list[str]]:
    """The boxes of each row from left to right, so that lines cross seldom."""
    by_level: defaultdict[int, list[str]] = defaultdict(list)
    for box, level in level_of_box.items():
        by_level[level].append(box)
    rows = [by_level[level] for level in sorted(by_level)]
    row_of = {box: index for index, row in enumerate(rows) for box in row}
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        upper, lower = sorted((line.source, line.target), key=row_of.__getitem__)
        above[lower].append(upper)
        below[upper].append(lower)
    for sweep in range(BARYCENTER_SWEEPS):
        place = {box: index / len(row) for row in rows for index, box in enumerate(row)}
        going_down = sweep % 2 == 0
        for row in rows if going_down else reversed(rows):
            _sort_by_neighbours(row, above if going_down else below, place)
    return rows


def _sort_by_neighbours(row: list[str], neighbours: Mapping[str, list[str]], place: dict[str, float]) -> None:
    def wanted(box: str) -> float:
        near = neighbours.get(box)
        return sum(place[other] for other in near) / len(near) if near else place[box]

    row.sort(key=wanted)
    place.update((box, index / len(row)) for index, box in enumerate(row))
