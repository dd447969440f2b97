"""Where there are tokens, nothing works without one but the questions about health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from asyncexec.service.app import InferenceApp, create_app
from asyncexec.service.grpc.front import grpc_handler
from asyncexec.service.master.front import master_handler
from asyncexec.service.master.sessions import MasterSessions
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.protocol_messages import SERVICE
from asyncexec.service.server import serving
from asyncexec.service.tf_serving.grpc import serving_grpc_handlers
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums

pytestmark = pytest.mark.one_of("loop")

TOKEN = "a-token"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY", "get", "Å")
HEALTH = ("/v2/health/live", "/v2/health/ready")
# Paths that somebody may take for one of health.
TRICKS = (
    "/v2/health/live/", "//v2/health/live", "/v2//health/live", "/v2/health/live/../../models/m", "/V2/HEALTH/LIVE",
    "/v2/health/live/../../../metrics", "/v2/health/./live", "/./v2/health/live", "/v2/health/live;/../../models/m",
    "/v2/health/live?x", "/v2/health/live%2f..%2f..", "/v2/health/live\0", "/v2/health/live ", "/v2/health/live\n",
    "/v2/health/lıve", "/v2/models/../health/live", "v2/health/live", "", "/", "*", "/v2/health", "/v2/health/",
    "/v2/models/health/live", "/models/v2/health/live", "/v2/../v2/models/m", "/v3", "/v1", "/v1/", "/v1/x",
)  # fmt: skip
WRONG = ("", "Bearer", "Bearer ", "Bearer b", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer  x {TOKEN}")


@pytest.fixture
async def app() -> AsyncIterator[InferenceApp]:
    async with create_app({"m": sums()}, tokens=[TOKEN]) as found:
        yield found


async def answer(app: Any, kind: str, method: str, path: str, authorization: str | None, root: str = "") -> Any:
    """The first message that *app* sends; it gets no body."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"} if kind == "websocket" else {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    scope = {"type": kind, "method": method, "path": path, "root_path": root, "raw_path": path.encode()}
    scope |= {"headers": headers, "query_string": b"", "scheme": "http", "server": ("test", 80), "http_version": "1.1"}
    await app(scope, receive, send)
    return sent[0]


def paths_of(app: InferenceApp) -> list[str]:
    """The paths of all routes, and others that may be taken for one."""
    known = (each.path.replace(":path}", "}") for each in app._routes.routes)
    routes = [path.format(name="m", version="1", label="l", path="x") for path in known]
    return [*routes, *(path + "/" for path in routes), *(path.upper() for path in routes), *TRICKS]


@pytest.mark.parametrize("root", ["", "/models"])
async def test_no_route_of_http_answers_without_a_token(app: InferenceApp, root: str) -> None:
    for path in paths_of(app):
        for method in METHODS if path not in HEALTH else ():
            told = await answer(app, "http", method, root + path, None, root)
            assert told["status"] == 401, (method, path)
        told = await answer(app, "websocket", "GET", root + path, None, root)
        assert told["type"] == "websocket.close", path
    for path in HEALTH:
        assert (await answer(app, "http", "GET", root + path, None, root))["status"] == 200


@pytest.mark.parametrize("value", WRONG)
async def test_no_route_of_http_answers_with_a_wrong_token(app: InferenceApp, value: str) -> None:
    for path in set(paths_of(app)) - set(HEALTH):
        assert (await answer(app, "http", "GET", path, value))["status"] == 401


async def test_every_route_of_http_is_found_with_a_token(app: InferenceApp) -> None:
    for path in {each.path for each in app._routes.routes} - {"/v1/{path:path}"}:
        told = await answer(app, "http", "GET", path.format(name="m", version="1", label="l"), f"Bearer {TOKEN}")
        assert told["status"] != 401


async def test_a_token_is_asked_for_where_the_service_is_mounted(app: InferenceApp) -> None:
    outer = Starlette(routes=[Mount("/models", app)])
    for path in ("/models/v2", "/models/v2/health/live/../models/m", "/models/models/v2/health/live", "/models/"):
        assert (await answer(outer, "http", "GET", path, None))["status"] == 401
    assert (await answer(outer, "http", "GET", "/models/v2/health/live", None))["status"] == 200


@pytest.fixture(scope="module")
def methods() -> list[str]:
    """The names of all calls over gRPC."""
    repository = ModelRepository()
    handlers = (grpc_handler(repository), *serving_grpc_handlers(repository), master_handler(MasterSessions()))
    return [name for handler in handlers for name in handler._method_handlers]


@pytest.mark.allow_blocking
@pytest.mark.usefixtures("grpc_library")
async def test_no_call_over_grpc_is_answered_without_a_token(methods: list[str]) -> None:
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tokens": [TOKEN], "tensorflow_master": True}
    free = {f"/{SERVICE}/ServerLive", f"/{SERVICE}/ServerReady"}
    assert free < set(methods)
    async with (
        nothing_of_grpc_left(),
        serving({"m": sums()}, **options) as ports,
        grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel,
    ):
        for name in methods:
            status = await status_of(channel, name)
            assert status is (grpc.StatusCode.OK if name in free else grpc.StatusCode.UNAUTHENTICATED), name
            assert await status_of(channel, name, f"Bearer {TOKEN}") is not grpc.StatusCode.UNAUTHENTICATED, name
        for value in WRONG:
            assert await status_of(channel, f"/{SERVICE}/ServerMetadata", value) is grpc.StatusCode.UNAUTHENTICATED
        for trick in ("ServerLive/", "serverlive", "ServerLive/../ServerMetadata", "/ServerLive", "ServerLive%00"):
            assert await status_of(channel, f"/{SERVICE}/{trick}") is grpc.StatusCode.UNIMPLEMENTED
        twice = await status_of(channel, f"/{SERVICE}/ServerMetadata", "Bearer x", f"Bearer {TOKEN}")
        assert twice is grpc.StatusCode.UNAUTHENTICATED


async def status_of(channel: grpc.aio.Channel, name: str, *authorization: str) -> grpc.StatusCode:
    """How the call *name* of an empty message ends."""
    call = channel.stream_stream(name)(iter([b""]), metadata=[("authorization", each) for each in authorization])
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
