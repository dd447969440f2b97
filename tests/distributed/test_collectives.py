"""Collectives whose members are in several processes: what they give, what does not fit, and how they end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from functools import reduce as fold
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from tests.distributed.clusters import small_cluster
from tests.running import import_all_names, settle

CLIENT: Final = "/job:localhost/task:0/cpu:0"
WORKERS: Final = [f"/job:worker/task:{task}/cpu:0" for task in range(3)]
PLACES: Final = {
    "two workers": WORKERS[:2],
    "three workers": WORKERS,
    "two devices each": [f"/job:worker/task:{task}/cpu:{cpu}" for task in range(2) for cpu in range(2)],
    "the client too": [CLIENT, *WORKERS[:2]],
    "a worker and the client": [CLIENT, WORKERS[0]],
    "two devices of one worker": ["/job:worker/task:1/cpu:0", "/job:worker/task:1/cpu:1"],
}
CONFIG: Final = ax.SessionConfig(device_count={"CPU": 2})
SMALL, LARGE = [3, 5], [301, 499]  # the second goes round a ring
MERGE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    """The graph that the test builds."""
    with ax.Graph() as graph:
        yield graph


def reduced(value: Any, size: int, *, instance: int = 1, name: str | None = None, **attrs: Any) -> Any:
    attrs = {"merge_op": "Add", "final_op": "Id"} | attrs
    return ax.create_op("CollectiveReduceV2", [value, size, 1, instance, []], attrs, name)


def on_each(devices: Sequence[str], make: Callable[[int], Any]) -> list[Any]:
    """What *make* makes of a number, on each of the devices."""
    made = []
    for rank, device in enumerate(devices):
        with ax.device(device):
            made.append(make(rank))
    return made


def draw(seed: int, count: int, shape: Sequence[int], dtype: str) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [(generator.random(shape) * 20 - 10).astype(dtype) for _ in range(count)]


async def run(graph: ax.Graph, fetches: Any, feeds: Any = None, **options: Any) -> Any:
    async with (
        small_cluster(3, config=CONFIG, **options) as small,
        ax.Session(graph, CONFIG, cluster=small.cluster) as session,
    ):
        return await session.run(fetches, feeds)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("devices", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
async def test_reduce(graph: ax.Graph, devices: list[str], shape: list[int]) -> None:
    size = len(devices)
    xs = [ax.placeholder(ax.int64, shape) for _ in devices]
    nodes = on_each(devices, lambda rank: reduced(xs[rank], size))
    values = draw(1, size, shape, "int64")
    for result in await run(graph, nodes, dict(zip(xs, values, strict=True))):
        np.testing.assert_array_equal(result, sum(values))


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("merge_op", MERGE)
@pytest.mark.parametrize("final_op", ["Id", "Div"])
@pytest.mark.parametrize("dtype", ["int32", "float64", "float16"])
async def test_ops_of_reduce(graph: ax.Graph, merge_op: str, final_op: str, dtype: str) -> None:
    nodes, expected = [], []
    feeds = {}
    for instance, shape in enumerate([[], [1], [2, 0], [7], [150_001]]):
        values = draw(instance, 3, shape, dtype)
        xs = [ax.placeholder(ax.as_dtype(dtype), shape) for _ in values]
        feeds |= dict(zip(xs, values, strict=True))
        nodes.append(
            on_each(
                WORKERS,
                lambda rank, xs=xs, i=instance: reduced(xs[rank], 3, instance=i, merge_op=merge_op, final_op=final_op),
            )
        )
        with np.errstate(all="ignore"):
            total = fold(MERGE[merge_op], values)
            if final_op == "Div":
                total = np.trunc(total / 3).astype(dtype) if dtype == "int32" else (total / 3).astype(dtype)
        expected.append(total)
    for results, wanted in zip(await run(graph, nodes, feeds), expected, strict=True):
        for result in results:
            assert result.dtype == dtype
            assert result.shape == wanted.shape
            np.testing.assert_allclose(result, wanted, rtol=2e-2 if dtype == "float16" else 1e-12, atol=1e-2)
        assert len({result.tobytes() for result in results}) == 1


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("devices", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
async def test_gather_and_broadcast(graph: ax.Graph, devices: list[str], shape: list[int]) -> None:
    size = len(devices)
    xs = [ax.placeholder(ax.float32, shape) for _ in devices]

    def gather(rank: int) -> Any:
        return ax.create_op("CollectiveGatherV2", [xs[rank], size, 1, 1, []])

    def broadcast(rank: int) -> Any:
        if rank == size - 1:
            return ax.create_op("CollectiveBcastSendV2", [xs[rank], size, 1, 2])
        return ax.create_op("CollectiveBcastRecvV2", [size, 1, 2, shape], {"T": ax.float32})

    nodes = on_each(devices, lambda rank: (gather(rank), broadcast(rank)))
    values = draw(2, size, shape, "float32")
    for gathered, broadcasted in await run(graph, nodes, dict(zip(xs, values, strict=True))):
        np.testing.assert_array_equal(gathered, np.concatenate(values))
        np.testing.assert_array_equal(broadcasted, values[-1])


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("devices", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("num_columns", [3, 60_001], ids=["small", "large"])
async def test_reduce_scatter_and_all_to_all(graph: ax.Graph, devices: list[str], num_columns: int) -> None:
    size = len(devices)
    xs = [ax.placeholder(ax.int64, [2 * size, num_columns]) for _ in devices]
    attrs = {"merge_op": "Add", "final_op": "Id"}

    def make(rank: int) -> Any:
        piece = ax.create_op("CollectiveReduceScatterV2", [xs[rank], size, 1, 1, []], attrs)
        rows = ax.create_op("CollectiveAllToAllV2", [ax.reshape(xs[rank], [size, 2, -1]), size, 1, 2, []])
        return piece, rows

    values = draw(3, size, [2 * size, num_columns], "int64")
    found = await run(graph, on_each(devices, make), dict(zip(xs, values, strict=True)))
    for rank, (piece, rows) in enumerate(found):
        own = slice(2 * rank, 2 * rank + 2)
        np.testing.assert_array_equal(piece, sum(values)[own])
        np.testing.assert_array_equal(rows, np.stack([value[own] for value in values]))


@pytest.mark.parametrize(
    ("shape", "text"),
    [([], "rank > 0"), ([3], r"first dimension size \(3\) must be .* group size \(2\)")],
    ids=["scalar", "three rows"],
)
@pytest.mark.parametrize(
    ("op", "attrs"),
    [("CollectiveReduceScatterV2", {"merge_op": "Add", "final_op": "Id"}), ("CollectiveAllToAllV2", {})],
)
@pytest.mark.one_of("loop")
async def test_a_value_without_a_piece_for_each(
    graph: ax.Graph, op: str, attrs: dict[str, str], shape: list[int], text: str
) -> None:
    x = ax.placeholder(ax.float32, None)
    nodes = on_each(WORKERS[:2], lambda rank: ax.create_op(op, [x, 2, 1, 1, []], attrs))
    with pytest.raises(ax.errors.InvalidArgumentError, match=text):
        await run(graph, nodes, {x: np.ones(shape, np.float32)})


async def test_keys_that_are_attrs(graph: ax.Graph) -> None:
    keys = {"group_size": 2, "group_key": 1}
    ops = {"merge_op": "Add", "final_op": "Id", "subdiv_offsets": [0]}

    def make(rank: int) -> Any:
        value = ax.constant([float(rank)])
        total = ax.create_op("CollectiveReduce", [value], keys | ops | {"instance_key": 1})
        every = ax.create_op("CollectiveGather", [value], keys | {"instance_key": 2, "shape": [2]})
        shared = keys | {"instance_key": 3, "shape": [1]}
        if rank:
            return total, every, ax.create_op("CollectiveBcastSend", [value], shared)
        return total, every, ax.create_op("CollectiveBcastRecv", [], shared | {"T": ax.float32})

    for total, every, sent in await run(graph, on_each(WORKERS[:2], make)):
        assert (total.tolist(), every.tolist(), sent.tolist()) == ([1], [0, 1], [1])


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
async def test_sums_are_the_same_whoever_comes_first(graph: ax.Graph, shape: list[int]) -> None:
    """The members come in ten orders: each has its value only after those before it."""
    values = draw(3, 3, shape, "float32")
    turns = [ax.placeholder(ax.float32, shape) for _ in values]
    nodes = on_each(WORKERS, lambda rank: reduced(turns[rank], 3))
    found = set()
    async with (
        small_cluster(3, config=CONFIG) as small,
        ax.Session(graph, CONFIG, cluster=small.cluster) as session,
    ):
        for seed in range(10):
            async with session.partial_run(nodes, turns) as step:
                for rank in random.Random(seed).sample(range(3), 3):
                    await step.feed({turns[rank]: values[rank]})
                    await settle()
                results = await step.fetch(nodes)
            found |= {result.tobytes() for result in results}
    assert len(found) == 1
    np.testing.assert_allclose(np.frombuffer(found.pop(), np.float32).reshape(shape), sum(values), rtol=1e-4, atol=1e-4)


async def test_in_loops_that_go_round_together(graph: ax.Graph) -> None:
    """v = v + the sum of all, five times."""

    def loop(rank: int) -> Any:
        def body(i: Any, v: Any) -> Any:
            with ax.device(WORKERS[rank]):
                return i + 1, v + reduced(v, 3)

        return ax.while_loop(lambda i, v: i < 5, body, [0, ax.constant([float(rank)])])[1]

    got = [value.tolist() for value in await run(graph, on_each(WORKERS, loop))]
    values = [0.0, 1.0, 2.0]
    for _ in range(5):
        values = [value + sum(values) for value in values]
    assert got == [[value] for value in values]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda rank, x: reduced(x[rank:], 3), "InvalidArgumentError", "Shape mismatch"),
        (lambda rank, x: reduced(ax.cast(x, [ax.float32, ax.float64][rank // 2]), 3), "InternalError", "float64"),
        (lambda rank, x: reduced(x, 3 - rank // 2), "InternalError", "that group has size"),
        (lambda rank, x: reduced(x, 0), "InvalidArgumentError", "must be positive integer but got 0"),
        (lambda rank, x: reduced(x, 3, merge_op="Mul" if rank else "Add"), "InternalError", "expected (Add|Mul) and"),
        (
            lambda rank, x: ax.create_op("CollectiveBcastSendV2", [x, 3, 1, 1]),
            "InternalError",
            "Instance 1 already has source 0, received second claim from 1",
        ),
    ],
    ids=["shape", "dtype", "size", "no size", "merge op", "two sources"],
)
async def test_what_does_not_fit_ends_the_step(
    graph: ax.Graph, make: Any, kind: str, text: str, shape: list[int]
) -> None:
    x = ax.placeholder(ax.float32, shape)
    nodes, good = on_each(WORKERS, lambda rank: make(rank, x)), on_each(WORKERS, lambda _: reduced(x, 3))
    value = np.ones(shape, np.float32)
    async with (
        small_cluster(3, config=CONFIG) as small,
        ax.Session(graph, CONFIG, cluster=small.cluster) as session,
    ):
        for _ in range(2):
            with pytest.raises(getattr(ax.errors, kind), match=text) as caught:
                await session.run(nodes, {x: value})
            assert caught.value.node in {node.op.name for node in nodes}
        assert [result.max() for result in await session.run(good, {x: value})] == [3] * 3


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
async def test_steps_with_the_same_keys_do_not_mix(graph: ax.Graph, shape: list[int]) -> None:
    x = ax.placeholder(ax.float32, shape)
    nodes = on_each([CLIENT, *WORKERS[:2]], lambda _: ax.reduce_max(reduced(x, 3)))
    async with (
        small_cluster(2, config=CONFIG) as small,
        ax.Session(graph, CONFIG, cluster=small.cluster) as session,
    ):
        items = [{x: np.full(shape, i, np.float32)} for i in range(8)]
        runs = await asyncio.gather(*(session.run(nodes, item) for item in items))
        mapped = [out async for out in session.map(nodes, items)]
    assert runs == mapped == [[3 * i] * 3 for i in range(8)]
