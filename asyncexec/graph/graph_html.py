"""What notebooks show of graphs, operations and tensors: a small picture, as SVG without a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncexec.framework.html import ACCENT, card, rect, shortened, svg, text
from asyncexec.graph.graph_layout import MAX_BOXES, Box, Layout, Line, PictureNode, lay_out

if TYPE_CHECKING:
    from asyncexec.graph.graph import Graph
    from asyncexec.graph.node import Node, Tensor

MAX_NEAR: Final = 12  # nodes in the picture of a tensor
MAX_NODES: Final = 20_000  # of a graph that is drawn: more take too long
BOX_WIDTH: Final = 168
BOX_HEIGHT: Final = 38
GAP_X: Final = 22
GAP_Y: Final = 40
MARGIN: Final = 8
_ARROW: Final = (
    '<defs><marker id="asyncexec-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><polygon points="0,0 8,4 0,8"/></marker></defs>'
)


class Point(NamedTuple):
    """A place in the picture, in pixels."""

    x: float
    y: float


def graph_html(graph: Graph) -> str:
    """The HTML of *graph*: its size, and a picture of it, folded to few boxes where it is large."""
    facts = {"operations": f"{graph.num_nodes:,}"} | ({"finalized": "yes"} if graph.is_finalized else {})
    if graph.num_nodes > MAX_NODES:
        return card("Graph", facts | {"picture": "too large: asyncexec inspect MODULE:GRAPH --html OUT.html shows it"})
    return card("Graph", facts, nodes_svg(graph.operations, (), MAX_BOXES))


def tensor_html(tensor: Tensor) -> str:
    """The HTML of *tensor*: its dtype and shape, and a picture of the nodes that it is made from."""
    facts = {"dtype": tensor.dtype.name, "shape": tensor.shape, "op": tensor.op.op}
    if tensor.op.device:
        facts["device"] = tensor.op.device
    return card(f"Tensor {tensor.name}", facts, nodes_svg(_makers(tensor.op), [tensor.op.name], MAX_NEAR))


def nodes_svg(nodes: Sequence[Node], marked: Iterable[str], max_boxes: int) -> str:
    """A picture of *nodes*, in at most about *max_boxes* boxes; those with *marked* names stand out."""
    layout = lay_out(
        [
            PictureNode(
                node.name,
                node.op,
                [tensor.op.name for tensor in node.inputs],
                [control.name for control in node.control_inputs],
            )
            for node in nodes
        ],
        max_boxes,
    )
    widest = _row_widths(layout.boxes.values())
    width = 2 * MARGIN + max(widest.values(), default=1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + max(len(widest), 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    label = f"{len(nodes):,} operations" if len(nodes) == len(layout.boxes) else f"{len(nodes):,} operations, folded"
    return svg(width, height, label, _parts(layout, widest, width, frozenset(marked)))


def _makers(node: Node) -> list[Node]:
    """*node* and the nearest of those that it depends on, in the order of the graph."""
    near = {node: None}
    ahead = deque([node])
    while ahead:
        here = ahead.popleft()
        for source in (*(tensor.op for tensor in here.inputs), *here.control_inputs):
            if len(near) == MAX_NEAR:
                return sorted(near, key=lambda each: each.id)
            if source not in near:
                near[source] = None
                ahead.append(source)
    return sorted(near, key=lambda each: each.id)


def _parts(layout: Layout, widest: Mapping[int, int], width: float, marked: frozenset[str]) -> Iterator[str]:
    places = {name: _place(box, widest[box.row], width) for name, box in layout.boxes.items()}
    yield _ARROW
    for line in layout.lines:
        yield _path(line, places, layout.boxes)
    for name, box in layout.boxes.items():
        yield from _box(box, places[name], is_marked=name in marked)


def _row_widths(boxes: Iterable[Box]) -> dict[int, int]:
    widths: dict[int, int] = {}
    for box in boxes:
        widths[box.row] = max(widths.get(box.row, 0), box.column + 1)
    return widths


def _place(box: Box, boxes_in_row: int, width: float) -> Point:
    """The upper left corner of *box*; rows are centred."""
    row_width = boxes_in_row * (BOX_WIDTH + GAP_X) - GAP_X
    left = (width - row_width) / 2 + box.column * (BOX_WIDTH + GAP_X)
    return Point(left, MARGIN + box.row * (BOX_HEIGHT + GAP_Y))


def _path(line: Line, places: Mapping[str, Point], boxes: Mapping[str, Box]) -> str:
    source, target = places[line.source], places[line.target]
    x1, y1, x2, y2 = source.x + BOX_WIDTH / 2, source.y + BOX_HEIGHT, target.x + BOX_WIDTH / 2, target.y
    goes_up = boxes[line.target].row <= boxes[line.source].row
    bend = GAP_Y * 1.2 if goes_up else max(GAP_Y / 2, (y2 - y1) / 2)
    curve = f"M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 - bend:g} {x2:g},{y2:g}"
    dashes = ' stroke-dasharray="3 4"' if line.is_control else ""
    color = f'stroke="{ACCENT}"' if goes_up else 'stroke="currentColor" stroke-opacity=".45"'
    title = f"<title>{escape(line.source)} → {escape(line.target)}</title>"
    return f'<path d="{curve}" fill="none" {color}{dashes} marker-end="url(#asyncexec-arrow)">{title}</path>'


def _box(box: Box, place: Point, *, is_marked: bool) -> Iterator[str]:
    is_folded = sum(box.ops.values()) > 1
    ops = ", ".join(f"{op} x {count}" if count > 1 else op for op, count in list(box.ops.items())[:12])
    border = f'stroke="{ACCENT}" stroke-width="2"' if is_marked else 'stroke="currentColor" stroke-opacity=".7"'
    dashes = ' stroke-dasharray="5 2"' if is_folded else ""
    style = f'fill="currentColor" fill-opacity=".06" {border}{dashes}'
    middle = place.x + BOX_WIDTH / 2
    yield rect(place.x, place.y, BOX_WIDTH, BOX_HEIGHT, f"{box.name}\n{ops}", style)
    yield text(middle, place.y + 16, shortened(box.name))
    yield text(middle, place.y + 31, shortened(box.label), 'text-anchor="middle" fill-opacity=".7"')
