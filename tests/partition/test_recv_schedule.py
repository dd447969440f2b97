"""Recvs that wait for their time; the first three tests are TensorFlow's TopologicalSortNodesWithTimePriorityTest."""

from __future__ import annotations

from collections.abc import Callable

from asyncexec.framework.cooperative import run_at_once
from asyncexec.graph.node import Node
from asyncexec.partition.recv_schedule import NUM_EPOCHS, PREFETCH, sort_by_start_time
from tests.graph.testing_ops import load
from tests.partition.partitioning import split

SHUFFLED = [(i + 2001) % 20 for i in range(20)]


def in_order(text: str, time: Callable[[str], int]) -> list[tuple[str, int]]:
    ordered = run_at_once(sort_by_start_time(load(text).operations, lambda node: time(node.name)))
    return [(node.name, at) for node, at in ordered]


def number(name: str) -> int:
    return int("".join(filter(str.isdigit, name)))


def test_nodes_without_inputs_are_in_order_of_time() -> None:
    text = "\n".join(f"p{i}: TestParams" for i in SHUFFLED)
    assert in_order(text, lambda name: number(name) + 1) == [(f"p{i}", i + 1) for i in range(20)]


def test_a_node_is_later_than_its_inputs() -> None:
    def time(name: str) -> int:
        return {"p": number(name) + 1, "s": 50 - (number(name) + 1), "a": 1}[name[0]]

    text = "\n".join(f"p{i}: TestParams\ns{i}: TestRelu(p{i})" for i in SHUFFLED)
    text += f"\na0: AddN({', '.join(f's{i}' for i in SHUFFLED)})"
    ordered = in_order(text, time)
    assert ordered[:20] == [(f"p{i}", i + 1) for i in range(20)]
    assert ordered[20:40] == [(f"s{i}", 50 - (i + 1)) for i in reversed(range(20))]
    assert ordered[40:] == [("a0", 50)]


LOOP = """
    p{i}: TestParams
    w{i}_0: Enter[frame_name='frame{i}'](p{i})
    w{i}_1: Merge(w{i}_0, w{i}_6)
    w{i}_2: Const[false](^w{i}_1)
    w{i}_3: LoopCond(w{i}_2)
    w{i}_4: Switch(w{i}_1, w{i}_3)
    w{i}_5: Identity(w{i}_4:1)
    w{i}_6: NextIteration(w{i}_5)
    w{i}_7: Exit(w{i}_4)
    s{i}: TestRelu(w{i}_7)
"""


def test_a_merge_does_not_wait_for_what_comes_round() -> None:
    def time(name: str) -> int:
        if name[0] == "w":
            loop, _, step = name[1:].partition("_")
            return int(loop) * 10 + 100 + int(step)
        return number(name) + 1 if name[0] == "p" else 500 - (number(name) + 1)

    ordered = in_order("".join(LOOP.format(i=i) for i in SHUFFLED), time)
    assert ordered[:20] == [(f"p{i}", i + 1) for i in range(20)]
    assert [ordered[20 + i * 8] for i in range(20)] == [(f"w{i}_0", 100 + i * 10) for i in range(20)]
    assert ordered[180:] == [(f"s{i}", 500 - (i + 1)) for i in reversed(range(20))]


# Every hundredth value of A goes to B, where a chain of nodes takes 10 units of time each.
CHAIN = "\n".join(f"B{i}: TestMul(B{i - 1}, {f'A{i}' if not i % 100 else f'B{i - 1}'})" for i in range(1, 1001))
SOURCES = "\n".join(f"A{i}: TestParams" for i in range(100, 1001, 100))


def waits_for(recv: Node) -> list[str]:
    return [control.name for control in recv.control_inputs]


def test_a_recv_waits_for_a_time_before_its_own() -> None:
    parts = split(f"B0: TestParams\n{SOURCES}\n{CHAIN}", start_time=lambda node: 10 * number(node.name))
    nodes = parts["B"].graph.nodes
    assert [node.name for node in nodes if node.op == "ControlTrigger"] == [f"_synch_{i}" for i in range(NUM_EPOCHS)]
    # An epoch is 1/100 of the time, and so ten nodes or a little more; A100 is wanted at 1000, in the tenth.
    resolution = 10 * 1000 // NUM_EPOCHS + 1
    found = {node.get_attr("tensor_name").decode(): waits_for(node) for node in nodes if node.op == "_Recv"}
    assert found == {f"edge_{k - 1}_A{100 * k}": [f"_synch_{1000 * k // resolution - PREFETCH}"] for k in range(1, 11)}


def test_a_trigger_comes_after_what_starts_before_it() -> None:
    parts = split(f"B0: TestParams\n{SOURCES}\n{CHAIN}", start_time=lambda node: 10 * number(node.name))
    triggers = {node.name: node.control_inputs for node in parts["B"].graph.nodes if node.op == "ControlTrigger"}
    assert triggers["_synch_0"] == ()
    assert [node.name for node in triggers["_synch_1"]] == ["B10"]  # starts at 100; the epoch begins at 101
    assert [node.name for node in triggers["_synch_50"]] == ["B504"]  # B505 starts as the epoch begins, at 5050


def test_a_recv_starts_for_the_first_of_its_consumers() -> None:
    times = {"A1": 0, "B1": 900, "B2": 5, "B3": 1000}
    text = "A1: TestParams\nB1: TestRelu(A1)\nB2: TestRelu(A1)\nB3: TestMul(B1, B2)"
    parts = split(text, start_time=lambda node: times[node.name])
    (recv,) = [node for node in parts["B"].graph.nodes if node.op == "_Recv"]
    assert recv.control_inputs == ()
