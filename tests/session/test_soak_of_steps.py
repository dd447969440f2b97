"""A million steps of all sorts, many at once, succeeding, failing, cancelled and timed out: memory stays flat.

Whatever a kernel is to do it does exactly once a step, and no tensor, task or entry is left between two rounds.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans.native_calls import COMPILER
from tests.running import settle
from tests.session.flat_memory import FlatMemory, LiveArrays

ONCE_MORE = ax.Retry(attempts=2, wait_initial_s=0, on=ConnectionError)
# What pytest and a log keep of warnings is not flat; on a busy machine kernels are slow and late.
pytestmark = pytest.mark.filterwarnings("ignore::asyncexec.framework.kernel_warning.KernelWarning")
CONFIG = ax.SessionConfig(device_count={"CPU": 2}, num_worker_threads=2, slow_inline_ms=None)
# Of a round of 1000 steps, how many are of which sort.
SHARES = {
    "inline": 250,
    "awaited": 200,
    "looped": 120,
    "worked": 100,
    "far": 100,
    "counted": 50,
    "retried": 20,
    "batched": 40,
    "queued": 30,
    "failed_inline": 20,
    "failed_awaited": 20,
    "failed_worker": 10,
    "cancelled": 30,
    "timed_out": 10,
}
FAILING = ("failed_inline", "failed_awaited", "failed_worker")


class Mix:
    """A graph with something to fetch for each sort of step; its kernels count their calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.arrays = LiveArrays()
        self._has_failed: set[int] = set()
        self.waits = asyncio.Event()  # set when a step waits
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [3], name="x")
            self.n = ax.placeholder(ax.int64, [], name="n")
            self.fetches: dict[str, Any] = self._build()

    def _build(self) -> dict[str, Any]:
        x = self.x
        _, looped = ax.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v + x), (ax.constant(0), x))
        with ax.device("/cpu:1"):
            far = self._op("far_awaited", self._turn)(x * 2.0)
        batched = ax.batch(max_size=16, timeout_s=0)(lambda rows: rows * 2.0)
        self.counter = ax.Variable(np.int64(0), name="counter")
        queue = ax.FIFOQueue(4, [ax.float32], [[3]])
        waits = self._op("waits", self._wait)(x)
        return {
            "inline": x * 2.0 + 1.0,
            "awaited": self._op("awaited", self._turn)(x),
            "looped": looped,
            "worked": self._op("worked", self._keep, expensive=True)(x),
            "far": far + 0.0,
            "counted": self.counter.assign_add(1),
            "retried": self._op("retried", self._fail_once, retries=ONCE_MORE)(x, self.n),
            "batched": batched(x),
            "queued": [queue.enqueue(x), queue.dequeue()],
            "failed_inline": self._op("failed_inline", self._fail, expensive=False)(x) + far,
            "failed_awaited": [self._op("failed_awaited", self._fail_later)(x) + far, waits],
            "failed_worker": [self._op("failed_worker", self._fail, expensive=True)(x), waits],
            "cancelled": waits,
            "timed_out": waits,
        }

    def _op(self, name: str, kernel: Callable[..., Any], **options: Any) -> Any:
        return ax.op(name=name, outputs=[ax.float32], shapes=[[3]], **options)(self._counting(name, kernel))

    def _counting(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*values: Any) -> Any:
            self.calls[name] += 1
            return await kernel(*values)

        def called(*values: Any) -> Any:
            with self._lock:  # on several threads
                self.calls[name] += 1
            return kernel(*values)

        return awaited if inspect.iscoroutinefunction(kernel) else called

    def _keep(self, value: Any) -> Any:
        return self.arrays.keep(value + 1)

    async def _turn(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return self._keep(value)

    async def _wait(self, value: Any) -> Any:
        self.waits.set()
        await asyncio.Event().wait()

    def _fail(self, value: Any) -> Any:
        raise ValueError("failed")

    async def _fail_later(self, value: Any) -> Any:
        await asyncio.sleep(0)
        raise ValueError("failed")

    async def _fail_once(self, value: Any, number: Any) -> Any:
        await asyncio.sleep(0)
        if number not in self._has_failed:
            self._has_failed.add(number)
            raise ConnectionError("not yet")
        self._has_failed.remove(number)
        return self._keep(value)


class Soak:
    """Runs rounds of 1000 steps at once, and compares what they give and what there is after each."""

    def __init__(self, session: ax.Session, mix: Mix) -> None:
        self._session = session
        self._mix = mix
        self._tasks = asyncio.all_tasks()
        self._before = session.statistics()
        self._num_rounds = 0

    async def rounds(self, number: int) -> AsyncIterator[int]:
        """Run a round to prepare all signatures, and then so many that count."""
        await self._session.run(self._mix.counter.initializer)
        await self._prepare_what_waits()
        await self._round()
        self._mix.calls.clear()
        await self._session.run(self._mix.counter.initializer)
        self._before = self._session.statistics()
        for self._num_rounds in range(1, number + 1):
            await self._round()
            yield self._num_rounds

    async def _prepare_what_waits(self) -> None:
        """Those steps of a round may all be ended before their signature is built."""
        step = asyncio.ensure_future(self._step("cancelled", 0))
        await self._mix.waits.wait()
        step.cancel()
        await asyncio.wait([step])

    async def _round(self) -> None:
        steps = [(sort, self._step(sort, n)) for sort, share in SHARES.items() for n in range(share)]
        tasks = [(sort, asyncio.ensure_future(step)) for sort, step in steps]
        for sort, task in tasks:
            if sort == "cancelled":
                asyncio.get_running_loop().call_soon(task.cancel)
        found = await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        for (sort, _), value in zip(tasks, found, strict=True):
            check(sort, value)
        del steps, tasks, task, found, value
        await settle()  # the loop holds on to what has just ended
        assert self._session.statistics().running_steps == 0
        assert asyncio.all_tasks() == self._tasks

    def _step(self, sort: str, number: int) -> Awaitable[Any]:
        mix = self._mix
        feeds: dict[Any, Any] = {mix.x: mix.arrays.keep(np.ones(3, np.float32))}
        if sort == "retried":
            feeds[mix.n] = number
        options = ax.RunOptions(timeout=0.001) if sort == "timed_out" else None
        return self._session.run(mix.fetches[sort], feeds, options=options)

    async def check_calls(self) -> None:
        """Each kernel was called once a step; those that were tried again, twice."""
        calls, num = self._mix.calls, self._num_rounds
        for sort in ("awaited", "worked", *FAILING):
            assert calls[sort] == num * SHARES[sort]
        assert calls["retried"] == 2 * num * SHARES["retried"]
        statistics, before = self._session.statistics(), self._before
        failed = sum(SHARES[sort] for sort in ENDS)
        assert statistics.failed_steps - before.failed_steps == num * failed
        assert statistics.completed_steps - before.completed_steps == num * (1000 - failed)
        assert await self._session.run(self._mix.counter) == num * SHARES["counted"]


EXPECTED = {"inline": 3, "awaited": 2, "looped": 3, "worked": 2, "far": 3, "retried": 2, "batched": 2}
ENDS: dict[str, type[BaseException]] = {
    "cancelled": asyncio.CancelledError,
    "timed_out": ax.errors.DeadlineExceededError,
    **dict.fromkeys(FAILING, ax.errors.InvalidArgumentError),
}


def check(sort: str, value: Any) -> None:
    if sort in ENDS:
        assert isinstance(value, ENDS[sort]), (sort, value)
    elif sort in EXPECTED:
        assert value.tolist() == [EXPECTED[sort]] * 3, (sort, value)
    elif sort == "queued":
        assert value[1].tolist() == [1] * 3
    else:
        assert value is None, (sort, value)


async def soak(num_rounds: int) -> None:
    mix, memory = Mix(), FlatMemory()
    async with ax.Session(mix.graph, CONFIG) as session:
        soaked = Soak(session, mix)
        async for number in soaked.rounds(num_rounds):
            if number % (num_rounds // 20 or 1) == 0:
                await asyncio.to_thread(COMPILER.join)  # a loop with arrays is compiled on those of one step
                memory.sample()
                assert mix.arrays.alive == 0
        await soaked.check_calls()
    memory.check()


@pytest.mark.one_of("loop")
async def test_thousands_of_steps_in_flat_memory() -> None:
    await soak(5)


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_a_million_steps_in_flat_memory() -> None:
    await soak(1000)
