"""A worker process: ``python -m tests.distributed.worker_process TASK ADDRESS``; it says when it listens."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.worker import Worker

OPTIONS = TransportOptions(objects=True, heartbeat_s=0.3, silence_s=1.5, close_grace_s=1.0)


@ax.op(outputs=[ax.float32], shapes=[[None]])
async def add_slowly(value: Any, delay_s: Any) -> Any:
    await asyncio.sleep(float(delay_s))
    return value + np.float32(1)


@ax.op(outputs=[ax.float32], shapes=[[None]], expensive=True)
def work(value: Any, delay_s: Any) -> Any:
    time.sleep(float(delay_s))
    return value * np.float32(2)


@ax.op(outputs=[ax.int64], shapes=[[]])
def num_steps(anything: Any) -> Any:
    """Steps that are under way in this worker, without the one that asks."""
    return np.int64(_worker[0].num_steps - 1)


@ax.op(outputs=[ax.int64, ax.int64], shapes=[[], []])
def process_of(number: Any) -> Any:
    return number, np.int64(os.getpid())


_worker: list[Worker] = []


async def main(task: int, address: str) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with Worker("worker", task, objects=True, options=OPTIONS) as worker:
        _worker.append(worker)
        await worker.listen(address)
        os.write(1, b"ready\n")
        await ended.wait()


if __name__ == "__main__":
    from tests.distributed import worker_process

    asyncio.run(worker_process.main(int(sys.argv[1]), sys.argv[2]))
