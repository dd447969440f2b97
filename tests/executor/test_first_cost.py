"""Where a kernel runs that was never called before: what is likely to take long goes to a worker thread at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import asyncexec as ax
from asyncexec.executor.diagnostics.first_cost import first_cost_ns

MB = 2**20


def cost_ms(build: Any, *values: Any) -> float:
    with ax.Graph():
        result = build(*(ax.placeholder(ax.as_dtype(value.dtype), None) for value in values))
    return first_cost_ns(result.op, values, sum(value.nbytes for value in values)) / 1e6


def test_the_cost_follows_from_sizes_of_inputs_and_outputs() -> None:
    row, column = np.ones((1, 10_000), np.float32), np.ones((10_000, 1), np.float32)
    assert cost_ms(ax.add, row, row) < 0.5
    assert cost_ms(ax.add, row, column) > 50
    assert cost_ms(ax.exp, np.ones(20 * MB, np.float32)) > cost_ms(ax.negative, np.ones(20 * MB, np.float32)) > 5
    assert cost_ms(lambda a, b: a @ b, np.ones((700, 700), np.float32), np.ones((700, 700), np.float32)) > 5
    assert cost_ms(ax.tile, np.ones(1000, np.float32), np.array([50_000])) > 10


def test_a_rule_of_an_optimizer_that_takes_roots_costs_more_than_one_that_does_not() -> None:
    grad = np.ones(4 * MB, np.float32)

    def cost(op: str, num_scalars: int, gradient: int) -> float:
        with ax.Graph():
            handle = ax.raw_ops.VarHandleOp(dtype=ax.float32, shape=[None])
            inputs: list[Any] = [handle, *([handle, handle] if num_scalars > 1 else []), *[np.float32(1)] * num_scalars]
            inputs.insert(gradient, grad)
            apply = ax.create_op(op, inputs)
        return first_cost_ns(apply.op if isinstance(apply, ax.Tensor) else apply, [grad], grad.nbytes) / 1e6

    assert cost("ResourceApplyAdam", 6, 9) > 4 * cost("ResourceApplyGradientDescent", 1, 2) > 4


async def threads_of(fetch: Any, feeds: Any, config: ax.SessionConfig | None = None) -> dict[str, int]:
    metadata = ax.RunMetadata()
    async with ax.Session(fetch.graph, config) as session:
        await session.run(fetch, feeds, options=ax.RunOptions(trace=True), metadata=metadata)
    return {node.node_name: node.thread_id for device in metadata.step_stats.dev_stats for node in device.node_stats}


@pytest.mark.one_of("loop")
@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("tile", lambda x: ax.tile(x, [50_000], name="tile")),
        ("product", lambda x: ax.matmul(ax.reshape(x, [-1, 1]), ax.reshape(x, [1, -1]), name="product")),
        ("crossed", lambda x: ax.subtract(ax.reshape(x, [-1, 1]), ax.reshape(x, [1, -1]), name="crossed")),
    ],
)
async def test_what_a_small_input_makes_large_goes_to_a_worker_thread(name: str, build: Any) -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float32, [None])
        large = build(x)
        after = ax.add(large, 1.0, name="after")
    own = threading.get_native_id()
    threads = await threads_of(after, {x: np.ones(3000, np.float32)})
    assert threads[name] != own
    assert threads["after"] != own
    assert await threads_of(after, {x: np.ones(4, np.float32)}) == dict.fromkeys(threads, own)


@pytest.mark.one_of("loop")
async def test_long_strings_are_made_on_a_worker_thread_in_any_run() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.string, [])
        joined = ax.string_join([x, x], name="joined")
    own = threading.get_native_id()
    async with ax.Session(x.graph) as session:
        for size, is_own in ((3, True), (8 * MB, False), (3, True), (8 * MB, False)):
            metadata = ax.RunMetadata()
            options = ax.RunOptions(trace=True)
            await session.run(joined, {x: b"a" * size}, options=options, metadata=metadata)
            threads = [node.thread_id for device in metadata.step_stats.dev_stats for node in device.node_stats]
            assert (threads == [own]) == is_own


@ax.op
def grown(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.zeros(8 * MB, np.float32)


@pytest.mark.one_of("loop")
async def test_what_follows_on_something_large_goes_to_a_worker_thread() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float32, [None])
        after = ax.exp(grown(x, name="grown"), name="after")
    threads = await threads_of(after, {x: np.ones(3000, np.float32)})
    assert threads["grown"] == threading.get_native_id()  # nothing is known of it
    assert threads["after"] != threads["grown"]


@pytest.mark.one_of("loop")
async def test_what_has_been_quick_stays_inline() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        y = ax.tanh(x)
    async with ax.Session(graph) as session:
        for _ in range(3):
            assert len(await session.run(y, {x: np.ones(10, np.float32)})) == 10


@pytest.mark.one_of("loop")
async def test_what_may_take_anything_for_each_element_is_measured_on_a_worker_thread_first() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3])
        y = ax.raw_ops.Cross(x, x)
    own, found = threading.get_native_id(), []
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=10.0)) as session:
        for rows in (5, 20_000, 20_000, 5, 20_000):
            metadata = ax.RunMetadata()
            await session.run(
                y, {x: np.ones((rows, 3), np.float32)}, options=ax.RunOptions(trace=True), metadata=metadata
            )
            (node,) = (node for device in metadata.step_stats.dev_stats for node in device.node_stats)
            found.append(node.thread_id == own)
    assert found == [True, False, True, True, True]


@pytest.mark.one_of("loop")
async def test_many_texts_go_to_a_worker_thread() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.string, [None])
        lower, joined = ax.raw_ops.StringLower(x), ax.concat([x, x], 0)
    own = threading.get_native_id()
    for fetch, are_own in ((lower, False), (joined, True)):
        threads = await threads_of(fetch, {x: np.full(5000, b"A", object)})
        assert (threads[fetch.op.name] == own) == are_own


def test_a_short_text_that_is_unpacked_may_be_long() -> None:
    with ax.Graph():
        unpacked = ax.raw_ops.DecodeCompressed(ax.placeholder(ax.string, []), compression_type="GZIP")
    assert first_cost_ns(unpacked.op, [b"x" * 2000], 2000) > 1e6 > first_cost_ns(unpacked.op, [b"x" * 200], 200)


def test_what_has_a_state_is_not_sent_away_unknown_as_later_runs_would_overtake_it() -> None:
    rows = np.ones((20_000, 3), np.float32)
    assert cost_ms(lambda x: ax.raw_ops.Cross(x, x), rows) > 10
    assert cost_ms(lambda x: ax.raw_ops.RandomShuffle(x, seed=7), rows) < 0.5
