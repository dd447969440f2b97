"""Workers in processes of their own, for the rows of clusters: ours, and TensorFlow's.

``python -m benchmarks.cluster_processes KIND TASK ADDRESS...`` runs task TASK of a job of workers at these addresses,
prints a line when it listens, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import asyncexec as ax
from benchmarks.tensorflow_session import tensorflow

NUM_WORKERS: Final = 2
OURS: Final = "asyncexec"
OBJECTS: Final = "asyncexec with objects"
TENSORFLOW: Final = "tensorflow"


@contextmanager
def workers(kind: str, addresses: Sequence[str]) -> Iterator[Sequence[str]]:
    """Processes of a *kind*, one for each of *addresses*."""
    command = [sys.executable, "-m", "benchmarks.cluster_processes", kind]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([*command, str(task), *addresses], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        for task in range(len(addresses))
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"a worker of {kind} has not begun to listen")
        yield addresses
    finally:
        for process in processes:
            process.communicate()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in sockets]


@contextmanager
def over_unix_sockets(num_workers: int = NUM_WORKERS) -> Iterator[Sequence[str]]:
    """Our workers at unix sockets."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield stack.enter_context(workers(OURS, [f"unix:{folder / str(task)}" for task in range(num_workers)]))


@contextmanager
def over_tcp(kind: str = OURS, num_workers: int = NUM_WORKERS) -> Iterator[Sequence[str]]:
    """Workers of a *kind* at free ports."""
    with workers(kind, [f"127.0.0.1:{port}" for port in free_ports(num_workers)]) as addresses:
        yield addresses


def main() -> None:
    """Run one worker."""
    kind, task, addresses = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if kind in (OURS, OBJECTS):
        ax.run(_serve(task, addresses[task], objects=kind == OBJECTS))
    else:
        _serve_tensorflow(task, addresses)


async def _serve(task: int, address: str, *, objects: bool) -> None:
    async with ax.Worker("worker", task, objects=objects) as worker:
        print(await worker.listen(address), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def _serve_tensorflow(task: int, addresses: Sequence[str]) -> None:
    tf = tensorflow()
    cluster = tf.train.ClusterSpec({"worker": list(addresses)})
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task)
    print(server.target, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
