"""A program that ``test_ctrl_c.py`` interrupts: ``interrupted_program.py LOOP KERNEL HOW``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncexec as ax
from asyncexec.session import running


def say(line: str) -> None:
    """In one piece: threads and the loop say something at the same time."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@ax.op
async def awaits(x: float) -> float:
    say("began")
    try:
        say("ready")
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        say("cleaned up")
    return x


@ax.op
async def hangs(x: float) -> float:
    try:
        say("ready")
        await asyncio.Event().wait()
    finally:
        say("cleans up")
        await asyncio.Event().wait()
    return x


@ax.op(expensive=True)
def works(x: float) -> float:
    manager, told = ax.cancellation_manager(), threading.Event()
    manager.register_callback(manager.get_cancellation_token(), told.set)
    say("ready")
    told.wait()
    say("told")
    return x


@ax.op(expensive=False)
def inline(x: float) -> float:
    say("ready")
    interrupts = signal.getsignal(signal.SIGINT).keywords["main_task"]  # whom asyncio's handler cancels
    while not interrupts.cancelling():
        pass
    say("returned")
    return x


with ax.Graph() as graph:
    x = ax.placeholder(ax.float64, [], name="x")
    fetches = {kernel.__name__: kernel(x) for kernel in (awaits, hangs, works, inline)}


async def items() -> AsyncIterator[dict[ax.Tensor, float]]:
    try:
        while True:
            yield {x: 1.0}
    finally:
        say("source closed")


async def act(session: ax.Session, y: ax.Tensor, how: str) -> Any:
    if how == "run":
        await session.run(y, {x: 1.0})
    elif how == "gather":
        await asyncio.gather(*(session.run(y, {x: 1.0}) for _ in range(3)))
    elif how == "map":
        async for _ in session.map(y, items(), window=3):
            pass
    else:
        async with session.partial_run([y], [x]) as step:
            await step.feed({x: 1.0})
            await step.fetch(y)


@contextlib.contextmanager
def closing() -> Iterator[None]:
    try:
        yield
    finally:
        say("closed")


async def main(kernel: str, how: str) -> None:
    config = ax.SessionConfig(slow_inline_ms=60_000, cancel_grace_s=None)
    with closing():
        async with ax.Session(graph, config) as session:
            await act(session, fetches[kernel], how)


if __name__ == "__main__":
    if sys.argv[1] == "asyncio":
        running.is_installed = lambda name: False  # type: ignore[attr-defined]
    if sys.argv[3] == "blocking":
        with closing(), ax.BlockingSession(graph) as blocking:
            blocking.run(fetches[sys.argv[2]], {x: 1.0})
    else:
        ax.run(main(sys.argv[2], sys.argv[3]))
