"""Hooks of a session: what they are told of steps, nodes, retries, batches, items and cancellations."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import settle
from tests.session.spans import Recorder

EXECUTORS = ("", "TAGGED_TOKEN", "COMPILED")


@ax.op
async def fetched(x: float) -> float:
    await asyncio.sleep(0)
    return x + 1


@ax.op
def twofold(x: float) -> float:
    return x * 2


@ax.op(expensive=True)
def worked(x: float) -> float:
    return x - 1


def float_graph(build: Callable[[ax.Tensor], Any]) -> tuple[ax.Graph, Any]:
    with ax.Graph() as graph:
        result = build(ax.placeholder(ax.float64, [], name="x"))
    return graph, result


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_step_and_its_nodes(executor_type: str) -> None:
    graph, y = float_graph(lambda x: twofold(worked(fetched(x + 1.0)) + 1.0))
    recorder = Recorder()
    config = ax.SessionConfig(executor_type=executor_type)
    async with ax.Session(graph, config, hooks=[recorder]) as session:
        for _ in range(3):
            assert await session.run(y, {"x:0": 1.0}) == 6.0
    recorder.check_balanced()
    assert recorder.paths() == ["step", "step/node:fetched", "step/node:worked", "step/node:twofold"] * 3
    assert recorder.errors == {}
    numbers = [span.number for span in recorder.of("step")]
    assert numbers == sorted(set(numbers))
    node = recorder.of("node", "fetched")[0]
    assert node.attributes["op"] == "fetched"
    assert str(node.attributes["device"]).endswith("CPU:0")
    assert node.session is session
    assert node.step is recorder.of("step")[0]
    here = threading.get_ident()
    assert [recorder.threads[span] == here for span in recorder.begun[:4]] == [True, True, False, True]
    assert "waited_s" in recorder.of("node", "worked")[0].attributes


async def test_cheap_builtin_nodes_are_not_told_of() -> None:
    graph, y = float_graph(lambda x: ax.sqrt(x * x) + 1.0)
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        for _ in range(5):
            assert await session.run(y, {"x:0": 3.0}) == 4.0
        assert await session.make_callable(y, ["x:0"])(2.0) == 3.0
    assert recorder.paths() == ["step"] * 6
    recorder.check_balanced()


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_failure_and_the_end_of_the_rest(executor_type: str) -> None:
    begun = asyncio.Event()

    @ax.op
    async def waiting(x: float) -> float:
        begun.set()
        await asyncio.Event().wait()
        return x

    @ax.op
    async def failing(x: float) -> float:
        await begun.wait()
        raise ValueError("no")

    graph, y = float_graph(lambda x: waiting(x) + failing(x))
    recorder = Recorder()
    config = ax.SessionConfig(executor_type=executor_type)
    async with ax.Session(graph, config, hooks=[recorder]) as session:
        with pytest.raises(ValueError, match="no"):
            await session.run(y, {"x:0": 1.0})
    recorder.check_balanced()
    told = {span.name: error for span, error in recorder.errors.items()}
    assert told == {"failing": "ValueError", "waiting": "CancelledError", "step": "InvalidArgumentError"}
    assert recorder.only("cancellation").parent is recorder.only("step")


async def test_caller_that_is_cancelled() -> None:
    begun = asyncio.Event()

    @ax.op
    async def waiting(x: float) -> float:
        begun.set()
        await asyncio.Event().wait()
        return x

    graph, y = float_graph(lambda x: waiting(x))
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        run = asyncio.create_task(session.run(y, {"x:0": 1.0}))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    recorder.check_balanced()
    assert {span.name: error for span, error in recorder.errors.items()} == {
        "waiting": "CancelledError",
        "step": "CancelledError",
    }
    assert recorder.paths() == ["step", "step/node:waiting", "step/cancellation"]


@pytest.mark.virtual_clock
async def test_deadline_is_the_error_of_the_step() -> None:
    @ax.op
    async def waiting(x: float) -> float:
        await asyncio.Event().wait()
        return x

    graph, y = float_graph(lambda x: waiting(x))
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="'waiting'"):
            await session.run(y, {"x:0": 1.0}, options=ax.RunOptions(timeout=0.2))
    recorder.check_balanced()
    assert recorder.errors[recorder.only("step")] == "DeadlineExceededError"


async def test_step_that_never_begins() -> None:
    graph, y = float_graph(lambda x: x + 1.0)
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(y)
        with pytest.raises(ax.errors.OpError):
            await session.run("nothing:0")
    recorder.check_balanced()
    assert len(recorder.errors) == 2


async def test_retries() -> None:
    calls = 0

    @ax.op(retries=ax.Retry(attempts=3, wait_initial_s=0.0))
    async def flaky(x: float) -> float:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError(f"number {calls}")
        return x

    graph, y = float_graph(lambda x: flaky(x))
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        await session.run(y, {"x:0": 1.0})
    recorder.check_balanced()
    assert recorder.paths() == ["step", "step/node:flaky", *["step/node:flaky/retry:flaky"] * 2]
    assert [span.number for span in recorder.of("retry")] == [1, 2]
    assert "number 1" in str(recorder.of("retry")[0].attributes["error"])
    assert recorder.only("node").attributes["attempts"] == 3


async def test_batches_name_the_calls_that_they_are_for() -> None:
    @ax.batch(max_size=3, timeout_s=10)
    def model(x: ax.Tensor) -> ax.Tensor:
        return twofold(ax.reduce_sum(x)) + x * 0.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [1], name="x")
        y = model(x)
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        found = await asyncio.gather(*(session.run(y, {x: [value]}) for value in (1.0, 2.0, 3.0)))
    assert np.concatenate(found).tolist() == [12.0] * 3
    recorder.check_balanced()
    batch = recorder.only("batch")
    assert batch.attributes == {"rows": 3, "calls": 3}
    assert [link.step for link in batch.links] == recorder.of("step")
    assert recorder.only("node", "model/twofold").parent is batch


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_items_of_a_stream(executor_type: str) -> None:
    @ax.op
    async def odd(x: float) -> float:
        await asyncio.sleep(0)
        if x == 3:
            raise ValueError("three")
        return x

    graph, y = float_graph(lambda x: twofold(odd(x)))
    recorder = Recorder()
    config = ax.SessionConfig(executor_type=executor_type)
    async with ax.Session(graph, config, hooks=[recorder]) as session:
        items = [{"x:0": float(value)} for value in range(6)]
        results = [out async for out in session.map(y, items, window=3, on_error="yield")]
    assert [isinstance(result, ax.errors.OpError) for result in results] == [False] * 3 + [True] + [False] * 2
    recorder.check_balanced()
    stream = recorder.only("stream")
    assert [span.number for span in recorder.of("item")] == list(range(6))
    assert {span.parent for span in recorder.of("item")} == {stream}
    assert [span.step.number for span in recorder.of("node", "odd")] == list(range(6))
    assert [span.step.number for span in recorder.of("node", "twofold")] == [0, 1, 2, 4, 5]
    assert {span.number for span in recorder.errors if span.kind == "item"} == {3}


async def test_stream_that_is_left_early_ends_all_its_spans() -> None:
    @ax.op
    async def slow(x: float) -> float:
        if x > 1:
            await asyncio.Event().wait()
        return x

    graph, y = float_graph(lambda x: slow(x))
    recorder = Recorder()
    items = ({"x:0": float(value)} for value in range(9))
    async with ax.Session(graph, hooks=[recorder]) as session, session.map(y, items, window=4) as results:
        async for _ in results:
            break
    recorder.check_balanced()
    assert recorder.of("item")


async def test_run_within_an_op_is_a_part_of_its_node() -> None:
    with ax.Graph() as inner:
        z = twofold(ax.placeholder(ax.float64, [], name="z"))
    recorder, other = Recorder(), Recorder()
    async with ax.Session(inner, hooks=[other]) as inside:

        @ax.op
        async def outer(x: float) -> float:
            return float(await inside.run(z, {"z:0": x}))

        graph, y = float_graph(lambda x: outer(x))
        async with ax.Session(graph, hooks=[recorder]) as session:
            await session.run(y, {"x:0": 1.0})
    assert recorder.paths() == ["step", "step/node:outer"]
    assert other.paths() == ["step/node:outer/step", "step/node:outer/step/node:twofold"]
    assert other.of("step")[0].session is inside


async def test_partial_run() -> None:
    graph, y = float_graph(lambda x: fetched(x))
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session, session.partial_run([y], ["x:0"]) as step:
        await step.feed({"x:0": 1.0})
        assert await step.fetch(y) == 2.0
    recorder.check_balanced()
    assert recorder.paths() == ["step", "step/node:fetched"]


def test_blocking_session() -> None:
    graph, y = float_graph(lambda x: fetched(x))
    recorder = Recorder()
    with ax.BlockingSession(graph, hooks=[recorder]) as session:
        assert session.run(y, {"x:0": 1.0}) == 2.0
    recorder.check_balanced()
    assert recorder.paths() == ["step", "step/node:fetched"]


async def test_queue_ops_are_told_of_and_still_undone() -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(10, [ax.float64], shapes=[[]])
        put, get, size = queue.enqueue([ax.constant(5.0, ax.float64)]), queue.dequeue(), queue.size()
        with ax.control_dependencies([get]):
            late = fetched_late(get)
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        await session.run(put)
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(late, options=ax.RunOptions(timeout=0.2))
        assert await session.run(size) == 1
        assert await session.run(get) == 5.0
    recorder.check_balanced()
    assert [span.attributes["op"] for span in recorder.of("node")].count("QueueDequeueV2") == 2


@ax.op
async def fetched_late(x: float) -> float:
    await asyncio.Event().wait()
    return x


async def test_hook_that_fails_is_logged_once_and_touches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ax.Hook):
        def begin(self, span: ax.Span) -> None:
            raise RuntimeError("begin")

        def end(self, span: ax.Span, error: BaseException | None) -> None:
            raise RuntimeError("end")

    graph, y = float_graph(lambda x: fetched(x))
    recorder = Recorder()
    with caplog.at_level(logging.ERROR, "asyncexec"):
        async with ax.Session(graph, hooks=[Broken(), recorder, Broken()]) as session:
            for _ in range(3):
                assert await session.run(y, {"x:0": 1.0}) == 2.0
    assert len(caplog.records) == 1
    assert "Broken" in caplog.text
    assert "RuntimeError: begin" in caplog.text
    recorder.check_balanced()


async def test_spans_do_not_keep_the_session_or_the_error() -> None:
    graph, y = float_graph(lambda x: fetched(x))
    recorder = Recorder()
    session = ax.Session(graph, hooks=[recorder])
    async with session:
        await session.run(y, {"x:0": 1.0})
    del session
    await settle(5)
    import gc

    gc.collect()
    assert recorder.only("step").session is None


@pytest.mark.parametrize("hooks", [[], [ax.Hook()]], ids=["without", "with"])
@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_an_op_may_ask_for_its_session_and_step(executor_type: str, hooks: list[ax.Hook]) -> None:
    seen: list[tuple[ax.Session, ax.Span]] = []

    def note(x: float) -> float:
        seen.append((ax.current_session(), ax.current_step()))
        return x

    async def note_later(x: float) -> float:
        await asyncio.sleep(0)
        return note(x)

    cheap, expensive, awaited = ax.op(note), ax.op(expensive=True)(note), ax.op(note_later)
    graph, y = float_graph(lambda x: [cheap(x), expensive(x), awaited(x)])
    with pytest.raises(ax.errors.FailedPreconditionError, match="no op calls the running code"):
        ax.current_session()
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type), hooks=hooks) as session:
        for _ in range(4):
            seen.clear()
            await session.run(y, {"x:0": 1.0})
            assert [each is session for each, _ in seen] == [True] * 3
            assert len({step for _, step in seen}) == 1
            assert seen[0][1].kind == "step"
        seen.clear()
        results = [out async for out in session.map(y[0], [{"x:0": 1.0}, {"x:0": 2.0}])]
        assert results == [1.0, 2.0]
        assert [(step.kind, step.number) for _, step in seen] == [("item", 0), ("item", 1)]
        assert seen[0][1].parent is not None
        assert seen[0][1].parent.kind == "stream"
        seen.clear()
        await session.make_callable(y[0], ["x:0"])(1.0)
        assert seen[0][0] is session
    with pytest.raises(ax.errors.FailedPreconditionError):
        ax.current_step()


async def test_steps_that_overlap_are_told_apart() -> None:
    both = asyncio.Event()
    numbers: list[int] = []

    @ax.op
    async def meet(x: float) -> float:
        numbers.append(ax.current_step().number)
        if len(numbers) == 2:
            both.set()
        await both.wait()
        numbers.append(ax.current_step().number)
        return x

    graph, y = float_graph(lambda x: meet(x))
    async with ax.Session(graph) as session:
        await asyncio.gather(session.run(y, {"x:0": 1.0}), session.run(y, {"x:0": 2.0}))
    assert len(set(numbers)) == 2
    assert sorted(numbers[:2]) == sorted(numbers[2:])


async def test_statistics_of_nodes() -> None:
    calls = 0

    @ax.op(retries=ax.Retry(attempts=2, wait_initial_s=0.0))
    async def flaky(x: float) -> float:
        nonlocal calls
        calls += 1
        if calls == 1 or x < 0:
            raise ConnectionError("no")
        return x

    graph, y = float_graph(lambda x: worked(flaky(x)))
    async with ax.Session(graph, ax.SessionConfig(node_statistics=True)) as session:
        assert session.statistics().nodes == {}
        for _ in range(3):
            await session.run(y, {"x:0": 1.0})
        with pytest.raises(ConnectionError):
            await session.run(y, {"x:0": -1.0})
        nodes = session.statistics().nodes
    assert nodes.keys() == {"flaky", "worked"}
    assert (nodes["flaky"].count, nodes["flaky"].errors, nodes["flaky"].retries) == (4, 1, 2)
    assert (nodes["worked"].count, nodes["worked"].errors, nodes["worked"].op) == (3, 0, "worked")
    for node in nodes.values():
        assert 0 <= node.p50_s <= node.p95_s <= node.p99_s <= node.total_s
        assert node.waited_s >= 0
    async with ax.Session(graph) as session:
        await session.run(y, {"x:0": 1.0})
        assert session.statistics().nodes == {}


async def test_statistics_of_what_is_under_way() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @ax.op
    async def waiting(x: float) -> float:
        begun.set()
        await go_on.wait()
        return x

    graph, y = float_graph(lambda x: waiting(x))
    async with ax.Session(graph) as session:
        run = asyncio.create_task(session.run(y, {"x:0": 1.0}))
        await begun.wait()
        (node,) = session.statistics().under_way
        assert (node.node, node.op) == ("waiting", "waiting")
        begun.clear()
        async with session.stream(y, window=3) as stream:
            await stream.send({"x:0": 1.0})
            await stream.send({"x:0": 2.0})
            await begun.wait()
            await settle()
            statistics = session.statistics()
            assert [node.node for node in statistics.under_way] == ["waiting"] * 3
            (told,) = statistics.streams
            assert (told.window, told.items_in, told.items_out, told.in_flight, told.failed) == (3, 2, 0, 2, 0)
            assert told.lag_s > 0
            go_on.set()
            assert [await anext(stream), await anext(stream)] == [1.0, 2.0]
            (told,) = session.statistics().streams
            assert (told.items_in, told.items_out, told.in_flight, told.lag_s) == (2, 2, 0, 0.0)
        await run
        assert session.statistics().under_way == ()
        assert session.statistics().streams == ()
