"""Barriers and mutexes: what is complete comes out, and who waits."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncexec.ops.state.barrier_state import Barrier
from asyncexec.ops.state.mutexes import Mutex
from tests.ops.kernel_bench import KernelBench
from tests.ops.op_case import text

LEAST = -(2**63)


class Barriers(KernelBench):
    """Shorthands for the ops of a barrier of an int32 and a vector of two floats."""

    def __init__(self) -> None:
        super().__init__()
        self.types = ["int32", "float32"]
        self.barrier: Barrier = self.run("Barrier", component_types=self.types, shapes=[[], [2]])

    async def insert(self, component: int, *keys: bytes, values: Any = None) -> None:
        rows = np.arange(len(keys), dtype=np.int32) if component == 0 else np.ones((len(keys), 2), np.float32)
        values = rows if values is None else values
        await self.run(
            "BarrierInsertMany",
            self.barrier,
            text(*keys),
            values,
            component_index=component,
            T=str(values.dtype),
        )

    async def take(self, count: int, **attrs: Any) -> tuple[list[int], list[bytes], list[Any]]:
        indices, keys, numbers, _ = await self.run(
            "BarrierTakeMany", self.barrier, np.int32(count), component_types=self.types, **attrs
        )
        return (indices - LEAST).tolist(), keys.tolist(), numbers.tolist()

    async def close(self, *, cancels: bool = False) -> None:
        await self.run("BarrierClose", self.barrier, cancel_pending_enqueues=cancels)

    def sizes(self) -> tuple[int, int]:
        return tuple(self.run(f"Barrier{which}Size", self.barrier) for which in ("Ready", "Incomplete"))  # type: ignore[return-value]


async def test_elements_come_out_when_they_are_complete_oldest_first() -> None:
    barriers = Barriers()
    await barriers.insert(0, b"a", b"b")
    await barriers.insert(0, b"c")
    assert barriers.sizes() == (0, 3)
    await barriers.insert(1, b"c")
    await barriers.insert(1, b"a")
    assert barriers.sizes() == (2, 1)
    assert await barriers.take(2) == ([0, 1], [b"a", b"c"], [0, 0])
    taken = asyncio.create_task(barriers.take(1))
    await asyncio.sleep(0)
    assert not taken.done()
    await barriers.insert(1, b"b")
    assert await taken == ([0], [b"b"], [1])


async def test_a_cancelled_taker_leaves_all_of_it() -> None:
    barriers = Barriers()
    taken = asyncio.create_task(barriers.take(2))
    await barriers.insert(0, b"a")
    await barriers.insert(1, b"a")
    taken.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taken
    assert await barriers.take(1) == ([0], [b"a"], [0])


async def test_a_closed_barrier_lets_what_began_be_completed() -> None:
    barriers = Barriers()
    await barriers.insert(0, b"a", b"b")
    await barriers.close()
    with pytest.raises(CancelledError, match="brand new key"):
        await barriers.insert(0, b"new")
    await barriers.insert(1, b"a")
    with pytest.raises(OutOfRangeError, match="requested 3, total size 2"):
        await barriers.take(3)
    assert await barriers.take(3, allow_small_batch=True) == ([0], [b"a"], [0])
    waiting = asyncio.create_task(barriers.take(1))
    await asyncio.sleep(0)
    await barriers.insert(1, b"b")
    assert await waiting == ([0], [b"b"], [1])
    with pytest.raises(CancelledError, match="is closed"):
        await barriers.insert(1, b"b")
    with pytest.raises(CancelledError, match="already closed"):
        await barriers.close()


async def test_closing_with_cancelling_forgets_what_is_incomplete() -> None:
    barriers = Barriers()
    await barriers.insert(0, b"a")
    waiting = asyncio.create_task(barriers.take(1))
    await asyncio.sleep(0)
    await barriers.close(cancels=True)
    with pytest.raises(OutOfRangeError):
        await waiting
    assert barriers.sizes() == (0, 0)
    with pytest.raises(CancelledError):
        await barriers.insert(1, b"a")


@pytest.mark.parametrize(
    ("component", "values", "message"),
    [
        (2, np.zeros(1, np.int32), "out of range"),
        (0, np.zeros(1, np.int64), "not int64"),
        (0, np.zeros(2, np.int32), "a key for each row"),
        (0, np.int32(1), "a key for each row"),
        (1, np.zeros((1, 0), np.float32), "no elements"),
    ],
)
async def test_wrong_components_are_refused(component: int, values: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await Barriers().insert(component, b"a", values=values)


async def test_a_component_comes_once_and_in_its_shape() -> None:
    barriers = Barriers()
    await barriers.insert(0, b"a")
    with pytest.raises(InvalidArgumentError, match="already has a value"):
        await barriers.insert(0, b"a")
    with pytest.raises(InvalidArgumentError, match="Shape mismatch"):
        await barriers.insert(1, b"a", values=np.ones((1, 3), np.float32))
    with pytest.raises(InvalidArgumentError, match="Signature mismatch"):
        await barriers.run("BarrierTakeMany", barriers.barrier, np.int32(1), component_types=["int32"])


@pytest.mark.parametrize(
    "attrs",
    [
        {"component_types": ["int32"], "shapes": []},
        {"component_types": ["int32"], "shapes": [[None]]},
        {"component_types": ["int32"], "shapes": [[]], "capacity": 3},
    ],
)
def test_a_barrier_wants_shapes_and_no_capacity(attrs: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        KernelBench().run("Barrier", **attrs)


@pytest.mark.parametrize("ends", [False, True])
async def test_a_session_with_a_barrier_can_be_closed(ends: bool) -> None:
    with ax.Graph() as graph:
        barrier = ax.raw_ops.Barrier(component_types=[ax.float32], shapes=[[]])
        put = ax.raw_ops.BarrierInsertMany(handle=barrier, keys=[b"a"], values=[1.0], component_index=0)
        end = ax.raw_ops.BarrierClose(handle=barrier)
        size = ax.raw_ops.BarrierReadySize(handle=barrier)
    async with ax.Session(graph) as session:
        await session.run([], targets=[put])
        assert await session.run(size) == 1
        if ends:
            await session.run([], targets=[end])


async def test_a_mutex_lets_one_in_after_another() -> None:
    bench, order = KernelBench(), list[int]()
    mutex: Mutex = bench.run("MutexV2")
    first = await bench.run("MutexLock", mutex)

    async def wait(number: int) -> None:
        lock = await bench.run("MutexLock", mutex)
        order.append(number)
        await asyncio.sleep(0)
        bench.run("ConsumeMutexLock", lock)

    tasks = [asyncio.create_task(wait(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    assert order == []
    bench.run("ConsumeMutexLock", first)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 2, 3]
    with pytest.raises(InvalidArgumentError, match="consumed already"):
        bench.run("ConsumeMutexLock", first)
    with pytest.raises(InvalidArgumentError, match="mutex lock"):
        bench.run("ConsumeMutexLock", 3)


async def test_a_lock_that_nobody_has_any_more_is_let_go() -> None:
    mutex = Mutex()
    lock = await mutex.lock()
    waiting = asyncio.create_task(mutex.lock())
    await asyncio.sleep(0)
    del lock
    (await waiting).release()


async def test_steps_under_a_mutex_do_not_overlap() -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.int32, [])
        mutex = ax.create_op("MutexV2", [], {})
        lock = ax.create_op("MutexLock", [mutex], {})
        with ax.control_dependencies([lock]):
            inside = ax.identity(fed)
        with ax.control_dependencies([inside]):
            done = ax.create_op("ConsumeMutexLock", [lock], {})
    async with ax.Session(graph) as session:
        found = await asyncio.gather(*(session.run(inside, {fed: n}, targets=[done]) for n in range(5)))
    assert [int(value) for value in found] == list(range(5))
