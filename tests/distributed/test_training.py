"""Training on workers: TensorFlow's losses of data-parallel replicas, and parameters on a server of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.distributed.worker import Worker
from asyncexec.framework.graph_def import GraphDef
from tests.distributed.clusters import small_cluster
from tests.running import import_all_names

FOLDER: Final = Path(__file__).parents[1] / "golden" / "training"
FILES: Final = sorted(FOLDER.glob("*.json"))


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


@pytest.fixture(params=FILES, ids=lambda path: f"{path.stem} replicas")
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What TensorFlow was given, and what came out of it."""
    told: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return told


def imported(golden: dict[str, Any], device: str) -> ax.Graph:
    """The graph, its replicas on that device, in which ``{}`` stands for the number of one."""
    text = json.dumps(golden["graph"])
    for replica in range(len(golden["losses"][0])):
        text = text.replace(f"/job:worker/task:{replica}", device.format(replica))
    with ax.Graph() as graph:
        ax.import_graph_def(GraphDef.model_validate_json(text), name="")
    return graph


async def train(session: ax.Session, golden: dict[str, Any]) -> list[list[float]]:
    """The losses of each step."""
    replicas = range(len(golden["losses"][0]))
    await session.run("init")
    found = []
    for step in range(len(golden["losses"])):
        feeds = {f"{name}:0": np.array(values[step], np.float32) for name, values in golden["feeds"].items()}
        losses, _ = await session.run([[f"loss_{i}:0" for i in replicas], [f"train_{i}" for i in replicas]], feeds)
        found.append([float(loss) for loss in losses])
    return found


@pytest.mark.one_of("loop")
async def test_losses_of_replicas_on_workers_are_those_of_tensorflow(golden: dict[str, Any]) -> None:
    replicas = len(golden["losses"][0])
    async with (
        small_cluster(replicas) as small,
        ax.Session(imported(golden, "/job:worker/task:{}"), cluster=small.cluster) as session,
    ):
        np.testing.assert_allclose(await train(session, golden), golden["losses"], rtol=1e-4)


async def test_losses_of_replicas_in_one_process(golden: dict[str, Any]) -> None:
    replicas = len(golden["losses"][0])
    config = ax.SessionConfig(device_count={"CPU": replicas})
    async with ax.Session(imported(golden, "/cpu:{}"), config) as session:
        np.testing.assert_allclose(await train(session, golden), golden["losses"], rtol=1e-4)


@contextlib.asynccontextmanager
async def with_server(num_workers: int) -> AsyncIterator[Cluster]:
    """A cluster of a parameter server and workers."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = [("ps", 0), *(("worker", task) for task in range(num_workers))]
        workers = [await stack.enter_async_context(Worker(*job)) for job in jobs]
        addresses = [await worker.listen(f"unix:{folder}/{i}") for i, worker in enumerate(workers)]
        spec = ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
        yield await stack.enter_async_context(Cluster(NoLauncher(spec)))


async def test_parameters_on_a_server_with_asynchronous_updates() -> None:
    """Each worker trains at its own pace: no update is lost, and both find the weights that made the data."""
    server, rounds, workers = "/job:ps/task:0", 60, range(2)
    truth = np.array([[1.0], [-2.0], [0.5]])
    draw = np.random.default_rng(0)
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float64, [None, 3]), ax.placeholder(ax.float64, [None, 1])
        with ax.device(server):
            weights = ax.Variable(np.zeros([3, 1]), name="weights")
            num_updates = ax.Variable(0, name="num_updates")
            read = weights.read_value()
        train = []
        for task in workers:
            with ax.device(f"/job:worker/task:{task}"):
                gradient = ax.matmul(x, ax.matmul(x, read) - y, transpose_a=True) / 8.0
            with ax.device(server):
                train.append([weights.assign_sub(gradient * 0.2), num_updates.assign_add(1)])

        init = ax.global_variables_initializer()

    async def work(session: ax.Session, targets: list[Any]) -> None:
        for _ in range(rounds):
            batch = draw.normal(size=[8, 3])
            await session.run([], {x: batch, y: batch @ truth}, targets=targets)

    async with with_server(len(workers)) as cluster, ax.Session(graph, cluster=cluster) as session:
        await session.run(init)
        await asyncio.gather(*(work(session, targets) for targets in train))
        found, count = await session.run([weights, num_updates])
        np.testing.assert_allclose(found, truth, atol=1e-3)
        assert count == rounds * len(workers)
