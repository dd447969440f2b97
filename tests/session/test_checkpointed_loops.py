"""Loops in runs with a journal: a loop that ends anywhere goes on at the iteration where it was."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.checkpoint import MemoryStore
from tests.session.journal_stores import Recorder

NAMED = ax.RunOptions(run_id="loop")


def summing(calls: list[int], checkpoint: int | None, count: int = 10, **options: Any) -> ax.Graph:
    """The sum of the numbers below *count*, each added by a call."""

    @ax.op
    async def add(total: int, i: int) -> int:
        calls.append(i)
        await asyncio.sleep(0.001)
        return total + i

    with ax.Graph() as graph:
        _, total = ax.while_loop(
            lambda i, _: i < count,
            lambda i, total: (i + 1, add(total, i)),
            (ax.constant(0, ax.int64), ax.constant(0, ax.int64)),
            checkpoint=checkpoint,
            **options,
        )
        ax.identity(total, name="total")
    return graph


async def test_a_loop_goes_on_where_it_was_cancelled() -> None:
    for checkpoint in (None, 1, 3):
        store, calls = MemoryStore(), list[int]()
        for _ in range(4):
            async with ax.Session(summing(calls, checkpoint), journal=store) as session:
                run = asyncio.create_task(session.run("total:0", options=NAMED))
                wanted = len(calls) + 2
                async with asyncio.timeout(10):
                    while len(calls) < wanted:  # noqa: ASYNC110 - the ops are as they are
                        await asyncio.sleep(0)
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
        async with ax.Session(summing(calls, checkpoint), journal=store) as session:
            assert await session.resume_run("loop") == 45
        counts = [calls.count(i) for i in range(10)]
        assert min(counts) == 1
        assert sum(counts) - 10 <= 4  # the calls that were under way when the run was cancelled


@pytest.mark.virtual_clock
@pytest.mark.parametrize("checkpoint", [1, 2, 7])
async def test_a_crash_between_any_two_writes(checkpoint: int) -> None:
    store = Recorder()
    async with ax.Session(summing([], checkpoint), journal=store) as session:
        assert await session.run("total:0", options=NAMED) == 45
    assert len(store.moments) > 10
    for number, moment in enumerate([*store.moments, store.copy()]):
        calls: list[int] = []
        async with ax.Session(summing(calls, checkpoint), journal=moment) as session:
            assert await session.run("total:0", options=NAMED) == 45
        assert calls == list(range(10))[10 - len(calls) :]
        assert len(calls) <= 10 - number // 4  # a call is followed by three writes at most


async def test_what_iterations_have_left_is_forgotten() -> None:
    store = MemoryStore()
    async with ax.Session(summing([], 1, 60), journal=store) as session:
        await session.run("total:0", options=NAMED)
    assert len(await store.list()) <= 5
    plain = MemoryStore()
    async with ax.Session(summing([], None, 60), journal=plain) as session:
        await session.run("total:0", options=NAMED)
    assert len(await plain.list()) > 60


async def test_the_number_of_iterations_is_counted_from_the_beginning() -> None:
    calls: list[int] = []
    store = Recorder()
    async with ax.Session(summing([], 1, 100, maximum_iterations=7), journal=store) as session:
        assert await session.run("total:0", options=NAMED) == 21
    async with ax.Session(summing(calls, 1, 100, maximum_iterations=7), journal=store.moments[12]) as session:
        assert await session.run("total:0", options=NAMED) == 21
    assert 0 < len(calls) < 7


@pytest.mark.virtual_clock
@pytest.mark.parametrize("checkpoints", [(1, 1), (1, None), (None, 1), (2, 3)])
async def test_loops_in_loops(checkpoints: tuple[int | None, int | None]) -> None:
    outer_every, inner_every = checkpoints

    def nested(calls: list[tuple[int, int]]) -> ax.Graph:
        @ax.op
        async def note(i: int, j: int) -> int:
            calls.append((i, j))
            return i * j

        def inner(i: ax.Tensor, total: ax.Tensor) -> ax.Tensor:
            _, total = ax.while_loop(
                lambda j, _: j < i,
                lambda j, total: (j + 1, total + note(i, j)),
                (ax.constant(0, ax.int64), total),
                checkpoint=inner_every,
                name="inner",
            )
            return total

        with ax.Graph() as graph:
            _, total = ax.while_loop(
                lambda i, _: i < 4,
                lambda i, total: (i + 1, inner(i, total)),
                (ax.constant(0, ax.int64), ax.constant(0, ax.int64)),
                checkpoint=outer_every,
                name="outer",
            )
            ax.identity(total, name="total")
        return graph

    whole: list[tuple[int, int]] = []
    store = Recorder()
    async with ax.Session(nested(whole), journal=store) as session:
        expected = await session.run("total:0", options=NAMED)
    assert expected == sum(i * j for i in range(4) for j in range(i))
    assert sorted(whole) == [(i, j) for i in range(4) for j in range(i)]
    if outer_every == 1:
        assert len(await store.list()) <= 3  # what inner loops have left is forgotten with their iteration
    for moment in store.moments[::3]:
        calls: list[tuple[int, int]] = []
        async with ax.Session(nested(calls), journal=moment) as session:
            assert await session.run("total:0", options=NAMED) == expected
        assert len(calls) == len(set(calls))


async def test_an_iteration_with_a_pause_is_not_passed() -> None:
    """The predicate and the next iteration need nothing of what the pause gives; they wait for it all the same."""

    def graph_of() -> ax.Graph:
        @ax.op
        async def ask(i: int) -> int:
            return await ax.pause("value", i)

        with ax.Graph() as graph:
            variables = ax.constant(0, ax.int64), ax.constant(0, ax.int64)
            _, last = ax.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, ask(i)), variables, checkpoint=1)
            ax.identity(last, name="last")
        return graph

    store, asked = MemoryStore(), list[int]()
    async with ax.Session(graph_of(), journal=store) as session:
        with pytest.raises(ax.PausedError) as caught:
            await session.run("last:0")
    for number in range(3):
        (pause,) = caught.value.pauses
        asked.append(pause.payload)
        async with ax.Session(graph_of(), journal=store) as session:
            if number < 2:
                with pytest.raises(ax.PausedError) as caught:
                    await session.resume(pause.token, number * 10)
            else:
                assert await session.resume(pause.token, number * 10) == 20
    assert asked == [0, 1, 2]


async def test_a_pause_in_the_predicate() -> None:
    def graph_of() -> ax.Graph:
        @ax.op
        async def goes_on(i: int) -> bool:
            return await ax.pause("go on?", i)

        with ax.Graph() as graph:
            i = ax.while_loop(goes_on, lambda i: i + 1, ax.constant(0, ax.int64), checkpoint=1)
            ax.identity(i, name="i")
        return graph

    store = MemoryStore()
    async with ax.Session(graph_of(), journal=store) as session:
        with pytest.raises(ax.PausedError) as caught:
            await session.run("i:0")
    for answer in (True, True, True):
        async with ax.Session(graph_of(), journal=store) as session:
            token = caught.value.token
            with pytest.raises(ax.PausedError) as caught:
                await session.resume(token, answer)
    assert (caught.value.pauses[0].payload, caught.value.pauses[0].iteration) == (3, "while 3")
    async with ax.Session(graph_of(), journal=store) as session:
        assert await session.resume(caught.value.token, False) == 3


async def test_variables_of_all_kinds_are_stored() -> None:
    def graph_of(calls: list[int]) -> ax.Graph:
        @ax.op(outputs=[ax.object, ax.string, ax.float32, ax.object], shapes=[[], [None], [None], [None]])
        async def grow(objects: Any, words: Any, numbers: Any, parts: Any) -> Any:
            calls.append(len(numbers))
            row = [*parts, {"n": len(numbers)}] if len(numbers) % 2 else [*parts, ax.errors.NotFoundError("gone")]
            return [*objects, None], [*words, b"w"], np.append(numbers, np.float32(0.5)), row

        with ax.Graph() as graph:
            result = ax.while_loop(
                lambda _o, _w, n, _p: ax.size(n) < 5,
                lambda *variables: grow(*variables),
                tuple(
                    ax.placeholder(dtype, shape, name=f"first_{i}")
                    for i, (dtype, shape) in enumerate(
                        [(ax.object, []), (ax.string, [None]), (ax.float32, [None]), (ax.object, [None])]
                    )
                ),
                shape_invariants=([], [None], [None], [None]),
                checkpoint=1,
            )
            for i, each in enumerate(result):
                ax.identity(each, name=f"result_{i}")
        return graph

    names = [f"result_{i}:0" for i in range(4)]
    feeds = {f"first_{i}:0": list[Any]() for i in range(4)}
    store = Recorder()
    async with ax.Session(graph_of([]), journal=store) as session:
        objects, words, numbers, parts = await session.run(names, feeds, options=NAMED)
    for moment in store.moments[::2]:
        async with ax.Session(graph_of([]), journal=moment) as session:
            again = await session.run(names, feeds, options=NAMED)
            assert again[0] == objects
            np.testing.assert_array_equal(again[1], words)
            np.testing.assert_array_equal(again[2], numbers)
            assert [str(part) for part in again[3]] == [str(part) for part in parts]
            assert isinstance(again[3][0], ax.errors.NotFoundError)


async def test_a_loop_with_a_checkpoint_is_any_loop_without_a_journal() -> None:
    for executor_type in ("", "TAGGED_TOKEN", "COMPILED"):
        async with ax.Session(summing([], 3), ax.SessionConfig(executor_type=executor_type)) as session:
            assert await session.run("total:0") == 45
    with ax.Graph() as graph:
        cheap = ax.while_loop(lambda i: i < 50, lambda i: i + 1, ax.constant(0), checkpoint=1)
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        assert await session.run(cheap) == 50


@pytest.mark.parametrize("checkpoint", [0, -1, 1.5, True, "store", MemoryStore()])
def test_a_checkpoint_that_is_no_number(checkpoint: Any) -> None:
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="number of iterations of 1 or more"):
        ax.while_loop(lambda i: i < 3, lambda i: i + 1, ax.constant(0), checkpoint=checkpoint)


def test_variables_that_no_checkpoint_can_have() -> None:
    with ax.Graph():
        variables = ax.constant(0), ax.TensorArray(ax.float32, size=3)
        with pytest.raises(ax.errors.InvalidTypeError, match=r"loop_vars\[1\].*is a TensorArray"):
            ax.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a.write(i, 1.0)), variables, checkpoint=1)


def asking(checkpoint: int, count: int) -> ax.Graph:
    """The sum of *count* values that are asked for, one in each iteration."""

    @ax.op
    async def ask(total: int, i: int) -> int:
        return int(total + await ax.pause("number", int(i)))

    with ax.Graph() as graph:
        _, total = ax.while_loop(
            lambda i, _: i < count,
            lambda i, total: (i + 1, ask(total, i)),
            (ax.constant(0, ax.int64), ax.constant(0, ax.int64)),
            checkpoint=checkpoint,
        )
        ax.identity(total, name="total")
    return graph


async def answered(session: ax.Session) -> int:
    """Answer each pause by ten times its payload, until the run gives its result."""
    while True:
        (pause,) = await session.pauses()
        try:
            return int(await session.resume(pause.token, 10 * pause.payload))
        except ax.PausedError:
            continue


async def test_answers_of_earlier_iterations_are_forgotten() -> None:
    for checkpoint in (1, 3):
        store = MemoryStore()
        async with ax.Session(asking(checkpoint, 30), journal=store) as session:
            with pytest.raises(ax.PausedError) as caught:
                await session.run("total:0", options=NAMED)
            assert await answered(session) == 10 * sum(range(30))
            assert len(await store.list()) <= 4 + 3 * checkpoint
            with pytest.raises(ax.errors.FailedPreconditionError, match="has been used"):
                await session.resume(caught.value.token, 0)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("checkpoint", [1, 2])
async def test_a_crash_between_any_two_writes_of_a_loop_with_pauses(checkpoint: int) -> None:
    """A run is unfinished, or waits for a value; it is never neither."""
    store = Recorder()
    async with ax.Session(asking(checkpoint, 5), journal=store) as session:
        with pytest.raises(ax.PausedError):
            await session.run("total:0", options=NAMED)
        assert await answered(session) == 100
    for moment in store.moments[1:]:
        async with ax.Session(asking(checkpoint, 5), journal=moment) as session:
            unfinished, pauses = await session.unfinished_runs(), await session.pauses()
            if unfinished:
                try:
                    assert await session.resume_run("loop") == 100
                except ax.PausedError:
                    assert await answered(session) == 100
            elif pauses:
                assert await answered(session) == 100
            else:
                assert await session.resume_run("loop") == 100
                assert await moment.list("runs/loop/done")
