"""Servers for the tests of the client: ours, and one that answers what a test tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

import asyncexec as ax
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left

Answer = Callable[[Any], Awaitable[Any]]  # a request to a response


@asynccontextmanager
async def served(models: Any, **options: Any) -> AsyncIterator[str]:
    """The URL of a service of *models*."""
    async with nothing_of_grpc_left(), serving(models, http_port=0, grpc_port=0, **options) as ports:
        yield f"{'grpcs' if 'tls' in options else 'grpc'}://127.0.0.1:{ports.grpc}"


def metadata(inputs: Mapping[str, tuple[str, list[int]]], outputs: Mapping[str, tuple[str, list[int]]]) -> Any:
    """A ModelMetadataResponse."""
    response = message("ModelMetadataResponse")(name="m")
    for tensors, told in ((response.inputs, inputs), (response.outputs, outputs)):
        for name, (datatype, shape) in told.items():
            tensors.add(name=name, datatype=datatype, shape=shape)
    return response


FLOATS = metadata({"x": ("FP32", [])}, {"y": ("FP32", [])})


@asynccontextmanager
async def other_server(
    infer: Answer | None = None, stream: Callable[[Any], Awaitable[None]] | None = None, told: Any = FLOATS
) -> AsyncIterator[str]:
    """The URL of a server by hand, whose model tells *told* of itself; *stream* gets the context of the call."""

    async def tell(_request: bytes, _context: object) -> bytes:
        found: bytes = told.SerializeToString()
        return found

    async def answer(data: bytes, _context: object) -> bytes:
        assert infer is not None
        response = await infer(message("ModelInferRequest").FromString(data))
        found: bytes = response if isinstance(response, bytes) else response.SerializeToString()
        return found

    async def answer_stream(_requests: object, context: Any) -> None:
        assert stream is not None
        await stream(context)

    handlers = {
        "ModelMetadata": grpc.unary_unary_rpc_method_handler(tell),
        "ModelInfer": grpc.unary_unary_rpc_method_handler(answer),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(answer_stream),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with nothing_of_grpc_left():
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            await server.stop(None)
            del server


def mixed() -> ax.Graph:
    """Inputs x, rows of three floats, n, an integer, and text; outputs of several dtypes and ranks."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        n = ax.placeholder_with_default(ax.constant(2, dtype=ax.int64), [], name="n")
        text = ax.placeholder_with_default(ax.constant("a"), [], name="text")
        ax.multiply(x, 2.0, name="double")
        ax.reduce_sum(x, name="total")
        ax.add(n, 1, name="next")
        ax.string_join([text, "!"], name="loud")
        ax.stack([text, text], name="twice")
    return graph
