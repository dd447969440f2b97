"""Data-parallel training with TensorFlow's client, and its losses: tests/golden/training/<replicas>.json.

Run with an environment that has tensorflow-cpu 2.21, from the root of the repository::

    python -m tests.golden.make_training_golden

A graph has so many replicas of a small network, one a worker, each with variables and data of its own.  Their gradients
are averaged by CollectiveReduceV2.  A file has the GraphDef, the fetches, the data, and the losses of ten steps, as
TensorFlow computes them in one process, on as many CPU devices.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

FOLDER = Path(__file__).parent / "training"
STEPS = 10
LEARNING_RATE = 0.05
v1 = tf.compat.v1
v1.disable_eager_execution()


def average(gradient: Any, replicas: int, instance: int) -> Any:
    return tf.raw_ops.CollectiveReduceV2(
        input=gradient,
        group_size=replicas,
        group_key=1,
        instance_key=instance,
        ordering_token=[],
        merge_op="Add",
        final_op="Div",
    )


def replica(number: int, replicas: int) -> tuple[Any, Any]:
    """Its loss, and what trains it."""
    draw = np.random.default_rng(0)
    first = v1.get_variable(f"first_{number}", initializer=draw.normal(size=[4, 8]).astype(np.float32))
    second = v1.get_variable(f"second_{number}", initializer=draw.normal(size=[8, 1]).astype(np.float32))
    x = v1.placeholder(tf.float32, [None, 4], name=f"x_{number}")
    y = v1.placeholder(tf.float32, [None, 1], name=f"y_{number}")
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, first)), second) - y), name=f"loss_{number}")
    gradients = [average(each, replicas, i) for i, each in enumerate(tf.gradients(loss, [first, second]))]
    updates = [
        v1.assign_sub(variable, LEARNING_RATE * gradient)
        for variable, gradient in zip([first, second], gradients, strict=True)
    ]
    with tf.control_dependencies(updates):
        return loss, tf.no_op(name=f"train_{number}")


def build(device: str, replicas: int) -> tuple[Any, list[Any]]:
    """The graph, and the losses and training ops of its replicas."""
    with tf.Graph().as_default() as graph:
        made = []
        for number in range(replicas):
            with tf.device(device.format(number)):
                made.append(replica(number, replicas))
        v1.global_variables_initializer()
    return graph, made


def data(replicas: int) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    feeds = {}
    for number in range(replicas):
        x = draw.normal(size=[STEPS, 6, 4]).astype(np.float32)
        feeds[f"x_{number}"] = x.tolist()
        feeds[f"y_{number}"] = x.sum(axis=-1, keepdims=True).tolist()
    return feeds


def losses(replicas: int, feeds: dict[str, Any]) -> list[list[float]]:
    """Of each step, in one process."""
    graph, made = build("/cpu:{}", replicas)
    config = v1.ConfigProto(device_count={"CPU": replicas})
    config.experimental.collective_group_leader = "/job:localhost/replica:0/task:0"
    found = []
    with v1.Session(graph=graph, config=config) as session:
        session.run("init")
        for step in range(STEPS):
            values = {f"{name}:0": value[step] for name, value in feeds.items()}
            got, _ = session.run([[loss for loss, _ in made], [train for _, train in made]], values)
            found.append([float(each) for each in got])
    return found


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for replicas in (2, 3, 4):
        graph, _ = build("/job:worker/task:{}", replicas)
        feeds = data(replicas)
        told = {
            "graph": json_format.MessageToDict(graph.as_graph_def()),
            "feeds": feeds,
            "losses": losses(replicas, feeds),
        }
        (FOLDER / f"{replicas}.json").write_text(json.dumps(told) + "\n")
        print(replicas, told["losses"][0], told["losses"][-1])


if __name__ == "__main__":
    main()
