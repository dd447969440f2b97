"""The routes of shared memory: system shared memory, and that of CUDA, which there is none of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.service.http.calls import answering
from asyncexec.service.http.errors import json_response
from asyncexec.service.shared_memory import NO_CUDA, SharedMemory

_SYSTEM: Final = "/v2/systemsharedmemory"
_CUDA: Final = "/v2/cudasharedmemory"


def shared_memory_routes(
    shared: SharedMemory, document: Callable[[Request], Awaitable[dict[str, Any]]]
) -> Iterator[Route]:
    """The routes that tell of *shared* and change it; *document* reads the JSON of a request."""

    async def status(request: Request) -> Response:
        regions = shared.status(request.path_params.get("name", ""))
        fields = ("name", "key", "offset", "byte_size")
        return json_response([{field: getattr(region, field) for field in fields} for region in regions])

    async def register(request: Request) -> Response:
        name, given = request.path_params["name"], await document(request)
        key = given.get("key")
        if not isinstance(key, str):
            raise InvalidArgumentError("'key' is missing, or no string")
        if "byte_size" not in given:
            raise InvalidArgumentError("'byte_size' is missing")
        shared.register(name, key, given.get("offset", 0), given["byte_size"])
        return Response()

    async def unregister(request: Request) -> Response:
        await document(request)
        shared.unregister(request.path_params.get("name", ""))
        return Response()

    async def no_regions(_: Request) -> Response:
        return json_response([])

    async def nothing(request: Request) -> Response:
        await document(request)
        return Response()  # clients of system shared memory begin by giving back all of both

    async def no_cuda(_: Request) -> Response:
        raise UnimplementedError(NO_CUDA)

    for prefix, told, taken, given_back in (
        (_SYSTEM, status, register, unregister),
        (_CUDA, no_regions, no_cuda, nothing),
    ):
        region = f"{prefix}/region/{{name}}"
        yield Route(f"{prefix}/status", answering(told), methods=["GET"])
        yield Route(f"{region}/status", answering(told), methods=["GET"])
        yield Route(f"{region}/register", answering(taken), methods=["POST"])
        yield Route(f"{region}/unregister", answering(given_back), methods=["POST"])
        yield Route(f"{prefix}/unregister", answering(given_back), methods=["POST"])
