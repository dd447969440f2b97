"""A limit for the memory of each run of the models of a service: ``asyncexec serve --memory-limit-mb``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.service import ModelRepository, ModelSource
from asyncexec.service.requests import InferRequest, InferTensor

BATCHED = {"max_batch_size": 8, "dynamic_batching": {}}


def tiled() -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 4], name="x")
        count = ax.cast(ax.reduce_max(x), ax.int32)
        ax.reduce_sum(ax.tile(x, ax.stack([1, count]), name="tiled"), 1, keepdims=True, name="y")
    return graph


@pytest.mark.parametrize("config", [{}, BATCHED])
async def test_a_run_that_takes_too_much_is_refused_and_others_go_on(config: dict[str, Any]) -> None:
    repository = ModelRepository(sources={"m": ModelSource(tiled(), config=config)})
    repository.hooks = (MemoryBudget(2**20),)
    await repository.start()
    model = repository.model("m")
    for _ in range(5):  # also once the graph is compiled
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
            await model.infer(InferRequest("m", {"x": InferTensor("FP32", np.full((1, 4), 2.0**20, np.float32))}))
        assert raised.value.node == "tiled"
        answer = await model.infer(InferRequest("m", {"x": InferTensor("FP32", np.full((1, 4), 2.0, np.float32))}))
        assert answer.outputs["y"].array.tolist() == [[16.0]]
    await repository.close()
