"""Queues: order, capacity, closing, and what a cancelled waiter leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncexec.ops.state.queue_state import Queue
from tests.ops.kernel_bench import KernelBench, infer


class Queues(KernelBench):
    """Shorthands for the ops; components are float32 unless told otherwise."""

    def make(self, kind: str = "FIFOQueueV2", **attrs: Any) -> Queue:
        attrs = {"name": "q", "component_types": ["float32"], "shapes": [[]]} | attrs
        made: Queue = self.run(kind, **attrs)
        return made

    async def enqueue(self, queue: Queue, *components: Any) -> None:
        await self.run("QueueEnqueueV2", queue, *map(arrays, components), Tcomponents=dtypes(components))

    async def enqueue_many(self, queue: Queue, *components: Any) -> None:
        await self.run("QueueEnqueueManyV2", queue, *map(arrays, components), Tcomponents=dtypes(components))

    async def dequeue(self, queue: Queue) -> Any:
        return plain(await self.run("QueueDequeueV2", queue, component_types=queue.component_dtypes))

    async def dequeue_many(self, queue: Queue, n: Any, op: str = "QueueDequeueManyV2") -> Any:
        return plain(await self.run(op, queue, np.int32(n), component_types=queue.component_dtypes))

    async def dequeue_up_to(self, queue: Queue, n: Any) -> Any:
        return await self.dequeue_many(queue, n, "QueueDequeueUpToV2")

    async def close(self, queue: Queue, *, cancel: bool = False) -> None:
        await self.run("QueueCloseV2", queue, cancel_pending_enqueues=cancel)

    def size(self, queue: Queue) -> int:
        size = self.run("QueueSizeV2", queue)
        assert type(size) is np.int32
        return int(size)


def arrays(component: Any) -> Any:
    if isinstance(component, (np.ndarray, np.generic, bytes)):
        return component
    return np.array(component, np.float32)[()]


def dtypes(components: Any) -> list[str]:
    return ["string" if isinstance(arrays(c), bytes) else str(arrays(c).dtype) for c in components]


def plain(components: tuple[Any, ...]) -> Any:
    """Lists and numbers instead of arrays; the component itself when there is one."""
    values = [value if isinstance(value, bytes) else value.tolist() for value in components]
    return values[0] if len(values) == 1 else values


@pytest.fixture
def ops() -> Queues:
    return Queues()


async def started(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that has run as far as it can."""
    task = asyncio.ensure_future(coroutine)
    await settle()
    return task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_first_in_first_out(ops: Queues) -> None:
    queue = ops.make()
    await ops.enqueue(queue, 1)
    await ops.enqueue_many(queue, [2, 3])
    assert ops.size(queue) == 3
    assert [await ops.dequeue(queue) for _ in range(3)] == [1, 2, 3]


async def test_what_can_go_at_once_never_suspends(ops: Queues) -> None:
    queue = ops.make()
    for coroutine in (ops.enqueue(queue, 1), ops.dequeue(queue), ops.close(queue)):
        with pytest.raises(StopIteration):
            coroutine.send(None)


async def test_scalars_stay_scalars(ops: Queues) -> None:
    queue = ops.make()
    await ops.enqueue_many(queue, [1])
    (value,) = await ops.run("QueueDequeueV2", queue, component_types=["float32"])
    assert type(value) is np.float32


async def test_queue_keeps_no_array_that_somebody_can_write_to(ops: Queues) -> None:
    queue, value = ops.make(shapes=[[2]]), np.float32([1, 2])
    await ops.enqueue(queue, value)
    value[0] = 99
    assert await ops.dequeue(queue) == [1, 2]


async def test_dequeues_wait_in_line(ops: Queues) -> None:
    queue = ops.make()
    first, second = await started(ops.dequeue(queue)), await started(ops.dequeue(queue))
    assert not first.done()
    await ops.enqueue_many(queue, [1, 2])
    assert [await first, await second] == [1, 2]


async def test_capacity_holds_enqueues_back(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    await ops.enqueue(queue, 1)
    many, last = await started(ops.enqueue_many(queue, [2, 3])), await started(ops.enqueue(queue, 4))
    assert (ops.size(queue), many.done(), last.done()) == (1, False, False)
    assert await ops.dequeue(queue) == 1
    await settle()
    assert not many.done()
    assert [await ops.dequeue(queue) for _ in range(3)] == [2, 3, 4]
    await asyncio.gather(many, last)


async def test_dequeue_many_may_be_larger_than_the_capacity(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    batch = await started(ops.dequeue_many(queue, 3))
    await ops.enqueue_many(queue, [1, 2, 3])
    assert await batch == [1, 2, 3]


async def test_dequeue_many_takes_elements_as_they_come(ops: Queues) -> None:
    queue = ops.make()
    batch, single = await started(ops.dequeue_many(queue, 2)), await started(ops.dequeue(queue))
    await ops.enqueue(queue, 1)
    assert (ops.size(queue), single.done()) == (0, False)
    await ops.enqueue_many(queue, [2, 3])
    assert (await batch, await single) == ([1, 2], 3)


async def test_dequeue_up_to_waits_for_all_while_the_queue_is_open(ops: Queues) -> None:
    queue = ops.make()
    batch = await started(ops.dequeue_up_to(queue, 3))
    await ops.enqueue_many(queue, [1, 2])
    await settle()
    assert not batch.done()
    await ops.close(queue)
    assert await batch == [1, 2]
    with pytest.raises(OutOfRangeError, match=r"requested 3, current size 0"):
        await ops.dequeue_up_to(queue, 3)


async def test_closed_queue_gives_what_it_has(ops: Queues) -> None:
    queue = ops.make()
    await ops.enqueue(queue, 1)
    await ops.close(queue)
    assert ops.run("QueueIsClosedV2", queue) == np.True_
    assert await ops.dequeue(queue) == 1
    message = r"^FIFOQueue '_0_q' is closed and has insufficient elements \(requested 1, current size 0\)$"
    with pytest.raises(OutOfRangeError, match=message):
        await ops.dequeue(queue)
    with pytest.raises(CancelledError, match=r"^FIFOQueue '_0_q' is closed.$"):
        await ops.enqueue(queue, 1)
    with pytest.raises(CancelledError, match=r"^Queue '_0_q' is already closed.$"):
        await ops.close(queue)
    await ops.close(queue, cancel=True)


async def test_closing_fails_the_dequeues_that_wait(ops: Queues) -> None:
    queue = ops.make()
    waiting = await started(ops.dequeue(queue))
    await ops.close(queue)
    with pytest.raises(OutOfRangeError):
        await waiting


async def test_short_batch_is_given_back_when_the_queue_closes(ops: Queues) -> None:
    queue = ops.make()
    batch = await started(ops.dequeue_many(queue, 3))
    await ops.enqueue_many(queue, [1, 2])
    await ops.close(queue)
    with pytest.raises(OutOfRangeError):
        await batch
    assert [await ops.dequeue(queue), await ops.dequeue(queue)] == [1, 2]


async def test_close_waits_for_the_enqueues_before_it(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    await ops.enqueue(queue, 1)
    pending = await started(ops.enqueue(queue, 2))
    closing, late = await started(ops.close(queue)), await started(ops.enqueue(queue, 3))
    assert not closing.done()
    assert [await ops.dequeue(queue), await ops.dequeue(queue)] == [1, 2]
    await asyncio.gather(pending, closing)
    with pytest.raises(CancelledError):
        await late


async def test_close_can_cancel_the_enqueues_before_it(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    await ops.enqueue(queue, 1)
    pending = await started(ops.enqueue(queue, 2))
    await ops.close(queue, cancel=True)
    with pytest.raises(CancelledError, match=r"^Enqueue operation was cancelled$"):
        await pending
    assert await ops.dequeue(queue) == 1


async def test_closing_the_session_closes_its_queues(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    waiting = await started(ops.dequeue(queue))
    ops.resource_mgr.close()
    with pytest.raises(OutOfRangeError):
        await waiting


async def test_cancelled_dequeue_eats_nothing(ops: Queues) -> None:
    queue = ops.make()
    first, second = await started(ops.dequeue(queue)), await started(ops.dequeue(queue))
    await cancel(first)
    await ops.enqueue(queue, 1)
    assert await second == 1


async def test_dequeue_cancelled_in_the_moment_it_is_served_gives_back(ops: Queues) -> None:
    queue = ops.make()
    first = await started(ops.dequeue(queue))
    await ops.enqueue_many(queue, [1, 2])
    await cancel(first)
    assert [await ops.dequeue(queue), await ops.dequeue(queue)] == [1, 2]


async def test_element_given_back_serves_the_next_in_line(ops: Queues) -> None:
    queue = ops.make()
    first, second = await started(ops.dequeue(queue)), await started(ops.dequeue(queue))
    await ops.enqueue(queue, 1)
    await cancel(first)
    assert await second == 1


async def test_waiter_cancelled_but_not_yet_run_is_passed_over(ops: Queues) -> None:
    queue = ops.make()
    first, second = await started(ops.dequeue(queue)), await started(ops.dequeue(queue))
    first.cancel()
    await ops.enqueue(queue, 1)
    assert await second == 1
    assert first.cancelled()


async def test_cancelled_batch_gives_back_what_it_took(ops: Queues) -> None:
    queue = ops.make()
    batch, single = await started(ops.dequeue_many(queue, 3)), await started(ops.dequeue(queue))
    await ops.enqueue_many(queue, [1, 2])
    await cancel(batch)
    assert await single == 1
    assert await ops.dequeue(queue) == 2


async def test_cancelled_enqueue_lets_the_next_go(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    await ops.enqueue(queue, 1)
    first, second = await started(ops.enqueue(queue, 2)), await started(ops.enqueue(queue, 3))
    await cancel(first)
    assert [await ops.dequeue(queue), await ops.dequeue(queue)] == [1, 3]
    await second


async def test_cancelled_enqueue_many_leaves_what_went_in(ops: Queues) -> None:
    queue = ops.make(capacity=1)
    many = await started(ops.enqueue_many(queue, [1, 2]))
    await cancel(many)
    assert await ops.dequeue(queue) == 1
    assert ops.size(queue) == 0


async def test_producers_and_consumers_lose_and_double_nothing(ops: Queues) -> None:
    queue, seen = ops.make(capacity=2), []

    async def consume() -> None:
        while True:
            seen.append(await ops.dequeue(queue))

    consumers = [asyncio.ensure_future(consume()) for _ in range(4)]
    producers = [ops.enqueue_many(queue, list(range(start, start + 10))) for start in (0, 10, 20)]
    produced = asyncio.gather(*producers)
    while not produced.done():
        consumers.pop(0).cancel()
        consumers.append(asyncio.ensure_future(consume()))
        await asyncio.sleep(0)
    await ops.close(queue)
    outcomes = await asyncio.gather(*consumers, return_exceptions=True)
    assert all(isinstance(outcome, OutOfRangeError) for outcome in outcomes)
    assert sorted(seen) == list(range(30))


async def test_components_are_checked(ops: Queues) -> None:
    queue = ops.make(component_types=["float32", "int32"], shapes=[[2], []])
    with pytest.raises(InvalidArgumentError, match=r"tuple component 0. Expected \[2\], got \[1\]"):
        await ops.enqueue(queue, [1], np.int32(1))
    with pytest.raises(InvalidArgumentError, match=r"tuple component 1. Expected \[2\], got \[3\]"):
        await ops.enqueue_many(queue, [[1, 2], [3, 4]], np.int32([1, 2, 3]))
    with pytest.raises(InvalidArgumentError, match="Signature mismatch"):
        await ops.enqueue(queue, [1, 2])
    with pytest.raises(InvalidArgumentError, match="Signature mismatch"):
        await ops.run("QueueDequeueV2", queue, component_types=["int32"])
    await ops.enqueue_many(queue, [[1, 2], [3, 4]], np.int32([5, 6]))
    assert await ops.dequeue_many(queue, 2) == [[[1, 2], [3, 4]], [5, 6]]


@pytest.mark.parametrize("component", [1, [[1]]])
async def test_enqueue_many_needs_rows_of_the_shape(ops: Queues, component: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="Shape mismatch in tuple component 0"):
        await ops.enqueue_many(ops.make(), component)


async def test_batches_need_shapes_and_a_size(ops: Queues) -> None:
    with pytest.raises(InvalidArgumentError, match="require the components to have specified shapes"):
        await ops.dequeue_many(ops.make(name="free", shapes=[]), 1)
    with pytest.raises(InvalidArgumentError, match="requested -1 < 0 elements"):
        await ops.dequeue_many(ops.make(), -1)
    with pytest.raises(InvalidArgumentError):
        await ops.dequeue_many(ops.make(), [1])
    assert await ops.dequeue_many(ops.make(), 0) == []


async def test_without_shapes_elements_may_differ(ops: Queues) -> None:
    queue = ops.make(shapes=[])
    await ops.enqueue(queue, 1)
    await ops.enqueue(queue, [1, 2])
    assert [await ops.dequeue(queue), await ops.dequeue(queue)] == [1, [1, 2]]


def test_nodes_of_one_shared_name_share_a_queue(ops: Queues) -> None:
    queue = ops.make(shared_name="s", capacity=3)
    assert ops.make(name="other", shared_name="s", capacity=3) is queue
    assert queue.name == "s"
    assert ops.make(name="s") is not queue
    mismatches: list[dict[str, Any]] = [{"capacity": 4}, {"component_types": ["int32"]}, {"shapes": [[1]]}]
    for mismatch in mismatches:
        with pytest.raises(InvalidArgumentError, match="Shared queue 's' has"):
            ops.make(**({"shared_name": "s", "capacity": 3} | mismatch))
    with pytest.raises(InvalidArgumentError, match="Expected FIFOQueue, found RandomShuffleQueue"):
        ops.make("RandomShuffleQueueV2", shared_name="s", capacity=3)


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("FIFOQueueV2", {"component_types": ["float32", "int32"]}),
        ("FIFOQueueV2", {"shapes": [[None]]}),
        ("PaddingFIFOQueueV2", {"shapes": []}),
        ("RandomShuffleQueueV2", {"min_after_dequeue": 5, "capacity": 4}),
        ("RandomShuffleQueueV2", {"min_after_dequeue": -1}),
    ],
)
def test_bad_queues(ops: Queues, kind: str, attrs: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        ops.make(kind, **attrs)


def test_timeouts_are_refused(ops: Queues) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Timeout not supported yet."):
        ops.kernel("QueueDequeueV2", component_types=["float32"], timeout_ms=5)


async def test_padding_queue_pads_to_the_largest(ops: Queues) -> None:
    queue = ops.make("PaddingFIFOQueueV2", shapes=[[None, 2]])
    for value in ([[1, 2]], np.zeros((0, 2), np.float32), [[1, 2], [3, 4]]):
        await ops.enqueue(queue, value)
    with pytest.raises(InvalidArgumentError, match=r"Expected \[\?,2\], got \[1\]"):
        await ops.enqueue(queue, [1])
    assert await ops.dequeue_many(queue, 3) == [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[1, 2], [3, 4]]]
    (empty,) = await ops.run("QueueDequeueManyV2", queue, np.int32(0), component_types=["float32"])
    assert empty.shape == (0, 0, 2)


async def test_padding_of_strings_is_empty_strings(ops: Queues) -> None:
    queue = ops.make("PaddingFIFOQueueV2", component_types=["string"], shapes=[[None]])
    for row in ([b"a"], [b"b", b"c"]):
        await ops.run("QueueEnqueueV2", queue, np.array(row, object), Tcomponents=["string"])
    assert await ops.dequeue_many(queue, 2) == [[b"a", b""], [b"b", b"c"]]


async def test_priority_queue_gives_the_smallest_first(ops: Queues) -> None:
    queue = ops.make("PriorityQueueV2", component_types=["string"], shapes=[[]])
    for priority, value in ((5, b"five"), (3, b"3a"), (9, b"nine"), (3, b"3b")):
        await ops.enqueue(queue, np.int64(priority), value)
    assert await ops.dequeue_many(queue, 2) == [[3, 3], [b"3a", b"3b"]]
    batch = await started(ops.dequeue_many(queue, 3))
    await cancel(batch)
    assert await ops.dequeue(queue) == [5, b"five"]
    with pytest.raises(InvalidArgumentError, match=r"component 0. Expected \[\], got \[1\]"):
        await ops.enqueue(queue, np.int64([1]), b"x")


async def test_shuffle_queue_keeps_some_back_until_it_is_closed(ops: Queues) -> None:
    queue = ops.make("RandomShuffleQueueV2", min_after_dequeue=2, seed=3, seed2=4)
    await ops.enqueue_many(queue, list(range(10)))
    first = await ops.dequeue_many(queue, 8)
    waiting = await started(ops.dequeue(queue))
    assert not waiting.done()
    await ops.close(queue)
    rest = [await waiting, await ops.dequeue(queue)]
    assert sorted(first + rest) == list(range(10))
    assert first + rest != list(range(10))
    with pytest.raises(OutOfRangeError, match="RandomShuffleQueue '_0_q' is closed"):
        await ops.dequeue(queue)


async def test_shuffle_is_repeatable_by_seed() -> None:
    async def order(seed: int) -> Any:
        ops = Queues()
        queue = ops.make("RandomShuffleQueueV2", seed=seed)
        await ops.enqueue_many(queue, list(range(20)))
        return await ops.dequeue_many(queue, 20)

    assert await order(1) == await order(1)
    assert await order(1) != await order(2)


async def test_first_version_takes_the_queue_as_a_reference(ops: Queues) -> None:
    queue = ops.make("FIFOQueue")
    await ops.run("QueueEnqueue", queue, np.float32(1), Tcomponents=["float32"])
    assert ops.run("QueueSize", queue) == 1
    assert plain(await ops.run("QueueDequeue", queue, component_types=["float32"])) == 1


def test_static_shapes() -> None:
    assert infer("FIFOQueue", component_types=["float32"]) == [[2]]
    assert infer("FIFOQueueV2", component_types=["float32"]) == [[]]
    assert infer("QueueSizeV2", []) == [[]]
    assert infer("QueueDequeueV2", [], component_types=["float32", "int32"]) == [None, None]
    with pytest.raises(InvalidArgumentError, match="must be >= 0"):
        infer("QueueDequeueManyV2", [], [], values=[None, np.int32(-1)], component_types=["float32"])


@pytest.mark.parametrize(("op", "attrs"), [("FIFOQueue", {"component_types": (ax.int32,)}), ("IdentityReader", {})])
async def test_a_handle_has_no_value(op: str, attrs: dict[str, Any]) -> None:
    with ax.Graph() as graph:
        handle = ax.create_op(op, [], attrs)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=f"'{op}:0' is a handle"):
            await session.run(handle)
