"""Clusters for ONNX Runtime: which nodes they have, how they run and fail, and which way stays."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation import onnx_kernel
from asyncexec.compilation.onnx_kernel import MANY_SAMPLES, SAMPLES, Trial
from asyncexec.framework import errors
from asyncexec.process import onnx_session
from asyncexec.process.load_threads import LoadStop
from tests.process.test_load_threads import Options

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

FORCED = ax.SessionConfig(jit="onnxruntime")
X = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32)


async def run_both(graph: ax.Graph, fetches: Any, feeds: Mapping[Any, Any]) -> list[str]:
    """The names of the clusters of a signature, whose results are those of our own kernels."""
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run(fetches, feeds)
    async with ax.Session(graph, FORCED) as session:
        metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
        got = await session.run(fetches, feeds, metadata=metadata, options=options)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    (found,) = (each for each in metadata.passes if each.name == "onnx_clusters")
    assert found.graph is not None
    return [node.name for node in found.graph.node if node.op == "_OnnxCluster"]


@pytest.mark.allow_blocking
async def test_what_is_fetched_of_a_cluster_is_an_output() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        inner = ax.matmul(x, ax.constant(W), name="inner")
        y = ax.matmul(ax.raw_ops.Relu(inner), ax.constant(W), name="y")
    assert await run_both(graph, [y, inner], {x: X}) == ["y/onnx"]


@pytest.mark.allow_blocking
async def test_what_is_fed_inside_cuts_a_cluster() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        inner = ax.matmul(x, ax.constant(W), name="inner")
        y = ax.matmul(ax.raw_ops.Relu(inner), ax.constant(W), name="y")
    assert await run_both(graph, [y], {inner: X}) == ["y/onnx"]


@pytest.mark.allow_blocking
async def test_a_node_between_is_not_inside() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        first = ax.matmul(x, ax.constant(W), name="first")
        between = ax.raw_ops.Cumsum(first, ax.constant(1))
        last = ax.matmul(ax.add(between, first), ax.constant(W), name="last")
    assert sorted(await run_both(graph, [last], {x: X})) == ["first/onnx", "last/onnx"]


@pytest.mark.allow_blocking
async def test_each_branch_of_a_condition_has_its_own() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        p = ax.placeholder(ax.bool, [])
        w = ax.constant(W)
        y = ax.cond(p, lambda: ax.matmul(x, w), lambda: ax.matmul(ax.raw_ops.Neg(x), w))
    for value in (True, False):
        assert len(await run_both(graph, [y], {x: X, p: value})) == 2


@pytest.mark.allow_blocking
async def test_an_error_names_the_node_and_onnx_runtime_stays(caplog: pytest.LogCaptureFixture) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None])
        y = ax.matmul(ax.raw_ops.Relu(x), ax.constant(W), name="product")
    async with ax.Session(graph, FORCED) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run(y, {x: X[:, :3]})
        assert caught.value.node == "product"
        with caplog.at_level(logging.WARNING, "asyncexec"):
            assert (await session.run(y, {x: X})).shape == (4, 5)
    assert not [record for record in caplog.records if "ONNX Runtime" in record.message]


async def test_auto_leaves_small_products_alone() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        y = ax.matmul(x, ax.constant(W))
    async with ax.Session(graph) as session:
        metadata = ax.RunMetadata()
        await session.run(y, {x: X}, metadata=metadata)
    assert not [each for each in metadata.passes if each.name == "onnx_clusters"]


async def test_what_is_too_small_for_a_cluster_is_fused_by_us() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        y = ax.matmul(x, ax.constant(W))
        root = ax.constant(np.float32(0.5) ** np.float32(0.5))
        z = ax.raw_ops.Mul(ax.raw_ops.Mul(ax.constant(np.float32(0.5)), y), ax.raw_ops.Erfc(ax.raw_ops.Neg(y) * root))
    async with ax.Session(graph) as session:
        metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
        await session.run(z, {x: X}, metadata=metadata, options=options)
    (found,) = (each.graph for each in metadata.passes if each.name == "fuse_layers")
    assert found is not None
    assert [node.op for node in found.node if node.op.startswith("_")] == ["_FusedGelu"]


@pytest.mark.parametrize(("unit_ns", "num_samples"), [(1_000_000, SAMPLES), (1_000, MANY_SAMPLES)])
@pytest.mark.parametrize("quicker", [0, 1])
def test_the_quicker_way_stays(quicker: int, unit_ns: int, num_samples: int) -> None:
    trial = Trial()
    ways = []
    while trial.choice is None:
        way = trial.next()
        ways.append(way)
        slow_start = 20 if len(ways) <= 2 else 0
        trial.add(way, unit_ns * (slow_start + (10 if way == quicker else 15)))
    assert trial.choice == trial.rest() == quicker
    assert ways.count(0) == ways.count(1) == num_samples


@pytest.mark.parametrize(
    ("quicker", "ratio", "num_calls"),
    [(1, 5, (2, 2)), (1, 3, (2, 2)), (1, 1.5, (16, 16)), (0, 5, (2, 3)), (0, 3, (2, 3)), (0, 1.5, (16, 16))],
)
def test_what_is_clear_needs_fewer_calls(quicker: int, ratio: float, num_calls: tuple[int, int]) -> None:
    trial = Trial()
    ways = []
    while trial.choice is None:
        way = trial.next()
        ways.append(way)
        trial.add(way, 1000 if way == quicker else round(1000 * ratio))
    assert trial.choice == quicker
    assert (ways.count(0), ways.count(1)) == num_calls


@pytest.mark.parametrize(
    ("own", "onnx", "quicker"), [([20] * 3, [90, 90, 10, 10, 10, 10], 1), ([90, 10, 10, 10, 10], [20] * 9, 0)]
)
def test_first_calls_do_not_tell_that_a_way_is_slow(own: list[int], onnx: list[int], quicker: int) -> None:
    trial, times = Trial(), (own, onnx)
    while trial.choice is None:
        way = trial.next()
        trial.add(way, times[way].pop(0))
    assert trial.choice == quicker


def test_a_trial_of_quick_ways_is_settled_before_it_is_over() -> None:
    for unit_ns, is_settled in ((1_000, True), (1_000_000, False)):
        trial, settled = Trial(), []
        while trial.choice is None:
            settled.append(trial.is_settled)
            way = trial.next()
            trial.add(way, unit_ns * (10 + way))
        assert trial.is_settled
        assert settled[:4] == [False] * 4  # until both ways have had two calls
        assert settled[4:] == [is_settled] * len(settled[4:])


def decide(trial: Trial, own_ns: int, onnx_ns: int) -> int:
    """The calls of both ways that are timed until one of them is found to be the quicker one."""
    for count in range(1000):
        if trial.rest() is not None:
            return count
        way = trial.next()
        trial.add(way, onnx_ns if way else own_ns)
    raise AssertionError


def rest(trial: Trial) -> int:
    """The calls until both ways are timed again; all go the same way."""
    ways = list(itertools.takewhile(lambda way: way is not None, iter(trial.rest, "never")))
    assert set(ways) == {trial.choice}
    return 1 + len(ways)


@pytest.mark.parametrize("unit_ns", [1_000, 1_000_000])
def test_both_ways_are_timed_again_and_the_one_that_is_quicker_by_now_stays(unit_ns: int) -> None:
    trial = Trial()
    num_timed = decide(trial, 10 * unit_ns, 15 * unit_ns)
    rests = [rest(trial)]
    for _ in range(12):
        assert trial.choice == 0
        assert decide(trial, 10 * unit_ns, 15 * unit_ns) == num_timed
        rests.append(rest(trial))
    assert rests[0] >= 20 * num_timed / 2 * 1.5
    assert all(after == 2 * before or after == before == rests[-1] for before, after in itertools.pairwise(rests))
    assert rests[-1] < 500 * rests[0]
    assert decide(trial, 15 * unit_ns, 10 * unit_ns) == num_timed
    assert trial.choice == 1
    assert rest(trial) == rests[0]


def test_a_way_that_is_far_slower_is_not_tried_again() -> None:
    trial = Trial()
    decide(trial, 1_000_000, 5_000_000)
    assert [trial.rest() for _ in range(100_000)] == [0] * 100_000


def test_what_a_busy_moment_tells_later_is_not_final() -> None:
    trial = Trial()
    decide(trial, 2_000_000, 1_000_000)
    for _ in range(3):
        rest(trial)
        decide(trial, 2_000_000, 20_000_000)
        assert trial.choice == 0
    rest(trial)
    decide(trial, 2_000_000, 1_000_000)
    assert trial.choice == 1


def test_in_the_event_loop_ways_are_timed_only_once() -> None:
    trial = Trial()
    decide(trial, 10_000, 15_000)
    assert [trial.rest(is_in_loop=True) for _ in range(100_000)] == [0] * 100_000
    assert trial.rest() is None


def test_a_clock_that_stands_still_ends_a_trial() -> None:
    trial = Trial()
    for _ in range(10):
        assert decide(trial, 0, 0)
        while trial.rest() is not None:
            pass


def test_a_way_that_comes_to_no_end_is_left() -> None:
    """As where a deadline is between the two, from the first call on or later."""
    for slow in (0, 1):
        trial, ways = Trial(), []
        while trial.rest() is None:
            ways.append(trial.next())
            if ways[-1] == slow:
                trial.lose(slow)
            else:
                trial.add(ways[-1], 1_000_000)
        assert ways.count(slow) <= 4
        assert trial.choice == 1 - slow
        trial = Trial()
        decide(trial, 1_000_000 * (1 + 2 * (slow == 0)), 1_000_000 * (1 + 2 * (slow == 1)))
        rest(trial)
        while (way := trial.next()) != slow:
            trial.add(way, 1_000_000)
        trial.lose(slow)
        assert [trial.rest() for _ in range(100_000)] == [1 - slow] * 100_000


def test_a_lost_call_of_the_quicker_way_ends_a_trial_as_it_was() -> None:
    trial = Trial()
    decide(trial, 1_500_000, 1_000_000)
    rest(trial)
    assert trial.next() == 1
    trial.lose(1)
    assert 0 < rest(trial) < 10_000


def test_a_call_that_ends_after_the_others_have_told_changes_nothing() -> None:
    late, trial = Trial(), Trial()
    for each in (late, trial):
        decide(each, 1_000, 3_000)
    for _ in range(50):
        late.add(1, 10)
    assert rest(late) == rest(trial)


def test_calls_that_begin_before_one_has_ended_are_first_ones() -> None:
    trial = Trial()
    assert [trial.next() for _ in range(4)] == [1, 1, 0, 0]
    for way in (1, 1, 0, 0):
        trial.add(way, 10_000 if way else 100_000)
    assert trial.choice is None
    assert [trial.next() for _ in range(4)] == [1, 1, 0, 0]
    for way in (1, 1, 0):
        trial.add(way, 10_000)
    assert trial.choice is None


def test_calls_that_fail_tell_nothing() -> None:
    trial = Trial()
    for is_loading in (True, False) * 50:
        trial.take_back(trial.next(is_loading=is_loading))
    assert not trial.has_begun
    ways = []
    while trial.choice is None:
        ways.append(trial.next())
        trial.add(ways[-1], 10 if ways[-1] else 50)
    assert ways == [1, 1, 0, 0]


def test_calls_before_the_model_is_there_count() -> None:
    trial = Trial()
    for _ in range(3):
        assert trial.next(is_loading=True) == 0
        trial.add(0, 10_000_000)
    assert trial.next() == 1
    trial.add(1, 1_000_000)
    assert trial.choice == 1


async def test_python_waits_for_a_model_that_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, loaders = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def load(model: Any) -> Any:
        loaders.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()
        raise ValueError("no model")

    monkeypatch.setattr(onnx_kernel.OnnxKernel.__init__, "__kwdefaults__", {"clock": onnx_kernel.CLOCK, "load": load})
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [64, 512])
        y = ax.relu(ax.matmul(x, ax.constant(np.ones((512, 512), np.float32))))
    async with ax.Session(graph) as session:
        found = await session.run(y, {x: np.ones((64, 512), np.float32)})
        await begun.wait()
        assert not loaders[0].daemon
        may_end.set()
        await asyncio.to_thread(loaders[0].join)
    np.testing.assert_array_equal(found, np.full((64, 512), 512, np.float32))


async def test_a_model_is_not_loaded_for_a_session_that_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, loaders, loop = asyncio.Event(), list[threading.Thread](), asyncio.get_running_loop()

    def load(model: Any, stop: LoadStop) -> Any:
        options = Options()
        with stop.watching(options):
            loaders.append(threading.current_thread())
            loop.call_soon_threadsafe(begun.set)
            options.cancelled.wait()
            raise ValueError("model load canceled")

    monkeypatch.setattr(onnx_kernel, "load_model", load)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [64, 512])
        y = ax.relu(ax.matmul(x, ax.constant(np.ones((512, 512), np.float32))))
    async with ax.Session(graph) as session:
        await session.run(y, {x: np.ones((64, 512), np.float32)})
        await begun.wait()
    assert not any(thread.is_alive() for thread in loaders)
    assert not caplog.records


def test_a_load_that_waits_for_another_ends_when_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = LoadStop()
    stop.set()
    monkeypatch.setattr(onnx_session, "_LOOK_S", 0.001)
    with onnx_session._loading, pytest.raises(errors.CancelledError):
        onnx_session.load(None, stop)  # type: ignore[arg-type]
    assert not onnx_session._loading.locked()
