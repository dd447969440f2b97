"""Recommenders, graphs of nodes, sciences, control flow and training."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.oracle.architectures.forms import SAVED, architecture, floats, ints

L = keras.layers


def model(inputs: Any, outputs: Any) -> Any:
    return keras.Model(inputs, outputs)


@architecture("recommender")
def wide_and_deep() -> Any:
    wide, ids = keras.Input([6]), keras.Input([3], dtype="int32")
    deep = L.Dense(5, "relu")(L.Flatten()(L.Embedding(20, 4)(ids)))
    return model([wide, ids], L.Activation("sigmoid")(L.Dense(1)(wide) + L.Dense(1)(deep)))


@architecture("recommender")
def dlrm() -> Any:
    dense, ids = keras.Input([5]), keras.Input([3], dtype="int32")
    every = L.Concatenate(1)([L.Embedding(20, 4)(ids), L.Reshape([1, 4])(L.Dense(4, "relu")(dense))])
    crossed = L.Flatten()(L.Dot([2, 2])([every, every]))
    return model([dense, ids], L.Dense(1, "sigmoid")(crossed))


@architecture("recommender")
def deep_factorization() -> Any:
    i = keras.Input([4], dtype="int32")
    x = L.Embedding(20, 5)(i)
    s = keras.ops.square(keras.ops.sum(x, 1)) - keras.ops.sum(keras.ops.square(x), 1)
    return model(i, L.Dense(1)(L.Concatenate()([s, L.Dense(4, "relu")(L.Flatten()(x))])))


@architecture("recommender")
def deep_and_cross() -> Any:
    x = i = keras.Input([6])
    for _ in range(2):
        x = i * L.Dense(6)(x) + x
    return model(i, L.Dense(1)(L.Dropout(0.5)(x)))


@architecture("recommender")
def two_towers() -> Any:
    i, j = keras.Input([5]), keras.Input([5])
    towers = [L.UnitNormalization()(L.Dense(4, "relu")(each)) for each in (i, j)]
    return model([i, j], L.Dot(1)(towers))


@architecture("recommender")
def collaborative_filter() -> Any:
    u, v = keras.Input([1], dtype="int32"), keras.Input([1], dtype="int32")
    a, b = L.Flatten()(L.Embedding(20, 4)(u)), L.Flatten()(L.Embedding(20, 4)(v))
    return model([u, v], L.Dense(1, "sigmoid")(L.Concatenate()([a * b, L.Dense(3, "relu")(L.Concatenate()([a, b]))])))


@architecture("recommender", SAVED)
def embeddings_through_a_hash_table() -> Any:
    keys = tf.constant([3, 5, 7], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([0, 1, 2])), 3)
    e = tf.Variable(floats(4, 5))
    return lambda x: tf.reduce_mean(tf.gather(e, table.lookup(x)), 1), [np.array([[3, 9], [7, 5]], np.int64)], table, e


@architecture("recommender")
def bag_of_sparse_features() -> Any:
    e = tf.Variable(floats(9, 4))

    def call(indices: Any, values: Any, weights: Any) -> Any:
        ids, per_id = tf.SparseTensor(indices, values, [3, 4]), tf.SparseTensor(indices, weights, [3, 4])
        found = [tf.nn.safe_embedding_lookup_sparse(e, ids, per_id, combiner=c) for c in ("sum", "mean", "sqrtn")]
        return tf.concat(found, 1)

    indices = np.array([[0, 0], [0, 2], [2, 1]], np.int64)
    return call, [indices, np.array([3, 5, 8], np.int64), abs(floats(3))], e


@architecture("graph network")
def graph_convolutions() -> Any:
    w = tf.Variable(floats(4, 3))
    edges = tf.constant([[0, 1], [1, 0], [1, 2], [3, 3]], tf.int64)

    def call(x: Any) -> Any:
        near = tf.SparseTensor(edges, [0.5, 0.5, 0.7, 1.0], [4, 4])
        return tf.nn.relu(tf.sparse.sparse_dense_matmul(near, tf.matmul(x, w)))

    return call, [floats(4, 4)], w


@architecture("graph network")
def graph_attention() -> Any:
    w, a = tf.Variable(floats(4, 3)), tf.Variable(floats(6))

    def call(x: Any, source: Any, target: Any) -> Any:
        h = tf.matmul(x, w)
        e = tf.nn.leaky_relu(tf.tensordot(tf.concat([tf.gather(h, source), tf.gather(h, target)], 1), a, 1))
        e = tf.exp(e - tf.gather(tf.math.unsorted_segment_max(e, target, 5), target))
        e /= tf.gather(tf.math.unsorted_segment_sum(e, target, 5), target)
        return tf.math.unsorted_segment_sum(e[:, None] * tf.gather(h, source), target, 5)

    return call, [floats(5, 4), ints(5, 9), ints(5, 9, seed=3)], w, a


@architecture("graph network")
def graph_sage() -> Any:
    w = tf.Variable(floats(8, 3))

    def call(x: Any, source: Any, target: Any) -> Any:
        near = tf.math.segment_mean(tf.gather(x, source), target)
        return tf.math.l2_normalize(tf.matmul(tf.concat([x, near], 1), w), 1), tf.math.segment_max(x, target[:4])

    return call, [floats(4, 4), ints(4, 6), np.array([0, 0, 1, 2, 3, 3], np.int32)], w


@architecture("graph network")
def messages_between_nodes() -> Any:
    w = tf.Variable(floats(4, 4) * 0.5)

    def call(x: Any, edges: Any) -> Any:
        for _ in tf.range(3):
            sent = tf.scatter_nd(edges[:, 1:], tf.gather(tf.matmul(x, w), edges[:, 0]), [5, 4])
            x = tf.tensor_scatter_nd_max(tf.tanh(x + sent), edges[:, :1], tf.zeros([7, 4]))
        return x

    return call, [floats(5, 4), ints(5, 7, 2)], w


@architecture("science")
def normalizing_flow() -> Any:
    w = tf.Variable(floats(2, 4) * 0.5)

    def call(x: Any) -> Any:
        a, b = tf.split(x, 2, 1)
        scale, shift = tf.split(tf.matmul(a, w), 2, 1)
        return tf.reverse(tf.concat([a, b * tf.exp(scale) + shift], 1), [1]), tf.reduce_sum(scale, 1)

    return call, [floats(3, 4)], w


@architecture("science")
def neural_differential_equation() -> Any:
    w = tf.Variable(floats(3, 3) * 0.5)

    def call(y: Any) -> Any:
        def f(y: Any) -> Any:
            return tf.tanh(tf.matmul(y, w))

        t = tf.constant(0.0)
        while t < 1.0:
            k1 = f(y)
            k2 = f(y + 0.05 * k1)
            y, t = y + 0.1 * k2, t + 0.1
        return y

    return call, [floats(2, 3)], w


@architecture("science")
def kalman_filter() -> Any:
    def call(observed: Any) -> Any:
        x, p, f = tf.zeros([2, 1]), tf.eye(2), tf.constant([[1.0, 1], [0, 1]])
        for z in observed:
            x, p = f @ x, f @ p @ tf.transpose(f) + 0.1 * tf.eye(2)
            gain = p[:, :1] @ tf.linalg.inv(p[:1, :1] + 0.5)
            x, p = x + gain * (z - x[0, 0]), (tf.eye(2) - gain @ tf.constant([[1.0, 0]])) @ p
        return x, p

    return call, [floats(6)]


@architecture("science")
def gaussian_process() -> Any:
    def call(x: Any, y: Any, at: Any) -> Any:
        def kernel(a: Any, b: Any) -> Any:
            return tf.exp(-0.5 * (a[:, None] - b[None]) ** 2)

        factor = tf.linalg.cholesky(kernel(x, x) + 0.1 * tf.eye(5))
        mean = kernel(at, x) @ tf.linalg.cholesky_solve(factor, y[:, None])
        return mean, tf.linalg.logdet(kernel(x, x) + 0.1 * tf.eye(5)), tf.linalg.triangular_solve(factor, y[:, None])

    return call, [floats(5), floats(5, seed=4), floats(3, seed=5)]


@architecture("science")
def clusters_of_points() -> Any:
    def call(x: Any, centers: Any) -> Any:
        for _ in tf.range(4):
            nearest = tf.argmin(tf.reduce_sum((x[:, None] - centers) ** 2, 2), 1, tf.int32)
            centers = tf.math.divide_no_nan(
                tf.math.unsorted_segment_sum(x, nearest, 3),
                tf.cast(tf.math.bincount(nearest, minlength=3), tf.float32)[:, None],
            )
        return centers

    return call, [floats(12, 2), floats(3, 2, seed=8)]


@architecture("science")
def radiance_field() -> Any:
    w = tf.Variable(floats(12, 4) * 0.3)

    def call(x: Any) -> Any:
        waves = tf.concat([f(x * 2.0**n) for n in range(2) for f in (tf.sin, tf.cos)], -1)
        out = tf.einsum("rsi,io->rso", waves, w)
        alpha = 1 - tf.exp(-tf.nn.relu(out[..., 3]))
        weights = alpha * tf.math.cumprod(1 - alpha + 1e-6, 1, exclusive=True)
        return tf.reduce_sum(weights[..., None] * tf.sigmoid(out[..., :3]), 1)

    return call, [floats(3, 8, 3)], w


@architecture("science")
def hopfield_network() -> Any:
    def call(patterns: Any, x: Any) -> Any:
        w = tf.matmul(patterns, patterns, transpose_a=True)
        w = tf.linalg.set_diag(w, tf.zeros(8))
        for _ in tf.range(5):
            x = tf.sign(tf.linalg.matvec(w, x))
        return x

    return call, [np.sign(floats(2, 8)), np.sign(floats(8, seed=3))]


@architecture("time series")
def seasons_by_fourier() -> Any:
    def call(x: Any) -> Any:
        waves = tf.signal.rfft(x)
        kept = tf.cast(tf.abs(waves) >= tf.math.top_k(tf.abs(waves), 3).values[:, -1:], tf.complex64)
        return tf.signal.irfft(waves * kept), tf.math.angle(waves)

    return call, [floats(2, 16)]


@architecture("time series")
def n_beats() -> Any:
    x = i = keras.Input([10])
    total = L.Dense(3, use_bias=False)(x)
    for _ in range(2):
        h = L.Dense(8, "relu")(x)
        x = x - L.Dense(10)(h)
        total = total + L.Dense(3)(h)
    return model(i, total)


@architecture("time series")
def highway_layers() -> Any:
    x = i = keras.Input([8])
    for _ in range(3):
        gate = L.Dense(8, "sigmoid")(x)
        x = gate * L.Dense(8, "mish")(x) + (1 - gate) * x
    return model(i, L.PReLU()(L.GaussianNoise(0.1)(x)))


@architecture("control flow")
def newton_steps() -> Any:
    def call(x: Any) -> Any:
        y, i = x, 0
        while tf.reduce_any(tf.abs(y * y - x) > 1e-4) and i < 20:
            y = (y + x / y) / 2
            i += 1
        return y, i

    return call, [abs(floats(4)) + 1]


@architecture("control flow")
def branches_in_loops() -> Any:
    w = tf.Variable(floats(3))

    def call(n: Any, x: Any) -> Any:
        steps = 0
        while n > 1:
            if n % 2 == 0:
                n = n // 2
                x = x * w
            else:
                n = 3 * n + 1
                for _ in tf.range(2):
                    x = tf.sin(x)
            steps += 1
        return steps, x

    return call, [np.int32(11), floats(3)], w


@architecture("control flow")
def branches_by_number() -> Any:
    w = tf.Variable(floats(3))

    def call(i: Any, x: Any) -> Any:
        cases = [lambda: x + w, lambda: x * w, lambda: tf.reverse(x, [0])]
        return tf.switch_case(i, cases), tf.cond(i > 0, cases[0], cases[2])

    return call, [np.int32(1), floats(3)], w


@architecture("control flow")
def maps_and_folds() -> Any:
    w = tf.Variable(floats(3, 3))

    def call(x: Any) -> Any:
        mapped = tf.map_fn(lambda row: tf.linalg.matvec(w, row), x)
        return mapped, tf.foldl(lambda a, b: a * 0.5 + b, x), tf.vectorized_map(lambda row: tf.reduce_sum(row * row), x)

    return call, [floats(4, 3)], w


def _enter_training() -> None:
    def enter(name: str, optimizer: Any) -> None:
        def build() -> Any:
            net = keras.Sequential([keras.Input([8, 8, 1]), L.Conv2D(3, 3, activation="relu"), L.Flatten(), L.Dense(4)])
            made = optimizer()
            made.build(net.trainable_variables)

            def call(x: Any, y: Any) -> Any:
                with tf.GradientTape() as tape:
                    loss = keras.losses.sparse_categorical_crossentropy(y, net(x, training=True), from_logits=True)
                    loss = tf.reduce_mean(loss)
                grads, norm = tf.clip_by_global_norm(tape.gradient(loss, net.trainable_variables), 1.0)
                made.apply_gradients(zip(grads, net.trainable_variables, strict=True))
                return loss, norm, [tf.convert_to_tensor(v) for v in net.trainable_variables]

            return call, [floats(3, 8, 8, 1), ints(4, 3)], net, made

        build.__name__ = name
        architecture("training", SAVED)(build)

    for kind in ("SGD", "Adam", "RMSprop", "Adagrad", "AdamW", "Nadam", "Adamax", "Ftrl", "Lion"):
        enter(f"step_of_{kind.lower()}", lambda kind=kind: getattr(keras.optimizers, kind)(0.01))
    enter("step_of_momentum", lambda: keras.optimizers.SGD(0.01, 0.9, nesterov=True))


_enter_training()


@architecture("training", SAVED)
def step_of_sparse_gradients() -> Any:
    e, w = tf.Variable(floats(9, 4)), tf.Variable(floats(4, 1))

    def call(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(tf.gather(e, ids), w) ** 2)
        grad, other = tape.gradient(loss, [e, w])
        e.scatter_sub(tf.IndexedSlices(grad.values * 0.1, grad.indices))
        w.assign_sub(0.1 * other)
        return loss, e.read_value(), w.read_value()

    return call, [ints(9, 5)], e, w


@architecture("training")
def gradients_through_a_loop() -> Any:
    w = tf.Variable(floats(3, 3) * 0.5)

    def call(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            read = tf.identity(w)
            for _ in tf.range(4):
                y = tf.tanh(tf.matmul(y, read))
        return tape.gradient(y, [x, read])

    return call, [floats(2, 3)], w


@architecture("training")
def gradients_of_gradients() -> Any:
    w = tf.Variable(floats(3, 1))

    def call(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.sigmoid(tf.matmul(x, w)) ** 2
            first = inner.gradient(y, x)
        return first, outer.batch_jacobian(first, x)

    return call, [floats(4, 3)], w
