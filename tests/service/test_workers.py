"""Models whose nodes run on workers: which cluster they get, readiness, metrics, what the live page is told, traces."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.distributed.worker import Worker
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.app import InferenceApp, create_app
from asyncexec.service.live.snapshot import snapshot
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from tests.distributed.clusters import small_cluster
from tests.distributed.test_cluster import FIRST, SECOND
from tests.service.models import sums, until, write_model

FIRST_NAME, SECOND_NAME = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"
X = {"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}


def doubling(device: str = FIRST) -> ax.Graph:
    """Input x, output y: twice that, on *device*."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        with ax.device(device):
            doubled = ax.multiply(x, 2.0)
        ax.identity(doubled, name="y")
    return graph


@asynccontextmanager
async def client_of(app: InferenceApp) -> AsyncIterator[httpx.AsyncClient]:
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def doubled(client: httpx.AsyncClient, model: str) -> Any:
    answer = await client.post(f"/v2/models/{model}/infer", json={"inputs": [X]})
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"][0]["data"]


class Restarted:
    """A cluster of two workers, of which the second is ended and started again."""

    def __init__(self, cluster: Cluster, second: Worker, address: str) -> None:
        self.cluster = cluster
        self._second = second
        self._address = address

    def is_connected(self) -> bool:
        """Whether the second worker can be reached."""
        return self.cluster.statistics()[1].is_connected

    async def end(self) -> None:
        await self._second.close()
        await until(lambda: not self.is_connected())

    async def begin(self) -> None:
        self._second = Worker("worker", 1)
        await self._second.listen(self._address)
        await until(self.is_connected)

    async def close(self) -> None:
        await self._second.close()


@pytest.fixture
async def restarted() -> AsyncIterator[Restarted]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        first = await stack.enter_async_context(Worker("worker", 0))
        second = Worker("worker", 1)
        spec = ClusterSpec(
            {"worker": [await each.listen(f"unix:{folder}/{each.name[-1]}") for each in (first, second)]}
        )
        cluster = Cluster(NoLauncher(spec))
        found = Restarted(cluster, second, spec.address("worker", 1))
        stack.push_async_callback(found.close)
        await stack.enter_async_context(cluster)
        yield found


async def test_a_model_with_a_cluster_runs_on_its_workers() -> None:
    async with small_cluster() as small:
        batching = {"max_batch_size": 4, "dynamic_batching": {}}
        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, [None, 2], name="x")
            with ax.device(SECOND):
                ax.reduce_sum(x, axis=1, keepdims=True, name="y")
        models = {
            "m": ModelSource(doubling(), cluster=small.cluster),
            "batched": ModelSource(graph, config=batching, cluster=small.cluster),
        }
        async with client_of(create_app(models)) as client:
            assert await doubled(client, "m") == [2, 4, 6]
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
            answers = await asyncio.gather(*(client.post("/v2/models/batched/infer", json=body) for _ in range(3)))
            assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[3], [3], [3]]
            assert all(worker.tensors_received for worker in small.cluster.statistics())
            assert small.workers[0].num_sessions == 2
        assert small.workers[0].num_sessions == 0


async def test_sequences_and_streams_may_run_on_workers() -> None:
    with ax.Graph() as summing:
        x = ax.placeholder(ax.float32, [1], name="x")
        state = ax.placeholder(ax.float32, [1], name="state")
        with ax.device(FIRST):
            total = ax.add(x, state)
        ax.identity(total, name="y")
    config = {
        "sequence_batching": {
            "state": [{"input_name": "state", "output_name": "total", "data_type": "TYPE_FP32", "dims": [1]}]
        }
    }
    outputs = {"y": summing.tensor("y:0"), "total": total}
    async with small_cluster() as small:
        decoupled = ModelSource(
            doubling(), config={"model_transaction_policy": {"decoupled": True}}, cluster=small.cluster
        )
        summed = ModelSource(summing, outputs=outputs, config=config, cluster=small.cluster)
        repository = ModelRepository(sources={"summed": summed, "decoupled": decoupled})
        await repository.start()
        assert repository.is_ready, repository.index()
        value = InferTensor("FP32", np.array([2], np.float32))
        answers = [
            await repository.model("summed").infer(InferRequest("summed", {"x": value}, parameters=parameters))
            for parameters in (
                {"sequence_id": 1, "sequence_start": True},
                {"sequence_id": 1, "sequence_end": True},
            )
        ]
        assert [float(answer.outputs["y"].array[0]) for answer in answers] == [2, 4]
        answer = await repository.model("decoupled").infer(InferRequest("decoupled", {"x": value}))
        assert float(answer.outputs["y"].array[0]) == 4
        await repository.close()


async def test_graphs_of_a_folder_get_the_cluster_if_they_ask_for_workers(tmp_path: Path) -> None:
    def write() -> None:
        write_model(tmp_path / "remote", doubling())
        write_model(tmp_path / "here", sums())

    await asyncio.to_thread(write)
    async with (
        small_cluster() as small,
        client_of(create_app(ModelRepository(tmp_path, cluster=small.cluster))) as client,
    ):
        assert await doubled(client, "remote") == [2, 4, 6]
        assert small.workers[0].num_sessions == 1


async def test_a_model_of_a_cluster_that_is_not_open_cannot_be_loaded() -> None:
    async with small_cluster() as small:
        pass
    repository = ModelRepository(sources={"m": ModelSource(doubling(), cluster=small.cluster)})
    await repository.start()
    ((_, _, state, reason),) = repository.index()
    assert state == "UNAVAILABLE"
    assert "this cluster is not open" in reason
    await repository.close()


async def test_a_model_is_ready_while_its_workers_are_there(restarted: Restarted) -> None:
    models = {
        "first": ModelSource(doubling(FIRST), cluster=restarted.cluster),
        "second": ModelSource(doubling(SECOND), cluster=restarted.cluster),
        "any": ModelSource(doubling("/job:worker"), cluster=restarted.cluster),  # which is the first
    }
    async with client_of(create_app(models)) as client:

        async def ready() -> dict[str, bool]:
            paths = {"": "/v2/health/ready"} | {name: f"/v2/models/{name}/ready" for name in models}
            return {name: (await client.get(path)).status_code == 200 for name, path in paths.items()}

        assert await ready() == {"": True, "first": True, "second": True, "any": True}
        assert await doubled(client, "second") == [2, 4, 6]
        await restarted.end()
        assert await ready() == {"": False, "first": True, "second": False, "any": True}
        index = (await client.post("/v2/repository/index", json={})).json()
        (told,) = [each for each in index if each["name"] == "second"]
        assert (told["state"], told["reason"]) == ("UNAVAILABLE", f"{SECOND_NAME} is not connected")
        assert await doubled(client, "first") == [2, 4, 6]
        await restarted.begin()
        assert await ready() == {"": True, "first": True, "second": True, "any": True}
        assert await doubled(client, "second") == [2, 4, 6]


async def test_an_ensemble_is_ready_while_the_workers_of_its_models_are_there(
    restarted: Restarted, tmp_path: Path
) -> None:
    config = """
        input { name: "X" data_type: TYPE_FP32 dims: [-1] } output { name: "Y" data_type: TYPE_FP32 dims: [-1] }
        ensemble_scheduling { step { model_name: "second" input_map { key: "x" value: "X" }
            output_map { key: "y" value: "Y" } } }
    """

    def write() -> None:
        write_model(tmp_path / "second", doubling(SECOND))
        (tmp_path / "all" / "1").mkdir(parents=True)
        (tmp_path / "all" / "config.pbtxt").write_text(f'platform: "ensemble" {config}', encoding="utf-8")

    await asyncio.to_thread(write)
    repository = ModelRepository(tmp_path, cluster=restarted.cluster)
    await repository.start()
    assert repository.is_model_ready("all"), repository.index()
    await restarted.end()
    assert not repository.is_model_ready("all")
    reasons = {state.name: state.reason for state in repository.index()}
    assert reasons["all"] == f"model 'second': {SECOND_NAME} is not connected"
    await restarted.begin()
    assert repository.is_model_ready("all")
    await repository.close()


async def test_metrics_of_workers(restarted: Restarted) -> None:
    models = {"m": ModelSource(doubling(SECOND), cluster=restarted.cluster), "here": sums()}
    async with client_of(create_app(models)) as client:

        async def samples(worker: str) -> dict[str, float]:
            text = (await client.get("/metrics")).text
            every = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
            labels = {"model": "m", "version": "1", "worker": worker}
            prefix = "asyncexec_worker_"
            assert {each.labels["model"] for each in every if each.name.startswith(prefix)} == {"m"}
            return {each.name.removeprefix(prefix): each.value for each in every if each.labels == labels}

        await doubled(client, "m")
        found = await samples(SECOND_NAME)
        assert 0 < found.pop("shortest_round_trip_seconds") <= found.pop("round_trip_seconds") < 60
        assert 0 <= found.pop("queued_bytes") < 1000  # that a step is to be forgotten may wait for a turn of the loop
        assert found == {
            "connected": 1,
            "running_steps": 0,
            "losses_total": 0,
            "sent_tensors_total": 1,
            "received_tensors_total": 1,
            "sent_bytes_total": 12,
            "received_bytes_total": 12,
            "tensors_from_workers_total": 0,
            "bytes_from_workers_total": 0,
        }
        await restarted.end()
        lost = await samples(SECOND_NAME)
        assert (lost["connected"], lost["losses_total"], lost["sent_bytes_total"]) == (0, 1, 12)
        assert "round_trip_seconds" not in lost
        assert (await samples(FIRST_NAME))["connected"] == 1


async def test_the_live_page_is_told_of_each_worker_once() -> None:
    async with small_cluster() as small, small_cluster(1) as other:
        sources = {
            "one": ModelSource(doubling(), cluster=small.cluster),
            "two": ModelSource(doubling(SECOND), cluster=small.cluster),
            "three": ModelSource(doubling(), cluster=other.cluster),
            "here": ModelSource(sums()),
        }
        repository = ModelRepository(sources=sources)
        await repository.start()
        value = InferTensor("FP32", np.ones(3, np.float32))
        await repository.model("two").infer(InferRequest("two", {"x": value}))
        workers = json.loads(await snapshot(repository, LoopLag()))["workers"]
        await repository.close()
    told = [(each["name"], each["models"], each["is_connected"], each["tensors_sent"]) for each in workers]
    assert told == [
        (FIRST_NAME, ["one", "two"], True, 0),
        (SECOND_NAME, ["one", "two"], True, 1),
        (FIRST_NAME, ["three"], True, 0),
    ]


async def test_a_service_without_workers_tells_of_none() -> None:
    repository = ModelRepository(sources={"m": sums()})
    await repository.start()
    assert json.loads(await snapshot(repository, LoopLag()))["workers"] == []
    await repository.close()


async def test_the_timeline_of_a_request_has_rows_of_workers(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    async with small_cluster() as small:
        models = {"m": ModelSource(doubling(), cluster=small.cluster)}
        async with client_of(create_app(models, trace_file=file)) as client:
            await client.post("/v2/trace/setting", json={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
            for _ in range(2):
                await doubled(client, "m")
    events = json.loads(await asyncio.to_thread(file.read_text))["traceEvents"]
    rows = {event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 0}
    assert rows == {"phases", "CPU:0 event loop", "worker:0 CPU:0 event loop"}
    arrows = [(event["pid"], event["id"]) for event in events if event["ph"] == "s"]
    assert {pid for pid, _ in arrows} == {0, 1}
    assert len({number for _, number in arrows}) == len(arrows)
