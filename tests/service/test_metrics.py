"""Metrics: what Prometheus reads of them, and that clients cannot make them grow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import asyncexec as ax
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.app import InferenceApp, create_app
from asyncexec.service.models.files import ModelSource
from asyncexec.service.observing.machine_metrics import MachineMetrics
from asyncexec.service.observing.metrics import CONTENT_TYPE
from asyncexec.service.protocol_messages import message
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums, until
from tests.service.test_server import FREE, INPUTS, call, url

pytestmark = pytest.mark.usefixtures("grpc_library", "no_lingering")

ROOT = Path(__file__).parents[2]
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
PARTS = ("queue", "compute_input", "compute_infer", "compute_output")
M = (("model", "m"), ("version", "1"))
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@asynccontextmanager
async def client_of(app: InferenceApp) -> AsyncIterator[httpx.AsyncClient]:
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def samples_of(client: httpx.AsyncClient, address: str = "/metrics") -> Samples:
    """The samples by name and labels, as Prometheus reads them; there are no two of one name and labels."""
    answer = await client.get(address)
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    families = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families)
    every = [sample for family in families for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in every}
    assert len(found) == len(every)
    return found


async def test_triton_names_and_values() -> None:
    async with client_of(create_app({"m": ModelSource(sums(), config={"max_batch_size": 8})})) as client:
        two = [{**each, "shape": [2, 3], "data": [1.0] * 6} for each in INPUTS]
        for inputs in (INPUTS, two, INPUTS[:1]):
            await client.post("/v2/models/m/infer", json={"inputs": inputs})
        found = await samples_of(client)
    assert found["nv_inference_request_success", M] == 2
    assert found["nv_inference_count", M] == 3
    assert found["nv_inference_exec_count", M] == 2
    assert found["nv_inference_pending_request_count", M] == 0
    reasons = {reason: found["nv_inference_request_failure", (*M[:1], ("reason", reason), M[1])] for reason in REASONS}
    assert reasons == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 1}
    parts = [found[f"nv_inference_{part}_duration_us", M] for part in PARTS]
    assert 0 < sum(parts) <= found["nv_inference_request_duration_us", M]
    assert found["asyncexec_run_rows_count", M] == 2
    assert found["asyncexec_run_rows_sum", M] == 3
    assert found["asyncexec_run_rows_bucket", (("le", "1.0"), *M)] == 1
    assert found["asyncexec_run_rows_bucket", (("le", "2.0"), *M)] == 2
    assert found["asyncexec_request_seconds_count", M] == found["asyncexec_queue_seconds_count", M] == 2
    assert found["asyncexec_request_seconds_bucket", (("le", "+Inf"), *M)] == 2


async def test_nodes_of_the_user_are_timed() -> None:
    @ax.op
    async def ask(x: float) -> float:
        await asyncio.sleep(0.002)
        return x

    with ax.Graph() as graph:
        ask(ax.placeholder(ax.float64, [], name="x"), name="ask")
    async with client_of(create_app({"m": graph})) as client:
        inputs = [{"name": "x", "datatype": "FP64", "shape": [], "data": [1.5]}]
        assert (await client.post("/v2/models/m/infer", json={"inputs": inputs})).status_code == 200
        found = await samples_of(client)
    node = (("model", "m"), ("node", "ask"), ("version", "1"))
    assert found["asyncexec_node_calls_total", node] == 1
    assert found["asyncexec_node_errors_total", node] == 0
    assert found["asyncexec_node_p99_seconds", node] >= 0.001


async def test_clients_choose_no_labels() -> None:
    async with client_of(create_app({"m": sums()})) as client:
        await client.get("/metrics")
        before = set(await samples_of(client))
        for i in range(20):
            await client.post(f"/v2/models/unknown{i}/infer", json={"inputs": INPUTS})
            await client.request(f"METHOD{i}", f"/path{i}")
            await client.post("/v2/models/m/infer", json={"inputs": INPUTS, "id": f"id{i}"})
        new = {name for name in set(await samples_of(client)) - before if name[0] == "asyncexec_requests_total"}
    assert new == {("asyncexec_requests_total", (("protocol", "http"), ("status", "404")))}
    assert not any("unknown" in str(name) for name in new)


@pytest.mark.allow_blocking
async def test_calls_of_both_protocols_by_status_and_bytes() -> None:
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums()}, **FREE, tokens=["secret"]) as ports,
        httpx.AsyncClient(base_url=url(ports), headers={"Authorization": "Bearer secret"}) as client,
    ):
        body = b'{"inputs": []}'
        answer = await client.post("/v2/models/m/infer", content=body)
        assert answer.status_code == 400
        assert (await client.get("/v2", headers={"Authorization": "Bearer none"})).status_code == 401
        metadata = [("authorization", "Bearer secret")]
        request = message("ModelReadyRequest")(name="m")
        response = await call(ports, "ModelReady", request, "ModelReadyResponse", metadata=metadata)
        for name, given in (("ModelMetadata", metadata), ("ServerMetadata", [])):
            with pytest.raises(Exception, match=r"NOT_FOUND|UNAUTHENTICATED"):
                await call(ports, name, message(f"{name}Request")(), f"{name}Response", metadata=given)
        await until_counted(client, "grpc", 3)
        found = await samples_of(client)

    def requests(protocol: str) -> dict[str, float]:
        labels = [(name, dict(labels)) for name, labels in found]
        return {
            each["status"]: found[name, tuple(sorted(each.items()))]
            for name, each in labels
            if name == "asyncexec_requests_total" and each["protocol"] == protocol
        }

    http = requests("http")
    assert (http["400"], http["401"]) == (1, 1)
    assert requests("grpc") == {"OK": 1, "NOT_FOUND": 1, "UNAUTHENTICATED": 1}
    assert found["asyncexec_received_bytes_total", (("protocol", "http"),)] == len(body)
    assert found["asyncexec_received_bytes_total", (("protocol", "grpc"),)] == request.ByteSize()
    assert found["asyncexec_sent_bytes_total", (("protocol", "grpc"),)] == response.ByteSize()
    assert found["asyncexec_sent_bytes_total", (("protocol", "http"),)] >= len(answer.content)
    assert found["asyncexec_requests_under_way", (("protocol", "http"),)] == 1  # the one that asks
    assert found["asyncexec_requests_under_way", (("protocol", "grpc"),)] == 0
    assert found["asyncexec_http_connections", ()] == 1


async def until_counted(client: httpx.AsyncClient, protocol: str, count: int) -> None:
    """Wait until so many calls have ended; a client knows of an answer before the call has ended."""
    while True:
        found = await samples_of(client)
        ended = [
            value
            for (name, labels), value in found.items()
            if name == "asyncexec_requests_total" and ("protocol", protocol) in labels
        ]
        if sum(ended) == count:
            return
        await asyncio.sleep(0.005)


async def test_how_late_the_loop_is() -> None:
    lag = LoopLag()
    for late_ns in (-5, 500_000, 30_000_000, 9_000_000_000):
        lag.note(late_ns)
    assert (lag.last_ns, lag.total_ns, lag.counts) == (
        9_000_000_000,
        9_030_500_000,
        [2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1],
    )
    app = create_app({"m": sums()})
    async with client_of(app) as client:
        await until(lambda: sum(app.telemetry.lag.counts) >= 2)
        found = await samples_of(client)
    assert found["asyncexec_loop_lag_seconds_bucket", (("le", "+Inf"),)] >= 2
    assert found["asyncexec_loop_lag_last_seconds", ()] >= 0


async def test_a_loop_is_looked_at_until_it_stops() -> None:
    lag = LoopLag()
    lag.start()
    lag.start()  # it looks once
    await until(lambda: sum(lag.counts) > 0)
    lag.stop()
    seen = sum(lag.counts)
    await asyncio.sleep(0.25)
    assert sum(lag.counts) == seen


async def test_the_process_tells_of_itself() -> None:
    async with client_of(create_app({"m": sums()})) as client:
        found = await samples_of(client)
    assert found["process_cpu_seconds_total", ()] > 0
    assert found["process_resident_memory_bytes", ()] > 1e6


STAT = "cpu  {} 0 {} {} {} 0 0 0 5 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n"


def told(machine: MachineMetrics) -> dict[str, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(machine)
    text = generate_latest(registry).decode()
    return {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}


def test_processor_and_memory_of_the_machine(tmp_path: Path) -> None:
    machine = MachineMetrics(tmp_path)
    assert told(machine) == {}  # there is nothing to read
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  400 kB\n")
    (tmp_path / "stat").write_text(STAT.format(100, 100, 700, 100))
    memory = {"nv_cpu_memory_total_bytes": 1_024_000, "nv_cpu_memory_used_bytes": 614_400}
    assert told(machine) == {"nv_cpu_utilization": pytest.approx(0.2), **memory}
    (tmp_path / "stat").write_text(STAT.format(160, 115, 710, 115))  # of 100 more, 25 idle
    assert told(machine) == {"nv_cpu_utilization": pytest.approx(0.75), **memory}
    (tmp_path / "stat").write_text("what is this")
    assert told(machine) == {}


@pytest.mark.allow_blocking
async def test_the_documentation_has_all_metrics_and_no_others() -> None:
    page = await asyncio.to_thread((ROOT / "docs" / "observing_a_service.md").read_text, encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`((?:nv|asyncexec)_\w+)`", row)}
    async with serving({"m": sums()}, http_port=0, grpc_port=None) as ports, httpx.AsyncClient() as client:
        text = (await client.get(f"{url(ports)}/metrics")).text
    families = list(text_string_to_metric_families(text))
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    assert told == {name for name in names if not name.startswith(("process_", "python_"))}
