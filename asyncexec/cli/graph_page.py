"""A graph as one page that needs nothing else, no file and no network: a picture to unfold, a tree, details, tables.

The graph is a stranger's: it stands in the page as JSON, which no HTML can end, and as escaped text.  By its
Content-Security-Policy the page runs the scripts in ``cli/page`` alone, told by their hashes, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from asyncexec.cli.graph_nodes import Output, ShownNode
from asyncexec.cli.graph_summary import GraphSummary, table_rows
from asyncexec.cli.graph_tree import Box, boxes_of
from asyncexec.framework.lazy_module import LazyModule

if TYPE_CHECKING:
    from numpy.typing import NDArray

_text_values = LazyModule("asyncexec.graph.text_values")

Row = TypeVar("Row")

MOST_ROWS: Final = 1_000  # of a table
MOST_ELEMENTS: Final = 16  # of an array whose elements are shown
LONGEST_VALUE: Final = 300

BODY: Final = """
<div id="first"><header><h1>{title}</h1><p class="facts">{facts}</p>
<div class="tools" role="toolbar" aria-label="Picture">
<label class="hidden" for="search">Search for nodes by name, op or device</label>
<input id="search" type="search" placeholder="search: name, op, device ( / )" autocomplete="off" spellcheck="false">
<button id="fit" type="button" title="Show all (0)">Fit</button>
<button id="closer" type="button" aria-label="Zoom in" title="Zoom in (+)">+</button>
<button id="farther" type="button" aria-label="Zoom out" title="Zoom out (-)">−</button>
<button id="fold" type="button">Fold all</button>
<button id="unfold" type="button">Unfold all</button></div></header>
{problem}<main>
<div id="picture" role="img" tabindex="0" aria-describedby="keys"
 aria-label="Picture of the graph; the tree beside it has the same boxes and nodes"></div>
<aside id="side" aria-label="Nodes"><ol id="found" aria-label="Found" hidden></ol>
<ul id="tree" role="tree" aria-label="Boxes and nodes of the graph"></ul>
<section id="details" aria-label="Details" aria-live="polite"><p>Choose a box to see what it is.</p></section></aside>
</main>
<div id="foot"><p id="shown"></p><p id="keys">Picture: arrow keys move, + and - zoom, 0 shows all. Tree: arrow keys move
 and unfold, Enter shows details. Dotted: control edges; dashed boxes: loops, with blue edges that close them.</p>
<p id="said" class="hidden" role="status"></p></div></div>
<noscript><p class="problem">The picture needs scripts; the tables below do not.</p></noscript>
<div id="tables">
"""


def graph_page(title: str, nodes: Sequence[ShownNode], summary: GraphSummary) -> str:
    """The page, as HTML."""
    scripts = [_file("cytoscape.min.js"), f"{_file('layout.js')}\n{_file('page.js')}"]
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    problem = f'<p class="problem" role="alert">{escape(summary.problem)}</p>' if summary.problem else ""
    data = as_json(page_data(nodes, summary.unknown_ops))
    facts = f"{summary.node_count:,} nodes, {len(summary.op_counts):,} op types"
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{_file('page.css')}</style></head><body>",
            BODY.format(title=escape(title), facts=facts, problem=problem),
            *_tables(summary),
            "</div>\n",
            f'<script type="application/json" id="graph-data">{data}</script>\n',
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body></html>\n",
        ]
    )


def page_data(nodes: Sequence[ShownNode], unknown_ops: Iterable[str] = ()) -> dict[str, Any]:
    """What the scripts of the page know of the graph; what nodes have in common is there once.

    A child of a group is the position of a node, or -1 - the position of a group.
    """
    kinds: _Table[dict[str, Any]] = _Table()
    outputs: _Table[Sequence[Output]] = _Table()
    unknown = frozenset(unknown_ops)

    def kind(node: ShownNode) -> dict[str, Any]:
        attrs = [[name, value_text(value)] for name, value in sorted(node.attrs.items())]
        return {"op": node.op, "device": node.device, "attrs": attrs, "isUnknown": node.op in unknown}

    return {
        "names": [node.name for node in nodes],
        "kindOf": [kinds.position((node.op, node.device, id(node.attrs)), node, kind) for node in nodes],
        "kinds": kinds.rows,
        "inputs": [[number for source in node.inputs for number in source] for node in nodes],
        "outputsOf": [outputs.position(tuple(node.outputs), node, lambda each: each.outputs) for node in nodes],
        "outputs": outputs.rows,
        "groups": _groups(boxes_of(nodes)),
    }


class _Table(Generic[Row]):
    """Rows that are made once for each key."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._positions: dict[Any, int] = {}

    def position(self, key: Any, node: ShownNode, make: Callable[[ShownNode], Row]) -> int:
        found = self._positions.get(key)
        if found is None:
            found = self._positions[key] = len(self.rows)
            self.rows.append(make(node))
        return found


def _groups(root: Box) -> list[list[Any]]:
    boxes = [root]
    rows: list[list[Any]] = []
    for box in boxes:
        children: list[int] = []
        for child in box.children:
            if isinstance(child, Box):
                children.append(-1 - len(boxes))
                boxes.append(child)
            else:
                children.append(child)
        rows.append([box.kind, box.label, children])
    return rows


def value_text(value: Any) -> str:
    """An attr as text for people: a large value is told by its dtype and shape."""
    if hasattr(value, "dtype") and hasattr(value, "size"):
        return _array_text(value)
    if isinstance(value, (tuple, list)) and len(value) > MOST_ELEMENTS:
        return f"{value_text(tuple(value[:MOST_ELEMENTS]))} and {len(value) - MOST_ELEMENTS:,} more"
    text: str = value if isinstance(value, str) else _text_values.written(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text):,} characters)"


def _array_text(array: NDArray[Any]) -> str:
    if array.size > MOST_ELEMENTS:
        return f"{array.dtype.name} {list(array.shape)}, {array.size:,} elements"
    text: str = _text_values.written(array if array.ndim else array[()])
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def as_json(data: Any) -> str:
    """*data* as JSON that nothing in HTML takes for its own."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _file(name: str) -> str:
    return importlib.resources.files("asyncexec.cli").joinpath("page", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _tables(summary: GraphSummary) -> Iterator[str]:
    for title, (heads, rows) in table_rows(summary).items():
        yield _table(title.capitalize(), heads, rows)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    more = f"<p>... and {len(rows) - MOST_ROWS:,} more</p>" if len(rows) > MOST_ROWS else ""
    return f"<details><summary>{title} ({len(rows):,})</summary><table><tr>{head}</tr>{body}</table>{more}</details>\n"


def _cell(value: object) -> str:
    kind = ' class="number"' if isinstance(value, int) else ""
    return f"<td{kind}>{escape(str(value))}</td>"
