"""The cases of TensorFlow's subgraph_test.cc: what runs for given feeds, fetches and targets.

TensorFlow puts a node in place of each feed and behind each fetch (_Recv and _Send, or _Arg and _Retval); a ClientGraph
lists them instead.  Both conventions, and the table of the cases: test_feed_fetch_rewrite.py.
"""

from __future__ import annotations

import pytest

from asyncexec.framework.cooperative import run_at_once
from asyncexec.graph.graph import Graph
from asyncexec.pruning.prune import ClientGraph, path_to, prune
from tests.graph.testing_ops import load

MODEL = """
    W1: TestParams
    W2: TestParams
    input: TestInput
    t1: TestMul(W1, input:1)
    t2: TestMul(W2, t1)
    t3_a: TestRelu(t2)
    t3_b: TestRelu(t2)
"""
CHAIN = """
    a: TestParams
    b: TestRelu(a)
    c: TestRelu(b)
    d: TestRelu(c)
    e: TestRelu(d)
    f: TestRelu(e)
"""


def pruned(graph: Graph, feeds: str = "", fetches: str = "", targets: str = "") -> ClientGraph:
    return run_at_once(
        prune(
            [graph.tensor(name) for name in feeds.split()],
            [graph.tensor(name) for name in fetches.split()],
            [graph.operation(name) for name in targets.split()],
        )
    )


def nodes(client_graph: ClientGraph) -> str:
    return " ".join(node.name for node in client_graph.nodes)


@pytest.mark.parametrize(
    ("case", "feeds", "fetches", "targets", "expected"),
    [
        ("Targets1", "", "", "t1", "W1 input t1"),
        ("Targets2", "", "", "t2 t3_a", "W1 W2 input t1 t2 t3_a"),
        ("FedOutputs1", "input:1", "", "t2", "W1 W2 t1 t2"),
        ("FedOutputs2", "input:1 t1:0 W2:0", "", "t2", "t2"),  # input:1 is fed, and nobody is left to want it
        ("FetchOutputs1", "", "W2:0 input:1 t1:0 t2:0", "t2", "W1 W2 input t1 t2"),
        ("FetchOutputs2", "", "t3_a:0", "t2", "W1 W2 input t1 t2 t3_a"),
        ("nothing", "", "", "", ""),
        ("the other output of a fed node", "input:0", "t1:0", "", "W1 input t1"),
        ("a fetch that is fed", "t1:0", "t1:0", "", ""),
        ("a target whose output is fed", "t1:0", "t2:0", "t1", "W1 W2 input t1 t2"),
    ],
)
def test_what_is_kept(case: str, feeds: str, fetches: str, targets: str, expected: str) -> None:
    client_graph = pruned(load(MODEL), feeds, fetches, targets)
    assert nodes(client_graph) == expected
    assert [tensor.name for tensor in client_graph.feeds] == feeds.split()
    assert [tensor.name for tensor in client_graph.fetches] == fetches.split()
    assert [node.name for node in client_graph.targets] == targets.split()


def test_a_fed_reference_is_cut() -> None:
    graph = load("W1: VariableV2[shape=[], dtype=float32]\nW2: TestParams\nt1: TestMul(W2, W1)")
    assert graph.tensor("W1:0").dtype.is_ref
    assert nodes(pruned(graph, feeds="W1:0", targets="t1")) == "W2 t1"


def test_chain_of_fools() -> None:
    """A feed in the middle of a chain, a fetch on either side of it."""
    assert nodes(pruned(load(CHAIN), feeds="c:0", fetches="b:0 e:0")) == "a b d e"


def test_control_inputs_are_kept() -> None:
    graph = load("a: TestParams\nn: TestABC(^a)\nb: TestParams(^n)\nc: TestRelu(b)\nunused: TestRelu(b)")
    assert nodes(pruned(graph, fetches="c:0")) == "a n b c"
    assert nodes(pruned(graph, feeds="b:0", fetches="c:0")) == "c"


def test_a_fed_placeholder_is_not_run_for_a_control_edge() -> None:
    graph = load("x: Placeholder[float32]\nb: TestParams(^x)\nw: TestParams\nc: TestParams(^w)")
    assert nodes(pruned(graph, feeds="x:0", fetches="b:0")) == "b"
    assert nodes(pruned(graph, feeds="w:0", fetches="c:0")) == "w c"  # what else a node does, it still has to do


def test_loops_are_kept_whole() -> None:
    graph = load("""
        i: Const[0]
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
        beside: Neg(i)
    """)
    kept = nodes(pruned(graph, fetches="x:0")).split()
    assert sorted(kept) == sorted("i e m ten l c s one a n x".split())


def test_large_graphs_come_in_order_too() -> None:
    graph = load("n0: TestParams\n" + "\n".join(f"n{i}: TestRelu(n{i - 1})" for i in range(1, 5000)))
    client_graph = pruned(graph, fetches="n4999:0")
    assert [node.name for node in client_graph.nodes] == [f"n{i}" for i in range(5000)]


def test_a_way_to_what_was_asked_for() -> None:
    graph = load(MODEL)
    client_graph = pruned(graph, fetches="t3_a:0")
    way = path_to(graph.operation("input"), client_graph)
    assert [node.name for node in way] == ["input", "t1", "t2", "t3_a"]
