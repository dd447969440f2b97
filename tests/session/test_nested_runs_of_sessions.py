"""Sessions whose kernels run each other's graphs from their only worker thread: refused, where it could never end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax

ONE_THREAD = ax.SessionConfig(num_worker_threads=1)


def graph_of(name: str, function: Any) -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = ax.op(name=name, outputs=[ax.int64], expensive=True)(function)(x, name=name.lower())
    return graph, x, y


@pytest.mark.allow_blocking
async def test_back_to_the_thread_that_waits() -> None:
    loop = asyncio.get_running_loop()
    sessions: dict[str, ax.Session] = {}

    def run(session: str, fetch: ax.Tensor | str, x: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(sessions[session].run(fetch, {"x:0": x}), loop).result(60)

    inner, _, y = graph_of("There", lambda x: run("outer", "back:0", x))
    outer, x, z = graph_of("Out", lambda x: run("inner", y, x))
    with outer:
        ax.op(name="Back", outputs=[ax.int64], expensive=True)(lambda x: x)(x, name="back")
    async with ax.Session(outer, ONE_THREAD) as first, ax.Session(inner, ONE_THREAD) as second:
        sessions.update(outer=first, inner=second)
        with pytest.raises(ax.errors.FailedPreconditionError, match="'out' runs the graph from its worker thread"):
            await asyncio.wait_for(first.run(z, {x: 1}), 20)
