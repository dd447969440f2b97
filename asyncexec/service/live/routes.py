"""The routes of the live page: its files, a snapshot each second, graphs, and calls that are traced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import anyio.to_thread
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from asyncexec.framework.errors import DeadlineExceededError, OpError, UnavailableError
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.page.graph_data import graph_data
from asyncexec.page.graph_nodes import nodes_of_graph
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import off_loop, read_body
from asyncexec.service.http.calls import answering, unless_disconnected
from asyncexec.service.http.codec import MAX_JSON_BYTES, InferCall, decode_infer, encode_infer
from asyncexec.service.http.errors import error_response
from asyncexec.service.live.feed import EventStream, LiveFeed
from asyncexec.service.live.page_routes import STRICT, PageFiles
from asyncexec.service.live.snapshot import encoded, snapshot
from asyncexec.service.live.timeline import timeline
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import InferRequest, InferResponse

MOST_NODES: Final = 100_000  # of a graph that is shown
LONGEST_TRACED_S: Final = 10.0  # a call that is traced keeps what it has run
BODY_TIMEOUT_S: Final = 60.0
SAMPLE: Final = "sample"  # the parameter of a configuration that has sample inputs
_PREFIX: Final = "/live/"
_FILES: Final = f"{_PREFIX}files/"
_PRIVATE: Final = {**STRICT, "Cache-Control": "no-store"}


class LivePage:
    """An ASGI app: the live page of the models of *repository*, in a loop whose *lag* is measured."""

    def __init__(self, repository: ModelRepository, max_body_bytes: int, lag: LoopLag | None = None) -> None:
        self._repository = repository
        self._max_body_bytes = min(max_body_bytes, MAX_JSON_BYTES)
        self._tracing = asyncio.Lock()
        self._feed = LiveFeed(lambda lag: snapshot(repository, lag), lag=lag)
        self._app = Starlette(routes=list(self._routes()), exception_handlers={HTTPException: _refused})
        self._app.router.redirect_slashes = False

    @staticmethod
    def has(path: str) -> bool:
        """Whether *path* is one of the page's."""
        return path in ("", "/") or path.startswith(_PREFIX)

    @staticmethod
    def is_open(path: str) -> bool:
        """Whether *path* is a file, which needs no token: it tells nothing of the models."""
        return path in ("", "/") or path.startswith(_FILES)

    def end(self) -> None:
        """Tell those who look that the service ends."""
        self._feed.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == scope.get("root_path", "") and not path.endswith("/"):  # the page's addresses are relative
            await RedirectResponse(f"{path.rpartition('/')[2]}/", headers=STRICT)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _routes(self) -> Iterator[Route]:
        files = PageFiles()
        model = "/live/models/{name}/versions/{version}"
        yield Route("/", files.page, methods=["GET"])  # what they send is compressed already
        yield Route(f"{_FILES}{{name}}", files.file, methods=["GET"])
        yield Route("/live/events", answering(self._events), methods=["GET"])
        yield Route(model, answering(self._model), methods=["GET"])
        yield Route(f"{model}/infer", answering(self._infer), methods=["POST"])

    async def _events(self, _: Request) -> Response:
        self._feed.check_room()
        return EventStream(self._feed, {**_PRIVATE, "X-Accel-Buffering": "no"})

    async def _model(self, request: Request) -> Response:
        content = await anyio.to_thread.run_sync(_described, self._asked(request))
        return Response(content, headers=_PRIVATE, media_type="application/json")

    async def _infer(self, request: Request) -> Response:
        """As the protocol's in JSON, and with the timeline of the call, which a call that fails has, too."""
        self._asked(request)
        headers = dict(request.scope["headers"])
        with HeldBytes() as held:
            body = await read_body(headers, request.receive, self._max_body_bytes, BODY_TIMEOUT_S, held)
        if self._tracing.locked():
            raise UnavailableError("another call is traced at this moment")
        metadata = RunMetadata()
        async with self._tracing:
            answer = await self._answer(request, body, metadata)
            told = await anyio.to_thread.run_sync(timeline, metadata)
        content = {**orjson.loads(answer.body), "timeline": told}
        return Response(orjson.dumps(content), answer.status_code, _PRIVATE, "application/json")

    async def _answer(self, request: Request, body: bytes, metadata: RunMetadata) -> Response:
        model = self._asked(request)
        try:
            with model.held():
                call = await off_loop(len(body), decode_infer, model, model.version, body, None)
                asked = InferCall(call.request)
                response = await unless_disconnected(request.receive, _traced(model, asked.request, metadata))
            encoded = await off_loop(response.num_bytes, encode_infer, asked, response)
        except Exception as error:
            return error_response(error)
        return Response(encoded.content)

    def _asked(self, request: Request) -> Model:
        return self._repository.model(request.path_params["name"], request.path_params["version"])


async def _traced(model: Model, request: InferRequest, metadata: RunMetadata) -> InferResponse:
    try:
        async with asyncio.timeout(LONGEST_TRACED_S):
            return await model.infer(request, metadata)
    except TimeoutError as error:
        if isinstance(error, OpError):  # of the model's own limit
            raise
        raise DeadlineExceededError(f"a call that is traced has {LONGEST_TRACED_S:g} s") from None


def _described(model: Model) -> bytes:
    """What the page has to know of *model*: what it takes and gives, samples, and its graph."""
    nodes = model.session.graph.operations
    told = {
        "name": model.name,
        "version": model.version,
        "max_batch_size": model.config.max_batch_size,
        "inputs": [_tensor(spec) for spec in model.signature.inputs.values()],
        "outputs": [_tensor(spec) for spec in model.signature.outputs.values()],
        "samples": _samples(model),
        "num_nodes": len(nodes),
        "graph": graph_data(nodes_of_graph(model.session.graph)) if len(nodes) <= MOST_NODES else None,
        "lines": {node.name: node.user_line for node in nodes[:MOST_NODES] if node.user_line},
    }
    return encoded(told)


def _tensor(spec: TensorSpec) -> dict[str, object]:
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape, "is_optional": spec.is_optional}


def _samples(model: Model) -> list[object]:
    """What the configuration says to begin with in the form."""
    if SAMPLE not in model.config.parameters:
        return []
    try:
        found = orjson.loads(model.config.parameters[SAMPLE].string_value)
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) else [found]


async def _refused(_: Request, error: Exception) -> Response:
    return error_response(error)
