"""gRPC's own health service, which probes of Kubernetes and load balancers ask."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from asyncexec.framework.errors import NotFoundError
from asyncexec.service.grpc.calls import Context, unary
from asyncexec.service.grpc.reflection_messages import HEALTH, message
from asyncexec.service.models.repository import ModelRepository

SERVICE: Final = f"{HEALTH}.Health"
FREE_CALLS: Final = (f"/{SERVICE}/Check", f"/{SERVICE}/Watch")  # anybody may ask

_LIVENESS: Final = "liveness"
_WATCH_S: Final = 1.0  # how often a watcher is told what has changed


def health_handler(repository: ModelRepository, services: Collection[str]) -> grpc.GenericRpcHandler:
    """What answers the calls of the service: whether *repository* is ready, for "" and for each of *services*.

    The service "liveness" is there as long as anything answers.
    """
    health = _Health(repository, services)
    handlers = {
        "Check": unary(message(HEALTH, "HealthCheckRequest"), health.check),
        "Watch": grpc.unary_stream_rpc_method_handler(health.watch),
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


class _Health:
    def __init__(self, repository: ModelRepository, services: Collection[str]) -> None:
        self._repository = repository
        self._known = frozenset(("", _LIVENESS, *services))
        self._request_class = message(HEALTH, "HealthCheckRequest")
        self._response_class = message(HEALTH, "HealthCheckResponse")

    def _status(self, service: str) -> str:
        if service not in self._known:
            return "SERVICE_UNKNOWN"
        return "SERVING" if service == _LIVENESS or self._repository.is_ready else "NOT_SERVING"

    async def check(self, request: Any) -> object:
        """The status of the service that *request* names; NotFoundError where there is none."""
        if request.service not in self._known:
            raise NotFoundError(f"there is no service {request.service!r}")
        return self._response_class(status=self._status(request.service))

    async def watch(self, data: bytes, context: Context) -> None:
        """Tell the status, and again when it changes, until the service ends."""
        try:
            service = self._request_class.FromString(data).service
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is no HealthCheckRequest")
        told = None
        try:
            while True:
                is_serving, status = self._repository.is_serving, self._status(service)
                if status != told:
                    await context.write(self._response_class(status=status).SerializeToString())
                    told = status
                if not is_serving:  # the end of the service waits for no watcher
                    return
                await asyncio.sleep(_WATCH_S)
        except grpc.aio.InternalError:  # the client has gone
            raise asyncio.CancelledError from None
