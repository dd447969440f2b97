"""A graph as Mermaid and as DOT, whatever its names are."""

from __future__ import annotations

import re

import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError


def small_graph() -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        first = ax.no_op(name="first")
        with ax.control_dependencies([first]):
            ax.multiply(x, x, name="square")
    return graph


def test_mermaid() -> None:
    assert small_graph().to_mermaid() == (
        'flowchart TD\n  n0["x = Placeholder"]\n  n1["first = NoOp"]\n  n2["square = Mul"]\n  n0 --> n2\n  n1 -.-> n2\n'
    )


def test_dot() -> None:
    assert small_graph().to_dot() == (
        "digraph {\n"
        "  node [shape=box]\n"
        '  n0 [label="x = Placeholder"]\n'
        '  n1 [label="first = NoOp"]\n'
        '  n2 [label="square = Mul"]\n'
        "  n0 -> n2\n"
        "  n1 -> n2 [style=dotted]\n"
        "}\n"
    )


def test_names_mean_nothing_in_either_language() -> None:
    with ax.Graph() as graph:
        ax.op(name='a"]; click n0 "javascript:alert(1)" <b>\\\n')(lambda: 1).options(name="n")()
    for text in (graph.to_mermaid(), graph.to_dot()):
        labels = re.findall(r'"(.*)"', text)
        assert len(labels) == 1
        assert not set(labels[0]) & set('"<>\\[]()')


def test_too_many_nodes() -> None:
    with pytest.raises(InvalidArgumentError, match="a picture of 3 nodes"):
        small_graph().to_mermaid(max_nodes=2)
