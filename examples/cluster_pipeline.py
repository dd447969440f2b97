"""A pipeline over two workers: the first has the early layers of a model, the second the late ones.

    python examples/cluster_pipeline.py

``session.map`` keeps several steps under way: while the second worker has one batch, the first has the next.  Values go
from worker to worker; this process sees inputs and results alone.  The weights are constants: each travels once, to the
worker that needs it.  On several machines, only the cluster is another one: ``ax.cluster.connect({"local": [...]})``.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

import asyncexec as ax

NUM_BATCHES = 24
SIZES = [16, 256, 256, 128, 4]  # of the layers
SPLIT = 2  # layers on the first worker


def weights(layer: int) -> NDArray[np.float32]:
    drawn: NDArray[np.float64] = np.random.default_rng(layer).normal(0, SIZES[layer] ** -0.5, SIZES[layer : layer + 2])
    return drawn.astype(np.float32)


@ax.op(outputs=[ax.int64])
def process_id() -> int:
    return os.getpid()


def build_graph(early: str, late: str) -> ax.Graph:
    """Layers on the device *early*, then layers on *late*; and the processes that these devices are in."""
    with ax.Graph() as graph:
        y = ax.placeholder(ax.float32, [None, SIZES[0]], name="x")
        for layer in range(len(SIZES) - 1):
            with ax.device(early if layer < SPLIT else late):
                y = ax.tanh(ax.matmul(y, weights(layer)), name=f"layer_{layer}")
        ax.identity(y, name="y")
        for device in early, late:
            with ax.device(device):
                process_id(name="process")
    return graph


def batches() -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [{"x:0": draw.normal(size=(8, SIZES[0])).astype(np.float32)} for _ in range(NUM_BATCHES)]


async def run_in_one_process() -> list[NDArray[np.float32]]:
    async with ax.Session(build_graph("/cpu:0", "/cpu:0")) as session:
        return [y async for y in session.map("y:0", batches())]


async def main() -> None:
    expected = await run_in_one_process()
    graph = build_graph("/job:local/task:0", "/job:local/task:1")
    async with ax.cluster.local(2) as cluster, ax.Session(graph, cluster=cluster) as session:
        found = [y async for y in session.map("y:0", batches(), window=4)]
        processes = {os.getpid(), *await session.run(["process:0", "process_1:0"])}
        metadata = ax.RunMetadata()
        await session.run("y:0", batches()[0], options=ax.RunOptions(trace=True), metadata=metadata)
    same = all(np.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))
    print(f"{len(found)} batches over {len(processes)} processes, as in one: {same}")
    for device in metadata.step_stats.dev_stats:
        layers = [node.node_name for node in device.node_stats if node.node_name[:-1] == "layer_"]
        if layers:  # the others send and receive
            print(device.device, *layers)


if __name__ == "__main__":
    ax.run(main)
