"""A cancellation by anyio, which a shield keeps out, while a step that has failed waits for a worker thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

import asyncexec as ax
from tests.running import raw_op


@pytest.fixture
def may_end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.filterwarnings("ignore::asyncexec.framework.kernel_warning.KernelWarning")
@pytest.mark.parametrize("how", ["anyio", "asyncio"])
async def test_the_step_is_left_at_once(may_end: threading.Event, how: str) -> None:
    has_begun = threading.Event()

    def stuck(x: Any) -> Any:
        has_begun.set()
        may_end.wait(60)
        return x

    async def failing(x: Any) -> Any:
        while not has_begun.is_set():  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0)
        raise ValueError("wrong")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [])
        late = raw_op("Stuck", stuck, is_expensive=True)(x)
        wrong = ax.op(name="Failing", outputs=[ax.float64])(failing)(x)
    async with ax.Session(graph, ax.SessionConfig(worker_grace_s=None)) as session:

        async def run() -> None:
            with anyio.fail_after(0.05) if how == "anyio" else contextlib.nullcontext():
                async with asyncio.timeout(0.05 if how == "asyncio" else None):
                    await session.run([late, wrong], {x: 1.0})

        with pytest.raises(TimeoutError):  # if the run waited for the kernel, it would never end
            await run()
        may_end.set()
