"""``asyncexec demo``: the main job on real input, within seconds.

450 images are fetched over HTTP, decoded on worker threads and classified by a frozen TensorFlow model, all in one
graph,
while a progress bar and a ticker run in the same event loop; the results are held against TensorFlow's own.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import asyncexec as ax
from asyncexec.cli.demo_graph import DigitsGraph, Observer, build_graph
from asyncexec.cli.demo_server import DATA, image_server, latency_s
from asyncexec.cli.reporting import DebugOption, failures_reported
from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from asyncexec.framework.extras import is_installed, require

if TYPE_CHECKING:
    import httpx

    from asyncexec.framework.arrays import Array
    from asyncexec.framework.graph_def import GraphDef

NUM_IMAGES: Final = 450
MODULES: Final = ("httpx", "PIL", "starlette", "uvicorn", "google.protobuf")
TOLERANCE: Final = 1e-5  # how far a probability may be from TensorFlow's
TICK_S: Final = 0.001
REFRESH_S: Final = 0.05


def demo(
    limit: Annotated[int, typer.Option(min=1, max=NUM_IMAGES, help="How many of the images to classify.")] = NUM_IMAGES,
    concurrency: Annotated[int, typer.Option(min=1, max=500, help="How many are fetched at a time.")] = 32,
    debug: DebugOption = False,
) -> None:
    """Fetch, decode and classify 450 images of digits in one graph, and compare with TensorFlow's results."""
    with failures_reported(debug) as console:
        check_extras()
        inputs = load_inputs(limit)
        results = ax.run(classify(inputs, concurrency, console))
    Console().print(summary(inputs, results, concurrency))
    if not results.agrees_with(inputs):
        console.print("the results are not TensorFlow's", style="red")
        raise typer.Exit(1)


def check_extras() -> None:
    """MissingExtraError, with the command that installs all, where a library of the demo is missing."""
    for module in MODULES:
        if not is_installed(module):
            require(module, extra="demo")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The model, and what is known of the images."""

    model: GraphDef
    labels: Array
    tf_probabilities: Array
    tf_classes: Array

    def __len__(self) -> int:
        return len(self.labels)


def load_inputs(limit: int) -> Inputs:
    """The frozen model, and labels and TensorFlow's results of the first *limit* images."""
    import numpy as np

    model = ax.load_graph_def(DATA / "model.pb")
    with np.load(DATA / "test.npz", allow_pickle=False) as data:
        return Inputs(model, *(data[key][:limit] for key in ("labels", "tf_probabilities", "tf_classes")))


@dataclass(slots=True)
class Results:
    """What the run gave, and what was measured meanwhile."""

    probabilities: object = None
    classes: object = None
    wall_s: float = 0.0
    longest_pause_ms: float = 0.0
    latencies_s: list[float] = field(default_factory=list)  # one for each image fetched

    def largest_difference(self, inputs: Inputs) -> float:
        """The most that a probability differs from TensorFlow's."""
        return float(abs(self.probabilities - inputs.tf_probabilities).max())

    def agrees_with(self, inputs: Inputs) -> bool:
        """Whether classes are TensorFlow's, and probabilities within the tolerance."""
        return bool((self.classes == inputs.tf_classes).all()) and self.largest_difference(inputs) <= TOLERANCE


async def classify(inputs: Inputs, concurrency: int, console: Console) -> Results:
    """One run of the graph, against a server of its own; at the end nothing of it is left."""
    results = Results()
    with progress_bars(console) as progress:
        observer = observing(progress, results, len(inputs))
        async with image_server() as address, http_client(concurrency) as client:
            digits = build_graph(inputs.model, len(inputs), client, concurrency, observer)
            base = await address
            console.print(f"{len(inputs)} images at {base}, {len(digits.graph)} nodes in one graph", highlight=False)
            urls = [f"{base}/digits/{index}.png" for index in range(len(inputs))]
            await client.get(urls[0])  # the first request of all loads parts of httpx
            async with ax.Session(digits.graph) as session:
                await run_watched(session, digits, urls, progress, results)
    return results


async def run_watched(
    session: ax.Session, digits: DigitsGraph, urls: list[str], progress: Progress, results: Results
) -> None:
    """The run itself, while bars are drawn and the loop is watched."""
    with settled_gc():
        async with meanwhile(progress, results):
            fetches = (digits.probabilities, digits.classes)
            results.probabilities, results.classes = await session.run(fetches, {digits.urls: urls})


def observing(progress: Progress, results: Results, count: int) -> Observer:
    """What the ops tell moves the bars, at once and from any thread, and is kept in *results*."""
    fetched = progress.add_task("fetched", total=count)
    decoded = progress.add_task("decoded", total=count)

    def count_fetched(latency_s: float) -> None:
        results.latencies_s.append(latency_s)
        progress.advance(fetched)

    return Observer(count_fetched, lambda: progress.advance(decoded))


def progress_bars(console: Console) -> Progress:
    """Bars that the event loop draws, without a thread; nothing where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal)


def http_client(concurrency: int) -> httpx.AsyncClient:
    """A client for the server on this machine, whatever proxies the environment names."""
    httpx = require("httpx", extra="demo")
    # A connection a fetch: what httpx does to keep them alive takes longer than to open them anew on this machine.
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=0)
    return httpx.AsyncClient(limits=limits, trust_env=False, verify=False)  # type: ignore[no-any-return]


@asynccontextmanager
async def meanwhile(progress: Progress, results: Results) -> AsyncIterator[None]:
    """Draws the bars and looks for pauses in the event loop while the block runs; measures how long that takes."""
    tasks = [asyncio.create_task(draw(progress)), asyncio.create_task(watch(results))]
    begun_ns = monotonic_ns()
    try:
        yield
        results.wall_s = (monotonic_ns() - begun_ns) / NS_PER_S
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def settled_gc() -> Iterator[None]:
    """Lets the garbage collector pass over what is there already, as services do once they have started.

    Else it looks through every library that is loaded, some 40 ms, in the middle of the run.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def draw(progress: Progress) -> None:
    """Refreshes the bars until cancelled, and then a last time."""
    try:
        while True:
            progress.refresh()
            await asyncio.sleep(REFRESH_S)
    finally:
        progress.refresh()


async def watch(results: Results) -> None:
    """Ticks until cancelled; the longest time between two ticks is the longest pause of the loop, or a tick more."""
    last_ns = monotonic_ns()
    while True:
        await asyncio.sleep(TICK_S)
        now_ns = monotonic_ns()
        results.longest_pause_ms = max(results.longest_pause_ms, (now_ns - last_ns) / NS_PER_MS)
        last_ns = now_ns


def summary(inputs: Inputs, results: Results, concurrency: int) -> Table:
    """What the demo prints in the end."""
    count = len(inputs)
    waits_s = sum(map(latency_s, range(count)))
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        ("images", f"{count}"),
        ("accuracy", f"{(results.classes == inputs.labels).mean():.3f}"),
        ("classes as TensorFlow's", f"{(results.classes == inputs.tf_classes).sum()}/{count}"),
        ("largest difference", f"{results.largest_difference(inputs):.1e} from TensorFlow's probabilities"),
        ("wall time", f"{results.wall_s:.2f} s, {concurrency} fetches at a time"),
        ("sum of latencies", f"{waits_s:.2f} s at the server, {sum(results.latencies_s):.2f} s as measured in flight"),
        ("longest pause of the loop", f"{results.longest_pause_ms:.1f} ms"),
    ):
        table.add_row(name, value)
    return table
