"""The row of dynamic batching: 1,000 concurrent requests to the digits model, against the same requests one at a time.

It is measured in a process of its own, with one thread for BLAS, as one would serve: the threads of a BLAS that has as
many as there are cores get into the way of the event loop, which is busy all the time here.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

import asyncexec as ax
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_REQUESTS: Final = 1000
MAX_SIZE: Final = 96
LEAST_GAIN: Final = 5
DATA: Final = Path(ax.__file__).parent / "cli" / "demo_data"
ROOT: Final = Path(__file__).parents[1]
BLAS_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def measure_batching(settings: Settings) -> Row:
    """Microseconds a request; the floor is the same session, model and requests, without batching, one at a time."""
    quick = ["--quick"] if settings.is_quick else []
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.batching", *quick],
        cwd=ROOT,
        env={**os.environ, **dict.fromkeys(BLAS_THREADS, "1")},
        capture_output=True,
        text=True,
        check=True,
    )
    times = {name: Times(tuple(values)) for name, values in json.loads(done.stdout).items()}
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target(f"at most 1/{LEAST_GAIN} of one at a time", None if found is None else found[0], 1 / LEAST_GAIN)
    return Row(f"batching_{NUM_REQUESTS}", "µs a request", times, (target,))


async def race(settings: Settings) -> dict[str, list[float]]:
    """Microseconds a request, in every round, by contestant."""
    model = ax.load_graph_def(DATA / "model.pb")
    with np.load(DATA / "test.npz", allow_pickle=False) as stored:
        images = stored["images"]
    requests = [images[i % len(images)][np.newaxis] for i in range(NUM_REQUESTS)]
    outputs = ["probabilities:0", "classes:0"]

    @ax.batch(max_size=MAX_SIZE, timeout_s=0.005)
    def classify(rows: ax.Tensor) -> Any:
        return ax.import_graph_def(model, name="digits", input_map={"images:0": rows}, return_elements=outputs)

    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None, *images.shape[1:]])
        batched = classify(fed)
        plain = ax.import_graph_def(model, name="plain", input_map={"images:0": fed}, return_elements=outputs)
    async with ax.Session(graph) as session:
        call, call_plain = session.make_callable(batched, [fed]), session.make_callable(plain, [fed])

        async def concurrently() -> None:
            await asyncio.gather(*map(call, requests))

        async def one_at_a_time() -> None:
            for request in requests:
                await call_plain(request)

        gc.collect()
        gc.freeze()
        contestants = [await calling(OURS, concurrently), await calling(FLOOR, one_at_a_time)]
        times = await alternate(contestants, settings)
    return {name: list(each.scaled(1_000_000 / NUM_REQUESTS).values) for name, each in times.items()}


BENCHMARKS: Final = (Benchmark(f"batching_{NUM_REQUESTS}", measure_batching),)

if __name__ == "__main__":
    print(json.dumps(ax.run(race(Settings(is_quick="--quick" in sys.argv)))))
