"""timeout= and limiter= of ops, plain functions among them, and what the step stats tell of calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.chrome_trace import chrome_trace
from tests.frontend.policies import Flaky, failures, now, run, sleep_for
from tests.running import import_all_names, settle


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    with ax.Graph() as graph:
        ax.placeholder(ax.object, [], name="x")
        yield graph


# --- timeouts -------------------------------------------------------------------------------------------------------


@pytest.mark.virtual_clock
@pytest.mark.parametrize("where", ["op", "node", "options"])
async def test_timeout(graph: ax.Graph, where: str) -> None:
    op, x = ax.op(timeout=5 if where == "op" else None)(sleep_for), graph["x:0"]
    made: dict[str, Callable[[], Any]] = {
        "op": lambda: op(x, name="n"),
        "node": lambda: op(x, name="n", timeout=5),
        "options": lambda: op.options(timeout=5, name="n")(x),
    }
    node = made[where]()
    await run(node, 4)
    begin = now()
    with pytest.raises(ax.errors.DeadlineExceededError, match="timeout of 5 s") as caught:
        await run(node, 6)
    assert now() - begin == 5
    assert caught.value.node == "n"
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("timeout", [10, None])
async def test_timeout_of_a_node_goes_before_that_of_the_op(graph: ax.Graph, timeout: float | None) -> None:
    await run(ax.op(timeout=1)(sleep_for)(graph["x:0"], timeout=timeout), 9)


@pytest.mark.virtual_clock
async def test_timeout_inside_the_op_is_its_own(graph: ax.Graph) -> None:
    @ax.op(timeout=10)
    async def slow(x: Any) -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(x)

    with pytest.raises(ax.errors.DeadlineExceededError) as caught:
        await run(slow(graph["x:0"]), 5)
    assert "timeout of 10 s" not in str(caught.value)


@pytest.mark.virtual_clock
async def test_each_attempt_has_the_timeout(graph: ax.Graph) -> None:
    times: list[float] = []

    @ax.op(timeout=3, retries=ax.Retry(attempts=3, wait_initial_s=1, jitter=0))
    async def slow_at_first(x: Any) -> Any:
        times.append(now())
        await asyncio.sleep(10 if len(times) < 3 else 2)
        return x

    begin = now()
    assert await run(slow_at_first(graph["x:0"]), 7) == 7
    assert [at - begin for at in times] == [0, 4, 9]


# --- plain functions ------------------------------------------------------------------------------------------------


async def test_a_plain_function_is_tried_again_on_a_worker(graph: ax.Graph) -> None:
    threads: list[int] = []

    @ax.op(retries=ax.Retry(attempts=3, wait_initial_s=0, wait_max_s=0))
    def flaky(x: Any) -> int:
        threads.append(threading.get_ident())
        if len(threads) < 3:
            raise ConnectionError
        return int(x)

    assert await run(flaky(graph["x:0"]), 7) == 7
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_expensive_false_keeps_a_plain_function_in_the_loop(graph: ax.Graph) -> None:
    op = ax.op(name="InLoop", expensive=False, limiter=1, retries=1)(lambda x: threading.get_ident())
    assert await run(op(graph["x:0"])) == threading.get_ident()
    with pytest.raises(ax.errors.InvalidArgumentError, match="'InLoop' has a timeout") as caught:
        op(graph["x:0"], timeout=1)
    assert "async def" in (caught.value.hint or "")


@pytest.mark.parametrize("error", [ValueError("wrong"), StopIteration(5)], ids=repr)
async def test_what_a_plain_function_raises(graph: ax.Graph, error: Exception) -> None:
    def fail(x: Any) -> None:
        raise error

    with pytest.raises(ax.errors.OpError, match=type(error).__name__) as caught:
        await run(ax.op(limiter=1)(fail)(graph["x:0"], name="n"))
    assert caught.value.node == "n"
    cause = caught.value.__cause__
    assert cause is not None
    assert error in (cause, cause.__cause__)  # no coroutine can raise StopIteration itself


async def test_a_plain_function_past_its_timeout_is_left_to_its_thread(graph: ax.Graph) -> None:
    """It holds its slot until it returns, and what it returns is dropped."""
    may_end, limiter = threading.Event(), ax.Limiter(1)

    @ax.op(timeout=0.2, limiter=limiter)
    def slow(x: Any) -> Any:
        may_end.wait()
        return x

    @ax.op(limiter=limiter)
    def quick(x: Any) -> Any:
        return x

    late, next_one = slow(graph["x:0"], name="n"), quick(graph["x:0"])
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match=r"timeout of 0\.2 s") as caught:
            await session.run(late, {"x:0": "late"})
        assert caught.value.node == "n"
        assert limiter.statistics().inside == 1
        next_run = asyncio.ensure_future(session.run(next_one, {"x:0": "in time"}))
        await settle()
        assert limiter.statistics().waiting == 1
        may_end.set()
        assert await next_run == "in time"
        assert limiter.statistics().inside == 0


async def test_a_step_that_is_cancelled_waits_for_the_plain_function(graph: ax.Graph) -> None:
    begun, may_end, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @ax.op(limiter=1)
    def slow(x: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()
        ended.set()

    node = slow(graph["x:0"])
    async with ax.Session(graph, ax.SessionConfig(cancel_grace_s=None)) as session:
        running = asyncio.ensure_future(session.run(node, {"x:0": 1}))
        await begun.wait()
        running.cancel()
        await settle()
        assert not running.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended.is_set()


# --- limiters -------------------------------------------------------------------------------------------------------


class Meter:
    """How many calls are under way at once, at most."""

    def __init__(self) -> None:
        self.most = self._count = 0

        @ax.op(name="Metered")
        async def metered(x: Any) -> None:
            self._count += 1
            self.most = max(self.most, self._count)
            await asyncio.sleep(1)
            self._count -= 1

        self.op = metered


@pytest.mark.virtual_clock
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_limiter(graph: ax.Graph, limit: int) -> None:
    meter, shared = Meter(), ax.Limiter(limit)
    nodes = [meter.op(graph["x:0"], limiter=shared) for _ in range(12)]
    begin = now()
    await run(nodes)
    assert meter.most == min(limit, 12)
    assert now() - begin == -(-12 // limit)


@pytest.mark.virtual_clock
async def test_limiter_is_shared_by_ops_nodes_steps_and_sessions(graph: ax.Graph) -> None:
    meter = Meter()
    ax.Limiter(2, name="tests.shared")
    nodes = [meter.op.options(limiter="tests.shared")(graph["x:0"]) for _ in range(4)]
    async with ax.Session(graph) as one, ax.Session(graph) as other:
        await asyncio.gather(*[session.run(nodes, {"x:0": 1}) for session in (one, one, other)])
    assert meter.most == 2


@pytest.mark.virtual_clock
async def test_a_slot_is_given_back(graph: ax.Graph) -> None:
    """By who fails, who is cancelled while running and who is cancelled while waiting."""
    limiter = ax.Limiter(1)

    @ax.op(limiter=limiter)
    async def act(what: Any) -> Any:
        if what == "fail":
            raise ValueError(what)
        await asyncio.sleep(1 if what == "sleep" else 0)
        return what

    nodes = [act(graph["x:0"]), act(graph["x:0"])]
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(nodes, {"x:0": "fail"})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run(nodes, {"x:0": "sleep"}), 0.5)
        assert limiter.statistics().inside == 0
        assert await session.run(nodes, {"x:0": "ok"}) == ["ok", "ok"]


@pytest.mark.virtual_clock
async def test_a_slot_is_free_during_back_off(graph: ax.Graph) -> None:
    limiter, flaky = ax.Limiter(1), Flaky(*failures(1))
    node = flaky.op(graph["x:0"], retries=ax.Retry(attempts=2, wait_initial_s=1, jitter=0), limiter=limiter)
    running = asyncio.ensure_future(run(node))
    await asyncio.sleep(0.5)
    assert (len(flaky.times), limiter.statistics().inside) == (1, 0)
    await running


@pytest.mark.virtual_clock
async def test_the_line_does_not_count_towards_the_timeout(graph: ax.Graph) -> None:
    op = ax.op(timeout=1.5, limiter=1)(sleep_for)
    await run([op(graph["x:0"]) for _ in range(10)], 1)


def test_limiter_in_two_loops(graph: ax.Graph) -> None:
    node = Meter().op(graph["x:0"], limiter=ax.Limiter(1, name="tests.loops"))

    async def main() -> None:
        async with ax.Session(graph) as session:
            await asyncio.gather(session.run(node, {"x:0": 1}), session.run(node, {"x:0": 1}))

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(short(main))
        second.run(short(main))


async def short(main: Any) -> None:
    """Run *main*, cut short: that its waiters are of the right loop shows at once."""
    task = asyncio.ensure_future(main())
    await settle(20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- step stats -----------------------------------------------------------------------------------------------------


@pytest.mark.virtual_clock
async def test_attempts_and_waiting_are_counted(graph: ax.Graph) -> None:
    limiter, flaky = ax.Limiter(1), Flaky(*failures(2))
    x = graph["x:0"]
    retry = ax.Retry(attempts=3, wait_initial_s=1, jitter=0)
    hold = ax.op(name="Hold", limiter=limiter)(sleep_for)(x, name="hold")
    again = flaky.op(x, retries=retry, limiter=limiter, name="again")
    plain = ax.op(name="Plain")(sleep_for)(x, name="plain")
    metadata = ax.RunMetadata()
    await run([hold, again, plain], 2.5, options=ax.RunOptions(trace=True), metadata=metadata)
    [device] = metadata.step_stats.dev_stats
    stats = {node.node_name: node for node in device.node_stats}
    counts = {name: (node.attempts, node.limiter_wait_micros) for name, node in stats.items()}
    assert counts == {"hold": (1, 0), "again": (3, 2_500_000), "plain": (0, 0)}
    assert stats["again"].timeline_label.endswith("in 3 attempts, 2500000 us in the queue of its limiter")
    [event] = [e for e in chrome_trace(metadata.step_stats)["traceEvents"] if e.get("args", {}).get("name") == "again"]
    assert event["name"] == "Flaky"


async def test_a_run_inside_a_kernel_does_not_inherit_its_counts(graph: ax.Graph) -> None:
    with ax.Graph() as inner_graph:
        inner = ax.op(name="LimitedInner")(settle_once)(ax.placeholder(ax.object, [], name="x"), name="inner")
        ax.op(name="Sync")(lambda x: x)(inner_graph["x:0"], name="sync")
    metadata = ax.RunMetadata()

    @ax.op(limiter=1)
    async def outer(x: Any) -> None:
        await run([inner, inner_graph["sync:0"]], 1, options=ax.RunOptions(trace=True), metadata=metadata)

    await run(outer(graph["x:0"]))
    [device] = metadata.step_stats.dev_stats
    assert {node.node_name: node.attempts for node in device.node_stats} == {"inner": 0, "sync": 0}


async def settle_once(x: Any) -> None:
    await asyncio.sleep(0)
