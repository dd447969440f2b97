"""What the live page is told: states, counts, what is under way, by what it has in common, and failures."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.under_way import NodeUnderWay
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.live.snapshot import MOST_MODELS, encoded, grouped, ranges, snapshot
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.http_models import FakeRepository, made
from tests.service.models import rows, sums

LAG = LoopLag()
HOSTILE = "<img src=x onerror=alert(1)>"


async def told(repository: ModelRepository) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await snapshot(repository, LAG))
    return found


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], []),
        ([3], ["3"]),
        ([2, 0, 1], ["0-2"]),
        ([5, 5, 7, 8], ["5", "7-8"]),
        (range(0, 20, 2), ["0", "2", "4", "6", "..."]),
    ],
)
def test_ranges_of_iterations(numbers: Any, text: list[str]) -> None:
    assert ranges(numbers) == text


def test_nodes_that_have_their_wait_and_loop_in_common_are_one_group() -> None:
    limited = ("attempt 1 of 2", "waited for limiter api")
    nodes = [
        NodeUnderWay("f", "F", limited, 0.25, "outer 1, inner 4"),
        NodeUnderWay("f", "F", limited, 0.5, "outer 1, inner 5"),
        NodeUnderWay("f", "F", limited, None, "outer 2, inner 4"),
        NodeUnderWay("f", "F", (), 0.5, "outer 1, inner 6"),
        NodeUnderWay("g", "G", (), None),
        NodeUnderWay("f", "F", limited, 0.125, "outer 1, inner 4"),
    ]
    groups = [(group.node, group.loop, group.iterations, group.count, group.oldest_s) for group in grouped(nodes)]
    assert groups == [
        ("f", "outer 1, inner", ["4-5"], 3, 0.5),
        ("f", "outer 2, inner", ["4"], 1, None),
        ("f", "outer 1, inner", ["6"], 1, 0.5),
        ("g", "", [], 1, None),
    ]


async def test_counts_and_failures_of_models() -> None:
    repository = FakeRepository(made("sum", sums()), made("other", sums()))
    model = repository.model("sum")
    await model.infer(InferRequest("sum", {"x": rows(1), "y": rows(2)}))
    with pytest.raises(ax.errors.InvalidArgumentError):
        await model.infer(InferRequest("sum", {HOSTILE: rows(1)}))
    repository.unready.add("other")
    found = await told(repository)
    (shown,) = found["models"]
    assert (shown["name"], shown["calls"], shown["failures"], shown["rows"], shown["runs"]) == ("sum", 1, 1, 1, 1)
    assert len(shown["percentiles_ms"]) == 3
    assert [(state["name"], state["reason"]) for state in found["not_ready"]] == [("other", "it broke")]
    (failure,) = found["failures"]
    assert failure["model"] == "sum"
    assert HOSTILE in failure["text"]
    assert found["server"]["ready"] is False
    await repository.close()


async def test_what_is_under_way_and_streams() -> None:
    begun, released = asyncio.Semaphore(0), asyncio.Event()

    @ax.op
    async def wait(x: float) -> float:
        begun.release()
        await released.wait()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None], name="x")
        y = ax.map_fn(wait, x, name="each")
    repository = FakeRepository(made("m", graph))
    model = repository.model("m")
    asked = asyncio.create_task(model.infer(InferRequest("m", {"x": InferTensor("FP64", np.ones(3))})))
    for _ in range(3):
        await begun.acquire()
    async with model.session.stream(y) as stream:
        await stream.send({x: np.ones(1)})
        await begun.acquire()
        (shown,) = (await told(repository))["models"]
        released.set()
        await anext(aiter(stream))
    await asked
    assert shown["running"] == 2
    groups = [(group["node"], group["loop"], group["iterations"], group["count"]) for group in shown["under_way"]]
    assert groups == [("each/wait", "each", ["0-2"], 4)]
    assert [(each["items_in"], each["in_flight"]) for each in shown["streams"]] == [(1, 1)]
    await repository.close()


async def test_many_models_are_told_in_part() -> None:
    with ax.Graph() as graph:
        ax.negative(ax.placeholder(ax.float32, [], name="x"), name="y")
    repository = FakeRepository(*(made(f"m{i}", graph) for i in range(MOST_MODELS + 3)))
    found = await told(repository)
    assert (len(found["models"]), found["left_out"]) == (MOST_MODELS, 3)
    await repository.close()


def test_names_with_surrogates_are_told() -> None:
    assert json.loads(encoded({"name": "a\ud800"})) == {"name": "a\ud800"}
