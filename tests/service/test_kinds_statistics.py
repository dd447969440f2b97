"""What calls of each kind of model count as, by Triton's statistics: known answers, sequences, streams, ensembles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.models import until
from tests.service.test_decoupled_ensemble import BEFORE_AND_BEHIND, Counting, answers, asking, models_in
from tests.service.test_ensemble import ensemble, step, sums, unary, write_ensemble

pytestmark = pytest.mark.allow_blocking

PARTS = ("compute_input", "compute_infer", "compute_output")


def counted(model: Model) -> dict[str, int]:
    """What *model* counts, without zeros."""
    statistics = model.statistics
    found = {name: each.count for name, each in statistics.inference_stats().items()}
    found |= {"inference_count": statistics.inference_count, "execution_count": statistics.execution_count}
    for rows, durations in statistics.batch_stats().items():
        assert len({each.count for each in durations.values()}) == 1
        found[f"batches of {rows}"] = durations["compute_infer"].count
    return {name: count for name, count in found.items() if count}


def of_runs(count: int, rows: int = 1, **others: int) -> dict[str, int]:
    """What *count* calls of *rows* rows count that each had a run."""
    calls = dict.fromkeys(("success", "queue", *PARTS, "execution_count"), count)
    return {**calls, "inference_count": count * rows, f"batches of {rows}": count, **others}


def asked(name: str, *values: float, **parameters: Any) -> InferRequest:
    return InferRequest(name, {"x": InferTensor("FP32", np.array(values, np.float32))}, parameters=parameters)


async def served(**sources: Any) -> ModelRepository:
    repository = ModelRepository(sources={name: ax.service.ModelSource(*each) for name, each in sources.items()})
    await repository.start()
    assert repository.is_ready, repository.index()
    return repository


async def test_an_answer_that_is_known_is_a_success_without_an_inference() -> None:
    source = unary(lambda x: x * 2), None, None, {"response_cache": {"enable": True}}
    repository = await served(m=source)
    model = repository.model("m")
    await model.infer(asked("m", 1))
    assert counted(model) == of_runs(1, cache_miss=1)
    last_ms = model.statistics.last_inference_ms
    for _ in range(3):
        await model.infer(asked("m", 1))
    assert counted(model) == of_runs(1, cache_miss=1, cache_hit=3, success=4, queue=4)
    assert model.statistics.last_inference_ms == last_ms
    await repository.close()


async def test_each_call_of_a_sequence_is_an_inference_and_waits_for_its_turn() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @ax.op(outputs=[ax.float32])
    async def wait(x: Any) -> Any:
        begun.set()
        await may_end.wait()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [1], name="x")
        total = ax.stream_state(ax.constant([0], ax.float32))
        ax.identity(total.update(total.value + wait(x)), name="y")
    repository = await served(m=(graph, None, None, {"sequence_batching": {}}))
    model = repository.model("m")
    first = asyncio.create_task(model.infer(asked("m", 1, sequence_id=7, sequence_start=True)))
    await begun.wait()
    second = asyncio.create_task(model.infer(asked("m", 2, sequence_id=7, sequence_end=True)))
    await asyncio.sleep(0.01)
    may_end.set()
    assert [(await call).outputs["y"].array.tolist() for call in (first, second)] == [[1], [3]]
    assert counted(model) == of_runs(2)
    assert model.statistics.queue_ns > 5_000_000
    with pytest.raises(ax.errors.InvalidArgumentError):
        await model.infer(asked("m", 1, sequence_id=8))  # nobody has started it
    assert counted(model) == of_runs(2, fail=1)
    await repository.close()


async def test_a_call_with_many_responses_is_one_inference() -> None:
    async def numbers(x: Any) -> AsyncIterator[Any]:
        for i in range(int(x[0])):
            yield np.array([i], np.float32)
        if x[0] > 5:
            raise ValueError("too many")

    with ax.Graph() as graph:
        ax.placeholder(ax.float32, [None], name="x")
        ax.identity(ax.source(numbers, ax.float32, [1]), name="y")
    repository = await served(m=(graph,))
    model = repository.model("m")
    for count in (3, 0):
        assert len([response async for response in model.responses(asked("m", count))]) == count
    assert counted(model) == of_runs(2)
    with pytest.raises(ax.errors.InternalError, match="too many"):
        [response async for response in model.responses(asked("m", 6))]
    assert counted(model) == of_runs(2, fail=1)
    responses = model.responses(asked("m", 3))
    await anext(responses)
    await responses.aclose()
    assert counted(model) == of_runs(2, fail=2)  # a caller that leaves is a failure, too
    await repository.close()


@pytest.mark.parametrize("is_nested", [False, True])
async def test_an_ensemble_takes_what_its_models_take(tmp_path: Path, is_nested: bool) -> None:
    both = asyncio.Barrier(2)

    @ax.op(outputs=[ax.float32])
    async def meet(x: Any) -> Any:
        await both.wait()
        await asyncio.sleep(0.01)
        return x

    steps = [step(name, {"x": "X"}, {"y": name}) for name in ("left", "right")]
    steps.append(step("sums", {"a": "left", "b": "right"}, {"sum": "Y"}))
    write_ensemble(tmp_path / "all", ensemble(*steps))
    write_ensemble(tmp_path / "outer", ensemble(step("all", {"X": "X"}, {"Y": "Y"})))
    repository = ModelRepository(tmp_path, {"left": unary(meet), "right": unary(meet), "sums": sums()})
    await repository.start()
    model = repository.model("outer" if is_nested else "all")
    for _ in range(2):
        await model.infer(asking(1))
    assert [counted(each) for each in (model, repository.model("all"), repository.model("left"))] == [of_runs(2)] * 3
    inner = [repository.model(name).statistics for name in ("left", "right", "sums")]
    for field in ("input_ns", "infer_ns", "output_ns"):
        together = sum(getattr(each, field) for each in inner)
        assert getattr(model.statistics, field) == together, field
        assert getattr(model.statistics.sizes[1], field) == together, field
    with pytest.raises(ax.errors.DeadlineExceededError):
        await model.infer(asking(1, timeout=1))
    await until(lambda: not both.n_waiting)
    assert counted(model) == of_runs(2, fail=1)
    await repository.close()


async def test_an_ensemble_with_responses_takes_what_its_models_take(tmp_path: Path) -> None:
    repository = models_in(tmp_path, *BEFORE_AND_BEHIND, count=Counting().graph)
    await repository.start()
    model = repository.model("all")
    assert len(await answers(model, asking(2))) == 4
    assert counted(model) == of_runs(1)
    assert counted(repository.model("sums")) == of_runs(4)
    inner = [each.statistics for each in repository.models() if each is not model]
    for field in ("input_ns", "infer_ns", "output_ns"):
        assert getattr(model.statistics, field) == sum(getattr(each, field) for each in inner), field
    await repository.close()
