"""The gRPC front: the calls of ``inference.GRPCInferenceService`` as handlers for a server of ``grpc.aio``.

Requests of one stream run at once and are answered in their order.  grpc.aio cancels the task of a call whose client
has gone or whose deadline has passed; that task owns all others of a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import grpc

from asyncexec.framework.errors import UnimplementedError
from asyncexec.service.grpc_calls import Call, Context, Failure, outcome, unary
from asyncexec.service.grpc_codec import fill_response, parameters_of, request_of, set_parameters
from asyncexec.service.model import Model
from asyncexec.service.model_statistics import Duration
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.repository import ModelRepository
from asyncexec.service.server_info import EXTENSIONS, NAME, VERSION
from asyncexec.service.signature import TensorSpec

_MOST_WAITING: Final = 16  # requests of a stream that are read and not answered
_WANTS_FINAL: Final = "triton_enable_empty_final_response"
_IS_FINAL: Final = "triton_final_response"


def grpc_handler(repository: ModelRepository) -> grpc.GenericRpcHandler:
    """What answers the calls of the service on a ``grpc.aio`` server, from the models of *repository*."""
    calls = _Calls(repository)
    calls_of_one: dict[str, Call] = {
        "ServerLive": calls.server_live,
        "ServerReady": calls.server_ready,
        "ModelReady": calls.model_ready,
        "ServerMetadata": calls.server_metadata,
        "ModelMetadata": calls.model_metadata,
        "ModelInfer": calls.model_infer,
        "ModelConfig": calls.model_config,
        "ModelStatistics": calls.model_statistics,
        "RepositoryIndex": calls.repository_index,
        "RepositoryModelLoad": calls.repository_model_load,
        "RepositoryModelUnload": calls.repository_model_unload,
        "SystemSharedMemoryStatus": calls.system_shared_memory_status,
        "SystemSharedMemoryRegister": calls.shared_memory,
        "SystemSharedMemoryUnregister": calls.shared_memory,
        "CudaSharedMemoryStatus": calls.shared_memory,
        "CudaSharedMemoryRegister": calls.shared_memory,
        "CudaSharedMemoryUnregister": calls.shared_memory,
        "TraceSetting": calls.trace_setting,
        "LogSettings": calls.log_settings,
    }
    handlers = {name: unary(message(f"{name}Request"), call) for name, call in calls_of_one.items()}
    stream = _Stream(calls.model_stream_infer)
    handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(stream.handle)
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


class _Stream:
    """The handler of a stream of ModelInferRequest, each of which gets one ModelStreamInferResponse."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._request_class = message("ModelInferRequest")
        self._response_class = message("ModelStreamInferResponse")

    async def handle(self, _requests: object, context: Context) -> None:
        """Read from *context* and write to it until the client sends no more and has all answers."""
        answers: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        room = asyncio.Semaphore(_MOST_WAITING)

        async def read() -> None:
            while True:
                await room.acquire()
                data = await context.read()
                if data is grpc.aio.EOF:
                    break
                answers.put_nowait(group.create_task(self._answer(data)))
            answers.put_nowait(None)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(read())
                while (answer := await answers.get()) is not None:
                    await context.write(await answer)
                    room.release()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # grpc knows its own errors by their class

    async def _answer(self, data: bytes) -> bytes:
        request = self._request_class()
        answer = await outcome(self._call, request, data)
        if not isinstance(answer, Failure):
            return answer
        response = self._response_class(error_message=answer.details)
        response.infer_response.id = request.id
        _mark_final(request, response.infer_response)
        failed: bytes = response.SerializeToString()
        return failed


def _mark_final(request: Any, response: Any) -> None:
    """Say in *response* that none follows it, where *request* asks for that."""
    if _WANTS_FINAL in request.parameters and request.parameters[_WANTS_FINAL].bool_param:
        set_parameters(response.parameters, {_IS_FINAL: True})


class _Calls:
    """The calls of the service: a message to a message."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository

    async def server_live(self, _request: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def server_ready(self, _request: Any) -> Any:
        return message("ServerReadyResponse")(ready=self._repository.is_ready)

    async def model_ready(self, request: Any) -> Any:
        is_ready = self._repository.is_model_ready(request.name, request.version)
        return message("ModelReadyResponse")(ready=is_ready)

    async def server_metadata(self, _request: Any) -> Any:
        return message("ServerMetadataResponse")(name=NAME, version=VERSION, extensions=EXTENSIONS)

    async def model_metadata(self, request: Any) -> Any:
        model = self._repository.model(request.name, request.version)
        response = message("ModelMetadataResponse")(name=model.name, platform=model.config.platform)
        response.versions.extend(self._repository.versions(request.name))
        _add_tensors(response.inputs, model.signature.inputs.values())
        _add_tensors(response.outputs, model.signature.outputs.values())
        return response

    async def model_config(self, request: Any) -> Any:
        return message("ModelConfigResponse")(config=self._repository.model(request.name, request.version).config)

    async def model_infer(self, request: Any) -> Any:
        response = message("ModelInferResponse")()
        await self._infer(request, response)
        return response

    async def model_stream_infer(self, request: Any) -> Any:
        response = message("ModelStreamInferResponse")()
        await self._infer(request, response.infer_response)
        _mark_final(request, response.infer_response)
        return response

    async def _infer(self, request: Any, response: Any) -> None:
        model = self._repository.model(request.model_name, request.model_version)
        fill_response(response, await model.infer(request_of(request)))

    async def model_statistics(self, request: Any) -> Any:
        response = message("ModelStatisticsResponse")()
        for model in self._models(request.name, request.version):
            _add_statistics(response.model_stats.add(), model)
        return response

    def _models(self, name: str, version: str) -> list[Model]:
        """All models where *name* is "", and all versions where *version* is."""
        if not name:
            return self._repository.models()
        versions = [version] if version else self._repository.versions(name)
        return [self._repository.model(name, each) for each in versions]

    async def repository_index(self, request: Any) -> Any:
        _check_repository(request)
        await self._repository.refresh()
        response = message("RepositoryIndexResponse")()
        for state in self._repository.index(is_ready=request.ready):
            response.models.add(**state._asdict())
        return response

    async def repository_model_load(self, request: Any) -> Any:
        _check_repository(request)
        await self._repository.load(request.model_name, parameters_of(request.parameters))
        return message("RepositoryModelLoadResponse")()

    async def repository_model_unload(self, request: Any) -> Any:
        _check_repository(request)
        await self._repository.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    async def system_shared_memory_status(self, _request: Any) -> Any:
        return message("SystemSharedMemoryStatusResponse")()

    async def shared_memory(self, _request: Any) -> NoReturn:
        raise UnimplementedError("shared memory is not supported: send tensors in the messages")

    async def trace_setting(self, request: Any) -> Any:
        if request.settings:
            raise UnimplementedError("there are no trace settings to change")
        return message("TraceSettingResponse")()

    async def log_settings(self, request: Any) -> Any:
        if request.settings:
            raise UnimplementedError("there are no log settings to change")
        return message("LogSettingsResponse")()


def _check_repository(request: Any) -> None:
    if request.repository_name:
        raise UnimplementedError("'repository_name' specification is not supported")


def _add_tensors(tensors: Any, specs: Iterable[TensorSpec]) -> None:
    for spec in specs:
        tensors.add(name=spec.name, datatype=spec.datatype, shape=spec.described_shape)


def _add_statistics(response: Any, model: Model) -> None:
    """Put what *model* has done into *response*, an empty ModelStatistics."""
    statistics = model.statistics
    response.name, response.version = model.name, model.version
    response.last_inference = statistics.last_inference_ms
    response.inference_count = statistics.inference_count
    response.execution_count = model.num_runs
    durations: dict[str, Duration] = {
        "success": statistics.success,
        "fail": statistics.fail,
        "compute_input": statistics.compute_input,
        "compute_infer": statistics.compute_infer,
        "compute_output": statistics.compute_output,
    }
    for name, duration in durations.items():
        told = getattr(response.inference_stats, name)
        told.count, told.ns = duration.count, duration.ns
