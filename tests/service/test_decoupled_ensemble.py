"""Ensembles with decoupled models: as many responses as those have, or as many as each gives for each before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.app import create_app
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.models import until
from tests.service.test_ensemble import ensemble, step, sums, unary, write_ensemble

pytestmark = pytest.mark.allow_blocking


class Counting:
    """A decoupled model: input x, a list; output y, each number below the first of x, each let through by *tap*."""

    def __init__(self, tap: asyncio.Semaphore | None = None) -> None:
        self.num_begun = self.num_drawn = self.num_closed = 0
        self.error: Exception | None = None
        self._tap = tap
        with ax.Graph() as graph:
            ax.placeholder(ax.float32, [None], name="x")
            ax.identity(ax.source(self._numbers, ax.float32, [1], name="numbers"), name="y")
        self.graph = graph

    async def _numbers(self, x: Any) -> AsyncIterator[Any]:
        self.num_begun += 1
        try:
            for i in range(int(x[0])):
                if self._tap is not None:
                    await self._tap.acquire()
                self.num_drawn += 1
                yield np.array([i], np.float32)
            if self.error is not None:
                raise self.error
        finally:
            self.num_closed += 1


BEFORE_AND_BEHIND = (
    step("double", {"x": "X"}, {"y": "twice"}),
    step("count", {"x": "twice"}, {"y": "numbers"}),
    step("negate", {"x": "numbers"}, {"y": "minus"}),
    step("sums", {"a": "numbers", "b": "minus"}, {"less": "Y"}),
)
COUNT_Y = step("count", {"x": "X"}, {"y": "Y"})


def models_in(folder: Path, *steps: str, outputs: str = "Y", **sources: Any) -> ModelRepository:
    """double, negate and sums, and *sources*, and ensemble "all" of *steps*."""
    write_ensemble(folder / "all", ensemble(*steps, outputs=outputs))
    plain = {"double": unary(lambda x: x * 2), "negate": unary(ax.negative), "sums": sums()}
    return ModelRepository(folder, {**plain, **sources})


def asking(number: float, **parameters: Any) -> InferRequest:
    return InferRequest("all", {"X": InferTensor("FP32", np.array([number], np.float32))}, parameters=parameters)


async def answers(model: Model, request: InferRequest) -> list[Any]:
    return [response.outputs["Y"].array.tolist() async for response in model.responses(request)]


async def test_responses_flow_through_the_steps_behind(tmp_path: Path) -> None:
    repository = models_in(tmp_path, *BEFORE_AND_BEHIND, count=Counting().graph)
    await repository.start()
    model = repository.model("all")
    assert model.is_decoupled
    assert model.config.model_transaction_policy.decoupled
    assert await answers(model, asking(2)) == [[0], [2], [4], [6]]
    assert await answers(model, asking(0)) == []
    runs = {each.name: each.num_runs for each in repository.models()}
    assert runs == {"all": 2, "double": 2, "count": 2, "negate": 4, "sums": 4}
    calls = {each.name: each.statistics.success.count for each in repository.models()}
    assert calls == {"all": 2, "double": 2, "count": 2, "negate": 4, "sums": 4}
    await repository.close()


async def test_each_response_of_one_is_a_request_of_the_next(tmp_path: Path) -> None:
    steps = (step("count", {"x": "X"}, {"y": "each"}), step("again", {"x": "each"}, {"y": "Y"}))
    repository = models_in(tmp_path, *steps, count=Counting().graph, again=Counting().graph)
    await repository.start()
    assert await answers(repository.model("all"), asking(4)) == [[0], [0], [1], [0], [1], [2]]
    await repository.close()


async def test_an_ensemble_in_an_ensemble_is_decoupled_with_it(tmp_path: Path) -> None:
    write_ensemble(tmp_path / "inner", ensemble(COUNT_Y))
    steps = (step("inner", {"X": "X"}, {"Y": "numbers"}), step("double", {"x": "numbers"}, {"y": "Y"}))
    repository = models_in(tmp_path, *steps, count=Counting().graph)
    await repository.start()
    assert await answers(repository.model("all"), asking(3)) == [[0], [2], [4]]
    await repository.close()


async def test_a_response_is_there_before_the_next_and_no_more_is_drawn_than_a_few_ahead(tmp_path: Path) -> None:
    tap = asyncio.Semaphore(0)
    counting = Counting(tap)
    repository = models_in(tmp_path, *BEFORE_AND_BEHIND, count=counting.graph)
    await repository.start()
    async with aclosing(repository.model("all").responses(asking(500))) as responses:
        tap.release()
        assert (await anext(responses)).outputs["Y"].array.tolist() == [0]
        for _ in range(1000):
            tap.release()
        await anext(responses)
        for _ in range(500):
            await asyncio.sleep(0)
        assert counting.num_drawn < 100
    await until(lambda: counting.num_closed == 1)  # who leaves early ends it
    assert [each.name for each in repository.models() if each.statistics.success.count] == ["double", "negate", "sums"]
    await repository.close()


async def test_errors_name_the_model_and_deadlines_end_it(tmp_path: Path) -> None:
    counting = Counting()
    counting.error = ValueError("no more numbers")
    repository = models_in(tmp_path, COUNT_Y, count=counting.graph)
    await repository.start()
    async with aclosing(repository.model("all").responses(asking(1))) as responses:
        assert (await anext(responses)).outputs["Y"].array.tolist() == [0]
        told = "in ensemble 'all', model 'count': ValueError: no more numbers"
        with pytest.raises(ax.errors.InternalError, match=told):
            await anext(responses)
    await repository.close()

    late = models_in(tmp_path, COUNT_Y, count=Counting(asyncio.Semaphore(0)).graph)
    await late.start()
    with pytest.raises(ax.errors.DeadlineExceededError):
        await answers(late.model("all"), asking(1, timeout=1000))
    await late.close()


async def test_a_request_holds_its_models(tmp_path: Path) -> None:
    tap = asyncio.Semaphore(0)
    counting = Counting(tap)
    repository = models_in(tmp_path, *BEFORE_AND_BEHIND, count=counting.graph)
    await repository.start()
    asked = asyncio.create_task(answers(repository.model("all"), asking(1)))
    await until(lambda: counting.num_begun == 1)
    closing = asyncio.create_task(repository.close())
    await until(lambda: not repository.models())
    tap.release()
    tap.release()
    assert await asked == [[0], [2]]
    await closing


TWICE_COUNTED = COUNT_Y, step("count", {"x": "X"}, {"y": "Z"})
WITH_X = step("count", {"x": "X"}, {"y": "n"}), step("sums", {"a": "X", "b": "n"}, {"sum": "Y"})


@pytest.mark.parametrize(
    ("steps", "outputs", "names"),
    [
        (WITH_X, "Y", ["step 1 of model 'sums'", "'X' is there once", "'n' is there for each response of step 0"]),
        (TWICE_COUNTED, "Y Z", ["its outputs are", "'Y' is there for each", "step 1, decoupled model 'count'"]),
    ],
)
async def test_tensors_of_several_streams_do_not_meet(
    tmp_path: Path, steps: tuple[str, ...], outputs: str, names: list[str]
) -> None:
    repository = models_in(tmp_path, *steps, outputs=outputs, count=Counting().graph)
    await repository.start()
    (state,) = [each for each in repository.index() if each.name == "all"]
    assert [name for name in names if name not in state.reason] == []
    await repository.close()


async def test_a_decoupled_model_that_no_output_needs_is_not_asked(tmp_path: Path) -> None:
    counting = Counting()
    steps = (step("double", {"x": "X"}, {"y": "Y"}), step("count", {"x": "X"}, {"y": "n"}))
    repository = models_in(tmp_path, *steps, count=counting.graph)
    await repository.start()
    model = repository.model("all")
    assert not model.is_decoupled
    assert (await model.infer(asking(3))).outputs["Y"].array.tolist() == [6]
    assert counting.num_drawn == 0
    await repository.close()


async def test_it_is_warmed_up(tmp_path: Path) -> None:
    counting = Counting()
    zeros = "data_type: TYPE_FP32 dims: 1 zero_data: true"
    warm = f'model_warmup {{ name: "w" inputs {{ key: "X" value {{ {zeros} }} }} }}'
    repository = models_in(tmp_path, count=counting.graph)
    write_ensemble(tmp_path / "all", ensemble(COUNT_Y, more=warm))
    await repository.start()
    assert repository.is_model_ready("all")
    assert counting.num_closed == 1
    await repository.close()


async def test_over_http(tmp_path: Path) -> None:
    app = create_app(models_in(tmp_path, *BEFORE_AND_BEHIND, count=Counting().graph))
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        streamed = await client.post("/v2/models/all/generate_stream", json={"X": [1]})
        assert [line.partition("Y")[2] for line in streamed.text.split("\n\n")] == ['":0.0}', '":2.0}', ""]
        config = (await client.get("/v2/models/all/config")).json()
        assert config["model_transaction_policy"] == {"decoupled": True}
