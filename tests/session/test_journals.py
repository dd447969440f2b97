"""What else a run with a journal meets: queues, variables, batches, traces, damage, other processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.checkpoint import MemoryStore
from asyncexec.durable.journal_codec import JournalCodec
from asyncexec.durable.record import JsonCodec, Record, to_bytes
from tests.session.journal_stores import Recorder

NAMED = ax.RunOptions(run_id="run")


async def paused(run: Any) -> ax.PausedError:
    with pytest.raises(ax.PausedError) as caught:
        await run
    return caught.value


@ax.op
async def ask(x: float) -> float:
    return x + await ax.pause("more")


async def test_what_was_taken_out_of_a_queue_is_not_put_back() -> None:
    """Neither when the run pauses, nor when it is cancelled after the element is in the journal."""
    waits = asyncio.Event()

    @ax.op
    async def wait(x: float) -> float:
        waits.set()
        await asyncio.sleep(3600)
        return x

    with ax.Graph() as graph:
        queue = ax.FIFOQueue(10, [ax.float64], shapes=[[]])
        queue.enqueue_many([np.array([1.0, 2.0, 3.0])], name="fill")
        ax.identity(queue.size(), name="size")
        ax.identity(ask(queue.dequeue()), name="asked")
        ax.identity(wait(queue.dequeue()), name="waited")
    async with ax.Session(graph, journal=MemoryStore()) as session:
        await session.run([], targets=["fill"])
        error = await paused(session.run("asked:0"))
        assert await session.run("size:0") == 2
        assert await session.resume(error.token, 10.0) == 11.0
        assert await session.run("size:0") == 2
        run = asyncio.create_task(session.run("waited:0", options=NAMED))
        await waits.wait()
        run.cancel()
        await asyncio.wait([run])
        assert await session.run("size:0") == 1
        await paused(session.run("asked:0"))
        run = asyncio.create_task(session.run("asked:0"))
        async with asyncio.timeout(10):
            while not any(each.op.startswith("QueueDequeue") for each in session.statistics().under_way):  # noqa: ASYNC110
                await asyncio.sleep(0)
        run.cancel()  # while it waits for an element
        await asyncio.wait([run])
        await session.run([], targets=["fill"])
        assert await session.run("size:0") == 3


async def test_variables_are_written_once_and_are_the_sessions() -> None:
    with ax.Graph() as graph:
        counter = ax.Variable(0.0, dtype=ax.float64, name="counter")
        with ax.control_dependencies([counter.assign_add(1.0)]):
            ax.identity(ask(counter.read_value()), name="asked")
        ax.identity(counter.read_value(), name="now")
        init = ax.global_variables_initializer()
    async with ax.Session(graph, journal=MemoryStore()) as session:
        await session.run(init)
        error = await paused(session.run("asked:0"))
        assert await session.run("now:0") == 1.0
        assert await session.resume(error.token, 10.0) == 11.0
        assert await session.resume_run(error.run_id) == 11.0
        assert await session.run("now:0") == 1.0


@pytest.mark.one_of("loop")
async def test_a_result_with_very_many_consumers() -> None:
    calls: list[float] = []

    @ax.op
    def once(x: float) -> float:
        calls.append(x)
        return x

    with ax.Graph() as graph:
        x = once(ax.constant(1.0, ax.float64))
        total = ask(ax.add_n([ax.negative(x) for _ in range(3_000)]))
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(total))
        assert await session.resume(error.token, 1.0) == -2_999.0
    assert calls == [1.0]


async def test_a_batch_is_for_several_runs_and_cannot_pause() -> None:
    rows: list[int] = []

    @ax.op(outputs=[ax.float32], shapes=[[None, 2]])
    async def rows_doubled(x: np.ndarray) -> np.ndarray:
        rows.append(len(x))
        return x * 2

    @ax.op(outputs=[ax.float32], shapes=[[None, 2]])
    async def asked(x: np.ndarray) -> np.ndarray:
        return x * await ax.pause("never")

    @ax.batch(max_size=4, timeout_s=0.0)
    def double(x: ax.Tensor) -> ax.Tensor:
        return rows_doubled(x)

    @ax.batch(max_size=4, timeout_s=0.0)
    def asking(x: ax.Tensor) -> ax.Tensor:
        return asked(x)

    with ax.Graph() as graph:
        x = ax.constant([[1.0, 2.0]], ax.float32)
        ax.identity(double(x), name="doubled")
        ax.identity(asking(x), name="asked")
    async with ax.Session(graph, journal=MemoryStore()) as session:
        for _ in range(2):
            np.testing.assert_array_equal(await session.run("doubled:0", options=NAMED), [[2.0, 4.0]])
        assert rows == [1]
        with pytest.raises(ax.errors.FailedPreconditionError, match="outside of the ops of a run"):
            await session.run("asked:0")


async def test_a_pause_in_a_callable_a_map_or_a_partial_run_of_an_op_is_one_of_the_op() -> None:
    async def by_callable(session: ax.Session) -> float:
        call = session.make_callable("asked:0", ["x:0"])
        return float(await call(1.0) + await call(2.0))

    async def by_map(session: ax.Session) -> float:
        return sum([float(value) async for value in session.map("asked:0", [{"x:0": 1.0}, {"x:0": 2.0}])])

    async def by_partial_run(session: ax.Session) -> float:
        async with session.partial_run("asked:0", ["x:0"]) as step:
            await step.feed({"x:0": 3.0})
            return float(await step.fetch("asked:0"))

    for way in (by_callable, by_map, by_partial_run):
        await check_nested(way)


async def check_nested(way: Callable[[ax.Session], Any]) -> None:
    @ax.op
    async def outer() -> float:
        session = ax.current_session()
        assert session is not None
        return float(await way(session))

    with ax.Graph() as graph:
        ax.identity(ask(ax.placeholder(ax.float64, [], name="x")), name="asked")
        result = outer()
    run: Callable[[ax.Session], Any] = lambda session: session.run(result)  # noqa: E731
    num_pauses = 0
    while True:
        async with ax.Session(graph, journal=STORE) as session:
            try:
                assert await run(session) == 3.0 + 10.0 * num_pauses
                return
            except ax.PausedError as error:
                token = error.token
        num_pauses += 1
        run = lambda session, token=token: session.resume(token, 10.0)  # type: ignore[misc]  # noqa: E731


STORE = MemoryStore()


async def test_functions_and_conds_by_hooks_and_traces() -> None:
    class Ended(ax.Hook):
        def __init__(self) -> None:
            self.nodes: list[str] = []

        def end(self, span: ax.Span, error: BaseException | None) -> None:
            if span.kind == "node":
                self.nodes.append(span.name)

    @ax.function
    def doubled(x: ax.Tensor) -> ax.Tensor:
        return ask(x) * 2.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        ax.cond(x > 0.0, lambda: doubled(x), lambda: x, name="result")
    hook, metadata = Ended(), ax.RunMetadata()
    options = ax.RunOptions(trace=True)
    config = ax.SessionConfig(node_statistics=True, debug=True)
    async with ax.Session(graph, config, journal=MemoryStore(), hooks=[hook]) as session:
        fetch = next(n for n in graph.operations if n.op == "Merge").outputs[0]
        error = await paused(session.run(fetch, {x: 4.0}, options=options, metadata=metadata))
        assert await session.resume(error.token, 1.0, options=options, metadata=metadata) == 10.0
        assert await session.run(fetch, {x: -4.0}) == -4.0
    names = [node.node_name for node in metadata.step_stats.dev_stats[0].node_stats]
    assert any("ask" in name for name in names)
    assert sum("ask" in name for name in hook.nodes) == 2


async def test_another_process_that_goes_on_with_the_run_is_found_out() -> None:
    goes_on = asyncio.Event()

    def graph_of(waits: bool) -> ax.Graph:
        @ax.op
        async def work() -> int:
            if waits:
                await goes_on.wait()
            return 7

        with ax.Graph() as graph:
            ax.identity(work(), name="result")
        return graph

    store = MemoryStore()
    async with (
        ax.Session(graph_of(True), journal=store) as slow,
        ax.Session(graph_of(False), journal=store) as quick,
    ):
        run = asyncio.create_task(slow.run("result:0", options=NAMED))
        while not slow.statistics().running_steps:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        assert await quick.run("result:0", options=NAMED) == 7
        goes_on.set()
        with pytest.raises(ax.errors.AbortedError, match="another process goes on with the run 'run'"):
            await run
        assert await slow.run("result:0", options=NAMED) == 7


async def test_whatever_an_op_makes_of_a_pause() -> None:
    """It may wrap it, swallow it, or gather it: it gives nothing before it has its value."""
    tried: list[str] = []

    @ax.op(retries=3, timeout=60.0, limiter=1, fallback=-1.0)
    async def stubborn(x: float) -> float:
        found = await asyncio.gather(ax.pause("first"), ax.pause("second"), return_exceptions=True)
        tried.append("gathered")
        if any(isinstance(each, BaseException) for each in found):
            raise RuntimeError("one failed") from found[0]
        try:
            found.append(await ax.pause("third"))
        except BaseException:
            return -2.0
        return x + sum(found)

    with ax.Graph() as graph:
        result = stubborn(ax.constant(1.0, ax.float64))
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(result))
        assert [pause.name for pause in error.pauses] == ["first", "second"]
        values = {"first": 10.0, "second": 100.0, "third": 1000.0}
        for _ in range(2):
            pause = error.pauses[0]
            error = await paused(session.resume(pause.token, values[pause.name]))
        assert [pause.name for pause in error.pauses] == ["third"]
        assert await session.resume(error.token, values["third"]) == 1111.0


async def test_an_attempt_has_the_values_of_the_one_before() -> None:
    attempts: list[float] = []

    @ax.op(retries=ax.Retry(attempts=3, wait_initial_s=0.0))
    async def flaky() -> float:
        answer: float = await ax.pause("approval")
        attempts.append(answer)
        if len(attempts) < 3:
            raise ConnectionError
        return answer

    with ax.Graph() as graph:
        result = flaky()
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(result))
        assert await session.resume(error.token, 2.0) == 2.0
    assert attempts == [2.0, 2.0, 2.0]


async def test_a_run_with_a_branch_that_was_interrupted_is_unfinished() -> None:
    """Though another branch of it waits."""
    fails = [True]

    @ax.op
    async def work(x: float) -> float:
        if fails:
            raise ConnectionError
        return x

    with ax.Graph() as graph:
        x = ax.constant(1.0, ax.float64)
        both = ax.tuple([work(ask(x)), ask(x)])
    async with ax.Session(graph, journal=MemoryStore()) as session:
        assert await session.unfinished_runs() == []
        error = await paused(session.run(both, options=NAMED))
        assert await session.unfinished_runs() == []
        first = next(pause for pause in error.pauses if pause.node == "ask")
        with pytest.raises(ax.errors.UnavailableError):
            await session.resume(first.token, 1.0)
        assert len(await session.pauses()) == 1
        assert await session.unfinished_runs() == ["run"]
        fails.clear()
        error = await paused(session.resume_run("run"))
        assert await session.unfinished_runs() == []
        assert await session.resume(error.token, 5.0) == [2.0, 6.0]
        assert await session.unfinished_runs() == []


async def test_a_store_that_fails_fails_the_run_which_goes_on_later() -> None:
    class Full(MemoryStore):
        is_full = False

        async def put(self, key: str, value: bytes) -> None:
            if self.is_full:
                raise ax.errors.ResourceExhaustedError("the disk is full")
            await super().put(key, value)

    calls: list[int] = []

    @ax.op
    async def work(i: int) -> int:
        calls.append(i)
        store.is_full = len(calls) == 2
        return i + 1

    with ax.Graph() as graph:
        result = work(work(work(ax.constant(0, ax.int64))))
    store = Full()
    async with ax.Session(graph, journal=store) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match="the disk is full"):
            await session.run(result, options=NAMED)
        store.is_full = False
        assert await session.resume_run("run") == 3
    assert calls == [0, 1, 1, 2]


async def test_an_end_of_a_run_that_was_interrupted() -> None:
    """What a crash in forget_run leaves is no run; another of the same name begins anew."""
    store, calls = Recorder(), list[float]()

    @ax.op
    async def work(x: float) -> float:
        calls.append(x)
        return x

    with ax.Graph() as graph:
        result = ask(work(ax.constant(1.0, ax.float64)))
    async with ax.Session(graph, journal=store) as session:
        error = await paused(session.run(result, options=NAMED))
        before = len(store.moments)
        await session.forget_run("run")
    for moment in store.moments[before + 1 :]:
        async with ax.Session(graph, journal=moment) as session:
            assert await session.unfinished_runs() == []
            with pytest.raises(ax.errors.NotFoundError):
                await session.resume(error.token, 1.0)
            calls.clear()
            error_again = await paused(session.run(result, options=NAMED))
            assert calls == [1.0]
            assert await session.resume(error_again.token, 2.0) == 3.0


async def test_a_run_goes_on_under_its_own_name() -> None:
    with ax.Graph() as graph:
        result = ask(ax.constant(1.0, ax.float64))
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(result, options=NAMED))
        with pytest.raises(ax.errors.InvalidArgumentError, match="this is the run 'run', and not 'other'"):
            await session.resume(error.token, 1.0, options=ax.RunOptions(run_id="other"))
        assert await session.resume(error.token, 1.0, options=NAMED) == 2.0


@pytest.mark.parametrize("part", ["result", "run", "pause"])
@pytest.mark.parametrize("harm", ["torn", "foreign", "newer", "other"])
async def test_damage_is_told(part: str, harm: str) -> None:
    @ax.op
    async def one() -> float:
        return 1.0

    with ax.Graph() as graph:
        result = ask(one())
    store = MemoryStore()
    async with ax.Session(graph, journal=store) as session:
        error = await paused(session.run(result, options=NAMED))
        keys = await store.list()
        found = {"run": "runs/run/run", "pause": next(key for key in keys if key.startswith("pauses/"))}
        found["result"] = next(key for key in keys if len(key) == len("runs/run/") + 32)
        content = bytearray(await store.get(found[part]))
        if harm == "torn":
            content = content[:-3]
        elif harm == "foreign":
            content = bytearray(b"hello")
        elif harm == "newer":
            content[8] = 99
        else:
            content = bytearray(to_bytes(Record({"kind": "?"}, {}), JsonCodec()))
        await store.put(found[part], bytes(content))
        kind = ax.errors.FailedPreconditionError if harm == "newer" else ax.errors.DataLossError
        with pytest.raises(kind, match=found[part].replace("/", ".") if harm != "other" else "no p"):
            await session.resume_run("run")
        with pytest.raises((kind, ax.errors.NotFoundError)):
            await session.resume(error.token, 1.0)


async def test_graphs_that_no_journal_can_have() -> None:
    with ax.Graph() as graph:
        kept = ax.get_session_handle(ax.constant(1.0))
        variable = ax.create_op("VariableV2", [], {"dtype": ax.float32, "shape": []}, name="v")
        assigned = ax.create_op("Assign", [variable, ax.constant(1.0)], name="assigned")

        def step(i: ax.Tensor) -> ax.Tensor:
            with ax.device("/cpu:1"):
                return i + 1

        with ax.device("/cpu:0"):
            looped = ax.while_loop(lambda i: i < 3, step, ax.constant(0), checkpoint=1)
    config = ax.SessionConfig(device_count={"CPU": 2})
    async with ax.Session(graph, config, journal=MemoryStore()) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="keeps no tensors in its session"):
            await session.run(kept)
        with pytest.raises(ax.errors.InvalidArgumentError, match="by reference"):
            await session.run(assigned)
        with pytest.raises(ax.errors.InvalidArgumentError, match="on several devices"):
            await session.run(looped)
    async with ax.Session(graph, config) as session:
        assert await session.run(looped) == 3


async def test_a_codec_for_other_objects() -> None:
    class Codec:
        def encode(self, value: Any) -> bytes:
            return json.dumps({"point": value} if isinstance(value, tuple) else {"plain": value}).encode()

        def decode(self, content: bytes) -> Any:
            ((kind, value),) = json.loads(content).items()
            return tuple(value) if kind == "point" else value

    @ax.op
    async def ask_point(point: object) -> object:
        return [point, await ax.pause("point", point)]

    with ax.Graph() as graph:
        asked = ask_point(ax.constant((1, 2), ax.object))
    async with ax.Session(graph, journal=MemoryStore(), journal_codec=Codec()) as session:
        error = await paused(session.run(asked))
        assert error.pauses[0].payload == (1, 2)
        assert await session.resume(error.token, (3, 4)) == [(1, 2), (3, 4)]


def test_values_that_come_back() -> None:
    codec = JournalCodec(JsonCodec())
    error = ax.errors.NotFoundError("gone", node="n", op="Op", hint="look elsewhere")
    error.locate_iteration(["loop 3"])
    row = np.empty(3, object)
    row[:] = [{"a": [1, None]}, b"bytes", error]
    for value in (None, 1.5, "text", [1, {"a": True}]):
        assert codec.decode(codec.encode(value)) == value
    assert str(codec.decode(codec.encode(error))) == str(error)
    again = codec.decode(codec.encode(row.reshape(3, 1)))
    assert again.shape == (3, 1)
    assert again[0, 0] == row[0]
    assert again[1, 0] == b"bytes"
    assert str(again[2, 0]) == str(error)
    with pytest.raises(TypeError, match="tuple"):
        codec.encode((1, 2))


@pytest.mark.allow_blocking
def test_a_blocking_session_pauses() -> None:
    with ax.Graph() as graph:
        asked = ask(ax.constant(1.0, ax.float64))
    store = MemoryStore()
    with ax.BlockingSession(graph, journal=store) as session:
        with pytest.raises(ax.PausedError) as caught:
            session.run(asked, options=NAMED)
        assert session.pauses() == list(caught.value.pauses)
        assert session.unfinished_runs() == []
    with ax.BlockingSession(graph, journal=store) as session:
        assert session.resume(caught.value.token, 2.0) == 3.0
        assert session.resume_run("run") == 3.0
        session.forget_run("run")
        with pytest.raises(ax.errors.NotFoundError):
            session.resume_run("run")
