"""``ModelStreamInfer``: a stream of requests, each of which has one response, or several where its model is decoupled.

grpc.aio cancels the task of a call whose client has gone or whose deadline has passed; that task owns all others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

import grpc

from asyncexec.framework.errors import OpError, UnimplementedError
from asyncexec.service.exchange import Asked, Exchange, is_cancelled
from asyncexec.service.grpc_calls import CANCELLED, INTERNAL, Context, Failure, failure_of, read_message
from asyncexec.service.grpc_codec import fill_response, request_of, set_parameters
from asyncexec.service.http_body import off_loop
from asyncexec.service.model import Model
from asyncexec.service.protocol_messages import STATUS, message
from asyncexec.service.repository import ModelRepository
from asyncexec.service.requests import IS_FINAL, WANTS_FINAL, InferRequest, InferResponse
from asyncexec.service.shared_memory import SharedMemory

_LOGGER: Final = logging.getLogger("asyncexec.service")


class StreamHandler:
    """The handler of streams that ask the models of *repository*; their tensors may be in *shared*."""

    def __init__(self, repository: ModelRepository, shared: SharedMemory) -> None:
        self._repository = repository
        self._shared = shared
        self._request_class = message("ModelInferRequest")
        self._response_class = message("ModelStreamInferResponse")

    async def handle(self, _requests: object, context: Context) -> None:
        """Read from *context* and write to it until the client sends no more and has all answers."""

        async def read() -> Asked[bytes] | None:
            data = await context.read()
            return None if data is grpc.aio.EOF else await self._asked(data)

        async def write(data: bytes) -> None:
            await context.write(data)

        try:
            await Exchange(read, write).run()
        except grpc.aio.InternalError:  # reading or writing fails where the client has gone
            raise asyncio.CancelledError from None

    async def _asked(self, data: bytes) -> Asked[bytes]:
        """What *data* asks for; it is read here, so that calls of a sequence begin in the order in which they came."""
        given = self._request_class()
        try:
            request = await off_loop(len(data), lambda: read_message(given, data, request_of))
            is_decoupled = self._repository.model(request.model_name, request.model_version).is_decoupled
        except OpError as error:
            failure, call_id = failure_of(error), given.id
            return Asked(len(data), lambda: self._refused(failure, call_id))
        except Exception:
            _LOGGER.exception("a request of a stream cannot be read")
            call_id = given.id
            return Asked(len(data), lambda: self._refused(INTERNAL, call_id))
        return Asked(len(data), lambda: self._answers(request, is_decoupled=is_decoupled), not is_decoupled)

    async def _answers(self, request: InferRequest, *, is_decoupled: bool) -> AsyncGenerator[bytes, None]:
        """The messages that answer *request*, as they are ready."""
        try:
            model = self._repository.model(request.model_name, request.model_version)
            async with aclosing(self._responses(model, request, is_decoupled=is_decoupled)) as responses:
                async for response in responses:
                    encode = partial(self._encoded, response, is_final=not is_decoupled)
                    yield await off_loop(response.num_bytes, encode)
        except OpError as error:
            yield self._failed(failure_of(error), request.id)
            return
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # The model's own code raised it.
            yield self._failed(CANCELLED, request.id)
            return
        except Exception:
            _LOGGER.exception("a request of a stream failed")
            yield self._failed(INTERNAL, request.id)
            return
        if is_decoupled and request.parameters.get(WANTS_FINAL) is True:
            yield self._encoded(InferResponse(model.name, model.version, request.id, {}), is_final=True)

    async def _responses(
        self, model: Model, request: InferRequest, *, is_decoupled: bool
    ) -> AsyncGenerator[InferResponse, None]:
        if not is_decoupled:
            yield await self._shared.infer(model, request)
            return
        if request.shared_inputs is not None or request.output_options is not None:
            raise UnimplementedError("tensors of decoupled models are neither in shared memory nor classes")
        async with aclosing(model.responses(request)) as responses:
            async for response in responses:
                yield response

    async def _refused(self, failure: Failure, call_id: str) -> AsyncGenerator[bytes, None]:
        yield self._failed(failure, call_id)

    def _encoded(self, answer: InferResponse, *, is_final: bool) -> bytes:
        response = self._response_class()
        fill_response(response.infer_response, answer)
        set_parameters(response.infer_response.parameters, {IS_FINAL: is_final})
        encoded: bytes = response.SerializeToString()
        return encoded

    def _failed(self, failure: Failure, call_id: str) -> bytes:
        response = self._response_class(error_message=failure.details)
        response.infer_response.id = call_id
        set_parameters(response.infer_response.parameters, {STATUS: failure.status.name, IS_FINAL: True})
        encoded: bytes = response.SerializeToString()
        return encoded
