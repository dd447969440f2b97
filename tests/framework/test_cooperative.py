"""A stage's calls that take long are made on threads of their own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from asyncexec.framework.cooperative import Stage, run_in_slices


def stage(made: threading.Event) -> Stage[str]:
    yield made.set
    return "done"


async def test_a_stage_goes_on_while_all_threads_of_the_loop_wait_for_it() -> None:
    loop, made = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waiting = loop.run_in_executor(None, made.wait, 20)
    assert await run_in_slices(stage(made)) == "done"
    assert await waiting


async def test_a_stage_goes_on_once_the_threads_of_the_loop_are_shut_down() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()
    assert await run_in_slices(stage(threading.Event())) == "done"
