"""A service in a process of its own, for the tests of load.  ``python -m tests.service.load_server OPTIONS``.

OPTIONS are those of ``ax.service.serve``, as JSON.  It prints a line with its ports, and one for each line it reads:
``tell``, what it is doing now; ``release``, after letting the calls of ``held`` go; ``hold``, after holding new ones.
It ends as any service does, by a signal, and then prints the same once more.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import asyncexec as ax
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.server import Ports


def identity() -> ax.Graph:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.float32, [None], name="x"), name="y")
    return graph


def held(released: asyncio.Event) -> ModelSource:
    """Input x, output y, when it is *released*."""

    @ax.op(outputs=[ax.float32], shapes=[[None]])
    async def wait_for(x: NDArray[np.float32]) -> NDArray[np.float32]:
        await released.wait()
        return x

    with ax.Graph() as graph:
        y = wait_for(ax.placeholder(ax.float32, [None], name="x"))
    return ModelSource(graph, outputs={"y": y})


def large() -> ax.Graph:
    """Input x, a number; output y, so many zeros."""
    with ax.Graph() as graph:
        count = ax.placeholder(ax.int32, [1], name="x")
        ax.fill(count, ax.constant(0.0, ax.float32), name="y")
    return graph


async def main(options: dict[str, Any]) -> None:
    released = asyncio.Event()
    repository = ModelRepository(sources={"identity": identity(), "held": held(released), "large": large()})
    models: list[Model] = []

    def start(ports: Ports) -> None:
        models.extend(repository.models())
        print(ports.http, ports.grpc, flush=True)

    def answer(line: str) -> dict[str, int]:
        if line == "release":
            released.set()
        elif line == "hold":
            released.clear()
        return {
            "tasks": len(asyncio.all_tasks()),
            "running": sum(model.session.statistics().running_steps for model in models),
            "answered": sum(model.statistics.success.count for model in models),
        }

    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)

    async def listen() -> None:
        while line := await lines.readline():
            print(json.dumps(answer(line.decode().strip())), flush=True)

    listening = asyncio.create_task(listen())
    await ax.service.serve(repository, on_start=start, **options)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    pipe.close()
    print(json.dumps(answer("")), flush=True)


if __name__ == "__main__":
    ax.run(main(json.loads(sys.argv[1])))
