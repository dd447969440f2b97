"""What notebooks show of graphs and tensors: SVG that is well-formed, small, and safe for names of strangers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import asyncexec as ax
from asyncexec.framework.html import card, rect, shortened, svg, text
from asyncexec.graph import graph_html
from asyncexec.graph.graph_text import parse_graph_text

SPACE = "{http://www.w3.org/2000/svg}"


def graph_of(lines: str) -> ax.Graph:
    graph = ax.Graph()
    with graph:
        ax.import_graph_def(parse_graph_text(lines))
    return graph


def picture(html: str) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", html, re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found[0])


def labels(html: str) -> list[str]:
    return [each.text or "" for each in picture(html).findall(f"{SPACE}text")]


DIAMOND = """
    x: Placeholder[float32, []]
    left: Neg(x)
    right: Exp(x)
    y: Sub(left, right)
    log: NoOp(^y)
"""


def test_the_picture_of_a_graph_shows_every_node_and_edge() -> None:
    html = graph_of(DIAMOND)._repr_html_()
    assert set(labels(html)) == {"x", "Placeholder", "left", "Neg", "right", "Exp", "y", "Sub", "log", "NoOp"}
    paths = picture(html).findall(f"{SPACE}path")
    assert len(paths) == 5
    assert sum(path.get("stroke-dasharray") is not None for path in paths) == 1
    assert "<script" not in html


def test_boxes_lie_inside_the_picture_and_beside_each_other() -> None:
    drawn = picture(graph_of(DIAMOND)._repr_html_())
    corners = set()
    for each in drawn.iter(f"{SPACE}rect"):
        x, y = float(each.get("x", "")), float(each.get("y", ""))
        assert 0 <= x <= float(drawn.get("width", "")) - float(each.get("width", ""))
        assert 0 <= y <= float(drawn.get("height", "")) - float(each.get("height", ""))
        corners.add((x, y))
    assert len(corners) == 5


def test_the_picture_of_a_large_graph_is_folded() -> None:
    lines = ["x: Placeholder[float32, []]", *(f"s{i % 7}/n{i}: Neg(x)" for i in range(1_000))]
    html = graph_of("\n".join(lines))._repr_html_()
    assert {"s0/", "143 nodes"} <= set(labels(html))
    assert len(html) < 20_000


def test_a_graph_that_is_too_large_says_what_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_html, "MAX_NODES", 4)
    html = graph_of(DIAMOND)._repr_html_()
    assert "<svg" not in html
    assert "asyncexec inspect" in html


def test_an_empty_graph_has_a_picture() -> None:
    assert labels(ax.Graph()._repr_html_()) == []


def test_a_loop_is_drawn() -> None:
    with ax.Graph() as graph:
        ax.while_loop(lambda i: i < 3, lambda i: i + 1, [ax.constant(0)])
    assert "while/NextIteration" in labels(graph._repr_html_())


def test_a_tensor_is_shown_with_what_it_is_made_from() -> None:
    chain = ["n0: Placeholder[float32, [2, ?]]", *(f"n{i}: Neg(n{i - 1})" for i in range(1, 100)), "other: NoOp"]
    tensor = graph_of("\n".join(chain)).tensor("n99:0")
    html = tensor._repr_html_()
    shown = set(labels(html))
    assert {"n99", "n98", "n88"} <= shown
    assert not shown & {"n87", "other"}
    assert "float32" in html
    assert "[2,?]" in html


def test_texts_of_strangers_are_escaped() -> None:
    hostile = "<script>alert('&\"')</script>"
    html = card(hostile, {hostile: hostile}, svg(1, 1, hostile, [rect(0, 0, 1, 1, hostile, ""), text(0, 0, hostile)]))
    assert "<script" not in html
    read = ElementTree.fromstring(html)
    assert "".join(read.itertext()).count(hostile) == 5


def test_long_names_keep_their_end() -> None:
    assert shortened("short") == "short"
    assert shortened("tower/layer_1/batch_norm/moments/mean") == "…batch_norm/moments/mean"
