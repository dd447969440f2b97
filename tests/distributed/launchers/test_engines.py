"""Clusters by Ray and by dask: the engine starts the workers, and starts them again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.errors import UnavailableError
from tests.distributed.launchers.process_ops import exit_process, process_id

SMALL = {"include_dashboard": False, "object_store_memory": 80_000_000}

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """Overrides that of all tests: the engines keep threads and connections of their own."""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, with two CPUs."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, log_to_driver=False, **SMALL)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


class Graph:
    """A graph over two workers: the ids of their processes, and what ends the first."""

    def __init__(self) -> None:
        with ax.Graph() as self.graph:
            with ax.device("/job:worker/task:0"):
                self.first, self.ends = process_id(), exit_process(3)
            with ax.device("/job:worker/task:1"):
                self.second = process_id()


async def check(cluster: ax.Cluster) -> None:
    """Steps run over both workers, and do so again when one has died."""
    graph = Graph()
    async with cluster, ax.Session(graph.graph, cluster=cluster) as session:
        first, second = await session.run([graph.first, graph.second])
        assert len({first, second, os.getpid()}) == 3
        with pytest.raises(UnavailableError, match="/job:worker/replica:0/task:0"):
            await session.run(graph.ends)
        again, same = await session.run([graph.first, graph.second])
        assert again != first
        assert same == second


@pytest.mark.one_of("loop")
async def test_actors_of_ray(ray: Any) -> None:
    await check(ax.cluster.ray(2))
    await check(ax.cluster.ray(2))  # what the first had is free again


@pytest.mark.one_of("loop")
async def test_ray_gives_an_actor_its_resources_and_environment(ray: Any) -> None:
    with ax.Graph() as graph, ax.device("/job:gpu"):
        found = environment("FROM_RUNTIME_ENV")
    runtime_env = {"env_vars": {"FROM_RUNTIME_ENV": "yes"}}
    cluster = ax.cluster.ray(1, job="gpu", resources_per_worker={"CPU": 2}, runtime_env=runtime_env)
    async with cluster, ax.Session(graph, cluster=cluster) as session:
        assert await session.run(found) == "yes"
        assert ray.available_resources().get("CPU", 0) == 0


@ax.op(outputs=[ax.string])
def environment(name: str) -> str:
    return os.environ[name]


@pytest.mark.one_of("loop")
async def test_ray_has_no_room(ray: Any) -> None:
    with pytest.raises(UnavailableError, match=r"Ray has no room for 2 workers with \{'CPU': 100\} within 0\.5 s"):
        async with ax.cluster.ray(2, resources_per_worker={"CPU": 100}, start_timeout_s=0.5):
            pass


@pytest.mark.one_of("loop")
async def test_an_actor_that_ray_does_not_start_again(ray: Any) -> None:
    graph = Graph()
    cluster = ax.cluster.ray(2, max_restarts=0)
    async with cluster, ax.Session(graph.graph, cluster=cluster) as session:
        with pytest.raises(UnavailableError):
            await session.run(graph.ends)
        with pytest.raises(UnavailableError, match="Ray has not started /job:worker/replica:0/task:0"):
            await session.run(graph.first)
        assert await session.run(graph.second) > 0


@pytest.mark.one_of("loop")
async def test_workers_of_dask(dask_client: Any) -> None:
    await check(ax.cluster.dask(dask_client))
    await check(ax.cluster.dask(dask_client, 2))


@pytest.mark.one_of("loop")
async def test_dask_has_too_few_workers(dask_client: Any) -> None:
    with pytest.raises(UnavailableError, match=r"dask has no worker for /job:worker/replica:0/task:2 within 0\.5 s"):
        async with ax.cluster.dask(dask_client, 3, start_timeout_s=0.5):
            pass


@pytest.fixture(params=["ray", "dask"])
def engine(request: pytest.FixtureRequest) -> Callable[..., ax.Cluster]:
    """Makes a cluster of an engine, of so many workers."""
    if request.param == "dask":
        return partial(ax.cluster.dask, request.getfixturevalue("dask_client"))
    request.getfixturevalue("ray")
    return ax.cluster.ray


@pytest.mark.one_of("loop")
async def test_tls_and_a_token_of_the_user(engine: Callable[..., ax.Cluster], certificates: ax.cluster.Tls) -> None:
    settings: dict[str, Any] = {"token": "ours", "tls": certificates}
    await check(engine(2, **settings))
    cluster = engine(1, **settings)
    async with cluster:
        (worker,) = cluster._workers.values()
        for other in ({"token": "another", "tls": certificates}, {"token": "ours"}):
            with pytest.raises(ax.errors.OpError):
                async with ax.cluster.connect({"worker": [worker.address]}, reconnect_timeout_s=0.1, **other):
                    pass


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> ax.cluster.Tls:
    """Of an authority of the test, for a name that is not that of the machine."""
    trustme = pytest.importorskip("trustme")
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("cluster.internal")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate")
    issued.private_key_pem.write_to_path(folder / "key")
    authority.cert_pem.write_to_path(folder / "ca")
    files = (folder / name for name in ("certificate", "key", "ca"))
    return ax.cluster.Tls.from_files(*files, server_name="cluster.internal")


@pytest.mark.deep
@pytest.mark.allow_blocking
def test_two_nodes_of_ray() -> None:
    """The workers are on a node each.  A node that is gone is replaced, and its worker runs on the new one."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    ray.shutdown()
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SMALL})
    other = nodes.add_node(num_cpus=1, object_store_memory=80_000_000)
    try:
        ray.init(address=nodes.address, log_to_driver=False)
        ax.run(lambda: check_two_nodes(nodes, other))
    finally:
        ray.shutdown()
        nodes.shutdown()


async def check_two_nodes(nodes: Any, other: Any) -> None:
    await check(ax.cluster.ray(2, placement_strategy="STRICT_SPREAD"))
    graph = Graph()
    cluster = ax.cluster.ray(2, placement_strategy="STRICT_SPREAD")
    async with cluster, ax.Session(graph.graph, cluster=cluster) as session:
        before = await session.run([graph.first, graph.second])
        nodes.remove_node(other)
        nodes.add_node(num_cpus=1, object_store_memory=80_000_000)  # from the main thread alone
        after = await run_until_it_succeeds(session, [graph.first, graph.second])
        assert sum(one == two for one, two in zip(before, after, strict=True)) == 1
        os.kill(after[0], signal.SIGKILL)
        assert (await run_until_it_succeeds(session, [graph.first, graph.second]))[0] != after[0]


async def run_until_it_succeeds(session: ax.Session, fetches: list[ax.Tensor]) -> list[int]:
    while True:
        try:
            return [int(found) for found in await session.run(fetches)]
        except UnavailableError:
            continue
