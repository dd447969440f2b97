"""Loops over several devices: the cases of TensorFlow's graph_partition_test.cc that are loops, and more.

What must hold of any partitions (tests/partition/partitioning.py) holds of all of these: a Recv runs in the frame that
its Send runs in, and waits for something that runs there in each iteration.
"""

from __future__ import annotations

import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.pruning.prune import ClientGraph
from tests.graph.testing_ops import load
from tests.oracle.oracle_case import ALL_CASES, OracleCase
from tests.partition.partitioning import channel, client_graph, never_dead, split, text_of
from tests.partition.scatter import scattered

SIMPLE = """
    A1: Const[true]
    A2: Enter[frame_name='foo'](A1)
    A3: Merge(A2, A5)
    A4: LoopCond(A3)
    B1: Identity(A3)
    A5: NextIteration(B1)
"""
SIMPLE_1 = """
    A1: Const[true]
    B2: Enter[frame_name='foo'](A1)
    A3: Merge(B2, B5)
    A4: LoopCond(A3)
    B1: Identity(A3)
    B5: NextIteration(B1)
"""
FULL = """
    A1: Const[1]
    A2: Const[2]
    A3: Enter[frame_name='full'](A1)
    A4: Enter[frame_name='full'](A2)
    A5: Merge(A3, A15)
    A6: Merge(A4, A16)
    A7: Const[10](^A5)
    A8: Less(A5, A7)
    A9: LoopCond(A8)
    A10: Switch(A5, A9)
    A11: Switch(A6, A9)
    A12: Identity(A10:1)
    A13: Identity(A11:1)
    B14: AddN(A12, A13)
    A15: NextIteration(B14)
    A16: NextIteration(A13)
    A17: Exit(A10)
    A18: Exit(A11)
"""
NESTED = """
    A1: Const[true]
    A2: Enter[frame_name='outer'](A1)
    A3: Merge(A2, A12)
    A4: LoopCond(A3)
    A5: Switch(A3, A4)
    A6: Enter[frame_name='inner', parallel_iterations=3](A5:1)
    A7: Merge(A6, A10)
    A8: LoopCond(A7)
    A9: Switch(A7, A8)
    B1: Identity(A9:1)
    A10: NextIteration(B1)
    A11: Exit(A9)
    A12: NextIteration(A11)
    A13: Exit(A5)
"""


def control_loop_ops(part: PartitionedGraph) -> set[str]:
    return {node.op for node in part.graph.nodes if node.name.startswith("_cloop")}


def devices_of(parts: dict[str, PartitionedGraph]) -> dict[str, str]:
    return {node.name: device for device, part in parts.items() for node in part.graph.nodes}


def test_a_loop_simple() -> None:
    parts = split(SIMPLE)
    condition, value = channel("edge_0_A4", "A", "B"), channel("edge_1_A3", "A", "B")
    back = channel("edge_2_B1", "B", "A")
    assert text_of(parts["A"]) == [
        "A5/_5: Const[[]]",
        "_cloopA5/_6: Enter[frame_name='foo'](A5/_5)",
        "_cloopA5/_7: Merge(_cloopA5/_6, _cloopA5/_9)",
        "A1: Const[true]",
        "A2: Enter[frame_name='foo'](A1)",
        "A3: Merge(A2, A5)",
        "A4: LoopCond(A3)",
        f"A4/_10: _Send[{condition}](A4)",
        "_cloopA5/_8: Switch(_cloopA5/_7, A4)",
        "_cloopA5/_9: NextIteration(_cloopA5/_8:1)",
        f"A3/_12: _Send[{value}](A3)",
        f"B1/_15: _Recv[tensor_type=bool, {back}](^_cloopA5/_7)",
        "A5: NextIteration(B1/_15)",
    ]
    assert text_of(parts["B"]) == [
        "B1/_0: Const[[]]",
        "_cloopB1/_1: Enter[frame_name='foo'](B1/_0)",
        "_cloopB1/_2: Merge(_cloopB1/_1, _cloopB1/_4)",
        f"A4/_11: _Recv[tensor_type=bool, {condition}](^_cloopB1/_2)",
        "_cloopB1/_3: Switch(_cloopB1/_2, A4/_11)",
        "_cloopB1/_4: NextIteration(_cloopB1/_3:1)",
        f"A3/_13: _Recv[tensor_type=bool, {value}](^_cloopB1/_2)",
        "B1: Identity(A3/_13)",
        f"B1/_14: _Send[{back}](B1)",
    ]


@pytest.mark.parametrize("text", [SIMPLE, SIMPLE_1, FULL], ids=["Simple", "Simple1", "Full"])
def test_each_device_has_a_control_loop(text: str) -> None:
    parts = split(text)
    assert set(parts) == {"A", "B"}
    for part in parts.values():
        assert control_loop_ops(part) == {"Enter", "Merge", "Switch", "NextIteration"}
        assert all(node.control_inputs for node in part.graph.nodes if node.op == "_Recv")


def test_enter_and_next_iteration_are_with_their_merge() -> None:
    lines = text_of(split(SIMPLE_1)["A"])
    assert "A3: Merge(B2, B5)" in lines
    assert "B2: Enter[frame_name='foo'](A1)" in lines


def test_switch_and_exit_are_with_the_value() -> None:
    parts = split("A1: Const[true]\nA2: Const[1]\nB1: Switch(A2, A1)\nC1: Identity(B1)\nC2: Identity(B1:1)")
    assert devices_of(parts)["B1"] == "A"
    assert devices_of(split(FULL.replace("A17", "B17")))["B17"] == "A"


def test_no_enter_is_left_alone() -> None:
    parts = split(SIMPLE + "C2: Enter[frame_name='foo', is_constant=true](A1)\nB2: Const[true](^C2)\n", targets="B2 A4")
    assert devices_of(parts)["C2"] == "B"
    assert set(parts) == {"A", "B"}


def test_a_device_that_all_has_gone_from_has_no_partition() -> None:
    whole = client_graph("A1: Const[true]\nA2: Const[1]\nB1: Switch(A2, A1)\nA3: Identity(B1)")
    parts = split(whole, devices=("A", "B"))
    assert {device: part.graph.nodes for device, part in parts.items()} == {"A": whole.nodes}


def test_a_switch_of_a_fed_value_stays() -> None:
    text = "A1: Const[true]\nA2: Placeholder[int32]\nB1: Switch(A2, A1)\nB2: Identity(B1)"
    assert devices_of(split(text, feeds="A2:0", targets="B2"))["B1"] == "B"


def test_what_is_never_dead_is_known() -> None:
    plain = "A1: Const[1]\nB1: Identity(A1)\nA2: Const[2](^B1)"
    assert len(never_dead(split(plain))) == 2
    switched = "A1: Const[true]\nA2: Const[1]\nA3: Switch(A2, A1)\nB1: Identity(A3)\nB2: Identity(A2)"
    assert not never_dead(split(switched))  # it takes no closer look at who comes after the Switch


def test_switches_of_loops_let_nothing_outside_die() -> None:
    parts = split(f"{FULL.replace('B14', 'A14')}\nB19: Identity(A17)")
    assert never_dead(parts) == {"edge_0_A17"}
    assert not any("A17" not in edge for edge in never_dead(split(FULL)))  # what crosses inside of it may be dead


def test_a_loop_that_is_on_one_device_has_no_control_loop() -> None:
    parts = split(f"{FULL.replace('B14', 'A14')}\nB19: Identity(A17)")
    assert not any(control_loop_ops(part) for part in parts.values())
    assert text_of(parts["B"]) == [
        f"A17/_1: _Recv[tensor_type=int32, {channel('edge_0_A17', 'A', 'B')}]",
        "B19: Identity(A17/_1)",
    ]


def test_the_control_loop_of_an_inner_loop_stands_in_that_of_the_outer_one() -> None:
    parts = split(NESTED)
    assert text_of(parts["B"])[:5] == [
        "B1/_0: Const[[]]",
        "_cloopB1/_1: Enter[frame_name='outer'](B1/_0)",
        "_cloopB1/_2: Merge(_cloopB1/_1, _cloopB1/_4)",
        "_cloopB1/_5: Enter[frame_name='inner', parallel_iterations=3](_cloopB1/_2)",
        "_cloopB1/_6: Merge(_cloopB1/_5, _cloopB1/_8)",
    ]
    waits_for = {line.partition(":")[0]: line.rpartition("(")[2] for line in text_of(parts["B"]) if "_Recv" in line}
    assert waits_for == {"A4/_19": "^_cloopB1/_2)", "A8/_21": "^_cloopB1/_6)", "A9/_23": "^_cloopB1/_6)"}


def test_three_devices_have_a_control_loop_each() -> None:
    parts = split(FULL.replace("A8", "C8"))
    assert set(parts) == {"A", "B", "C"}
    assert all(control_loop_ops(part) for part in parts.values())


def test_what_depends_on_constants_of_the_loop_alone_is_sent_in_each_iteration() -> None:
    text = SIMPLE.replace("B1: Identity(A3)", "A6: LogicalAnd(A3, B3)").replace("(B1)", "(A6)")
    parts = split(f"{text}\nA7: Const[true]\nB2: Enter[frame_name='foo', is_constant=true](A7)\nB3: Identity(B2)")
    assert control_loop_ops(parts["B"]) == {"Enter", "Merge", "Switch", "NextIteration"}
    assert {"B2", "B3"} <= set(devices_of({"B": parts["B"]}))


def test_what_is_entered_once_is_entered_on_each_device_that_takes_it() -> None:
    text = SIMPLE + "B2: LogicalNot(A2)\nB3: Identity(B4)\nB4: Merge(A2, A5)\n"
    parts = split(text)
    made = {node.op: node for node in parts["B"].graph.nodes if node.name.startswith(("A2/_", "A5/_"))}
    sources = {node.name: [tensor.op for tensor in node.inputs] for node in parts["B"].graph.nodes}
    assert set(made) >= {"Enter", "NextIteration"}
    assert sources["B4"] == [made["Enter"], made["NextIteration"]]
    assert sources["B2"] == [made["Enter"]]
    assert [source.op for source in sources[made["Enter"].name]] == ["_Recv"]


def test_a_control_edge_from_an_enter_is_one_from_an_enter_here() -> None:
    parts = split(SIMPLE + "B2: Const[true](^A2)\nB3: LogicalAnd(B2, B1)\n")
    (constant,) = [node for node in parts["B"].graph.nodes if node.name == "B2"]
    assert [control.op for control in constant.control_inputs] == ["Enter"]


def test_enters_in_a_long_row_are_entered_elsewhere_too() -> None:
    depth = 3000
    chain = "\n".join(f"A{i}: Enter[frame_name='f{i}', is_constant=true](A{i - 1})" for i in range(1, depth))
    parts = split(f"A0: Const[1]\n{chain}\nA: Neg(A{depth - 1})\nB: Neg(A{depth - 1})", targets="A B")
    assert len([node for node in parts["B"].graph.nodes if node.op == "Enter"]) == depth - 1 + depth - 1


def test_a_frame_with_a_single_iteration_needs_no_loop_cond() -> None:
    parts = split("A1: Const[1]\nA2: Enter[frame_name='f'](A1)\nA3: Neg(A2)\nB1: Neg(A3)\nB2: Exit(B1)\nB3: Neg(B2)")
    edge = channel("edge_0_A3", "A", "B")
    assert text_of(parts["B"]) == [
        "B1/_0: Const[[]]",
        "_cloopB1/_1: Enter[frame_name='f'](B1/_0)",
        f"A3/_5: _Recv[tensor_type=int32, {edge}](^_cloopB1/_1)",
        "B1: Neg(A3/_5)",
        "B2: Exit(B1)",
        "B3: Neg(B2)",
    ]


def test_a_loop_without_a_loop_cond_is_refused() -> None:
    text = SIMPLE.replace("LoopCond", "Identity")
    with pytest.raises(InvalidArgumentError, match="A cross-device loop must have a pivot predicate: foo"):
        split(text)


def test_a_merge_of_two_frames_is_refused() -> None:
    graph = load(SIMPLE + "A6: Const[true]\nA7: Enter[frame_name='bar'](A6)\nA8: NextIteration(A7)\n")
    merge = graph.operation("A3")
    merge.inputs = (merge.inputs[0], graph["A8:0"])
    whole = ClientGraph(tuple(graph.operations), (), (), ())
    with pytest.raises(InvalidArgumentError, match=r"A3}} has inputs from different frames.*frame 'bar'"):
        split(whole)


def test_a_copied_merge_keeps_its_properties() -> None:
    whole = client_graph(FULL)
    original = {node.name: node for node in whole.nodes}
    for node in split(whole)["A"].graph.nodes:
        if node.name in original:
            assert node.properties is original[node.name].properties
            assert node.output_shapes == original[node.name].output_shapes


def test_control_loops_know_their_shapes() -> None:
    (merge,) = [n for n in split(SIMPLE)["B"].graph.nodes if n.op == "Merge" and n.name.startswith("_cloop")]
    assert [(tensor.dtype.name, str(tensor.shape)) for tensor in merge.outputs] == [("float32", "[0]"), ("int32", "[]")]


WITH_LOOPS = [case for case in ALL_CASES if "LoopCond" in case.meta["op_types"] and case.family != "error"]


@pytest.mark.parametrize("case", WITH_LOOPS, ids=lambda case: case.name)
def test_loops_of_tensorflow_over_three_devices(case: OracleCase) -> None:
    graph = case.load()
    for run in case.meta["runs"]:
        fetches = " ".join(spec["tensor"] for spec in run["fetches"] or ())
        whole = client_graph(graph, " ".join(run["feeds"]), fetches, " ".join(run["targets"]))
        for seed in range(3):
            parts = split(whole, device_of=scattered(whole.nodes, seed))
            assert sum(len(part.fetch_indices) for part in parts.values()) == len(whole.fetches)
            nodes: list[Node] = [node for part in parts.values() for node in part.graph.nodes]
            assert {node.name for node in whole.nodes} <= {node.name for node in nodes}
