"""The page of ``inspect --html``: well-formed, complete in itself, and safe for names of strangers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from asyncexec.cli.graph_layout import PictureNode, lay_out
from asyncexec.cli.graph_page import graph_page, shortened
from asyncexec.cli.graph_summary import FunctionSummary, GraphSummary, LoopSummary, TensorSummary

HOSTILE = "<script>alert(1)</script>&\"'"
NODES = [
    PictureNode("x", "Placeholder"),
    PictureNode("y", HOSTILE, ["x"]),
    PictureNode(HOSTILE, "Neg", ["y"], ["x"]),
]
SUMMARY = GraphSummary(
    node_count=3,
    op_counts={HOSTILE: 2, "Placeholder": 1},
    device_counts={"": 3},
    inputs=[TensorSummary("x:0", "Placeholder", "float32", "[?, 3]")],
    outputs=[TensorSummary(HOSTILE, "Neg")],
    loops=[LoopSummary(HOSTILE, 2, 10)],
    functions=[FunctionSummary(HOSTILE, 4)],
)
PAGE = graph_page(HOSTILE, SUMMARY, lay_out(NODES))


def test_names_of_strangers_stay_text() -> None:
    assert "<script" not in PAGE
    assert PAGE.count("&lt;script&gt;") >= 6


def test_nothing_is_loaded_from_anywhere() -> None:
    assert re.findall(r"\b(?:src=|href=|url\((?!#)|@import)", PAGE) == []
    assert "default-src 'none'" in PAGE


def test_the_picture_is_well_formed_and_shows_every_box_and_line() -> None:
    picture = re.search(r"<svg.*</svg>", PAGE, re.DOTALL)
    assert picture is not None
    svg = ElementTree.fromstring(picture[0])
    space = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f"{space}g")) == 3
    assert len(svg.findall(f"{space}path")) == 3
    assert [path.get("class") for path in svg.findall(f"{space}path")].count("control") == 1


def test_boxes_lie_inside_the_picture() -> None:
    picture = re.search(r"<svg.*</svg>", PAGE, re.DOTALL)
    assert picture is not None
    svg = ElementTree.fromstring(picture[0])
    for rect in svg.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(rect.get("x", "")) <= float(svg.get("width", "")) - float(rect.get("width", ""))
        assert 0 <= float(rect.get("y", "")) <= float(svg.get("height", "")) - float(rect.get("height", ""))


def test_long_names_keep_their_end() -> None:
    assert shortened("short") == "short"
    assert shortened("tower/layer_1/batch_norm/moments/mean") == "…batch_norm/moments/mean"
