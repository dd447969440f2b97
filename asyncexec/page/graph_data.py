"""A graph as data for the scripts that draw it (``files/graph.js``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from asyncexec.framework.lazy_module import LazyModule
from asyncexec.page.graph_nodes import Output, ShownNode
from asyncexec.page.graph_tree import Box, boxes_of

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_text_values = LazyModule("asyncexec.graph.text_values")

Row = TypeVar("Row")

MOST_ELEMENTS: Final = 16  # of an array whose elements are shown
LONGEST_VALUE: Final = 300


def graph_data(nodes: Sequence[ShownNode], unknown_ops: Iterable[str] = ()) -> dict[str, object]:
    """What the scripts of the page know of the graph; what nodes have in common is there once.

    A child of a group is the position of a node, or -1 - the position of a group.
    """
    kinds: _Table[dict[str, object]] = _Table()
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

    def position(self, key: object, node: ShownNode, make: Callable[[ShownNode], Row]) -> int:
        found = self._positions.get(key)
        if found is None:
            found = self._positions[key] = len(self.rows)
            self.rows.append(make(node))
        return found


def _groups(root: Box) -> list[list[object]]:
    boxes = [root]
    rows: list[list[object]] = []
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


def _array_text(array: Array) -> str:
    if array.size > MOST_ELEMENTS:
        return f"{array.dtype.name} {list(array.shape)}, {array.size:,} elements"
    text: str = _text_values.written(array if array.ndim else array[()])
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def as_json(data: object) -> str:
    """*data* as JSON that nothing in HTML takes for its own."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
