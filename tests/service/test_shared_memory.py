"""Shared memory: regions of local clients, tensors in them, and what a client may not do with them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette

import asyncexec as ax
from asyncexec.framework.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.service.http.front import http_app
from asyncexec.service.http.websocket import WebSockets
from asyncexec.service.requests import InferRequest, InferTensor, OutputOptions, SharedInput, SharedPart
from asyncexec.service.server import serving
from asyncexec.service.shared_memory import SharedMemory
from asyncexec.service.tensor_parameters import BYTE_SIZE, OFFSET, REGION
from tests.conftest import open_files
from tests.service.decoupled_models import sums_of_sequences
from tests.service.http_models import FakeRepository, made
from tests.service.models import model_of, sums
from tests.service.test_http_websocket import Socket, text

pytestmark = pytest.mark.skipif(not hasattr(os, "preadv"), reason="there is no preadv on this system")

LIMIT = 2**20
ROW = np.array([[1, 2, 3]], np.float32)
SIZE = ROW.nbytes


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    """A folder that stands for /dev/shm, with the object "rows": two rows of floats, and room for two more."""
    (tmp_path / "rows").write_bytes(ROW.tobytes() + (ROW * 10).tobytes() + bytes(2 * SIZE))
    return tmp_path


@pytest.fixture
def shared(objects: Path) -> Iterator[SharedMemory]:
    found = SharedMemory(LIMIT, objects)
    yield found
    found.unregister()


def request(
    *, x: SharedPart, y: SharedPart | None = None, into: SharedPart | None = None, shape: tuple[int, ...] = (1, 3)
) -> InferRequest:
    """x and y in shared memory, and output sum *into* it."""
    inputs = {} if y is not None else {"y": InferTensor("FP32", ROW)}
    parts = {"x": x} | ({} if y is None else {"y": y})
    options = None if into is None else {"sum": OutputOptions(part=into)}
    found = {name: SharedInput("FP32", shape, part) for name, part in parts.items()}
    return InferRequest("m", inputs, ["sum"], shared_inputs=found, output_options=options)


async def test_tensors_are_read_from_and_written_to_regions(shared: SharedMemory, objects: Path) -> None:
    shared.register("all", "/rows", 0, 4 * SIZE)
    shared.register("end", "rows", 3 * SIZE, SIZE)
    model = model_of(sums())
    into = SharedPart("end", SIZE)
    wanted = request(x=SharedPart("all", SIZE), y=SharedPart("all", SIZE, SIZE), into=into)
    response = await shared.infer(model, wanted)
    assert response.outputs["sum"].part == into
    assert np.frombuffer((objects / "rows").read_bytes()[3 * SIZE :], np.float32).tolist() == [11, 22, 33]
    beside = await shared.infer(model, request(x=SharedPart("all", SIZE, SIZE)))
    assert beside.outputs["sum"].part is None
    assert beside.outputs["sum"].array.tolist() == [[11, 22, 33]]
    await model.close()


async def test_each_of_several_answers_is_in_its_region(shared: SharedMemory, objects: Path) -> None:
    async def counted(x: Any) -> AsyncIterator[Any]:
        for i in range(2):
            yield x + i

    with ax.Graph() as graph:
        ax.placeholder(ax.float32, [3], name="x")
        ax.identity(ax.source(counted, ax.float32, [3], name="items"), name="y")
    shared.register("all", "rows", 0, 4 * SIZE)
    model = model_of(graph)
    into = SharedPart("all", SIZE, 2 * SIZE)
    inputs = {"x": SharedInput("FP32", (3,), SharedPart("all", SIZE))}
    wanted = InferRequest("m", {}, ["y"], shared_inputs=inputs, output_options={"y": OutputOptions(part=into)})
    found = []
    async with aclosing(shared.responses(model, wanted)) as responses:
        async for response in responses:
            assert response.outputs["y"].part == into
            found.append(np.frombuffer((objects / "rows").read_bytes()[2 * SIZE : 3 * SIZE], np.float32).tolist())
    assert found == [[1, 2, 3], [2, 3, 4]]
    await model.close()


@pytest.mark.allow_blocking
async def test_an_input_is_what_it_was_when_the_request_came(shared: SharedMemory, objects: Path) -> None:
    def overwrite(x: Any) -> Any:
        (objects / "rows").write_bytes(bytes(4 * SIZE))
        return x + 0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        ax.identity(ax.op(outputs=[ax.float32])(overwrite)(x), name="y")
    shared.register("all", "/rows", 0, 4 * SIZE)
    model = model_of(graph)
    asked = InferRequest("m", {}, shared_inputs={"x": SharedInput("FP32", (1, 3), SharedPart("all", SIZE))})
    with_op = await shared.infer(model, asked)
    assert with_op.outputs["y"].array.tolist() == ROW.tolist()
    await model.close()


async def test_large_and_text_tensors(shared: SharedMemory, objects: Path) -> None:
    words = b"\x01\x00\x00\x00a\x02\x00\x00\x00bc"
    (objects / "words").write_bytes(words + bytes(len(words)))
    large = np.arange(30_000, dtype=np.float32)
    (objects / "large").write_bytes(large.tobytes() * 2)
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.string, [None], name="words"), name="told")
        ax.negative(ax.placeholder(ax.float32, [None], name="large"), name="less")
    model = model_of(graph)
    shared.register("words", "words", 0, 2 * len(words))
    shared.register("large", "large", 0, 2 * large.nbytes)
    asked = InferRequest(
        "m",
        {},
        shared_inputs={
            "words": SharedInput("BYTES", (2,), SharedPart("words", len(words))),
            "large": SharedInput("FP32", (30_000,), SharedPart("large", large.nbytes)),
        },
        output_options={
            "told": OutputOptions(part=SharedPart("words", len(words), len(words))),
            "less": OutputOptions(part=SharedPart("large", large.nbytes, large.nbytes)),
        },
    )
    await shared.infer(model, asked)
    assert (objects / "words").read_bytes() == words * 2
    assert (objects / "large").read_bytes() == large.tobytes() + (-large).tobytes()
    await model.close()


@pytest.mark.parametrize("key", ["", "/", ".", "..", "/..", "a/rows", "//rows", "../rows", "rows\0", "none", "r" * 300])
async def test_a_key_is_the_name_of_an_object(shared: SharedMemory, key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="shared memory region"):
        shared.register("r", key, 0, SIZE)
    assert shared.status() == []


async def test_what_is_no_object_is_not_opened(shared: SharedMemory, objects: Path) -> None:
    (objects / "folder").mkdir()
    (objects / "link").symlink_to(objects / "rows")
    os.mkfifo(objects / "pipe")
    files = open_files()
    for key in ("folder", "link", "pipe"):
        with pytest.raises(InvalidArgumentError, match="Unable to open shared memory region: 'r'"):
            shared.register("r", key, 0, SIZE)
    assert open_files() == files


@pytest.mark.parametrize(
    ("offset", "byte_size"),
    [(0, 4 * SIZE + 1), (1, 4 * SIZE), (4 * SIZE, 1), (0, 0), (2**64 - 1, 2**64 - 1), (2**64, 1), (-1, 1), (0, True)],
)
async def test_a_region_lies_in_its_object(shared: SharedMemory, offset: int, byte_size: int) -> None:
    files = open_files()
    with pytest.raises(InvalidArgumentError, match="'r'"):
        shared.register("r", "rows", offset, byte_size)
    assert shared.status() == []
    assert open_files() == files


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (SharedPart("none", SIZE), "Unable to find shared memory region: 'none'"),
        (SharedPart("r", SIZE, 3 * SIZE), "Invalid offset"),
        (SharedPart("r", 2**64 - 1, 1), "at most 1048576 are read"),
        (SharedPart("r", SIZE, 2**64 - 1), "Invalid offset"),
        (SharedPart("r", 0), "input byte size mismatch for input 'x': expected 12, got 0"),
        (SharedPart("r", SIZE + 4), "input byte size mismatch for input 'x': expected 12, got 16"),
    ],
)
async def test_an_input_lies_in_its_region(shared: SharedMemory, part: SharedPart, told: str) -> None:
    shared.register("r", "rows", SIZE, 3 * SIZE)
    model = model_of(sums())
    with pytest.raises(OpError, match=told):
        await shared.infer(model, request(x=part))
    await model.close()


async def test_an_output_fits_into_its_part(shared: SharedMemory, objects: Path) -> None:
    shared.register("r", "rows", 0, 4 * SIZE)
    model = model_of(sums())
    before = (objects / "rows").read_bytes()
    parts = {
        SharedPart("r", SIZE - 1, 2 * SIZE): r"output 'sum' \(11 bytes\) should be at least 12 bytes",
        SharedPart("r", SIZE, 4 * SIZE): "Invalid offset",
        SharedPart("none", SIZE): "Unable to find shared memory region: 'none'",
    }
    for part, told in parts.items():
        with pytest.raises(OpError, match=told):
            await shared.infer(model, request(x=SharedPart("r", SIZE), into=part))
    assert (objects / "rows").read_bytes() == before
    await model.close()


async def test_an_object_that_is_truncated_is_an_error_and_does_not_grow(shared: SharedMemory, objects: Path) -> None:
    shared.register("r", "rows", 0, 4 * SIZE)
    os.truncate(objects / "rows", SIZE + 1)
    model = model_of(sums())
    for wanted in (
        request(x=SharedPart("r", SIZE, SIZE)),
        request(x=SharedPart("r", SIZE), into=SharedPart("r", SIZE, 2 * SIZE)),
    ):
        with pytest.raises(InvalidArgumentError, match="has become smaller"):
            await shared.infer(model, wanted)
    assert (objects / "rows").stat().st_size == SIZE + 1
    await model.close()


async def test_a_request_goes_on_with_a_region_that_is_unregistered(shared: SharedMemory, objects: Path) -> None:
    def forget(x: Any) -> Any:
        shared.unregister("r")
        return x * 2

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        ax.identity(ax.op(outputs=[ax.float32])(forget)(x), name="y")
    model = model_of(graph)
    shared.register("r", "rows", 0, 4 * SIZE)
    into = {"y": OutputOptions(part=SharedPart("r", SIZE, 2 * SIZE))}
    found = {"x": SharedInput("FP32", (1, 3), SharedPart("r", SIZE))}
    await shared.infer(model, InferRequest("m", {}, shared_inputs=found, output_options=into))
    assert np.frombuffer((objects / "rows").read_bytes()[2 * SIZE : 3 * SIZE], np.float32).tolist() == [2, 4, 6]
    with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'r'"):
        await shared.infer(model, InferRequest("m", {}, shared_inputs=found))
    await model.close()


async def test_regions_have_names_of_their_own_and_close_their_files(shared: SharedMemory) -> None:
    files = open_files()
    for name in ("a", "b", "c"):
        shared.register(name, "rows", 0, SIZE)
    with pytest.raises(AlreadyExistsError, match="shared memory region 'a' already in manager"):
        shared.register("a", "rows", 0, SIZE)
    with pytest.raises(InvalidArgumentError, match="1 to 255 characters"):
        shared.register("", "rows", 0, SIZE)
    names = [region.name for region in shared.status()]
    about = [(region.key, region.offset, region.byte_size) for region in shared.status("b")]
    assert (names, about) == (["a", "b", "c"], [("rows", 0, SIZE)])
    shared.unregister("a")
    shared.unregister("a")  # it is gone already
    with pytest.raises(NotFoundError, match="'a'"):
        shared.status("a")
    shared.unregister()
    assert shared.status() == []
    assert open_files() == files


async def test_there_is_an_end_to_regions(shared: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.service.shared_memory._MOST_REGIONS", 1)
    shared.register("a", "rows", 0, SIZE)
    with pytest.raises(ResourceExhaustedError, match="there are 1 shared memory regions"):
        shared.register("b", "rows", 0, SIZE)
    shared.unregister()


async def test_without_the_option_there_is_none() -> None:
    shared = SharedMemory()
    with pytest.raises(UnimplementedError, match="start with --shared-memory"):
        shared.register("r", "/rows", 0, SIZE)
    with pytest.raises(UnimplementedError, match="start with --shared-memory"):
        await shared.infer(model_of(sums()), request(x=SharedPart("r", SIZE)))
    assert shared.extensions == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.com"])
async def test_other_machines_share_no_memory(host: str) -> None:
    with pytest.raises(InvalidArgumentError, match="other machines may reach"):
        async with serving({"m": sums()}, host=host, http_port=0, grpc_port=None, shared_memory=True):
            pass


@pytest.fixture
async def client(shared: SharedMemory) -> AsyncIterator[httpx.AsyncClient]:
    repository = FakeRepository(made("sums", sums()))
    transport = httpx.ASGITransport(http_app(repository, LIMIT, shared=shared))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as found:
        yield found
    await repository.close()


async def test_regions_over_http(client: httpx.AsyncClient, objects: Path) -> None:
    system = "/v2/systemsharedmemory"
    about = {"name": "r", "key": "/rows", "offset": SIZE, "byte_size": 2 * SIZE}
    given = {key: about[key] for key in ("key", "offset", "byte_size")}
    assert (await client.post(f"{system}/region/r/register", json=given)).status_code == 200
    assert (await client.get(f"{system}/status")).json() == [about]
    assert (await client.get(f"{system}/region/r/status")).json() == [about]
    again = await client.post(f"{system}/region/r/register", json=given)
    assert (again.status_code, again.json()) == (400, {"error": "shared memory region 'r' already in manager"})
    part = {"shared_memory_region": "r", "shared_memory_byte_size": SIZE}
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": part}
    y = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [1, 1, 1]}
    into = {"name": "sum", "parameters": {**part, "shared_memory_offset": SIZE}}
    answer = await client.post("/v2/models/sums/infer", json={"inputs": [x, y], "outputs": [into, {"name": "diff"}]})
    assert answer.json()["outputs"] == [
        {"name": "sum", "datatype": "FP32", "shape": [1, 3], "parameters": into["parameters"]},
        {"name": "diff", "datatype": "FP32", "shape": [1, 3], "data": [9, 19, 29]},
    ]
    assert np.frombuffer((objects / "rows").read_bytes()[2 * SIZE : 3 * SIZE], np.float32).tolist() == [11, 21, 31]
    both = await client.post("/v2/models/sums/infer", json={"inputs": [{**x, "data": [1, 2, 3]}, y]})
    assert (both.status_code, both.json()) == (400, {"error": "'inputs[0]' has data, and names shared memory"})
    assert "system_shared_memory" in (await client.get("/v2")).json()["extensions"]
    assert (await client.post(f"{system}/region/r/unregister")).status_code == 200
    assert (await client.get(f"{system}/region/r/status")).status_code == 404
    assert (await client.post(f"{system}/unregister")).status_code == 200
    assert (await client.get(f"{system}/status")).json() == []


@pytest.mark.parametrize(
    "given", [{}, {"key": 1, "byte_size": 1}, {"key": "/rows"}, {"key": "/rows", "byte_size": "1"}]
)
async def test_a_wrong_registration_over_http(client: httpx.AsyncClient, given: Any) -> None:
    answer = await client.post("/v2/systemsharedmemory/region/r/register", json=given)
    assert answer.status_code == 400
    assert "'key'" in answer.text or "byte_size" in answer.text


async def test_there_is_no_memory_of_cuda(client: httpx.AsyncClient) -> None:
    cuda = "/v2/cudasharedmemory"
    assert (await client.get(f"{cuda}/status")).json() == []
    refused = await client.post(f"{cuda}/region/r/register", json={"raw_handle": {"b64": ""}, "byte_size": 1})
    assert (refused.status_code, "CUDA shared memory is not supported" in refused.text) == (501, True)
    assert (await client.post(f"{cuda}/unregister")).status_code == 200  # clients begin by giving back all of it


async def _slowly(_: int, work: Callable[[], Any]) -> Any:
    """As a thread does it that takes its time."""
    for _ in range(20):
        await asyncio.sleep(0)
    return work()


async def test_calls_of_a_sequence_come_in_their_order_though_one_is_read_slowly(
    shared: SharedMemory, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncexec.service.shared_memory.off_loop", _slowly)
    (objects / "two").write_bytes(np.array([2], np.int32).tobytes())
    shared.register("r", "two", 0, 4)
    model = model_of(sums_of_sequences(), sequence_batching={"max_sequence_idle_microseconds": 10**9})
    sockets = WebSockets(FakeRepository(model), LIMIT, shared)
    socket = Socket(Starlette(routes=list(sockets.routes())), "/v2/models/m/stream")
    assert (await socket.next())["type"] == "websocket.accept"
    there = {"name": "INPUT", "datatype": "INT32", "shape": [1], "parameters": {REGION: "r", BYTE_SIZE: 4, OFFSET: 0}}
    first = {"inputs": [there], "parameters": {"sequence_id": 1, "sequence_start": True}}
    socket.send(json.dumps(first), text([3], "INPUT", "INT32", parameters={"sequence_id": 1}))
    assert [await socket.y() for _ in range(2)] == [[2], [5]]
    await socket.close()
    await model.close()


async def test_a_model_is_not_closed_while_an_input_is_read(
    shared: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncexec.service.shared_memory.off_loop", _slowly)
    shared.register("r", "rows", 0, SIZE)
    model = model_of(sums())
    asked = asyncio.create_task(shared.infer(model, request(x=SharedPart("r", SIZE))))
    await asyncio.sleep(0)
    await model.close()
    assert (await asked).outputs["sum"].array.tolist() == [[2, 4, 6]]
