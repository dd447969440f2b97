"""What a model tells of its calls and runs: times in queues and batches, rows, and reasons of failures."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.clock import CLOCK
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.model import Model
from asyncexec.service.models.statistics import BOUNDS_MS, CallTimes, ModelStatistics
from asyncexec.service.requests import InferRequest
from tests.service.models import model_of, rows, sums, until
from tests.service.test_model import scalar, waiting

MS = 1_000_000
WAIT_MS = 20


def asked(count: int = 1) -> InferRequest:
    return InferRequest("m", {"x": rows(1, count), "y": rows(2, count)})


def noted(statistics: ModelStatistics, rows: int, *at_ms: float, run_rows: int | None = None) -> None:
    """A call that was at these points at these times."""
    points = [round(each * MS) for each in at_ms]
    statistics.note_success(rows, CallTimes(*points, run_rows or rows))


def test_a_call_is_the_sum_of_its_parts() -> None:
    statistics = ModelStatistics()
    statistics.note_run(4, 10 * MS)
    noted(statistics, 3, 0, 1, 5, 15, 18, run_rows=4)
    noted(statistics, 1, 2, 4, 5, 15, 16, run_rows=4)
    stats = {name: (each.count, each.ns / MS) for name, each in statistics.inference_stats().items()}
    assert stats == {
        "success": (2, 32),
        "fail": (0, 0),
        "queue": (2, 5),
        "compute_input": (2, 3),
        "compute_infer": (2, 20),
        "compute_output": (2, 4),
        "cache_hit": (0, 0),
        "cache_miss": (0, 0),
    }
    (size,) = statistics.batch_stats().items()
    assert size[0] == 4
    assert {name: (each.count, each.ns / MS) for name, each in size[1].items()} == {
        "compute_input": (1, 3),
        "compute_infer": (1, 10),
        "compute_output": (1, 4),
    }
    assert (statistics.inference_count, statistics.execution_count) == (4, 1)


def test_how_long_calls_took_and_waited() -> None:
    statistics = ModelStatistics()
    noted(statistics, 1, 0, 0, 0, 0, 1)  # a bound is in its bucket
    noted(statistics, 1, 0, 0, 20, 30, 40)
    noted(statistics, 1, 0, 0, 0, 20_000, 20_000)
    bounds = [*BOUNDS_MS, "more"]
    assert [bounds[i] for i, count in enumerate(statistics.durations) for _ in range(count)] == [1, 50, "more"]
    assert [bounds[i] for i, count in enumerate(statistics.waits) for _ in range(count)] == [0.25, 0.25, 25]


def test_clients_do_not_choose_how_many_sizes_there_are() -> None:
    statistics = ModelStatistics()
    for size in range(1, 100_000):
        statistics.note_run(size, 1)
    assert len(statistics.sizes) < 300
    assert sum(each.count for each in statistics.sizes.values()) == 99_999


async def test_a_turn_that_is_waited_for_is_not_a_part_of_the_run() -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    model = model_of(waiting(begun, released), instance_group=[{"count": 1}])
    first = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    await begun.wait()
    second = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    await until(lambda: model.num_waiting == 1)
    since = CLOCK.now_ns()
    await asyncio.sleep(WAIT_MS / 1000)
    waited = CLOCK.now_ns() - since
    released.set()
    await asyncio.gather(first, second)
    done = model.statistics
    assert done.queue_ns >= waited
    assert done.infer_ns + done.queue_ns <= done.success.ns
    assert (model.num_waiting, done.execution_count, done.success.count) == (0, 2, 2)
    await model.close()


class Gate:
    """A model of rows that waits until it is open, and notes how many rows it got."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.sizes: list[int] = []

        @ax.op(outputs=[ax.float32])
        async def pass_on(x: Any) -> Any:
            self.sizes.append(len(x))
            await self.is_open.wait()
            return x

        with ax.Graph() as graph:
            y = pass_on(ax.placeholder(ax.float32, [None, 3], name="x"))
        self.source = ModelSource(graph, outputs={"y": y})

    def model(self, **batching: Any) -> Model:
        return model_of(self.source, max_batch_size=8, dynamic_batching=batching)


def row(count: int = 1) -> InferRequest:
    return InferRequest("m", {"x": rows(1, count)})


async def test_a_batch_that_is_waited_for_is_not_a_part_of_the_run() -> None:
    gate = Gate()
    model = gate.model(preferred_batch_size=[3])
    first = asyncio.create_task(model.infer(row(3)))
    await until(lambda: gate.sizes == [3])
    others = [asyncio.create_task(model.infer(row(count))) for count in (1, 2)]
    await until(lambda: model.num_waiting == 2)
    since = CLOCK.now_ns()
    await asyncio.sleep(WAIT_MS / 1000)
    waited = CLOCK.now_ns() - since
    gate.is_open.set()
    answers = await asyncio.gather(first, *others)
    assert [each.outputs["y"].array.shape for each in answers] == [(3, 3), (1, 3), (2, 3)]
    done = model.statistics
    assert done.queue_ns >= 2 * waited  # both waited
    assert gate.sizes == [3, 3]
    assert (done.execution_count, done.inference_count, done.success.count) == (2, 6, 3)
    ((size, durations),) = done.batch_stats().items()
    assert (size, durations["compute_infer"].count) == (3, 2)
    assert durations["compute_infer"].ns < done.infer_ns  # two calls share the second run
    assert model.num_waiting == 0
    await model.close()


async def test_a_call_that_is_split_waits_until_its_first_batch_and_runs_until_its_last() -> None:
    gate = Gate()
    model = gate.model(preferred_batch_size=[3])
    calls = [asyncio.create_task(model.infer(row(3)))]
    await until(lambda: gate.sizes == [3])
    calls += [asyncio.create_task(model.infer(row(2))) for _ in range(2)]
    await until(lambda: model.num_waiting == 2)
    gate.is_open.set()
    answers = await asyncio.gather(*calls)
    assert [each.outputs["y"].array.shape for each in answers] == [(3, 3), (2, 3), (2, 3)]
    done = model.statistics
    assert gate.sizes == [3, 3, 1]
    assert (done.execution_count, done.inference_count) == (3, 7)
    assert {size: each["compute_infer"].count for size, each in done.batch_stats().items()} == {1: 1, 3: 2}
    assert done.queue_ns + done.infer_ns <= done.success.ns
    await model.close()


def failing(error: Exception) -> ModelSource:
    @ax.op
    async def fail(x: float) -> float:
        raise error

    with ax.Graph() as graph:
        y = fail(ax.placeholder(ax.float64, [], name="x"))
    return ModelSource(graph, outputs={"y": y})


@pytest.mark.parametrize("error", [ValueError("no"), ax.errors.UnavailableError("no"), TimeoutError("no")])
async def test_what_the_graph_raises_is_its_failure(error: Exception) -> None:
    model = model_of(failing(error))
    with pytest.raises(ax.errors.OpError):
        await model.infer(InferRequest("m", scalar()))
    assert model.statistics.failures == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 1, "OTHER": 0}
    await model.close()


async def test_wrong_inputs_are_no_failure_of_the_graph() -> None:
    model = model_of(sums())
    with pytest.raises(ax.errors.InvalidArgumentError):
        await model.infer(InferRequest("m", {}))
    assert model.statistics.failures == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 1}
    await model.close()


async def test_full_queues_and_late_calls_are_rejected_and_those_that_leave_are_cancelled() -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    policy = {"default_queue_policy": {"max_queue_size": 1}}
    model = model_of(waiting(begun, released), instance_group=[{"count": 1}], dynamic_batching=policy)
    running = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    await begun.wait()
    queued = asyncio.create_task(model.infer(InferRequest("m", scalar(), parameters={"timeout": 500_000})))
    await until(lambda: model.num_waiting == 1)
    with pytest.raises(ax.errors.UnavailableError):
        await model.infer(InferRequest("m", scalar()))
    with pytest.raises(ax.errors.DeadlineExceededError):
        await queued
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert model.statistics.failures == {"REJECTED": 2, "CANCELED": 1, "BACKEND": 0, "OTHER": 0}
    assert model.statistics.inference_stats()["fail"].count == 3
    await model.close()


async def test_a_queue_of_batches_that_is_full_rejects() -> None:
    gate = Gate()
    model = gate.model(preferred_batch_size=[1], default_queue_policy={"max_queue_size": 1})
    running = asyncio.create_task(model.infer(row()))
    await until(lambda: gate.sizes == [1])
    queued = asyncio.create_task(model.infer(row()))
    await until(lambda: model.num_waiting == 1)
    with pytest.raises(ax.errors.UnavailableError):
        await model.infer(row())
    assert model.statistics.failures["REJECTED"] == 1
    gate.is_open.set()
    await asyncio.gather(running, queued)
    await model.close()


async def test_a_run_that_fails_is_none_that_was_executed() -> None:
    @ax.op(outputs=[ax.float32])
    def lose(x: Any) -> Any:
        raise ValueError("lost")

    with ax.Graph() as graph:
        y = lose(ax.placeholder(ax.float32, [None, 3], name="x"))
    model = model_of(ModelSource(graph, outputs={"y": y}), max_batch_size=4, dynamic_batching={})
    with pytest.raises(ax.errors.OpError, match="lost"):
        await model.infer(row())
    assert (model.statistics.execution_count, model.statistics.batch_stats()) == (0, {})
    assert model.statistics.failures["BACKEND"] == 1
    await model.close()


async def test_the_last_inference_is_told_in_milliseconds_since_1970() -> None:
    model = model_of(sums())
    assert model.statistics.last_inference_ms == 0
    before = CLOCK.now_ns() + CLOCK.epoch_offset_ns()
    await model.infer(asked())
    after = CLOCK.now_ns() + CLOCK.epoch_offset_ns()
    assert before // MS - 1 <= model.statistics.last_inference_ms <= after // MS + 1
    assert np.all((await model.infer(asked(2))).outputs["sum"].array == 3)
    await model.close()
