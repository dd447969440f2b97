"""``ModelStreamInfer``: a stream of requests, each of which has one response, or several where its model is decoupled.

grpc.aio cancels the task of a call whose client has gone or whose deadline has passed; that task owns all others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import grpc

from asyncexec.framework.errors import OpError
from asyncexec.service.exchange import Asked, Exchange, is_cancelled
from asyncexec.service.grpc.calls import CANCELLED, INTERNAL, Context, Failure, failure_of, read_message
from asyncexec.service.grpc.codec import fill_response, request_of, set_parameters
from asyncexec.service.grpc.parsed_size import hold_parsed
from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import off_loop
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.open_streams import SHUTTING_DOWN, OpenStreams
from asyncexec.service.protocol_messages import STATUS, message
from asyncexec.service.requests import IS_FINAL, WANTS_FINAL, InferRequest, InferResponse
from asyncexec.service.shared_memory import SharedMemory

_ERRORS_END: Final = ("triton_grpc_error", "true")  # in the metadata of a stream
_LOGGER: Final = logging.getLogger("asyncexec.service")


class _Failed(NamedTuple):
    """The error that answers a request with that *id*."""

    failure: Failure
    id: str


_Answer: TypeAlias = bytes | _Failed


class StreamHandler:
    """The handler of streams that ask the models of *repository*; their tensors may be in *shared*.

    Those that are open are told to *streams*.
    """

    def __init__(self, repository: ModelRepository, shared: SharedMemory, streams: OpenStreams) -> None:
        self._repository = repository
        self._shared = shared
        self._streams = streams
        self._request_class = message("ModelInferRequest")
        self._response_class = message("ModelStreamInferResponse")

    async def handle(self, _requests: object, context: Context) -> None:
        """Read from *context* and write to it until the client sends no more and has all answers.

        An error is a message, unless the client has asked for errors that end the stream.
        """
        errors_end = _ERRORS_END in (context.invocation_metadata() or ())

        async def read() -> Asked[_Answer] | None:
            data = await context.read()
            return None if data is grpc.aio.EOF else await self._asked(data)

        async def write(answer: _Answer) -> None:
            if isinstance(answer, bytes):
                await context.write(answer)
            elif errors_end:
                await context.abort(*answer.failure)
            else:
                await context.write(self._error(answer))

        exchange = Exchange(read, write)
        try:
            with self._streams.opened(exchange.stop):
                if not await exchange.run():
                    await context.abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        except grpc.aio.InternalError:  # reading or writing fails where the client has gone
            raise asyncio.CancelledError from None

    async def _asked(self, data: bytes) -> Asked[_Answer]:
        """What *data* asks for; it is read here, so that calls of a sequence begin in the order in which they came."""
        given, held = self._request_class(), HeldBytes()
        try:
            await hold_parsed(held, data, given.DESCRIPTOR)
            request = await off_loop(len(data), lambda: read_message(given, data, request_of))
            is_decoupled = self._repository.model(request.model_name, request.model_version).is_decoupled
            num_bytes = len(data) + request.num_shared_bytes
            request = await self._shared.with_inputs(request)
        except OpError as error:
            failed = _Failed(failure_of(error), given.id)
            return Asked(len(data), lambda: _only(failed), held=held)
        except Exception:
            _LOGGER.exception("a request of a stream cannot be read")
            failed = _Failed(INTERNAL, given.id)
            return Asked(len(data), lambda: _only(failed), held=held)
        except BaseException:
            held.release()
            raise
        return Asked(num_bytes, lambda: self._answers(request, is_decoupled=is_decoupled), not is_decoupled, held)

    async def _answers(self, request: InferRequest, *, is_decoupled: bool) -> AsyncGenerator[_Answer, None]:
        """What answers *request*, as it is ready."""
        try:
            model = self._repository.model(request.model_name, request.model_version)
            async with aclosing(self._shared.responses(model, request)) as responses:
                async for response in responses:
                    encode = partial(self._encoded, response, is_final=not is_decoupled)
                    yield await off_loop(response.num_bytes, encode)
        except OpError as error:
            yield _Failed(failure_of(error), request.id)
            return
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # The model's own code raised it.
            yield _Failed(CANCELLED, request.id)
            return
        except Exception:
            _LOGGER.exception("a request of a stream failed")
            yield _Failed(INTERNAL, request.id)
            return
        if is_decoupled and request.parameters.get(WANTS_FINAL) is True:
            yield self._encoded(InferResponse(model.name, model.version, request.id, {}), is_final=True)

    def _encoded(self, answer: InferResponse, *, is_final: bool) -> bytes:
        response = self._response_class()
        fill_response(response.infer_response, answer)
        set_parameters(response.infer_response.parameters, {IS_FINAL: is_final})
        encoded: bytes = response.SerializeToString()
        return encoded

    def _error(self, failed: _Failed) -> bytes:
        response = self._response_class(error_message=failed.failure.details)
        response.infer_response.id = failed.id
        set_parameters(response.infer_response.parameters, {STATUS: failed.failure.status.name, IS_FINAL: True})
        encoded: bytes = response.SerializeToString()
        return encoded


async def _only(failed: _Failed) -> AsyncGenerator[_Answer, None]:
    yield failed
