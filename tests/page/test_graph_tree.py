"""The boxes that nodes are drawn in: name scopes, loops, devices, and parts of what is too many."""

from __future__ import annotations

from typing import Any

from asyncexec.page.graph_nodes import ShownNode, Source
from asyncexec.page.graph_tree import MAX_CHILDREN, Box, boxes_of, loops_of


def node(name: str, op: str = "Neg", inputs: list[int] | None = None, device: str = "", frame: str = "") -> ShownNode:
    sources = [Source(position, 0) for position in inputs or []]
    return ShownNode(name, op, device, sources, {"frame_name": frame.encode()} if frame else {})


def as_text(box: Box, nodes: list[ShownNode]) -> list[Any]:
    return [
        nodes[child].name if isinstance(child, int) else [f"{child.kind} {child.label}", *as_text(child, nodes)]
        for child in box.children
    ]


def boxed(*nodes: ShownNode) -> list[Any]:
    return as_text(boxes_of(nodes), list(nodes))


def loop(scope: str = "while/", outside: str = "x") -> list[ShownNode]:
    """A loop with one variable, whose nodes are in *scope*."""
    return [
        node(outside, "Placeholder"),
        node(f"{scope}enter", "Enter", [0], frame="frame"),
        node(f"{scope}merge", "Merge", [1, 4]),
        node(f"{scope}switch", "Switch", [2]),
        node(f"{scope}next", "NextIteration", [3]),
        node(f"{scope}exit", "Exit", [3]),
        node("y", "Neg", [5]),
    ]


def test_nodes_that_share_a_name_scope_share_a_box() -> None:
    assert boxed(node("a"), node("s/b"), node("s/t/c"), node("s/t/d"), node("u/e"), node("u/f")) == [
        "a",
        ["scope s", "s/b", ["scope t", "s/t/c", "s/t/d"]],
        ["scope u", "u/e", "u/f"],
    ]


def test_a_scope_with_a_single_thing_in_it_is_no_box() -> None:
    assert boxed(node("a/b/c/one"), node("a/b/c/two"), node("z/alone")) == [
        ["scope a/b/c", "a/b/c/one", "a/b/c/two"],
        "z/alone",
    ]


def test_a_loop_is_a_box_where_the_scope_of_its_nodes_is() -> None:
    inside = ["while/enter", "while/merge", "while/switch", "while/next", "while/exit"]
    assert boxed(*loop()) == ["x", ["loop frame", *inside], "y"]
    nested = [f"outer/{name}" for name in inside]
    assert boxed(*loop("outer/while/", "outer/x")) == [["scope outer", "outer/x", ["loop frame", *nested]], "y"]


def test_what_comes_out_of_a_loop_is_outside_of_it() -> None:
    assert loops_of(loop()) == [(), ("frame",), ("frame",), ("frame",), ("frame",), ("frame",), ()]


def test_a_loop_in_a_loop_is_a_box_in_a_box() -> None:
    nodes = [
        node("x", "Placeholder"),
        node("o/enter", "Enter", [0], frame="outer"),
        node("o/merge", "Merge", [1]),
        node("o/i/enter", "Enter", [2], frame="inner"),
        node("o/i/merge", "Merge", [3]),
        node("o/i/exit", "Exit", [4]),
        node("o/exit", "Exit", [5]),
    ]
    assert boxed(*nodes) == [
        "x",
        ["loop outer", "o/enter", "o/merge", ["loop inner", "o/i/enter", "o/i/merge", "o/i/exit"], "o/exit"],
    ]


def test_loops_of_a_graph_that_makes_no_sense_end() -> None:
    nodes = [
        node("a", "Enter", [1], frame="f"),
        node("b", "Enter", [0], frame="g"),
        node("c", "Exit", []),
        node("d", "Neg", [2]),
    ]
    assert loops_of(nodes) == [(), (), (), ()]
    deep = [node("n0", "Placeholder"), *(node(f"n{i}", "Enter", [i - 1], frame=f"f{i}") for i in range(1, 5_000))]
    assert max(map(len, loops_of(deep))) <= 64
    assert boxes_of(deep).children


def test_devices_are_the_outermost_boxes_where_there_are_several() -> None:
    assert boxed(node("s/a", device="/cpu:0"), node("s/b", device="/gpu:0"), node("s/c", device="/cpu:0")) == [
        ["device /cpu:0", ["scope s", "s/a", "s/c"]],
        ["device /gpu:0", "s/b"],
    ]
    assert boxed(node("a", device="/cpu:0"), node("b", device="/cpu:0")) == ["a", "b"]


def test_too_many_children_are_put_in_parts() -> None:
    total = MAX_CHILDREN * MAX_CHILDREN + 1
    nodes = [node(f"n{i}") for i in range(total)]
    root = boxes_of(nodes)
    assert [child.label for child in root.children if isinstance(child, Box)] == ["1 to 40,000", "40,001 to 40,001"]
    found: list[int] = []
    ahead = [root]
    for box in ahead:
        assert len(box.children) <= MAX_CHILDREN
        ahead += [child for child in box.children if isinstance(child, Box)]
        found += [child for child in box.children if isinstance(child, int)]
    assert sorted(found) == list(range(total))


def test_a_name_with_any_number_of_scopes_has_a_place() -> None:
    deep = "/".join("abc"[i % 3] for i in range(5_000))
    root = boxes_of([node(f"{deep}/x"), node(f"{deep}/y")])
    assert [child.kind for child in root.children if isinstance(child, Box)] == ["scope"]
