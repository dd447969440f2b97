"""The OpenAPI description of the HTTP routes: every route, what it takes, and each status that it answers with.

A test holds that no route is missing here, and the fuzz suite that no answer differs from what stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from asyncexec.service.http.codec import HEADER_LENGTH
from asyncexec.service.http.errors import STATUSES
from asyncexec.service.http.openapi_schemas import COUNT, TEXT, Schema, ref, schemas
from asyncexec.service.server_info import VERSION
from asyncexec.service.tf_serving.rest import SERVING_STATUSES

_JSON, _RAW, _EVENTS, _PLAIN = "application/json", "application/octet-stream", "text/event-stream", "text/plain"
_OF_BODIES: Final = (400, 408, 413, 415)
_OF_RUNS: Final = (*STATUSES.values(), 500)  # a model may raise any error
_OF_SERVING_RUNS: Final = (*SERVING_STATUSES.values(), 500)
_UNAUTHORIZED, _NOT_READY = 401, 503
_HEALTH: Final = "/v2/health/"
_OBJECT: Final = {_JSON: {"type": "object"}}

_ABOUT: Final = """The Open Inference Protocol with Triton's extensions, and TensorFlow Serving's REST API.

`HEAD` is answered as `GET` is, without a body. Errors are an `Error`: another method of a path under `/v2` is answered
by 405 with `Allow`, and another path by 404. Under `/v1`, both are answered by 400. The type of a body's content is not
looked at. Answers are compressed by gzip or deflate where `Accept-Encoding` allows that. What is no HTTP request is
answered by 400 as plain text.
"""

_REASONS: Final = {
    400: "The request is not what is expected here.",
    401: "There is no bearer token, or none that is known.",
    403: "The model may not do this.",
    404: "There is no such model, or no such version of it.",
    408: "The body has not come in time.",
    409: "The model cannot do this now.",
    413: "The body is too large.",
    415: "The content coding of the body is not known.",
    429: "The model has too much to do.",
    499: "The model, or the client, has cancelled the request.",
    500: "The code of the model has raised an exception.",
    501: "This is not supported.",
    503: "The model is not ready, or the service has too much to do: ask again.",
    504: "The deadline of the request has passed.",
}
_HEADERS: Final = {
    401: ("WWW-Authenticate",),
    415: ("Accept-Encoding",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """What one method of one path does.

    Attributes:
        answer: the content of status 200, by its type.
        body: the content of the request, by its type.
        errors: the statuses of errors.
        not_ready: what status 503 may tell instead of an error.
    """

    summary: str
    answer: Mapping[str, Schema]
    body: Mapping[str, Schema] | None
    errors: frozenset[int]
    needs_body: bool = True
    not_ready: Schema | None = None


def _get(summary: str, answer: str | Mapping[str, Schema], *errors: int, not_ready: str | None = None) -> _Operation:
    """An operation without a body; *answer* and *not_ready* name schemas."""
    other = None if not_ready is None else ref(not_ready)
    return _Operation(summary, _content(answer), None, frozenset(errors), not_ready=other)


def _post(
    summary: str,
    answer: str | Mapping[str, Schema],
    body: str | Mapping[str, Schema],
    errors: Iterable[int],
    *,
    needs_body: bool = True,
) -> _Operation:
    return _Operation(summary, _content(answer), _content(body), frozenset({*errors, *_OF_BODIES}), needs_body)


def _content(given: str | Mapping[str, Schema]) -> Mapping[str, Schema]:
    return {_JSON: ref(given)} if isinstance(given, str) else given


_OF_SERVER: Final = {
    ("GET", "/v2"): _get("What the server is.", "ServerMetadata", 503),
    ("GET", "/v2/health/live"): _get("Is the server there?", "Live"),
    ("GET", "/v2/health/ready"): _get("Are all models ready?", "Ready", 503, not_ready="Ready"),
    ("GET", "/v2/models/stats"): _get("What all models have done.", "ModelStatistics", 503),
    ("GET", "/v2/openapi.json"): _get("This description.", _OBJECT, 503),
    ("GET", "/metrics"): _get("Metrics for Prometheus.", {_PLAIN: TEXT}, 503),
    ("POST", "/v2/repository/index"): _post(
        "Which models there are.", "RepositoryIndex", "RepositoryIndexRequest", (404, 503), needs_body=False
    ),
    ("POST", "/v2/repository/models/{name}/load"): _post(
        "Load a model, or load it anew.", "Loaded", "LoadRequest", (501, 503), needs_body=False
    ),
    ("POST", "/v2/repository/models/{name}/unload"): _post(
        "Unload a model.", "Unloaded", _OBJECT, (404, 501, 503), needs_body=False
    ),
}
_OF_SETTINGS: Final = {
    ("GET", "/v2/logging"): _get("What is logged.", "LogSettings", 503),
    ("POST", "/v2/logging"): _post("Change what is logged.", "LogSettings", "LogChanges", (501, 503), needs_body=False),
    ("GET", "/v2/trace/setting"): _get("Which requests are traced.", "TraceSettings", 503),
    ("GET", "/v2/models/{name}/trace/setting"): _get(
        "Which requests of the model are traced.", "TraceSettings", 400, 503
    ),
    **{
        ("POST", path): _post(
            "Change which requests are traced.", "TraceSettings", "TraceChanges", (501, 503), needs_body=False
        )
        for path in ("/v2/trace/setting", "/v2/models/{name}/trace/setting")
    },
}
_OF_SHARED_MEMORY: Final = {
    ("GET", "/status"): _get("The regions of shared memory.", "Regions", 503),
    ("GET", "/region/{name}/status"): _get("One region of shared memory.", "Regions", 404, 503),
    ("POST", "/region/{name}/register"): _post(
        "Let requests name a region of shared memory.", {}, "RegisterRequest", (501, 503), needs_body=False
    ),
    ("POST", "/region/{name}/unregister"): _post("Forget a region.", {}, _OBJECT, (501, 503), needs_body=False),
    ("POST", "/unregister"): _post("Forget all regions.", {}, _OBJECT, (501, 503), needs_body=False),
}
_OF_MODEL: Final = {
    ("POST", "/infer"): _post(
        "Run the model.",
        {_JSON: ref("InferResponse"), _RAW: {}},
        {_JSON: ref("InferRequest"), _RAW: {}},
        _OF_RUNS,
        needs_body=False,  # it may be a raw tensor without elements
    ),
    ("POST", "/generate"): _post("Run the model: plain JSON.", "GenerateResponse", "GenerateRequest", _OF_RUNS),
    ("POST", "/generate_stream"): _post(
        "Run the model: the answer is an event whose data is a GenerateResponse.",
        {_EVENTS: {}},
        "GenerateRequest",
        _OF_RUNS,
    ),
    ("GET", ""): _get("What the model takes and gives.", "ModelMetadata", 404, 503),
    ("GET", "/ready"): _get("Is the model ready?", "ModelReady", 503, not_ready="ModelReady"),
    ("GET", "/config"): _get("How the model is configured.", "ModelConfig", 404, 503),
    ("GET", "/stats"): _get("What the model has done.", "ModelStatistics", 404, 503),
}
_OF_SERVING: Final = {
    ("POST", ":predict"): _post("Run the model.", "PredictResponse", "PredictRequest", _OF_SERVING_RUNS),
    ("POST", ":classify"): _post("Classes of Examples.", "ExamplesResponse", "ExamplesRequest", _OF_SERVING_RUNS),
    ("POST", ":regress"): _post("Values of Examples.", "ExamplesResponse", "ExamplesRequest", _OF_SERVING_RUNS),
    ("GET", "/metadata"): _get("The signature of the model.", "ServingMetadata", 400, 404, 503),
    ("GET", ""): _get("The states of the model's versions.", "ModelStatus", 400, 404, 503),
}


def document(*, has_tokens: bool) -> dict[str, Any]:
    """The description; *has_tokens* says whether callers need a token."""
    paths: dict[str, dict[str, object]] = {}
    for method, path, operation in _operations():
        told = _described(method, path, operation)
        if has_tokens and not path.startswith(_HEALTH):
            told["security"] = [{"bearer": []}]
            told["responses"][str(_UNAUTHORIZED)] = _error(_UNAUTHORIZED)
        paths.setdefault(path, {})[method.lower()] = told
    components: dict[str, object] = {"schemas": schemas()}
    if has_tokens:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    about = {"title": "asyncexec", "version": VERSION, "description": _ABOUT}
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": components}


def _operations() -> Iterator[tuple[str, str, _Operation]]:
    """What is served, with its method and path."""
    version, label = "/versions/{version}", "/labels/{label}"
    tables = (
        (_OF_SERVER, [""]),
        (_OF_MODEL, [f"/v2/models/{{name}}{each}" for each in ("", version)]),
        (_OF_SETTINGS, [""]),
        (_OF_SHARED_MEMORY, [f"/v2/{kind}sharedmemory" for kind in ("system", "cuda")]),
        (_OF_SERVING, [f"/v1/models/{{name}}{each}" for each in ("", version, label)]),
    )
    for table, prefixes in tables:
        for prefix in prefixes:
            for (method, path), operation in table.items():
                yield method, prefix + path, operation


def _described(method: str, path: str, operation: _Operation) -> dict[str, Any]:
    told: dict[str, Any] = {"summary": operation.summary}
    parameters = [*_path_parameters(path), *_header_parameters(operation)]
    if parameters:
        told["parameters"] = parameters
    if operation.body is not None:
        told["requestBody"] = {"content": _media(operation.body), "required": operation.needs_body}
    told["responses"] = {"200": _answer(operation)}
    for status in sorted(operation.errors):
        told["responses"][str(status)] = _error(status, operation.not_ready if status == _NOT_READY else None)
    return told


def _path_parameters(path: str) -> Iterator[dict[str, object]]:
    schemas_of = {
        "{name}": {**TEXT, "minLength": 1},
        "{version}": {**TEXT, "pattern": "^[0-9]{1,18}$"},
        "{label}": {**TEXT, "minLength": 1},
    }
    for name, schema in schemas_of.items():
        if name in path:
            yield {"name": name[1:-1], "in": "path", "required": True, "schema": schema}


def _header_parameters(operation: _Operation) -> Iterator[dict[str, object]]:
    if operation.body is None:
        return
    yield {"name": "Content-Encoding", "in": "header", "schema": {"enum": ["", "identity", "gzip", "deflate"]}}
    if _RAW in operation.body:
        about = "How long the JSON is which raw tensors follow; 0: the body is the only input."
        yield {"name": HEADER_LENGTH, "in": "header", "schema": COUNT, "description": about}


def _answer(operation: _Operation) -> dict[str, object]:
    told: dict[str, object] = {"description": "It is done.", "content": _media(operation.answer)}
    if _RAW in operation.answer:
        about = "How long the JSON is which raw tensors follow."
        told["headers"] = {HEADER_LENGTH: {"schema": COUNT, "description": about}}
    return told


def _error(status: int, other: Schema | None = None) -> dict[str, Any]:
    schema = ref("Error") if other is None else {"anyOf": [other, ref("Error")]}
    told: dict[str, object] = {"description": _REASONS[status], "content": _media({_JSON: schema})}
    if status in _HEADERS:
        told["headers"] = {name: {"schema": TEXT} for name in _HEADERS[status]}
    return told


def _media(content: Mapping[str, Schema]) -> dict[str, object]:
    return {kind: {"schema": schema} for kind, schema in content.items()}
