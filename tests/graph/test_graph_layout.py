"""A picture of a graph: rows follow the data, loops go up, large graphs are folded by scope."""

from __future__ import annotations

from asyncexec.graph.graph_layout import Line, PictureNode, fold, lay_out, node_levels

DIAMOND = [
    PictureNode("x", "Placeholder"),
    PictureNode("left", "Neg", ["x"]),
    PictureNode("right", "Exp", ["x"]),
    PictureNode("far", "Log", ["right"]),
    PictureNode("y", "Add", ["left", "far"], ["x"]),
]
LOOP = [
    PictureNode("enter", "Enter"),
    PictureNode("merge", "Merge", ["enter", "next"]),
    PictureNode("switch", "Switch", ["merge", "merge"]),
    PictureNode("next", "NextIteration", ["switch"]),
    PictureNode("exit", "Exit", ["switch"]),
]


def chain(scopes: int, size: int) -> list[PictureNode]:
    names = [f"scope{i // size}/inner{i % 2}/n{i}" for i in range(scopes * size)]
    return [PictureNode(name, "Neg", names[max(i - 1, 0) : i]) for i, name in enumerate(names)]


def test_a_node_stands_below_all_it_takes_from() -> None:
    assert node_levels(DIAMOND) == {"x": 0, "left": 1, "right": 1, "far": 2, "y": 3}


def test_what_has_no_inputs_stands_right_above_the_first_that_takes_it() -> None:
    late = [*DIAMOND, PictureNode("c", "Const"), PictureNode("z", "Add", ["y", "c"])]
    assert node_levels(late)["c"] == 3


def test_the_edge_that_closes_a_loop_counts_for_nothing() -> None:
    assert node_levels(LOOP) == {"enter": 0, "merge": 1, "switch": 2, "next": 3, "exit": 3}


def test_a_cycle_without_next_iteration_still_has_a_picture() -> None:
    layout = lay_out([PictureNode("a", "Neg", ["b"]), PictureNode("b", "Neg", ["a"])])
    assert set(layout.boxes) == {"a", "b"}


def test_boxes_of_a_row_have_places_of_their_own() -> None:
    layout = lay_out(DIAMOND)
    assert len({(box.row, box.column) for box in layout.boxes.values()}) == len(DIAMOND)
    assert layout.boxes["y"].row == 3
    assert Line("x", "y", is_control=True) in layout.lines
    assert Line("x", "left", is_control=False) in layout.lines


def test_neighbours_stand_near_each_other() -> None:
    # two chains, told crosswise: a sorted row has no crossing
    layout = lay_out(
        [
            PictureNode("a0", "Const"),
            PictureNode("b0", "Const"),
            PictureNode("b1", "Neg", ["b0"]),
            PictureNode("a1", "Neg", ["a0"]),
        ]
    )
    order = [layout.boxes[name].column for name in ("a0", "b0", "a1", "b1")]
    assert order in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_few_nodes_are_not_folded() -> None:
    assert fold(DIAMOND, max_boxes=5) == {node.name: node.name for node in DIAMOND}


def test_many_nodes_are_folded_as_deep_as_the_limit_allows() -> None:
    nodes = chain(scopes=10, size=20)
    assert len(set(fold(nodes, max_boxes=20).values())) == 20
    assert set(fold(nodes, max_boxes=19).values()) == {f"scope{i}/" for i in range(10)}
    assert set(fold(nodes, max_boxes=5).values()) == {"Neg *"}


def test_a_folded_box_tells_what_is_in_it() -> None:
    layout = lay_out(chain(scopes=3, size=10), max_boxes=3)
    assert [(box.label, box.ops) for box in layout.boxes.values()] == [("10 nodes", {"Neg": 10})] * 3
    assert list(layout.lines) == [Line("scope0/", "scope1/", False), Line("scope1/", "scope2/", False)]


def test_an_empty_graph_has_an_empty_picture() -> None:
    assert lay_out([]).boxes == {}
