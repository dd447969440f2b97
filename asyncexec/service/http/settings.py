"""Triton's trace and logging extensions over HTTP: settings that clients read and change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.http.calls import answering
from asyncexec.service.http.errors import json_response
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.observing.telemetry import Telemetry
from asyncexec.service.observing.traces import LEVEL, check_model


def settings_routes(
    repository: ModelRepository, telemetry: Telemetry, document: Callable[[Request], Awaitable[dict[str, object]]]
) -> Iterator[Route]:
    """The routes of the settings of *telemetry*; *document* gives the body of a request, an object."""

    async def changes_in(request: Request) -> dict[str, object]:
        return {} if request.method == "GET" else await document(request)

    async def trace_setting(request: Request) -> Response:
        name = request.path_params.get("name", "")
        check_model(repository, name)
        changes = await changes_in(request)
        telemetry.traces.update({key: _values(key, value) for key, value in changes.items()}, name)
        settings = telemetry.traces.settings(name)
        return json_response({key: list(values) if key == LEVEL else values[0] for key, values in settings.items()})

    async def logging_settings(request: Request) -> Response:
        changes = {key: value for key, value in (await changes_in(request)).items() if value is not None}
        if changes:
            telemetry.log_settings.update(changes)
        return json_response(telemetry.log_settings.values())

    for path in ("/v2/trace/setting", "/v2/models/{name}/trace/setting"):
        yield Route(path, answering(trace_setting), methods=["GET", "POST"])
    yield Route("/v2/logging", answering(logging_settings), methods=["GET", "POST"])


def _values(name: str, value: object) -> Sequence[str] | None:
    """The values of a trace setting: a list for the level, else one string; None for the default."""
    if value is None:
        return None
    values = value if name == LEVEL else [value]
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        expected = "an array of strings" if name == LEVEL else "a string"
        raise InvalidArgumentError(f"'{name[:20]}' is {expected}")
    return values
