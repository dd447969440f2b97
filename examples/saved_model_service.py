"""A SavedModel of TensorFlow served over HTTP, without TensorFlow; requests that come together share a batch.

The model reads digits of 8 by 8 pixels.  The program writes it as a SavedModel, and serves it like TensorFlow Serving:

    python examples/saved_model_service.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import asyncexec as ax

SIGNATURE = """
signature_def {
  key: "serving_default"
  value {
    inputs { key: "images" value { name: "images:0" dtype: DT_FLOAT } }
    outputs { key: "probabilities" value { name: "probabilities:0" dtype: DT_FLOAT } }
    outputs { key: "classes" value { name: "classes:0" dtype: DT_INT64 } }
  }
}
"""
ONE = ["...11...", "..111...", *["...11..."] * 5, "..1111.."]


def write_saved_model(folder: Path) -> None:
    """What ``tf.saved_model.save`` writes, as text; the weights are constants of the graph."""
    with as_file(files("asyncexec") / "cli" / "demo_data" / "model.pb") as path:
        frozen = ax.load_graph_def(path)
    ax.save_graph_def(frozen, folder / "graph.pbtxt")
    graph = (folder / "graph.pbtxt").read_text()
    meta_graph = f'meta_info_def {{ tags: "serve" }} graph_def {{ {graph} }} {SIGNATURE}'
    (folder / "saved_model.pbtxt").write_text(f"saved_model_schema_version: 1 meta_graphs {{ {meta_graph} }}")


def load(folder: Path) -> tuple[ax.Graph, ax.Tensor, dict[str, ax.Tensor]]:
    """A graph that runs the model in batches, the images that it takes, and its outputs by their keys."""
    model = ax.load_saved_model(folder)
    signature = model.signatures["serving_default"]
    names = [tensor.name for tensor in signature.outputs.values()]

    @ax.batch(max_size=32, timeout_s=0.005)
    def classify(images: ax.Tensor) -> Any:
        inputs = {signature.inputs["images"].name: images}
        return ax.import_graph_def(model.graph_def, input_map=inputs, return_elements=names)

    with ax.Graph() as graph:
        images = ax.placeholder(ax.float32, [None, 8, 8, 1], name="images")
        outputs = dict(zip(signature.outputs, classify(images), strict=True))
    return graph, images, outputs


class Batches(ax.Hook):
    """Counts batches, and the rows in them."""

    count = rows = 0

    def end(self, span: ax.Span, error: BaseException | None) -> None:
        if span.kind == "batch":
            self.count += 1
            self.rows += int(span.attributes["rows"])


class Instances(BaseModel):
    instances: list[list[list[list[float]]]]


def serve(folder: Path, hooks: list[ax.Hook]) -> FastAPI:
    graph, images, outputs = load(folder)
    session = ax.Session(graph, ax.SessionConfig(timeout=10, drain_timeout_s=10), hooks=hooks)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with session:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/models/digits:predict")
    async def predict(request: Instances) -> dict[str, list[dict[str, Any]]]:
        try:
            found = await session.run(outputs, {images: request.instances})
        except ax.errors.InvalidArgumentError as error:
            raise HTTPException(400, error.message) from error
        except ax.errors.DeadlineExceededError as error:
            raise HTTPException(504, "the model is busy") from error
        columns = {key: value.tolist() for key, value in found.items()}
        return {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}

    return app


async def main() -> None:
    batches = Batches()
    digit = np.array([[char == "1" for char in line] for line in ONE], np.float32)[..., np.newaxis]
    with TemporaryDirectory() as folder:
        await asyncio.to_thread(write_saved_model, Path(folder))
        app = await asyncio.to_thread(serve, Path(folder), [batches])
    test = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=test, base_url="http://test") as client:
        bodies = [{"instances": [np.roll(digit, number % 3 - 1, axis=1).tolist()]} for number in range(40)]
        answers = await asyncio.gather(*(client.post("/v1/models/digits:predict", json=body) for body in bodies))
        classes = {answer.json()["predictions"][0]["classes"] for answer in answers}
        print(f"{len(answers)} requests, {batches.rows} rows in {batches.count} batches; digits: {classes}")
        answer = await client.post("/v1/models/digits:predict", json={"instances": [[[[1.0]]]]})
        print(answer.status_code, answer.json()["detail"])


if __name__ == "__main__":
    asyncio.run(main())
