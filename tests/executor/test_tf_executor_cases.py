"""The cases of TensorFlow's executor_test.cc, by Recv and Send nodes that meet the test in a rendezvous.

``CASES`` tells for each case which test has its meaning; those that feed and fetch instead are here and there too.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework import types
from asyncexec.framework.derived import is_derived
from tests.case_table import missing_tests
from tests.executor.channels import full, recv, send
from tests.graph.testing_ops import load
from tests.running import raw_op, settle, started

_EXECUTOR: Final = "tests.executor.test_executor"
CASES: Final[dict[str, str]] = {
    "SimpleAdd": "test_add_what_is_received",
    "StepStatsNumerical": "tests.executor.test_step_stats:test_times_are_in_order",
    "SelfAdd": f"{_EXECUTOR}:test_self_add",
    "RandomTree": f"{_EXECUTOR}:test_random_tree",
    "ConcurrentAddAssign": "test_concurrent_additions_to_a_variable_of_any_interleaving",
    "SimpleSwitchLive": "test_the_side_of_a_switch_that_is_sent",
    "SimpleSwitchDead": "test_the_side_of_a_switch_that_is_sent",
    "Abort": "test_an_abort_while_recvs_wait",
    "RecvInvalidDtype": "test_a_received_value_of_another_dtype_than_was_declared",
    "RecvInvalidRefDtype": "test_a_sent_reference_of_another_dtype_than_was_declared",
    "NoInputTensors": f"{_EXECUTOR}:test_graph_of_sources_only",
}

FLOAT: Final = types.float32
SWITCH = "x: Placeholder[float32, []]\np: Placeholder[bool, []]\ns: Switch(x, p)\nside: Identity(s)"


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_concurrent_additions_to_a_variable_of_any_interleaving(seed: int | None) -> None:
    """1,024 times v = v + 1, read and assigned by nodes that know nothing of each other: updates may be lost."""
    count = 1024
    lines = ["one: Const[1.0]", "v: VariableV2[shape=[], dtype=float32]", "init: Assign(v, one)"]
    for i in range(count):
        lines += [f"add{i}: Add(v, one, ^init)", f"assign{i}: Assign(v, add{i})"]
    lines += [f"out: Identity(v, {', '.join(f'^assign{i}' for i in range(count))})"]
    async with ax.Session(load("\n".join(lines)), ax.SessionConfig(schedule_seed=seed)) as session:
        for _ in range(4):
            assert 2.0 <= await session.run("out:0") <= count + 1


async def test_add_what_is_received() -> None:
    """c = a + b; what is sent twice is received twice."""
    with ax.Graph() as graph:
        send(ax.add(recv(FLOAT, "a"), recv(FLOAT, "b")), "c")
    rendezvous = ax.Rendezvous()
    for a, b in ((1.0, 2.0), (3.0, 4.0)):
        rendezvous.send(full("a"), np.float32(a))
        rendezvous.send(full("b"), np.float32(b))
        await ax.new_executor(graph).run(ax.Executor.Args(rendezvous))
        value, is_dead, _ = rendezvous.recv_nowait(full("c"))
        assert (value, is_dead) == (a + b, False)


@pytest.mark.parametrize("pred", [False, True])
async def test_the_side_of_a_switch_that_is_sent(pred: bool) -> None:
    with ax.Graph() as graph:
        side = ax.create_op("Switch", [recv(FLOAT, "a"), ax.constant(pred)])[0]
        send(ax.identity(side), "c")
    rendezvous = ax.Rendezvous()
    rendezvous.send(full("a"), np.float32(1))
    await ax.new_executor(graph).run(ax.Executor.Args(rendezvous))
    value, is_dead, _ = rendezvous.recv_nowait(full("c"))
    assert is_dead == pred
    assert value == (None if pred else 1.0)


async def test_an_abort_while_recvs_wait() -> None:
    """Three of four values come, one after the other, and then an abort: the step ends with its error."""
    with ax.Graph() as graph:
        a, b, c, d = (recv(FLOAT, key) for key in "abcd")
        send((a + b) + (c + d), "e")
    rendezvous = ax.Rendezvous()
    run = await started(ax.new_executor(graph).run(ax.Executor.Args(rendezvous)))
    for key in "abc":
        assert not run.done()
        rendezvous.send(full(key), np.float32(1))
        await settle()
    rendezvous.start_abort(ax.errors.AbortedError("the peer is gone"))
    with pytest.raises(ax.errors.AbortedError, match="the peer is gone") as caught:
        await run
    assert is_derived(caught.value)  # the cause is elsewhere
    with pytest.raises(ax.errors.AbortedError):
        rendezvous.recv_nowait(full("e"))


@pytest.mark.parametrize("value", [np.float64(1), np.array([1.0]), b"text"], ids=["scalar", "array", "string"])
async def test_a_received_value_of_another_dtype_than_was_declared(value: Any) -> None:
    with ax.Graph() as graph:
        send(ax.identity(recv(FLOAT, "a", name="one")), "b")
    rendezvous = ax.Rendezvous()
    rendezvous.send(full("a"), value)
    with pytest.raises(ax.errors.InternalError, match="not float32") as caught:
        await ax.new_executor(graph).run(ax.Executor.Args(rendezvous))
    assert caught.value.node == "one"


async def test_a_sent_reference_of_another_dtype_than_was_declared() -> None:
    """The reader of the reference is on another device: it is told what came, by the Recv."""

    class Reference:
        def read(self) -> Any:
            return np.float64(1)

    with ax.Graph() as graph:
        bad = raw_op("InvalidRef", Reference, dtype=types.as_dtype("float32_ref"))(name="bad")
        with ax.device("/cpu:1"):
            total = ax.negative(bad)
    config = ax.SessionConfig(device_count={"CPU": 2}, debug=True)
    async with ax.Session(graph, config) as session:
        with pytest.raises(ax.errors.InternalError, match="float64, not float32") as caught:
            await session.run(total)
    assert caught.value.op == "_Recv"


async def test_the_side_of_a_switch_that_is_taken() -> None:
    async with ax.Session(load(SWITCH)) as session:
        assert await session.run("side:0", {"x:0": 1.0, "p:0": False}) == 1.0


async def test_the_side_of_a_switch_that_is_not_taken_tells_that_it_is_dead() -> None:
    async with ax.Session(load(SWITCH)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="it is dead") as caught:
            await session.run("side:0", {"x:0": 1.0, "p:0": True})
        assert caught.value.node == "side"
        assert await session.run("s:1", {"x:0": 1.0, "p:0": True}) == 1.0


async def test_an_abort_among_inputs_that_come_late() -> None:
    """Three of four inputs come, then the fourth is aborted: so is the run, and the next one is not."""
    arrive = asyncio.Event()
    is_aborted = True
    ended: list[str] = []

    @ax.op
    async def receive(key: str) -> np.float32:
        try:
            await arrive.wait()
            if key == "d":
                await settle()
                if is_aborted:
                    raise ax.errors.AbortedError("the peer is gone")
            return np.float32(1)
        finally:
            ended.append(key)

    with ax.Graph() as graph:
        a, b, c, d = (ax.cast(receive(ax.constant(name), name=name), ax.float32) for name in "abcd")
        total = (a + b) + (c + d)
    async with ax.Session(graph) as session:
        run = await started(session.run(total))
        arrive.set()
        with pytest.raises(ax.errors.AbortedError, match="the peer is gone") as caught:
            await run
        assert caught.value.node == "d"
        assert sorted(ended) == ["a", "b", "c", "d"]
        is_aborted = False
        assert await session.run(total) == 4.0


@pytest.mark.parametrize("kernel", [lambda: np.float64(1), lambda: np.array([1.0])], ids=["scalar", "array"])
async def test_a_value_of_another_dtype_than_was_declared(kernel: Any) -> None:
    with ax.Graph() as graph:
        one = raw_op("Receive", kernel, dtype=ax.float32)(name="one")
        two = ax.identity(one, name="two")
    async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
        with pytest.raises(ax.errors.InternalError, match="float64") as caught:
            await session.run(two)
        assert caught.value.node == "one"
