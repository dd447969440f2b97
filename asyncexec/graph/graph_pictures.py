"""A graph as text that others draw: Mermaid (for Markdown pages) and DOT (for Graphviz).

Names are those of strangers: whatever means something in either language is written as a character reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from asyncexec.framework.errors import InvalidArgumentError

if TYPE_CHECKING:
    from asyncexec.graph.node import Node

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _./:-=,")


def to_mermaid(nodes: Sequence[Node], max_nodes: int) -> str:
    """*nodes* as a Mermaid flowchart; control edges are dotted."""
    return _drawn(
        nodes,
        max_nodes,
        "flowchart TD\n",
        lambda node, shown: f'  n{node}["{shown}"]\n',
        lambda source, target, is_control: f"  n{source} {'-.->' if is_control else '-->'} n{target}\n",
        _for_mermaid,
        "",
    )


def to_dot(nodes: Sequence[Node], max_nodes: int) -> str:
    """*nodes* as a digraph in DOT; control edges are dotted."""
    return _drawn(
        nodes,
        max_nodes,
        "digraph {\n  node [shape=box]\n",
        lambda node, shown: f'  n{node} [label="{shown}"]\n',
        lambda source, target, is_control: f"  n{source} -> n{target}{' [style=dotted]' if is_control else ''}\n",
        _for_dot,
        "}\n",
    )


def _drawn(
    nodes: Sequence[Node],
    max_nodes: int,
    head: str,
    box: Callable[[int, str], str],
    line: Callable[[int, int, bool], str],
    escaped: Callable[[str], str],
    foot: str,
) -> str:
    if len(nodes) > max_nodes:
        raise InvalidArgumentError(
            f"a picture of {len(nodes):,} nodes shows nothing; max_nodes is {max_nodes:,}",
            hint="asyncexec inspect model.pb --html model.html, or raise max_nodes",
        )
    parts = [head]
    for node in nodes:
        label = node.name if node.name == node.op else f"{node.name} = {node.op}"
        parts.append(box(node.id, escaped(label)))
    for node in nodes:
        sources = dict.fromkeys(tensor.op.id for tensor in node.inputs)
        parts += [line(source, node.id, False) for source in sources]
        parts += [line(control.id, node.id, True) for control in node.control_inputs]
    return "".join([*parts, foot])


def _for_mermaid(text: str) -> str:
    return "".join(char if char in _PLAIN else f"#{ord(char)};" for char in text)


def _for_dot(text: str) -> str:
    return "".join(char if char in _PLAIN else f"&#{ord(char)};" for char in text)
