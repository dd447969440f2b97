"""A graph as text that others draw: Mermaid (for Markdown pages) and DOT (for Graphviz).

Names are those of strangers: whatever means something in either language is written as a character reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncexec.framework.errors import InvalidArgumentError

if TYPE_CHECKING:
    from asyncexec.graph.node import Node

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _./:-=,")


@dataclass(frozen=True, slots=True)
class Language:
    """How a graph is written: what comes first and last, and formats of nodes, edges and character references."""

    head: str
    node: str
    edge: str
    control_edge: str
    reference: str
    foot: str


MERMAID: Final = Language(
    head="flowchart TD\n",
    node='  n{id}["{label}"]\n',
    edge="  n{source} --> n{target}\n",
    control_edge="  n{source} -.-> n{target}\n",
    reference="#{};",
    foot="",
)
DOT: Final = Language(
    head="digraph {\n  node [shape=box]\n",
    node='  n{id} [label="{label}"]\n',
    edge="  n{source} -> n{target}\n",
    control_edge="  n{source} -> n{target} [style=dotted]\n",
    reference="&#{};",
    foot="}\n",
)


def picture(nodes: Sequence[Node], language: Language, max_nodes: int) -> str:
    """*nodes* in *language*; InvalidArgumentError if there are more than *max_nodes*."""
    if len(nodes) > max_nodes:
        raise InvalidArgumentError(
            f"a picture of {len(nodes):,} nodes shows nothing; max_nodes is {max_nodes:,}",
            hint="asyncexec inspect model.pb --html model.html, or raise max_nodes",
        )
    parts = [language.head]
    for node in nodes:
        label = node.name if node.name == node.op else f"{node.name} = {node.op}"
        shown = "".join(char if char in _PLAIN else language.reference.format(ord(char)) for char in label)
        parts.append(language.node.format(id=node.id, label=shown))
    for node in nodes:
        sources = dict.fromkeys(tensor.op.id for tensor in node.inputs)
        parts += [language.edge.format(source=source, target=node.id) for source in sources]
        parts += [language.control_edge.format(source=each.id, target=node.id) for each in node.control_inputs]
    return "".join([*parts, language.foot])
