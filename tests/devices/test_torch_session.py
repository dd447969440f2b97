"""One graph over a numpy device and a torch device: the digits model split between them, and a loop that stays free."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
import asyncexec.devices
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.kernel_registry import registry as kernel_registry
from tests.running import import_all_names

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DATA = Path(ax.__file__).parent / "cli" / "demo_data"
MODEL = ax.load_graph_def(DATA / "model.pb")
with np.load(DATA / "test.npz", allow_pickle=False) as stored:
    IMAGES = dict(stored)
TORCH = "/job:localhost/replica:0/task:0/device:TORCH:0"
CONFIG = ax.SessionConfig(device_count={"CPU": 1, "TORCH": 1})
import_all_names()
create_devices(DeviceOptions({"TORCH": 1}))  # which imports what there is to import, outside of any event loop
FETCHES = ["probabilities:0", "classes:0"]


def split_model(on_torch: Any) -> tuple[ax.Graph, set[str]]:
    """The digits model, the nodes that *on_torch* chooses on torch; and the names of those that are no constants."""
    movable = [node for node in MODEL.node if node.op != "Placeholder" and "_class" not in node.attr]
    chosen = {node.name for node in movable if on_torch(node)}
    nodes = [
        node.model_copy(update={"device": "/device:TORCH:0"}) if node.name in chosen else node for node in MODEL.node
    ]
    with ax.Graph() as graph:
        ax.import_graph_def(GraphDef(node=nodes, versions=MODEL.versions))
    return graph, {node.name for node in nodes if node.name in chosen and node.op != "Const"}  # which may be folded


def at_random(seed: int) -> Any:
    generator = random.Random(seed)
    return lambda node: generator.random() < 0.5


CUTS = {
    "all": lambda node: True,
    "convolutions": lambda node: node.op in ("Conv2D", "MaxPool", "Relu"),
    "classifier": lambda node: node.name in ("MatMul", "logits", "probabilities", "classes", "w3", "w3/read"),
    "first half": lambda node: "_1" not in node.name and node.op in ("Conv2D", "BiasAdd", "Relu", "MaxPool"),
    **{f"random {seed}": at_random(seed) for seed in range(5)},
}


@pytest.mark.parametrize("cut", CUTS)
async def test_digits_are_classified_the_same_on_two_devices(cut: str) -> None:
    graph, chosen = split_model(CUTS[cut])
    metadata = ax.RunMetadata()
    async with ax.Session(graph, config=CONFIG) as session:
        for begin, end in ((0, 1), (1, 450)):
            feeds = {"images:0": IMAGES["images"][begin:end]}
            options = ax.RunOptions(trace=True)
            probabilities, classes = await session.run(FETCHES, feeds, options=options, metadata=metadata)
            assert isinstance(probabilities, np.ndarray)
            np.testing.assert_allclose(probabilities, IMAGES["tf_probabilities"][begin:end], rtol=0, atol=1e-5)
            np.testing.assert_array_equal(classes, IMAGES["tf_classes"][begin:end], strict=True)
    ran = {dev.device: {one.node_name for one in dev.node_stats} for dev in metadata.step_stats.dev_stats}
    assert chosen <= ran[TORCH]
    assert not any(name in chosen for device, names in ran.items() if device != TORCH for name in names)


async def test_taker_cannot_change_what_is_on_the_device() -> None:
    given = np.array([1, 2, 3], np.float32)
    with ax.Graph() as graph, ax.device("/device:TORCH:0"):
        x = ax.placeholder(ax.float32, [3], name="x")
        constant = ax.constant(given, name="constant")
        fetches = [constant, ax.identity(constant), ax.reshape(constant, [3, 1]), constant[1:], x, x + constant]
    given[:] = 77
    fed = np.zeros(3, np.float32)
    async with ax.Session(graph, config=CONFIG) as session:
        for _ in range(2):
            found = await session.run(fetches, {x: fed})
            flat = [value.ravel().tolist() for value in found]
            assert flat == [[1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 3], [0, 0, 0], [1, 2, 3]]
            for value in (*found[:4], found[5]):
                with pytest.raises(ValueError, match="read-only"):
                    value[:] = 77


async def test_feeds_and_fetches_of_a_torch_device_are_numpy() -> None:
    with ax.Graph() as graph, ax.device("/device:TORCH:0"):
        x = ax.placeholder(ax.float32, [None], name="x")
        ax.add(x, ax.constant([1.0, 2.0]), name="sum")
        ax.reduce_sum(x, name="total")
        ax.shape(x, name="sizes")
    async with ax.Session(graph, config=CONFIG) as session:
        fetched = await session.run(["sum:0", "total:0", "sizes:0", "x:0"], {"x:0": np.float32([3, 4])})
    expected = [np.float32([4, 6]), np.float32(7), np.int32([2]), np.float32([3, 4])]
    for got, value in zip(fetched, expected, strict=True):
        assert isinstance(got, (np.ndarray, np.generic))
        np.testing.assert_array_equal(got, value, strict=True)


async def test_what_has_no_kernel_on_torch_runs_on_the_cpu_when_placement_is_soft() -> None:
    with ax.Graph() as graph, ax.device("/device:TORCH:0"):
        x = ax.constant([2.0, 1.0, 3.0], name="x")
        ax.create_op("TopKV2", [x, ax.constant(2)], attrs={}, name="top")
        ax.negative(graph["top:0"], name="negated")
    config = CONFIG.model_copy(update={"allow_soft_placement": True})
    async with ax.Session(graph, config=config) as session:
        np.testing.assert_array_equal(await session.run("negated:0"), np.float32([-3, -2]))


async def test_a_loop_that_computes_on_torch() -> None:
    with ax.Graph() as graph:

        def body(i: Any, x: Any) -> Any:
            with ax.device("/device:TORCH:0"):
                y = x * 2.0 + 1.0
            return i + 1, y

        with ax.device("/cpu:0"):
            ax.identity(
                ax.while_loop(lambda i, x: i < 5, body, [ax.constant(0), ax.constant([1.0, 2.0])])[1], name="out"
            )
    async with ax.Session(graph, config=CONFIG) as session:
        np.testing.assert_array_equal(await session.run("out:0"), np.float32([63, 95]))


async def test_the_loop_is_free_while_torch_works() -> None:
    """The products hold their worker threads until the loop has made a hundred turns: were one in it, it made none."""
    enough = threading.Event()
    threads: set[int] = set()
    with ax.Graph() as graph, ax.device("/device:TORCH:0"):
        x = ax.placeholder(ax.float32, [None, None], name="x")
        ax.matmul(ax.matmul(x, x), x, name="out")
    found = kernel_registry.lookup("MatMul", "TORCH", {"T": ax.float32})

    def make(op: Any) -> Any:
        product: Any = found.factory(op)

        def kernel(a: Any, b: Any) -> Any:
            threads.add(threading.get_ident())
            enough.wait()
            return product(a, b)

        return kernel

    kernel_registry.register("MatMul", "TORCH", replace(found, factory=make), replace=True)
    try:
        async with ax.Session(graph, config=CONFIG) as session:
            running = asyncio.create_task(session.run("out:0", {"x:0": np.eye(2, dtype=np.float32)}))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not running.done()
            enough.set()
            np.testing.assert_array_equal(await running, np.eye(2))
    finally:
        kernel_registry.register("MatMul", "TORCH", found, replace=True)
    assert threads
    assert threading.get_ident() not in threads
