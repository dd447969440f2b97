"""Turns of the event loop that others get while something long is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import asyncexec as ax
from tests.fake_time import in_single_steps


def slow_session(graph: ax.Graph, config: ax.SessionConfig | None = None) -> ax.Session:
    """A session in which every yield of a stage is a turn for others."""
    return ax.Session(graph, **in_single_steps(config))


async def turns_during(call: Coroutine[Any, Any, Any], look: Callable[[], object] = lambda: None) -> tuple[int, Any]:
    """How many turns others get while *call* is awaited, and what it gives; in each of them, *look* is called."""
    task = asyncio.ensure_future(call)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        look()
        turns += 1
    return turns, task.result()
