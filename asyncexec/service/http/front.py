"""The HTTP front of a repository of models: the Open Inference Protocol and Triton's extensions of it.

The routes read raw bytes and ignore the type of the content: clients send none, or application/octet-stream.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import off_loop, read_body
from asyncexec.service.http.calls import answering, unless_disconnected
from asyncexec.service.http.codec import MAX_JSON_BYTES, decode_generate, encode_generate, json_object, optional
from asyncexec.service.http.errors import error_response, json_response
from asyncexec.service.http.events import event_stream
from asyncexec.service.http.infer import InferEndpoint
from asyncexec.service.http.metadata import config_as_json, model_metadata, model_statistics, server_metadata
from asyncexec.service.http.settings import settings_routes
from asyncexec.service.http.shared_memory import shared_memory_routes
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.observing.telemetry import Telemetry
from asyncexec.service.requests import InferRequest
from asyncexec.service.shared_memory import SharedMemory
from asyncexec.service.tf_serving.rest import serving_routes

MAX_BODY_BYTES: Final = 64 * 2**20
BODY_TIMEOUT_S: Final = 60.0

_OK, _UNAVAILABLE = 200, 503
_INFER_PATH: Final = re.compile("/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


def http_app(
    repository: ModelRepository,
    max_body_bytes: int = MAX_BODY_BYTES,
    body_timeout_s: float = BODY_TIMEOUT_S,
    others: Iterable[BaseRoute] = (),
    shared: SharedMemory | None = None,
    telemetry: Telemetry | None = None,
) -> Routes:
    """An ASGI app that serves the models of *repository*, the settings of *telemetry*, and *others*.

    It takes bodies of *max_body_bytes*, decompressed, and of 16 MB of JSON, that come within *body_timeout_s*, and
    tensors in *shared*.
    """
    of_json = min(max_body_bytes, MAX_JSON_BYTES), body_timeout_s
    regions = shared or SharedMemory()
    infer = InferEndpoint(repository, regions, max_body_bytes, body_timeout_s)
    front = _Front(repository, regions, infer, *of_json)
    settings = settings_routes(repository, telemetry or Telemetry(), front.document)
    app = Routes(
        infer,
        routes=[*front.routes(), *settings, *others, *serving_routes(repository, *of_json)],
        exception_handlers={HTTPException: _refused},
    )
    app.router.redirect_slashes = False  # a client would not follow, and finds no error in the answer
    return app


class _Pattern(NamedTuple):
    """The route of a request that is found without the routes."""

    path: str


_INFER: Final = _Pattern("/v2/models/{name}/infer")
_INFER_VERSION: Final = _Pattern("/v2/models/{name}/versions/{version}/infer")


class Routes(Starlette):
    """All routes, of which what is asked for most, *infer*, is found before the others are looked through.

    Attributes:
        infer: answers that.
    """

    def __init__(self, infer: InferEndpoint, **options: Any) -> None:
        super().__init__(**options)
        self.infer: InferEndpoint = infer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = asked_to_infer(scope)
        if asked is None:
            await super().__call__(scope, receive, send)
        else:
            await self.infer.answer(*asked, scope, receive, send)


def asked_to_infer(scope: Scope) -> tuple[str, str] | None:
    """The name and version of the model in *scope*, if that is the usual request: routes are slower to find it.

    Then *scope* has its route.
    """
    if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
        return None
    found = _INFER_PATH.fullmatch(scope["path"])
    if found is None:
        return None
    name, version = found.groups("")
    scope["route"] = _INFER_VERSION if version else _INFER
    return name, version


async def _refused(_: Request, error: Exception) -> Response:
    return error_response(error)


class _Front:
    def __init__(
        self,
        repository: ModelRepository,
        shared: SharedMemory,
        infer: InferEndpoint,
        max_body_bytes: int,
        body_timeout_s: float,
    ) -> None:
        self._repository = repository
        self._shared = shared
        self._infer = infer
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    def routes(self) -> Iterator[Route]:
        # Triton's asynchronous client says that it accepts compressed answers, and reads those to inference alone.
        plain = partial(answering, compresses=False)
        of_models: dict[tuple[str, str], ASGIApp] = {
            ("POST", "/infer"): self._infer,
            ("POST", "/generate"): answering(self._generate),
            ("POST", "/generate_stream"): answering(self._generate_stream),
            ("GET", ""): plain(self._metadata),
            ("GET", "/ready"): plain(self._model_ready),
            ("GET", "/config"): plain(self._config),
            ("GET", "/stats"): plain(self._stats),
        }
        others = {
            ("GET", "/v2"): self._server,
            ("GET", "/v2/health/live"): self._live,
            ("GET", "/v2/health/ready"): self._ready,
            ("GET", "/v2/models/stats"): self._all_stats,
            ("POST", "/v2/repository/index"): self._index,
            ("POST", "/v2/repository/models/{name}/load"): self._load,
            ("POST", "/v2/repository/models/{name}/unload"): self._unload,
        }

        def of(method: str) -> Iterator[Route]:
            for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
                for (each, path), endpoint in of_models.items():
                    if each == method:
                        yield Route(prefix + path, endpoint, methods=[method])

        # In this order: "stats" is no name of a model.
        yield from of("POST")
        for (method, path), handler in others.items():
            yield Route(path, plain(handler), methods=[method])
        yield from shared_memory_routes(self._shared, self.document)
        yield from of("GET")

    async def _server(self, _: Request) -> Response:
        return json_response(server_metadata(self._shared.extensions))

    async def _live(self, _: Request) -> Response:
        return json_response({"live": True})

    async def _ready(self, _: Request) -> Response:
        is_ready = self._repository.is_ready
        return json_response({"ready": is_ready}, _OK if is_ready else _UNAVAILABLE)

    async def _model_ready(self, request: Request) -> Response:
        name, version = _asked(request)
        is_ready = self._repository.is_model_ready(name, version)
        return json_response({"name": name, "ready": is_ready}, _OK if is_ready else _UNAVAILABLE)

    async def _metadata(self, request: Request) -> Response:
        model = self._model(request)
        return json_response(model_metadata(model, self._repository.versions(model.name)))

    async def _config(self, request: Request) -> Response:
        return json_response(config_as_json(self._model(request).config))

    async def _stats(self, request: Request) -> Response:
        name, version = _asked(request)
        versions = [version] if version else self._repository.versions(name)
        models = [self._repository.model(name, each) for each in versions]
        return json_response({"model_stats": [model_statistics(model) for model in models]})

    async def _all_stats(self, _: Request) -> Response:
        return json_response({"model_stats": [model_statistics(model) for model in self._repository.models()]})

    async def _index(self, request: Request) -> Response:
        is_ready = optional(await self.document(request), "ready", bool) or False
        await self._repository.refresh()
        states = self._repository.index(is_ready=is_ready)
        return json_response([{key: value for key, value in state._asdict().items() if value} for state in states])

    async def _load(self, request: Request) -> Response:
        name = request.path_params["name"]
        parameters: dict[str, object] = optional(await self.document(request), "parameters", dict) or {}
        values = {key: _load_parameter(key, value) for key, value in parameters.items()}
        await self._repository.load(name, values)
        return json_response({"name": name, "load": True})

    async def _unload(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self.document(request)
        await self._repository.unload(name)
        return json_response({"name": name, "unload": True})

    async def _generate(self, request: Request) -> Response:
        model, body = await self._asked_to_generate(request)
        with model.held():
            call = await _generate_call(model, request, body)
            response = await unless_disconnected(request.receive, model.infer(call))
        content = await off_loop(response.num_bytes, encode_generate, response)
        return Response(content, media_type="application/json")

    async def _generate_stream(self, request: Request) -> Response:
        model, body = await self._asked_to_generate(request)
        with model.held():
            call = await _generate_call(model, request, body)
            return await event_stream(model.responses(call), request.receive)

    async def _asked_to_generate(self, request: Request) -> tuple[Model, bytes]:
        self._model(request)
        body = await self._body(request)  # an unknown model is refused before its inputs are read
        return self._model(request), body

    def _model(self, request: Request) -> Model:
        return self._repository.model(*_asked(request))

    async def _body(self, request: Request) -> bytes:
        with HeldBytes() as held:
            return await read_body(
                dict(request.scope["headers"]), request.receive, self._max_body_bytes, self._body_timeout_s, held
            )

    async def document(self, request: Request) -> dict[str, Any]:
        """The body of *request*, an object; {} where there is none."""
        body = await self._body(request)
        return await off_loop(len(body), json_object, body) if body else {}


def _asked(request: Request) -> tuple[str, str]:
    """The name and version of the model that *request* names."""
    return request.path_params["name"], request.path_params.get("version", "")


async def _generate_call(model: Model, request: Request, body: bytes) -> InferRequest:
    return await off_loop(len(body), decode_generate, model, _asked(request)[1], body)


def _load_parameter(name: str, value: object) -> str | bytes | bool | int:
    if not isinstance(value, (str, bool, int)):
        raise InvalidArgumentError(f"'parameters.{name}' is not a string, a boolean or an integer")
    if not name.startswith("file:"):
        return value
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except ValueError:  # binascii.Error is one
        raise InvalidArgumentError(f"'parameters.{name}' is not the content of a file in base64") from None
