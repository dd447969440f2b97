"""Recurrent layers of Keras and TensorFlow, as frozen graphs, and what TensorFlow gives.

``python -m tests.golden.make_recurrent_golden`` writes ``recurrent.npz``.  Each layer is there with its loop lowered to
Switches and Merges, and as a While.  Of each array the name begins with that of the layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

UNITS, FEATURES, STEPS, ROWS = 3, 2, 4, 2


def main() -> None:
    """Write the file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import tensorflow as tf
    from keras import layers as la

    keras.utils.set_random_seed(1)

    def layer(make: Callable[[Any], Any], steps: int | None = STEPS) -> Any:
        given = keras.Input([steps, FEATURES])
        model = keras.Model(given, make(given))
        for weight in model.weights:  # the biases of a new layer are zeros and ones
            weight.assign(np.random.default_rng(len(weight.shape)).normal(size=weight.shape, scale=0.7))
        return model, steps

    def lstm(**more: Any) -> Any:
        return la.LSTM(UNITS, name="l", **more)

    def stack(x: Any) -> Any:
        return la.GRU(UNITS, name="b")(la.LSTM(UNITS, return_sequences=True, name="a")(x))

    layers = {
        "lstm": layer(lstm()),
        "lstm_states": layer(lstm(return_sequences=True, return_state=True)),
        "lstm_any_length": layer(lstm(return_sequences=True), None),
        "lstm_backwards": layer(lstm(go_backwards=True, return_sequences=True)),
        "gru": layer(la.GRU(UNITS, name="l")),
        "gru_reset_first": layer(la.GRU(UNITS, reset_after=False, return_sequences=True, name="l")),
        "simple_rnn": layer(la.SimpleRNN(UNITS, name="l")),
        "bidirectional": layer(la.Bidirectional(lstm(return_sequences=True), name="b")),
        "stack": layer(stack),
        "stack_any_length": layer(stack, None),
        "masked": layer(lambda x: la.LSTM(UNITS, name="l")(la.Masking()(x))),
        "relu": layer(lstm(activation="relu")),
        "hard": layer(lstm(recurrent_activation="hard_sigmoid")),
        "standard_lstm": (_standard_lstm(tf), STEPS),
    }
    found: dict[str, Any] = {}
    x = np.random.default_rng(0).normal(size=(ROWS, STEPS, FEATURES)).astype(np.float32)
    for name, (call, steps) in layers.items():
        for kind in ("lowered", "functional"):
            graph, outputs = _frozen(tf, call, steps, lowers=kind == "lowered")
            found[f"{name}/{kind}"] = np.frombuffer(graph.SerializeToString(), np.uint8)
            found[f"{name}/{kind}/outputs"] = np.array(outputs)
        for index, value in enumerate(tf.nest.flatten(call(tf.constant(x)))):
            found[f"{name}/wanted/{index}"] = value.numpy()
    graph, wanted = _dynamic_rnn(tf, x)
    found["dynamic_rnn/lowered"] = np.frombuffer(graph.SerializeToString(), np.uint8)
    found["dynamic_rnn/lowered/outputs"] = np.array(["y:0", "h:0"])
    found |= {f"dynamic_rnn/wanted/{index}": value for index, value in enumerate(wanted)}
    np.savez_compressed(Path(__file__).with_name("recurrent.npz"), x=x, **found)


def _standard_lstm(tf: Any) -> Any:
    """An LSTM as the function that TensorFlow's own Keras calls, which is not inlined."""
    random = np.random.default_rng(5)
    sizes = ((FEATURES, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,))
    weights = [tf.constant(random.normal(size=size, scale=0.7).astype(np.float32)) for size in sizes]

    @tf.function(experimental_attributes={"api_implements": "lstm_1", "api_preferred_device": "CPU"})
    def standard_lstm(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        steps_first = tf.transpose(x, [1, 0, 2])
        steps = tf.shape(steps_first)[0]
        given = tf.TensorArray(tf.float32, steps).unstack(steps_first)
        made = tf.TensorArray(tf.float32, steps)

        def step(time: Any, made: Any, h: Any, c: Any) -> Any:
            z = tf.nn.bias_add(tf.matmul(given.read(time), kernel) + tf.matmul(h, recurrent), bias)
            i, f, g, o = tf.split(z, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            return time + 1, made.write(time, h), h, c

        goes_on = lambda time, *_: time < steps  # noqa: E731 - TensorFlow reads the source of a function
        _, made, h, c = tf.while_loop(goes_on, step, (0, made, h, c), maximum_iterations=steps)
        return tf.transpose(made.stack(), [1, 0, 2]), h, c

    def call(x: Any) -> Any:
        zeros = tf.zeros([tf.shape(x)[0], UNITS])
        return standard_lstm(x, zeros, zeros, *weights)

    return call


def _dynamic_rnn(tf: Any, given: Any) -> tuple[Any, Any]:
    """An LSTM as TensorFlow 1 wrote it: arrays, one matrix for input and state, and a bias of the forget gate."""
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    with v1.Graph().as_default() as graph:
        random = np.random.default_rng(6)
        kernel = tf.constant(random.normal(size=(FEATURES + UNITS, 4 * UNITS), scale=0.7).astype(np.float32))
        bias = tf.constant(random.normal(size=4 * UNITS).astype(np.float32))
        x = v1.placeholder(tf.float32, [None, STEPS, FEATURES], name="x")
        steps_first = tf.transpose(x, [1, 0, 2])
        steps = tf.shape(steps_first)[0]
        read = v1.TensorArray(tf.float32, steps).unstack(steps_first)
        zeros = tf.zeros([tf.shape(x)[0], UNITS])

        def step(time: Any, made: Any, c: Any, h: Any) -> Any:
            z = tf.nn.bias_add(tf.matmul(tf.concat([read.read(time), h], 1), kernel), bias)
            i, j, f, o = tf.split(z, 4, 1)
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            return time + 1, made.write(time, h), c, h

        first = (0, v1.TensorArray(tf.float32, steps), zeros, zeros)
        _, made, _, h = v1.while_loop(lambda time, *_: time < steps, step, first)
        outputs = [tf.transpose(made.stack(), [1, 0, 2], name="y"), tf.identity(h, name="h")]
        with v1.Session(graph=graph) as session:
            return graph.as_graph_def(), session.run(outputs, {x: given})


def _frozen(tf: Any, call: Any, steps: int | None, *, lowers: bool) -> tuple[Any, list[str]]:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    spec = tf.TensorSpec([None, steps, FEATURES], tf.float32, name="x")
    function = tf.function(call, input_signature=[spec], autograph=False).get_concrete_function()
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=lowers)
    return frozen.graph.as_graph_def(), [tensor.name for tensor in frozen.outputs]


if __name__ == "__main__":
    main()
