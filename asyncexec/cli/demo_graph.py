"""The demo's graph: fetch, decode, stack, and a frozen TensorFlow model, from one vector of addresses to classes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncexec as ax
from asyncexec.cli.demo_server import WHITE
from asyncexec.framework.clock import NS_PER_S, monotonic_ns
from asyncexec.framework.extras import require

if TYPE_CHECKING:
    import httpx
    from numpy.typing import NDArray

    from asyncexec.framework.graph_def import GraphDef
    from asyncexec.graph.graph import Graph
    from asyncexec.graph.node import Tensor

IMAGE_SHAPE: Final = (8, 8, 1)


@dataclass(frozen=True, slots=True)
class DigitsGraph:
    """The graph, and the tensors to feed and to fetch."""

    graph: Graph
    urls: Tensor
    probabilities: Tensor
    classes: Tensor


@dataclass(frozen=True, slots=True)
class Observer:
    """Whom the ops tell what they have done."""

    fetched: Callable[[float], None]  # called in the event loop, with the seconds it took
    decoded: Callable[[], None]  # called on worker threads


def build_graph(
    model: GraphDef, num_images: int, client: httpx.AsyncClient, concurrency: int, observer: Observer
) -> DigitsGraph:
    """A graph that classifies *num_images* images, fetched by *client*, *concurrency* at a time."""
    import numpy as np

    image_module = require("PIL.Image", extra="demo")

    @ax.op(limiter=concurrency, timeout=10, retries=2)
    async def fetch(url: str) -> bytes:
        begun_ns = monotonic_ns()
        response = await client.get(url)
        response.raise_for_status()
        observer.fetched((monotonic_ns() - begun_ns) / NS_PER_S)
        return response.content

    @ax.op(expensive=True, outputs=[ax.float32], shapes=[IMAGE_SHAPE])
    def decode(file: bytes) -> NDArray[Any]:
        with image_module.open(io.BytesIO(file)) as image:
            pixels = np.asarray(image, np.float32)
        observer.decoded()
        return (pixels / np.float32(WHITE)).reshape(IMAGE_SHAPE)

    with ax.Graph() as graph:
        urls = ax.placeholder(ax.string, [num_images], name="urls")
        images = ax.stack([decode(fetch(url)) for url in ax.unstack(urls)], name="images")
        ax.import_graph_def(model, name="digits", input_map={"images:0": images})
    return DigitsGraph(graph, urls, graph.tensor("digits/probabilities:0"), graph.tensor("digits/classes:0"))
