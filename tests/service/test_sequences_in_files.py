"""Models with sequences in a folder, over HTTP: their configuration, and how sequences end with their model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.app import create_app
from asyncexec.service.models.repository import ModelRepository
from tests.service.models import write_model

CONFIG = """
sequence_batching {
  max_sequence_idle_microseconds: 600000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 100 ] } }
  control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } }
  state {
    input_name: "IN_STATE" output_name: "OUT_STATE" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state { name: "seven" data_type: TYPE_INT32 dims: [ 1 ] data_file: "seven" }
  }
}
input { name: "x" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "y" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "id" data_type: TYPE_INT64 dims: [ 1 ] }
"""


def accumulator() -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [1], name="x")
        state = ax.placeholder(ax.int32, [1], name="IN_STATE")
        total = ax.add(state, x, name="OUT_STATE")
        ax.add(total, ax.placeholder(ax.int32, [1], name="START"), name="y")
        ax.identity(ax.placeholder(ax.int64, [1], name="CORRID"), name="id")
    return graph


def with_state_of_its_own() -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [1], name="x")
        total = ax.stream_state(ax.constant([0], ax.int32))
        ax.identity(total.update(total.value + x), name="y")
    return graph


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    def write() -> None:
        write_model(tmp_path / "sums", accumulator(), config=CONFIG)
        (tmp_path / "sums" / "initial_state").mkdir()
        (tmp_path / "sums" / "initial_state" / "seven").write_bytes(np.array([7], "<i4").tobytes())
        write_model(tmp_path / "own", with_state_of_its_own(), config="sequence_batching { }")

    await asyncio.to_thread(write)
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("own", "sums"))
    app = create_app(repository)
    transport = httpx.ASGITransport(app)
    async with app, httpx.AsyncClient(transport=transport, base_url="http://test/v2/models") as found:
        yield found


async def infer(client: httpx.AsyncClient, name: str, value: int, **place: Any) -> dict[str, Any]:
    """The outputs by name, or the error."""
    given = {"name": "x", "datatype": "INT32", "shape": [1], "data": [value]}
    parameters = {f"sequence_{key}": each for key, each in place.items()}
    answer = (await client.post(f"/{name}/infer", json={"inputs": [given], "parameters": parameters})).json()
    if "error" in answer:
        return dict(answer)
    return {output["name"]: output["data"][0] for output in answer["outputs"]}


async def test_a_configuration_of_triton(client: httpx.AsyncClient) -> None:
    told = (await client.get("/sums")).json()
    assert [each["name"] for each in told["inputs"]] == ["x"]
    assert [each["name"] for each in told["outputs"]] == ["y", "id"]
    assert await infer(client, "sums", 1, id=5, start=True) == {"y": 108, "id": 5}
    assert await infer(client, "sums", 2, id=5) == {"y": 10, "id": 5}
    assert await infer(client, "sums", 3, id=5, end=True) == {"y": 13, "id": 5}
    assert "must specify the START flag" in (await infer(client, "sums", 4, id=5))["error"]
    assert "must specify a non-zero or non-empty correlation ID" in (await infer(client, "sums", 4))["error"]


async def test_a_turn_that_comes_at_the_deadline(client: httpx.AsyncClient) -> None:
    given = {"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}
    parameters = {"sequence_id": 1, "sequence_start": True, "timeout": 1}
    answer = await client.post("/own/infer", json={"inputs": [given], "parameters": parameters})
    assert answer.status_code == 200 or "took more than its timeout" in answer.json()["error"]  # no internal error


async def test_generate_takes_sequences_too(client: httpx.AsyncClient) -> None:
    found = []
    for i in (1, 2):
        document = {"x": i, "sequence_id": "a", "parameters": {"sequence_start": i == 1}}
        found.append((await client.post("/own/generate", json=document)).json()["y"])
    assert found == [1, 3]


async def test_sequences_end_with_the_version_of_their_model(client: httpx.AsyncClient) -> None:
    assert (await infer(client, "own", 1, id="a", start=True))["y"] == 1
    metrics = (await client.get("http://test/metrics")).text
    assert 'asyncexec_sequences{model="own",version="1"} 1.0' in metrics
    assert 'asyncexec_sequences{model="sums",version="1"} 0.0' in metrics
    for call in ("unload", "load"):
        answer = await client.post(f"http://test/v2/repository/models/own/{call}", json={})
        assert answer.status_code == 200
    assert "must specify the START flag" in (await infer(client, "own", 2, id="a"))["error"]
    assert (await infer(client, "own", 3, id="a", start=True))["y"] == 3


async def test_a_config_that_is_sent_reads_no_other_files(client: httpx.AsyncClient) -> None:
    described = {"data_type": "TYPE_INT32", "dims": [1]}
    initial = {"name": "a", "data_file": "../config.pbtxt", **described}
    state = {"input_name": "IN_STATE", "output_name": "OUT_STATE", "initial_state": [initial], **described}
    config = json.dumps({"sequence_batching": {"state": [state]}})
    url = "http://test/v2/repository/models/sums/load"
    answer = await client.post(url, json={"parameters": {"config": config}})
    assert answer.status_code == 400
    assert "is in no file of the model" in answer.json()["error"]
    assert await infer(client, "sums", 1, id=1, start=True) == {"y": 108, "id": 1}  # what was there is there still
