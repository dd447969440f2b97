"""Streams with checkpoints: a run that ends anywhere and goes on gives what a run that never ended gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.durable.record import JsonCodec, Record, from_bytes, to_bytes, told_in


class Ledger(ax.checkpoint.MemoryStore):
    """A store that commits what was written since the last ``put``, as a database does."""

    commits_outputs = True

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[Any] = []
        self.written: list[Any] = []

    async def put(self, key: str, value: bytes) -> None:
        await super().put(key, value)
        await asyncio.sleep(0)
        self.committed += self.written
        self.written = []

    def crash(self) -> None:
        self.written = []


class Log:
    """A log with positions of its own: ten times the number of the entry."""

    def __init__(self, values: list[float]) -> None:
        self.values = values
        self.seeks: list[Any] = []

    def __aiter__(self) -> LogIterator:
        return LogIterator(self.values, 0)

    def seek(self, position: Any) -> LogIterator:
        self.seeks.append(position)
        return LogIterator(self.values, position["offset"] // 10)


class LogIterator(AsyncIterator[float]):
    def __init__(self, values: list[float], start: int) -> None:
        self._values = values
        self._next = start

    @property
    def position(self) -> dict[str, int]:
        return {"offset": self._next * 10}

    async def __anext__(self) -> float:
        await asyncio.sleep(0)
        if self._next >= len(self._values):
            raise StopAsyncIteration
        self._next += 1
        return self._values[self._next - 1]


def totals_graph(source: Any = None) -> tuple[ax.Graph, ax.Tensor, Any]:
    """Totals and windows of numbers, behind an op whose later items are quicker."""

    @ax.op(outputs=[ax.float64], shapes=[[]])
    async def load(value: Any) -> Any:
        for _ in range(3 - int(value) % 4):
            await asyncio.sleep(0)
        return value

    with ax.Graph() as graph:
        fed = source is None
        x = ax.placeholder(ax.float64, [], name="x") if fed else ax.source(source, ax.float64, [], name="x")
        loaded = load(x)
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        new = total.update(total.value + loaded)
        recent = ax.window(loaded, size=3)
    return graph, x, [new, recent]


def expected(count: int) -> list[tuple[float, list[float]]]:
    return [(float(sum(range(i + 1))), [float(j) for j in range(max(0, i - 2), i + 1)]) for i in range(count)]


def plain(result: Any) -> tuple[float, list[float]]:
    return float(result[0]), result[1].tolist()


async def take_some(results: Any, store: Ledger, count: int) -> bool:
    """Write *count* results at most; whether there were more."""
    async for result in results:
        if count == 0:
            store.crash()
            return True
        store.written.append(plain(result))
        count -= 1
    return False


@pytest.mark.virtual_clock
@settings(max_examples=30, deadline=None)
@given(
    runs=st.lists(st.integers(0, 12), max_size=6), every=st.integers(1, 7), window=st.integers(1, 6), kind=st.booleans()
)
def test_a_map_that_ends_anywhere_goes_on(runs: list[int], every: int, window: int, kind: bool) -> None:
    async def main() -> None:
        store = Ledger()
        for count in [*runs, 1000]:
            graph, _, fetches = totals_graph()
            items = [{"x:0": float(i)} for i in range(20)]
            async with ax.Session(graph) as session:
                ordered = session.map(fetches, items, window=window, checkpoint=store, every=every, ordered=kind)
                async with ordered as results:
                    if await take_some(results, store, count):
                        continue
        got = store.committed if kind else sorted(store.committed)
        assert got == expected(20)

    asyncio.run(main())


@settings(max_examples=30, deadline=None)
@given(runs=st.lists(st.integers(0, 12), max_size=6), every=st.integers(1, 7), window=st.integers(1, 6))
def test_a_stream_of_a_log_that_ends_anywhere_goes_on(runs: list[int], every: int, window: int) -> None:
    async def main() -> None:
        store = Ledger()
        for count in [*runs, 1000]:
            graph, _, fetches = totals_graph(Log([float(i) for i in range(20)]))
            async with (
                ax.Session(graph) as session,
                session.stream(fetches, window=window, checkpoint=store, every=every) as stream,
            ):
                await take_some(stream, store, count)
        assert store.committed == expected(20)

    asyncio.run(main())


@settings(max_examples=30, deadline=None)
@given(runs=st.lists(st.integers(0, 6), max_size=6), size=st.integers(1, 4), every=st.integers(1, 4))
def test_windows_of_a_log_go_on_where_they_were(runs: list[int], size: int, every: int) -> None:
    async def main() -> None:
        store = Ledger()
        log = Log([float(i) for i in range(11)])
        for count in [*runs, 1000]:
            with ax.Graph() as graph:
                x = ax.source(ax.windows(log, size=size), ax.float64, [None], name="x")
            async with ax.Session(graph) as session, session.stream(x, checkpoint=store, every=every) as stream:
                taken = 0
                async for result in stream:
                    if taken == count:
                        store.crash()
                        break
                    store.written.append(result.tolist())
                    taken += 1
        assert store.committed == [[float(i) for i in range(11)][start : start + size] for start in range(0, 11, size)]

    asyncio.run(main())


async def test_positions_are_those_of_the_source() -> None:
    store, log = Ledger(), Log([float(i) for i in range(10)])
    for _ in range(2):
        graph, _, fetches = totals_graph(log)
        async with ax.Session(graph) as session, session.stream(fetches, checkpoint=store, every=4) as stream:
            await take_some(stream, store, 6)
    assert log.seeks == [{"offset": 40}]
    assert store.committed == expected(10)


@pytest.mark.parametrize("holds", [False, True])
async def test_items_behind_a_cut_go_on_while_it_is_stored_unless_it_holds(holds: bool) -> None:
    started: list[int] = []

    @ax.op(outputs=[ax.int64], shapes=[[]])
    def start(value: Any) -> Any:
        started.append(int(value))
        return value

    class Slow(ax.checkpoint.MemoryStore):
        commits_outputs = holds
        started: list[list[int]] = []

        async def put(self, key: str, value: bytes) -> None:
            if not key.endswith("/owner"):
                for _ in range(20):
                    await asyncio.sleep(0)
                self.started = [*self.started, started.copy()]
            await super().put(key, value)

    store = Slow()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = start(x)
    items = [{x: i} for i in range(6)]
    async with ax.Session(graph) as session:
        results = session.map(y, items, window=8, checkpoint=store, every=2)
        assert [int(value) async for value in results] == list(range(6))
    seen = [len(each) for each in store.started]
    assert seen == ([0, 2, 4, 6] if holds else [6] * len(seen))


async def run_all(graph: ax.Graph, fetches: Any, items: Any, store: Any, **options: Any) -> list[Any]:
    async with ax.Session(graph) as session:
        await session.run(graph.operation("init")) if "init" in graph.names else None
        return [value async for value in session.map(fetches, items, checkpoint=store, **options)]


def stateful_graph() -> tuple[ax.Graph, Any]:
    """What outlives items in a session: a variable, a table, a queue and a generator."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        counter = ax.Variable(ax.constant(0, ax.int64), name="counter")
        table = ax.raw_ops.MutableHashTableV2(key_dtype=ax.int64, value_dtype=ax.int64, name="table")
        queue = ax.FIFOQueue(10, [ax.int64], shapes=[[]], name="queue")
        with ax.control_dependencies([counter.assign_add(x)]):
            counted = counter.read_value()
        inserted = ax.raw_ops.LookupTableInsertV2(table, x % 3, counted)
        with ax.control_dependencies([inserted]):
            found = ax.raw_ops.LookupTableFindV2(table, ax.constant([0, 1, 2], ax.int64), ax.constant(-1, ax.int64))
            put = queue.enqueue(x)
        with ax.control_dependencies([put]):
            size = queue.size()
        draw = ax.random_uniform([], seed=7)
        ax.group(counter.initializer, name="init")
    return graph, [counted, found, size, draw]


async def test_variables_tables_queues_and_generators_are_in_a_checkpoint() -> None:
    items = [{"x:0": i} for i in range(1, 9)]
    graph, fetches = stateful_graph()
    whole = await run_all(graph, fetches, items, ax.checkpoint.MemoryStore(), every=3, window=1)
    store = ax.checkpoint.MemoryStore()
    got: list[Any] = []
    for count in (4, 8):
        graph, fetches = stateful_graph()
        async with ax.Session(graph) as session:
            await session.run(graph.operation("init"))
            async with session.map(fetches, items, window=1, checkpoint=store, every=3) as results:
                got = got[:3]
                async for result in results:
                    got.append(result)
                    if len(got) == count:
                        break
    for mine, theirs in zip(got, whole, strict=True):
        for value, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(value, other)


async def test_a_snapshot_is_restored() -> None:
    graph, x, fetches = totals_graph()
    async with ax.Session(graph) as session:
        async with session.stream(fetches, checkpoint=ax.checkpoint.MemoryStore()) as stream:
            for i in range(4):
                await stream.send({x: float(i)})
            taken = asyncio.create_task(anext(stream))
            snapshot = await stream.snapshot()
            assert plain(await taken) == expected(1)[0]
            assert stream.position == 4
        async with session.stream(fetches, restore=snapshot) as stream:
            assert stream.position == 4
            assert await stream.snapshot() == snapshot
            for i in range(4, 6):
                await stream.send({x: float(i)})
            await stream.close()
            assert [plain(result) async for result in stream] == expected(6)[4:]


async def test_a_snapshot_of_another_graph_is_refused() -> None:
    graph, x, fetches = totals_graph()
    async with ax.Session(graph) as session:
        async with session.stream(fetches, checkpoint=ax.checkpoint.MemoryStore()) as stream:
            await stream.send({x: 1.0})
            snapshot = await stream.snapshot()
        with pytest.raises(ax.errors.FailedPreconditionError, match="go on with the graph of the snapshot"):
            async with session.stream(fetches[0], restore=snapshot) as stream:
                await stream.send({x: 1.0})


@pytest.mark.parametrize("workers", [5, {"/job:worker"}, [1], [None]])
async def test_workers_that_are_no_names_are_refused(workers: Any) -> None:
    graph, _, fetches = totals_graph()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidTypeError, match="workers= of a map names workers"):
            session.map(fetches, [], workers=workers)


async def test_a_stream_that_has_ended_gives_nothing_more() -> None:
    graph, _, fetches = totals_graph()
    store, items = ax.checkpoint.MemoryStore(), [{"x:0": float(i)} for i in range(5)]
    assert len(await run_all(graph, fetches, items, store)) == 5
    assert await run_all(graph, fetches, items, store) == []
    assert len(await run_all(graph, fetches, items, store, resume=False)) == 5
    assert len(await run_all(graph, fetches, [*items, {"x:0": 5.0}], store)) == 1


@pytest.mark.virtual_clock
async def test_every_as_a_float_is_seconds() -> None:
    saved: list[float] = []

    class Noting(ax.checkpoint.MemoryStore):
        async def put(self, key: str, value: bytes) -> None:
            if not key.endswith("/owner"):
                saved.append(asyncio.get_running_loop().time() - began)
            await super().put(key, value)

    class Seconds:
        def seek(self, position: int) -> AsyncIterator[int]:
            return self.count(position)

        def __aiter__(self) -> AsyncIterator[int]:
            return self.count(0)

        async def count(self, start: int) -> AsyncIterator[int]:
            for i in range(start, 10):
                yield i
                await asyncio.sleep(1)

    with ax.Graph() as graph:
        x = ax.source(Seconds(), ax.int64, [])
    began = asyncio.get_running_loop().time()
    async with ax.Session(graph) as session:
        await session.stream(x, checkpoint=Noting(), every=4.0).run()
    assert [round(each) for each in saved] == [0, 4, 8, 10]


async def test_windows_that_are_not_full_are_sent_or_drawn_again() -> None:
    for flush, rest in ((True, [[2.0], [3.0, 4.0]]), (False, [[2.0, 3.0], [4.0]])):
        store, values, got = ax.checkpoint.MemoryStore(), [0.0, 1.0, 2.0], []
        gate = asyncio.Event()

        class Waiting:
            def __aiter__(self) -> AsyncIterator[float]:
                return self.seek(0)

            async def seek(self, position: int) -> AsyncIterator[float]:
                for value in values[position:]:  # noqa: B023
                    yield value
                gate.set()  # noqa: B023
                await asyncio.Event().wait()

        for _ in range(2):
            with ax.Graph() as graph:
                x = ax.source(ax.windows(Waiting(), size=2, seconds=3600), ax.float64, [None], name="x")
            async with ax.Session(graph) as session, session.stream(x, checkpoint=store) as stream:
                await gate.wait()
                closing = asyncio.create_task(stream.close(flush=flush or bool(got)))
                got += [result.tolist() async for result in stream]
                await closing
            values += [3.0, 4.0]
            gate.clear()
        assert got == [[0.0, 1.0], *rest]


async def test_what_windows_hold_is_not_lost_by_a_wish() -> None:
    with ax.Graph() as graph:
        x = ax.source(ax.windows(range(5), size=2), ax.float64, [None], name="x")
    async with ax.Session(graph) as session, session.stream(x) as stream:
        with pytest.raises(ax.errors.FailedPreconditionError, match="flush=False would lose"):
            await stream.close(flush=False)


# What is refused.


def numbers() -> Iterator[dict[str, float]]:
    yield {"x:0": 1.0}


async def test_a_source_that_cannot_seek_is_refused_at_the_start() -> None:
    graph, _, fetches = totals_graph()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"generator.*cannot seek[\s\S]*seek\(position\)"):
            session.map(fetches, numbers(), checkpoint=ax.checkpoint.MemoryStore())
        free = session.map(fetches, numbers(), checkpoint=ax.checkpoint.MemoryStore(), exactly_once=False)
        assert len([result async for result in free]) == 1
    graph, _, fetches = totals_graph(lambda: iter([1.0]))
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="source 'x' cannot seek"):
            await session.stream(fetches, checkpoint=ax.checkpoint.MemoryStore()).run()


def changing_graph(op: str = "AddV2", constant: float = 3.0, *, is_absolute: bool = False) -> ax.Graph:
    with ax.Graph() as graph:
        x: Any = ax.placeholder(ax.float64, [], name="x")
        value = ax.constant(constant, ax.float64, name="c")
        y = getattr(ax.raw_ops, op)(ax.raw_ops.Abs(x, name="abs") if is_absolute else x, value, name="y")
        ax.raw_ops.Identity(y, name="z")
    return graph


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"op": "Mul"}, "node 'y' was AddV2 and is Mul"),
        ({"constant": 4.0}, r"attr 'value' of node 'c' \(Const\) has another value"),
        (
            {"is_absolute": True},
            r"the inputs of node 'y' were \['x', 'c'\] and are \['abs', 'c'\]; node 'abs' .* is new",
        ),
    ],
)
async def test_a_graph_that_has_changed_is_refused(change: dict[str, Any], told: str) -> None:
    store, items = ax.checkpoint.MemoryStore(), [{"x:0": 1.0}]
    await run_all(changing_graph(), "z:0", items, store)
    assert await run_all(changing_graph(), "z:0", items, store) == []
    with pytest.raises(ax.errors.FailedPreconditionError, match=told):
        await run_all(changing_graph(**change), "z:0", items, store)
    assert len(await run_all(changing_graph(**change), "z:0", items, store, resume=False)) == 1


async def test_a_changed_shape_is_told_as_a_shape() -> None:
    store = ax.checkpoint.MemoryStore()
    for shape, value in (([], 1.0), ([2], [1.0, 2.0])):
        with ax.Graph() as graph:
            ax.identity(ax.placeholder(ax.float64, shape, name="x"), name="z")
        if shape:
            with pytest.raises(
                ax.errors.FailedPreconditionError, match=r"'shape' .* was of shape \[\] and is of shape \[2\]"
            ):
                await run_all(graph, "z:0", [{"x:0": value}], store)
        else:
            await run_all(graph, "z:0", [{"x:0": value}], store)


async def test_a_state_without_a_form_is_refused_at_the_start() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        last = ax.stream_state(ax.constant({1, 2}, ax.object), name="last")
        last.update(last.value)
        ax.raw_ops.Identity(x, name="y")
        sink = ax.group(last.value, name="sink")
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"state 'last': a value of type builtins\.set"):
        await run_all(graph, [sink, last.value, "y:0"], [{"x:0": 1.0}], ax.checkpoint.MemoryStore())


class Broken(ax.checkpoint.MemoryStore):
    """A store that fails for some calls."""

    failures = 0

    async def put(self, key: str, value: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise ax.errors.UnavailableError("the database is locked")
        await super().put(key, value)


async def extend(got: list[Any], results: AsyncIterator[Any]) -> None:
    async for result in results:
        got.append(plain(result))


async def test_a_store_that_is_locked_is_told_and_tried_again() -> None:
    graph, _, fetches = totals_graph()
    store, items = Broken(), [{"x:0": float(i)} for i in range(5)]
    store.failures = 1
    with pytest.raises(ax.errors.UnavailableError, match="locked"):
        await run_all(graph, fetches, items, store)
    got: list[Any] = []
    async with ax.Session(graph) as session, session.map(fetches, items, checkpoint=store, every=2) as results:
        got += [plain(await anext(results)) for _ in range(2)]
        store.failures = 1
        with pytest.raises(ax.errors.UnavailableError, match="locked"):
            await extend(got, results)
        await extend(got, results)
    assert got == expected(5)
    assert await run_all(graph, fetches, items, store) == []


async def test_a_sequence_that_is_shorter_than_it_was_is_told() -> None:
    graph, _, fetches = totals_graph()
    store = ax.checkpoint.MemoryStore()
    await run_all(graph, fetches, [{"x:0": 1.0}] * 5, store)
    with pytest.raises(ax.errors.OutOfRangeError, match="item 5, and the sequence has 3"):
        await run_all(graph, fetches, [{"x:0": 1.0}] * 3, store)


@pytest.mark.parametrize("every", [np.int64(2), np.uint8(2)])
async def test_every_may_be_of_any_type_of_integers(every: Any) -> None:
    graph, _, fetches = totals_graph()
    store = ax.checkpoint.MemoryStore()
    store.commits_outputs = True  # type: ignore[attr-defined]  # so that items wait until a checkpoint is stored
    items = [{"x:0": 1.0}] * 5
    async with ax.Session(graph) as session, session.map(fetches, items, checkpoint=store, every=every) as results:
        assert len([result async for result in results]) == 5
    numbers = [told_in(await store.get(key))["number"] for key in await store.list() if not key.endswith("owner")]
    assert sorted(numbers) == [4, 5]


@pytest.mark.parametrize(
    "every", [0, -1, True, "5", 0.0, float("nan"), float("inf"), np.int64(0), np.float32(2), 2 + 0j]
)
async def test_every_is_a_number(every: Any) -> None:
    graph, _, fetches = totals_graph()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="every is a number"):
            session.stream(fetches, checkpoint=ax.checkpoint.MemoryStore(), every=every)


@pytest.mark.parametrize("kind", ["store", "restore"])
async def test_what_is_no_store_and_no_snapshot_is_refused(kind: Literal["store", "restore"]) -> None:
    graph, _, fetches = totals_graph()
    wrong: dict[str, Any] = {"checkpoint": "orders.db"} if kind == "store" else {"restore": "bytes"}
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidTypeError):
            session.stream(fetches, **wrong)
        with pytest.raises(ax.errors.DataLossError, match="no checkpoint"):
            await session.stream(fetches, restore=b"foreign").__aenter__()


async def test_the_checkpoint_before_is_used_when_the_last_is_torn() -> None:
    graph, _, fetches = totals_graph()
    store, items = ax.checkpoint.MemoryStore(), [{"x:0": float(i)} for i in range(6)]
    await run_all(graph, fetches, items, store, every=4)
    keys = (await store.list())[:2]
    records = {key: from_bytes(await store.get(key), JsonCodec()).about["number"] for key in keys}
    assert sorted(records.values()) == [4, 6]
    last = max(records, key=records.__getitem__)
    await store.put(last, (await store.get(last))[:-1])
    with pytest.warns(ax.checkpoint.CheckpointWarning, match="torn"):
        got = await run_all(graph, fetches, items, store, every=4)
    assert [plain(result) for result in got] == expected(6)[4:]


async def test_a_record_of_something_else_is_told() -> None:
    graph, _, fetches = totals_graph()
    store = ax.checkpoint.MemoryStore()
    await run_all(graph, fetches, [{"x:0": 1.0}], store)
    prefix = (await store.list())[-1].rpartition("/")[0]
    for key in (f"{prefix}/0", f"{prefix}/1"):
        await store.put(key, to_bytes(Record({"other": 1}, {}), JsonCodec()))
    with pytest.raises(ax.errors.DataLossError, match="no checkpoint of a stream"):
        await run_all(graph, fetches, [{"x:0": 1.0}], store)
