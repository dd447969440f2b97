"""Queues of models: priorities, policies of levels, requests that are counted, and answers in order."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.http.front import http_app
from asyncexec.service.models.model import Model
from asyncexec.service.models.queueing import AnswersInOrder
from asyncexec.service.requests import InferRequest, InferTensor
from tests.running import started
from tests.service.http_models import FakeRepository, made
from tests.service.models import model_of, rows, sums

INVALID, UNAVAILABLE = ax.errors.InvalidArgumentError, ax.errors.UnavailableError


class Slow:
    """A model that does one request at a time, which takes a second; *ran* has the numbers of those that have begun."""

    def __init__(self, is_batched: bool, seconds: float = 1.0, count: int = 1, **batching: Any) -> None:
        self.ran: list[float] = []

        @ax.op(outputs=[ax.float32])
        async def work(rows: Any) -> Any:
            self.ran.extend(rows.tolist())
            await asyncio.sleep(seconds if rows[0] >= 0 else 0.25)
            return rows

        with ax.Graph() as graph:
            ax.identity(work(ax.placeholder(ax.float32, [None], name="x")), name="y")
        size = {"max_batch_size": 2} if is_batched else {}
        batching = {"preferred_batch_size": [1], **batching} if is_batched else batching
        self.model: Model = model_of(graph, **size, instance_group=[{"count": count}], dynamic_batching=batching)

    async def ask(self, number: float, **parameters: Any) -> asyncio.Task[Any]:
        x = InferTensor("FP32", np.array([number], np.float32))
        return await started(self.model.infer(InferRequest("m", {"x": x}, parameters=parameters)))


@pytest.fixture(params=["batched", "one_by_one"])
def is_batched(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "batched")


@pytest.mark.virtual_clock
async def test_the_first_level_has_its_turn_first(is_batched: bool) -> None:
    slow = Slow(is_batched, priority_levels=3, default_priority_level=2)
    calls = [await slow.ask(0)]
    for number, priority in enumerate((3, 2, 0, 1, 9, 3, 1), 1):  # those that are no level are the default
        calls.append(await slow.ask(number, priority=priority))
    await asyncio.gather(*calls)
    assert slow.ran == [0, 4, 7, 2, 3, 5, 1, 6]
    await slow.model.close()


@pytest.mark.virtual_clock
async def test_without_levels_a_priority_has_no_effect(is_batched: bool) -> None:
    slow = Slow(is_batched)
    calls = [await slow.ask(number, priority=9 - number) for number in range(4)]
    await asyncio.gather(*calls)
    assert slow.ran == [0, 1, 2, 3]
    await slow.model.close()


@pytest.mark.virtual_clock
async def test_levels_have_policies_of_their_own(is_batched: bool) -> None:
    slow = Slow(
        is_batched,
        priority_levels=2,
        default_priority_level=2,
        default_queue_policy={"max_queue_size": 2},
        priority_queue_policy={1: {"max_queue_size": 1, "default_timeout_microseconds": 500_000}},
    )
    calls = [await slow.ask(0)]
    waiting = await slow.ask(1, priority=1)
    with pytest.raises(UNAVAILABLE, match="Exceeds maximum queue size: 1 of at most 1"):
        await (await slow.ask(2, priority=1))
    calls += [await slow.ask(3), await slow.ask(4)]
    with pytest.raises(UNAVAILABLE, match="Exceeds maximum queue size: 2 of at most 2"):
        await (await slow.ask(5))
    with pytest.raises(UNAVAILABLE, match="Request timeout expired"):
        await waiting
    await asyncio.gather(*calls)
    assert slow.ran == [0, 3, 4]
    assert slow.model.num_failures == 3
    await slow.model.close()


@pytest.mark.virtual_clock
async def test_what_is_delayed_comes_last(is_batched: bool) -> None:
    policy = {"timeout_action": "DELAY", "default_timeout_microseconds": 500_000}
    slow = Slow(is_batched, default_queue_policy=policy)
    calls = [await slow.ask(0), await slow.ask(1)]
    await asyncio.sleep(0.75)
    calls.append(await slow.ask(2))
    await asyncio.gather(*calls)
    assert slow.ran == [0, 2, 1]
    await slow.model.close()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("allows", [True, False])
async def test_who_may_ask_for_another_timeout(is_batched: bool, allows: bool) -> None:
    policy = {"default_timeout_microseconds": 5_000_000, "allow_timeout_override": allows}
    slow = Slow(is_batched, default_queue_policy=policy)
    call = await slow.ask(0, timeout=250_000)
    if allows:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await call
    else:
        await call
    await slow.model.close()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("preserve", [True, False])
async def test_answers_come_in_the_order_of_requests(is_batched: bool, preserve: bool) -> None:
    slow = Slow(is_batched, count=4, preserve_ordering=preserve)
    order: list[float] = []

    async def note(call: asyncio.Task[Any]) -> None:
        order.append(float((await call).outputs["y"].array[0]))

    await asyncio.gather(*[note(await slow.ask(number)) for number in (1, -2, 3, -4)])
    assert order == ([1, -2, 3, -4] if preserve else [-2, -4, 1, 3])
    await slow.model.close()


@pytest.mark.virtual_clock
async def test_a_timeout_bounds_the_wait_for_the_answers_before() -> None:
    in_order = AnswersInOrder()
    loop = asyncio.get_running_loop()
    before = asyncio.create_task(in_order.run(asyncio.sleep(10, "before")))
    await asyncio.sleep(0)
    with pytest.raises(ax.errors.DeadlineExceededError, match="a call before it has not ended"):
        await in_order.run(asyncio.sleep(1), timeout_s=2)
    assert loop.time() < 5
    assert await in_order.run(asyncio.sleep(1, "after"), timeout_s=100) == "after"
    assert before.done()
    assert await before == "before"


@pytest.mark.virtual_clock
async def test_who_leaves_or_fails_lets_others_wait_for_those_before() -> None:
    in_order, order = AnswersInOrder(), []

    async def work(number: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if number == 3:
            raise ValueError(number)

    async def ask(number: int, seconds: float) -> None:
        try:
            await in_order.run(work(number, seconds))
        finally:
            order.append(number)

    calls = [asyncio.create_task(ask(*each)) for each in ((1, 3), (2, 2), (3, 0.5), (4, 0.25))]
    await asyncio.sleep(1)
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert order == [2, 1, 3, 4]  # who fails is answered in order, too
    await asyncio.wait_for(ask(5, 0), 1)


@pytest.mark.virtual_clock
async def test_who_is_refused_does_not_wait_for_those_before(is_batched: bool) -> None:
    slow = Slow(is_batched, seconds=100, preserve_ordering=True, default_queue_policy={"max_queue_size": 1})
    calls = [await slow.ask(0), await slow.ask(1)]
    with pytest.raises(UNAVAILABLE):
        await (await slow.ask(2))
    assert asyncio.get_running_loop().time() < 100
    await asyncio.gather(*calls)
    await slow.model.close()


@pytest.mark.parametrize("priority", [-1, 1.5, "1", True, 2**64])
async def test_a_priority_that_is_none(priority: Any) -> None:
    model = model_of(sums(), dynamic_batching={"priority_levels": 2, "default_priority_level": 1})
    with pytest.raises(INVALID, match="parameter 'priority' is an integer from 0"):
        await model.infer(InferRequest("m", {"x": rows(1), "y": rows(1)}, parameters={"priority": priority}))
    await model.close()


@pytest.mark.parametrize(
    ("batching", "told"),
    [
        ({"priority_levels": 2}, "default priority level must be in range [1, 2] for m"),
        ({"priority_levels": 2, "default_priority_level": 3}, "default priority level must be in range [1, 2]"),
        (
            {"priority_levels": 1, "default_priority_level": 1, "priority_queue_policy": {2: {}}},
            "priority queue policy must have priority level in range [1, 1] for m",
        ),
        (
            {"priority_levels": 2, "default_priority_level": 1, "preserve_ordering": True},
            "Only one priority level is allowed when 'preserve_ordering' is true",
        ),
        ({"preserve_ordering": True, "default_queue_policy": {"timeout_action": 1}}, "can not have DELAY"),
        ({"priority_levels": 2**40, "default_priority_level": 1}, "'dynamic_batching.priority_levels' of model 'm'"),
        (
            {
                "priority_levels": 1,
                "default_priority_level": 1,
                "priority_queue_policy": {1: {"default_timeout_microseconds": 2**60}},
            },
            "'dynamic_batching.priority_queue_policy[1].default_timeout_microseconds' of model 'm'",
        ),
    ],
)
def test_policies_that_do_not_fit(batching: dict[str, Any], told: str) -> None:
    with pytest.raises(INVALID) as raised:
        model_of(sums(), dynamic_batching=batching)
    assert told in raised.value.message


async def test_a_full_queue_over_http() -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    @ax.op(outputs=[ax.float32])
    async def work(x: Any) -> Any:
        begun.set()
        await released.wait()
        return x

    with ax.Graph() as graph:
        ax.identity(work(ax.placeholder(ax.float32, [None], name="x")), name="y")
    policy = {"dynamic_batching": {"default_queue_policy": {"max_queue_size": 1}}, "max_batch_size": 1}
    model = made("m", graph, instance_group=[{"count": 1}], **policy)
    repository = FakeRepository(model)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    transport = httpx.ASGITransport(http_app(repository))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        calls = [await started(client.post("/v2/models/m/infer", json=body))]
        await begun.wait()
        calls.append(await started(client.post("/v2/models/m/infer", json=body)))
        refused = await client.post("/v2/models/m/infer", json=body)
        released.set()
        assert [(await call).status_code for call in calls] == [200, 200]
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "Exceeds maximum queue size" in refused.json()["error"]
    await repository.close()
