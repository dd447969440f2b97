"""Rows of hooks: what a session with hooks takes more, and OpenTelemetry beside its SDK used by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.extras import require
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S, scaled
from benchmarks.traces import NUM_ASYNC, of_async_ops


def measure(name: str, race: Callable[[Settings], Coroutine[Any, Any, dict[str, Times]]], limit: float) -> Benchmark:
    """A row of what *race* measures; the ratio to the floor is to be at most *limit*."""

    def row(settings: Settings) -> Row:
        times = scaled(ax.run(partial(race, settings)), US_PER_S)
        found = ratios(times[OURS], [times[FLOOR]])
        return Row(name, "µs", times, (Target(f"at most {limit:g} of the floor's", found and found[0], limit),))

    return Benchmark(name, row)


async def of_an_empty_hook(settings: Settings) -> dict[str, Times]:
    """A hundred async ops told to a hook that does nothing; the floor is a session without hooks."""
    graph, fetch, feeds = of_async_ops()
    async with ax.Session(graph, hooks=[ax.Hook()]) as told, ax.Session(graph) as plain:
        contestants = [
            await calling(OURS, partial(told.run, fetch, feeds)),
            await calling(FLOOR, partial(plain.run, fetch, feeds)),
        ]
        return await alternate(contestants, settings)


async def of_opentelemetry(settings: Settings) -> dict[str, Times]:
    """A hundred async ops traced by the hook; the floor does the same by hand, in the ops and around the run."""
    provider = require("opentelemetry.sdk.trace", extra="otel").TracerProvider()
    tracer = provider.get_tracer("benchmarks")
    durations = require("opentelemetry.metrics", extra="otel").get_meter("benchmarks").create_histogram("durations")

    @ax.op(outputs=[ax.float32])
    async def give(x: float) -> float:
        with tracer.start_as_current_span("give", attributes={"kind": "node", "op": "give", "device": "cpu"}):
            begin_ns = time.perf_counter_ns()
            try:
                return x
            finally:
                durations.record((time.perf_counter_ns() - begin_ns) / 1e9, {"outcome": "ok", "node": "give"})

    with ax.Graph() as by_hand:
        x = ax.placeholder(ax.float32, [], name="x")
        total = ax.add_n([give(x + float(i)) for i in range(NUM_ASYNC)])
    graph, fetch, feeds = of_async_ops()
    async with ax.Session(graph, hooks=[ax.hooks.OpenTelemetry(provider)]) as told, ax.Session(by_hand) as plain:

        async def traced() -> Any:
            with tracer.start_as_current_span("step"):
                return await plain.run(total, {x: 1.0})

        contestants = [await calling(OURS, partial(told.run, fetch, feeds)), await calling(FLOOR, traced)]
        return await alternate(contestants, settings)


BENCHMARKS: Final = (
    measure("hook_async_100", of_an_empty_hook, 1.5),
    measure("opentelemetry_async_100", of_opentelemetry, 1.1),
)
