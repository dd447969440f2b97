"""The nodes of a graph in boxes: its devices, in them its loops and name scopes, and parts of what is too many.

A loop is put where the name scope that all of its nodes share is.  Boxes around a single thing go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from asyncexec.page.graph_nodes import ShownNode

MAX_CHILDREN: Final = 200  # of a box: more at once are slow to place and hard to read
MAX_DEPTH: Final = 64  # of name scopes, and of loops: names are those of strangers
ENTERS: Final = frozenset({"Enter", "RefEnter"})
EXITS: Final = frozenset({"Exit", "RefExit"})

Kind: TypeAlias = Literal["graph", "device", "loop", "scope", "part"]
Frames: TypeAlias = tuple[str, ...]  # names of loops, the outermost first


class Step(NamedTuple):
    """One box on the way from the graph to a node."""

    kind: Kind
    label: str


@dataclass(slots=True)
class Box:
    """What stands together; *children* are boxes and the positions of nodes."""

    kind: Kind
    label: str
    children: list[Box | int] = field(default_factory=list)


def boxes_of(nodes: Sequence[ShownNode]) -> Box:
    """The boxes of a graph, from its own on."""
    root = Box("graph", "")
    boxes: dict[tuple[Step, ...], Box] = {(): root}
    has_devices = len({node.device for node in nodes}) > 1
    for position, path in enumerate(_paths(nodes)):
        if has_devices:
            path = (Step("device", nodes[position].device or "(any)"), *path)
        missing = len(path)
        while path[:missing] not in boxes:
            missing -= 1
        box = boxes[path[:missing]]
        for end in range(missing + 1, len(path) + 1):
            inner = boxes[path[:end]] = Box(*path[end - 1])
            box.children.append(inner)
            box = inner
        box.children.append(position)
    return _simplified(root)


def loops_of(nodes: Sequence[ShownNode]) -> list[Frames]:
    """The loops that each node is drawn in; Enter and Exit nodes are drawn in that which they open or close.

    After ``asyncexec.graph.control_flow_info``, which is strict where this takes any graph.
    """
    consumers: defaultdict[int, list[int]] = defaultdict(list)
    for position, node in enumerate(nodes):
        for source in node.inputs:
            consumers[source.node].append(position)
    drawn_in: list[Frames | None] = [None] * len(nodes)
    ahead: list[tuple[int, Frames]] = [(i, ()) for i, node in enumerate(nodes) if not node.inputs]
    while ahead:
        position, frames = ahead.pop()
        if drawn_in[position] is not None:
            continue
        node = nodes[position]
        if node.op in ENTERS and len(frames) < MAX_DEPTH:
            frames = (*frames, _text(node.attrs.get("frame_name", "")))
        drawn_in[position] = frames
        given = frames[:-1] if node.op in EXITS else frames
        ahead += [(consumer, given) for consumer in consumers[position] if drawn_in[consumer] is None]
    return [frames or () for frames in drawn_in]


def _paths(nodes: Sequence[ShownNode]) -> Iterable[tuple[Step, ...]]:
    scopes = [tuple(node.name.split("/", MAX_DEPTH)[:-1]) for node in nodes]
    loops = loops_of(nodes)
    shared: dict[Frames, tuple[str, ...]] = {}  # the name scope of all nodes of a loop
    for scope, frames in zip(scopes, loops, strict=True):
        for depth in range(1, len(frames) + 1):
            known = shared.get(frames[:depth], scope)
            shared[frames[:depth]] = known[: _num_shared(known, scope)]
    for scope, frames in zip(scopes, loops, strict=True):
        path: list[Step] = []
        done = 0
        for depth in range(1, len(frames) + 1):
            end = len(shared[frames[:depth]])
            path += [Step("scope", part) for part in scope[done:end]]
            path.append(Step("loop", frames[depth - 1]))
            done = end
        yield (*path, *(Step("scope", part) for part in scope[done:]))


def _num_shared(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _simplified(box: Box) -> Box:
    box.children = [_unwrapped(_simplified(child)) if isinstance(child, Box) else child for child in box.children]
    box.children = _in_parts(box.children)
    return box


def _unwrapped(box: Box) -> Box | int:
    """*box*, or what is alone in it if a name scope says no more than that."""
    if len(box.children) > 1 or box.kind == "device":
        return box
    child = box.children[0]
    if isinstance(child, int):
        return child if box.kind == "scope" else box
    if box.kind == "scope":
        child.label = f"{box.label}/{child.label}" if child.kind == "scope" else child.label
        return child
    if child.kind == "scope":
        box.children = child.children
    return box


def _in_parts(children: list[Box | int]) -> list[Box | int]:
    """*children*, or boxes with as many of them as can be shown at once."""
    total, span = len(children), 1
    while len(children) > MAX_CHILDREN:
        starts = range(0, len(children), MAX_CHILDREN)
        span *= MAX_CHILDREN
        children = [
            Box(
                "part",
                f"{index * span + 1:,} to {min((index + 1) * span, total):,}",
                children[start : start + MAX_CHILDREN],
            )
            for index, start in enumerate(starts)
        ]
    return children
