"""The graphs of the demo: digits, a crawler with loops, and a detector of anomalies in a stream of readings."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import asyncexec as ax
from asyncexec.cli.demo_server import DATA

if TYPE_CHECKING:
    import httpx

    from asyncexec.service.models.files import ModelSource

NUM_SAMPLES: Final = 12
DAMPING: Final = 0.85
LIMIT: Final = 5.0  # standard deviations
DECAY: Final = 0.97
LOOK_UP_S: Final = 0.06


def digits() -> ModelSource:
    """A frozen TensorFlow model that tells digits, in images of 8 by 8, by batches."""
    import numpy as np

    with ax.Graph() as graph:
        ax.import_graph_def(ax.load_graph_def(DATA / "model.pb"), name="")
    with np.load(DATA / "test.npz", allow_pickle=False) as data:
        samples = [{"images": [image.tolist()]} for image in data["images"][:NUM_SAMPLES]]
    outputs: dict[str, ax.Tensor] = {name: graph.tensor(f"{name}:0") for name in ("classes", "probabilities")}
    config = {
        "max_batch_size": 32,
        "dynamic_batching": {"max_queue_delay_microseconds": 4000},
        **_sampled(samples),
    }
    return ax.service.ModelSource(graph, outputs=outputs, config=config)


def crawler(web: httpx.AsyncClient) -> ModelSource:
    """From the path of a page of *web*: the pages that can be reached from it, and their ranks.

    A loop over levels fetches all pages of a level, 8 at a time; another one improves the ranks until they stand still.
    """
    import numpy as np

    @ax.op(timeout=5.0, retries=1, limiter=ax.Limiter(6, name="site"))
    async def fetch_links(path: str) -> object:
        response = await web.get(path)
        response.raise_for_status()
        return re.findall(r'href="([^"]+)"', response.text)

    @ax.op(outputs=[ax.string, ax.string, ax.string])
    def next_level(known: Any, links: Any, level: Any, found: Any) -> tuple[object, object, object]:
        here = [page.decode() for page in level]
        pairs = [(page, target) for page, targets in zip(here, found, strict=True) for target in targets]
        seen = {page.decode() for page in known}
        new = list(dict.fromkeys(target for _, target in pairs if target not in seen))
        rows = np.array([*links.tolist(), *pairs], object).reshape(-1, 2)
        return [*known.tolist(), *new], rows, new

    @ax.op(outputs=[ax.float64])
    def link_matrix(pages: Any, links: Any) -> object:
        position = {page: i for i, page in enumerate(pages)}
        matrix = np.zeros((len(pages), len(pages)))
        for source, target in links:
            matrix[position[target], position[source]] += 1
        return matrix / np.maximum(matrix.sum(axis=0), 1)

    def crawl_level(known: ax.Tensor, links: ax.Tensor, level: ax.Tensor) -> object:
        found = ax.map_fn(fetch_links, level, parallel_iterations=8, name="fetch_all")
        return next_level(known, links, level, found)

    with ax.Graph() as graph:
        start = ax.placeholder(ax.string, [1], name="start")
        pages, links, _ = ax.while_loop(
            lambda known, links, level: ax.size(level) > 0,
            crawl_level,
            (start, ax.zeros([0, 2], ax.string), start),
            shape_invariants=([None], [None, 2], [None]),
            name="crawl",
        )
        matrix = ax.ensure_shape(link_matrix(pages, links), [None, None])
        count = ax.cast(ax.size(pages), ax.float64)

        def improve(rank: ax.Tensor, change: ax.Tensor, rounds: ax.Tensor) -> Sequence[ax.Tensor]:
            better = (1 - DAMPING) / count + DAMPING * ax.reshape(matrix @ ax.expand_dims(rank, 1), [-1])
            return better, ax.reduce_sum(abs(better - rank)), rounds + 1

        rank, _, rounds = ax.while_loop(
            lambda rank, change, rounds: change > 1e-10,
            improve,
            (ax.fill([ax.size(pages)], 1 / count), np.float64(1), 0),
            name="rank",
        )
        best, order = ax.top_k(rank, 3)
    outputs: dict[str, ax.Tensor] = {
        "best": ax.gather(pages, order),
        "rank_of_best": best,
        "pages": pages,
        "rounds": rounds,
    }
    return ax.service.ModelSource(graph, outputs=outputs, config=_sampled([{"start": ["/"]}, {"start": ["/missing"]}]))


def sensors() -> ModelSource:
    """Tells anomalies among readings: what has been usual is carried from reading to reading of a stream."""
    import numpy as np

    archive = ax.Limiter(4, name="archive")

    @ax.op(outputs=[ax.string, ax.float64], shapes=[[], []])
    def read_message(text: str) -> tuple[str, float]:
        message = json.loads(text)
        return message["sensor"], message["degrees"]

    @ax.op(outputs=[ax.float64], shapes=[[]], limiter=archive)
    async def offset_of(sensor: str) -> float:
        """A look-up that takes its time: of a database, say."""
        await asyncio.sleep(LOOK_UP_S)
        return {"a": 0.0, "b": 1.5}[sensor]

    with ax.Graph() as graph:
        message = ax.placeholder(ax.string, [], name="message")
        sensor, raw = read_message(message)
        degrees = raw - offset_of(sensor)
        mean = ax.stream_state(np.float64(20.0), name="mean")
        variance = ax.stream_state(np.float64(1.0), name="variance")
        off = degrees - mean.value
        score = ax.abs(off) / ax.sqrt(variance.value)
        is_anomaly = score > LIMIT
        recent = ax.window(is_anomaly, size=50)
        mean.update(ax.where(is_anomaly, mean.value, DECAY * mean.value + (1 - DECAY) * degrees))
        variance.update(ax.where(is_anomaly, variance.value, DECAY * variance.value + (1 - DECAY) * off * off))
    outputs: dict[str, ax.Tensor] = {
        "degrees": degrees,
        "score": score,
        "is_anomaly": is_anomaly,
        "anomalies_in_window": ax.reduce_sum(ax.cast(recent, ax.int32)),
    }
    messages = ['{"sensor": "a", "degrees": 20.5}', '{"sensor": "b", "degrees": 41}', '{"sensor": "c"']
    return ax.service.ModelSource(graph, outputs=outputs, config=_sampled([{"message": each} for each in messages]))


def _sampled(samples: Sequence[object]) -> dict[str, object]:
    """The part of a configuration that says what the form of the live page begins with."""
    return {"parameters": {"sample": {"string_value": json.dumps(samples)}}}
