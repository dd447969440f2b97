"""Graphs over three CPU devices, and how TensorFlow partitions them: tests/golden/partition/<case>.json.

Run with an environment that has tensorflow-cpu 2.21, from the root of the repository::

    python -m tests.golden.make_partition_golden

A case is a graph, as JSON; the node that is run; and, for each device, how many nodes of each op type are in its
partition, all graph optimizations off.  What starts a graph is an Identity of a constant: TensorFlow makes a constant
anew on each device that takes it.  ``_HostSend`` and ``_HostRecv`` are counted as ``_Send`` and ``_Recv``: on a CPU
they are the same, and TensorFlow takes either by how the kernel at the other end is registered.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf
from google.protobuf import json_format

FOLDER = Path(__file__).parent / "partition"
NUM_DEVICES = 3
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.disable_control_flow_v2()
v1.disable_resource_variables()

CASES: dict[str, Callable[[], Any]] = {}


def case(build: Callable[[], Any]) -> Callable[[], Any]:
    CASES[build.__name__] = build
    return build


def on(index: int) -> AbstractContextManager[Any]:
    device: AbstractContextManager[Any] = v1.device(f"/cpu:{index}")
    return device


def given(value: Any) -> Any:
    return tf.identity(v1.constant(value))


@case
def values_used_many_times() -> Any:
    with on(0):
        a, b = given(2.0), given([3.0, 4.0])
    with on(1):
        c = a * b
        d = a + c
        e = tf.split(d, 2)
    with on(2):
        f = tf.add_n([e[0], e[1], e[0], a * e[1]])
    with on(0):
        return tf.negative(f)


@case
def control_edges() -> Any:
    with on(0):
        a, b = v1.constant(1.0), v1.constant(2.0)
    with on(1), v1.control_dependencies([a, b]):
        c, d = v1.constant(3.0), v1.no_op()
    with on(2), v1.control_dependencies([a, c, d]):
        e = c * 2.0
    with on(0), v1.control_dependencies([e]):
        return v1.no_op("end")


@case
def there_and_back() -> Any:
    value = v1.constant(1.0)
    for step in range(9):
        with on(step % 3):
            value = -value
    return value


@case
def condition() -> Any:
    with on(0):
        p, x = given(True), given(5.0)
    with on(1):
        y = x * 2.0

    def first() -> Any:
        with on(2):
            return y + 1.0

    def second() -> Any:
        with on(1):
            return x - 1.0

    with on(0):
        return v1.cond(p, first, second)


def going(i: Any, *_: Any) -> Any:
    return i < 5


@case
def loop_with_its_body_elsewhere() -> Any:
    def body(i: Any) -> Any:
        with on(1):
            j = i * 2
        with on(0):
            return j + 1

    with on(0):
        result = v1.while_loop(going, body, [v1.constant(0)])
    with on(2):
        return tf.identity(result)


@case
def loop_over_three_devices() -> Any:
    def body(i: Any, x: Any, y: Any) -> Any:
        with on(1):
            x = x * 2.0
        with on(2):
            y = y + x
        with on(0):
            return i + 1, x, y

    with on(0):
        _, x, y = v1.while_loop(going, body, [v1.constant(0), v1.constant(1.0), v1.constant(2.0)])
        return x + y


@case
def loop_with_its_condition_elsewhere() -> Any:
    def test(i: Any) -> Any:
        with on(2):
            return tf.negative(i) > -7

    def body(i: Any) -> Any:
        with on(0):
            return i + 1

    with on(0):
        return v1.while_loop(test, body, [v1.constant(0)])


@case
def loop_in_a_loop() -> Any:
    def inner_body(j: Any, x: Any) -> Any:
        with on(2):
            x = x + 1.0
        with on(1):
            return j + 1, x

    def body(i: Any, x: Any) -> Any:
        with on(1):
            _, x = v1.while_loop(going, inner_body, [v1.constant(0), x])
        with on(0):
            return i + 1, x * 2.0

    with on(0):
        return v1.while_loop(going, body, [v1.constant(0), v1.constant(1.0)])[1]


@case
def condition_in_a_loop() -> Any:
    def body(i: Any, x: Any) -> Any:
        def double() -> Any:
            with on(1):
                return x * 2.0

        def drop() -> Any:
            with on(2):
                return x - 1.0

        with on(0):
            return i + 1, v1.cond(i > 2, double, drop)

    with on(0):
        return v1.while_loop(going, body, [v1.constant(0), v1.constant(1.0)])[1]


@case
def loop_that_is_on_one_device() -> Any:
    with on(1):
        x = v1.while_loop(going, lambda i: i + 1, [v1.constant(0)])
    with on(2):
        return x + 1


@case
def variable_read_elsewhere() -> Any:
    with on(1):
        variable = v1.get_variable("v", [], initializer=v1.zeros_initializer())
        changed = v1.assign_add(variable, 1.0)
    with on(2), v1.control_dependencies([changed]):
        return variable + 2.0


def scattered(seed: int) -> Callable[[], Any]:
    """Arithmetic whose devices are drawn."""

    def build() -> Any:
        random = Random(seed)
        with on(0):
            values = [given(1.0), given(2.0)]
        for _ in range(30):
            with on(random.randrange(3)):
                values.append(tf.add_n(random.choices(values[-6:], k=2)))
        return values[-1]

    return build


CASES.update({f"scattered_{seed}": scattered(seed) for seed in range(3)})


def counts(session: Any, target: Any) -> dict[str, dict[str, int]]:
    """Op types by device."""
    metadata = v1.RunMetadata()
    session.run(target, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    found = {}
    for graph_def in metadata.partition_graphs:
        ops = Counter(node.op.replace("_Host", "_") for node in graph_def.node)
        found[graph_def.node[0].device] = dict(sorted(ops.items()))
    return dict(sorted(found.items()))


def main() -> None:
    config = v1.ConfigProto(device_count={"CPU": NUM_DEVICES})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1  # L0
    FOLDER.mkdir(exist_ok=True)
    for name, build in CASES.items():
        with tf.Graph().as_default() as graph:
            result = build()
            target = getattr(result, "op", result)
            with v1.Session(graph=graph, config=config) as session:
                session.run(v1.global_variables_initializer())
                found = counts(session, target)
            graph_def = json_format.MessageToDict(graph.as_graph_def())
        golden = {"target": target.name, "counts": found, "graph": graph_def}
        (FOLDER / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
