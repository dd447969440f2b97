"""Graphs of TensorFlow 1's kind: placeholders, sessions, lowered control flow, queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.oracle.architectures.forms import ALL_FORMS, Classic, architecture, floats, ints

v1 = tf.compat.v1


def classic(*forms: str) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Enters what the decorated function adds to a graph; the defaults of its parameters are what is fed."""

    def enter(add: Callable[..., Any]) -> Callable[[], Any]:
        def build() -> Any:
            arguments = list(add.__defaults__ or ())
            graph = tf.Graph()
            with graph.as_default():
                v1.set_random_seed(5)
                fed = [v1.placeholder(np.asarray(a).dtype, np.shape(a), name=f"a{i}") for i, a in enumerate(arguments)]
                outputs = [tf.identity(each, name=f"out{i}") for i, each in enumerate(tf.nest.flatten(add(*fed)))]
            return Classic(graph, arguments, outputs)

        build.__name__ = add.__name__
        return architecture("TensorFlow 1", *(forms or ALL_FORMS[1:]))(build)

    return enter


def variable(name: str, *shape: int) -> Any:
    return v1.get_variable(name, initializer=floats(*shape) * 0.5)


@classic()
def v1_layers(x: Any = floats(3, 5)) -> Any:  # noqa: B008
    w, b = variable("w", 5, 4), variable("b", 4)
    return v1.nn.xw_plus_b(x, w, b), v1.nn.log_softmax(v1.nn.relu_layer(x, w, b))


@classic()
def v1_loop(x: Any = floats(2, 3)) -> Any:  # noqa: B008
    w = variable("w", 3, 3)
    body = lambda i, y: (i + 1, v1.cond(i > 1, lambda: y @ w, lambda: y + 1.0))  # noqa: E731
    return v1.while_loop(lambda i, y: i < 4, body, [0, x], parallel_iterations=1)


@classic()
def v1_batch_normalization(x: Any = floats(2, 6, 6, 2)) -> Any:  # noqa: B008
    y = v1.nn.conv2d(x, variable("k", 3, 3, 2, 4), [1, 1, 1, 1], "SAME")
    y, mean, changed = v1.nn.fused_batch_norm(y, [1.0] * 4, [0.5] * 4, [0.1] * 4, [2.0] * 4, is_training=False)
    return v1.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), mean, changed


@classic()
def v1_partitioned_embeddings(ids: Any = ints(8, 5)) -> Any:  # noqa: B008
    parts = [variable(f"e{i}", 4, 3) for i in range(2)]
    return v1.nn.embedding_lookup(parts, ids, partition_strategy="div")


@classic()
def v1_references(x: Any = floats(3)) -> Any:  # noqa: B008
    w = v1.get_variable("w", initializer=floats(3), use_resource=False)
    return tf.identity(w) * x, tf.nn.moments(w * x, [0])


@classic()
def v1_gradients_of_a_loop(x: Any = floats(2, 3)) -> Any:  # noqa: B008
    w = tf.identity(variable("w", 3, 3))
    _, y = v1.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, tf.tanh(y @ w)), [0, x])
    return v1.gradients(y, [x, w])


@classic()
def v1_recurrence(x: Any = floats(5, 2, 3), lengths: Any = np.array([5, 3], np.int32)) -> Any:  # noqa: B008
    w = variable("w", 7, 4)

    def body(t: Any, h: Any, kept: Any) -> Any:
        new = tf.tanh(tf.concat([inputs.read(t), h], 1) @ w)
        h = tf.where(tf.broadcast_to((t < lengths)[:, None], [2, 4]), new, h)
        return t + 1, h, kept.write(t, h)

    inputs = tf.TensorArray(tf.float32, 5).unstack(x)
    start = (tf.constant(0), tf.zeros([2, 4]), tf.TensorArray(tf.float32, 5))
    _, h, kept = v1.while_loop(lambda t, h, kept: t < 5, body, start)
    return h, kept.stack()


@classic()
def v1_queue(x: Any = floats(4, 3)) -> Any:  # noqa: B008
    queue = v1.FIFOQueue(8, [tf.float32], [[3]])
    with v1.control_dependencies([queue.enqueue_many([x])]):
        first = queue.dequeue()
    with v1.control_dependencies([first]):
        return first, queue.dequeue_many(2) @ variable("w", 3, 2)


@classic(ALL_FORMS[2])
def v1_training(x: Any = floats(6, 3), y: Any = floats(6, 1)) -> Any:  # noqa: B008
    w, b = variable("w", 3, 1), variable("b", 1)
    loss = v1.losses.mean_squared_error(y, x @ w + b)
    step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with v1.control_dependencies([step]):
        return loss, w.read_value(), b.read_value()


@classic(ALL_FORMS[2])
def v1_training_with_adam(x: Any = floats(6, 3), y: Any = floats(6, 1)) -> Any:  # noqa: B008
    w = v1.get_variable("w", initializer=floats(3, 1), use_resource=False)
    loss = v1.reduce_mean((x @ w - y) ** 2)
    step = v1.train.AdamOptimizer(0.1).minimize(loss)
    with v1.control_dependencies([step]):
        return loss, w.read_value()


@classic(ALL_FORMS[2])
def v1_table(words: Any = np.array([b"b", b"z"], object)) -> Any:  # noqa: B008
    values = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
    return tf.lookup.StaticHashTable(values, -1).lookup(words)
