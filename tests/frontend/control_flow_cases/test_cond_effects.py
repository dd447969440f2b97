"""``cond``: what runs in a branch and what does not; assignments, assertions, devices.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's, unless a test says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import after, session_of, value_of
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


def noting(notes: list[str]) -> Callable[[str], ax.Operation]:
    """What adds an operation that adds a word to *notes* when it runs."""

    @ax.op
    def note(word: str) -> None:
        notes.append(word)

    def add(word: str) -> ax.Operation:
        made = note(ax.constant(word))
        assert isinstance(made, ax.Operation)
        return made

    return add


async def test_an_assignment_in_the_branch_taken() -> None:
    def build() -> Any:
        flag, t = ax.Variable(True), ax.constant(1.0)
        return flag, ax.cond(flag, lambda: after([flag.assign(False)], t), lambda: t)

    async with session_of(build) as (session, (flag, result)):
        assert await session.run(result) == 1.0
        assert not await session.run(flag)


async def test_only_what_is_fetched_of_the_results_runs() -> None:
    def build() -> Any:
        variables = v1, v2, v3 = [ax.Variable(7) for _ in range(3)]
        taken = ax.constant(3) > ax.constant(2)
        results = ax.cond(taken, lambda: [v1.assign(1), v2.assign(2)], lambda: [v3.assign(3), ax.constant(10).op])
        return variables, results

    async with session_of(build) as (session, (variables, results)):
        assert len(results) == 2
        await session.run(results[1])
        assert await session.run(variables) == [7, 2, 7]


async def test_one_assignment_in_each_branch() -> None:
    def build() -> Any:
        v, c = ax.Variable(0), ax.constant(0)
        one, two = ax.constant(1), ax.constant(2)

        def assigned(value: ax.Tensor) -> ax.Tensor:
            with ax.control_dependencies([v.assign(value)]):
                return v.read_value()

        return v, c, ax.cond(c >= 1, lambda: assigned(one), lambda: assigned(two))

    async with session_of(build) as (session, (v, c, result)):
        assert await session.run(v) == 0
        assert await session.run(result, {c: 2}) == 1
        assert await session.run(v) == 1
        assert await session.run(result, {c: 0}) == 2
        assert await session.run(v) == 2


@pytest.mark.parametrize("is_nested", [False, True])
async def test_only_what_the_result_waits_for_runs(is_nested: bool) -> None:
    notes: list[str] = []

    def build() -> Any:
        note = noting(notes)

        def branch() -> Any:
            note("A")
            note("B")
            with ax.control_dependencies([note("C")]):
                return ax.constant(10)

        def chosen() -> Any:
            return ax.cond(ax.constant(True), branch, lambda: 0)

        return ax.cond(ax.constant(True), chosen, lambda: 0) if is_nested else chosen()

    assert await value_of(build) == 10
    assert notes == ["C"]


async def test_a_condition_on_a_placeholder_inside() -> None:
    def build() -> Any:
        holder, a = ax.placeholder(ax.float32, [], name="holder"), ax.constant(3)

        def branch() -> Any:
            with ax.control_dependencies([holder]):
                _ = a + 1
            return a + 2

        return ax.cond(ax.constant(True), branch, lambda: ax.constant(1))

    assert await value_of(build, {"holder:0": 5.0}) == 5


@pytest.mark.parametrize("optimization", ["on", "off"])
@pytest.mark.parametrize("device", [None, "/cpu:1"])
async def test_an_assertion_in_the_other_branch_stays_there(optimization: str, device: str | None) -> None:
    def build() -> Any:
        pred = ax.constant(True)

        def wrong() -> Any:
            with ax.device(device):
                return ax.Assert(False, ["Wrong branch!!!"])

        return pred, ax.cond(pred, ax.no_op, wrong)

    config = {"device_count": {"CPU": 2}, "optimization": optimization}
    async with session_of(build, **config) as (session, (pred, result)):
        await session.run(result)
        with pytest.raises(ax.errors.InvalidArgumentError, match="Wrong branch"):
            await session.run(result, {pred: False})


def switched_on(graph: ax.Graph, source: ax.Tensor) -> set[str]:
    """The devices asked for by the Switches that let *source* in."""
    return {node.device for node in graph if node.op == "Switch" and node.inputs[0] is source}


def test_a_variable_is_let_in_on_its_own_device() -> None:
    with ax.Graph() as graph:
        with ax.device("/cpu:0"):
            v = ax.Variable(7.0)
        x = ax.constant(10.0)
        ax.cond(ax.less(1.0, 2.0), lambda: v + 1.0, lambda: x - 1.0)
    assert switched_on(graph, v.handle) == {v.handle.op.device}
    assert v.handle.op.device.lower().endswith("cpu:0")


async def test_everything_runs_on_the_device_that_is_asked_for_around() -> None:
    """With two CPUs for TensorFlow's CPU and GPU."""
    metadata = ax.RunMetadata()

    def build() -> Any:
        x = ax.constant(-10.0)

        def true_fn() -> Any:
            return ax.exp(x)

        with ax.device("/cpu:1"):
            return ax.cond(ax.placeholder_with_default(True, []), true_fn, lambda: 0.0)

    async with session_of(build, device_count={"CPU": 2}) as (session, result):
        assert result.op.device.lower().endswith("cpu:1")
        await session.run(result, options=ax.RunOptions(trace=True), metadata=metadata)
    used = {
        stats.device[-5:].lower(): [node.node_name for node in stats.node_stats]
        for stats in metadata.step_stats.dev_stats
    }
    assert any(name.startswith("cond/Exp") for name in used["cpu:1"])


async def test_a_switch_is_where_its_data_is() -> None:
    def build() -> Any:
        x = ax.placeholder(ax.float32, [], name="x")
        with ax.device("/cpu:1"):
            arg = x + 10.0

        def true_fn() -> Any:
            with ax.device("/cpu:0"):
                return arg + 1

        result = ax.cond(ax.constant(True), true_fn, lambda: 0.0)
        assert switched_on(arg.graph, arg) == {arg.op.device}
        return result

    assert await value_of(build, {"x:0": -10.0}, device_count={"CPU": 2}) == 1.0
