"""The page of ``inspect --html``: complete in itself, safe for names of strangers, with all that it needs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.cli.graph_page import graph_page
from asyncexec.cli.graph_summary import FunctionSummary, GraphSummary, LoopSummary, TensorSummary
from asyncexec.framework.graph_def import GraphDef
from asyncexec.page.graph_data import graph_data, value_text
from asyncexec.page.graph_nodes import ShownNode, Source, nodes_of_def, nodes_of_graph

HOSTILE = "</script><script>alert(1)</script><!-- &\"'\u2028"
NODES = [
    ShownNode("x", "Placeholder", "", [], {"dtype": ax.float32}),
    ShownNode("y", HOSTILE, HOSTILE, [Source(0, 0)], {HOSTILE: HOSTILE}),
    ShownNode(f"{HOSTILE}/{HOSTILE}", "Neg", "", [Source(1, 0), Source(0, -1)], {}),
]
SUMMARY = GraphSummary(
    source="graph.json",
    node_count=3,
    op_counts={HOSTILE: 2, "Placeholder": 1},
    device_counts={"": 2, HOSTILE: 1},
    inputs=[TensorSummary("x:0", "Placeholder", "float32", "[?, 3]")],
    outputs=[TensorSummary(HOSTILE, "Neg")],
    loops=[LoopSummary(HOSTILE, 2, 10)],
    functions=[FunctionSummary(HOSTILE, 4)],
    unknown_ops=[HOSTILE],
    problem=HOSTILE,
)
PAGE = graph_page(HOSTILE, NODES, SUMMARY)


class Reader(HTMLParser):
    """What a browser reads: tags with their attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


READ = Reader(PAGE)


def data_of(page: str) -> Any:
    return json.loads(Reader(page).scripts[0])


def test_names_of_strangers_stay_text() -> None:
    assert [tag for tag, _ in READ.tags].count("script") == 3  # the data, the library, and ours
    assert PAGE.count("alert(1)</script>") == 0
    assert [attrs for _, attrs in READ.tags if any(name.startswith("on") for name in attrs)] == []
    assert data_of(PAGE)["names"] == [node.name for node in NODES]


def test_nothing_is_loaded_from_anywhere() -> None:
    assert [attrs for _, attrs in READ.tags if attrs.keys() & {"src", "href", "action", "srcset", "data"}] == []
    style = re.search(r"<style>.*?</style>", PAGE, re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import", style[0])


def test_the_policy_lets_the_scripts_of_the_page_run_and_no_others() -> None:
    (policy,) = (attrs["content"] for _, attrs in READ.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in READ.scripts[1:]]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert "connect-src" not in rules


def test_the_vendored_library_has_its_licence_in_the_page() -> None:
    assert "Permission is hereby granted, free of charge" in READ.scripts[1][:1000]


def test_the_tree_and_the_picture_have_roles_and_names() -> None:
    by_id = {attrs["id"]: attrs for _, attrs in READ.tags if attrs.get("id")}
    assert by_id["tree"]["role"] == "tree"
    assert by_id["picture"]["role"] == "img"
    assert by_id["picture"]["tabindex"] == "0"
    assert by_id["details"]["aria-live"] == "polite"
    assert all(by_id[name].get("aria-label") for name in ("tree", "picture", "details", "found"))
    assert "prefers-color-scheme: dark" in PAGE
    assert "prefers-reduced-motion" in PAGE


def test_data_tell_edges_attributes_dtypes_and_shapes() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 2], name="x")
        y = ax.add(x, x, name="y")
        with ax.control_dependencies([y]):
            ax.identity(x, name="z")
    data = graph_data(nodes_of_graph(graph))
    assert data["names"] == ["x", "y", "z"]
    assert data["inputs"] == [[], [0, 0, 0, 0], [0, 0, 1, -1]]
    assert [data["outputs"][i] for i in data["outputsOf"]] == [[("float32", "[?,2]")]] * 3
    kinds = [data["kinds"][i] for i in data["kindOf"]]
    assert [kind["op"] for kind in kinds] == ["Placeholder", "AddV2", "Identity"]
    assert ["T", "float32"] in kinds[1]["attrs"]


def test_what_nodes_have_in_common_is_there_once() -> None:
    nodes = [ShownNode(f"n{i}", "Neg", "", [], attrs) for attrs in ({"T": 1}, {"T": 2}) for i in range(50)]
    data = graph_data(nodes)
    assert [kind["attrs"] for kind in data["kinds"]] == [[["T", "1"]], [["T", "2"]]]
    assert data["kindOf"] == [0] * 50 + [1] * 50


def test_groups_name_their_children() -> None:
    nodes = [ShownNode(name, "Neg", "", [], {}) for name in ("a", "s/b", "s/c")]
    assert graph_data(nodes)["groups"] == [["graph", "", [0, -2]], ["scope", "s", [1, 2]]]


def test_ops_that_are_not_registered_are_marked() -> None:
    graph_def = GraphDef.model_validate({"node": [{"name": "a", "op": "Neg"}, {"name": "b", "op": "Mine"}]})
    kinds = graph_data(nodes_of_def(graph_def), ["Mine"])["kinds"]
    assert [kind["isUnknown"] for kind in kinds] == [False, True]


def test_large_values_are_told_by_their_dtype_and_shape() -> None:
    assert value_text(np.zeros((100, 30), np.float32)) == "float32 [100, 30], 3,000 elements"
    assert value_text(np.array([1.5, 2.0], np.float32)) == "[1.5, 2.0]"
    assert value_text(tuple(range(20))).endswith("15] and 4 more")
    assert len(value_text(b"x" * 1_000_000)) < 400
    assert value_text(b"text") == "'text'"


def test_long_tables_are_capped() -> None:
    functions = [FunctionSummary(f"f{i}", 1) for i in range(1_500)]
    page = graph_page("many", [], GraphSummary(**{**fields(SUMMARY), "functions": functions}))
    assert "Functions (1,500)" in page
    assert "... and 500 more" in page
    assert "f1200" not in page


def fields(summary: GraphSummary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in GraphSummary.__slots__}
