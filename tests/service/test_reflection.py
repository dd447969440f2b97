"""What tools without ``.proto`` files learn of the service, and that it is enough to call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_database import DescriptorDatabase
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from asyncexec.service.grpc.reflection_messages import REFLECTIONS, message
from asyncexec.service.master.front import master_handler
from asyncexec.service.master.sessions import MasterSessions
from asyncexec.service.server import serving
from asyncexec.service.tf_serving.grpc import serving_grpc_handlers
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums
from tests.service.test_grpc_front import CALLS, CallDetails, Served, grpc_handler

pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library"), pytest.mark.one_of("loop")]

# By the public .proto files.
SERVICES = {
    "inference.GRPCInferenceService": CALLS,
    "tensorflow.serving.PredictionService": "Classify Regress Predict MultiInference GetModelMetadata".split(),
    "tensorflow.serving.ModelService": ["GetModelStatus", "HandleReloadConfigRequest"],
    "tensorflow.MasterService": """
        CreateSession ExtendSession PartialRunSetup RunStep CloseSession ListDevices Reset MakeCallable RunCallable
        ReleaseCallable
    """.split(),
    "grpc.health.v1.Health": ["Check", "Watch"],
    "grpc.reflection.v1.ServerReflection": ["ServerReflectionInfo"],
    "grpc.reflection.v1alpha.ServerReflection": ["ServerReflectionInfo"],
}


class Tool:
    """Asks over a channel, knowing the protocol of reflection alone."""

    def __init__(self, channel: Any, package: str) -> None:
        self.channel = channel
        self.package = package

    def stream(self) -> Any:
        """A call of the service."""
        response_class = message(self.package, "ServerReflectionResponse")
        path = f"/{self.package}.ServerReflection/ServerReflectionInfo"
        return self.channel.stream_stream(path, None, response_class.FromString)(timeout=60)

    async def ask(self, *requests: dict[str, Any]) -> list[Any]:
        """The answers to *requests*, fields of ServerReflectionRequest, over one stream."""
        stream = self.stream()
        answers = []
        for fields in requests:
            request = message(self.package, "ServerReflectionRequest")(**fields)
            await stream.write(request.SerializeToString())
            answers.append(await stream.read())
            assert answers[-1].original_request == request
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        return answers

    async def services(self) -> list[str]:
        (answer,) = await self.ask({"list_services": "*"})
        return [each.name for each in answer.list_services_response.service]

    async def pool(self, *symbols: str) -> DescriptorPool:
        """What the answers for *symbols* declare, and nothing else."""
        answers = await self.ask(*({"file_containing_symbol": symbol} for symbol in symbols))
        database = DescriptorDatabase()
        for answer in answers:
            for data in answer.file_descriptor_response.file_descriptor_proto:
                database.Add(FileDescriptorProto.FromString(data))
        return DescriptorPool(database)


@asynccontextmanager
async def tool(package: str = REFLECTIONS[0], **options: Any) -> AsyncIterator[Tool]:
    """A tool that asks a service of model m."""
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums()}, http_port=0, grpc_port=0, **options) as ports,
        grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel,
    ):
        yield Tool(channel, package)
        del channel


@pytest.mark.parametrize("package", REFLECTIONS)
async def test_a_call_by_what_reflection_tells_alone(package: str) -> None:
    async with tool(package) as asking:
        (service,) = [name for name in await asking.services() if name.startswith("inference.")]
        pool = await asking.pool(service)
        method = pool.FindServiceByName(service).methods_by_name["ModelInfer"]
        assert (method.client_streaming, method.server_streaming) == (False, False)
        request = GetMessageClass(method.input_type)(model_name="m")
        for name in ("x", "y"):
            request.inputs.add(name=name, datatype="FP32", shape=[1, 3]).contents.fp32_contents.extend([1, 2, 3])
        call = asking.channel.unary_unary(f"/{service}/{method.name}")
        response = GetMessageClass(method.output_type).FromString(await call(request.SerializeToString()))
    assert [each.name for each in response.outputs] == ["sum", "diff"]
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2, 4, 6]


async def test_all_services_and_their_calls() -> None:
    async with tool(tensorflow_master=True) as asking:
        found = await asking.services()
        assert found == sorted(SERVICES)
        pool = await asking.pool(*found)
    streams = {}
    for name, calls in SERVICES.items():
        methods = pool.FindServiceByName(name).methods
        assert sorted(method.name for method in methods) == sorted(calls)
        streams |= {
            method.name: (method.client_streaming, method.server_streaming)
            for method in methods
            if method.client_streaming or method.server_streaming
        }
    assert streams == {
        "ModelStreamInfer": (True, True),
        "Watch": (False, True),
        "ServerReflectionInfo": (True, True),
    }


async def test_the_calls_that_are_told_are_answered() -> None:
    masters = MasterSessions(allows_files=False)
    handlers = [grpc_handler(Served()), *serving_grpc_handlers(Served()), master_handler(masters)]
    for handler in handlers:
        name = handler.service_name()
        assert [call for call in SERVICES[name] if handler.service(CallDetails(f"/{name}/{call}")) is None] == []
    await masters.close()


async def test_what_is_not_served_is_not_told() -> None:
    async with tool() as asking:
        assert "tensorflow.MasterService" not in await asking.services()
        (answer,) = await asking.ask({"file_containing_symbol": "tensorflow.MasterService"})
        assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_what_may_be_asked() -> None:
    async with tool() as asking:
        by_method, by_nested, by_field, by_file, extensions, host = await asking.ask(
            {"file_containing_symbol": "inference.GRPCInferenceService.ModelInfer"},
            {"file_containing_symbol": "inference.ModelInferRequest.InferInputTensor"},
            {"file_containing_symbol": "inference.ModelInferRequest.model_name"},
            {"file_by_filename": "inference/grpc_service.proto"},
            {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
            {"host": "a", "list_services": ""},
        )
    files = [
        [FileDescriptorProto.FromString(data).name for data in each.file_descriptor_response.file_descriptor_proto]
        for each in (by_method, by_nested, by_field, by_file)
    ]
    messages = ["inference/grpc_service.proto", "inference/model_config.proto"]
    assert files == [["inference/GRPCInferenceService.proto", *messages], messages, messages, messages]
    assert extensions.all_extension_numbers_response.base_type_name == "inference.ModelInferRequest"
    assert list(extensions.all_extension_numbers_response.extension_number) == []
    assert host.valid_host == "a"


async def test_what_is_not_there() -> None:
    requests: list[tuple[dict[str, Any], str]] = [
        ({"file_containing_symbol": "inference.Nothing"}, "there is no 'inference.Nothing'"),
        ({"file_containing_symbol": "inference.GRPCInferenceService.No"}, "there is no 'inference.GRPCInferenceServ"),
        ({"file_containing_symbol": ""}, "there is no ''"),
        ({"file_containing_symbol": "a" * 100_000}, "there is no 'aaa"),
        ({"file_by_filename": "nothing.proto"}, "there is no 'nothing.proto'"),
        ({"all_extension_numbers_of_type": "Nothing"}, "there is no 'Nothing'"),
        ({"file_containing_extension": {"containing_type": "A", "extension_number": 7}}, "A has no extension 7"),
        ({}, "the request asks for nothing"),
    ]
    async with tool() as asking:
        answers = await asking.ask(*(fields for fields, _ in requests))
        for answer, (_, text) in zip(answers, requests, strict=True):
            assert answer.error_response.error_message.startswith(text)
            asked = answer.original_request.WhichOneof("message_request")
            assert answer.error_response.error_code == (5 if asked else 3)
        stream = asking.stream()
        await stream.write(b"\xff")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await asking.services()


async def test_a_token_is_asked_for() -> None:
    async with tool(tokens=["secret"]) as asking:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asking.services()
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_tool_that_goes_away() -> None:
    async with tool() as asking:
        stream = asking.stream()
        await stream.write(message(asking.package, "ServerReflectionRequest")(list_services="").SerializeToString())
        await stream.read()
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream.read()
        assert await asking.services()
