"""Graphs that take elements from queues, in every way that a session runs them: what sweeps of cancellation run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

import asyncexec as ax
from tests.running import settle

TIMEOUT_S: Final = 3600.0  # never over by itself: the deadline is there to be moved to now

QUEUES: Final[Mapping[str, Callable[[str], Any]]] = {
    "fifo": lambda name: ax.FIFOQueue(-1, [ax.int64], [[]], name=name),
    "padding": lambda name: ax.PaddingFIFOQueue(10, [ax.int64], [[]], name=name),
    "priority": lambda name: ax.PriorityQueue(10, [ax.int64], [[]], name=name),
    "shuffle": lambda name: ax.RandomShuffleQueue(10, 0, [ax.int64], [[]], seed=1, name=name),
}
OPS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "dequeue": lambda queue: queue.dequeue(),
    "dequeue_many": lambda queue: queue.dequeue_many(2),
    "dequeue_up_to": lambda queue: queue.dequeue_up_to(2),
}


@ax.op(outputs=[ax.int64], shapes=[None])
async def work(value: Any) -> Any:
    """Takes some turns of the loop."""
    await settle(2)
    return value


@ax.op(outputs=[ax.int64], shapes=[None], expensive=True)
def compute(value: Any) -> Any:
    """Takes a worker thread."""
    return value


class Shop:
    """A graph with queues.

    Attributes:
        queues: by name.
    """

    def __init__(self, *names: str, kind: str = "fifo") -> None:
        self.graph = ax.Graph()
        self._names = names
        with self.graph:
            self.queues = {name: QUEUES[kind](name) for name in names}
            for name, queue in self.queues.items():
                number = ax.placeholder(ax.int64, [], name=f"{name}_number")
                queue.enqueue([number, number] if kind == "priority" else number, name=f"{name}_put")
                queue.size(name=f"{name}_size")
                ax.identity(last_component(queue.dequeue()), name=f"{name}_one")

    async def put(self, session: ax.Session, number: int, name: str | None = None) -> None:
        """Put *number* into a queue: the one that it is the turn of."""
        name = name or self._names[number % len(self._names)]
        await session.run(f"{name}_put", {f"{name}_number:0": number})

    async def left(self, session: ax.Session) -> list[int]:
        """Take all that is in the queues."""
        found: list[int] = []
        for name in self._names:
            for _ in range(int(await session.run(f"{name}_size:0"))):
                found.append(int(await session.run(f"{name}_one:0")))
        return found


def last_component(taken: Any) -> Any:
    """Of an element of a PriorityQueue, what is not the priority."""
    return taken[-1] if isinstance(taken, list) else taken


def numbers(result: Any) -> list[int]:
    """The numbers in what a run gave."""
    return [int(number) for number in np.ravel(result)]


Got: TypeAlias = list[int]
Take: TypeAlias = Callable[[ax.Session, Got], Awaitable[None]]


def running(fetches: Any, feeds: Any = None, **options: Any) -> Take:
    """One run of the session."""

    async def take(session: ax.Session, got: Got) -> None:
        got += numbers(await session.run(fetches, feeds, **options))

    return take


@dataclass
class Taker:
    """What takes numbers from a shop.

    Attributes:
        take: what is to be cancelled; adds to a list what it gets, as soon as it does.
        is_ordered: whether numbers come in the order in which they were put in.
    """

    shop: Shop
    take: Take
    is_ordered: bool = True

    @property
    def config(self) -> ax.SessionConfig:
        return ax.SessionConfig(timeout=TIMEOUT_S, device_count={"CPU": 2})


Make: TypeAlias = Callable[[], Taker]


def of_kind(kind: str, op: str) -> Taker:
    shop = Shop("queue", kind=kind)
    with shop.graph:
        taken = last_component(OPS[op](shop.queues["queue"]))
    return Taker(shop, running(taken), kind != "shuffle")


def _then(what: Callable[[Any], Any]) -> Taker:
    """An element is taken, and goes through *what*."""
    shop = Shop("queue")
    with shop.graph:
        taken = what(shop.queues["queue"].dequeue())
    return Taker(shop, running(taken))


def then_inline() -> Taker:
    return _then(lambda taken: taken * 2 // 2)


def then_async() -> Taker:
    return _then(work)


def then_on_a_thread() -> Taker:
    return _then(compute)


def then_on_another_device() -> Taker:
    def there(taken: Any) -> Any:
        with ax.device("/cpu:1"):
            return work(taken + 0)

    return _then(there)


def in_a_branch() -> Taker:
    shop = Shop("queue")
    with shop.graph:
        pred = ax.placeholder(ax.bool, [])
        taken = ax.cond(pred, lambda: shop.queues["queue"].dequeue(), lambda: ax.constant(-1, ax.int64))
    return Taker(shop, running(taken, {pred: True}))


def in_the_first_round_of_a_loop() -> Taker:
    shop = Shop("queue")
    with shop.graph:
        rounds = [ax.constant(0), ax.constant(-1, ax.int64)]
        _, taken = ax.while_loop(lambda i, _: i < 1, lambda i, _: [i + 1, work(shop.queues["queue"].dequeue())], rounds)
    return Taker(shop, running(taken))


def from_two_queues() -> Taker:
    shop = Shop("even", "odd")
    with shop.graph:
        taken = [work(shop.queues["even"].dequeue()), shop.queues["odd"].dequeue()]
    return Taker(shop, running(taken))


def by_a_callable() -> Taker:
    shop = Shop("queue")
    with shop.graph:
        taken = shop.queues["queue"].dequeue()

    async def take(session: ax.Session, got: Got) -> None:
        got += numbers(await session.make_callable(taken)())

    return Taker(shop, take)


def with_metadata() -> Taker:
    """What is put together after the step takes turns of its own."""
    shop = Shop("queue")
    with shop.graph:
        taken = shop.queues["queue"].dequeue()
    options = ax.RunOptions(trace=True, output_partition_graphs=True)
    return Taker(shop, running(taken, options=options, metadata=ax.RunMetadata()))


def by_a_partial_run() -> Taker:
    shop = Shop("queue")
    with shop.graph:
        taken = shop.queues["queue"].dequeue()
        fetches = [taken, ax.add(taken, ax.placeholder(ax.int64, [], name="more"))]

    async def take(session: ax.Session, got: Got) -> None:
        async with session.partial_run(fetches, ["more:0"]) as step:
            got += numbers(await step.fetch(taken))

    return Taker(shop, take)


def by_a_map() -> Taker:
    """One result is taken, of three items that take elements."""
    shop = Shop("queue")
    with shop.graph:
        x = ax.placeholder(ax.int64, [])
        taken = shop.queues["queue"].dequeue() + 0 * x

    async def take(session: ax.Session, got: Got) -> None:
        async with session.map(taken, [{x: i} for i in range(3)]) as outputs:
            got += numbers(await anext(outputs))

    return Taker(shop, take)


def by_a_stream() -> Taker:
    shop = Shop("queue")
    with shop.graph:
        x = ax.placeholder(ax.int64, [])
        taken = work(shop.queues["queue"].dequeue()) + 0 * x

    async def take(session: ax.Session, got: Got) -> None:
        async with session.stream(taken, ordered=False) as stream:
            for i in range(3):
                await stream.send({x: i})
            got += numbers(await anext(aiter(stream)))

    return Taker(shop, take)


def moved() -> Taker:
    """From one queue to another, where it is left; the other one has room."""
    shop = Shop("queue", "other")
    with shop.graph:
        move = shop.queues["other"].enqueue(work(shop.queues["queue"].dequeue()))

    async def take(session: ax.Session, got: Got) -> None:
        await session.run(move)

    return Taker(shop, take, is_ordered=False)


SHAPES: Final[tuple[Make, ...]] = (
    then_inline,
    then_async,
    then_on_another_device,
    in_a_branch,
    in_the_first_round_of_a_loop,
    from_two_queues,
    by_a_callable,
    with_metadata,
    by_a_partial_run,
    by_a_map,
    by_a_stream,
    moved,
    then_on_a_thread,
)
WITHOUT_DEADLINE: Final = (by_a_partial_run, by_a_map, by_a_stream)
