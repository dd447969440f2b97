"""A run of a session from inside a kernel of it: it works, or says why not; it never waits for ever.

Kernels run the graph that they are in from the loop and from worker threads, and where there is room for one step.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax

PRECONDITION = ax.errors.FailedPreconditionError
CONFIGS = {
    "plain": ax.SessionConfig(),
    "one step": ax.SessionConfig(max_concurrent_steps=1),
    "no line": ax.SessionConfig(max_concurrent_steps=1, max_queued_steps=0, drain_timeout_s=None),
    "one thread": ax.SessionConfig(num_worker_threads=1),
    "rendezvous": ax.SessionConfig(feed_fetch_medium="rendezvous", device_count={"CPU": 2}),
}


class Nest:
    """A kernel ``outer`` that does what it is told with the session it runs in; ``inner`` gives x + 1."""

    def __init__(
        self, kernel: Callable[[Nest, Any], Any], options: dict[str, Any], inner_options: dict[str, Any] | None = None
    ) -> None:
        def outer(value: Any) -> Any:
            return kernel(self, value)

        async def outer_later(value: Any) -> Any:
            return await kernel(self, value)

        def inner(value: Any) -> Any:
            return value + 1

        function = outer_later if inspect.iscoroutinefunction(kernel) else outer
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            self.outer = ax.op(name="Outer", outputs=[ax.int64], **options)(function)(self.x, name="outer")
            self.inner = ax.op(name="Inner", outputs=[ax.int64], **(inner_options or {}))(inner)(self.x, name="inner")
        self.session: Any = None
        self.loop: Any = None

    async def run(self, config: ax.SessionConfig | None = None, count: int = 1) -> list[Any]:
        """What so many runs at once give."""
        self.loop = asyncio.get_running_loop()
        async with ax.Session(self.graph, config) as self.session:
            runs = [self.session.run(self.outer, {self.x: 1}) for _ in range(count)]
            return await asyncio.gather(*runs)


async def runs(nest: Nest, value: Any) -> Any:
    return await nest.session.run(nest.inner, {nest.x: 5})


async def calls(nest: Nest, value: Any) -> Any:
    return await nest.session.make_callable(nest.inner, [nest.x])(5)


async def maps(nest: Nest, value: Any) -> Any:
    return sum([out async for out in nest.session.map(nest.inner, ({nest.x: i} for i in range(3)))])


async def streams(nest: Nest, value: Any) -> Any:
    async with nest.session.stream(nest.inner) as stream:
        await stream.send({nest.x: 5})
        return await anext(stream)


async def feeds(nest: Nest, value: Any) -> Any:
    async with nest.session.partial_run(nest.inner, [nest.x]) as step:
        await step.feed({nest.x: 5})
        return await step.fetch(nest.inner)


async def runs_itself(nest: Nest, value: Any) -> Any:
    return 6 if value == 3 else await nest.session.run(nest.outer, {nest.x: value + 1})


async def runs_many(nest: Nest, value: Any) -> Any:
    found = await asyncio.gather(*[nest.session.run(nest.inner, {nest.x: 5}) for _ in range(20)])
    assert len(set(found)) == 1
    return found[0]


async def extends(nest: Nest, value: Any) -> Any:
    with nest.graph:
        doubled = nest.inner * ax.constant(2, ax.int64)
    return await nest.session.run(doubled, {nest.x: 2})


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    "kernel", [runs, calls, maps, streams, feeds, runs_itself, runs_many, extends], ids=lambda one: one.__name__
)
async def test_from_an_async_kernel(kernel: Any, config: ax.SessionConfig) -> None:
    count = 1 if config.max_queued_steps == 0 else 3
    assert await Nest(kernel, {}).run(config, count) == [6] * count


def waits_for_a_run(nest: Nest, value: Any) -> Any:
    """On a thread, so that the loop is free to run it."""
    return asyncio.run_coroutine_threadsafe(nest.session.run(nest.inner, {nest.x: 5}), nest.loop).result(20)


@pytest.mark.parametrize(
    "options", [{"expensive": True}, {"limiter": 5}, {"timeout": 60}], ids=lambda one: next(iter(one))
)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
async def test_from_a_worker_thread(options: dict[str, Any], config: ax.SessionConfig) -> None:
    count = 1 if config.max_queued_steps == 0 else 3
    nest = Nest(waits_for_a_run, options, {"expensive": False})
    assert await nest.run(config, count) == [6] * count


@pytest.mark.parametrize("inner", [{"expensive": True}, {"timeout": 60}], ids=lambda one: next(iter(one)))
@pytest.mark.parametrize("outer", [{"expensive": True}, {"limiter": 9}], ids=lambda one: next(iter(one)))
@pytest.mark.parametrize("num_threads", [1, 2])
async def test_from_a_worker_thread_for_a_worker_thread(
    outer: dict[str, Any], inner: dict[str, Any], num_threads: int
) -> None:
    """There may be none left: then that is said."""
    nest = Nest(waits_for_a_run, outer, inner)
    config = ax.SessionConfig(num_worker_threads=num_threads)
    if num_threads == 2:
        assert await nest.run(config) == [6]
    with pytest.raises(PRECONDITION, match=r"'outer' runs the graph from its worker thread") as caught:
        await nest.run(config, count=num_threads)
    assert (caught.value.node, "num_worker_threads" in (caught.value.hint or "")) == ("inner", True)


def runs_in_a_loop_of_its_own(nest: Nest, value: Any) -> Any:
    return asyncio.run(nest.session.run(nest.inner, {nest.x: 5}))


@pytest.mark.parametrize("is_expensive", [False, True])
async def test_from_another_loop(is_expensive: bool) -> None:
    """While a step is under way, its session is used in one loop."""
    nest = Nest(runs_in_a_loop_of_its_own, {"expensive": True}, {"expensive": is_expensive})
    with pytest.raises(PRECONDITION, match="used in another event loop") as caught:
        await nest.run()
    assert (caught.value.node, "run_coroutine_threadsafe" in (caught.value.hint or "")) == ("outer", True)


def returns_the_run(nest: Nest, value: Any) -> Any:
    return nest.session.run(nest.inner, {nest.x: 5})


def runs_a_loop(nest: Nest, value: Any) -> Any:
    return ax.run(nest.session.run(nest.inner, {nest.x: 5}))


@pytest.mark.parametrize(
    ("kernel", "error", "match"),
    [
        (returns_the_run, ax.errors.InternalError, "op 'Outer' returned a coroutine"),
        (runs_a_loop, PRECONDITION, "starts an event loop, but one is running here"),
    ],
    ids=["returns", "runs"],
)
async def test_from_an_inline_kernel(kernel: Any, error: type[ax.errors.OpError], match: str) -> None:
    """It cannot wait, for the loop waits for it."""
    with pytest.raises(error, match=match) as caught:
        await Nest(kernel, {"expensive": False}).run()
    assert caught.value.node == "outer"
    assert "await" in (caught.value.hint or "")
