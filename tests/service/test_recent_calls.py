"""RecentCalls: percentiles of the last calls, and how the last ones failed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.models.recent_calls import RecentCalls
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.http_models import calling
from tests.service.models import model_of, rows, sums

MS = 1_000_000


def test_percentiles_are_of_the_last_1024_calls() -> None:
    recent = RecentCalls()
    assert recent.percentiles_ms(50, 99) == ()
    for _ in range(5000):
        recent.note(900 * MS)
    for ms in range(1, 1025):
        recent.note(ms * MS)
    assert recent.percentiles_ms(50, 99, 100) == (512.0, 1014.0, 1024.0)  # the nearest rank


def test_the_last_20_failures_are_kept_and_are_short() -> None:
    recent = RecentCalls()
    for i in range(50):
        recent.note_failure(ValueError(f"{i} \ud800 {'x' * 10_000}"))
    assert [failure.text.split()[0] for failure in recent.failures] == [str(i) for i in range(30, 50)]
    assert max(len(failure.text) for failure in recent.failures) <= 501
    assert recent.failures[0].kind == "ValueError"
    assert recent.failures[0].text.startswith("30 ? xxx")


async def test_a_failure_names_the_node_its_line_and_the_iteration() -> None:
    @ax.op
    async def fail_at_2(x: float) -> float:
        if x == 2:
            raise LookupError("there is no 2")
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None], name="x")
        ax.map_fn(fail_at_2, x, name="each")
    model = model_of(graph)
    with pytest.raises(ax.errors.OpError):
        await model.infer(InferRequest("m", {"x": InferTensor("FP64", np.array([1.0, 2.0]))}))
    with pytest.raises(ax.errors.InvalidArgumentError):
        await model.infer(InferRequest("m", {}))
    graphs_fault, callers_fault = model.recent.failures
    assert (graphs_fault.node, graphs_fault.op, graphs_fault.iteration) == ("each/fail_at_2", "fail_at_2", "each 1")
    assert "there is no 2" in graphs_fault.text
    assert graphs_fault.line.startswith(f"{__file__}:")
    assert (callers_fault.kind, callers_fault.node) == ("InvalidArgumentError", "")
    assert model.recent.percentiles_ms(50) == ()
    await model.close()


async def test_a_call_of_whoever_left_is_no_failure() -> None:
    begun = asyncio.Event()

    async def wait(x: float) -> float:
        begun.set()
        await asyncio.Event().wait()
        return x

    model = model_of(calling(wait))
    asked = asyncio.create_task(model.infer(InferRequest("m", {"x": InferTensor("FP32", np.float32(1))})))
    await begun.wait()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert not model.recent.failures
    await model.close()


async def test_rows_of_batches() -> None:
    model = model_of(sums(), max_batch_size=8, dynamic_batching={})
    await model.infer(InferRequest("m", {"x": rows(1, 3), "y": rows(2, 3)}))
    await model.infer(InferRequest("m", {"x": rows(1, 2), "y": rows(2, 2)}))
    assert model.batch_sizes == {2: 1, 3: 1}
    assert model.num_waiting == 0
    await model.close()
