"""Turns of the event loop that others get while something long is done."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from asyncexec.framework import cooperative


@pytest.fixture
def every_yield_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the slice of a stage be over whenever it yields."""
    times = itertools.count(step=10**9)
    monkeypatch.setattr(cooperative, "monotonic_ns", lambda: next(times))


async def turns_during(call: Coroutine[Any, Any, Any], look: Callable[[], object] = lambda: None) -> tuple[int, Any]:
    """How many turns others get while *call* is awaited, and what it gives; in each of them, *look* is called."""
    task = asyncio.ensure_future(call)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        look()
        turns += 1
    return turns, task.result()
