"""The gRPC front: the calls of ``inference.GRPCInferenceService`` as handlers for a server of ``grpc.aio``.

grpc.aio cancels the task of a call whose client has gone or whose deadline has passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import grpc

from asyncexec.framework.errors import UnimplementedError
from asyncexec.service.grpc.calls import Call, unary
from asyncexec.service.grpc.codec import fill_response, parameters_of, request_of
from asyncexec.service.grpc.settings import SettingsCalls
from asyncexec.service.grpc.stream import StreamHandler
from asyncexec.service.http.body import off_loop
from asyncexec.service.models.model import Model, check_one_response
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.models.statistics import Duration
from asyncexec.service.observing.telemetry import Telemetry
from asyncexec.service.open_streams import OpenStreams
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.requests import InferRequest, InferResponse
from asyncexec.service.server_info import EXTENSIONS, NAME, VERSION
from asyncexec.service.shared_memory import NO_CUDA, SharedMemory


def grpc_handler(
    repository: ModelRepository,
    shared: SharedMemory | None = None,
    streams: OpenStreams | None = None,
    telemetry: Telemetry | None = None,
) -> grpc.GenericRpcHandler:
    """What answers the calls of the service on a ``grpc.aio`` server, from *repository* and *telemetry*.

    Tensors may be in *shared*, the regions that clients have registered.  *streams* are those that are open, for
    whoever ends them.
    """
    regions = shared or SharedMemory()
    calls, settings = _Calls(repository, regions), SettingsCalls(repository, telemetry or Telemetry())
    calls_of_one: dict[str, Call] = {
        "ServerLive": calls.server_live,
        "ServerReady": calls.server_ready,
        "ModelReady": calls.model_ready,
        "ServerMetadata": calls.server_metadata,
        "ModelMetadata": calls.model_metadata,
        "ModelConfig": calls.model_config,
        "ModelStatistics": calls.model_statistics,
        "RepositoryIndex": calls.repository_index,
        "RepositoryModelLoad": calls.repository_model_load,
        "RepositoryModelUnload": calls.repository_model_unload,
        "SystemSharedMemoryStatus": calls.system_shared_memory_status,
        "SystemSharedMemoryRegister": calls.system_shared_memory_register,
        "SystemSharedMemoryUnregister": calls.system_shared_memory_unregister,
        "CudaSharedMemoryStatus": calls.cuda_shared_memory_status,
        "CudaSharedMemoryRegister": calls.cuda_shared_memory,
        "CudaSharedMemoryUnregister": calls.cuda_shared_memory_unregister,
        "TraceSetting": settings.trace_setting,
        "LogSettings": settings.log_settings,
    }
    handlers = {name: unary(message(f"{name}Request"), call) for name, call in calls_of_one.items()}
    handlers["ModelInfer"] = unary(message("ModelInferRequest"), calls.model_infer, request_of)
    stream = StreamHandler(repository, regions, streams or OpenStreams())
    handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(stream.handle)
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


class _Calls:
    """The calls of the service: a message to a message."""

    def __init__(self, repository: ModelRepository, shared: SharedMemory) -> None:
        self._repository = repository
        self._shared = shared

    async def server_live(self, _request: object) -> object:
        return message("ServerLiveResponse")(live=True)

    async def server_ready(self, _request: object) -> object:
        return message("ServerReadyResponse")(ready=self._repository.is_ready)

    async def model_ready(self, request: Any) -> object:
        is_ready = self._repository.is_model_ready(request.name, request.version)
        return message("ModelReadyResponse")(ready=is_ready)

    async def server_metadata(self, _request: object) -> object:
        return message("ServerMetadataResponse")(
            name=NAME, version=VERSION, extensions=[*EXTENSIONS, *self._shared.extensions]
        )

    async def model_metadata(self, request: Any) -> object:
        model = self._repository.model(request.name, request.version)
        response = message("ModelMetadataResponse")(name=model.name, platform=model.config.platform)
        response.versions.extend(self._repository.versions(request.name))
        _add_tensors(response.inputs, model.signature.inputs.values())
        _add_tensors(response.outputs, model.signature.outputs.values())
        return response

    async def model_config(self, request: Any) -> object:
        return message("ModelConfigResponse")(config=self._repository.model(request.name, request.version).config)

    async def model_infer(self, request: InferRequest) -> bytes:
        model = self._repository.model(request.model_name, request.model_version)
        check_one_response(model, "ModelInfer RPC")
        answer = await self._shared.infer(model, request)
        return await off_loop(answer.num_bytes, _encoded, answer)

    async def model_statistics(self, request: Any) -> object:
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

    async def repository_index(self, request: Any) -> object:
        _check_repository(request)
        await self._repository.refresh()
        response = message("RepositoryIndexResponse")()
        for state in self._repository.index(is_ready=request.ready):
            response.models.add(**state._asdict())
        return response

    async def repository_model_load(self, request: Any) -> object:
        _check_repository(request)
        await self._repository.load(request.model_name, parameters_of(request.parameters))
        return message("RepositoryModelLoadResponse")()

    async def repository_model_unload(self, request: Any) -> object:
        _check_repository(request)
        await self._repository.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    async def system_shared_memory_status(self, request: Any) -> object:
        response = message("SystemSharedMemoryStatusResponse")()
        for region in self._shared.status(request.name):
            told = response.regions[region.name]
            told.name, told.key = region.name, region.key
            told.offset, told.byte_size = region.offset, region.byte_size
        return response

    async def system_shared_memory_register(self, request: Any) -> object:
        self._shared.register(request.name, request.key, request.offset, request.byte_size)
        return message("SystemSharedMemoryRegisterResponse")()

    async def system_shared_memory_unregister(self, request: Any) -> object:
        self._shared.unregister(request.name)
        return message("SystemSharedMemoryUnregisterResponse")()

    async def cuda_shared_memory_status(self, _request: object) -> object:
        return message("CudaSharedMemoryStatusResponse")()

    async def cuda_shared_memory_unregister(self, _request: object) -> object:
        return message("CudaSharedMemoryUnregisterResponse")()

    async def cuda_shared_memory(self, _request: object) -> NoReturn:
        raise UnimplementedError(NO_CUDA)


def _encoded(answer: InferResponse) -> bytes:
    """*answer* as a ModelInferResponse."""
    response = message("ModelInferResponse")()
    fill_response(response, answer)
    encoded: bytes = response.SerializeToString()
    return encoded


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
    response.execution_count = statistics.execution_count
    for name, duration in statistics.inference_stats().items():
        _add_duration(getattr(response.inference_stats, name), duration)
    for rows, durations in statistics.batch_stats().items():
        size = response.batch_stats.add(batch_size=rows)
        for name, duration in durations.items():
            _add_duration(getattr(size, name), duration)


def _add_duration(told: Any, duration: Duration) -> None:
    told.count, told.ns = duration.count, duration.ns
