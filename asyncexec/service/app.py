"""InferenceApp: the service as an ASGI app."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from asyncexec.framework.clock import monotonic_ns as now_ns
from asyncexec.framework.errors import UnavailableError
from asyncexec.framework.spans import Hook
from asyncexec.graph.graph import Graph
from asyncexec.service.held_bytes import SMALL_BYTES
from asyncexec.service.http.front import MAX_BODY_BYTES, asked_to_infer, http_app
from asyncexec.service.http.hosts import Hosts
from asyncexec.service.http.infer import Answer, Rest, Waiting
from asyncexec.service.http.observer import HttpExchange, counted
from asyncexec.service.http.openapi import document
from asyncexec.service.http.websocket import WebSockets, deny
from asyncexec.service.live.routes import LivePage
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.observing.metrics import CONTENT_TYPE, Metrics
from asyncexec.service.observing.telemetry import Telemetry
from asyncexec.service.shared_memory import SharedMemory

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_BEARER: Final = b"bearer"
_CROSS_SITE: Final = (b"sec-fetch-site", b"cross-site")  # a browser tells it of a page that may not read the answer
_OTHER_HOST: Final = "the service is not known by this name: start it with --allowed-host, or give callers tokens"
_HEALTH: Final = ("/v2/health/live", "/v2/health/ready")
_LOGGER: Final = logging.getLogger("asyncexec.service")


class InferenceApp:
    """Serves *repository* over HTTP, by the Open Inference Protocol.

    It loads its models with the first request, or when it is entered as a context manager; a server that knows ASGI's
    lifespan does that before.  An app that it is mounted in does not pass its lifespan on: enter it in that one's, so
    that its sessions end with it.

    Attributes:
        repository: the models.
        shared_memory: the regions of shared memory that clients have registered.
        telemetry: what it tells of the calls of its clients.
    """

    def __init__(
        self,
        repository: ModelRepository,
        *,
        tokens: Collection[str] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
        page: bool = False,
        shared_memory: bool = False,
        hooks: Sequence[Hook] = (),
        trace_file: Path | None = None,
        allowed_hosts: Collection[str] | None = None,
    ) -> None:
        self._hosts = None if allowed_hosts is None or tokens else Hosts(allowed_hosts)
        self.repository: ModelRepository = repository
        self.shared_memory: SharedMemory = SharedMemory(max_body_bytes if shared_memory else None)
        self.telemetry: Telemetry = Telemetry(hooks, trace_file)
        self._tokens = Tokens(tokens)
        self._max_small_bytes = min(SMALL_BYTES, max_body_bytes)
        self._metrics = Metrics(repository, self.telemetry)
        self._description = orjson.dumps(document(has_tokens=bool(tokens)))
        self._sockets = WebSockets(repository, max_body_bytes, self.shared_memory)
        others = [Route("/metrics", self._tell_metrics), Route("/v2/openapi.json", self._describe)]
        self._routes = http_app(
            repository,
            max_body_bytes=max_body_bytes,
            others=[*others, *self._sockets.routes()],
            shared=self.shared_memory,
            telemetry=self.telemetry,
        )
        self._page = LivePage(repository, max_body_bytes, self.telemetry.lag) if page else None
        self._starting: asyncio.Task[None] | None = None
        self._has_started = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Load the models, if nobody has done so, or if that failed.

        Raises:
            UnavailableError: it was closed meanwhile; NotFoundError: there is no folder of models.
        """
        starting = self._begin()
        if not starting.done():
            await asyncio.wait([starting])  # it goes on though the caller leaves
        if starting.cancelled():
            raise UnavailableError("the service was closed before it had started")
        starting.result()
        self._has_started = True

    def _begin(self) -> asyncio.Task[None]:
        """Begin to load the models, if nobody has done so, or if that failed."""
        if self._starting is None or _has_failed(self._starting):
            self.telemetry.start()
            self.repository.hooks = self.telemetry.hooks
            self._starting = asyncio.get_running_loop().create_task(self.repository.start())
            self._starting.add_done_callback(_has_failed)  # which asks for the exception, if nobody else does
        return self._starting

    def end_page(self) -> None:
        """Let nobody look at the live page any more: a server that ends waits for those who do."""
        if self._page is not None:
            self._page.end()

    async def close(self) -> None:
        """Serve nothing more; ends when the calls under way have."""
        self.end_page()
        starting, self._starting, self._has_started = self._starting, None, False
        if starting is not None and not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        await self.repository.close()
        self.shared_memory.unregister()
        await self.telemetry.close()

    async def end_streams(self, timeout_s: float) -> None:
        """Close the WebSockets when what they ask for is answered, or *timeout_s* are over, and open no more."""
        await self._sockets.end(timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hosts is not None and "headers" in scope and not self._hosts.allow(scope["headers"]):
            await deny(JSONResponse({"error": _OTHER_HOST}, 403), scope, receive, send)
            return
        if scope["type"] == "http":
            if scope["method"] == "POST" and _CROSS_SITE in scope["headers"]:
                refused = JSONResponse({"error": "a page of another site may not ask for this"}, 403)
                await refused(scope, receive, send)
                return
            exchange = HttpExchange(self.telemetry, scope, receive, send)
            try:
                await self._answer(scope, exchange.receive, exchange.send)
            except BaseException as error:
                exchange.fail(error)
                raise
            finally:
                exchange.end()
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._answer(scope, receive, send)

    def begin(self, scope: Scope, body: bytes) -> Answer | Waiting | Rest | None:
        """What answers a request that has come with its small *body*, or what is left to do for that.

        None where the request is not the usual one, or is refused, or somebody wants to know more of it than counts:
        then the app is to be called.  This is for servers that need no messages of ASGI.
        """
        asked = asked_to_infer(scope)
        if asked is None or not self._has_started or self.telemetry.is_watching or len(body) > self._max_small_bytes:
            return None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"content-encoding" in headers or headers.get(_CROSS_SITE[0]) == _CROSS_SITE[1]:
            return None
        if self._tokens and not self._tokens.allow(headers.get(b"authorization")):
            return None
        if self._hosts is not None and not self._hosts.allow(scope["headers"]):
            return None
        begin_ns = now_ns()
        found = self._routes.infer.begin(*asked, headers, body)
        return counted(self.telemetry, found, scope, len(body), begin_ns)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] == "http" and path in _HEALTH:
            self._begin()  # and answer meanwhile: who loads for long is alive
            await self._routes(scope, receive, send)
            return
        page = self._page if scope["type"] == "http" and LivePage.has(path) else None
        if page is not None and page.is_open(path):
            await page(scope, receive, send)
            return
        if self._tokens and not self._tokens.allow(_authorization(scope)):
            response: Response = JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": "Bearer"})
            await deny(response, scope, receive, send)
            return
        if page is not None:
            self._begin()  # and show meanwhile what is loaded
            await page(scope, receive, send)
            return
        if not self._has_started:
            try:
                await self.start()
            except Exception:
                _LOGGER.exception("the service cannot start")
                await _refuse(scope, receive, send)
                return
        await self._routes(scope, receive, send)

    async def _tell_metrics(self, _: Request) -> Response:
        return Response(await self._metrics.text(), media_type=CONTENT_TYPE)

    async def _describe(self, _: Request) -> Response:
        return Response(self._description, media_type="application/json")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and close as a server's lifespan says."""
        while True:
            message = await receive()
            starts = message["type"] == "lifespan.startup"
            try:
                await (self.start() if starts else self.close())
            except Exception as error:
                await send({"type": f"{message['type']}.failed", "message": str(error)})
                return
            await send({"type": f"{message['type']}.complete"})
            if not starts:
                return


class Tokens:
    """The *tokens* of those who may call; without any, everybody may."""

    def __init__(self, tokens: Collection[str]) -> None:
        self._tokens = [token.encode() for token in tokens]

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether the value of a caller's Authorization header has one of them; it takes as long for any value."""
        if not self._tokens:
            return True
        scheme, _, given = (authorization or b"").partition(b" ")
        found = [hmac.compare_digest(given.strip(b" "), token) for token in self._tokens]
        return scheme.lower() == _BEARER and any(found)


def _has_failed(starting: asyncio.Task[None]) -> bool:
    return starting.done() and (starting.cancelled() or starting.exception() is not None)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell the client to come again; why the service cannot start stands in the log."""
    response = JSONResponse({"error": "the service cannot start"}, 503, {"Retry-After": "1"})
    await deny(response, scope, receive, send)


def _authorization(scope: Scope) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == b"authorization"), None)


def create_app(
    models: Mapping[str, Graph | ModelSource] | ModelRepository | str | Path,
    *,
    tokens: Collection[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    page: bool = False,
    shared_memory: bool = False,
    hooks: Sequence[Hook] = (),
    trace_file: str | Path | None = None,
    allowed_hosts: Collection[str] | None = None,
) -> InferenceApp:
    """An ASGI app that serves *models*, for any ASGI server, or to be mounted in FastAPI or Starlette.

    >>> with ax.Graph() as graph:
    ...     x = ax.placeholder(ax.float32, [None], name="x")
    ...     y = ax.multiply(x, 2.0, name="y")
    >>> app = ax.service.create_app({"double": graph})  # uvicorn module:app

    Args:
        models: graphs by the names of models, or a folder of models.
        tokens: those of the callers who may do more than ask for its health; without any, everybody may.
        max_body_bytes: the largest request, also after it has been decompressed.
        page: whether there is the live page at ``/``.
        shared_memory: callers may let it read and write objects in ``/dev/shm``: let none call from other machines.
        hooks: are told of the steps of all models, as those of a session.
        trace_file: where the timelines of sampled requests are written; clients choose which, by the trace extension.
        allowed_hosts: without tokens, names by which browsers may ask, beside localhost and addresses; None for any.

    Raises:
        MissingExtraError: ``pip install "asyncexec[serve]"``.
    """
    return InferenceApp(
        repository_of(models),
        tokens=tokens,
        max_body_bytes=max_body_bytes,
        page=page,
        shared_memory=shared_memory,
        hooks=hooks,
        trace_file=None if trace_file is None else Path(trace_file),
        allowed_hosts=allowed_hosts,
    )


def repository_of(models: Mapping[str, Graph | ModelSource] | ModelRepository | str | Path) -> ModelRepository:
    """The repository of *models*."""
    if isinstance(models, ModelRepository):
        return models
    if isinstance(models, (str, Path)):
        return ModelRepository(Path(models))
    return ModelRepository(sources=models)
