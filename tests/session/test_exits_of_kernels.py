"""KeyboardInterrupt and SystemExit that kernels, sources and feeds raise end the step whole, and reach its caller."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import asyncexec as ax
from tests.running import settle

EXITS = [KeyboardInterrupt, SystemExit]
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
if sys.platform != "win32":
    import uvloop

    LOOPS.append(uvloop.new_event_loop)


class Places:
    """A graph with a kernel at each place that may leave; beside it ``waits`` waits until it is cancelled.

    Attributes:
        exit: what is raised where x is 1.
        log: what the kernel that waits has done.
    """

    def __init__(self, exit: type[BaseException]) -> None:
        self.exit = exit
        self.log: list[str] = []
        self.limiter = ax.Limiter(1)

        @ax.op
        async def waits(x: float) -> float:
            self.log.append("began")
            try:
                await asyncio.Event().wait()
            finally:
                await settle()
                self.log.append("cleaned up")
            return float(x)

        def leave(x: float) -> float:
            if x:
                raise self.exit(3)
            return float(x)

        async def leave_later(x: float) -> float:
            await asyncio.sleep(0)
            return leave(x)

        @ax.batch(max_size=4, timeout_s=0)
        def batched(x: Any) -> Any:
            return inline_rows(x)

        @ax.op(outputs=[ax.float64], shapes=[[None]])
        def inline_rows(x: Any) -> Any:
            leave(float(x[0]))
            return x

        @ax.function
        def called(x: Any) -> Any:
            return ax.op(leave, name="inner")(x)

        with ax.Graph() as self.graph:
            x = self.x = ax.placeholder(ax.float64, [], name="x")
            self.fine = x + 1.0
            self.waits = waits(x)
            self.places = {
                "inline": ax.op(leave, name="inline", expensive=False)(x),
                "worker": ax.op(leave, name="worker", expensive=True)(x),
                "worker with a timeout": ax.op(leave, name="timed", expensive=True, timeout=100)(x),
                "async": ax.op(leave_later, name="later")(x),
                "limited": ax.op(leave_later, name="limited", limiter=self.limiter)(x),
                "retried": ax.op(leave_later, name="retried", retries=ax.Retry(3, wait_initial_s=0))(x),
                "batch": ax.reshape(batched(ax.reshape(x, [1])), []),
                "function": called(x),
                "cond": ax.cond(x >= 0.0, lambda: ax.op(leave_later, name="branch")(x), lambda: x),
                "loop": ax.while_loop(
                    lambda i, v: i < 3, lambda i, v: (i + 1, ax.op(leave_later, name="body")(v)), (ax.constant(0), x)
                )[1],
            }
            with ax.device("/cpu:1"):
                self.places["other device"] = ax.op(leave_later, name="there")(x)

    def config(self) -> ax.SessionConfig:
        return ax.SessionConfig(device_count={"CPU": 2}, max_concurrent_steps=1, num_worker_threads=2)

    async def check(self, session: ax.Session) -> None:
        """What waited has cleaned up, nothing is left, and later runs work, the place included."""
        assert self.log.count("began") == self.log.count("cleaned up")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await session.run([self.fine, *self.places.values()], {self.x: 0.0}) == [1.0, *[0.0] * len(self.places)]
        statistics = session.statistics()
        assert (statistics.running_steps, statistics.queued_steps) == (0, 0)
        assert all((pool.busy, pool.queued, pool.abandoned) == (0, 0, 0) for pool in statistics.worker_pools.values())
        assert (self.limiter.statistics().inside, self.limiter.statistics().waiting) == (0, 0)


PLACES = sorted(Places(SystemExit).places)


async def run(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    await session.run(fetches, {x: 1.0})


async def call(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    await session.make_callable(fetches, [x])(1.0)


async def traced(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    await session.run(fetches, {x: 1.0}, options=ax.RunOptions(trace=True, timeout=100), metadata=ax.RunMetadata())


async def partial(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    async with session.partial_run(fetches, [x]) as step:
        await step.feed({x: 1.0})
        await step.fetch(fetches)


async def mapped(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    async with session.map(fetches, [{x: 1.0}] * 3, window=2) as outputs:
        async for _ in outputs:
            pass


async def mapped_with_errors(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    """What is no OpError does not take the place of an item."""
    async with session.map(fetches, [{x: 1.0}] * 3, on_error="yield", ordered=False) as outputs:
        async for _ in outputs:
            pass


async def streamed(session: ax.Session, fetches: Any, x: ax.Tensor) -> None:
    async with session.stream(fetches, window=2) as stream:
        await stream.send({x: 1.0})
        await anext(stream)


WAYS = [run, call, traced, partial, mapped, mapped_with_errors, streamed]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("error", EXITS)
@pytest.mark.parametrize("place", PLACES)
async def test_an_exit_of_a_kernel_ends_the_step_whole(place: str, error: type[BaseException]) -> None:
    places = Places(error)
    async with ax.Session(places.graph, places.config()) as session:
        for way in WAYS:
            with pytest.raises(error) as caught:
                await way(session, [places.places[place], places.waits], places.x)
            assert caught.value.args == (3,), way
            assert type(caught.value) is error
            await places.check(session)


async def test_an_exit_of_a_batch_reaches_all_its_callers() -> None:
    places = Places(SystemExit)
    places.log.append("began")
    async with ax.Session(places.graph, ax.SessionConfig(device_count={"CPU": 2}, num_worker_threads=2)) as session:
        outcomes: list[BaseException] = []

        async def run() -> None:
            try:
                await session.run(places.places["batch"], {places.x: 1.0})
            except SystemExit as error:
                outcomes.append(error)

        await asyncio.gather(*(run() for _ in range(4)))
        assert [error.args for error in outcomes] == [(3,)] * 4
        places.log.append("cleaned up")
        await places.check(session)


def plain_items(x: ax.Tensor, error: BaseException) -> Iterator[Any]:
    yield {x: 1.0}
    raise error


async def async_items(x: ax.Tensor, error: BaseException) -> AsyncIterator[Any]:
    yield {x: 1.0}
    await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize("items", [plain_items, async_items])
@pytest.mark.parametrize("error", EXITS)
async def test_an_exit_of_what_a_map_draws_from(items: Callable[..., Any], error: type[BaseException]) -> None:
    places = Places(error)
    async with ax.Session(places.graph, places.config()) as session:
        taken: list[float] = []

        async def take() -> None:
            async for value in session.map(places.fine, items(places.x, error(3))):
                taken.append(float(value))

        with pytest.raises(error):
            await take()
        assert taken == [2.0]  # what was drawn before
        await places.check(session)


@pytest.mark.parametrize("error", EXITS)
async def test_an_exit_of_a_source(error: type[BaseException]) -> None:
    places = Places(error)

    async def values() -> AsyncIterator[float]:
        yield 1.0
        raise error(3)

    with places.graph:
        out = ax.source(values, ax.float64, []) + 1.0
    async with ax.Session(places.graph, places.config()) as session:
        async with session.stream(out) as stream:
            assert await anext(stream) == 2.0
            with pytest.raises(error):
                await anext(stream)
        with pytest.raises(error):
            await session.stream(out).run()
        await places.check(session)


@pytest.mark.parametrize("error", EXITS)
@pytest.mark.parametrize("loop_factory", LOOPS, ids=lambda factory: factory.__module__)
def test_an_exit_of_a_kernel_gets_out_of_the_loop(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """As of any coroutine: it ends the run_forever, and the session has been closed."""
    for place, fetch in Places(error).places.items():
        places = Places(error)

        async def main(places: Places = places, name: str = fetch.name) -> None:
            async with ax.Session(places.graph, places.config()) as session:
                await session.run([name, places.waits], {places.x: 1.0})

        with asyncio.Runner(loop_factory=loop_factory) as runner, pytest.raises(error) as caught:
            runner.run(main())
        assert caught.value.args == (3,), place
        assert places.log.count("began") == places.log.count("cleaned up"), place
    assert caplog.records == []


@pytest.mark.parametrize("error", EXITS)
def test_an_exit_of_a_kernel_comes_out_of_a_blocking_session(error: type[BaseException]) -> None:
    places = Places(error)
    with ax.BlockingSession(places.graph, places.config()) as session:
        for place, fetch in places.places.items():
            with pytest.raises(error) as caught:
                session.run([fetch, places.waits], {places.x: 1.0})
            assert caught.value.args == (3,), place
            with pytest.raises(error):
                list(session.map([fetch, places.waits], [{places.x: 1.0}] * 2))
            session._open_thread().call(places.check, session._session)


@pytest.mark.parametrize("error", EXITS)
def test_the_loop_of_a_blocking_session_outlives_what_a_task_raises(error: type[BaseException]) -> None:
    """A task of the user's, which ends the run_forever that it runs in."""

    @ax.op
    async def awaits_a_task(x: float) -> float:
        async def leave() -> None:
            raise error(3)

        await asyncio.create_task(leave())
        return float(x)

    places = Places(error)
    with places.graph:
        fetch = awaits_a_task(places.x)
    with ax.BlockingSession(places.graph, places.config()) as session:
        for _ in range(2):
            with pytest.raises(error):
                session.run([fetch, places.waits], {places.x: 1.0})
            session._open_thread().call(places.check, session._session)
