"""TensorFlow's own protocol: the calls of ``tensorflow.MasterService``, for ``tf.compat.v1.Session("grpc://...")``.

Errors have TensorFlow's codes, and name nodes as TensorFlow's do.  RunStep puts them into its response where the
client asks for that, as all of TensorFlow do: there, text has no limit.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from asyncexec.framework.errors import Code, InvalidArgumentError, OpError, UnimplementedError
from asyncexec.service.grpc.calls import Call, Context
from asyncexec.service.grpc.parsed_size import hold_parsed
from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import off_loop
from asyncexec.service.master.messages import SERVICE, message
from asyncexec.service.master.session import Answer, Signature
from asyncexec.service.master.sessions import MasterSessions
from asyncexec.service.master.tensors import tensor_class

_DEVICE: Final = "/job:localhost/replica:0/task:0/device:CPU:0"
_MOST_DETAILS: Final = 2000  # bytes; details travel in headers, of which peers take 8 kB
_LOGGER: Final = logging.getLogger("asyncexec.service")


class _Failure(NamedTuple):
    """How a call failed."""

    code: Code
    text: str


def master_handler(sessions: MasterSessions) -> grpc.GenericRpcHandler:
    """What answers the calls of the service on a ``grpc.aio`` server; *sessions* are those of its clients."""
    tensor_class()  # made here: it takes milliseconds
    calls = _Calls(sessions)
    by_name: dict[str, Call] = {
        "CreateSession": calls.create_session,
        "ExtendSession": calls.extend_session,
        "PartialRunSetup": calls.partial_run_setup,
        "RunStep": calls.run_step,
        "CloseSession": calls.close_session,
        "ListDevices": calls.list_devices,
        "Reset": calls.reset,
        "MakeCallable": calls.make_callable,
        "RunCallable": calls.run_callable,
        "ReleaseCallable": calls.release_callable,
    }
    handlers = {name: grpc.unary_unary_rpc_method_handler(_unary(name, call)) for name, call in by_name.items()}
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _unary(name: str, call: Call) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """The handler of the call *name*."""
    request_class = message(f"{name}Request")

    async def answer(data: bytes) -> bytes:
        request = request_class()
        with HeldBytes() as held:
            await hold_parsed(held, data, request.DESCRIPTOR, len(data))  # a graph may be all there is
            try:
                await off_loop(len(data), lambda: request.ParseFromString(data))
            except DecodeError:
                raise InvalidArgumentError(f"the request is no {name}Request") from None
            response = await call(request)
        answered: bytes = await off_loop(response.ByteSize(), response.SerializeToString)
        return answered

    async def handle(data: bytes, context: Context) -> bytes:
        outcome = await _outcome(name, answer(data))
        if isinstance(outcome, _Failure):
            details = outcome.text.encode(errors="replace")[:_MOST_DETAILS].decode(errors="ignore")
            await context.abort(grpc.StatusCode[outcome.code.name], details)
        answered: bytes = outcome
        return answered

    return handle


async def _outcome(name: str, running: Awaitable[object]) -> Any:
    """What *running*, of the call *name*, gives, or a _Failure."""
    try:
        return await running
    except OpError as error:
        return _Failure(error.code, _text_of(error))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _Failure(Code.CANCELLED, "the step was cancelled")  # by code of its own
    except Exception:
        _LOGGER.exception("a call of %s failed", name)
        return _Failure(Code.INTERNAL, "internal error")


def _text_of(error: OpError) -> str:
    """What *error* says, with the node as TensorFlow tells it."""
    text = error.message
    if error.node is not None:
        text += f"\n\t [[{{{{node {error.node}}}}}]]"
    if error.iteration:
        text += f"\n\t in iteration {error.iteration}"
    if error.hint is not None:
        text += f"\n\t hint: {error.hint}"
    return text


class _Calls:
    """The calls of the service: a message to a message."""

    def __init__(self, sessions: MasterSessions) -> None:
        self._sessions = sessions
        self._incarnation = secrets.randbits(63)

    async def create_session(self, request: Any) -> object:
        session = await self._sessions.create(request.graph_def, request.config)
        return message("CreateSessionResponse")(session_handle=session.handle, graph_version=session.graph_version)

    async def extend_session(self, request: Any) -> object:
        with self._sessions.used(request.session_handle) as session:
            version = await session.extend(request.graph_def, request.current_graph_version)
        return message("ExtendSessionResponse")(new_graph_version=version)

    async def run_step(self, request: Any) -> object:
        response = message("RunStepResponse")()
        if not request.store_errors_in_response_body:
            await self._run_step(request, response)
            return response
        failure = await _outcome("RunStep", self._run_step(request, response))
        if isinstance(failure, _Failure):
            response.status_code = failure.code
            response.status_error_message = failure.text.encode(errors="replace").decode()
        return response

    async def _run_step(self, request: Any, response: Any) -> None:
        signature = Signature.of([feed.name for feed in request.feed], request.fetch, request.target)
        feeds = [feed.tensor for feed in request.feed]
        with self._sessions.used(request.session_handle) as session:
            if request.partial_run_handle:
                answer = await session.run_partially(request.partial_run_handle, signature, feeds, request.options)
            else:
                answer = await session.run(signature, feeds, request.options)
        for name, tensor in zip(request.fetch, answer.tensors, strict=True):
            response.tensor.add(name=name, tensor=tensor)
        response.metadata = answer.metadata

    async def partial_run_setup(self, request: Any) -> object:
        signature = Signature.of(request.feed, request.fetch, request.target)
        with self._sessions.used(request.session_handle) as session:
            handle = await session.begin_partial_run(signature)
        return message("PartialRunSetupResponse")(partial_run_handle=handle)

    async def close_session(self, request: Any) -> object:
        with self._sessions.used(request.session_handle):
            await self._sessions.close_session(request.session_handle)
        return message("CloseSessionResponse")()

    async def list_devices(self, request: Any) -> object:
        names = [_DEVICE]
        if request.session_handle:
            with self._sessions.used(request.session_handle) as session:
                names = session.list_devices()
        response = message("ListDevicesResponse")()
        for name in names:
            device_type = name.rpartition("device:")[2].partition(":")[0]
            response.local_device.add(name=name, device_type=device_type, incarnation=self._incarnation)
        return response

    async def reset(self, request: Any) -> object:
        await self._sessions.reset(request.container)
        return message("ResetResponse")()

    async def make_callable(self, request: Any) -> object:
        options = request.options
        if options.tensor_connection:
            raise UnimplementedError("callables with tensor connections are not supported")
        with self._sessions.used(request.session_handle) as session:
            signature = Signature.of(options.feed, options.fetch, options.target)
            number = session.make_callable(signature, options.run_options)
        return message("MakeCallableResponse")(handle=number)

    async def run_callable(self, request: Any) -> object:
        with self._sessions.used(request.session_handle) as session:
            answer: Answer = await session.run_callable(request.handle, request.feed)
        return message("RunCallableResponse")(fetch=answer.tensors, metadata=answer.metadata)

    async def release_callable(self, request: Any) -> object:
        with self._sessions.used(request.session_handle) as session:
            session.release_callable(request.handle)
        return message("ReleaseCallableResponse")()
