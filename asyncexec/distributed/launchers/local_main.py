"""What runs in a worker process of this machine, which ``local_process`` has started.

It reads what it is to be from its standard input.  When that is closed, by the parent or because the parent has ended,
it ends, too.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from asyncexec.distributed.launchers.program import become_program
from asyncexec.distributed.worker import Worker
from asyncexec.session.running import run


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker process is to do.

    Attributes:
        worker: the arguments of its Worker.
        address: where it listens.
        mark: stands in the line of standard error that tells the parent the address.
        grace_s: how long it may take to end.
        folder: where the workers' sockets are; it is removed at the end, as the parent may be gone.
    """

    worker: Mapping[str, Any]
    address: str
    mark: str
    grace_s: float
    folder: str


def main() -> None:
    """Be a worker until the parent wants no more."""
    report, life = os.dup(sys.stderr.fileno()), os.dup(sys.stdin.fileno())
    program, orders = pickle.load(sys.stdin.buffer), pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent
    _detach_stdin()
    is_over: Future[None] = Future()
    threading.Thread(target=_watch_parent, args=(life, is_over, orders), name="asyncexec-parent", daemon=True).start()
    become_program(program)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is left to the parent
    if os.name != "nt":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was blocked until now
    run(partial(_serve, orders, report, is_over))


def _detach_stdin() -> None:
    """Let standard input be empty, for functions that read it."""
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)


def _watch_parent(life: int, is_over: Future[None], orders: Orders) -> None:
    """Wait until the parent closes *life*, or has ended; the process ends within its grace period then."""
    while os.read(life, 1):
        pass
    shutil.rmtree(orders.folder, ignore_errors=True)
    is_over.set_result(None)
    time.sleep(orders.grace_s)
    os._exit(1)


async def _serve(orders: Orders, report: int, is_over: Future[None]) -> None:
    async with Worker(**orders.worker) as worker:
        address = await worker.listen(orders.address)
        os.write(report, f"{orders.mark} {address}\n".encode())
        os.close(report)
        await asyncio.wrap_future(is_over)
