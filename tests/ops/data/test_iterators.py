"""Iterators: where they begin and end, what errors and cancellations leave behind, and how they are named."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from tests.ops.data.pipelines import Data, Iterated, count, i64, iterated, plain, slices, traced, zipped
from tests.running import settle


async def test_the_end_comes_again_until_the_iterator_begins_anew() -> None:
    with ax.Graph() as graph:
        found = iterated(count(2))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session) == [0, 1]
        for _ in range(2):
            with pytest.raises(OutOfRangeError, match="End of sequence"):
                await session.run(found.next)
        await found.begin(session)
        assert await found.take(session) == [0, 1]


async def test_an_iterator_that_has_not_begun() -> None:
    with ax.Graph() as graph:
        found = iterated(count(2))
    async with ax.Session(graph) as session:
        with pytest.raises(FailedPreconditionError, match="has not been initialized"):
            await session.run(found.next)


async def test_sessions_have_iterators_of_their_own() -> None:
    with ax.Graph() as graph:
        found = iterated(count(3))
    async with ax.Session(graph) as one, ax.Session(graph) as other:
        await found.begin(one)
        await found.begin(other)
        assert await found.take(one, 2) == [0, 1]
        assert await found.take(other) == [0, 1, 2]


async def test_steps_at_once_get_different_elements() -> None:
    with ax.Graph() as graph:
        found = iterated(count(20).map(lambda x: x + 1).batch(2))
    async with ax.Session(graph) as session:
        await found.begin(session)
        taken = await asyncio.gather(*[session.run(found.next) for _ in range(10)])
        assert sorted(plain(each) for each in taken) == [[x, x + 1] for x in range(1, 20, 2)]


async def test_after_an_error_comes_the_next_element() -> None:
    with ax.Graph() as graph:
        found = iterated(slices(i64([1, 0, 2, 4])).map(lambda x: 8 // x))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session, 1) == [8]
        with pytest.raises(InvalidArgumentError, match="zero"):
            await session.run(found.next)
        assert await found.take(session) == [4, 2]


async def test_zipped_datasets_stay_in_step_after_an_error() -> None:
    with ax.Graph() as graph:
        found = iterated(zipped(slices(i64([1, 0, 2])).map(lambda x: 8 // x), count(3)))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session, 1) == [(8, 0)]
        with pytest.raises(InvalidArgumentError):
            await session.run(found.next)
        assert await found.take(session) == [(4, 2)]


async def test_an_error_is_told_though_another_zipped_dataset_ends() -> None:
    with ax.Graph() as graph:
        found = iterated(zipped(slices(i64([1, 0, 2])).map(lambda x: 8 // x), count(1)))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session, 1) == [(8, 0)]
        with pytest.raises(InvalidArgumentError):
            await session.run(found.next)
        assert await found.take(session) == []


@pytest.mark.parametrize("preserves", [False, True])
async def test_out_of_range_in_a_map_is_the_end_unless_the_count_is_kept(preserves: bool) -> None:
    @ax.op
    def until_two(x: int) -> int:
        if x == 2:
            raise OutOfRangeError("enough")
        return x

    with ax.Graph() as graph:
        found = iterated(count(5).map(until_two, preserve_cardinality=preserves))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session, 2) == [0, 1]
        with pytest.raises(InvalidArgumentError if preserves else OutOfRangeError):
            await session.run(found.next)


async def test_types_and_shapes_are_those_that_are_declared() -> None:
    with ax.Graph() as graph:
        handle = iterated(count(2)).handle
        floats = slices([1.0, 2.0])
        wrong = ax.create_op("MakeIterator", [floats.tensor, handle], name="wrong")
        matrix = {"output_types": [ax.int64], "output_shapes": [ax.TensorShape([2])]}
        made = ax.create_op("MakeIterator", [count(2).tensor, handle])
        other = ax.create_op("IteratorGetNext", [handle], matrix)
        no_dataset = ax.create_op("MakeIterator", [ax.create_op("OptionalNone"), handle])
        no_iterator = ax.create_op("IteratorGetNext", [ax.Variable(1).handle], matrix)
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match="Data type mismatch at component 0: expected int64 but got flo"):
            await session.run([], targets=[wrong])
        with pytest.raises(InvalidArgumentError, match="does not hold a dataset"):
            await session.run([], targets=[no_dataset])
        await session.run([], targets=[made])
        with pytest.raises(InvalidArgumentError, match=r"Incompatible shapes at component 0: expected \[2\] but got"):
            await session.run(other)
        with pytest.raises(InvalidArgumentError, match="Expected IteratorResource"):
            await session.run(no_iterator)


async def test_a_string_stands_for_an_iterator() -> None:
    with ax.Graph() as graph:
        one, other = iterated(count(3), "one"), iterated(count(9, 7), "other")
        strings = [ax.create_op("IteratorToStringHandle", [each.handle]) for each in (one, other)]
        fed = ax.placeholder(ax.string, [])
        attrs = count(1).attrs
        named = ax.create_op("IteratorFromStringHandleV2", [fed], attrs)
        taken = ax.create_op("IteratorGetNext", [named], attrs)[0]
        others = {"output_types": [ax.string], "output_shapes": [ax.TensorShape([])]}
        wrong = ax.create_op("IteratorFromStringHandle", [fed], others)
    async with ax.Session(graph) as session:
        await one.begin(session)
        await other.begin(session)
        first, second = await session.run(strings)
        assert [await session.run(taken, {fed: each}) for each in (first, second, first)] == [0, 7, 1]
        with pytest.raises(InvalidArgumentError, match="Could not parse string_handle"):
            await session.run(taken, {fed: b"iterator 99"})
        with pytest.raises(InvalidArgumentError, match="Data type mismatch"):
            await session.run([], {fed: first}, targets=[wrong.op])


async def test_optionals_tell_the_end() -> None:
    with ax.Graph() as graph:
        found = iterated(count(1))
        attrs = count(1).attrs
        optional = ax.create_op("IteratorGetNextAsOptional", [found.handle], attrs)
        has_value = ax.create_op("OptionalHasValue", [optional])
        value = ax.cond(has_value, lambda: ax.create_op("OptionalGetValue", [optional], attrs)[0], lambda: i64(-1))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert [await session.run(value) for _ in range(3)] == [0, -1, -1]


async def test_a_one_shot_iterator_begins_by_itself_once_for_all_signatures() -> None:
    num_begun = 0

    @ax.op(outputs=[ax.int64])
    async def two() -> Any:
        nonlocal num_begun
        num_begun += 1
        for _ in range(20):  # while the other run asks, too
            await asyncio.sleep(0)
        return np.int64(2)

    with ax.Graph() as graph:
        made, _ = traced(lambda: count(two()), [], [])
        attrs = count(1).attrs
        handle = ax.create_op("OneShotIterator", [], {"dataset_factory": made.name, **attrs})
        found = Iterated(handle, None, ax.create_op("IteratorGetNext", [handle], attrs))
        again = ax.create_op("IteratorGetNextSync", [handle], attrs)
    async with ax.Session(graph) as session:
        both = await asyncio.gather(session.run(found.next), session.run(again))
        assert sorted(plain(each) for each in both) == [0, 1]
        assert await found.take(session) == []
    assert num_begun == 1


async def test_an_anonymous_iterator_lasts_as_long_as_its_step() -> None:
    with ax.Graph() as graph:
        data = count(9).prefetch(3)
        handle = ax.create_op("AnonymousIteratorV3", [], data.attrs)
        made = ax.create_op("MakeIterator", [data.tensor, handle])
        with ax.control_dependencies([made]):
            first = ax.create_op("IteratorGetNext", [handle], data.attrs)[0]
        with ax.control_dependencies([first]):
            second = ax.create_op("IteratorGetNext", [handle], data.attrs)[0]
    async with ax.Session(graph) as session:
        for _ in range(3):
            assert await session.run([first, second]) == [0, 1]
        gc.collect()
        await settle()
        assert not session._resource_mgr.background.is_in_use


async def test_a_cancelled_step_gives_back_its_element() -> None:
    never, both, waiting = asyncio.Event(), asyncio.Event(), []

    @ax.op
    async def wait(x: int) -> int:
        waiting.append(x)
        if len(waiting) == 2:
            both.set()
        await never.wait()
        return x

    with ax.Graph() as graph:
        found = iterated(count(3))
        (element,) = found.next
        slow = wait(element)
    async with ax.Session(graph) as session:
        await found.begin(session)
        steps = [asyncio.ensure_future(session.run(slow)) for _ in range(2)]
        await both.wait()
        for step in reversed(steps):
            step.cancel()
        await asyncio.wait(steps)
        assert await found.take(session) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["map", "batch", "filter", "flat map", "scan", "zip"])
async def test_a_step_that_is_cancelled_while_it_pulls_loses_nothing(kind: str) -> None:
    held, reached, calls = asyncio.Event(), asyncio.Event(), []

    @ax.op
    async def slow(x: int) -> int:
        calls.append(x)
        if x == 1:
            reached.set()
            await held.wait()
        return x

    def make() -> Data:
        source = count(4)
        match kind:
            case "map":
                return source.map(slow)
            case "batch":
                return source.map(slow).batch(4)
            case "filter":
                return source.filter(lambda x: slow(x) >= 0)
            case "flat map":
                return source.flat_map(lambda x: slices(ax.expand_dims(slow(x), 0)))
            case "scan":
                made, _ = traced(lambda s, x: (s, slow(x)), [ax.int64] * 2, [ax.TensorShape([])] * 2)
                attrs = {"f": made.name, "Tstate": [ax.int64], "Targuments": []}
                return source.op("ScanDataset", [i64(0)], [], dtypes=[ax.int64], **attrs)
        return zipped(count(4), source.map(slow)).map(lambda x, y: y)

    with ax.Graph() as graph:
        found = iterated(make())
    async with ax.Session(graph) as session:
        await found.begin(session)
        taken = [] if kind == "batch" else await found.take(session, 1)
        step = asyncio.ensure_future(session.run(found.next))
        await reached.wait()
        step.cancel()
        await asyncio.wait([step])
        assert step.cancelled()
        held.set()
        taken += await found.take(session)
        assert taken == ([[0, 1, 2, 3]] if kind == "batch" else [0, 1, 2, 3])
        assert calls == [0, 1, 1, 2, 3]  # what was cancelled was called again


async def test_captured_arrays_are_those_of_the_step_that_begins() -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.int64, [None])
        found = iterated(slices(fed).map(lambda x: x + fed[0]))
    async with ax.Session(graph) as session:
        array = np.array([1, 2, 3])
        await session.run([], {fed: array}, targets=[found.make])
        array[:] = 100
        assert await found.take(session) == [2, 3, 4]


LONG = {
    "skip": lambda: count(100_000).skip(99_999),
    "cache": lambda: count(10_000).cache().repeat(8).skip(79_999),
    "unbatch": lambda: (
        count(1).map(lambda x: ax.range(ax.constant(80_000, ax.int64))).op("UnbatchDataset").skip(79_999)
    ),
    "filter": lambda: count(2_000).filter(lambda x: x > 1_998),
    "shuffle": lambda: count(25_000).shuffle(25_000).skip(24_999),
    "batch": lambda: count(50_000).batch(50_000).map(lambda x: x[0]),
}


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("kind", LONG)
async def test_a_long_pull_lets_others_have_the_loop(kind: str) -> None:
    with ax.Graph() as graph:
        found = iterated(LONG[kind]())
    async with ax.Session(graph) as session:
        await found.begin(session)
        step = asyncio.ensure_future(session.run(found.next))
        turns = 0
        while not step.done():
            turns += 1
            await asyncio.sleep(0)
        await step
        assert turns > 6


async def test_consumers_of_datasets() -> None:
    with ax.Graph() as graph:
        made, _ = traced(lambda s, x: s + x, [ax.int64] * 2, [ax.TensorShape([])] * 2)
        attrs: dict[str, Any] = {"f": made.name, "Tstate": [ax.int64], "Targuments": [], **count(1).attrs}
        total = ax.create_op("ReduceDataset", [count(5).prefetch(2).tensor, [i64(100)], []], attrs)[0]
        single = [ax.create_op("DatasetToSingleElement", [count(n).tensor], count(1).attrs)[0] for n in (0, 1, 2)]
        sizes = [count(5), count(5).repeat(), count(5).filter(lambda x: x > 1), count(5).batch(2)]
        counts = [ax.create_op("DatasetCardinality", [each.tensor]) for each in sizes]
    async with ax.Session(graph) as session:
        assert await session.run(total) == 110
        assert await session.run(single[1]) == 0
        with pytest.raises(InvalidArgumentError, match=r"Dataset was empty\."):
            await session.run(single[0])
        with pytest.raises(InvalidArgumentError, match=r"Dataset had more than one element\."):
            await session.run(single[2])
        assert await session.run(counts) == [5, -1, -2, 3]
        assert not session._resource_mgr.background.is_in_use


async def test_a_table_is_filled_from_a_dataset() -> None:
    with ax.Graph() as graph:
        attrs = {"key_dtype": ax.string, "value_dtype": ax.int64}
        table = ax.create_op("HashTableV2", [], attrs)
        filled = ax.create_op("InitializeTableFromDataset", [table, slices(["a", "b"], i64([1, 2])).tensor])
        swapped = ax.create_op("InitializeTableFromDataset", [table, slices(i64([1, 2]), ["a", "b"]).tensor])
        keys = ax.constant(["b", "c"])
        found = ax.create_op("LookupTableFindV2", [table, keys, i64(-1)])
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match="expected string and int64"):
            await session.run([], targets=[swapped])
        await session.run([], targets=[filled])
        assert (await session.run(found)).tolist() == [2, -1]


@pytest.mark.parametrize("executor_type", ["DEFAULT", "TAGGED_TOKEN", "COMPILED"])
async def test_every_executor_runs_a_loop_over_a_dataset(executor_type: str) -> None:
    with ax.Graph() as graph:
        data = count(6).map(lambda x: x * x, parallel=2).prefetch(1)
        handle = ax.create_op("AnonymousIteratorV3", [], data.attrs)
        with ax.control_dependencies([ax.create_op("MakeIterator", [data.tensor, handle])]):
            begun = ax.identity(handle)

        def body(i: Any, total: Any) -> Any:
            return i + 1, total + ax.create_op("IteratorGetNext", [begun], data.attrs)[0]

        total = ax.while_loop(lambda i, total: i < 5, body, [0, ax.constant(0, ax.int64)])[1]
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(5):
            assert await session.run(total) == 0 + 1 + 4 + 9 + 16
