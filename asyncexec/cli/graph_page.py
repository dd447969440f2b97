"""A picture of a graph and its summary as one page that needs nothing else: no script, no file, no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from asyncexec.cli.graph_layout import Box, Layout, Line
from asyncexec.cli.graph_summary import GraphSummary, TensorSummary

BOX_WIDTH: Final = 168
BOX_HEIGHT: Final = 38
GAP_X: Final = 22
GAP_Y: Final = 46
MARGIN: Final = 24
MAX_LABEL: Final = 24

STYLE: Final = """
:root { color-scheme: light dark; --line: #8a94a6; --box: #f4f7fb; --edge: #5b6b85; --text: #1b2330;
  --accent: #2f6fde; }
@media (prefers-color-scheme: dark) { :root { --line: #66708a; --box: #232a36; --edge: #8a9ab8; --text: #e6ebf4; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem; color: var(--text); }
table { border-collapse: collapse; margin: .5rem 0 1rem; }
th, td { text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; font-weight: 600; }
.picture { overflow: auto; border: 1px solid var(--line); border-radius: 6px; max-height: 85vh; }
svg text { font: 12px system-ui, sans-serif; fill: var(--text); text-anchor: middle; }
svg .op { fill: var(--edge); font-size: 11px; }
svg rect { fill: var(--box); stroke: var(--edge); }
svg .input rect { stroke: var(--accent); stroke-width: 2; }
svg .folded rect { stroke-width: 2; stroke-dasharray: 5 2; }
svg path { fill: none; stroke: var(--line); marker-end: url(#arrow); }
svg path.control { stroke-dasharray: 3 4; }
svg path.back { stroke: var(--accent); }
"""


class Point(NamedTuple):
    """A place in the picture, in pixels."""

    x: float
    y: float


def graph_page(title: str, summary: GraphSummary, layout: Layout) -> str:
    """The page, as HTML."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1><p>{summary.node_count:,} nodes, {len(summary.op_counts)} op types</p>",
            *_tables(summary),
            '<div class="picture">',
            *_svg(layout, {tensor.name.partition(":")[0] for tensor in summary.inputs}),
            "</div></body></html>",
        ]
    )


def _tables(summary: GraphSummary) -> Iterator[str]:
    yield _table("Inputs", ("tensor", "op", "dtype", "shape"), map(_tensor_row, summary.inputs), is_open=True)
    yield _table("Outputs", ("tensor", "op", "dtype", "shape"), map(_tensor_row, summary.outputs), is_open=True)
    yield _table("Ops", ("op", "nodes"), summary.op_counts.items())
    yield _table("Devices", ("device", "nodes"), ((name or "(any)", n) for name, n in summary.device_counts.items()))
    loops = ((loop.name, loop.loop_variables, loop.parallel_iterations or "") for loop in summary.loops)
    yield _table("Loops", ("loop", "variables", "parallel iterations"), loops)
    yield _table("Functions", ("function", "nodes"), ((f.name, f.node_count) for f in summary.functions))


def _tensor_row(tensor: TensorSummary) -> tuple[str, ...]:
    return tensor.name, tensor.op, tensor.dtype, tensor.shape


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, is_open: bool = False) -> str:
    body = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    if not body:
        return ""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    opening = f"<details{' open' if is_open else ''}><summary>{title} ({len(body)})</summary>"
    return f"{opening}<table><tr>{head}</tr>{''.join(body)}</table></details>"


def _cell(value: object) -> str:
    kind = ' class="number"' if isinstance(value, int) else ""
    return f"<td{kind}>{escape(str(value))}</td>"


def _svg(layout: Layout, inputs: set[str]) -> Iterator[str]:
    widest = _row_widths(layout.boxes.values())
    columns, rows = max(widest.values(), default=1), len(widest)
    width = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + max(rows, 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    places = {name: _place(box, widest[box.row], width) for name, box in layout.boxes.items()}
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    yield '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    yield '<polygon points="0,0 8,4 0,8" fill="var(--line)"/></marker></defs>'
    yield from (_path(line, places, layout.boxes) for line in layout.lines)
    yield from (_rect(box, places[name], is_input=name in inputs) for name, box in layout.boxes.items())
    yield "</svg>"


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
    kind = " ".join(name for name, holds in (("control", line.is_control), ("back", goes_up)) if holds)
    curve = f"M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 - bend:g} {x2:g},{y2:g}"
    title = f"<title>{escape(line.source)} → {escape(line.target)}</title>"
    return f'<path class="{kind}" d="{curve}">{title}</path>'


def _rect(box: Box, place: Point, *, is_input: bool) -> str:
    kind = "input" if is_input else "folded" if sum(box.ops.values()) > 1 else ""
    middle = place.x + BOX_WIDTH / 2
    ops = ", ".join(f"{op} x {count}" if count > 1 else op for op, count in list(box.ops.items())[:12])
    return (
        f'<g class="{kind}"><title>{escape(box.name)}\n{escape(ops)}</title>'
        f'<rect x="{place.x:g}" y="{place.y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
        f'<text x="{middle:g}" y="{place.y + 16:g}">{escape(shortened(box.name))}</text>'
        f'<text class="op" x="{middle:g}" y="{place.y + 31:g}">{escape(shortened(box.label))}</text></g>'
    )


def shortened(name: str) -> str:
    """The end of *name*, which tells more than its beginning, if all of it does not fit into a box."""
    return name if len(name) <= MAX_LABEL else "…" + name[-(MAX_LABEL - 1) :]
