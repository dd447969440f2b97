"""What TensorFlow's pending_counts_test.cc proves, by what the propagator says is ready.

Here the pending counts are a list of integers that each iteration has a copy of; so the cases are told by nodes that
wait for inputs and by the moment at which they are ready.  No event loop runs, and each test is its own executor: it
decides which of the ready nodes are run, and in which order.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Final

import pytest

import asyncexec as ax
from asyncexec.compilation.graph_view import NOTHING, GraphView
from asyncexec.executor.engine.propagator_state import PropagatorState
from tests.case_table import missing_tests
from tests.compilation.test_graph_view import view_of
from tests.running import raw_op

CASES: Final[dict[str, str]] = {
    "Simple": "test_nodes_count_for_themselves_however_many_inputs_they_have",
    "CopyConstructor": "test_steps_and_iterations_count_for_themselves",
    "MarkLiveShowsUpAsCount": "test_a_merge_is_made_live_once",
    "StateIsCorrect": "test_a_node_is_not_ready_then_ready_then_started_then_completed",
    "AdjustForActivation": "test_what_is_pending_and_what_is_dead_are_told_together",
    "AdjustForActivationAtomic": "one coroutine owns the counts; no two threads ever change them",
}

# Small enough for TensorFlow's packed counts, at their limit, and beyond.
SIZES: Final = (1, 2, 3, 5, 7, 8, 15, 16, 31, 64, 255, 256, 299, 300)


class Driver:
    """A step whose nodes with ``held`` in their names run when the test says so; all others run at once."""

    def __init__(self, state: PropagatorState, *feeds: Any) -> None:
        self.state = state
        self._queue: deque[Any] = deque()
        self._held: dict[tuple[str, int], Any] = {}
        state.activate_roots(feeds, self._queue)
        self._settle()

    def ready(self) -> list[str]:
        """The names of the held nodes that are ready, in order; those of later iterations with ``@`` and the number."""
        return sorted(name + (f"@{number}" if number else "") for name, number in self._held)

    def run(self, name: str, iteration: int = 0, value: Any = 1.0) -> list[Any]:
        """Let a held node give *value*; what its inputs were."""
        entry = self._held.pop((name, iteration))
        inputs = self.state.take_inputs(entry)
        self.state.propagate_outputs(entry, value, self._queue)
        self._settle()
        return inputs

    def _settle(self) -> None:
        while self._queue:
            entry = self._queue.popleft()
            item, iteration, is_dead = entry
            if is_dead or item.action:
                self.state.settle(entry, self._queue)
            elif "held" in item.node.name:
                key = (item.node.name, iteration.number)
                assert key not in self._held, "a node is ready twice"
                self._held[key] = entry
            else:
                self.state.propagate_outputs(entry, item.kernel(*self.state.take_inputs(entry)), self._queue)


def flow_view(*fetches: ax.Tensor) -> GraphView:
    """The view of a graph with control flow: for the last of the fetches there is a Switch in it."""
    sides = ax.create_op("Switch", [ax.constant(1.0), ax.constant(value=True)])
    return view_of([*fetches, sides[1]])


def held(name: str, *inputs: Any) -> Any:
    """A node that the test runs."""
    return raw_op("Held", lambda *_: 1.0, dtype=ax.float32)(*inputs, name=name)


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


@pytest.mark.parametrize("seed", range(3))
def test_nodes_count_for_themselves_however_many_inputs_they_have(seed: int) -> None:
    """Nodes share 300 sources, which run in any order: each is ready with the last of its own, and no sooner."""
    pick = random.Random(seed)
    with ax.Graph():
        sources = [held(f"source_held_{i}") for i in range(300)]
        chosen = {size: pick.sample(range(300), size) for size in SIZES}
        view = flow_view(*(held(f"held_{size}", *(sources[i] for i in chosen[size])) for size in SIZES))
    driver = Driver(PropagatorState(view))
    assert len(driver.ready()) == 300
    came: set[int] = set()
    for i in pick.sample(range(300), 300):
        driver.run(f"source_held_{i}")
        came.add(i)
        complete = {f"held_{size}" for size in SIZES if came.issuperset(chosen[size])}
        assert {name for name in driver.ready() if name.startswith("held")} == complete


def test_steps_and_iterations_count_for_themselves() -> None:
    """Of the two inputs of a node, one comes in one iteration and the other in another: it is ready in neither."""
    with ax.Graph():
        n = ax.placeholder(ax.int32, [])
        _, result = ax.while_loop(
            lambda i, _: i < n,
            lambda i, _: (i + 1, held("held_sum", held("held_a", i), held("held_b", i))),
            (0, 0.0),
            parallel_iterations=3,
            name="w",
        )
        view = view_of([result], [n])
    first, second = (Driver(PropagatorState(view), 3) for _ in range(2))
    everything = ["w/held_a", "w/held_a@1", "w/held_a@2", "w/held_b", "w/held_b@1", "w/held_b@2"]
    assert first.ready() == second.ready() == everything
    first.run("w/held_a", 0)
    first.run("w/held_b", 1)
    assert first.ready() == ["w/held_a@1", "w/held_a@2", "w/held_b", "w/held_b@2"]
    first.run("w/held_a", 1)
    assert first.ready() == ["w/held_a@2", "w/held_b", "w/held_b@2", "w/held_sum@1"]
    first.run("w/held_b", 0)
    assert first.ready() == ["w/held_a@2", "w/held_b@2", "w/held_sum", "w/held_sum@1"]
    assert second.ready() == everything


@pytest.mark.parametrize("controls", [0, 1, 3])
@pytest.mark.parametrize("inputs", [2, 5, 15, 300])
def test_a_merge_is_made_live_once(inputs: int, controls: int) -> None:
    """The first live input counts, the others do not; nor do they after it has run.  Control inputs each count."""
    names = [f"held_{i}" for i in range(inputs)]
    with ax.Graph():
        sources = [held(name) for name in names]
        waits_for = [held(f"held_control_{i}") for i in range(controls)]
        with ax.control_dependencies(waits_for):
            merged, index = ax.create_op("Merge", [sources], name="merge")
        view = view_of([held("held_after", merged), index])
    driver = Driver(PropagatorState(view))
    driver.run(names[1], value=7.0)
    driver.run(names[0])
    for i in range(controls):
        assert "held_after" not in driver.ready()
        driver.run(f"held_control_{i}")
    assert "held_after" in driver.ready()
    for name in names[2 : inputs - 1]:
        driver.run(name)
    assert driver.run("held_after") == [7.0]
    if inputs > 2:
        driver.run(names[-1])
    assert driver.ready() == []
    assert driver.state.fetched() == [1.0, 1]


@pytest.mark.parametrize("count", range(20))
def test_a_node_is_not_ready_then_ready_then_started_then_completed(count: int) -> None:
    with ax.Graph():
        sources = [held(f"held_{i}") for i in range(count)]
        view = flow_view(held("after_held", held("it_held", *sources)))
    driver = Driver(PropagatorState(view))
    for i in range(count):
        assert "it_held" not in driver.ready()
        driver.run(f"held_{i}", value=float(i))
    assert driver.ready() == ["it_held"]
    assert driver.run("it_held", value=5.0) == [float(i) for i in range(count)]
    assert driver.ready() == ["after_held"]
    assert driver.state.fetched() == [NOTHING, 1.0]
    assert driver.run("after_held", value=6.0) == [5.0]
    assert driver.ready() == []
    assert driver.state.fetched() == [6.0, 1.0]


@pytest.mark.parametrize("dead_at", ["first", "second", "last"])
@pytest.mark.parametrize("inputs", [5, 15, 300])
def test_what_is_pending_and_what_is_dead_are_told_together(inputs: int, dead_at: str) -> None:
    """One dead input of many: the node waits for the others all the same, and is dead when they have come."""
    dead = {"first": 0, "second": 1, "last": inputs - 1}[dead_at]
    with ax.Graph():
        sources = [held(f"held_{i}") for i in range(inputs)]
        sides = ax.create_op("Switch", [sources[dead], ax.constant(value=True)])
        given = [sides[0] if i == dead else source for i, source in enumerate(sources)]
        node = held("it_held", *given)
        with ax.control_dependencies([node]):
            trigger = ax.create_op("ControlTrigger", [], name="trigger")
        with ax.control_dependencies([trigger]):
            view = view_of([held("after_held"), node, sides[1]])
    driver = Driver(PropagatorState(view))
    for i in range(inputs):
        assert "after_held" not in driver.ready()
        driver.run(f"held_{i}")
    assert driver.ready() == ["after_held"]
    driver.run("after_held")
    assert driver.state.fetched() == [1.0, NOTHING, 1.0]
