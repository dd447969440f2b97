"""The gRPC front: the calls of ``inference.GRPCInferenceService`` as handlers for a server of ``grpc.aio``.

Requests of one stream run at once and are answered in their order.  grpc.aio cancels the task of a call whose client
has gone or whose deadline has passed; that task owns all others of a stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import grpc

from asyncexec.framework.errors import UnimplementedError
from asyncexec.service.grpc_calls import Call, Context, Failure, outcome, unary
from asyncexec.service.grpc_codec import fill_response, parameters_of, request_of, set_parameters
from asyncexec.service.http_body import off_loop
from asyncexec.service.model import Model
from asyncexec.service.model_statistics import Duration
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferResponse
from asyncexec.service.server_info import EXTENSIONS, NAME, VERSION
from asyncexec.service.signature import TensorSpec

_MOST_WAITING: Final = 16  # requests of a stream that are read and not answered
_MOST_WAITING_BYTES: Final = 64 * 10**6  # of them; another is read where they have fewer
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
    handlers["ModelInfer"] = unary(message("ModelInferRequest"), calls.model_infer, request_of)
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
        waiting = _Waiting()
        reader = asyncio.create_task(self._read(context, waiting))
        try:
            while (answer := await waiting.first()) is not None:
                await context.write(await answer)
                waiting.remove_first()
            await reader
        except grpc.aio.InternalError:  # reading or writing fails where the client has gone
            raise asyncio.CancelledError from None
        finally:
            # What is raised knows this frame: without its tasks, the frame keeps no answers and makes no cycle.
            answer = None
            try:
                await _cancel([reader, *waiting.clear()])
            finally:
                del reader

    async def _read(self, context: Context, waiting: _Waiting) -> None:
        try:
            while True:
                await waiting.wait_for_room()
                data = await context.read()
                if data is grpc.aio.EOF:
                    break
                waiting.add(asyncio.create_task(self._answer(data)), len(data))
                del data  # another may be long in coming
        finally:
            waiting.end()

    async def _answer(self, data: bytes) -> bytes:
        request = self._request_class()
        answer = await outcome(self._call, request, data, _stream_request_of)
        if not isinstance(answer, Failure):
            return answer
        response = self._response_class(error_message=answer.details)
        response.infer_response.id = request.id
        if _wants_final(request):
            _mark_final(response)
        failed: bytes = response.SerializeToString()
        return failed


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Waiting:
    """The requests of a stream that are read and not answered, in their order."""

    def __init__(self) -> None:
        self._answers: deque[tuple[asyncio.Task[bytes], int]] = deque()
        self._num_bytes = 0
        self._has_ended = False
        self._change = asyncio.Event()

    def add(self, answer: asyncio.Task[bytes], num_bytes: int) -> None:
        """Take in the *answer* to a request of *num_bytes*."""
        self._answers.append((answer, num_bytes))
        self._num_bytes += num_bytes
        self._change.set()

    def end(self) -> None:
        """Take in that no more requests come."""
        self._has_ended = True
        self._change.set()

    async def first(self) -> asyncio.Task[bytes] | None:
        """The answer to the first request that waits; None where there are no more."""
        while not self._answers:
            if self._has_ended:
                return None
            await self._next_change()
        return self._answers[0][0]

    def remove_first(self) -> None:
        """Take in that the first request is answered."""
        _, num_bytes = self._answers.popleft()
        self._num_bytes -= num_bytes
        self._change.set()

    async def wait_for_room(self) -> None:
        """Wait until another request may be read."""
        while len(self._answers) >= _MOST_WAITING or self._num_bytes >= _MOST_WAITING_BYTES:
            await self._next_change()

    async def _next_change(self) -> None:
        self._change.clear()
        await self._change.wait()

    def clear(self) -> list[asyncio.Task[bytes]]:
        """All answers, which are waited for no more."""
        answers = [answer for answer, _ in self._answers]
        self._answers.clear()
        return answers


def _stream_request_of(request: Any) -> tuple[InferRequest, bool]:
    """What *request* asks for, and whether it wants to be told that no answer follows."""
    return request_of(request), _wants_final(request)


def _wants_final(request: Any) -> bool:
    return _WANTS_FINAL in request.parameters and request.parameters[_WANTS_FINAL].bool_param


def _mark_final(response: Any) -> None:
    """Say in *response*, a ModelStreamInferResponse, that none follows it."""
    set_parameters(response.infer_response.parameters, {_IS_FINAL: True})


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

    async def model_infer(self, request: InferRequest) -> bytes:
        answer = await self._infer(request)
        return await off_loop(answer.num_bytes, _encoded, answer)

    async def model_stream_infer(self, asked: tuple[InferRequest, bool]) -> bytes:
        request, wants_final = asked
        answer = await self._infer(request)
        return await off_loop(answer.num_bytes, lambda: _encoded_in_stream(answer, is_marked=wants_final))

    async def _infer(self, request: InferRequest) -> InferResponse:
        return await self._repository.model(request.model_name, request.model_version).infer(request)

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


def _encoded(answer: InferResponse) -> bytes:
    """*answer* as a ModelInferResponse."""
    response = message("ModelInferResponse")()
    fill_response(response, answer)
    encoded: bytes = response.SerializeToString()
    return encoded


def _encoded_in_stream(answer: InferResponse, *, is_marked: bool) -> bytes:
    """*answer* as a ModelStreamInferResponse, which tells that none follows where it *is_marked* so."""
    response = message("ModelStreamInferResponse")()
    fill_response(response.infer_response, answer)
    if is_marked:
        _mark_final(response)
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
