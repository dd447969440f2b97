"""BatchFunction in a session: every caller gets its own rows, batches close in time, and nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.running import settle, started

MAX_SIZE = 4
TIMEOUT_S = 1.0
POISON = -1.0


class Model:
    """A batched function that notes when it is run, with how many rows; it takes *delay_s*, and fails on POISON."""

    def __init__(self, delay_s: float = 0.0, **options: Any) -> None:
        self.delay_s = delay_s
        self.batches: list[list[float]] = []
        self.times: list[float] = []
        self.cancelled = 0
        self.running = 0

        @ax.op(outputs=[ax.float32])
        async def compute(rows: Any) -> Any:
            return await self._compute(rows)

        @ax.batch(**{"max_size": MAX_SIZE, "timeout_s": TIMEOUT_S, **options})
        def model(rows: Any) -> Any:
            return compute(rows) * 10.0

        with ax.Graph() as self.graph:
            self.fed = ax.placeholder(ax.float32, [None])
            self.result = model(self.fed)

    async def _compute(self, rows: Any) -> Any:
        self.batches.append(rows.tolist())
        self.times.append(asyncio.get_running_loop().time())
        self.running += 1
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if POISON in rows:
            raise ValueError("poisoned")
        return rows

    def request(self, session: ax.Session, *rows: float) -> Any:
        return session.run(self.result, {self.fed: np.array(rows, np.float32)})


@pytest.mark.virtual_clock
async def test_a_full_batch_runs_at_once() -> None:
    model = Model()
    async with ax.Session(model.graph) as session:
        results = await asyncio.gather(*(model.request(session, i) for i in range(8)))
    assert [result.tolist() for result in results] == [[10.0 * i] for i in range(8)]
    assert model.batches == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert model.times == [0.0, 0.0]


@pytest.mark.virtual_clock
async def test_a_batch_that_is_not_full_runs_when_its_first_call_has_waited_long_enough() -> None:
    model = Model()
    async with ax.Session(model.graph) as session:
        first = await started(model.request(session, 1))
        await asyncio.sleep(0.75)
        second = await started(model.request(session, 2, 3))
        await asyncio.gather(first, second)
    assert model.batches == [[1, 2, 3]]
    assert model.times == [TIMEOUT_S]


@pytest.mark.virtual_clock
async def test_without_a_timeout_what_comes_at_the_same_time_is_batched() -> None:
    model = Model(timeout_s=0)
    # However slow the machine is just now, each call comes in one turn of the loop.
    async with ax.Session(model.graph, ax.SessionConfig(slice_ms=60_000)) as session:
        await asyncio.gather(*(model.request(session, i) for i in range(3)))
        await model.request(session, 3)
    assert model.batches == [[0, 1, 2], [3]]
    assert model.times == [0.0, 0.0]


@pytest.mark.virtual_clock
async def test_a_batch_that_waits_for_its_turn_takes_more_calls() -> None:
    model = Model(delay_s=10.0)
    async with ax.Session(model.graph) as session:
        tasks = [await started(model.request(session, 0))]
        await asyncio.sleep(2.0)  # the first batch runs
        tasks.append(await started(model.request(session, 1)))
        await asyncio.sleep(5.0)  # the second is due
        tasks.append(await started(model.request(session, 2)))
        await asyncio.gather(*tasks)
    assert model.batches == [[0], [1, 2]]
    assert model.times == [1.0, 11.0]


@pytest.mark.virtual_clock
async def test_several_batches_may_run_at_once() -> None:
    model = Model(delay_s=10.0, max_running=2)
    async with ax.Session(model.graph) as session:
        await asyncio.gather(*(model.request(session, i) for i in range(12)))
    assert model.times == [0.0, 0.0, 10.0]


@pytest.mark.virtual_clock
async def test_a_cancelled_call_leaves_the_batch_that_waits() -> None:
    model = Model()
    async with ax.Session(model.graph) as session:
        stays, leaves = await started(model.request(session, 1)), await started(model.request(session, 2))
        leaves.cancel()
        assert (await stays).tolist() == [10.0]
        assert leaves.cancelled()
    assert model.batches == [[1]]


@pytest.mark.virtual_clock
async def test_a_cancelled_call_leaves_the_batch_that_runs() -> None:
    model = Model(delay_s=10.0)
    async with ax.Session(model.graph) as session:
        tasks = [await started(model.request(session, i)) for i in range(4)]
        tasks[1].cancel()
        await settle()
        assert tasks[1].cancelled()
        assert [(await tasks[i]).tolist() for i in (0, 2, 3)] == [[0.0], [20.0], [30.0]]
    assert (model.batches, model.cancelled) == ([[0, 1, 2, 3]], 0)


@pytest.mark.virtual_clock
async def test_a_batch_that_everybody_has_left_is_cancelled_before_the_last_has_ended() -> None:
    model = Model(delay_s=10.0)
    async with ax.Session(model.graph) as session:
        tasks = [await started(model.request(session, i)) for i in range(4)]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert (model.cancelled, model.running) == (1, 0)
        assert (await model.request(session, 5)).tolist() == [50.0]


@pytest.mark.virtual_clock
async def test_a_timer_ends_with_the_only_call() -> None:
    model = Model(timeout_s=1000.0)
    loop: Any = asyncio.get_running_loop()
    async with ax.Session(model.graph) as session:
        task = await started(model.request(session, 1))
        task.cancel()
        await asyncio.wait([task])
        assert all(handle.cancelled() for handle in loop._scheduled)
    assert model.batches == []


@pytest.mark.virtual_clock
async def test_a_timeout_of_one_run_is_nothing_to_the_others() -> None:
    model = Model(delay_s=10.0)
    async with ax.Session(model.graph) as session:
        others = await started(model.request(session, 1))
        hurried = session.run(model.result, {model.fed: np.ones(1, np.float32)}, options=ax.RunOptions(timeout=5.0))
        with pytest.raises(ax.errors.DeadlineExceededError):
            await hurried
        assert (await others).tolist() == [10.0]
    assert model.batches == [[1, 1]]


@pytest.mark.virtual_clock
async def test_a_failure_fails_all_of_the_batch_and_names_the_node() -> None:
    model = Model()
    async with ax.Session(model.graph) as session:
        tasks = [await started(model.request(session, i)) for i in (1, POISON, 2, 3)]
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [ax.errors.InvalidArgumentError] * 4
        assert {error.node for error in errors} == {"model/compute"}  # type: ignore[union-attr]
        assert len({id(error) for error in errors}) == 4  # each its own, with its own traceback
        assert all(isinstance(error.__cause__, ValueError) for error in errors)
        assert (await model.request(session, 4)).tolist() == [40.0]


@pytest.mark.virtual_clock
async def test_closing_the_session_ends_what_waits_and_what_runs() -> None:
    model = Model(delay_s=10.0)
    session = ax.Session(model.graph)
    tasks = [await started(model.request(session, i)) for i in range(6)]
    assert model.running == 1
    await session.close()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [ax.errors.CancelledError] * 6
    assert model.running == 0


@pytest.mark.virtual_clock
async def test_more_batches_than_may_wait_are_refused() -> None:
    model = Model(delay_s=10.0, max_queued=2, max_size=1)
    async with ax.Session(model.graph) as session:
        tasks = [await started(model.request(session, i)) for i in range(5)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results[3:]] == [ax.errors.UnavailableError] * 2
    assert [result.tolist() for result in results[:3]] == [[0.0], [10.0], [20.0]]  # type: ignore[union-attr]


@pytest.mark.virtual_clock
async def test_large_calls_are_split_where_the_allowed_sizes_say_so() -> None:
    model = Model(max_size=10, allowed_sizes=[2, 4], timeout_s=0)
    async with ax.Session(model.graph) as session:
        result = await model.request(session, *range(1, 8))
        with pytest.raises(ax.errors.InvalidArgumentError, match="11 is larger than maximum input batch size 10"):
            await model.request(session, *range(11))
    assert result.tolist() == [10.0 * i for i in range(1, 8)]
    assert model.batches == [[1, 2, 3, 4], [5, 6, 7, 5]]  # padded with its first row


@pytest.mark.virtual_clock
@pytest.mark.parametrize("poisoned", [0, 5])
async def test_a_large_call_fails_with_any_of_its_batches(poisoned: int) -> None:
    model = Model(delay_s=1.0, max_size=10, allowed_sizes=[2, 4], timeout_s=0, max_running=2)
    rows = [float(i) if i != poisoned else POISON for i in range(6)]
    async with ax.Session(model.graph) as session:
        other = await started(model.request(session, 9.0))  # a batch of its own, by now
        with pytest.raises(ax.errors.InvalidArgumentError, match="poisoned") as caught:
            await model.request(session, *rows)
        assert (await other).tolist() == [90.0]
        assert (await model.request(session, 7.0)).tolist() == [70.0]
    assert caught.value.node == "model/compute"
    assert model.running == 0


@pytest.mark.virtual_clock
async def test_a_large_call_that_is_cancelled_leaves_all_of_its_batches() -> None:
    model = Model(delay_s=1.0, max_size=10, allowed_sizes=[2, 4], timeout_s=5.0)
    async with ax.Session(model.graph) as session:
        large = await started(model.request(session, *range(1, 8)))
        small = await started(model.request(session, 8))
        assert (model.batches, model.running) == ([[1, 2, 3, 4]], 1)
        large.cancel()
        assert (await small).tolist() == [80.0]
    assert (model.cancelled, model.batches[1:]) == (1, [[8, 8]])


@pytest.mark.virtual_clock
async def test_batches_of_one_row() -> None:
    model = Model(max_size=1)
    async with ax.Session(model.graph) as session:
        results = await asyncio.gather(*(model.request(session, i) for i in range(3)))
        with pytest.raises(ax.errors.InvalidArgumentError, match="2 is larger than maximum input batch size 1"):
            await model.request(session, 1, 2)
    assert [result.tolist() for result in results] == [[0.0], [10.0], [20.0]]
    assert (model.batches, set(model.times)) == ([[0], [1], [2]], {0.0})


@pytest.mark.virtual_clock
async def test_sessions_share_no_batches() -> None:
    model = Model()
    async with ax.Session(model.graph) as one, ax.Session(model.graph) as other:
        results = await asyncio.gather(model.request(one, 1), model.request(other, 2), model.request(one, 3))
    assert [result.tolist() for result in results] == [[10.0], [20.0], [30.0]]
    assert sorted(model.batches) == [[1, 3], [2]]


@pytest.mark.virtual_clock
async def test_items_of_a_stream_and_runs_are_batched_together() -> None:
    model = Model(max_size=5)
    async with ax.Session(model.graph) as session:
        items = [{model.fed: np.array([i], np.float32)} for i in (1.0, 2.0)]
        mapped = await started(anext(session.map(model.result, items)))
        runs = [await started(model.request(session, i)) for i in (3, 4)]
        assert (await mapped).tolist() == [10.0]
        assert [(await run).tolist() for run in runs] == [[30.0], [40.0]]
    assert [sorted(batch) for batch in model.batches] == [[1, 2, 3, 4]]


@pytest.mark.virtual_clock
async def test_a_run_from_within_a_batch_does_not_wait_for_it() -> None:
    inner = Model()
    session = ax.Session(inner.graph)

    @ax.op(outputs=[ax.float32])
    async def runs(rows: Any) -> Any:
        return rows if rows[0] > 5 else await session.run(nested, {fed: rows + 6})

    @ax.batch(max_size=2, timeout_s=1.0, max_running=1)
    def outer(rows: Any) -> Any:
        return runs(rows)

    with inner.graph:
        fed = ax.placeholder(ax.float32, [None])
        nested = outer(fed)
    async with session:
        assert (await session.run(nested, {fed: np.ones(2, np.float32)})).tolist() == [7.0, 7.0]


@dataclass(frozen=True)
class Arrival:
    """A call, when it comes, and after how long it is cancelled."""

    at_s: float
    rows: tuple[float, ...]
    patience_s: float | None


def arrivals() -> st.SearchStrategy[list[Arrival]]:
    rows = st.lists(st.sampled_from([*map(float, range(1, 50)), POISON]), min_size=1, max_size=MAX_SIZE).map(tuple)
    ticks = st.integers(0, 24).map(lambda tick: tick / 8)
    patience = st.none() | st.integers(0, 40).map(lambda tick: tick / 8 + 1 / 16)
    return st.lists(st.builds(Arrival, ticks, rows, patience), max_size=14)


def in_virtual_time(main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(main())


@settings(deadline=None, max_examples=60)
@given(arrivals(), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 0.25, 1.0]), st.integers(1, 3))
def test_whoever_comes_gets_its_own_rows(
    calls: list[Arrival], delay_s: float, timeout_s: float, max_running: int
) -> None:
    check_arrivals(calls, delay_s, timeout_s, max_running)


@pytest.mark.deep
@settings(deadline=None, max_examples=3000)
@given(arrivals(), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 0.25, 1.0]), st.integers(1, 3))
def test_whoever_comes_gets_its_own_rows_in_thousands_of_cases(
    calls: list[Arrival], delay_s: float, timeout_s: float, max_running: int
) -> None:
    check_arrivals(calls, delay_s, timeout_s, max_running)


def check_arrivals(calls: list[Arrival], delay_s: float, timeout_s: float, max_running: int) -> None:
    model = Model(delay_s, timeout_s=timeout_s, max_running=max_running)

    async def one(session: ax.Session, call: Arrival) -> None:
        await asyncio.sleep(call.at_s)
        result: Any = None
        try:
            async with asyncio.timeout(call.patience_s) as patience:
                result = await model.request(session, *call.rows)
        except (TimeoutError, ax.errors.InvalidArgumentError) as error:
            result = error
        if patience.expired():
            assert type(result) is TimeoutError
        elif isinstance(result, Exception):
            assert str(result).startswith("ValueError: poisoned\n  [[{{node model/compute}}")
            assert any(POISON in batch and not set(call.rows).isdisjoint(batch) for batch in model.batches)
        else:
            assert result.tolist() == [10.0 * row for row in call.rows]
            assert POISON not in call.rows
            if max_running == 3 and delay_s == 0.0:  # no batch waits for another
                assert asyncio.get_running_loop().time() <= call.at_s + timeout_s

    async def main() -> None:
        config = ax.SessionConfig(slow_inline_ms=None)  # the machine may be slow
        async with ax.Session(model.graph, config) as session, asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(one(session, call))
        assert model.running == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    in_virtual_time(main)
    assert all(len(batch) <= MAX_SIZE for batch in model.batches)


async def test_no_tensor_outlives_its_batch() -> None:
    refs: list[weakref.ref[Any]] = []
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None])

        @ax.op(outputs=[ax.float32])
        def track(rows: Any) -> Any:
            result = rows * 2
            refs.extend([weakref.ref(rows), weakref.ref(result)])
            if POISON in rows:
                raise ValueError("poisoned")
            return result

        result = ax.batch(max_size=4, timeout_s=0)(track)(fed)
    gc.collect()
    gc.disable()
    try:
        async with ax.Session(graph) as session:
            for last in (3.0, POISON):
                feeds = [np.array([row], np.float32) for row in (0.0, 1.0, 2.0, last)]
                refs += map(weakref.ref, feeds)
                calls = [session.run(result, {fed: feed}) for feed in feeds]
                del feeds
                results = await asyncio.gather(*calls, return_exceptions=True)
                assert [isinstance(each, Exception) for each in results] == [last == POISON] * 4
                del results, calls
                await settle()
                assert len(refs) >= 6
                assert [ref() for ref in refs if ref() is not None] == []
    finally:
        gc.enable()


@pytest.mark.virtual_clock
async def test_how_many_calls_wait_for_their_batch() -> None:
    model = Model(delay_s=1.0, max_size=2, max_running=1)
    async with ax.Session(model.graph) as session:
        calls = [asyncio.create_task(model.request(session, *rows)) for rows in ((1, 2), (3,), (4, 5))]
        while not model.running:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await settle()
        assert session.statistics().waiting_in_batches == 2
        calls[1].cancel()
        await asyncio.gather(calls[1], return_exceptions=True)
        assert session.statistics().waiting_in_batches == 1
        await asyncio.gather(calls[0], calls[2])
        assert session.statistics().waiting_in_batches == 0
