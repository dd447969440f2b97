"""Servers in processes of their own, for the rows of the service: ours, and the same written by hand.

``python -m benchmarks.service_processes NAME`` prints three ports: of HTTP, of gRPC, and one that answers every
connection with the processor time that the process has used, in nanoseconds.  It ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.extras import require
from asyncexec.process.blas_threads import limit_blas_threads
from asyncexec.process.gc_pause import freeze_what_is_loaded

NUM_FLOATS: Final = 16
NUM_INSTANCES: Final = 4
SERVICE_S: Final = 0.02
CAPACITY: Final = NUM_INSTANCES / SERVICE_S  # requests a second
MOST_QUEUED: Final = 20
TICK_S: Final = 0.001
DIGITS: Final = Path(ax.__file__).parent / "cli" / "demo_data" / "model.pb"
HEADER: Final = "Inference-Header-Content-Length"


def identity() -> ax.Graph:
    """Input x, output y: the same floats."""
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.float32, [None], name="x"), name="y")
    return graph


def digits() -> ax.Graph:
    """A small CNN."""
    with ax.Graph() as graph:
        ax.import_graph_def(ax.load_graph_def(DIGITS))
    return graph


@asynccontextmanager
async def ours() -> AsyncIterator[tuple[int, int]]:
    """The service, with the digits model in batches and one at a time."""
    source = ax.service.ModelSource
    config = {"max_batch_size": 64}
    models = {
        "identity": source(identity()),
        "digits": source(digits(), config=config),
        "digits_batched": source(digits(), config=config | {"dynamic_batching": {}}),
    }
    async with ax.service.serving(models, http_port=0, grpc_port=0) as ports:
        assert ports.grpc is not None
        yield ports.http, ports.grpc


def queued() -> ax.service.ModelSource:
    """A model that bears CAPACITY requests a second, and lets MOST_QUEUED wait."""

    @ax.op(outputs=[ax.float32])
    async def take_time(x: Any) -> Any:
        await asyncio.sleep(SERVICE_S)
        return x

    with ax.Graph() as graph:
        y = take_time(ax.placeholder(ax.float32, [None], name="x"))
    policy = {"default_queue_policy": {"max_queue_size": MOST_QUEUED}}
    config = {"instance_group": [{"count": NUM_INSTANCES}], "dynamic_batching": policy}
    return ax.service.ModelSource(graph, outputs={"y": y}, config=config)


class Ticker:
    """Tells how long the event loop's thread worked, at most, while a timer that was due did not run."""

    def __init__(self) -> None:
        self.most_ns = 0
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            begun = time.thread_time_ns()
            await asyncio.sleep(TICK_S)
            self.most_ns = max(self.most_ns, time.thread_time_ns() - begun)

    def model(self) -> ax.service.ModelSource:
        """Input x, whatever it is; output y: the milliseconds since it was asked before."""

        @ax.op(outputs=[ax.float32])
        async def lag(x: Any) -> Any:
            found, self.most_ns = self.most_ns, 0
            return np.array([found / 1e6], np.float32)

        with ax.Graph() as graph:
            y = lag(ax.placeholder(ax.float32, [None], name="x"))
        return ax.service.ModelSource(graph, outputs={"y": y})

    def stop(self) -> None:
        self._task.cancel()


@asynccontextmanager
async def overloaded() -> AsyncIterator[tuple[int, int]]:
    """The service, with a model of a known capacity, and one that tells of the event loop."""
    ticker = Ticker()
    models = {"queued": queued(), "lag": ticker.model()}
    async with ax.service.serving(models, http_port=0, grpc_port=0) as ports:
        assert ports.grpc is not None
        yield ports.http, ports.grpc
    ticker.stop()


@asynccontextmanager
async def by_hand() -> AsyncIterator[tuple[int, int]]:
    """Handlers of the identity alone, with the checks that a careful author makes, on the same libraries."""
    http = _uvicorn(_starlette())
    task = asyncio.create_task(http.serve())
    grpc = require("grpc", extra="serve")
    remote = grpc.aio.server()
    remote.add_generic_rpc_handlers((_grpc_handler(),))
    port = remote.add_insecure_port("127.0.0.1:0")
    await remote.start()
    while not http.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield http.servers[0].sockets[0].getsockname()[1], port
    finally:
        http.should_exit = True
        await remote.stop(None)
        await task


def _uvicorn(app: Any) -> Any:
    uvicorn = require("uvicorn", extra="serve")
    config = uvicorn.Config(
        app, port=0, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False
    )
    return uvicorn.Server(config)


def _starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    orjson = require("orjson", extra="serve")

    async def infer(request: Request) -> Response:
        body = await request.body()
        length = request.headers.get(HEADER)
        asked = orjson.loads(body if length is None else body[: int(length)])
        (given,) = asked["inputs"]
        if given["name"] != "x" or given["datatype"] != "FP32" or len(given["shape"]) != 1:
            return Response(orjson.dumps({"error": "no such input"}), 400)
        if length is None:
            x = np.array(given["data"], np.float32)
        else:
            x = np.frombuffer(body, np.float32, offset=int(length))
        if list(x.shape) != given["shape"]:
            return Response(orjson.dumps({"error": "another shape"}), 400)
        output: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": list(x.shape)}
        answer = {"model_name": "identity", "model_version": "1", "outputs": [output]}
        if length is None:
            output["data"] = x.tolist()
            return Response(orjson.dumps(answer), media_type="application/json")
        raw = x.tobytes()
        output["parameters"] = {"binary_data_size": len(raw)}
        head = orjson.dumps(answer)
        return Response(head + raw, headers={HEADER: str(len(head))}, media_type="application/octet-stream")

    return Starlette(routes=[Route("/v2/models/identity/infer", infer, methods=["POST"])])


def _grpc_handler() -> Any:
    from asyncexec.service.protocol_messages import SERVICE, message

    grpc = require("grpc", extra="serve")
    request_class, response_class = message("ModelInferRequest"), message("ModelInferResponse")
    stream_response_class = message("ModelStreamInferResponse")

    async def infer_all(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield stream_response_class(infer_response=await infer(request, context))

    async def infer(request: Any, context: Any) -> Any:
        (given,) = request.inputs
        if given.name != "x" or given.datatype != "FP32" or len(given.shape) != 1:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such input")
        x = np.frombuffer(request.raw_input_contents[0], np.float32)
        if list(x.shape) != list(given.shape):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "another shape")
        response = response_class(model_name="identity", model_version="1", id=request.id)
        response.outputs.add(name="y", datatype="FP32", shape=x.shape)
        response.raw_output_contents.append(x.tobytes())
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        infer, request_class.FromString, lambda response: response.SerializeToString()
    )
    stream = grpc.stream_stream_rpc_method_handler(
        infer_all, request_class.FromString, lambda response: response.SerializeToString()
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"ModelInfer": handler, "ModelStreamInfer": stream})


SERVERS: Final[dict[str, Callable[[], Any]]] = {"ours": ours, "by_hand": by_hand, "overloaded": overloaded}


async def main(make: Callable[[], Any], is_over: Callable[[], Awaitable[object]]) -> None:
    """Serve until *is_over*."""

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(time.process_time_ns()).encode())
        await writer.drain()
        writer.close()

    async with make() as ports, await asyncio.start_server(tell, "127.0.0.1", 0) as clock:
        limit_blas_threads(1)  # as ``asyncexec serve`` does, and what follows when all is loaded
        freeze_what_is_loaded()
        print(*ports, clock.sockets[0].getsockname()[1], flush=True)
        await is_over()


if __name__ == "__main__":
    ax.run(main(SERVERS[sys.argv[1]], lambda: asyncio.to_thread(sys.stdin.read)))
