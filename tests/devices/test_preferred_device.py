"""Array devices that rank above the CPU: nodes run there unless they ask for another, feeds and fetches are numpy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.devices.array_device import ArrayDeviceType
from asyncexec.framework.device_factory import DeviceOptions, device_factories
from tests.devices.array_devices import strict_library

STRICT = ArrayDeviceType("STRICT", strict_library)
STRICT.make_devices(DeviceOptions({"STRICT": 1}))  # which registers the kernels
SETTINGS: list[dict[str, Any]] = [
    {},
    {"debug": True},
    {"feed_fetch_medium": "rendezvous"},
    {"feed_fetch_medium": "rendezvous", "debug": True},
    {"allow_soft_placement": True, "schedule_seed": 7},
    {"device_count": {"CPU": 2, "STRICT": 2}},
]


@pytest.fixture(autouse=True)
def preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the type known, above the CPU, for one test."""
    monkeypatch.setitem(device_factories._factories, "STRICT", (STRICT.make_devices, 210))


@pytest.fixture(params=SETTINGS, ids=lambda settings: " ".join(map(str, settings.values())) or "default")
def config(request: pytest.FixtureRequest) -> ax.SessionConfig:
    return ax.SessionConfig(**{"device_count": {"CPU": 1, "STRICT": 1}, **request.param})


def check(got: Any, expected: Any) -> None:
    """AssertionError unless *got* is of numpy, or a plain value, and equal to *expected*."""
    assert isinstance(got, (np.ndarray, np.generic, bytes, dict)), type(got)
    if isinstance(expected, (bytes, dict)):
        assert got == expected
    else:
        np.testing.assert_array_equal(got, expected, strict=True)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@dataclass(frozen=True)
class Case:
    """What *build* returns, fetched with *feeds* (by the names of placeholders), is *expected*."""

    build: Callable[[], Any]
    expected: list[Any]
    feeds: dict[str, Any]


CASES: dict[str, Case] = {}


def case(*expected: Any, **feeds: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        CASES[build.__name__] = Case(build, list(expected), feeds)
        return build

    return register


def x_of(dtype: ax.DType = ax.float32, rank: int = 1) -> ax.Tensor:
    return ax.placeholder(dtype, [None] * rank, name="x")


@case(floats(4, 6), np.float32(10), np.int32([2]), floats(3, 4), floats(1, 2), x=floats(3, 4))
def arithmetic() -> Any:
    x, w = x_of(), ax.constant([1.0, 2.0])
    y = x + w
    return [y, ax.reduce_sum(y), ax.shape(y), x, w]


@case(floats(2), floats(2), floats(1), x=floats(1))
def one_feed_for_two_devices() -> Any:
    x = x_of()
    with ax.device("/cpu:0"):
        here = x + 1.0
    return [here, x * 2.0, x]


@case(np.float32([[1], [2]]), x=floats(1, 2), sizes=[2, 1])
def a_shape_that_is_fed() -> Any:
    return [ax.reshape(x_of(), ax.placeholder(ax.int32, [None], name="sizes"))]


@case(np.float32(1), x=floats(1))
def a_feed_that_is_only_waited_for() -> Any:
    with ax.control_dependencies([x_of()]):
        return [ax.constant(1.0)]


@case(np.int32(5), floats(63, 95))
def a_loop() -> Any:
    return ax.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2.0 + 1.0), [0, ax.constant([1.0, 2.0])])


@case(np.int32(3), np.float32(7))
def a_loop_in_a_loop() -> Any:
    def body(i: Any, x: Any) -> Any:
        return i + 1, ax.while_loop(lambda j, y: j < 2, lambda j, y: (j + 1, y + 1.0), [0, x])[1]

    return ax.while_loop(lambda i, x: i < 3, body, [0, 1.0])


@case(floats(2, 3), p=True, x=floats(1, 2))
def a_branch() -> Any:
    p, x = ax.placeholder(ax.bool, [], name="p"), x_of()
    return [ax.cond(p, lambda: x + 1.0, lambda: x * 2.0)]


@case(np.float32(2), i=1)
def one_of_many_branches() -> Any:
    i = ax.placeholder(ax.int32, [], name="i")
    return [ax.switch_case(i, [lambda: ax.constant(1.0), lambda: ax.constant(2.0)])]


@case(floats(2, 4, 6), floats(1, 3, 6))
def maps_and_scans() -> Any:
    values = ax.constant([1.0, 2.0, 3.0])
    return [ax.map_fn(lambda x: x * 2.0, values), ax.scan(lambda a, x: a + x, values)]


@case(floats(7, 9))
def a_function() -> Any:
    weights = ax.constant([1.0, 2.0])
    return [ax.function(lambda x: x * 2.0 + weights)(ax.constant([3.0, 3.5]))]


@case(floats(2, 4), x=floats(1, 2))
def a_batched_function() -> Any:
    return [ax.batch(max_size=4)(lambda x: x * 2.0)(x_of())]


@case(np.array([[0], [2], [4]], np.float32), np.int32(3))
def an_array_of_tensors() -> Any:
    values = ax.TensorArray(ax.float32, size=3)
    for i in range(3):
        values = values.write(i, ax.constant([float(i)]))
    return [values.stack() * 2.0, values.size()]


@case(np.float32(4))
def a_queue() -> Any:
    queue = ax.FIFOQueue(3, [ax.float32])
    with ax.control_dependencies([queue.enqueue(ax.constant(2.0))]):
        return [queue.dequeue() * 2.0]


@case(np.array([b"ab"], object), b"q", x=np.array([b"ab"], object), p=True, s=b"q")
def strings_in_branches() -> Any:
    p, x, s = ax.placeholder(ax.bool, [], name="p"), x_of(ax.string), ax.placeholder(ax.string, [], name="s")
    kept = ax.while_loop(lambda i, text: i < 3, lambda i, text: (i + 1, text), [0, s])[1]
    return [ax.cond(p, lambda: ax.identity(x), lambda: x), kept]


@case({1: 2}, p=False, x={1: 2})
def python_values_in_branches() -> Any:
    p, x = ax.placeholder(ax.bool, [], name="p"), x_of(ax.object, 0)
    return [ax.cond(p, lambda: ax.identity(x), lambda: x)]


@case(np.float16([4, 8]), np.float16([4, 8]), p=True, x=np.float16([1, 2]))
def a_dtype_that_the_library_has_not() -> Any:
    p, x = ax.placeholder(ax.bool, [], name="p"), x_of(ax.float16)
    default = ax.placeholder_with_default(x + x, [None])
    looped = ax.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + y), [0, x])[1]
    return [looped, ax.cond(p, lambda: default + default, lambda: x)]


@case(b"q", np.float16(2), x=b"q", y=np.float16(2))
def identities_of_several_dtypes() -> Any:
    inputs = [x_of(ax.string, 0), ax.placeholder(ax.float16, [], name="y")]
    return list(ax.create_op("IdentityN", [inputs], {}))


@ax.op(outputs=[ax.float32])
def plus_one(x: Any) -> Any:
    assert isinstance(x, np.generic)
    return np.float32(x + 1)


@case(np.float32(9), x=np.float32(1))
def an_op_of_the_users() -> Any:
    return [plus_one(x_of(rank=0) * 2.0) * 3.0]


@pytest.mark.parametrize("name", CASES)
async def test_what_runs_on_the_preferred_device_gives_what_the_cpu_gives(name: str, config: ax.SessionConfig) -> None:
    wanted = CASES[name]
    with ax.Graph() as graph:
        fetches = wanted.build()
    feeds = {f"{key}:0": value for key, value in wanted.feeds.items()}
    for settings in (ax.SessionConfig(), config):
        async with ax.Session(graph, config=settings) as session:
            for got, expected in zip(await session.run(fetches, feeds), wanted.expected, strict=True):
                check(got, expected)


def sum_graph() -> ax.Graph:
    with ax.Graph() as graph:
        y = ax.add(x_of(), ax.constant([1.0, 2.0]), name="y")
        ax.reduce_sum(y, name="total")
    return graph


FEED = {"x:0": floats(3, 4)}


async def test_where_it_runs() -> None:
    metadata = ax.RunMetadata()
    config = ax.SessionConfig(device_count={"CPU": 1, "STRICT": 1})
    async with ax.Session(sum_graph(), config=config) as session:
        await session.run("total:0", FEED, options=ax.RunOptions(trace=True), metadata=metadata)
    ran = {stats.device[-8:]: {node.node_name for node in stats.node_stats} for stats in metadata.step_stats.dev_stats}
    assert {"y", "total"} <= ran["STRICT:0"]


async def test_a_run_of_nothing_takes_its_feeds(config: ax.SessionConfig) -> None:
    async with ax.Session(sum_graph(), config=config) as session:
        assert await session.run([], FEED) == []
        check(await session.run("total:0", {"y:0": floats(3, 4)}), np.float32(7))


async def test_callables_and_partial_runs(config: ax.SessionConfig) -> None:
    async with ax.Session(sum_graph(), config=config) as session:
        check(await session.make_callable("y:0", ["x:0"])(floats(1, 1)), floats(2, 3))
        async with session.partial_run(["y:0", "total:0"], ["x:0"]) as step:
            await step.feed(FEED)
            check(await step.fetch("y:0"), floats(4, 6))
            check(await step.fetch("total:0"), np.float32(10))


async def test_streams_with_state(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x = x_of(rank=0)
        total = ax.stream_state(0.0)
        new = total.update(total.value + x)
        pair = [new * 1.0, x]
    async with ax.Session(graph, config=config) as session:
        found = [item async for item in session.map(pair, [{x: np.float32(i)} for i in range(5)], window=3)]
        for (sum_so_far, fed), expected in zip(found, (0, 1, 3, 6, 10), strict=True):
            check(sum_so_far, np.float32(expected))
            assert isinstance(fed, np.generic)


async def test_variables(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        variable = ax.Variable(floats(1, 1))
        doubled = ax.identity(variable) * 2.0
        more = variable.assign_add(doubled)
        in_loop = ax.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + variable), [0, ax.constant([0.0, 0.0])])[1]
    async with ax.Session(graph, config=config) as session:
        await session.run(variable.initializer)
        check(await session.run(doubled), floats(2, 2))
        await session.run(more)
        check(await session.run(variable), floats(3, 3))
        check(await session.run(in_loop), floats(9, 9))


async def test_references_in_a_frame(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        variable = ax.create_op("VariableV2", [], {"shape": [], "dtype": ax.int32}, "v")
        initialize = ax.create_op("Assign", [variable, 7]).op
        inside = ax.create_op("RefEnter", [variable], {"frame_name": "f", "is_constant": True})
        nine = ax.create_op("Enter", [9], {"frame_name": "f"})
        with ax.control_dependencies([ax.create_op("Assign", [inside, nine])]):
            left = ax.create_op("Exit", [ax.identity(inside)], {})
    async with ax.Session(graph, config=config) as session:
        await session.run(initialize)
        check(await session.run(left), np.int32(9))
        check(await session.run(variable), np.int32(9))


async def test_a_function_that_reads_a_variable_in_a_loop(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        variable = ax.Variable([1.0, 2.0, 3.0, 4.0])
        add_rows = ax.function(lambda x: x + ax.reduce_sum(ax.gather(variable, [1, 3])))
        looped = ax.function(lambda: ax.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, add_rows(x)), [0, 0.0])[1])
        out = looped()
    async with ax.Session(graph, config=config) as session:
        await session.run(variable.initializer)
        check(await session.run(out), np.float32(12))


async def test_a_feed_inside_of_a_loop_is_refused(config: ax.SessionConfig) -> None:
    inside: list[ax.Tensor] = []
    with ax.Graph() as graph:
        square = ax.square(ax.constant(2.0))
        out = ax.while_loop(lambda i: i < 9.0, lambda i: (inside.append(i), square + i)[1], [ax.constant(0.0)])[0]
    async with ax.Session(graph, config=config) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="is inside a loop"):
            await session.run(out, {inside[0]: np.float32(3)})
        check(await session.run(out), np.float32(12))


async def test_a_fed_placeholder_without_a_kernel_there_asks_for_soft_placement() -> None:
    with ax.Graph() as graph, ax.device("/device:STRICT:0"):
        x = x_of(ax.float16)
        out = x + x
    devices = {"CPU": 1, "STRICT": 1}
    async with ax.Session(graph, config=ax.SessionConfig(device_count=devices)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(out, {x: np.float16([1])})
    async with ax.Session(graph, ax.SessionConfig(device_count=devices, allow_soft_placement=True)) as session:
        check(await session.run(out, {x: np.float16([1])}), np.float16([2]))


def test_a_blocking_session() -> None:
    config = ax.SessionConfig(device_count={"CPU": 1, "STRICT": 1})
    with ax.BlockingSession(sum_graph(), config=config) as session:
        check(session.run("y:0", FEED), floats(4, 6))
