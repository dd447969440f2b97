"""Executor types: those that there are, and those of users in sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.executor.types.executor_factory import executor_types
from tests.executor.executors import AllAtOnce, Counting, OneByOne, registered
from tests.running import raw_op, settle, started

TYPES = ["ONE_BY_ONE", "ALL_AT_ONCE", "COUNTING"]


@pytest.fixture(autouse=True)
def types() -> Iterator[None]:
    Counting.step_ids = []
    with registered(ONE_BY_ONE=OneByOne, ALL_AT_ONCE=AllAtOnce, COUNTING=Counting):
        yield


@pytest.fixture(params=TYPES)
def config(request: pytest.FixtureRequest) -> ax.SessionConfig:
    return ax.SessionConfig(executor_type=request.param, device_count={"CPU": 2})


# The registry.


@pytest.mark.parametrize("name", ["", "DEFAULT", "TAGGED_TOKEN", "COMPILED", "BREADTH_FIRST"])
async def test_types_that_there_are(name: str) -> None:
    with ax.Graph() as graph:
        y = ax.constant(1.0) + 1.0
    async with ax.Session(graph, ax.SessionConfig(executor_type=name)) as session:
        assert await session.run(y) == 2.0


@pytest.mark.parametrize("make", [ax.Session, ax.BlockingSession])
def test_a_type_that_is_not_registered_lists_those_that_are(make: Callable[..., Any]) -> None:
    with pytest.raises(
        ax.errors.NotFoundError,
        match=r"'ONE'.* ALL_AT_ONCE, BREADTH_FIRST, COMPILED, COUNTING, DEFAULT, ONE_BY_ONE, TAGGED_TOKEN",
    ):
        make(ax.Graph(), ax.SessionConfig(executor_type="ONE"))
    with pytest.raises(ax.errors.NotFoundError, match="TAGGED_TOKEN"):
        ax.new_executor(ax.Graph(), "ONE")


@pytest.mark.parametrize("name", ["ONE_BY_ONE", "DEFAULT"])
def test_a_name_is_registered_once(name: str) -> None:
    with pytest.raises(ax.errors.AlreadyExistsError, match=name):
        ax.executor_factory(name)(OneByOne)


@pytest.mark.parametrize("name", ["", OneByOne])
def test_a_type_has_a_name(name: Any) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="has a name"):
        ax.executor_factory(name)


def test_the_decorator_gives_back_what_it_decorates() -> None:
    assert ax.executor_factory("KEPT")(OneByOne) is OneByOne
    executor_types.unregister("KEPT")
    with pytest.raises(ax.errors.NotFoundError, match="KEPT"):
        executor_types.unregister("KEPT")


# Factories that do not do what they are for.


async def test_a_factory_that_makes_something_else() -> None:
    with ax.Graph() as graph:
        y = ax.constant(1.0)
    with registered(WRONG=lambda params: 7):
        async with ax.Session(graph, ax.SessionConfig(executor_type="WRONG")) as session:
            with pytest.raises(ax.errors.InvalidArgumentError, match=r"'WRONG' gave int, not an ax.Executor"):
                await session.run(y)


async def test_a_factory_that_raises() -> None:
    def refuse(params: ax.ExecutorParams) -> ax.Executor:
        raise ValueError(f"{len(params.nodes)} nodes on {params.device.name} are too many")

    with ax.Graph() as graph:
        y = ax.constant(1.0)
    with registered(STRICT=refuse):
        async with ax.Session(graph, ax.SessionConfig(executor_type="STRICT")) as session:
            with pytest.raises(ax.errors.InvalidArgumentError, match=r"2 nodes on .*CPU:0 are too many") as caught:
                await session.run(y)
    assert caught.value.node == "STRICT"
    assert isinstance(caught.value.__cause__, ValueError)


async def test_an_executor_that_raises() -> None:
    class Broken(ax.Executor):
        def __init__(self, params: ax.ExecutorParams) -> None:
            pass

        async def run(self, args: ax.Executor.Args) -> None:
            raise ZeroDivisionError("no steps")

    with ax.Graph() as graph:
        y = ax.constant(1.0)
    with registered(BROKEN=Broken):
        async with ax.Session(graph, ax.SessionConfig(executor_type="BROKEN")) as session:
            with pytest.raises(ax.errors.InvalidArgumentError, match="no steps") as caught:
                await session.run(y)
    assert (caught.value.node, caught.value.op) == ("BROKEN", "_RunExecutor")


async def test_an_executor_that_sends_nothing() -> None:
    class Idle(ax.Executor):
        def __init__(self, params: ax.ExecutorParams) -> None:
            pass

        async def run(self, args: ax.Executor.Args) -> None:
            pass

    with ax.Graph() as graph:
        y = ax.constant(1.0, name="y")
    with registered(IDLE=Idle):
        async with ax.Session(graph, ax.SessionConfig(executor_type="IDLE")) as session:
            with pytest.raises(ax.errors.InvalidArgumentError, match="fetch 'y:0' does not have a value"):
                await session.run(y)


# What users' executors run is what the default one runs.


def arithmetic() -> tuple[Any, dict[Any, Any]]:
    x = ax.placeholder(ax.float32, [None], name="x")
    with ax.device("/cpu:1"):
        y = ax.matmul(ax.expand_dims(x, 0), ax.expand_dims(x, 1)) + 1.0
    high, low = ax.split(x, 2)
    return [y, x, ax.concat([low, high], 0), ax.log(-x)], {x: [1, 2, 3, 4]}


def taken_branch() -> tuple[Any, dict[Any, Any]]:
    x = ax.placeholder(ax.float32, [])
    return ax.cond(x > 0, lambda: x * 2.0, lambda: ax.identity(x)), {x: 3}


def nested_branches() -> tuple[Any, dict[Any, Any]]:
    x = ax.placeholder(ax.float32, [])

    def inner() -> Any:
        with ax.device("/cpu:1"):
            return ax.cond(x < -1, lambda: x - 1.0, lambda: x + 1.0)

    return ax.cond(x > 0, lambda: x * 2.0, inner), {x: -3}


def awaited_and_worked_on() -> tuple[Any, dict[Any, Any]]:
    @ax.op
    async def fetch(name: str) -> str:
        await asyncio.sleep(0)
        return name * 2

    @ax.op(expensive=True, outputs=[ax.int64, ax.string])
    def count(name: Any) -> Any:
        return len(name), name

    name = ax.placeholder(ax.string, [])
    return count(fetch(name)), {name: "ab"}


def python_objects() -> tuple[Any, dict[Any, Any]]:
    x = ax.placeholder(ax.object, [])
    return raw_op("Wrap", lambda value: (value, value), outputs=2)(x), {x: "kept"}


CASES = [arithmetic, taken_branch, nested_branches, awaited_and_worked_on, python_objects]


def plain(value: Any) -> Any:
    """*value* as something that can be compared, its types included."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return type(value), getattr(value, "dtype", None), str(value)


@pytest.mark.parametrize("build", CASES)
async def test_results_are_those_of_the_default(config: ax.SessionConfig, build: Callable[[], Any]) -> None:
    with ax.Graph() as graph:
        fetches, feeds = build()
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        expected = await session.run(fetches, feeds)
    async with ax.Session(graph, config) as session:
        for _ in range(2):
            found = await session.run(fetches, feeds)
            assert plain(found) == plain(expected)
        assert plain(await session.make_callable(fetches, list(feeds))(*feeds.values())) == plain(expected)


async def test_variables(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        variable = ax.Variable(1.0, name="v")
        add = variable.assign_add(2.0)
        with ax.control_dependencies([add]):
            read = variable.read_value()
    async with ax.Session(graph, config) as session:
        with pytest.raises(ax.errors.NotFoundError):
            await session.run(read)
        await session.run(variable.initializer)
        assert [await session.run(read), await session.run(read)] == [3.0, 5.0]


async def test_many_steps_at_once(config: ax.SessionConfig) -> None:
    @ax.op
    async def wait(value: float) -> float:
        await asyncio.sleep(0)
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        with ax.device("/cpu:1"):
            y = wait(x) * 2.0
    async with ax.Session(graph, config) as session:
        assert await asyncio.gather(*[session.run(y, {x: i}) for i in range(20)]) == [2.0 * i for i in range(20)]
        assert [value async for value in session.map(y, [{x: i} for i in range(20)])] == [2.0 * i for i in range(20)]


async def test_a_loop_is_for_the_built_in_executors(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        total = ax.while_loop(lambda i: i < 10, lambda i: [i + 3], [ax.constant(0)])
    async with ax.Session(graph, config) as session:
        if config.executor_type == "COUNTING":  # which has one of these
            assert await session.run(total) == [12]
            return
        with pytest.raises(ax.errors.UnimplementedError, match="only the built-in executors run loops") as caught:
            await session.run(total)
        assert caught.value.op == "Enter"


# Failures and cancellation.


async def test_an_error_names_the_node_and_the_session_stays_usable(config: ax.SessionConfig) -> None:
    @ax.op
    def refuse(value: float) -> float:
        if value < 0:
            raise ValueError("too little")
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        with ax.device("/cpu:1"):
            y = refuse(x, name="refused")
        total = ax.add(y, 1.0, name="total")
    async with ax.Session(graph, config) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="too little") as caught:
            await session.run(total, {x: -1})
        assert caught.value.node == "refused"
        assert "test_executor_factory.py" in str(caught.value)
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(ax.errors.InvalidArgumentError, match="x") as missing:
            await session.run(total)
        assert missing.value.node == "x"
        assert await session.run(total, {x: 1}) == 2.0


async def test_the_first_failure_ends_all_partitions(config: ax.SessionConfig) -> None:
    ended: list[str] = []

    @ax.op
    async def wait(value: float) -> float:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("waited")
        return value

    @ax.op
    async def fail(value: float) -> float:
        await settle()
        raise LookupError("gone")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        with ax.device("/cpu:1"):
            y = wait(x)
        z = fail(x, name="failed")
    async with ax.Session(graph, config) as session:
        with pytest.raises(ax.errors.NotFoundError, match="gone") as caught:
            await session.run([y, z], {x: 1})
        assert caught.value.node == "failed"
        assert ended == ["waited"]


async def test_a_step_can_be_cancelled(config: ax.SessionConfig) -> None:
    ended: list[str] = []

    @ax.op
    async def wait(value: float) -> float:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("waited")
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        y = wait(x)
    async with ax.Session(graph, config) as session:
        run = await started(session.run(y, {x: 1}))
        await settle()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert ended == ["waited"]
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(y, {x: 1}, options=ax.RunOptions(timeout=0.01))
        assert ended == ["waited"] * 2


async def test_a_kernel_that_ends_by_a_cancellation_of_its_own_fails(config: ax.SessionConfig) -> None:
    @ax.op
    async def give_up(value: float) -> float:
        raise asyncio.CancelledError("not today")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        y = give_up(x, name="given_up")
    async with ax.Session(graph, config) as session:
        with pytest.raises(ax.errors.CancelledError, match="not today") as caught:
            await session.run(y, {x: 1})
        assert caught.value.node == "given_up"


# What a session gives an executor.


async def test_steps_have_numbers_of_their_own() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        with ax.device("/cpu:1"):
            y = x + 1.0
        z = y * 2.0
    config = ax.SessionConfig(executor_type="COUNTING", device_count={"CPU": 2})
    async with ax.Session(graph, config) as session:
        assert [await session.run(z, {x: i}) for i in range(3)] == [2, 4, 6]
    assert Counting.step_ids == [1, 1, 2, 2, 3, 3]


async def test_a_trace_has_every_node(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        with ax.device("/cpu:1"):
            y = ax.add(x, 1.0, name="y")
        ax.multiply(y, 2.0, name="z")
    metadata = ax.RunMetadata()
    async with ax.Session(graph, config) as session:
        await session.run("z:0", {"x:0": 1}, options=ax.RunOptions(trace=True), metadata=metadata)
    devices = {device.device[-1]: device.node_stats for device in metadata.step_stats.dev_stats}
    assert [node.node_name for node in devices["1"] if node.node_name == "y"] == ["y"]
    assert [node.node_name for node in devices["0"] if node.node_name == "z"] == ["z"]


@pytest.mark.parametrize("executor_type", ["ALL_AT_ONCE", "COUNTING"])
async def test_a_partial_run(executor_type: str) -> None:
    with ax.Graph() as graph:
        a, b = ax.placeholder(ax.float32, [], name="a"), ax.placeholder(ax.float32, [], name="b")
        y, z = a + 1.0, a + b
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ax.Session(graph, ax.SessionConfig(executor_type=executor_type)))
        step = await stack.enter_async_context(session.partial_run([y, z], [a, b]))
        await step.feed({a: 1})
        assert await step.fetch(y) == 2.0
        await step.feed({b: 2})
        assert await step.fetch(z) == 3.0


async def test_collectives_meet(config: ax.SessionConfig) -> None:
    options = {"group_size": 2, "group_key": 1, "instance_key": 1, "merge_op": "Add", "final_op": "Id"}
    with ax.Graph() as graph:
        parts = []
        for i in range(2):
            with ax.device(f"/cpu:{i}"):
                value = ax.constant([1.0 + i, 2.0])
                parts.append(ax.create_op("CollectiveReduce", [value], {**options, "subdiv_offsets": [0]}))
    async with ax.Session(graph, config) as session:
        assert [part.tolist() for part in await session.run(parts)] == [[3, 4], [3, 4]]


async def test_a_stream_goes_on_after_an_item_that_fails(config: ax.SessionConfig) -> None:
    @ax.op
    def refuse(value: float) -> float:
        if value == 1:
            raise ValueError("not one")
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        y = refuse(x, name="refused")
    async with ax.Session(graph, config) as session:
        found = [value async for value in session.map(y, [{x: i} for i in range(3)], on_error="yield")]
    assert (found[0], found[2]) == (0.0, 2.0)
    assert found[1].node == "refused"


async def test_a_state_of_a_stream_after_an_item_that_fails(config: ax.SessionConfig) -> None:
    @ax.op
    def refuse(value: float) -> float:
        if value == 1:
            raise ValueError("not one")
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        state = ax.stream_state(ax.constant(0.0, ax.float64))
        total = state.update(state.value + refuse(x))
    async with ax.Session(graph, config) as session:
        found = [value async for value in session.map(total, [{x: i} for i in range(4)], on_error="yield")]
    assert (found[0], found[2], found[3]) == (0.0, 2.0, 5.0)


async def test_the_loop_stays_free() -> None:
    """Cheap nodes that hold the loop for longer than a slice give others a turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with ax.Graph() as graph:
        last = ax.placeholder(ax.float32, [], name="x")
        for _ in range(200):
            last = last + 1.0
    async with ax.Session(graph, ax.SessionConfig(executor_type="ONE_BY_ONE", slice_ms=1e-6)) as session:
        await session.run(last, {"x:0": 0})
        counting = asyncio.ensure_future(count())
        assert await session.run(last, {"x:0": 0}) == 200
        counting.cancel()
    assert turns > 100
