"""The graphs that are timed: files that TensorFlow made (``graphs/NAME.pb``, ``.json``), and generated ones.

Nothing in them can be folded to a constant: everything depends on a feed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.attr_value import decode_attr_value
from asyncexec.framework.graph_def import AttrValue, GraphDef, NodeDef
from asyncexec.framework.tensor_id import parse_tensor_name
from asyncexec.importers.graph_formats import format_graph_def

FOLDER: Final = Path(__file__).parent / "graphs"
FLOAT32: Final = 1  # DT_FLOAT
LAYER_WIDTH: Final = 10

_FLOAT_TYPE: Final = AttrValue(type=FLOAT32)


@dataclass(frozen=True)
class TimedGraph:
    """A GraphDef, what to feed and what to fetch."""

    graph_def: GraphDef
    feeds: Mapping[Any, Any]
    fetches: Any

    @cached_property
    def wire(self) -> bytes:
        """The GraphDef in binary form, for TensorFlow to read."""
        return format_graph_def(self.graph_def, "pb")

    def imported(self) -> ax.Graph:
        """A fresh graph with the nodes of the GraphDef."""
        with ax.Graph() as graph:
            ax.import_graph_def(self.graph_def)
        return graph


def from_file(name: str) -> TimedGraph:
    """The graph file *name*; a single fetch stands for itself, several are a list."""
    meta = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    feeds = {key: _scalar(spec["value"]) for key, spec in meta["feeds"].items()}
    fetches = meta["fetches"]
    graph_def = ax.load_graph_def(FOLDER / f"{name}.pb")
    return TimedGraph(graph_def, feeds, fetches if len(fetches) > 1 else fetches[0])


def _scalar(value: Any) -> Any:
    return np.bool_(value) if isinstance(value, bool) else np.float32(value)


def chain(num_nodes: int) -> TimedGraph:
    """*num_nodes* scalar adds, each of the one before and a fed one."""
    nodes = [_placeholder("x"), _placeholder("one")]
    last = "x"
    for index in range(num_nodes):
        nodes.append(_add(f"n{index}", last, "one"))
        last = f"n{index}"
    return _fed(nodes, last)


def layered(num_nodes: int, width: int = LAYER_WIDTH) -> TimedGraph:
    """*num_nodes* scalar adds in layers of *width*, each of two neighbours in the one before; summed up at last."""
    nodes = [_placeholder("x"), _placeholder("one")]
    layer = ["x"] * (width - 1) + ["one"]
    for level in range(num_nodes // width):
        names = [f"n{level}_{column}" for column in range(width)]
        nodes += [_add(name, layer[i], layer[(i + 1) % width]) for i, name in enumerate(names)]
        layer = names
    attrs = {"T": _FLOAT_TYPE, "N": AttrValue(i=width)}
    nodes.append(NodeDef(name="sum", op="AddN", input=tuple(layer), attr=attrs))
    return _fed(nodes, "sum")


SHAPES: Final[Mapping[str, Callable[[int], TimedGraph]]] = {"chain": chain, "layered": layered}


def _placeholder(name: str) -> NodeDef:
    return NodeDef(name=name, op="Placeholder", attr={"dtype": _FLOAT_TYPE})


def _add(name: str, left: str, right: str) -> NodeDef:
    return NodeDef(name=name, op="AddV2", input=(left, right), attr={"T": _FLOAT_TYPE})


def _fed(nodes: list[NodeDef], last: str) -> TimedGraph:
    return TimedGraph(GraphDef(node=tuple(nodes)), {"x:0": np.float32(0), "one:0": np.float32(1e-3)}, f"{last}:0")


def floor_of(timed: TimedGraph) -> Callable[[], Any]:
    """What the graph computes, as straight-line Python: a statement for each add, and as few local variables as do."""
    names = [parse_tensor_name(text).name for node in timed.graph_def.node for text in node.input]
    fetches = [parse_tensor_name(text).name for text in _as_list(timed.fetches)]
    num_uses = Counter([*names, *fetches])
    variables: dict[str, str] = {}
    start: dict[str, Any] = {}
    unused: list[str] = []
    lines: list[str] = []
    for index, node in enumerate(timed.graph_def.node):
        name = f"v{index}"
        if node.op in ("Const", "Placeholder"):
            is_fed = node.op == "Placeholder"
            start[name] = timed.feeds[f"{node.name}:0"] if is_fed else decode_attr_value(node.attr["value"])
        else:
            inputs = [parse_tensor_name(text).name for text in node.input]
            operands = [variables[text] for text in inputs]
            num_uses.subtract(inputs)
            unused += [variables[text] for text in set(inputs) if not num_uses[text]]
            name = unused.pop() if unused else name
            lines.append(f" {name} = {_FLOOR_OPS[node.op](operands)}")
        variables[node.name] = name
    parameters = ", ".join(f"{name}=start[{name!r}]" for name in start)
    lines = [f"def floor({parameters}):", *lines, f" return [{', '.join(variables[text] for text in fetches)}]"]
    found: dict[str, Any] = {"start": start}
    exec(compile("\n".join(lines), "<floor>", "exec"), found)
    floor: Callable[[], Any] = found["floor"]
    return floor


def _as_list(fetches: Any) -> list[str]:
    return [fetches] if isinstance(fetches, str) else list(fetches)


_FLOOR_OPS: Final[Mapping[str, Callable[[list[str]], str]]] = {
    "AddV2": " + ".join,
    "AddN": lambda operands: f"sum([{', '.join(operands)}])",
}
