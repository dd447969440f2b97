"""Whole graphs with feeds and fetches by either medium, text in and text expected.

The cases of TensorFlow's subgraph_test.cc (13), whose "function convention" is the call frame here.
"""

from __future__ import annotations

from typing import Final

import pytest

from asyncexec.framework.cooperative import STRIDE, run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_text import graph_text
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.pruning.feed_fetch_rewrite import ChannelDevices, RewrittenGraph, rewrite_feeds_and_fetches
from tests.case_table import missing_tests
from tests.graph.testing_ops import load
from tests.partition.partitioning import INCARNATIONS, channel, client_graph, split, text_of
from tests.pruning.test_prune import CHAIN, MODEL

TENSORFLOWS: Final = {
    "Targets1": "test_nodes_as_in_tensorflow",
    "Targets2": "test_nodes_as_in_tensorflow",
    "FedOutputs1": "test_a_feed_by_the_rendezvous",
    "FedOutputs1_FunctionConvention": "test_a_feed_by_the_call_frame",
    "FedRefNode": "test_a_fed_reference_becomes_a_value",
    "FedRefNode_FunctionConvention": "test_a_fed_reference_becomes_a_value",
    "FedOutputs2_FunctionConvention": "test_nodes_as_in_tensorflow",
    "FetchOutputs1": "test_nodes_as_in_tensorflow",
    "FetchOutputs1_FunctionConvention": "test_nodes_as_in_tensorflow",
    "FetchOutputs2": "test_fetches_by_the_rendezvous",
    "FetchOutputs2_FunctionConvention": "test_nodes_as_in_tensorflow",
    "ChainOfFools": "test_chain_of_fools",
    "Errors: both fed and fetched": "test_a_tensor_that_is_both_fed_and_fetched",
    "Errors: feed not found": "tests.session.test_feeds:test_keys_that_cannot_be_fed",
    "Errors: fetch not found": "tests.session.test_fetches:test_what_cannot_be_fetched",
    "Errors: target not found": "tests.session.test_direct_session:test_target_that_is_none",
    "Errors: no target": "as in TensorFlow's Python, a run of nothing gives nothing: its client refuses it in C++ only",
}


def test_every_case_of_tensorflow_has_a_test() -> None:
    assert missing_tests(TENSORFLOWS, __name__) == []


def rewritten(graph: Graph | str, feeds: str = "", fetches: str = "", targets: str = "") -> RewrittenGraph:
    """The signature on device A, with its client on C."""
    devices = ChannelDevices("C", lambda tensor: "A", lambda node: "A", INCARNATIONS.__getitem__)
    return run_at_once(rewrite_feeds_and_fetches(client_graph(graph, feeds, fetches, targets), devices))


def by_rendezvous(graph: Graph | str, feeds: str = "", fetches: str = "", targets: str = "") -> list[str]:
    return text_of(PartitionedGraph("A", rewritten(graph, feeds, fetches, targets).graph, (), ()))


def by_call_frame(graph: Graph | str, feeds: str = "", fetches: str = "", targets: str = "") -> list[str]:
    (part,) = split(graph, feeds, fetches, targets, device_of=lambda node: "A").values()
    return text_of(part)


def recv(name: str) -> str:
    return f"_Recv[tensor_type=float32, {channel(name, 'C', 'A')}, client_terminated=true]"


def send(name: str) -> str:
    return f"_Send[{channel(name, 'A', 'C')}, client_terminated=true]"


@pytest.mark.parametrize(
    ("feeds", "fetches", "targets", "rendezvous", "call_frame"),
    [
        ("", "", "t1", "W1 input t1", "W1 input t1"),
        ("", "", "t2 t3_a", "W1 W2 input t1 t2 t3_a", "W1 W2 input t1 t2 t3_a"),
        ("input:1", "", "t2", "_recv_input_1 W1 W2 t1 t2", "_arg_input_1_0 W1 W2 t1 t2"),
        ("input:1 t1:0 W2:0", "", "t2", "_recv_t1_0 _recv_W2_0 t2", "_arg_t1_0_1 _arg_W2_0_2 t2"),
        (
            "",
            "W2:0 input:1 t1:0 t2:0",
            "t2",
            "W1 W2 input t1 t2 _send_W2_0 _send_input_1 _send_t1_0 _send_t2_0",
            "W1 W2 input t1 t2 _retval_W2_0_0 _retval_input_1_1 _retval_t1_0_2 _retval_t2_0_3",
        ),
        ("", "t3_a:0", "t2", "W1 W2 input t1 t2 t3_a _send_t3_a_0", "W1 W2 input t1 t2 t3_a _retval_t3_a_0_0"),
    ],
)
def test_nodes_as_in_tensorflow(feeds: str, fetches: str, targets: str, rendezvous: str, call_frame: str) -> None:
    for made, expected in ((by_rendezvous, rendezvous), (by_call_frame, call_frame)):
        assert [line.partition(":")[0] for line in made(MODEL, feeds, fetches, targets)] == expected.split()


def test_a_feed_by_the_rendezvous() -> None:
    assert by_rendezvous(MODEL, "input:1", "", "t2") == [
        f"_recv_input_1: {recv('input:1')}",
        "W1: TestParams",
        "W2: TestParams",
        "t1: TestMul(W1, _recv_input_1)",
        "t2: TestMul(W2, t1)",
    ]


def test_a_feed_by_the_call_frame() -> None:
    assert by_call_frame(MODEL, "input:1", "", "t2") == [
        "_arg_input_1_0: _Arg[T=float32, index=0]",
        "W1: TestParams",
        "W2: TestParams",
        "t1: TestMul(W1, _arg_input_1_0)",
        "t2: TestMul(W2, t1)",
    ]


def test_fetches_by_the_rendezvous() -> None:
    assert by_rendezvous(MODEL, "", "t3_a:0", "t2")[-3:] == [
        "t2: TestMul(W2, t1)",
        "t3_a: TestRelu(t2)",
        f"_send_t3_a_0: {send('t3_a:0')}(t3_a)",
    ]


def test_a_fed_reference_becomes_a_value() -> None:
    graph = "W1: VariableV2[shape=[], dtype=float32]\nW2: TestParams\nt1: TestMul(W2, W1)"
    assert by_rendezvous(graph, "W1:0", "", "t1") == [
        f"_recv_W1_0: {recv('W1:0')}",
        "W2: TestParams",
        "t1: TestMul(W2, _recv_W1_0)",
    ]
    (node,) = (node for node in rewritten(graph, "W1:0", "", "t1").recvs if node is not None)
    assert not node.outputs[0].dtype.is_ref
    assert by_call_frame(graph, "W1:0", "", "t1")[0] == "_arg_W1_0_0: _Arg[T=float32, index=0]"


def test_chain_of_fools() -> None:
    """A feed in the middle of a chain, a fetch on either side of it."""
    assert by_rendezvous(CHAIN, "c:0", "b:0 e:0") == [
        f"_recv_c_0: {recv('c:0')}",
        "a: TestParams",
        "b: TestRelu(a)",
        "d: TestRelu(_recv_c_0)",
        "e: TestRelu(d)",
        f"_send_b_0: {send('b:0')}(b)",
        f"_send_e_0: {send('e:0')}(e)",
    ]
    assert by_call_frame(CHAIN, "c:0", "b:0 e:0") == [
        "_arg_c_0_0: _Arg[T=float32, index=0]",
        "a: TestParams",
        "b: TestRelu(a)",
        "d: TestRelu(_arg_c_0_0)",
        "e: TestRelu(d)",
        "_retval_b_0_0: _Retval[index=0](b)",
        "_retval_e_0_1: _Retval[index=1](e)",
    ]


def test_a_tensor_that_is_both_fed_and_fetched() -> None:
    """An error of the stage; a session hands the value back, as TensorFlow's does, and does not ask the stage."""
    with pytest.raises(InvalidArgumentError, match="c:0 is both fed and fetched"):
        rewritten(load(CHAIN), "c:0", "b:0 c:0")


def test_what_waits_for_a_fed_placeholder_waits_for_its_recv() -> None:
    graph = "x: Placeholder[float32]\nw: TestParams(^x)\ny: TestRelu(w)"
    assert by_rendezvous(graph, "x:0", "y:0")[:3] == [
        f"_recv_x_0: {recv('x:0')}",
        "w: TestParams(^_recv_x_0)",
        "y: TestRelu(w)",
    ]


def test_what_waits_for_any_other_fed_node_waits_for_the_node() -> None:
    graph = "x: TestParams\nw: TestParams(^x)\ny: TestMul(w, x)"
    assert by_rendezvous(graph, "x:0", "y:0")[:4] == [
        f"_recv_x_0: {recv('x:0')}",
        "x: TestParams",
        "w: TestParams(^x)",
        "y: TestMul(w, _recv_x_0)",
    ]


LOOP: Final = """
    i: Placeholder[int32, []]
    e: Enter[frame_name='w'](i)
    m: Merge(e, n)
    ten: Const[10](^m)
    l: Less(m, ten)
    c: LoopCond(l)
    s: Switch(m, c)
    one: Const[1](^m)
    a: Add(s:1, one)
    n: NextIteration(a)
    x: Exit(s)
"""


def test_the_back_edge_of_a_loop_comes_from_the_copy() -> None:
    found = rewritten(LOOP, "i:0", "x:0").graph
    nodes = {node.name: node for node in found.nodes}
    assert len(nodes) == len(found.nodes)
    assert [tensor.op for tensor in nodes["m"].inputs] == [nodes["e"], nodes["n"]]
    for node in found.nodes:
        assert all(tensor.op is nodes[tensor.op.name] for tensor in node.inputs), node
        assert all(control is nodes[control.name] for control in node.control_inputs), node


def test_what_takes_a_feed_inside_of_a_loop_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'s:1' is fed, but 'a', which takes it, is inside a loop"):
        rewritten(LOOP, "i:0 s:1", "x:0")


def test_what_wants_a_reference_takes_no_feed() -> None:
    graph = "v: VariableV2[shape=[], dtype=float32]\nw: TestParams\na: Assign(v, w)"
    with pytest.raises(InvalidArgumentError, match="takes a reference to a variable, but a value is fed for 'v:0'"):
        rewritten(graph, "v:0", "", "a")


@pytest.mark.parametrize(
    ("feeds", "fetches", "targets", "kept"),
    [("", "t3_a:0", "t3_b", "W1 W2 input t1 t2 t3_a t3_b"), ("t1:0", "", "t3_a", "W2"), ("W1:0", "W2:0", "", "W2")],
)
def test_the_users_graph_stays_as_it_is(feeds: str, fetches: str, targets: str, kept: str) -> None:
    """What has no fed tensor upstream is the user's own node; copies are in no graph."""
    graph = load(MODEL)
    before = graph_text(graph)
    found = rewritten(graph, feeds, fetches, targets)
    assert graph_text(graph) == before
    own = [node.name for node in found.graph.nodes if graph.find_operation(node.name) is node]
    assert own == kept.split()


def test_ends_are_listed_by_feed_and_fetch() -> None:
    found = rewritten(MODEL, "W1:0 t2:0", "t3_b:0 t3_a:0", "t3_b")
    assert [node and node.name for node in found.recvs] == [None, "_recv_t2_0"]
    assert [node.name for node in found.sends] == ["_send_t3_b_0", "_send_t3_a_0"]
    assert [node.name for node in found.graph.targets] == ["t3_b", "_send_t3_b_0", "_send_t3_a_0"]
    assert set(found.graph.targets) <= set(found.graph.nodes)
    assert {found.devices[node] for node in found.graph.nodes} == {"A"}


def test_others_get_turns_meanwhile() -> None:
    chain = "n0: TestParams\n" + "\n".join(f"n{i}: TestRelu(n{i - 1})" for i in range(1, 10 * STRIDE))
    devices = ChannelDevices("C", lambda tensor: "A", lambda node: "A", INCARNATIONS.__getitem__)
    graph = client_graph(chain, "n0:0", f"n{10 * STRIDE - 1}:0")
    assert len(list(rewrite_feeds_and_fetches(graph, devices))) >= 9
