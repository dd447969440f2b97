"""A worker that drains on SIGTERM or Ctrl-C: it takes no more jobs, finishes those under way, and leaves the rest.

Each job is a run of the graph, a few at a time.  The signal cancels the task that takes jobs and nothing else; the task
group ends when the last job has.  Run as a program it sends itself the signal in the middle of its work; with a number
of jobs, ``python examples/queue_worker.py 100000``, it waits for yours.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

import numpy as np

import asyncexec as ax

SIGNALS = (signal.SIGTERM, signal.SIGINT)
UNDER_WAY = 3  # jobs at a time
BROKEN = 2  # a job that fails: it is no business of the others


def build_graph(save: Callable[[int, float], None]) -> ax.Graph:
    """Load the data of a job, compute, and save the result."""

    @ax.op(outputs=[ax.float64], shapes=[[None]])
    async def load(job: int) -> np.ndarray:
        await asyncio.sleep(0.005)
        if job == BROKEN:
            raise ValueError(f"job {job} has no data")
        return np.arange(float(job))

    @ax.op
    async def store(job: int, value: float) -> None:
        await asyncio.sleep(0.001)
        save(int(job), float(value))

    with ax.Graph() as graph:
        job = ax.placeholder(ax.int64, [], name="job")
        store(job, ax.reduce_sum(load(job)), name="stored")
    return graph


class Worker:
    """Runs jobs of a queue until it is told to stop."""

    def __init__(self, session: ax.Session, jobs: asyncio.Queue[int]) -> None:
        self._session = session
        self._jobs = jobs
        self._slots = asyncio.Semaphore(UNDER_WAY)
        self.num_taken = 0
        self.failed: list[str] = []
        self.under_way: set[int] = set()

    async def run(self) -> None:
        """Work until SIGTERM or Ctrl-C comes; then return, with every job that was taken at its end."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(self._take(group))
            for number in SIGNALS:
                loop.add_signal_handler(number, self._stop, number, taking)
            print("process", os.getpid(), "takes jobs", flush=True)
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    async def _take(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._slots.acquire()  # before the job: one that cannot begin yet is left to other workers
            job = await self._jobs.get()
            self.num_taken += 1
            self.under_way.add(job)
            group.create_task(self._work(job))

    def _stop(self, number: signal.Signals, taking: asyncio.Task[None]) -> None:
        print(f"{number.name}: jobs {sorted(self.under_way)} are under way")
        taking.cancel()

    async def _work(self, job: int) -> None:
        try:
            await self._session.run("stored", {"job:0": job})
        except ax.errors.OpError as error:
            self.failed.append(f"{error.node}: {error.message}")
        finally:
            self.under_way.remove(job)
            self._slots.release()


async def terminate_during(job: int, worker: Worker) -> None:
    """What an orchestrator does before it takes a machine away."""
    while job not in worker.under_way:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)


async def main(num_jobs: int = 12, *, terminates_itself: bool = True) -> None:
    stored: dict[int, float] = {}
    jobs: asyncio.Queue[int] = asyncio.Queue()
    for job in range(num_jobs):
        jobs.put_nowait(job)
    async with ax.Session(build_graph(stored.__setitem__)) as session, asyncio.TaskGroup() as group:
        worker = Worker(session, jobs)
        if terminates_itself:
            group.create_task(terminate_during(5, worker))
        await worker.run()
    print(f"taken {worker.num_taken}, stored {len(stored)}, failed {len(worker.failed)}, left {jobs.qsize()}")
    print("failed:", *worker.failed)
    assert all(value == sum(range(job)) for job, value in stored.items())


if __name__ == "__main__":
    ax.run(main(int(sys.argv[1]), terminates_itself=False) if sys.argv[1:] else main())
