"""A stage's calls that take long are made on threads of their own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar

from asyncexec.framework.cooperative import TURNS, Stage, call_after_others, run_in_slices


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


async def test_what_is_called_after_others_has_the_context_that_it_is_given_and_no_copy() -> None:
    context, number = Context(), ContextVar[int]("number")
    call_after_others(asyncio.get_running_loop(), number.set, 5, context=context)
    for _ in range(TURNS):
        assert number not in context
        await asyncio.sleep(0)
    assert context[number] == 5
