"""gRPC's server reflection: what services there are, and what their messages are, for tools without ``.proto`` files.

The services are tables: ``Name`` is a call that takes a NameRequest and gives a NameResponse, ``Name:Request>Response``
one of other messages, and ``*`` marks a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from asyncexec.service import protocol_messages
from asyncexec.service.grpc import reflection_messages
from asyncexec.service.grpc.calls import Context
from asyncexec.service.grpc.reflection_messages import HEALTH, REFLECTIONS, message
from asyncexec.service.master import messages as master_messages
from asyncexec.service.tf_serving import messages as serving_messages

_REFLECT: Final = "ServerReflectionInfo:ServerReflectionRequest*>ServerReflectionResponse*"


class _Service(NamedTuple):
    """A service: the file of its messages, and its calls."""

    messages: Callable[[], Any]
    calls: str


_SERVICES: Final = {
    protocol_messages.SERVICE: _Service(
        protocol_messages.file,
        """ServerLive ServerReady ModelReady ServerMetadata ModelMetadata ModelInfer
        ModelStreamInfer:ModelInferRequest*>ModelStreamInferResponse* ModelConfig ModelStatistics RepositoryIndex
        RepositoryModelLoad RepositoryModelUnload SystemSharedMemoryStatus SystemSharedMemoryRegister
        SystemSharedMemoryUnregister CudaSharedMemoryStatus CudaSharedMemoryRegister CudaSharedMemoryUnregister
        TraceSetting LogSettings""",
    ),
    serving_messages.PREDICTION_SERVICE: _Service(
        serving_messages.file,
        """Classify:ClassificationRequest>ClassificationResponse Regress:RegressionRequest>RegressionResponse Predict
        MultiInference GetModelMetadata""",
    ),
    serving_messages.MODEL_SERVICE: _Service(
        serving_messages.file, "GetModelStatus HandleReloadConfigRequest:ReloadConfigRequest>ReloadConfigResponse"
    ),
    master_messages.SERVICE: _Service(
        master_messages.file,
        """CreateSession ExtendSession PartialRunSetup RunStep CloseSession ListDevices Reset MakeCallable RunCallable
        ReleaseCallable""",
    ),
    f"{HEALTH}.Health": _Service(
        partial(reflection_messages.file, HEALTH),
        "Check:HealthCheckRequest>HealthCheckResponse Watch:HealthCheckRequest>HealthCheckResponse*",
    ),
    **{
        f"{package}.ServerReflection": _Service(partial(reflection_messages.file, package), _REFLECT)
        for package in REFLECTIONS
    },
}


def reflection_handlers(services: Sequence[str]) -> tuple[grpc.GenericRpcHandler, ...]:
    """What answers the calls of both versions of the service, about *services* and itself."""
    names = tuple(sorted({*services, *(f"{package}.ServerReflection" for package in REFLECTIONS)}))
    _pool(names)  # made here: it takes milliseconds
    return tuple(_handler(package, names) for package in REFLECTIONS)


def _handler(package: str, services: tuple[str, ...]) -> grpc.GenericRpcHandler:
    request_class = message(package, "ServerReflectionRequest")
    response_class = message(package, "ServerReflectionResponse")

    async def handle(_requests: object, context: Context) -> None:
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                try:
                    request = request_class.FromString(data)
                except DecodeError:
                    details = "the request is no ServerReflectionRequest"
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, details)
                response = response_class(valid_host=request.host, original_request=request)
                _answer(request, response, services)
                await context.write(response.SerializeToString())
        except grpc.aio.InternalError:  # reading or writing fails where the client has gone
            raise asyncio.CancelledError from None

    handlers = {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(handle)}
    return grpc.method_handlers_generic_handler(f"{package}.ServerReflection", handlers)


def _answer(request: Any, response: Any, services: tuple[str, ...]) -> None:
    """Put what *request* asks for into *response*."""
    asked = request.WhichOneof("message_request")
    try:
        pool = _pool(services)
        if asked == "list_services":
            for name in services:
                response.list_services_response.service.add(name=name)
        elif asked == "file_by_filename":
            _add_files(response, pool.FindFileByName(request.file_by_filename))
        elif asked == "file_containing_symbol":
            _add_files(response, _file_containing(pool, request.file_containing_symbol))
        elif asked == "all_extension_numbers_of_type":
            found = pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
            response.all_extension_numbers_response.base_type_name = found.full_name  # and there are none
        elif asked == "file_containing_extension":
            extension = request.file_containing_extension
            told = f"{extension.containing_type} has no extension {extension.extension_number}"
            _refuse(response, grpc.StatusCode.NOT_FOUND, told)
        else:
            _refuse(response, grpc.StatusCode.INVALID_ARGUMENT, "the request asks for nothing")
    except KeyError:
        _refuse(response, grpc.StatusCode.NOT_FOUND, f"there is no {getattr(request, asked)!r}")


def _file_containing(pool: DescriptorPool, symbol: str) -> object:
    try:
        return pool.FindFileContainingSymbol(symbol)
    except KeyError:  # it looks for no methods
        return pool.FindMethodByName(symbol).containing_service.file


def _refuse(response: Any, status: grpc.StatusCode, told: str) -> None:
    response.error_response.error_code = status.value[0]
    response.error_response.error_message = told


def _add_files(response: Any, wanted: object) -> None:
    """Put the file *wanted* into *response*, first, and those that it needs."""
    for file in reversed(list(_with_dependencies(wanted, set()))):
        response.file_descriptor_response.file_descriptor_proto.append(_declared(file).SerializeToString())


def _with_dependencies(file: Any, seen: set[str]) -> Iterator[object]:
    """*file*, a FileDescriptor, after all that it needs; each that is not in *seen*."""
    if file.name not in seen:
        seen.add(file.name)
        for needed in file.dependencies:
            yield from _with_dependencies(needed, seen)
        yield file


def _declared(file: Any) -> FileDescriptorProto:
    declared = FileDescriptorProto()
    file.CopyToProto(declared)
    return declared


@cache
def _pool(services: tuple[str, ...]) -> DescriptorPool:
    """The files of *services* and of their messages."""
    pool = DescriptorPool()
    added: set[str] = set()
    for name in services:
        messages = _SERVICES[name].messages()
        for file in _with_dependencies(messages, added):
            pool.Add(_declared(file))
        pool.Add(_service_file(name, messages))
    return pool


def _service_file(full_name: str, messages: Any) -> FileDescriptorProto:
    """What declares the service called *full_name*, of the file *messages*."""
    package, _, name = full_name.rpartition(".")
    file = FileDescriptorProto(
        name=f"{package}/{name}.proto", package=package, syntax="proto3", dependency=[messages.name]
    )
    service = file.service.add(name=name)
    for call in _SERVICES[full_name].calls.split():
        method, _, kinds = call.partition(":")
        request, _, response = (kinds or f"{method}Request>{method}Response").partition(">")
        service.method.add(
            name=method,
            input_type=f".{messages.package}.{request.rstrip('*')}",
            output_type=f".{messages.package}.{response.rstrip('*')}",
            client_streaming=request.endswith("*"),
            server_streaming=response.endswith("*"),
        )
    return file
