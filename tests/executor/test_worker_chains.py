"""Expensive nodes that go along on the worker thread of the one before: which, and that nobody can tell."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans import region_plan
from asyncexec.executor.workers import worker_chain
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.cancellation import CancellationManager, call_around
from tests.running import import_all_names, settle

TAGGED = ax.SessionConfig(executor_type="TAGGED_TOKEN", num_worker_threads=3)


@ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
def hard(x: Any, y: Any) -> Any:
    return x * 3 + y


@ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
def failing(x: Any, y: Any) -> Any:
    if x % 7 == 3:
        raise ValueError(f"{x} is no number for it")
    return x - y


@ax.op(outputs=[ax.int64, ax.int64], shapes=[[], []], expensive=True)
def both(x: Any, y: Any) -> Any:
    return x + y, x - y


@ax.op(outputs=[ax.int64], shapes=[[]])
async def later(x: Any, y: Any) -> Any:
    await asyncio.sleep(0)
    return x + 2 * y


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the nodes of each job of a worker pool."""
    found: list[list[str]] = []
    submit = WorkerPool.submit_calls

    def submit_calls(pool: WorkerPool, calls: Any, done: Any) -> Any:
        found.append([call.name for call in calls])
        return submit(pool, calls, done)

    monkeypatch.setattr(WorkerPool, "submit_calls", submit_calls)
    return found


def blocks(x: Any, count: int) -> Any:
    """Residual blocks: each adds to what it was given what three nodes make of that."""
    for number in range(count):
        inner = hard(x, 1, name=f"a{number}")
        inner = hard(inner, 2, name=f"b{number}")
        x = hard(inner, x, name=f"sum{number}")
    return x


async def test_a_residual_connection_stays_on_its_thread(jobs: list[list[str]]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        first = hard(x, 0, name="first")
        y = blocks(first, 4)
    async with ax.Session(graph, TAGGED) as session:
        for value in range(3):
            jobs.clear()
            expected = value * 3
            for _ in range(4):
                expected = ((expected * 3 + 1) * 3 + 2) * 3 + expected
            assert await session.run(y, {x: value}) == expected
    names = [f"{name}{number}" for number in range(4) for name in ("a", "b", "sum")]
    assert jobs == [["first", *names]]


async def test_branches_and_fetches_end_a_chain(jobs: list[list[str]]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        first = hard(x, 0, name="first")
        left, right = hard(first, 1, name="left"), hard(first, 2, name="right")
        joined = hard(left, right, name="joined")
        last = hard(joined, 1, name="last")
    async with ax.Session(graph, TAGGED) as session:
        await session.run(last, {x: 1})
        assert sorted(map(len, jobs)) == [1, 1, 1, 2]  # the branches run side by side
        jobs.clear()
        await session.run([last, joined], {x: 1})
    assert ["joined"] in jobs


async def test_cheap_nodes_of_ours_go_along_where_an_expensive_one_follows(jobs: list[list[str]]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        between = ax.add(hard(x, 0, name="first") * 2, 1, name="between")
        last = ax.add(hard(between, between - 1, name="second"), 5, name="last")
    async with ax.Session(graph, TAGGED) as session:
        for _ in range(2):  # in the first it is not known that they are cheap
            jobs.clear()
            assert await session.run(last, {x: 1}) == 7 * 3 + 6 + 5
    ((*names, name),) = jobs
    assert (names[0], name, len(names), "between" in names) == ("first", "second", 4, True)


async def test_cheap_functions_of_users_and_nodes_with_state_stay_in_the_loop(jobs: list[list[str]]) -> None:
    threads: set[threading.Thread] = set()

    @ax.op(outputs=[ax.int64], shapes=[[]], expensive=False)
    def cheap(x: Any) -> Any:
        threads.add(threading.current_thread())
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        kept = ax.Variable(np.int64(4), name="kept")
        one = hard(cheap(hard(x, 0, name="a")), 1, name="b")
        with ax.control_dependencies([kept.assign_add(hard(x, 1, name="c"))]):
            other = hard(kept, 2, name="d")
        old = ax.raw_ops.VariableV2(shape=[], dtype=ax.int64, name="old")
        begun = ax.raw_ops.Assign(old, ax.constant(4, ax.int64))
        third = hard(ax.raw_ops.AssignAdd(old, hard(x, 1, name="e")) + 0, 2, name="f")
        y = ax.stack([one, other, third])
    for config in (TAGGED, ax.SessionConfig(executor_type="COMPILED")):
        async with ax.Session(graph, config) as session:
            await session.run([kept.initializer, begun.op])
            for added in (0, 12):  # in the first it is not known what is cheap
                assert (await session.run(y, {x: 1})).tolist() == [10, 26 + added, 26 + added]
    assert threads == {threading.main_thread()}
    assert all(len(job) == 1 for job in jobs)


@pytest.mark.parametrize("size", [3, 200_000])  # a plain function; one that pauses
async def test_regions_go_along(size: int, jobs: list[list[str]]) -> None:
    @ax.op(outputs=[ax.float64], shapes=[[None]], expensive=True)
    def doubled(x: Any) -> Any:
        threads.append(threading.get_ident())
        return x * 2

    threads: list[int] = []
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None], name="x")
        first = doubled(x, name="first")
        joined = ax.concat([first + 1.0, first * 3.0], 0)
        second = doubled(joined, name="second")
        third = doubled(ax.concat([joined, second], 0), name="third")
    values = np.arange(size, dtype=np.float64)
    joined_values = np.concatenate([values * 2 + 1.0, values * 2 * 3.0])
    expected = np.concatenate([joined_values, joined_values * 2]) * 2
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED", num_worker_threads=1)) as session:
        for _ in range(2):
            jobs.clear()
            threads.clear()
            np.testing.assert_array_equal(await session.run(third, {x: values}), expected)
    ((first_name, *between, last_name),) = jobs
    assert (first_name, last_name, "second" in between) == ("first", "third", True)
    assert len(set(threads)) == 1


async def test_a_region_that_may_be_native_code_stays_in_the_loop(jobs: list[list[str]]) -> None:
    """All calls of a native function share its memory."""
    with ax.Graph() as graph:
        x = value = ax.placeholder(ax.int64, [], name="x")
        value = hard(value, 0)
        for _ in range(40):
            value = value + 1
        y = hard(value, 0)
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        assert await session.run(y, {x: 1}) == 129
    has_native_code = importlib.util.find_spec("llvmlite") is not None
    assert sorted(map(len, jobs)) == ([1, 1] if has_native_code else [3])


async def test_a_region_on_a_worker_pauses_to_see_whether_somebody_waits() -> None:
    num_pauses, manager = 0, CancellationManager()

    def begin() -> Generator[None, None, list[Any]]:
        nonlocal num_pauses
        while True:
            num_pauses += 1
            if num_pauses == 3:
                manager.start_cancel()
            yield

    plan: Any = SimpleNamespace(begin=begin, is_plain=False)
    token = call_around.set(SimpleNamespace(manager=lambda: manager))  # type: ignore[arg-type]
    try:
        with pytest.raises(ax.errors.CancelledError):
            region_plan._on_worker(plan)()
    finally:
        call_around.reset(token)
    assert num_pauses == 3


async def test_cheap_nodes_of_a_chain_do_not_wait_in_line() -> None:
    """Behind each expensive node a chain goes behind the others that wait; for cheap ones it does not."""
    order: list[str] = []
    may_go_on = threading.Event()

    @ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
    def noted(x: Any, name: Any) -> Any:
        assert may_go_on.wait(10)
        order.append(name.decode())
        return x

    with ax.Graph() as graph:
        x, name = ax.placeholder(ax.int64, [], name="x"), ax.placeholder(ax.string, [], name="name")
        value = noted(x, name)
        for _ in range(12):
            value = value + 1
        y = noted(value, name)
        z = x
        for _ in range(4):
            z = noted(z, name)
    async with ax.Session(graph, ax.SessionConfig(executor_type="TAGGED_TOKEN", num_worker_threads=1)) as session:
        may_go_on.set()
        for fetched in (y, z):
            await session.run(fetched, {x: 1, name: "before"})
        may_go_on.clear()
        order.clear()
        runs = [asyncio.create_task(session.run(y, {x: 1, name: "A"}))]
        runs += [asyncio.create_task(session.run(z, {x: 1, name: str(number)})) for number in range(3)]
        await settle()
        may_go_on.set()
        assert await asyncio.gather(*runs) == [13, 1, 1, 1]
    assert order == [*"A012", *"A012", *"012", *"012"]


async def test_an_error_within_a_region_on_a_worker_names_its_node() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        divided = ax.floordiv(hard(x, 0) + 1, x, name="divided")
        y = hard(divided * 2, 1)
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        assert await session.run(y, {x: 1}) == 25
        with pytest.raises(ax.errors.InvalidArgumentError, match="divided"):
            await session.run(y, {x: 0})
        assert await session.run(y, {x: 1}) == 25


async def test_a_loop_between_expensive_nodes_ends_with_its_step() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        endless = ax.while_loop(lambda i: i >= 0, lambda i: [i * 1], [hard(x, 0)])[0]
        y = hard(endless, 1)
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(y, {x: 1}, options=ax.RunOptions(timeout=0.05))
        assert await session.run(y, {x: -1}) == -8


def joined_branches(x: Any, divisor: Any) -> Any:
    """Cheap branches behind an expensive node, one of which fails where *divisor* is 0, and what they meet in."""
    first = hard(x, 0, name="first")
    left = ax.floordiv(first, divisor, name="left")
    right = ax.add(first, 1, name="right")
    return hard(left + 1, right * 2, name="joined")


async def test_cheap_branches_stay_on_the_thread(jobs: list[list[str]]) -> None:
    with ax.Graph() as graph:
        x, divisor = ax.placeholder(ax.int64, [], name="x"), ax.placeholder(ax.int64, [], name="divisor")
        y = joined_branches(x, divisor)
    async with ax.Session(graph, TAGGED) as session:
        for value in range(3):
            jobs.clear()
            expected = (value * 3 // 2 + 1) * 3 + (value * 3 + 1) * 2
            assert await session.run(y, {x: value, divisor: 2}) == expected
        assert [len(job) for job in jobs] == [6]
        with pytest.raises(ax.errors.InvalidArgumentError, match="left"):
            await session.run(y, {x: 1, divisor: 0})
        assert await session.run(y, {x: 1, divisor: 2}) == 14


@pytest.mark.parametrize("longest", [1, 64])
async def test_an_item_whose_failure_is_kept_ends(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_chain, "_LONGEST", longest)
    with ax.Graph() as graph:
        x, divisor = ax.placeholder(ax.int64, [], name="x"), ax.placeholder(ax.int64, [], name="divisor")
        count = ax.stream_state(np.int64(0))
        y = count.update(count.value + 1) + joined_branches(x, divisor) * 100
    items = [{x: 1, divisor: number % 3} for number in range(9)]
    async with ax.Session(graph, TAGGED) as session:
        found = [out async for out in session.map(y, items, window=3, on_error="yield")]
    assert [isinstance(out, ax.errors.InvalidArgumentError) for out in found] == [True, False, False] * 3
    by_divisor = {1: (3 + 1) * 3 + 8, 2: (3 // 2 + 1) * 3 + 8}
    expected = [number + 1 + 100 * by_divisor[number % 3] for number in range(9) if number % 3]
    assert [out for out in found if not isinstance(out, Exception)] == expected


async def test_who_waits_for_something_else_is_not_kept_waiting() -> None:
    """What takes the first node and an awaited one runs while the chain behind the first is at work."""
    import_all_names()
    go, has_run = asyncio.Event(), threading.Event()

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def event(x: Any) -> Any:
        await go.wait()
        return x

    @ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
    def waits(x: Any) -> Any:
        loop.call_soon_threadsafe(go.set)
        assert has_run.wait(10)
        return x

    @ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
    def sets(x: Any, y: Any) -> Any:
        has_run.set()
        return x + y

    loop = asyncio.get_running_loop()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        first = hard(x, 0, name="first")
        fetches = [hard(waits(first), 1), sets(first, event(x))]
    async with ax.Session(graph, TAGGED) as session:
        assert await session.run(fetches, {x: 1}) == [10, 4]


@pytest.mark.parametrize("value", [1, 4])
async def test_an_error_within_a_residual_block_names_its_node(value: int, jobs: list[list[str]]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        first = hard(x, 0, name="first")
        inner = failing(hard(first, 1, name="inner"), 1, name="failing")
        y = hard(inner, first, name="sum")
    async with ax.Session(graph, TAGGED) as session:
        for _ in range(2):
            if (value * 9 + 1) % 7 != 3:
                assert await session.run(y, {x: value}) == 3 * (value * 9) + 3 * value
            else:
                with pytest.raises(ax.errors.OpError) as caught:
                    await session.run(y, {x: value})
                assert caught.value.node == "failing"
    assert jobs[0] == ["first", "inner", "failing", "sum"]


async def test_a_dead_output_ends_a_chain_where_a_node_has_two_consumers() -> None:
    """In a cond, nodes of the side that is not taken are dead, whoever waits for them."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = ax.cond(x > 5, lambda: blocks(hard(x, 1), 2), lambda: blocks(hard(x, 2), 1))
        z = blocks(hard(y, x), 2)
    async with ax.Session(graph, TAGGED) as session, ax.Session(graph) as other:
        for value in (3, 7, 3, 9):
            assert await session.run(z, {x: value}) == await other.run(z, {x: value})


@pytest.mark.parametrize("width", [3, 64, 65, 129, 130, 300])
async def test_nodes_of_many_outputs_are_delivered_whole(width: int) -> None:
    @ax.op(outputs=[ax.int64] * width, shapes=[[]] * width, expensive=True)
    def spread(x: Any) -> Any:
        return tuple(x + number for number in range(width))

    @ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
    def join(*values: Any) -> Any:
        return sum(values)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = hard(join(*spread(hard(x, 0))), 1)
    async with ax.Session(graph, TAGGED) as session:
        for value in range(3):
            found = await asyncio.wait_for(session.run(y, {x: value}), 10)
            assert found == 3 * sum(value * 3 + number for number in range(width)) + 1


async def test_rounds_of_a_loop_have_chains_of_their_own() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        _, y = ax.while_loop(
            lambda i, _: i < 5, lambda i, y: [i + 1, blocks(y, 2) % 1000], [ax.constant(0, ax.int64), x]
        )
    expected = 2
    for _ in range(5):
        for _ in range(2):
            expected = ((expected * 3 + 1) * 3 + 2) * 3 + expected
        expected %= 1000
    async with ax.Session(graph, TAGGED) as session:
        assert await session.run(y, {x: 2}) == expected


async def test_a_trace_has_each_node_once() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = blocks(hard(x, 0, name="first"), 3)
    async with ax.Session(graph, TAGGED) as session:
        metadata = ax.RunMetadata()
        await session.run(y, {x: 1}, options=ax.RunOptions(trace=True), metadata=metadata)
    names = [node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats]
    expensive = ["first", *(f"{name}{number}" for number in range(3) for name in ("a", "b", "sum"))]
    assert sorted(name for name in names if name in expensive) == sorted(expensive)


def any_graph(seed: int) -> tuple[ax.Graph, list[Any]]:
    """A graph of expensive nodes, with others between them, and what is fetched of it."""
    draw = random.Random(seed)
    with ax.Graph() as graph:
        values: list[Any] = [ax.placeholder(ax.int64, [], name="x")]
        for _ in range(draw.randint(3, 40)):
            recent = values[-draw.randint(1, 5) :]
            one, other = draw.choice(recent), draw.choice(values if draw.random() < 0.3 else recent)
            kind = draw.random()
            if kind < 0.5:
                made = [hard(one, other)]
            elif kind < 0.7:
                made = [one + other]
            elif kind < 0.8:
                made = both(one, other)
            elif kind < 0.87:
                made = [failing(one, other)]
            elif kind < 0.94:
                made = [one + other]
            else:
                made = [later(one, other)]
            values += [value % 1009 for value in made] if draw.random() < 0.1 else list(made)
            if draw.random() < 0.1:
                with ax.control_dependencies([values[-1].op]):
                    values.append(hard(draw.choice(recent), 1))
    return graph, [values[-1], *draw.sample(values, draw.randint(0, 2))]


@pytest.mark.parametrize("executor_type", ["TAGGED_TOKEN", "COMPILED"])
@pytest.mark.parametrize("seed", range(40))
async def test_any_graph_gives_what_it_gives_without_chains(
    seed: int, executor_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, fetches = any_graph(seed)
    config = ax.SessionConfig(executor_type=executor_type, num_worker_threads=3)
    found: list[list[Any]] = []
    for longest in (1, 64):
        monkeypatch.setattr(worker_chain, "_LONGEST", longest)
        outcomes: list[Any] = []
        async with ax.Session(graph, config) as session:
            for value in (0, 1, 2, 5):
                try:
                    outcomes.append(await session.run(fetches, {"x:0": value}))
                except ax.errors.OpError as error:  # which of several is a matter of time
                    outcomes.append(type(error))
        found.append(outcomes)
    assert found[0] == found[1]
