"""``session.statistics()``, and the warning that names who held the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.kernel_warning import KernelWarning
from tests.running import raw_op, started


def hold(milliseconds: float) -> Callable[..., Any]:
    """A kernel that holds the loop for so long: it computes, and calls nothing that a guard against blocking sees."""

    def kernel(*inputs: Any) -> Any:
        end = time.perf_counter() + milliseconds / 1000
        while time.perf_counter() < end:
            pass
        return 1.0

    return kernel


async def test_counts() -> None:
    go = asyncio.Event()

    async def wait() -> Any:
        await go.wait()
        return 1.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.check_numerics(x, "bad")
        waits = raw_op("Wait", wait, kind=KernelKind.ASYNC)()
        worker = raw_op("Work", lambda: 1.0, dtype=ax.float32, is_expensive=True)()
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=2)) as session:
        before = session.statistics()
        assert (before.running_steps, before.queued_steps, before.completed_steps, before.failed_steps) == (0, 0, 0, 0)
        assert (before.longest_node, before.longest_node_ms, before.cached_signatures) == (None, 0, 0)
        for _ in range(3):
            await session.run(y, {x: 1})
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(y, {x: float("nan")})
        runs = [await started(session.run(waits)) for _ in range(2)]
        await session.run(worker)
        during = session.statistics()
        assert (during.running_steps, during.completed_steps, during.failed_steps) == (2, 4, 1)
        assert during.cached_signatures == 3
        (pool,) = during.worker_pools.values()
        assert (pool.threads, pool.completed) == (1, 1)
        assert during.longest_slice_ms > 0
        runs[0].cancel()
        go.set()
        await asyncio.wait(runs)
        after = session.statistics()
        assert (after.running_steps, after.completed_steps, after.failed_steps) == (0, 5, 2)
        with pytest.raises(dataclasses.FrozenInstanceError):
            after.running_steps = 1  # type: ignore[misc]


@pytest.mark.parametrize("place", ["simple", "two devices", "loop", "any order"])
async def test_longest_node_is_named(place: str) -> None:
    with ax.Graph() as graph:
        x = ax.constant(1.0)
        short = raw_op("Hold", hold(0), dtype=ax.float32)(x, name="short")
        with ax.device("/cpu:1" if place == "two devices" else ""):
            long = raw_op("Hold", hold(30), dtype=ax.float32)(x, name="long")
        out = [short, long]
        if place == "loop":
            (turn,) = ax.while_loop(lambda i: i < 2.0, lambda i: (i + 1.0,), (x,))
            out.append(turn)
    settings = ax.SessionConfig(device_count={"CPU": 2}, schedule_seed=1 if place == "any order" else None)
    async with ax.Session(graph, settings) as session:
        await session.run(out)
        statistics = session.statistics()
    assert statistics.longest_node == "long"
    assert 30 <= statistics.longest_node_ms <= statistics.longest_slice_ms


@contextlib.contextmanager
def told() -> Iterator[list[str]]:
    """What was warned of; on a busy machine, the quickest kernel may be interrupted for long."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += [str(warning.message) for warning in caught if warning.category is KernelWarning]


async def test_warning_names_the_node_once() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        slow = raw_op("Hold", hold(12), dtype=ax.float32, is_expensive=False)(x, name="slow")
        quick = raw_op("Hold", hold(1), dtype=ax.float32, is_expensive=False)(x, name="quick")
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=10)) as session:
        with told() as messages:
            found = [await session.run([slow, quick], {x: 1}) for _ in range(3)]
        assert found == [[1, 1]] * 3
    (message,) = [message for message in messages if "'slow'" in message]
    assert re.match(r"node 'slow' \(Hold\) held the event loop for \d+ ms", message)
    assert "expensive=True" in message


@pytest.mark.parametrize("slow_inline_ms", [None, 1000])
async def test_no_warning_where_none_is_wanted(slow_inline_ms: float | None) -> None:
    with ax.Graph() as graph:
        out = raw_op("Hold", hold(6), dtype=ax.float32)()
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=slow_inline_ms)) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await session.run(out)
        assert session.statistics().longest_node_ms >= 6


async def test_kernel_on_a_worker_thread_does_not_hold_the_loop() -> None:
    with ax.Graph() as graph:
        out = raw_op("Hold", hold(6), dtype=ax.float32, is_expensive=True)()
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=1)) as session:
        await session.run(out)
        assert session.statistics().longest_node is None


async def test_async_kernel_that_blocks_the_loop_is_named() -> None:
    """Each stretch between two awaits counts by itself, whatever the kernel waits for meanwhile."""

    async def blocks() -> Any:
        await asyncio.sleep(0)
        try:
            await asyncio.sleep(0.06)
        finally:
            hold(60)()
        return 1.0

    async def waits() -> Any:
        await asyncio.sleep(0.08)
        return 2.0

    with ax.Graph() as graph:
        out = [raw_op("Kernel", kernel, kind=KernelKind.ASYNC)(name=kernel.__name__) for kernel in (blocks, waits)]
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=50)) as session:
        with told() as messages:
            assert await session.run(out) == [1, 2]
        assert session.statistics().longest_node == "blocks"
        assert ["'blocks'" in message for message in messages] == [True]
        run = await started(session.run(out))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def blocks(value: Any) -> Any:
    await asyncio.sleep(0)
    hold(12)()
    return value


BLOCKS = raw_op("Blocks", blocks, kind=KernelKind.ASYNC, dtype=ax.float32)


def in_a_step(x: ax.Tensor) -> Any:
    return BLOCKS(x, name="blocks")


def inline(x: ax.Tensor) -> Any:
    def kernel(value: Any) -> Any:
        hold(12)()
        return value

    return raw_op("Holds", kernel, dtype=ax.float32, is_expensive=False)(x, name="blocks")


def in_a_loop(x: ax.Tensor) -> Any:
    return ax.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, ax.ensure_shape(in_a_step(v), [1])), (0, x))[1]


def in_a_function(x: ax.Tensor) -> Any:
    return ax.function(in_a_step)(x)


def in_a_batch(x: ax.Tensor) -> Any:
    return ax.batch(max_size=4, timeout_s=0.001)(lambda rows: ax.ensure_shape(in_a_step(rows), [None]))(x)


async def by_run(session: ax.Session, x: ax.Tensor, y: ax.Tensor) -> Any:
    return await session.run(y, {x: [1]})


async def by_map(session: ax.Session, x: ax.Tensor, y: ax.Tensor) -> Any:
    outputs = [out async for out in session.map(y, [{x: [1]}] * 2)]
    return outputs[1]


async def by_partial_run(session: ax.Session, x: ax.Tensor, y: ax.Tensor) -> Any:
    async with session.partial_run(y, [x]) as step:
        await step.feed({x: [1]})
        return await step.fetch(y)


@pytest.mark.parametrize("how", [by_run, by_map, by_partial_run], ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "place", [in_a_step, inline, in_a_loop, in_a_function, in_a_batch], ids=lambda one: one.__name__
)
async def test_who_blocks_the_loop_is_named_wherever_it_runs(place: Any, how: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [1], name="x")
        y = place(x)
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=10)) as session:
        with told() as messages:
            assert (await how(session, x, y)).tolist() == [1]
    assert any(re.match(r"node '([\w/]+/)?blocks' \(\w+\) held the event loop for \d+ ms", text) for text in messages)
