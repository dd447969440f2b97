"""A tour of the builder, in cells (``# %%``) as for a notebook.  Nothing but ``pip install asyncexec`` is needed."""

from __future__ import annotations

import asyncio

import numpy as np

import asyncexec as ax

# %% Functions become ops: "async def" is awaited, "def" runs inline, or on a worker thread when it is expensive.


@ax.op(outputs=[ax.float32], shapes=[(3, 2)])
async def fetch_weights(model: str) -> np.ndarray:
    await asyncio.sleep(0.002)  # a call of some service
    return np.full((3, 2), len(model), np.float32)


@ax.op(expensive=False, outputs=[ax.float32])
def halve(x: np.ndarray) -> np.ndarray:
    return x / np.float32(2)


@ax.op(expensive=True)
def norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x))


print(fetch_weights)
print("called with plain values it is the function itself:", halve(np.array([3], np.float32)))

# %% In a graph they add nodes, as the common ops do, which bear the names of TensorFlow's Python API.
with ax.Graph() as graph:
    x = ax.placeholder(ax.float32, [None, 3], name="x")
    model = ax.placeholder_with_default("m", [], name="model")
    with ax.name_scope("layer"):
        weights = fetch_weights(model)
        y = ax.relu(x @ weights - 1.0, name="y")
    total = ax.reduce_sum(y * 2 + halve(y), name="total")
    length = norm(y)

# %% What is there tells what it is.
print(graph, x, y, y.op, length, sep="\n")
print("shape known before anything runs:", y.shape)
for operation in graph.operations:
    print(f"  {operation.name:24} {operation.op:16} {[tensor.name for tensor in operation.inputs]}")

# %% Any registered op can be added by name, and an operation can wait for others.
with graph:
    largest, position = ax.create_op("TopKV2", [ax.reshape(y, [-1]), 1], name="largest")
    check = ax.Assert(total < 1000.0, [total], name="check")
    with ax.control_dependencies([check]):
        checked = ax.identity(total, name="checked")
print("checked waits for:", [operation.name for operation in checked.op.control_inputs])

# %% Mistakes show at the line that made them.
try:
    with graph:
        ax.matmul(x, ax.constant(np.ones((4, 2), np.float32)))
except ax.errors.InvalidArgumentError as error:
    print("refused:", error)
try:
    with graph:
        x + ax.constant([1, 2, 3])
except TypeError as error:
    print("refused:", error)


# %% Running: only what the fetches need; any tensor can be fed, and what only it would have needed is not run.
async def main() -> None:
    rows = [[1, 0, 0], [1, 1, 1]]
    async with ax.Session(graph) as session:
        result = await session.run({"y": y, "total": checked, "largest": largest, "norm": length}, {x: rows})
        print(result)
        print("with y fed:", await session.run(total, {y: [[1, 2]]}))
        try:
            await session.run(checked, {y: [[1000, 2000]]})
        except ax.errors.InvalidArgumentError as error:
            print("failed:", error.message.splitlines()[0], "| node:", error.node)

        metadata = ax.RunMetadata()
        await session.run(total, {x: rows}, options=ax.RunOptions(trace=True), metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            slowest = max(device.node_stats, key=lambda stats: stats.op_end_rel_micros)
            print(f"{device.device}: {len(device.node_stats)} executions, the longest {slowest.node_name}")


ax.run(main)
