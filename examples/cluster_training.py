"""Two ways to train on several machines, here on one: replicas that average gradients, and a parameter server.

In data-parallel training each worker has the parameters, and a part of the data.  In each step the gradients of all
workers are averaged by a collective, so all of them take the same step.  With a parameter server the parameters are in
one process: workers read them, and send what they would change, each at its own pace.

    python examples/cluster_training.py
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import asyncexec as ax

NUM_WORKERS = 2
TRUTH = np.array([[2.0], [-3.0], [1.0]])
RATE = 0.1


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(32, 3))
    return x, x @ TRUTH


def loss_and_gradient(weights: ax.Tensor, x: ax.Tensor, y: ax.Tensor) -> tuple[ax.Tensor, ax.Tensor]:
    error = ax.matmul(x, weights) - y
    return ax.reduce_mean(error * error), ax.matmul(x, error, transpose_a=True) * (2 / 32)


def average(gradient: ax.Tensor) -> ax.Tensor:
    """The mean of the gradients of all workers: each has it."""
    group_size, group_key, instance_key = NUM_WORKERS, 1, 1
    attrs = {"merge_op": "Add", "final_op": "Div"}
    mean: ax.Tensor = ax.create_op("CollectiveReduceV2", [gradient, group_size, group_key, instance_key, []], attrs)
    return mean


async def train_replicas() -> None:
    with ax.Graph() as graph:
        data = [(ax.placeholder(ax.float64, [32, 3]), ax.placeholder(ax.float64, [32, 1])) for _ in range(NUM_WORKERS)]
        replicas, losses, train = [], [], []
        for task, (x, y) in enumerate(data):
            with ax.device(f"/job:local/task:{task}"):
                weights = ax.Variable(np.zeros((3, 1)))
                loss, gradient = loss_and_gradient(weights.read_value(), x, y)
                train.append(weights.assign_sub(average(gradient) * RATE))
            replicas.append(weights)
            losses.append(loss)
        init = ax.global_variables_initializer()

    async with ax.cluster.local(NUM_WORKERS) as cluster, ax.Session(graph, cluster=cluster) as session:
        await session.run(init)
        for step in range(40):
            batches = [batch(NUM_WORKERS * step + task) for task in range(NUM_WORKERS)]
            feeds = {data[task][i]: batches[task][i] for task in range(NUM_WORKERS) for i in (0, 1)}
            found = await session.run(losses, feeds, targets=train)
            if step % 13 == 0:
                print(f"step {step}: loss {np.mean(found):.4f}")
        first, second = await session.run(replicas)
        print("the replicas are equal:", first.tobytes() == second.tobytes())


async def train_with_server() -> None:
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float64, [32, 3]), ax.placeholder(ax.float64, [32, 1])
        with ax.device("/job:ps/task:0"):
            weights, num_updates = ax.Variable(np.zeros((3, 1))), ax.Variable(0)
            read = weights.read_value()
        train = []
        for task in range(NUM_WORKERS):
            with ax.device(f"/job:worker/task:{task}"):
                _, gradient = loss_and_gradient(read, x, y)
            with ax.device("/job:ps/task:0"):
                train.append([weights.assign_sub(gradient * RATE), num_updates.assign_add(1)])
        init = ax.global_variables_initializer()

    async def work(session: ax.Session, task: int) -> None:
        for step in range(40):
            points, values = batch(NUM_WORKERS * step + task)
            await session.run([], {x: points, y: values}, targets=train[task])

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        # Elsewhere: asyncexec worker --job ps --task 0 --listen ...
        workers = [ax.Worker("ps", 0), *(ax.Worker("worker", task) for task in range(NUM_WORKERS))]
        for worker in workers:
            await stack.enter_async_context(worker)
        server, *others = [await worker.listen(f"unix:{folder}/{i}") for i, worker in enumerate(workers)]
        cluster = await stack.enter_async_context(ax.cluster.connect({"ps": [server], "worker": others}))
        session = await stack.enter_async_context(ax.Session(graph, cluster=cluster))
        await session.run(init)
        await asyncio.gather(*(work(session, task) for task in range(NUM_WORKERS)))
        found, count = await session.run([weights, num_updates])
        print(f"{count} updates: {found.ravel().round(3).tolist()}")


async def main() -> None:
    await train_replicas()
    await train_with_server()


if __name__ == "__main__":
    ax.run(main)
