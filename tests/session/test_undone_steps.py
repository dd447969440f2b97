"""What a step that is cancelled gives back to queues, and what is used: by a failure, by a loop, by who has it now."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import settle
from tests.session.injection import at_every_point, cancelled_before
from tests.session.taker_cases import Shop, work


async def cancelled(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    assert call.cancelled()


class Stop:
    """An op that never ends by itself.

    Attributes:
        has_begun: set when it has.
    """

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()

        @ax.op(outputs=[ax.int64], shapes=[None])
        async def stop(value: Any) -> Any:
            self.has_begun.set()
            await asyncio.get_running_loop().create_future()

        self.op = stop

    async def reached_by(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of *call*, that has come to it."""
        task = asyncio.ensure_future(call)
        await self.has_begun.wait()
        self.has_begun.clear()
        return task


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until it is true."""
    for _ in range(10_000):
        if await condition():
            return
        await settle(1)
    raise AssertionError("it was never true")


@ax.op(outputs=[ax.int64], shapes=[None])
async def fail(value: Any) -> Any:
    await settle(3)
    raise ValueError(f"{value} is bad")


def is_empty(session: ax.Session, name: str = "queue") -> Callable[[], Awaitable[object]]:
    async def look() -> bool:
        return not await session.run(f"{name}_size:0")

    return look


async def fill(shop: Shop, session: ax.Session, *numbers: int, name: str = "queue") -> None:
    for number in numbers:
        await shop.put(session, number, name)


async def test_a_step_gives_back_what_it_works_on() -> None:
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        result = stop.op(shop.queues["queue"].dequeue_many(2))
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2, 3)
        await cancelled(await stop.reached_by(session.run(result)))
        assert await shop.left(session) == [1, 2, 3]


async def test_a_step_whose_node_fails_has_used_what_it_took() -> None:
    """As in TensorFlow: else what makes steps fail would come again and again."""
    shop = Shop("queue")
    with shop.graph:
        result = fail(shop.queues["queue"].dequeue())
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2)
        with pytest.raises(ax.errors.InvalidArgumentError, match="1 is bad"):
            await session.run(result)
        assert await shop.left(session) == [2]


async def test_a_dequeue_that_waits_when_its_step_fails_takes_nothing() -> None:
    shop = Shop("queue")
    with shop.graph:
        fetches = [fail(ax.constant(0, ax.int64)), shop.queues["queue"].dequeue_many(2)]
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1)
        with pytest.raises(ax.errors.InvalidArgumentError, match="0 is bad"):
            await session.run(fetches)
        assert await shop.left(session) == [1]


async def test_a_step_that_is_cancelled_while_it_fails_gives_back() -> None:
    """Its caller gets no error of a node: nobody knows what was used."""

    has_failed = asyncio.Event()

    @ax.op(outputs=[ax.int64])
    async def clean_up(value: Any) -> Any:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            has_failed.set()
            await settle(10)

    shop = Shop("queue")
    with shop.graph:
        fetches = [fail(shop.queues["queue"].dequeue()), clean_up(ax.constant(0))]
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2)
        call = asyncio.ensure_future(session.run(fetches))
        await has_failed.wait()
        await cancelled(call)
        assert await shop.left(session) == [1, 2]


async def test_elements_of_several_steps_go_back_in_their_order() -> None:
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        result = stop.op(shop.queues["queue"].dequeue())
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2, 3, 4)
        calls = [await stop.reached_by(session.run(result)) for _ in range(3)]
        for number in (1, 0, 2):
            await cancelled(calls[number])
        assert await shop.left(session) == [1, 2, 3, 4]


async def test_what_goes_back_is_for_those_who_wait() -> None:
    """One that waits for two, and has the second element already, gets both in their order."""
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        result, pair = stop.op(shop.queues["queue"].dequeue()), shop.queues["queue"].dequeue_many(2)
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1)
        first = await stop.reached_by(session.run(result))
        second = asyncio.ensure_future(session.run(pair))
        await fill(shop, session, 2)
        await until(is_empty(session))
        await cancelled(first)
        assert (await second).tolist() == [1, 2]


async def test_all_that_a_step_has_taken_goes_back_before_those_who_wait_take_it() -> None:
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        queue = shop.queues["queue"]
        first = queue.dequeue()
        with ax.control_dependencies([first]):
            result = stop.op(first + queue.dequeue())
        one = queue.dequeue()
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2)
        call = await stop.reached_by(session.run(result))
        waiting = [asyncio.ensure_future(session.run(one)) for _ in range(2)]
        await settle(10)
        await cancelled(call)
        assert await asyncio.gather(*waiting) == [1, 2]


async def test_an_iteration_that_has_ended_has_used_what_it_took() -> None:
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        queue = shop.queues["queue"]
        done = ax.while_loop(
            lambda i: i < 100,
            lambda i: ax.cond(i < 3, lambda: work(queue.dequeue()), lambda: stop.op(i)),
            [ax.constant(0, ax.int64)],
        )
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2, 3, 4)
        await cancelled(await stop.reached_by(session.run(done)))
        assert await shop.left(session) == [4]


async def test_a_loop_keeps_little_of_iterations_that_have_ended() -> None:
    class Element:
        pass

    @ax.op(outputs=[ax.int64])
    async def use(element: Any) -> Any:
        await settle(1)
        return 1

    with ax.Graph() as graph:
        queue, element = ax.FIFOQueue(10, [ax.object], [[]]), ax.placeholder(ax.object, [])
        put = queue.enqueue(element)
        total = ax.while_loop(lambda i: i < 100, lambda i: i + use(queue.dequeue()), [ax.constant(0, ax.int64)])
    async with ax.Session(graph) as session:
        call = asyncio.ensure_future(session.run(total))
        elements: list[weakref.ref[Element]] = []
        for _ in range(80):
            made = Element()
            elements.append(weakref.ref(made))
            await session.run(put, {element: made})
            del made

        async def are_free() -> bool:
            return sum(element() is not None for element in elements) <= 20

        await until(are_free)
        await cancelled(call)


async def test_the_iteration_under_way_gives_back() -> None:
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        queue = shop.queues["queue"]
        done = ax.while_loop(
            lambda i: i < 100,
            lambda i: ax.cond(i < 2, lambda: queue.dequeue(), lambda: stop.op(queue.dequeue())),
            [ax.constant(0, ax.int64)],
        )
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2, 3, 4)
        await cancelled(await stop.reached_by(session.run(done)))
        assert await shop.left(session) == [3, 4]


async def test_what_was_put_stays() -> None:
    shop, stop = Shop("queue", "other"), Stop()
    with shop.graph:
        put = shop.queues["other"].enqueue(ax.constant(7, ax.int64))
        with ax.control_dependencies([put]):
            result = stop.op(shop.queues["queue"].dequeue())
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1)
        await cancelled(await stop.reached_by(session.run(result)))
        assert await shop.left(session) == [1, 7]


@pytest.mark.parametrize("is_taken", [False, True])
async def test_what_was_moved_goes_back_unless_somebody_has_it(is_taken: bool) -> None:
    shop, stop = Shop("queue", "other"), Stop()
    with shop.graph:
        other, moved = shop.queues["other"], shop.queues["queue"].dequeue() + 10
        with ax.control_dependencies([other.enqueue(moved)]):
            result = stop.op(ax.constant(0, ax.int64))
        taken = other.dequeue()
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2)
        call = await stop.reached_by(session.run(result))
        if is_taken:
            assert await session.run(taken) == 11
        await cancelled(call)
        assert await shop.left(session) == ([2] if is_taken else [1, 2])


async def test_a_move_that_waits_for_room_goes_back_whole() -> None:
    shop = Shop("queue")
    with shop.graph:
        small = ax.FIFOQueue(2, [ax.int64], [[]])
        move = small.enqueue_many(shop.queues["queue"].dequeue_many(4))
        size = small.size()
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2, 3, 4, 5)
        call = asyncio.ensure_future(session.run(move))

        async def is_full() -> object:
            return await session.run(size) == 2

        await until(is_full)
        await cancelled(call)
        assert await session.run(size) == 0
        assert await shop.left(session) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_taken", [False, True])
async def test_what_a_loop_has_moved_goes_back_unless_somebody_has_it(is_taken: bool) -> None:
    shop, stop = Shop("queue", "other"), Stop()
    with shop.graph:
        other, batch = shop.queues["other"], shop.queues["queue"].dequeue_many(50)

        def move(i: Any) -> Any:
            with ax.control_dependencies([other.enqueue(batch[i])]):
                return ax.cond(i < 40, lambda: ax.identity(i), lambda: stop.op(i)) + 1

        done = ax.while_loop(lambda i: i < 50, move, [ax.constant(0, ax.int64)])
        taken = other.dequeue()
    async with ax.Session(shop.graph) as session:
        call = asyncio.ensure_future(session.run(done))
        await fill(shop, session, *range(50), 100)
        if is_taken:
            assert await session.run(taken) == 0
        await stop.has_begun.wait()
        await cancelled(call)
        assert await shop.left(session) == ([100, *range(1, 41)] if is_taken else [*range(50), 100])


async def test_moves_between_devices_go_back() -> None:
    shop, stop = Shop("queue", "other"), Stop()
    with shop.graph:
        moved = shop.queues["queue"].dequeue()
        with ax.device("/cpu:1"):
            there = moved + 0
        with ax.control_dependencies([shop.queues["other"].enqueue(there)]):
            result = stop.op(ax.constant(0, ax.int64))
    async with ax.Session(shop.graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        await fill(shop, session, 1, 2)
        await cancelled(await stop.reached_by(session.run(result)))
        assert await shop.left(session) == [1, 2]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_stream_that_is_left_gives_back_what_nobody_has_taken(ordered: bool) -> None:
    shop = Shop("queue")
    with shop.graph:
        x = ax.placeholder(ax.int64, [])
        taken = work(shop.queues["queue"].dequeue()) + 0 * x
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, *range(6))
        async with session.map(taken, [{x: i} for i in range(5)], ordered=ordered) as outputs:
            found = [int(await anext(outputs)) for _ in range(2)]
            await settle(20)
        assert sorted([*found, *await shop.left(session)]) == list(range(6))


async def test_items_behind_one_that_fails_give_back() -> None:
    """The one that fails has used its element, and those whose results were taken theirs."""

    @ax.op(outputs=[ax.int64])
    async def check(value: int) -> int:
        if value == 2:
            await settle(20)
            raise ValueError("bad")
        return value

    shop = Shop("queue")
    with shop.graph:
        x = ax.placeholder(ax.int64, [])
        taken = check(shop.queues["queue"].dequeue()) + 0 * x
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, *range(6))
        found = list[int]()

        async def take_all() -> None:
            async for out in session.map(taken, [{x: i} for i in range(5)]):
                found.append(int(out))

        with pytest.raises(ax.errors.InvalidArgumentError, match="bad"):
            await take_all()
        assert (found, await shop.left(session)) == ([0, 1], [3, 4, 5])


@pytest.mark.parametrize("device", ["", "/cpu:1"])
async def test_a_partial_run_gives_back_what_was_not_fetched(device: str) -> None:
    """On several devices, all that was there when something was fetched counts as used."""
    shop = Shop("queue", "other")
    with shop.graph:
        first, second = shop.queues["queue"].dequeue() + 0, shop.queues["other"].dequeue() + 0
        with ax.device(device):
            fetches = [first + 0, second + 0]
    async with ax.Session(shop.graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        await fill(shop, session, 1)
        await fill(shop, session, 2, name="other")
        async with session.partial_run(fetches) as step:
            await until(is_empty(session, "other"))
            assert await step.fetch(fetches[0]) == 1
        assert await shop.left(session) == ([] if device else [2])
        await fill(shop, session, 1)
        await fill(shop, session, 2, name="other")
        async with session.partial_run(fetches):
            await until(is_empty(session, "other"))
        assert await shop.left(session) == [1, 2]


async def test_a_deadline_gives_back() -> None:
    shop, stop = Shop("queue"), Stop()
    with shop.graph:
        result = stop.op(shop.queues["queue"].dequeue())
    async with ax.Session(shop.graph) as session:
        await fill(shop, session, 1, 2)
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(result, options=ax.RunOptions(timeout=0.01))
        assert await shop.left(session) == [1, 2]


@pytest.mark.parametrize("many", [1, 3])
async def test_elements_of_a_run_that_is_cancelled_while_it_puts_them(many: int) -> None:
    """Of one whose run did not return, the first elements are there, maybe none or all of them, and each once."""
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(2, [ax.int64], [[]])
        numbers = ax.placeholder(ax.int64, [None])
        put, one, size = queue.enqueue_many(numbers), queue.dequeue(), queue.size()
        close = queue.close()

    async def check(point: int) -> bool:
        async with ax.Session(graph) as session:
            returned: list[int] = []

            async def put_all() -> None:
                for start in range(0, 6, many):
                    await session.run(put, {numbers: np.arange(start, start + many)})
                    returned.extend(range(start, start + many))

            async def take_all() -> list[int]:
                found: list[int] = []
                with contextlib.suppress(ax.errors.OutOfRangeError):
                    while True:
                        found.append(int(await session.run(one)))
                return found

            assert await session.run(size) == 0
            taking = asyncio.ensure_future(take_all())
            was_cancelled, _ = await cancelled_before(point, put_all)
            await session.run(put, {numbers: [100]})
            await session.run(close)
            *found, last = await taking
            assert last == 100, point
            assert found == list(range(len(found))), point
            assert len(returned) <= len(found) <= len(returned) + many, point
            return was_cancelled

    await at_every_point(check)


async def test_a_run_whose_cancelled_enqueue_had_got_room_lets_the_next_go() -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(1, [ax.int64], [[]])
        number = ax.placeholder(ax.int64, [])
        put, one, size = queue.enqueue(number), queue.dequeue(), queue.size()

    async def check(point: int) -> bool:
        async with ax.Session(graph) as session:
            await session.run(put, {number: 0})

            async def make_room() -> int:
                await settle(3)
                return int(await session.run(one))

            making = asyncio.ensure_future(make_room())
            ending = asyncio.ensure_future(cancelled_before(point, lambda: session.run(put, {number: 1})))
            await settle(1)
            behind = asyncio.ensure_future(session.run(put, {number: 2}))
            was_cancelled, _ = await ending
            assert await making == 0
            found = [int(await session.run(one))]
            if found == [1]:
                found.append(int(await session.run(one)))
            await behind
            assert found == [1, 2] or (was_cancelled and found == [2]), point
            assert await session.run(size) == 0
            return was_cancelled

    await at_every_point(check)
