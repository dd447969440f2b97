"""The gRPC front: each call, tensors both ways, what is refused and how, streams, and clients that go away."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import Code, error_class
from asyncexec.framework.kernel import KernelKind
from asyncexec.service import exchange
from asyncexec.service.datatypes import to_raw
from asyncexec.service.grpc import front as grpc_front
from asyncexec.service.grpc import stream as grpc_stream
from asyncexec.service.grpc.codec import parameters_of, set_parameters
from asyncexec.service.grpc.front import grpc_handler
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository, ModelState
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.requests import InferRequest, InferResponse
from tests.running import raw_op
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import model_of, sums, until

pytestmark = pytest.mark.usefixtures("grpc_library")

MOST_WAITING = 16  # of a stream
DTYPES: dict[str, tuple[ax.DType, str, list[Any]]] = {
    "BOOL": (ax.bool, "bool_contents", [True, False]),
    "INT8": (ax.int8, "int_contents", [-128, 127]),
    "INT16": (ax.int16, "int_contents", [-(2**15), 2**15 - 1]),
    "INT32": (ax.int32, "int_contents", [-(2**31), 2**31 - 1]),
    "INT64": (ax.int64, "int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": (ax.uint8, "uint_contents", [0, 255]),
    "UINT16": (ax.uint16, "uint_contents", [0, 2**16 - 1]),
    "UINT32": (ax.uint32, "uint_contents", [0, 2**32 - 1]),
    "UINT64": (ax.uint64, "uint64_contents", [0, 2**64 - 1]),
    "FP32": (ax.float32, "fp32_contents", [1.5, -np.inf]),
    "FP64": (ax.float64, "fp64_contents", [0.1, -np.inf]),
    "BYTES": (ax.string, "bytes_contents", [b"", b"\xff\0a"]),
    "FP16": (ax.float16, "", [1.5, -2.0]),
    "BF16": (ax.bfloat16, "", [1.5, -2.0]),
}

CALLS = """
    ServerLive ServerReady ModelReady ServerMetadata ModelMetadata ModelInfer ModelStreamInfer ModelConfig
    ModelStatistics RepositoryIndex RepositoryModelLoad RepositoryModelUnload SystemSharedMemoryStatus
    SystemSharedMemoryRegister SystemSharedMemoryUnregister CudaSharedMemoryStatus CudaSharedMemoryRegister
    CudaSharedMemoryUnregister TraceSetting LogSettings
""".split()


class Served(ModelRepository):
    """The models that a test gives it."""

    def __init__(self, *models: Any) -> None:
        super().__init__()
        self.served: dict[str, list[Any]] = {}
        for model in models:
            self.served.setdefault(model.name, []).append(model)
        self.done: list[tuple[Any, ...]] = []

    def model(self, name: str, version: str = "") -> Model:
        for model in reversed(self.served.get(name, [])):
            if version in ("", model.version):
                return model
        raise ax.errors.NotFoundError(f"Request for unknown model: '{name}' is not found")

    def versions(self, name: str) -> list[str]:
        self.model(name)
        return [model.version for model in self.served[name]]

    def models(self) -> list[Model]:
        return [model for models in self.served.values() for model in models]

    def is_model_ready(self, name: str, version: str = "") -> bool:
        return any(version in ("", model.version) for model in self.served.get(name, []))

    @property
    def is_ready(self) -> bool:
        return bool(self.served)

    def index(self, *, is_ready: bool = False) -> list[ModelState]:
        ready = [ModelState(model.name, model.version, "READY", "") for model in self.models()]
        return ready if is_ready else [*ready, ModelState("broken", "1", "UNAVAILABLE", "it is broken")]

    async def load(self, name: str, parameters: Mapping[str, str | bytes | bool | int] | None = None) -> None:
        self.done.append(("load", name, parameters))

    async def unload(self, name: str) -> None:
        self.model(name)
        self.done.append(("unload", name))


class Stub:
    """What stands for a model, and calls *infer*."""

    version = "1"
    is_decoupled = False

    def __init__(self, infer: Callable[[InferRequest], Awaitable[InferResponse]], name: str = "m") -> None:
        self.name = name
        self.infer = infer

    async def responses(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        yield await self.infer(request)

    async def close(self) -> None:
        pass


class Client:
    """Calls of a server by their names."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def begin(self, name: str, request: Any, timeout: float | None = 60) -> Any:
        """The call *name* with *request*, a message or bytes."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        response_class = message(f"{name}Response")
        return self.channel.unary_unary(f"/{SERVICE}/{name}", None, response_class.FromString)(data, timeout=timeout)

    async def __call__(self, name: str, /, **fields: Any) -> Any:
        return await self.begin(name, message(f"{name}Request")(**fields))

    async def refused(self, name: str, /, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """How the call fails."""
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self(name, **fields)
        return raised.value.code(), raised.value.details()

    def stream(self, timeout: float | None = 60, **options: Any) -> Any:
        """A call of ModelStreamInfer."""
        response_class = message("ModelStreamInferResponse")
        return self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", None, response_class.FromString)(
            timeout=timeout, **options
        )


@asynccontextmanager
async def serving(repository: Served, **config: Any) -> AsyncIterator[Client]:
    """A client of a server of *repository*, whose models are closed at the end."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc_handler(repository),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with nothing_of_grpc_left():
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Client(channel)
        finally:
            await server.stop(None)
            for model in repository.models():
                await model.close()
            del server, channel


def infer_request(
    inputs: Mapping[str, tuple[str, Sequence[int], bytes | dict[str, Any]]],
    outputs: Sequence[str] = (),
    **fields: Any,
) -> Any:
    """A ModelInferRequest; data of inputs that is bytes is raw, other are fields of their contents."""
    fields = {"model_name": "m", **fields}
    request = message("ModelInferRequest")(**fields)
    for name, (datatype, shape, data) in inputs.items():
        given = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if isinstance(data, bytes):
            request.raw_input_contents.append(data)
        else:
            given.contents.SetInParent()
            for field, elements in data.items():
                getattr(given.contents, field).extend(elements)
    for name in outputs:
        request.outputs.add(name=name)
    return request


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def sums_request(x: float = 5, y: float = 2, outputs: Sequence[str] = (), **fields: Any) -> Any:
    inputs = {"x": ("FP32", [1, 3], floats(x, x, x)), "y": ("FP32", [1, 3], floats(y, y, y))}
    return infer_request(inputs, outputs, **fields)


def echo(dtype: ax.DType) -> Model:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(dtype, None, name="x"), name="y")
    return model_of(graph)


class CallDetails(grpc.HandlerCallDetails):
    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


class Gate:
    """A model whose runs wait until they are let through, each by the number that it is called with."""

    def __init__(self) -> None:
        self.inside = 0
        self.begun: asyncio.Queue[int] = asyncio.Queue()
        self.cancelled: asyncio.Queue[int] = asyncio.Queue()
        self.gates = [asyncio.Event() for _ in range(100)]
        with ax.Graph() as graph:
            x = ax.placeholder(ax.int32, [], name="x")
            ax.identity(raw_op("Wait", self._wait, kind=KernelKind.ASYNC, dtype=ax.int32)(x), name="y")
        self.model = model_of(graph)

    async def _wait(self, value: Any) -> Any:
        number = int(value)
        self.inside += 1
        self.begun.put_nowait(number)
        try:
            await self.gates[number].wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(number)
            raise
        finally:
            self.inside -= 1
        return value

    def request(self, number: int, **fields: Any) -> Any:
        return infer_request({"x": ("INT32", [], struct.pack("<i", number))}, id=str(number), **fields)

    def open(self, *numbers: int) -> None:
        for number in numbers:
            self.gates[number].set()

    async def take(self, queue: asyncio.Queue[int], count: int) -> list[int]:
        """The next *count* numbers of *queue*, sorted."""
        return sorted([await asyncio.wait_for(queue.get(), 30) for _ in range(count)])


# Health, metadata, statistics


def test_every_call_of_the_service_is_there() -> None:
    handler = grpc_handler(Served())
    assert [name for name in CALLS if handler.service(CallDetails(f"/{SERVICE}/{name}")) is None] == []
    assert handler.service(CallDetails(f"/{SERVICE}/Other")) is None


async def test_health() -> None:
    async with serving(Served(model_of(sums()))) as client:
        assert (await client("ServerLive")).live
        assert (await client("ServerReady")).ready
        assert (await client("ModelReady", name="m")).ready
        assert (await client("ModelReady", name="m", version="1")).ready
        assert not (await client("ModelReady", name="m", version="2")).ready
        assert not (await client("ModelReady", name="other")).ready


async def test_a_server_without_its_models_is_not_ready() -> None:
    async with serving(Served()) as client:
        assert (await client("ServerLive")).live
        assert not (await client("ServerReady")).ready


async def test_server_metadata() -> None:
    async with serving(Served()) as client:
        told = await client("ServerMetadata")
        assert (told.name, told.version) == ("asyncexec", "0.1.0")
        known = {"binary_tensor_data", "classification", "statistics", "model_repository", "model_configuration"}
        assert {*told.extensions} == {*known, "schedule_policy", "sequence", "sequence(string_id)", "trace", "logging"}


async def test_model_metadata_and_config() -> None:
    model = model_of(sums(), max_batch_size=8, platform="graphs")
    async with serving(Served(model)) as client:
        told = await client("ModelMetadata", name="m")
        assert (told.name, list(told.versions), told.platform) == ("m", ["1"], model.config.platform)
        assert [(each.name, each.datatype, list(each.shape)) for each in told.inputs] == [
            ("x", "FP32", [-1, 3]),
            ("y", "FP32", [-1, 3]),
        ]
        assert [each.name for each in told.outputs] == ["sum", "diff"]
        assert (await client("ModelConfig", name="m", version="1")).config == model.config
        unknown = (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found")
        assert await client.refused("ModelMetadata", name="m", version="7") == unknown
        assert await client.refused("ModelConfig", name="m", version="7") == unknown


async def test_statistics_of_one_and_of_all() -> None:
    other = model_of(sums())
    other.name = "n"
    async with serving(Served(model_of(sums(), max_batch_size=8), other)) as client:
        two_rows = {name: ("FP32", [2, 3], bytes(24)) for name in "xy"}
        await client.begin("ModelInfer", infer_request(two_rows))
        with pytest.raises(grpc.aio.AioRpcError):
            await client.begin("ModelInfer", sums_request(outputs=["z"]))
        (told,) = (await client("ModelStatistics", name="m")).model_stats
        assert (told.name, told.version) == ("m", "1")
        assert (told.inference_count, told.execution_count) == (2, 1)
        assert told.last_inference > 1_600_000_000_000
        counts = told.inference_stats
        assert (counts.success.count, counts.fail.count) == (1, 1)
        for duration in (counts.success, counts.compute_input, counts.compute_infer, counts.compute_output):
            assert duration.count == 1
            assert duration.ns > 0
        assert (counts.queue.count, counts.cache_hit.count) == (1, 0)
        (size,) = told.batch_stats
        assert (size.batch_size, size.compute_infer.count) == (2, 1)
        assert size.compute_infer.ns == counts.compute_infer.ns
        assert [each.name for each in (await client("ModelStatistics")).model_stats] == ["m", "n"]
        assert len((await client("ModelStatistics", name="n", version="1")).model_stats) == 1
        assert (await client.refused("ModelStatistics", name="other"))[0] is grpc.StatusCode.NOT_FOUND


async def test_the_repository_is_listed_and_changed() -> None:
    repository = Served(model_of(sums()))
    async with serving(repository) as client:
        every = (await client("RepositoryIndex")).models
        assert [(each.name, each.version, each.state, each.reason) for each in every] == [
            ("m", "1", "READY", ""),
            ("broken", "1", "UNAVAILABLE", "it is broken"),
        ]
        assert [each.name for each in (await client("RepositoryIndex", ready=True)).models] == ["m"]
        parameters: dict[str, dict[str, Any]] = {
            "config": {"string_param": "{}"},
            "file:1/model.pb": {"bytes_param": b"\0"},
            "n": {"int64_param": -1},
            "b": {"bool_param": True},
        }
        await client("RepositoryModelLoad", model_name="m", parameters=parameters)
        await client("RepositoryModelUnload", model_name="m")
        plain = {"config": "{}", "file:1/model.pb": b"\0", "n": -1, "b": True}
        assert repository.done == [("load", "m", plain), ("unload", "m")]
        status, _ = await client.refused("RepositoryModelUnload", model_name="other")
        assert status is grpc.StatusCode.NOT_FOUND
        for name in ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"):
            assert await client.refused(name, repository_name="r") == (
                grpc.StatusCode.UNIMPLEMENTED,
                "'repository_name' specification is not supported",
            )


async def test_what_is_not_supported_says_so() -> None:
    async with serving(Served()) as client:
        assert not (await client("SystemSharedMemoryStatus")).regions
        assert not (await client("CudaSharedMemoryStatus")).regions
        status, told = await client.refused("SystemSharedMemoryRegister", name="region")
        assert (status, told[:30]) == (grpc.StatusCode.UNIMPLEMENTED, "shared memory is not supported")
        await client("CudaSharedMemoryUnregister")
        assert (await client.refused("CudaSharedMemoryRegister"))[0] is grpc.StatusCode.UNIMPLEMENTED


# Tensors


@pytest.mark.parametrize("datatype", DTYPES)
async def test_raw_tensors_come_back(datatype: str) -> None:
    dtype, _, elements = DTYPES[datatype]
    raw = to_raw(np.array(elements, dtype.as_numpy_dtype))
    async with serving(Served(echo(dtype))) as client:
        response = await client.begin("ModelInfer", infer_request({"x": (datatype, [2, 1], raw)}))
        (output,) = response.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, [2, 1])
        assert list(response.raw_output_contents) == [raw]
        assert not output.HasField("contents")


@pytest.mark.parametrize("datatype", [name for name, (_, field, _) in DTYPES.items() if field])
async def test_typed_tensors_come_back_raw(datatype: str) -> None:
    dtype, field, elements = DTYPES[datatype]
    async with serving(Served(echo(dtype))) as client:
        response = await client.begin("ModelInfer", infer_request({"x": (datatype, [2, 1], {field: elements})}))
        assert list(response.raw_output_contents) == [to_raw(np.array(elements, dtype.as_numpy_dtype))]
        response = await client.begin("ModelInfer", infer_request({"x": (datatype, [0, 4], {})}))
        assert (list(response.outputs[0].shape), list(response.raw_output_contents)) == ([0, 4], [b""])
        response = await client.begin("ModelInfer", infer_request({"x": (datatype, [], {field: elements[1:]})}))
        assert response.outputs[0].shape == []
        assert list(response.raw_output_contents) == [to_raw(np.array(elements[1:], dtype.as_numpy_dtype))]


@pytest.mark.parametrize(
    ("datatype", "element"), [("INT8", 128), ("INT8", -129), ("INT16", 2**15), ("UINT8", 256), ("UINT16", 2**16)]
)
async def test_elements_out_of_range_are_refused(datatype: str, element: int) -> None:
    dtype, field, _ = DTYPES[datatype]
    async with serving(Served(echo(dtype))) as client:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.begin("ModelInfer", infer_request({"x": (datatype, [1], {field: [element]})}))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert raised.value.details() == f"input 'x' has elements that {datatype} cannot hold"


async def test_outputs_come_as_they_are_asked_for() -> None:
    async with serving(Served(model_of(sums()))) as client:
        response = await client.begin("ModelInfer", sums_request(outputs=["diff", "sum"], id="a", model_version="1"))
        assert (response.model_name, response.model_version, response.id) == ("m", "1", "a")
        assert [output.name for output in response.outputs] == ["diff", "sum"]
        assert list(response.raw_output_contents) == [floats(3, 3, 3), floats(7, 7, 7)]
        response = await client.begin("ModelInfer", sums_request(outputs=["sum"]))
        assert list(response.raw_output_contents) == [floats(7, 7, 7)]


X: tuple[str, list[int], bytes] = ("FP32", [1, 3], bytes(12))
TYPED: dict[str, Any] = {"fp32_contents": [1, 2, 3]}


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"x": X}, "expected 2 inputs but got 1 inputs"),
        ({"x": X, "z": X}, "unexpected inference input 'z' for model 'm'; allowed inputs are: x, y"),
        ({"x": X, "y": ("FP32", [1, 4], bytes(16))}, "unexpected shape for input 'y' for model 'm'"),
        ({"x": X, "y": ("INT32", [1, 3], bytes(12))}, "data-type is 'INT32'"),
        ({"x": X, "y": ("FP33", [1, 3], bytes(12))}, "unknown data-type 'FP33'"),
        ({"x": X, "y": ("FP32", [1, 3], bytes(11))}, "expected 12, got 11"),
        ({"x": X, "y": ("FP32", [-1, 3], bytes(12))}, "the shape of input 'y'"),
        ({"x": X, "y": ("FP32", [2**40, 2**40], bytes(12))}, "is too large"),
        ({"x": X, "y": ("BYTES", [1], b"\xff\xff\xff\xff")}, "incomplete string data"),
        ({"x": X, "y": ("FP32", [1, 3], TYPED)}, "raw_input_contents has 1 elements for 2 inputs"),
        ({"x": ("FP32", [1, 3], TYPED), "y": ("FP32", [1, 2], TYPED)}, "got 3 elements, expected 2"),
        ({"x": ("FP32", [2**62, 2**62], TYPED)}, "is too large"),
        ({"x": ("FP32", [2**39], TYPED)}, "got 3 elements, expected 549755813888"),
        ({"x": ("INT32", [3], TYPED)}, "its data belongs into int_contents, not into fp32_contents"),
        ({"x": ("FP32", [3], {**TYPED, "bool_contents": [True]})}, "not into bool_contents"),
        ({"x": ("FP16", [3], TYPED)}, "is FP16, which is sent in raw_input_contents"),
        ({"x": ("FP33", [3], TYPED)}, "unknown data-type 'FP33'"),
        ({"x": ("FP32", [-1], {})}, "the shape of input 'x'"),
    ],
)
async def test_inputs_that_do_not_fit_are_refused(inputs: Any, told: str) -> None:
    async with serving(Served(model_of(sums()))) as client:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.begin("ModelInfer", infer_request(inputs))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert told in raised.value.details()


async def test_other_requests_that_mean_nothing_are_refused() -> None:
    twice = sums_request()
    twice.inputs[1].name = "x"
    both = sums_request()
    both.inputs[0].contents.fp32_contents.append(1)
    more = sums_request()
    more.raw_input_contents.append(b"")
    empty = sums_request()
    empty.parameters["p"].SetInParent()
    late = sums_request(parameters={"timeout": {"string_param": "soon"}})
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    refused: list[tuple[Any, grpc.StatusCode, str]] = [
        (twice, invalid, "input 'x' is given twice"),
        (both, invalid, "contents field must not be specified when using raw_input_contents for 'x'"),
        (more, invalid, "raw_input_contents has 3 elements for 2 inputs"),
        (empty, invalid, "parameter 'p' has no value"),
        (late, invalid, "parameter 'timeout' is a number of microseconds"),
        (sums_request(outputs=["z"]), invalid, "unexpected inference output 'z'"),
        (b"\xff\xff", invalid, "the request is no ModelInferRequest"),
        (sums_request(model_name="n"), grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'n'"),
        (sums_request(model_version="2"), grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm'"),
    ]
    for field, tensors in (("shared_memory_region", "inputs"), ("shared_memory_region", "outputs")):
        request = sums_request(outputs=["sum"])
        parameters = getattr(request, tensors)[0].parameters
        parameters[field].string_param = "region"
        unsized = sums_request(outputs=["sum"])
        unsized.CopyFrom(request)
        refused.append((unsized, invalid, "has the parameter 'shared_memory_region', and no 'shared_memory_byte_size'"))
        parameters["shared_memory_byte_size"].int64_param = 12
        told = "raw_input_contents has 2 elements for 1 inputs" if tensors == "inputs" else ""
        refused.append((request, invalid, told) if told else (request, grpc.StatusCode.UNIMPLEMENTED, "shared memory"))
    classified = sums_request(outputs=["sum"])
    classified.outputs[0].parameters["classification"].int64_param = -1
    refused.append((classified, invalid, "parameter 'classification' of 'sum' is an integer from 0"))
    async with serving(Served(model_of(sums()))) as client:
        for request, status, told in refused:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await client.begin("ModelInfer", request)
            assert raised.value.code() is status
            assert told in raised.value.details()


async def test_parameters_reach_the_model_and_come_back() -> None:
    got: list[InferRequest] = []

    async def infer(request: InferRequest) -> InferResponse:
        got.append(request)
        return InferResponse("m", "1", request.id, {}, request.parameters)

    given = {"a": True, "b": -3, "c": "text", "d": 0.5, "e": 2**64 - 1, "f": 2**63 - 1}
    request = message("ModelInferRequest")(model_name="m")
    set_parameters(request.parameters, given)
    async with serving(Served(Stub(infer))) as client:
        response = await client.begin("ModelInfer", request)
    assert got[0].parameters == given
    assert got[0].outputs is None
    assert parameters_of(response.parameters) == given


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"inputs": [{"name": str(i)} for i in range(1001)]}, "the request has 1001 inputs: at most 1000"),
        ({"outputs": [{"name": "y"}] * 1001}, "the request has 1001 outputs: at most 1000"),
        ({"parameters": {str(i): {} for i in range(10_001)}}, "there are 10001 parameters: at most 10000"),
        (
            {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2**22 + 1]}]},
            "a tensor of BYTES has at most 4194304",
        ),
    ],
)
async def test_requests_of_very_many_parts_are_refused(fields: Any, told: str) -> None:
    async with serving(Served(model_of(sums()))) as client:
        status, details = await client.refused("ModelInfer", model_name="m", **fields)
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert told in details


@pytest.mark.parametrize("is_stream", [False, True])
async def test_large_messages_are_worked_on_outside_the_loop(monkeypatch: pytest.MonkeyPatch, is_stream: bool) -> None:
    threads: dict[str, list[bool]] = {"request_of": [], "fill_response": []}
    loop_thread = threading.get_ident()

    def noted(name: str, work: Callable[..., Any], *args: Any) -> Any:
        threads[name].append(threading.get_ident() == loop_thread)
        return work(*args)

    module = grpc_stream if is_stream else grpc_front
    for name in threads:
        monkeypatch.setattr(module, name, partial(noted, name, getattr(module, name)))
    async with serving(Served(echo(ax.float32))) as client:
        for count in (4, 2**15):
            request = infer_request({"x": ("FP32", [count], bytes(4 * count))})
            if is_stream:
                stream = client.stream()
                await stream.write(request.SerializeToString())
                await stream.done_writing()
                (answer,) = await rest_of(stream)
                response = answer.infer_response
            else:
                response = await client.begin("ModelInfer", request)
            assert len(response.raw_output_contents[0]) == 4 * count
    assert threads == {"request_of": [True, False], "fill_response": [True, False]}


# Errors


@pytest.mark.parametrize("code", [code for code in Code if code])
async def test_errors_become_statuses_of_their_name(code: Code) -> None:
    async def infer(request: InferRequest) -> InferResponse:
        raise error_class(code)("it is so", hint="do this")

    async with serving(Served(Stub(infer))) as client:
        expected = (grpc.StatusCode[code.name], "it is so; do this")
        if code is Code.RESOURCE_EXHAUSTED:  # its hint is for those who configure the server
            expected = (grpc.StatusCode.UNAVAILABLE, "it is so")
        assert await client.refused("ModelInfer", model_name="m") == expected


async def test_exceptions_of_the_code_of_a_model_are_not_the_fault_of_the_client() -> None:
    raised: list[Exception] = [
        ValueError("no such thing"),
        KeyError(),
        ax.errors.InvalidArgumentError("it is not so"),
        ax.errors.InvalidArgumentError("it cannot be read"),
    ]
    raised[3].__cause__ = ValueError("cut short")

    def fail(value: Any) -> Any:
        raise raised[int(value)]

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        ax.identity(raw_op("Fail", fail, dtype=ax.int32)(x, name="f"), name="y")
    told = []
    async with serving(Served(model_of(graph))) as client:
        for number in range(len(raised)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.begin("ModelInfer", infer_request({"x": ("INT32", [], struct.pack("<i", number))}))
            told.append((refused.value.code().name, refused.value.details()))
    place = "\n  [[{{node f}} = Fail]]"
    assert told == [
        ("INTERNAL", f"ValueError: no such thing{place}"),
        ("INTERNAL", f"KeyError{place}"),
        ("INVALID_ARGUMENT", f"it is not so{place}"),
        ("INVALID_ARGUMENT", f"it cannot be read{place}"),
    ]


async def test_of_an_error_of_a_node_the_line_and_the_hint_are_not_sent() -> None:
    async def infer(request: InferRequest) -> InferResponse:
        raise ax.errors.AbortedError("it is so", node="f", op="F", user_line="graph.py:1", hint="do this")

    async with serving(Served(Stub(infer))) as client:
        expected = "it is so\n  [[{{node f}} = F]]"
        assert await client.refused("ModelInfer", model_name="m") == (grpc.StatusCode.ABORTED, expected)


async def test_other_exceptions_are_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def infer(request: InferRequest) -> InferResponse:
        raise RuntimeError("secret")

    with caplog.at_level(logging.ERROR, "asyncexec.service"):
        async with serving(Served(Stub(infer))) as client:
            expected = (grpc.StatusCode.INTERNAL, "internal error")
            assert await client.refused("ModelInfer", model_name="m") == expected
    (record,) = [record for record in caplog.records if record.name == "asyncexec.service"]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "secret"


async def test_long_texts_are_cut_to_what_headers_carry() -> None:
    async def infer(request: InferRequest) -> InferResponse:
        raise ax.errors.AbortedError("\N{SNOWMAN}" * 100_000 + "\ud800")

    async with serving(Served(Stub(infer))) as client:
        status, details = await client.refused("ModelInfer", model_name="m")
        assert status is grpc.StatusCode.ABORTED
        assert set(details) == {"\N{SNOWMAN}"}
        assert len(details) > 600


async def test_a_model_that_cancels_itself_leaves_no_client_waiting() -> None:
    async def infer(request: InferRequest) -> InferResponse:
        raise asyncio.CancelledError

    async with serving(Served(Stub(infer))) as client:
        assert (await client.refused("ModelInfer", model_name="m"))[0] is grpc.StatusCode.CANCELLED
        stream = client.stream()
        await stream.write(message("ModelInferRequest")(model_name="m").SerializeToString())
        await stream.done_writing()
        assert (await stream.read()).error_message == "the model cancelled the call"
        assert await stream.read() is grpc.aio.EOF


# Calls at once, and clients that go away


async def test_calls_run_at_once() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        calls = [client.begin("ModelInfer", gate.request(number)) for number in range(20)]
        assert await gate.take(gate.begun, 20) == list(range(20))
        gate.open(*range(20))
        assert [(await call).id for call in calls] == [str(number) for number in range(20)]


async def test_cancelling_a_call_cancels_the_run() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        call = client.begin("ModelInfer", gate.request(1))
        assert await gate.take(gate.begun, 1) == [1]
        assert call.cancel()
        assert await gate.take(gate.cancelled, 1) == [1]
        await until(lambda: gate.model.statistics.cancel.count == 1)


async def test_the_deadline_of_a_call_cancels_the_run() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        call = client.begin("ModelInfer", gate.request(1), timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: not gate.inside)
        assert gate.inside == 0


async def test_the_timeout_of_a_request_ends_the_run() -> None:
    gate = Gate()
    timeout_us = 1000
    async with serving(Served(gate.model)) as client:
        while gate.begun.empty():  # on a machine that stalls a call may end before its run begins
            request = gate.request(1)
            set_parameters(request.parameters, {"timeout": timeout_us})
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await client.begin("ModelInfer", request)
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            timeout_us *= 10
        assert await gate.take(gate.cancelled, 1) == [1]


async def test_stopping_the_server_cancels_runs_and_streams() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        call, stream = client.begin("ModelInfer", gate.request(1)), client.stream()
        await stream.write(gate.request(2).SerializeToString())
        assert await gate.take(gate.begun, 2) == [1, 2]
    assert await gate.take(gate.cancelled, 2) == [1, 2]
    del call, stream


# Streams


async def test_answers_of_a_stream_come_in_the_order_of_the_requests() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        stream = client.stream()
        for number in range(4):
            await stream.write(gate.request(number).SerializeToString())
        assert await gate.take(gate.begun, 4) == [0, 1, 2, 3]
        gate.open(3, 2, 1, 0)
        await stream.done_writing()
        answers = await rest_of(stream)
        assert [answer.infer_response.id for answer in answers] == ["0", "1", "2", "3"]
        assert [answer.infer_response.raw_output_contents[0][0] for answer in answers] == [0, 1, 2, 3]
        assert await stream.code() is grpc.StatusCode.OK


async def test_an_answer_comes_before_the_stream_ends() -> None:
    async with serving(Served(model_of(sums()))) as client:
        stream = client.stream()
        for number in range(3):
            await stream.write(sums_request(id=str(number)).SerializeToString())
            assert (await stream.read()).infer_response.id == str(number)
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


async def test_an_empty_stream_ends() -> None:
    async with serving(Served()) as client:
        stream = client.stream()
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_an_error_of_one_request_does_not_end_the_stream() -> None:
    wants_final = {"triton_enable_empty_final_response": {"bool_param": True}}
    requests: list[Any] = [
        sums_request(id="a"),
        sums_request(id="b", outputs=["z"], parameters=wants_final),
        b"\xff",
        sums_request(id="d", model_name="n"),
        sums_request(id="e", parameters=wants_final),
        sums_request(id="f", parameters={"triton_enable_empty_final_response": {"bool_param": False}}),
    ]
    async with serving(Served(model_of(sums()))) as client:
        stream = client.stream()
        for request in requests:
            await stream.write(request if isinstance(request, bytes) else request.SerializeToString())
        await stream.done_writing()
        answers = await rest_of(stream)
        assert [answer.infer_response.id for answer in answers] == ["a", "b", "", "d", "e", "f"]
        assert [answer.error_message.partition(" 'z'")[0].partition(";")[0] for answer in answers] == [
            "",
            "unexpected inference output",
            "the request is no ModelInferRequest",
            "Request for unknown model: 'n' is not found",
            "",
            "",
        ]
        marked = [parameters_of(answer.infer_response.parameters) for answer in answers]
        final = {"triton_final_response": True}
        assert marked == [
            final,
            {"grpc_status": "INVALID_ARGUMENT", **final},
            {"grpc_status": "INVALID_ARGUMENT", **final},
            {"grpc_status": "NOT_FOUND", **final},
            final,
            final,
        ]


async def test_a_stream_is_read_no_further_while_so_many_wait() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        stream = client.stream()
        writes = asyncio.ensure_future(write_all(stream, gate, MOST_WAITING + 5))
        assert await gate.take(gate.begun, MOST_WAITING) == list(range(MOST_WAITING))
        assert (await client("ServerLive")).live
        assert gate.begun.empty()
        gate.open(5)  # its answer waits for those before
        assert (await client("ServerLive")).live
        assert gate.begun.empty()
        gate.open(0)
        assert (await stream.read()).infer_response.id == "0"
        assert await gate.take(gate.begun, 1) == [MOST_WAITING]
        assert gate.begun.empty()
        gate.open(*range(MOST_WAITING + 5))
        await writes
        rest = [answer.infer_response.id for answer in await rest_of(stream)]
        assert rest == [str(number) for number in range(1, MOST_WAITING + 5)]


async def rest_of(stream: Any) -> list[Any]:
    """The answers that are left in *stream*."""
    answers = []
    while (answer := await stream.read()) is not grpc.aio.EOF:
        answers.append(answer)
    return answers


async def write_all(stream: Any, gate: Gate, count: int) -> None:
    for number in range(count):
        await stream.write(gate.request(number).SerializeToString())
    await stream.done_writing()


@pytest.mark.parametrize("requests", [1, 3, MOST_WAITING + 1])
async def test_cancelling_a_stream_cancels_its_runs(requests: int) -> None:
    gate = Gate()
    running = min(requests, MOST_WAITING)
    async with serving(Served(gate.model)) as client:
        stream = client.stream()
        for number in range(requests):
            await stream.write(gate.request(number).SerializeToString())
        assert await gate.take(gate.begun, running) == list(range(running))
        assert stream.cancel()
        assert await gate.take(gate.cancelled, running) == list(range(running))
        await until(lambda: not tasks_of_the_front())
        assert tasks_of_the_front() == []


async def test_a_stream_whose_client_sends_no_more_is_cancelled_too() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        stream = client.stream()
        await write_all(stream, gate, 2)
        assert await gate.take(gate.begun, 2) == [0, 1]
        assert stream.cancel()
        assert await gate.take(gate.cancelled, 2) == [0, 1]


async def test_the_deadline_of_a_stream_cancels_its_runs() -> None:
    gate = Gate()
    async with serving(Served(gate.model)) as client:
        stream = client.stream(timeout=0.3)
        await stream.write(gate.request(1).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: not gate.inside)
        assert gate.inside == 0


async def test_a_client_that_goes_away_between_answers_leaves_nothing() -> None:
    async with serving(Served(model_of(sums()))) as client:
        stream = client.stream()
        await stream.write(sums_request().SerializeToString())
        assert (await stream.read()).error_message == ""
        stream.cancel()
        await until(lambda: not tasks_of_the_front())
        assert tasks_of_the_front() == []


async def test_what_reading_raises_reaches_grpc_as_it_is() -> None:
    class Broken:
        def invocation_metadata(self) -> None:
            pass

        async def read(self) -> Any:
            raise ConnectionResetError

    handler = grpc_handler(Served()).service(CallDetails(f"/{SERVICE}/ModelStreamInfer"))
    with pytest.raises(ConnectionResetError):
        await handler.stream_stream(None, Broken())


class FakeContext:
    """A stream whose client sends *requests* and reads nothing; *failure* is what a write raises."""

    def __init__(self, requests: Sequence[bytes], failure: Exception | None = None) -> None:
        self.requests = list(requests)
        self.failure = failure
        self.is_read = asyncio.Event()

    def invocation_metadata(self) -> None:
        pass

    async def read(self) -> bytes:
        if not self.requests:
            self.is_read.set()
            await asyncio.Event().wait()
        return self.requests.pop(0)

    async def write(self, _data: bytes) -> None:
        await self.is_read.wait()
        if self.failure is not None:
            raise self.failure
        await asyncio.Event().wait()


def stream_of(repository: Served, context: FakeContext) -> asyncio.Task[None]:
    handler = grpc_handler(repository).service(CallDetails(f"/{SERVICE}/ModelStreamInfer"))
    return asyncio.ensure_future(handler.stream_stream(None, context))


@pytest.mark.parametrize("ending", ["cancel", "failure", "client has gone"])
async def test_a_stream_that_ends_early_needs_no_collection(ending: str) -> None:
    forever = asyncio.Event()

    async def infer(request: InferRequest) -> InferResponse:
        if request.id == "waits":
            await forever.wait()
        return InferResponse("m", "1", request.id, {})

    failures = {"failure": ConnectionResetError(), "client has gone": grpc.aio.InternalError()}
    requests = [message("ModelInferRequest")(model_name="m", id=id) for id in ("", "", "waits")]
    context = FakeContext([request.SerializeToString() for request in requests], failures.get(ending))
    gc.collect()
    gc.disable()
    try:
        others = asyncio.all_tasks()
        stream = stream_of(Served(Stub(infer)), context)
        await asyncio.sleep(0)  # it has begun
        tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet(asyncio.all_tasks() - others)
        while not context.is_read.is_set():
            await asyncio.sleep(0)
            tasks.update(asyncio.all_tasks() - others)
        assert len(tasks) == 5
        if ending == "cancel":
            stream.cancel()
        expected = ConnectionResetError if ending == "failure" else asyncio.CancelledError
        with pytest.raises(expected) as raised:
            await stream
        del stream, raised, context, failures
        await asyncio.sleep(0)
        assert list(tasks) == []
    finally:
        gc.enable()


async def test_a_stream_is_read_no_further_while_so_many_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_WAITING_BYTES", 1000)
    gate = Gate()
    parameters = {"p": {"string_param": "a" * 400}}
    async with serving(Served(gate.model)) as client:
        stream = client.stream()
        for number in range(5):
            await stream.write(gate.request(number, parameters=parameters).SerializeToString())
        assert await gate.take(gate.begun, 3) == [0, 1, 2]
        assert (await client("ServerLive")).live
        assert gate.begun.empty()
        gate.open(0)
        assert (await stream.read()).infer_response.id == "0"
        assert await gate.take(gate.begun, 1) == [3]
        assert gate.begun.empty()
        gate.open(*range(5))
        await stream.done_writing()
        assert [answer.infer_response.id for answer in await rest_of(stream)] == ["1", "2", "3", "4"]


def tasks_of_the_front() -> list[str]:
    """The tasks that the handler of a stream has made."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    return [name for each in coroutines if (name := getattr(each, "__qualname__", "")).startswith("Exchange.")]
