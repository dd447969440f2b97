"""Plain functions with a timeout, retries and a limiter: an attempt that was left to its thread keeps its slot."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import asyncexec as ax


@pytest.mark.filterwarnings("ignore::asyncexec.framework.kernel_warning.KernelWarning")
@pytest.mark.allow_blocking
async def test_the_next_attempt_waits_for_the_slot_of_the_last() -> None:
    may_end, attempts = threading.Event(), 0

    def stuck_at_first(x: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            may_end.wait(60)
        return x

    limiter = ax.Limiter(1)
    retry = ax.Retry(attempts=2, wait_initial_s=0, wait_max_s=0)
    op = ax.op(name="StuckAtFirst", outputs=[ax.float64], timeout=0.5, retries=retry, limiter=limiter)(stuck_at_first)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        y = op(x)
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=2)) as session:
        run = asyncio.ensure_future(session.run(y, {x: 3.0}))
        try:
            while not limiter.statistics().waiting and not run.done():  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
            assert not run.done()
        finally:
            may_end.set()
        assert await run == 3
        assert limiter.statistics().inside == 0
