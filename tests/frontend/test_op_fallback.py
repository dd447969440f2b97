"""``fallback=``: what stands for the result of an op whose last attempt has failed."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import DeadlineExceededError, InternalError, InvalidArgumentError
from tests.frontend.policies import Flaky, failures, run
from tests.running import settle, without_collector


def failing(x: float) -> float:
    raise ValueError(f"no {x}")


async def failing_later(x: float) -> float:
    await asyncio.sleep(0)
    raise ValueError(f"no {x}")


def described(error: Exception) -> float:
    assert type(error) is ValueError
    return float(str(error).removeprefix("no ")) + 100


async def described_later(error: Exception) -> float:
    await asyncio.sleep(0)
    return described(error)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (failing, {}),
        (failing, {"expensive": True}),
        (failing, {"expensive": False, "limiter": 1}),
        (failing, {"timeout": 5.0}),
        (failing_later, {}),
        (failing_later, {"timeout": 5.0, "limiter": 2}),
    ],
)
async def test_value_or_function_of_the_error(function: Any, options: dict[str, Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        value = ax.op(fallback=-1.5, **options)(function)
        fetches = [value(x), value(x, fallback=2.5), ax.op(**options)(function)(x, fallback=described)]
    async with ax.Session(graph) as session:
        for _ in range(4):
            assert await session.run(fetches, {x: 3.0}) == [-1.5, 2.5, 103.0]


async def test_async_function_of_the_error() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float64, [], name="x")
        y = ax.op(failing_later).options(fallback=described_later)(x)
    assert await run(y, 1.0) == 101.0


async def test_it_comes_after_the_retries() -> None:
    flaky = Flaky(*failures(5))
    retry = ax.Retry(attempts=3, wait_initial_s=0, jitter=0)
    with ax.Graph():
        y = flaky.op(ax.placeholder(ax.object, [], name="x"), retries=retry, fallback="given up")
    assert await run(y, "fine") == "given up"
    assert len(flaky.times) == 3


async def test_it_is_not_asked_for_where_nothing_fails() -> None:
    flaky = Flaky()
    with ax.Graph():
        y = flaky.op(ax.placeholder(ax.object, [], name="x"), fallback=lambda error: pytest.fail("asked"))
    assert await run(y, "fine") == "fine"


async def test_it_stands_for_an_attempt_out_of_time() -> None:
    seen: list[Exception] = []

    @ax.op(timeout=0.001, fallback=lambda error: seen.append(error) or 0.5)  # type: ignore[func-returns-value]
    async def wait_long(x: float) -> float:
        await asyncio.Event().wait()
        return x

    with ax.Graph():
        y = wait_long(ax.placeholder(ax.float64, [], name="x"))
    assert await run(y, 1.0) == 0.5
    assert [type(error) for error in seen] == [DeadlineExceededError]


async def test_it_does_not_stand_for_a_cancellation_or_the_deadline_of_the_run() -> None:
    @ax.op(fallback=0.5)
    async def wait_long(x: float) -> float:
        await asyncio.Event().wait()
        return x

    with ax.Graph() as graph:
        y = wait_long(ax.placeholder(ax.float64, [], name="x"))
    async with ax.Session(graph) as session:
        with pytest.raises(DeadlineExceededError):
            await session.run(y, {"x:0": 1.0}, options=ax.RunOptions(timeout=0.01))
        task = asyncio.ensure_future(session.run(y, {"x:0": 1.0}))
        await settle(20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_it_is_of_the_declared_dtype() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float64, [], name="x")
        wrong = ax.op(outputs=[ax.float32], fallback="text")(failing)(x)
        right = ax.op(outputs=[ax.float32], fallback=0.1)(failing)(x)
    assert await run(right, 1.0) == np.float32(0.1)
    with pytest.raises(InternalError, match="gave what is not float32"):
        await run(wrong, 1.0)


async def test_it_runs_in_loops_and_branches() -> None:
    @ax.op(fallback=10.0)
    async def odd(x: float) -> float:
        await asyncio.sleep(0)
        if x % 2:
            raise ValueError
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        taken = ax.cond(x > 0.0, lambda: odd(x), lambda: x)
        mapped = ax.map_fn(odd, ax.cast(ax.range(4), ax.float64))
    async with ax.Session(graph) as session:
        for _ in range(4):
            got, row = await session.run([taken, mapped], {x: 3.0})
            assert (got, list(row)) == (10.0, [0.0, 10.0, 2.0, 10.0])


async def test_plain_function_with_a_fallback_alone_runs_where_it_would_without() -> None:
    threads = []

    @ax.op(fallback=0.0)
    def quick(x: float) -> float:
        threads.append(threading.current_thread())
        raise ValueError

    with ax.Graph():
        y = quick(ax.placeholder(ax.float64, [], name="x"))
    assert await run(y, 1.0) == 0.0
    assert threads == [threading.main_thread()]


async def test_equal_values_are_told_apart() -> None:
    op = ax.op(name="Apart", outputs=[ax.object])(failing)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        values = [1, 1.0, True, (1,), (1.0,), frozenset({1}), frozenset({1.0})]
        fetches = [op(x, fallback=value) for value in values]
    assert fetches[0].op.get_attr("_has_fallback") is True
    async with ax.Session(graph) as session:
        got = await session.run(fetches, {x: 1.0})
    assert list(map(repr, got)) == list(map(repr, values))


def test_a_fallback_goes_with_its_graph() -> None:
    class Kept:
        def __call__(self, error: Exception) -> float:
            return 0.0

    def build() -> weakref.ref[Kept]:
        kept = Kept()
        with ax.Graph():
            op(1.0, fallback=kept)
        return weakref.ref(kept)

    op = ax.op(name="Going")(failing)
    built = [build() for _ in range(5)]
    gc.collect()
    assert [found() for found in built] == [None] * 5


async def test_array_is_nobodys_to_change() -> None:
    given = np.zeros(3)
    with ax.Graph() as graph:
        fetches = [
            ax.op(outputs=[ax.float64], fallback=given, **options)(failing)(1.0) for options in ({}, {"timeout": 5.0})
        ]
        fetches += ax.op(outputs=[ax.float64, ax.float64], fallback=(given, given))(failing)(1.0)
    given[0] = 7
    async with ax.Session(graph) as session:
        for found in await session.run(fetches):
            with pytest.raises(ValueError, match="read-only"):
                found[1] = 5
        np.testing.assert_array_equal(await session.run(fetches), np.zeros((4, 3)))


@pytest.mark.parametrize("options", [{}, {"timeout": 5.0}, {"expensive": False, "limiter": 1}])
async def test_plain_function_has_no_async_fallback(options: dict[str, Any]) -> None:
    with ax.Graph() as graph:
        y = ax.op(fallback=described_later, **options)(failing)(1.0)
    async with ax.Session(graph) as session:
        with pytest.raises(InternalError, match="returned a coroutine"):
            await session.run(y)


async def test_error_as_its_own_fallback_holds_nothing() -> None:
    class Fed:
        pass

    def raising(value: Any) -> Any:
        raise ValueError

    async def raising_later(value: Any) -> Any:
        raise ValueError

    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        fetches = [ax.op(fallback=lambda error: error)(function)(x) for function in (raising, raising_later)]
    with without_collector():
        async with ax.Session(graph) as session:
            fed = Fed()
            seen = weakref.ref(fed)
            found = await session.run(fetches, {x: fed})
            assert [type(error) for error in found] == [ValueError, ValueError]
            del fed, found
            await settle(5)
            assert seen() is None


def test_a_tensor_is_no_fallback() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float64, [], name="x")
        with pytest.raises(InvalidArgumentError, match=r"op 'failing': a fallback is a value") as caught:
            ax.op(failing)(x, fallback=x)
    assert "ax.catch" in (caught.value.hint or "")
