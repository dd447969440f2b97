"""TensorFlow Serving's REST API: its routes for the models of a repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from asyncexec.framework.errors import Code, InvalidArgumentError, NotFoundError
from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import off_loop, read_body
from asyncexec.service.http.calls import answering, unless_disconnected
from asyncexec.service.http.errors import STATUSES, error_response, json_response
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.tf_serving.calls import (
    check_signature,
    classify,
    find_model,
    regress,
    signature_def_map,
    version_statuses,
)
from asyncexec.service.tf_serving.json import (
    ExamplesCall,
    decode_examples,
    decode_predict,
    encode_classes,
    encode_predict,
    encode_values,
)

SERVING_STATUSES: Final = {
    **STATUSES,
    Code.ALREADY_EXISTS: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
}
_MOST_DIGITS: Final = 18


def serving_routes(repository: ModelRepository, max_body_bytes: int, body_timeout_s: float) -> Iterator[Route]:
    """The routes under ``/v1``; bodies have *max_body_bytes* at most and come within *body_timeout_s*."""
    calls = _Calls(repository, max_body_bytes, body_timeout_s)
    handlers = {
        ("POST", ":predict"): calls.predict,
        ("POST", ":classify"): calls.classify,
        ("POST", ":regress"): calls.regress,
        ("GET", "/metadata"): calls.metadata,
        ("GET", ""): calls.status,
    }
    for version in ("", "/versions/{version}", "/labels/{label}"):
        for (method, call), handler in handlers.items():
            yield Route(f"/v1/models/{{name}}{version}{call}", answering(handler, _refused), methods=[method])
    yield Route("/v1/{path:path}", _Malformed())


def _refused(error: Exception) -> Response:
    return error_response(error, SERVING_STATUSES)


class _Malformed:
    """Refuses whatever is no call of TensorFlow Serving, by any method: an ASGI app, for a function has methods."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = InvalidArgumentError(f"Malformed request: {scope['method']} {scope['path']}")
        await _refused(error)(scope, receive, send)


class _Calls:
    def __init__(self, repository: ModelRepository, max_body_bytes: int, body_timeout_s: float) -> None:
        self._repository = repository
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def status(self, request: Request) -> Response:
        statuses = version_statuses(self._repository, *_asked(self._repository, request))
        told = [
            {
                "version": str(each.version),
                "state": each.state,
                "status": {"error_code": "UNKNOWN" if each.error else "OK", "error_message": each.error},
            }
            for each in statuses
        ]
        return json_response({"model_version_status": told})

    async def metadata(self, request: Request) -> Response:
        model = self._model(request)
        signatures = json_format.MessageToDict(
            signature_def_map(model), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        spec = {"name": model.name, "signature_name": "", "version": model.version}
        return json_response({"model_spec": spec, "metadata": {"signature_def": signatures}})

    async def predict(self, request: Request) -> Response:
        self._model(request)  # an unknown one is refused before its inputs are read
        body = await self._body(request)
        model, version = self._model(request), _asked(self._repository, request)[1]
        with model.held():
            call = await off_loop(len(body), decode_predict, model, version, body)
            response = await unless_disconnected(request.receive, model.infer(call.request))
        return _json(await off_loop(response.num_bytes, encode_predict, call, response))

    async def classify(self, request: Request) -> Response:
        model, call = await self._examples(request)
        results = await unless_disconnected(request.receive, classify(model, call.examples))
        return _json(encode_classes(results))

    async def regress(self, request: Request) -> Response:
        model, call = await self._examples(request)
        values = await unless_disconnected(request.receive, regress(model, call.examples))
        return _json(encode_values(values))

    async def _examples(self, request: Request) -> tuple[Model, ExamplesCall]:
        self._model(request)
        body = await self._body(request)
        call = await off_loop(len(body), decode_examples, body)
        model = self._model(request)
        check_signature(model, call.signature_name)
        return model, call

    def _model(self, request: Request) -> Model:
        return find_model(self._repository, *_asked(self._repository, request))

    async def _body(self, request: Request) -> bytes:
        with HeldBytes() as held:
            return await read_body(
                dict(request.scope["headers"]), request.receive, self._max_body_bytes, self._body_timeout_s, held
            )


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _asked(repository: ModelRepository, request: Request) -> tuple[str, str]:
    """The name and version of the model that *request* names."""
    found: dict[str, Any] = request.path_params
    if "label" in found:
        labelled = repository.labels.get(found["name"], {}).get(found["label"])
        if labelled is None:
            raise NotFoundError(f"Unrecognized servable version label: {found['label']}")
        return found["name"], labelled
    version = found.get("version", "")
    if version and (not (version.isascii() and version.isdigit()) or len(version) > _MOST_DIGITS):
        raise InvalidArgumentError(f"Malformed request: {version!r} is no version")
    return found["name"], str(int(version)) if version else ""
