"""Decoupled models: a call has the responses that the sources of the graph give it, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.models.decoupled_model import DecoupledModel
from asyncexec.service.models.model import Model
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.models import model_of

pytestmark = pytest.mark.virtual_clock


def made_of(function: Any, dtype: ax.DType = ax.int32, count: ax.DType = ax.int32) -> ax.Graph:
    """Input n; output y: the items that *function* gives for a call, and output sum: of them and n."""
    with ax.Graph() as graph:
        n = ax.placeholder(count, [], name="n")
        item = ax.source(function, dtype, [], name="items")
        ax.identity(item, name="y")
        ax.add(ax.cast(item, ax.int32), ax.cast(n, ax.int32), name="sum")
    return graph


def counting(n: int) -> Iterator[int]:
    yield from range(n)


def request(n: Any, outputs: list[str] | None = None, **parameters: Any) -> InferRequest:
    return InferRequest("m", {"n": InferTensor("INT32", np.array(n, np.int32))}, outputs, id="a", parameters=parameters)


async def taken_into(found: list[Any], model: Model, asked: InferRequest) -> None:
    """Put the responses to *asked* into *found*."""
    async for each in model.responses(asked):
        found.append(each.outputs["y"].array.tolist())


async def all_of(model: Model, asked: InferRequest, output: str = "y") -> list[Any]:
    async with aclosing(model.responses(asked)) as responses:
        return [each.outputs[output].array.tolist() async for each in responses]


async def test_as_many_responses_as_the_source_has_items() -> None:
    model = model_of(made_of(counting))
    assert isinstance(model, DecoupledModel)
    assert (model.is_decoupled, model.config.model_transaction_policy.decoupled) == (True, True)
    for count in (0, 1, 5):
        assert await all_of(model, request(count)) == list(range(count))
    assert await all_of(model, request(3), "sum") == [3, 4, 5]
    found = [each async for each in model.responses(request(2, ["sum"]))]
    assert [(each.id, each.model_name, each.model_version, list(each.outputs)) for each in found] == [
        ("a", "m", "1", ["sum"])
    ] * 2
    assert (model.statistics.success.count, model.statistics.fail.count) == (5, 0)
    await model.close()


async def test_infer_is_for_exactly_one_response() -> None:
    async def endless() -> AsyncIterator[int]:
        while True:
            yield 1

    model, other = model_of(made_of(counting)), model_of(made_of(endless))
    assert (await model.infer(request(1))).outputs["y"].array.tolist() == 0
    for wrong, count in ((model, 0), (model, 2), (other, 1)):
        with pytest.raises(ax.errors.InvalidArgumentError, match="expects model to produce exactly 1 response"):
            await wrong.infer(request(count))
    await model.close()
    await other.close()


async def test_a_response_is_there_when_its_item_is() -> None:
    async def slow(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(10)
            yield i

    model = model_of(made_of(slow))
    loop = asyncio.get_running_loop()
    times = [loop.time() async for _ in model.responses(request(3))]
    assert times == pytest.approx([10, 20, 30], abs=0.1)
    await model.close()


async def test_calls_run_beside_each_other() -> None:
    async def slow(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(10)
            yield i

    model = model_of(made_of(slow))
    found = await asyncio.gather(*[all_of(model, request(n)) for n in (1, 2, 3)])
    assert found == [[0], [0, 1], [0, 1, 2]]
    assert asyncio.get_running_loop().time() == pytest.approx(30, abs=0.1)
    await model.close()


async def test_no_more_is_drawn_than_a_few_items_ahead() -> None:
    drawn = 0

    async def endless() -> AsyncIterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn

    model = model_of(made_of(endless))
    async with aclosing(model.responses(request(0))) as responses:
        assert (await anext(responses)).outputs["y"].array.tolist() == 1
        await asyncio.sleep(100)  # nobody takes the others
        assert drawn < 30
        for _ in range(200):
            await anext(responses)
        assert 200 < drawn < 230
    assert model.statistics.cancel.count == 1
    await model.close()


async def test_leaving_early_closes_the_source() -> None:
    closed: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(1)
                yield 1
        finally:
            closed.append("closed")

    model = model_of(made_of(endless))
    async with aclosing(model.responses(request(0))) as responses:
        await anext(responses)
    assert closed == ["closed"]
    call = asyncio.create_task(all_of(model, request(0)))
    await asyncio.sleep(2.5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert closed == ["closed"] * 2
    assert model.statistics.cancel.count == 2
    await model.close()


async def test_a_deadline_ends_the_responses() -> None:
    async def slow(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(10)
            yield i

    model = model_of(made_of(slow))
    found: list[Any] = []
    with pytest.raises(ax.errors.DeadlineExceededError, match="took more than its timeout of 25 s"):
        await taken_into(found, model, request(9, timeout=25_000_000))
    assert found == [0, 1]
    assert model.statistics.fail.count == 1
    await model.close()


async def test_what_fails_after_responses() -> None:
    async def failing(n: int) -> AsyncIterator[int]:
        yield 0
        yield 1
        if n == 1:
            raise ValueError("no more")
        if n == 2:
            raise ax.errors.InvalidArgumentError("n is 2")
        raise TimeoutError("late")

    model = model_of(made_of(failing))
    expected = {
        1: (ax.errors.InternalError, "ValueError: no more"),
        2: (ax.errors.InvalidArgumentError, "n is 2"),
        3: (ax.errors.InternalError, "TimeoutError: late"),
    }
    for n, (kind, text) in expected.items():
        found: list[Any] = []
        with pytest.raises(ax.errors.OpError) as raised:
            await taken_into(found, model, request(n, timeout=10**9))
        assert found == [0, 1]
        assert (type(raised.value), raised.value.message) == (kind, text)
    await model.close()


async def test_calls_that_do_not_fit_are_refused_before_a_source_is_asked() -> None:
    asked: list[int] = []

    def source(n: int) -> Iterator[int]:
        asked.append(n)
        return iter(())

    model = model_of(made_of(source))
    with pytest.raises(ax.errors.InvalidArgumentError, match="missing required input"):
        await all_of(model, InferRequest("m", {}))
    assert asked == []
    await model.close()


async def test_parameters_of_a_source_get_python_values() -> None:
    got: list[Any] = []

    async def source(text: str, rows: list[int], other: Any = None, **_: Any) -> AsyncIterator[str]:
        got.append((text, rows, other))
        yield text.upper()

    with ax.Graph() as graph:
        ax.placeholder(ax.string, [], name="text")
        ax.placeholder(ax.int64, [2], name="rows")
        ax.identity(ax.source(source, ax.string, []), name="y")
    model = model_of(graph)
    text = np.empty((), object)
    text[()] = b"abc"
    inputs = {"text": InferTensor("BYTES", text), "rows": InferTensor("INT64", np.array([1, 2]))}
    assert await all_of(model, InferRequest("m", inputs)) == [b"ABC"]
    assert got == [("abc", [1, 2], None)]
    await model.close()


async def test_states_belong_to_a_call_and_sources_end_together() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        total = ax.stream_state(0)
        items = ax.source(counting, ax.int32, []) * ax.source([10, 20, 30], ax.int32, []) + n * 0
        ax.identity(total.update(total.value + items), name="y")
    model = model_of(graph)
    assert await all_of(model, request(9)) == [0, 20, 80]
    assert await all_of(model, request(2)) == [0, 20]
    await model.close()


async def test_a_source_without_parameters() -> None:
    with ax.Graph() as graph:
        ax.identity(ax.source(ax.ticks(5.0), ax.int64, []), name="y")
    model = model_of(graph)
    found = []
    async with aclosing(model.responses(InferRequest("m", {}))) as responses:
        async for each in responses:
            found.append(each.outputs["y"].array.tolist())
            if len(found) == 3:
                break
    assert found == [0, 1, 2]
    await model.close()


async def test_a_decoupled_model_without_sources_has_one_response() -> None:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.int32, [], name="n"), name="y")
    model = model_of(graph, model_transaction_policy={"decoupled": True})
    assert model.is_decoupled
    assert await all_of(model, request(4)) == [4]
    assert (await model.infer(request(4))).outputs["y"].array.tolist() == 4
    await model.close()


async def test_the_end_of_a_model_waits_for_its_responses() -> None:
    async def slow(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(10)
            yield i

    model = model_of(made_of(slow))
    call = asyncio.create_task(all_of(model, request(3)))
    await asyncio.sleep(1)
    await model.close()
    assert call.done()
    assert await call == [0, 1, 2]


async def test_warming_up_takes_the_first_response() -> None:
    sample = {"inputs": {"n": {"data_type": "TYPE_INT32", "dims": [], "zero_data": True}}, "name": "w"}

    async def endless() -> AsyncIterator[int]:
        while True:
            yield 1

    model = model_of(made_of(endless), model_warmup=[sample])
    await model.warm_up()
    await model.close()


@pytest.mark.parametrize(
    ("function", "config", "told"),
    [
        (lambda m: range(m), {}, "the function of source 'items' needs 'm', which is no input that each call has"),
        (counting, {"sequence_batching": {}}, "has sources, so there are no sequences"),
    ],
)
def test_sources_that_do_not_fit(function: Any, config: Any, told: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=told):
        model_of(made_of(function), **config)
