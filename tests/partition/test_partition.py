"""Partitions of whole graphs, text in and text expected.

The cases of TensorFlow's graph_partition_test.cc (15) and partitioning_utils_test.cc (4 kinds) and their tests here; a
node whose device is not written is on the one that its first letter names, as there.

=============================  =======================================================================================
SingleDevice, OneDevice        test_one_device_gets_the_graph_itself
CrossDeviceData                test_a_value_crosses
CrossDeviceControl             test_a_control_edge_crosses_as_an_empty_constant
CrossDeviceData_MultiUse       test_a_value_crosses_once_for_all_who_take_it
CrossDeviceControl_MultiUse    test_a_control_edge_crosses_once_for_all_who_wait
CrossDevice_DataControl        test_value_and_control_edge_cross_apart
CrossDeviceLoopSimple, ...     test_control_loop.py (three cases)
PartitionIncompleteGraph       test_an_incomplete_graph_is_refused
Functions                      test_each_partition_has_the_functions_that_it_reaches
SetIncarnation                 test_sends_and_recvs_of_the_users_get_the_incarnation
GraphDebugInfo                 test_copies_know_the_line_that_made_them (a line, where TensorFlow keeps a whole stack)
TopologicalSort... (three)     none: a Recv has no start time, it takes what has come when it runs
GraphWithoutAssignedDevices    test_a_node_without_a_device_is_refused
TwoDevices                     test_feeds_and_fetches_stay_where_their_nodes_are
UpdateArgsAndRets              test_arguments_are_numbered_anew_in_each_partition
InsertTransferOps (two)        none: TensorFlow's transfers within one graph have no user here
=============================  =======================================================================================
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.cooperative import STRIDE, run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.types import as_dtype
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node
from asyncexec.partition.partition import partition
from asyncexec.partition.send_recv import PartitionOptions
from asyncexec.pruning.prune import ClientGraph
from tests.graph.testing_ops import load, load_def
from tests.optimization.function_text import function
from tests.optimization.function_text import load as load_functions
from tests.optimization.function_text import node as node_def
from tests.partition.partitioning import by_letter, channel, client_graph, lines, split, text_of

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "partition").glob("*.json"))
FLOAT32 = as_dtype("float32")


def test_one_device_gets_the_graph_itself() -> None:
    whole = client_graph("A1: TestParams\nA2: TestMul(A1, A1)", feeds="A1:0", fetches="A2:0 A1:0")
    for options in ({}, {"devices": ("A",)}, {"devices": ("A", "B")}):
        parts = split(whole, **options)
        assert list(parts) == ["A"]
        assert parts["A"].graph is whole
        assert (parts["A"].feed_indices, parts["A"].fetch_indices) == ((0,), (0, 1))


def test_nobody_is_asked_where_there_is_one_device() -> None:
    def device_of(node: Node) -> str:
        raise AssertionError(node)

    assert list(split("A1: TestParams", device_of=device_of, devices=("A",))) == ["A"]


def test_a_value_crosses() -> None:
    parts = split("A1: TestParams\nB1: TestParams\nB2: TestMul(A1, B1)")
    edge = channel("edge_0_A1", "A", "B")
    assert text_of(parts["A"]) == ["A1: TestParams", f"A1/_0: _Send[{edge}](A1)"]
    assert text_of(parts["B"]) == [
        "B1: TestParams",
        f"A1/_1: _Recv[tensor_type=float32, {edge}]",
        "B2: TestMul(A1/_1, B1)",
    ]


def test_a_control_edge_crosses_as_an_empty_constant() -> None:
    parts = split("A1: TestParams\nB1: TestParams\nB2: TestMul(B1, B1, ^A1)")
    edge = channel("edge_0_A1", "A", "B")
    assert text_of(parts["A"]) == [
        "A1: TestParams",
        "A1/ctrl/_0: Const[[]](^A1)",
        f"A1/_1: _Send[{edge}](A1/ctrl/_0)",
    ]
    assert text_of(parts["B"]) == [
        "B1: TestParams",
        f"A1/_2: _Recv[tensor_type=float32, {edge}]",
        "A1/_3: Identity(A1/_2)",
        "B2: TestMul(B1, B1, ^A1/_3)",
    ]


def test_a_value_crosses_once_for_all_who_take_it() -> None:
    parts = split("A1: TestParams\nB1: TestParams\nB2: TestMul(A1, B1)\nB3: TestMul(A1, A1)")
    edge = channel("edge_0_A1", "A", "B")
    assert text_of(parts["A"]) == ["A1: TestParams", f"A1/_0: _Send[{edge}](A1)"]
    assert text_of(parts["B"]) == [
        "B1: TestParams",
        f"A1/_1: _Recv[tensor_type=float32, {edge}]",
        "B2: TestMul(A1/_1, B1)",
        "B3: TestMul(A1/_1, A1/_1)",
    ]


def test_a_control_edge_crosses_once_for_all_who_wait() -> None:
    parts = split("A1: TestParams\nB1: TestParams\nB2: TestMul(B1, B1, ^A1)\nB3: TestParams(^A1)")
    assert len(parts["A"].graph.nodes) == 3
    assert text_of(parts["B"])[2:] == [
        "A1/_3: Identity(A1/_2)",
        "B2: TestMul(B1, B1, ^A1/_3)",
        "B3: TestParams(^A1/_3)",
    ]


def test_value_and_control_edge_cross_apart() -> None:
    parts = split("A1: TestParams\nB1: TestParams\nB2: TestMul(A1, B1)\nB3: TestParams(^A1)")
    value, control = channel("edge_0_A1", "A", "B"), channel("edge_1_A1", "A", "B")
    assert text_of(parts["A"]) == [
        "A1: TestParams",
        f"A1/_0: _Send[{value}](A1)",
        "A1/ctrl/_2: Const[[]](^A1)",
        f"A1/_3: _Send[{control}](A1/ctrl/_2)",
    ]
    assert text_of(parts["B"])[1:] == [
        f"A1/_1: _Recv[tensor_type=float32, {value}]",
        "B2: TestMul(A1/_1, B1)",
        f"A1/_4: _Recv[tensor_type=float32, {control}]",
        "A1/_5: Identity(A1/_4)",
        "B3: TestParams(^A1/_5)",
    ]


def test_each_slot_and_each_destination_has_a_pair_of_its_own() -> None:
    parts = split("A1: TestInput\nB1: TestMul(A1, A1:1)\nC1: TestRelu(A1:1)\nC2: TestRelu(C1)")
    assert [line for line in text_of(parts["A"]) if "_Send" in line] == [
        f"A1/_0: _Send[{channel('edge_0_A1', 'A', 'B')}](A1)",
        f"A1/_2: _Send[{channel('edge_1_A1', 'A', 'B')}](A1:1)",
        f"A1/_4: _Send[{channel('edge_2_A1', 'A', 'C')}](A1:1)",
    ]
    assert text_of(parts["C"])[1:] == ["C1: TestRelu(A1/_5)", "C2: TestRelu(C1)"]


def test_only_what_takes_something_else_is_copied() -> None:
    whole = client_graph("A1: TestParams\nA2: TestRelu(A1)\nB1: TestParams\nB2: TestMul(A2, B1)\nB3: TestRelu(B2)")
    parts = split(whole)
    original = set(whole.nodes)
    kept = {device: [node.name for node in part.graph.nodes if node in original] for device, part in parts.items()}
    assert kept == {"A": ["A1", "A2"], "B": ["B1"]}
    assert [node.id for node in parts["B"].graph.nodes if node.name == "B3"] == [4]


def test_new_names_are_not_those_of_the_graph() -> None:
    graph = load("A1: TestParams\nB2: TestRelu(A1)")
    graph.add_node("A1/_0", properties_of(op_registry.lookup("TestParams"), {}))
    names = {node.name for part in split(graph, targets="B2 A1/_0").values() for node in part.graph.nodes}
    assert names == {"A1", "A1/_0", "A1/_1", "A1/_2", "B2"}


FED = """
    Ax: Placeholder[float32, []]
    A1: TestRelu(Ax)
    By: Placeholder[float32, []]
    B1: TestMul(Ax, By)
    B2: TestParams(^Ax)
"""


def test_where_control_flow_brings_all_nodes_together_all_feeds_are_taken() -> None:
    graph = "Au: Placeholder[bool, []]\nAx: Placeholder[float32, []]\nAp: Placeholder[bool, []]\nBx: Identity(Ax)"
    parts = split(f"{graph}\nAs: Switch(Bx, Ap)", feeds="Au:0 Ax:0 Ap:0", fetches="As:1")
    assert [(part.device, part.feed_indices, part.fetch_indices) for part in parts.values()] == [("B", (0, 1, 2), (0,))]


def test_feeds_and_fetches_stay_where_their_nodes_are() -> None:
    parts = split(FED, feeds="By:0 Ax:0", fetches="A1:0 B1:0 Ax:0", targets="B2")
    assert text_of(parts["A"]) == lines("""
        _arg_Ax_0_0: _Arg[T=float32, index=0]
        A1: TestRelu(_arg_Ax_0_0)
        _retval_A1_0_0: _Retval[index=0](A1)
        _retval_Ax_0_1: _Retval[index=1](_arg_Ax_0_0)
    """)
    assert text_of(parts["B"]) == lines("""
        _arg_By_0_0: _Arg[T=float32, index=0]
        _arg_Ax_0_1: _Arg[T=float32, index=1]
        B1: TestMul(_arg_Ax_0_1, _arg_By_0_0)
        B2: TestParams(^_arg_Ax_0_1)
        _retval_B1_0_0: _Retval[index=0](B1)
    """)
    assert (parts["A"].feed_indices, parts["A"].fetch_indices) == ((1,), (0, 2))
    assert (parts["B"].feed_indices, parts["B"].fetch_indices) == ((0, 1), (1,))
    assert [node.name for node in parts["B"].graph.targets] == ["B2"]


def test_arguments_are_numbered_anew_in_each_partition() -> None:
    text = "".join(f"{d}x{i}: Placeholder[float32]\n{d}y{i}: TestRelu({d}x{i})\n" for i in range(3) for d in "AB")
    feeds = " ".join(f"{d}x{i}:0" for i in range(3) for d in "AB")
    parts = split(text, feeds=feeds, fetches=feeds.replace("x", "y"))
    assert (parts["A"].feed_indices, parts["B"].feed_indices) == ((0, 2, 4), (1, 3, 5))
    assert (parts["A"].fetch_indices, parts["B"].fetch_indices) == ((0, 2, 4), (1, 3, 5))
    numbers = [(node.op, node.attr["index"].i) for node in parts["B"].as_graph_def().node if "index" in node.attr]
    assert numbers == [("_Arg", 0), ("_Arg", 1), ("_Arg", 2), ("_Retval", 0), ("_Retval", 1), ("_Retval", 2)]


def test_the_other_output_of_a_fed_node_crosses() -> None:
    parts = split("A1: TestInput\nB1: TestMul(A1, A1:1)", feeds="A1:0", fetches="B1:0")
    assert parts["A"].feed_indices == ()
    assert text_of(parts["A"])[-1] == f"A1/_0: _Send[{channel('edge_0_A1', 'A', 'B')}](A1:1)"
    assert text_of(parts["B"])[2] == "B1: TestMul(_arg_A1_0_0, A1/_1)"


def test_a_fed_tensor_that_is_fetched_alone_has_a_partition() -> None:
    parts = split("Bx: Placeholder[float32]\nA1: TestParams", feeds="Bx:0", fetches="Bx:0 A1:0")
    assert text_of(parts["B"]) == [
        "_arg_Bx_0_0: _Arg[T=float32, index=0]",
        "_retval_Bx_0_0: _Retval[index=0](_arg_Bx_0_0)",
    ]
    assert parts["A"].fetch_indices == (1,)


def test_nothing_to_run_is_one_empty_partition() -> None:
    parts = split(ClientGraph((), (), (), ()), devices=("A", "B"))
    assert {device: part.graph.nodes for device, part in parts.items()} == {"A": ()}


def host_value(node: Node, slot: int, device: str) -> bool:
    return False


def test_feeds_and_fetches_are_on_the_first_device_whose_memory_is_the_hosts() -> None:
    whole = client_graph("A1: Placeholder[float32]\nA2: Neg(A1)\nC1: Neg(A2)", "A1:0", "A2:0", "C1")
    memory = {"own_memory": frozenset("A"), "input_on_host": host_value, "output_on_host": host_value}
    parts = split(whole, devices=("A", "B", "C"), **memory)
    assert [node.name for node in parts["B"].graph.nodes if node.op == "Identity"] == ["A1/_0", "A2/_1"]
    assert (parts["B"].feed_indices, parts["B"].fetch_indices) == ((0,), (0,))
    assert (parts["A"].feed_indices, parts["A"].fetch_indices) == ((), ())
    nothing = split(ClientGraph((), whole.feeds, (), ()), devices=("A", "B"), **memory)
    assert {device: part.feed_indices for device, part in nothing.items()} == {"B": (0,)}


def test_copies_know_the_line_that_made_them() -> None:
    whole = client_graph("A1: TestParams\nB1: TestParams\nB2: TestMul(A1, B1)")
    for number, node in enumerate(whole.nodes):
        node.source_line = ("model.py", number)
    made = {node.name: node.user_line for node in split(whole)["B"].graph.nodes}
    assert made == {"B1": "model.py:1", "A1/_1": "model.py:0", "B2": "model.py:2"}


HOST = {
    "output_on_host": lambda node, slot, device: "host" in node.name,
    "input_on_host": lambda node, slot, device: "Host" in node.name,
}


def test_host_and_device_memory_of_one_device_are_joined_by_send_and_recv() -> None:
    parts = split("A1: TestParams\nA2Host: TestRelu(A1)\nA3: TestMul(A1, A1)\nA4Host: TestRelu(A1)", **HOST)
    edge = channel("edge_0_A1", "A", "A")
    assert text_of(parts["A"]) == [
        "A1: TestParams",
        f"A1/_0: _Send[{edge}](A1)",
        f"A1/_1: _HostRecv[tensor_type=float32, {edge}](^A1/_0)",
        "A2Host: TestRelu(A1/_1)",
        "A3: TestMul(A1, A1)",
        "A4Host: TestRelu(A1/_1)",
    ]


def test_a_value_crosses_once_for_each_kind_of_memory() -> None:
    parts = split("Ahost: TestParams\nB1: TestRelu(Ahost)\nB2Host: TestRelu(Ahost)\nB3: TestMul(Ahost, B1)", **HOST)
    ops = {device: Counter(node.op for node in part.graph.nodes) for device, part in parts.items()}
    assert ops["A"] == {"TestParams": 1, "_HostSend": 2}
    assert ops["B"] == {"TestRelu": 2, "TestMul": 1, "_Recv": 1, "_HostRecv": 1}


VARIABLE = """
    Av: VariableV2[shape=[], dtype=float32]
    Aone: Const[1.0]
    Aset: AssignAdd(Av, Aone)
    B1: Neg(Av, ^Aset)
    B2: Neg(Av)
"""


def test_a_variable_is_read_for_each_reader_after_what_comes_before_it() -> None:
    parts = split(VARIABLE)
    sends = [line for line in text_of(parts["A"]) if "_Send" in line and "(Av" in line]
    assert sends == [
        f"Av/_0: _Send[{channel('edge_0_Av', 'A', 'B')}](Av, ^Aset)",
        f"Av/_6: _Send[{channel('edge_2_Av', 'A', 'B')}](Av)",
    ]
    assert [node.attrs["tensor_type"] for node in parts["B"].graph.nodes if node.op == "_Recv"] == [FLOAT32] * 3


def test_a_reference_does_not_cross() -> None:
    with pytest.raises(InvalidArgumentError, match=r"takes a reference to variable 'Av:0', which is on 'A'") as caught:
        split("Av: VariableV2[shape=[], dtype=float32]\nAone: Const[1.0]\nB1: AssignAdd(Av, Aone)")
    assert caught.value.node == "B1"
    assert "colocate_with('Av')" in str(caught.value)


def test_a_node_without_a_device_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'A1' has no device") as caught:
        split("A1: TestParams", device_of=lambda node: "", devices=("A", "B"))
    assert "A, B" in str(caught.value)


def test_an_incomplete_graph_is_refused() -> None:
    graph = Graph()
    lacking = Node(graph, "A1", properties_of(op_registry.lookup("TestMul"), {}), ())
    with pytest.raises(InvalidArgumentError, match="Incomplete graph, missing 2 inputs for A1"):
        split(ClientGraph((lacking,), (), (), (lacking,)))


@pytest.mark.parametrize("text", ["A1: TestParams\nB1: TestRelu(A1)", "A1: TestParams\nB1: TestParams(^A1)"])
def test_an_input_that_is_neither_run_nor_fed_is_refused(text: str) -> None:
    whole = client_graph(f"{text}\nC1: TestParams")
    with pytest.raises(InvalidArgumentError, match="missing input 'A1' of 'B1'"):
        split(ClientGraph(whole.nodes[1:], (), (), whole.targets))


def channel_node(graph: Graph, name: str, op: str, *inputs: Any, **attrs: Any) -> Node:
    """A Send or Recv, which no graph can import."""
    dtype = {"T": FLOAT32} if "Send" in op else {"tensor_type": FLOAT32}
    known = {"tensor_name": b"t", "send_device": b"A", "send_device_incarnation": 0, "recv_device": b"B"}
    return graph.add_node(name, properties_of(op_registry.lookup(op), {**dtype, **known, **attrs}), inputs)


@pytest.mark.parametrize("device_of", [by_letter, lambda node: "A"], ids=["two devices", "one device"])
def test_sends_and_recvs_of_the_users_get_the_incarnation(device_of: Any) -> None:
    graph = load("A1: TestParams")
    channel_node(graph, "A2", "_Send", graph["A1:0"])
    channel_node(graph, "B1", "_Recv")
    parts = split(graph, targets="A2", fetches="B1:0", device_of=device_of)
    found = {node.name: node.attrs for part in parts.values() for node in part.graph.nodes}
    assert (found["A2"]["send_device_incarnation"], found["B1"]["send_device_incarnation"]) == (100, 100)


@pytest.mark.parametrize("devices", [("A", "B"), ("A",)])
def test_a_recv_whose_send_does_not_run_is_refused(devices: tuple[str, ...]) -> None:
    graph = load("A1: TestParams")
    channel_node(graph, "A2", "_Send", graph["A1:0"])
    channel_node(graph, "B1", "_Recv")
    with pytest.raises(InvalidArgumentError, match=r"_Recv 'B1' waits for the key 'A;0000000000000064;B;t'") as caught:
        split(graph, fetches="B1:0", devices=devices)
    assert caught.value.node == "B1"


def test_what_the_client_sends_needs_no_send() -> None:
    graph = Graph()
    channel_node(graph, "B1", "_Recv", client_terminated=True)
    whole = client_graph(graph, fetches="B1:0")
    assert list(run_at_once(partition(whole, by_letter, PartitionOptions()))) == ["B"]


def test_an_incarnation_of_64_bits_is_kept() -> None:
    parts = split("A1: TestParams\nB1: TestRelu(A1)", incarnations={"A": 2**64 - 2})
    (send,) = [node for node in parts["A"].graph.nodes if node.op == "_Send"]
    assert send.get_attr("send_device_incarnation") == -2


def test_each_partition_has_the_functions_that_it_reaches() -> None:
    graph = load_functions(
        node_def("A1", "Const", value=np.float32(1), dtype=FLOAT32),
        node_def("B1", "Const", value=np.float32(1), dtype=FLOAT32),
        node_def("A2", "Twice", "A1"),
        node_def("B2", "FourTimes", "B1"),
        function("Twice(x: float32) -> y: float32", node_def("d", "AddV2", "x x", T="$T"), ret="y=d:z:0"),
        function("FourTimes(x: float32) -> y: float32", node_def("t", "Twice", "x"), ret="y=t:y:0"),
        function("Unused(x: float32) -> y: float32", node_def("t", "Twice", "x"), ret="y=t:y:0"),
    )
    parts = split(graph, targets="A2 B2")
    names = {
        device: {found.signature.name for found in part.as_graph_def().library.function}
        for device, part in parts.items()
    }
    assert names == {"A": {"Twice"}, "B": {"Twice", "FourTimes"}}


def test_others_have_their_turn() -> None:
    text = "\n".join(f"{'AB'[i % 2]}{i}: TestMul({'AB'[(i - 1) % 2]}{i - 1}, B1)" for i in range(2, 1000))
    whole = client_graph(f"A0: TestParams\nB1: TestRelu(A0)\n{text}")
    stage = partition(whole, by_letter, PartitionOptions())
    assert sum(1 for _ in stage) >= 3 * (len(whole.nodes) // STRIDE)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_partitions_are_those_of_tensorflow(path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    graph = load_def(GraphDef.model_validate(golden["graph"]))
    prefix = "/job:localhost/replica:0/task:0"
    parts = split(graph, targets=golden["target"], device_of=lambda node: f"{prefix}{node.device or '/device:CPU:0'}")
    assert {device: Counter(node.op for node in part.graph.nodes) for device, part in parts.items()} == golden["counts"]
