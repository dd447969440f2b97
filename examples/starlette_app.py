"""A web service around a TensorFlow model: one session as long as the app lives, ``await session.run`` in the handler.

The step of a request ends with the request: when the client goes, what has not begun of it is never run.  Serve it with
``uvicorn --app-dir examples starlette_app:app`` and send it an image: ``curl --data-binary @7.png
localhost:8000/classify``.  Run as a program it sends itself a few.  It needs ``pip install "asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import numpy as np
from PIL import Image, UnidentifiedImageError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import asyncexec as ax

DATA = Path(ax.__file__).parent / "cli" / "demo_data"


@ax.op(expensive=True, outputs=[ax.float32], shapes=[(8, 8, 1)])
def decode(file: bytes) -> np.ndarray:
    """The pixels of an image file; Pillow runs on a worker thread, so other requests are served meanwhile."""
    try:
        with Image.open(io.BytesIO(file)) as image:
            pixels = np.asarray(image.convert("L").resize((8, 8)), np.float32)
    except UnidentifiedImageError:
        raise ValueError("this is no image") from None
    return pixels[..., np.newaxis] / np.float32(255)


def build_graph() -> ax.Graph:
    """From an image file to the digit on it and how sure the model is."""
    with ax.Graph() as graph:
        file = ax.placeholder(ax.string, [], name="file")
        probabilities, classes = ax.import_graph_def(
            ax.load_graph_def(DATA / "model.pb"),
            name="model",
            input_map={"images:0": ax.expand_dims(decode(file), 0)},
            return_elements=["probabilities:0", "classes:0"],
        )
        ax.squeeze(classes, name="digit")
        ax.reduce_max(probabilities, name="confidence")
    return graph


async def classify(request: Request) -> Response:
    """Any number of these may be under way at once, each a step of its own that is cancelled when the client goes."""
    file = await request.body()
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_when_gone, request, group.cancel_scope)
        response = await answer(request.app.state.session, file)
        group.cancel_scope.cancel()
        return response
    return Response(status_code=499)  # which nobody reads; it stands in the log


async def answer(session: ax.Session, file: bytes) -> JSONResponse:
    try:
        result = await session.run({"digit": "digit:0", "confidence": "confidence:0"}, {"file:0": file})
    except ax.errors.OpError as error:
        return JSONResponse({"error": str(error.__cause__ or error), "node": error.node}, status_code=422)
    return JSONResponse({"digit": int(result["digit"]), "confidence": round(float(result["confidence"]), 3)})


async def cancel_when_gone(request: Request, scope: anyio.CancelScope) -> None:
    """A server tells of a client that has gone when it is asked for more of the request."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """The session ends with the app, and all its threads with it."""
    async with ax.Session(build_graph()) as app.state.session:
        yield


app = Starlette(routes=[Route("/classify", classify, methods=["POST"])], lifespan=lifespan)


def sample_files(count: int) -> list[bytes]:
    """A few images of the test set, as PNG files."""
    with np.load(DATA / "test.npz") as data:
        images = (data["images"][:count, :, :, 0] * 255).astype(np.uint8)
    sinks = [io.BytesIO() for _ in images]
    for image, sink in zip(images, sinks, strict=True):
        Image.fromarray(image).save(sink, "PNG")
    return [sink.getvalue() for sink in sinks]


async def main() -> None:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        bodies = [*sample_files(5), b"not an image"]
        responses = await asyncio.gather(*(client.post("/classify", content=body) for body in bodies))
    for response in responses:
        print(response.status_code, response.json())


if __name__ == "__main__":
    ax.run(main)
