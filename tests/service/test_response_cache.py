"""The cache of answers: what is found, what is not, how much is kept, and runs that requests share."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.models.config import config_of
from asyncexec.service.models.ensemble import EnsembleModel
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.models.response_cache import ResponseCache, content_key
from asyncexec.service.requests import InferRequest, InferTensor, OutputOptions
from tests.running import settle, started
from tests.service.models import sums


class Counted:
    """Model "m", whose answers are kept: y is x + 1, and runs are counted; it waits until *go* is set."""

    def __init__(self, cache_bytes: int = 2**20) -> None:
        self.num_runs = 0
        self.go = asyncio.Event()
        self.go.set()
        self.failure: Exception | None = None

        @ax.op(outputs=[ax.float32])
        async def work(x: Any) -> Any:
            self.num_runs += 1
            await self.go.wait()
            if self.failure is not None:
                raise self.failure
            return x + 1

        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, None, name="x")
            y = work(x)
            z = ax.negative(x)
        source = ModelSource(graph, outputs={"y": y, "z": z}, config={"response_cache": {"enable": True}})
        self.repository = ModelRepository(sources={"m": source}, cache_bytes=cache_bytes)

    async def __aenter__(self) -> Self:
        await self.repository.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.repository.close()

    @property
    def model(self) -> Model:
        return self.repository.model("m")

    async def ask(self, *numbers: float, outputs: list[str] | None = None, **parameters: Any) -> Any:
        x = InferTensor("FP32", np.array(numbers, np.float32))
        found = await self.model.infer(InferRequest("m", {"x": x}, outputs, parameters=parameters))
        return {name: each.array.tolist() for name, each in found.outputs.items()}


async def test_the_same_content_runs_once() -> None:
    async with Counted() as m:
        assert await m.ask(1, 2) == await m.ask(1, 2) == {"y": [2, 3], "z": [-1, -2]}
        assert await m.ask(1, 3) == {"y": [2, 4], "z": [-1, -3]}
        assert await m.ask(1, 2, outputs=["z"]) == {"z": [-1, -2]}
        assert await m.ask(1, 2, outputs=["y"]) == await m.ask(1, 2, outputs=["y"]) == {"y": [2, 3]}
        assert m.num_runs == 3
        statistics = m.model.statistics
        assert (statistics.cache_hit.count, statistics.cache_miss.count, statistics.success.count) == (2, 4, 6)


async def test_what_is_kept_is_nobodys_to_change() -> None:
    async with Counted() as m:
        x = np.array([1], np.float32)
        first = await m.model.infer(InferRequest("m", {"x": InferTensor("FP32", x)}))
        first.outputs["y"].array[:] = 99
        x[:] = 5
        second = await m.model.infer(InferRequest("m", {"x": InferTensor("FP32", np.array([1], np.float32))}))
        assert second.outputs["y"].array.tolist() == [2]
        assert not second.outputs["y"].array.flags.writeable


async def test_classes_are_made_of_what_is_kept() -> None:
    async with Counted() as m:
        await m.ask(3, 4)
        options = {"y": OutputOptions(num_classes=1)}
        x = InferTensor("FP32", np.array([3, 4], np.float32))
        found = await m.model.infer(InferRequest("m", {"x": x}, output_options=options))
        assert (found.outputs["y"].array.tolist(), m.num_runs) == ([b"5.000000:1"], 1)


async def test_requests_at_one_time_share_a_run_that_ends_with_the_last() -> None:
    async with Counted() as m:
        m.go.clear()
        calls = [await started(m.ask(1)) for _ in range(3)]
        other = await started(m.ask(1, timeout=10**9))
        await settle(10)
        assert m.num_runs == 1
        other.cancel()
        calls[0].cancel()
        await asyncio.gather(other, calls[0], return_exceptions=True)
        m.go.set()
        assert await asyncio.gather(*calls[1:]) == [{"y": [2], "z": [-1]}] * 2
        m.go.clear()
        calls = [await started(m.ask(2)) for _ in range(2)]
        await settle(10)
        for call in calls:
            call.cancel()
        assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2
        assert m.model.session.statistics().running_steps == 0
        m.go.set()
        assert (await m.ask(2), m.num_runs) == ({"y": [3], "z": [-2]}, 3)


@pytest.mark.virtual_clock
async def test_who_shares_a_run_waits_for_as_long_as_its_own_timeout() -> None:
    async with Counted() as m:
        m.go.clear()
        first = await started(m.ask(1, timeout=2_000_000))
        await asyncio.sleep(1)
        second = await started(m.ask(1, timeout=2_000_000))
        with pytest.raises(ax.errors.DeadlineExceededError, match="timeout of 2 s"):
            await first
        await asyncio.sleep(0.5)
        m.go.set()
        assert (await second, m.num_runs) == ({"y": [2], "z": [-1]}, 1)
        m.go.clear()
        with pytest.raises(ax.errors.DeadlineExceededError):
            await m.ask(2, timeout=1)
        assert m.model.session.statistics().running_steps == 0


async def test_a_failure_is_for_all_who_wait_and_is_not_kept() -> None:
    async with Counted() as m:
        m.failure = ValueError("broken")
        m.go.clear()
        calls = [await started(m.ask(1)) for _ in range(2)]
        m.go.set()
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, ax.errors.OpError) and "broken" in str(error) for error in errors)
        assert errors[0] is not errors[1]
        m.failure = None
        assert (await m.ask(1), m.num_runs) == ({"y": [2], "z": [-1]}, 2)


async def test_the_oldest_go_first_and_all_when_the_model_does() -> None:
    async with Counted(cache_bytes=4000) as m:
        cache = m.repository._cache
        for number in (1, 2, 1, 3, 1, 2):  # there is room for two
            await m.ask(number)
        assert m.num_runs == 4
        assert 0 < cache.num_bytes <= 4000
        await m.ask(*range(1000))
        assert await m.ask(*range(1000)) == await m.ask(*range(1000))
        assert m.num_runs == 7  # it is larger than the cache
        await m.repository.close()
        assert cache.num_bytes == 0


async def test_strings_and_their_size() -> None:
    cache = ResponseCache(10_000)

    async def texts(_: Any) -> list[Any]:
        return [np.array([b"a" * 2000, b"b" * 1000], object), b"scalar", np.float32(1)]

    (first, _, _), is_known = await cache.values("m", b"k", None, texts)
    assert (first[0], is_known) == (b"a" * 2000, False)
    assert cache.num_bytes > 3000
    values, is_known = await cache.values("m", b"k", None, texts)
    assert (values[1], values[2], is_known) == (b"scalar", 1.0, True)
    cache.forget("m")
    assert cache.num_bytes == 0


def test_other_content_has_another_key() -> None:
    arrays = [
        np.zeros(4, np.float32),
        np.zeros(4, np.int32),
        np.zeros((2, 2), np.float32),
        np.zeros((2, 2), np.float32).astype(">f4"),
        np.zeros(8, np.float16),
        np.zeros(8, ax.bfloat16.as_numpy_dtype),
        np.array([b"ab", b"c"], object),
        np.array([b"a", b"bc"], object),
        np.arange(4, dtype=np.float32),
        np.arange(8, dtype=np.float32)[::2],
    ]
    keys = {content_key({"x": array}, ["y"]) for array in arrays}
    keys |= {content_key({"x": arrays[0]}, outputs) for outputs in (["z"], ["y", "z"], ["yz"], [])}
    keys |= {content_key({"z": arrays[0]}, ["y"]), content_key({"x": arrays[0], "z": arrays[0]}, ["y"])}
    assert len(keys) == len(arrays) + 6
    one, other = {"a": arrays[0], "b": arrays[1]}, {"b": arrays[1], "a": arrays[0]}
    assert content_key(one, ["y"]) == content_key(other, ["y"])


async def test_without_the_field_nothing_is_kept() -> None:
    repository = ModelRepository(sources={"m": sums()})
    await repository.start()
    model = repository.model("m")
    row = InferTensor("FP32", np.ones((1, 3), np.float32))
    for _ in range(2):
        await model.infer(InferRequest("m", {"x": row, "y": row}))
    assert (model.num_runs, model.statistics.cache_miss.count) == (2, 0)
    await repository.close()


async def test_ensembles_have_none() -> None:
    config = config_of({"response_cache": {"enable": True}, "ensemble_scheduling": {"step": [{}]}}, "test")
    repository = ModelRepository(sources={"": sums()})
    await repository.start()
    with pytest.raises(InvalidArgumentError, match="'response_cache' is for the models that it calls"):
        EnsembleModel.of("all", "1", config, repository.model)
    await repository.close()
