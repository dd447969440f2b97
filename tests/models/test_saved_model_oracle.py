"""Models that TensorFlow and Keras build and save now, beside what they themselves give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

pytestmark = [pytest.mark.oracle, pytest.mark.allow_blocking, pytest.mark.one_of("loop")]


def dense(keras: Any) -> Any:
    return keras.Sequential([keras.Input([6]), keras.layers.Dense(8, "gelu"), keras.layers.LayerNormalization()])


def convolutions(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input([12, 12, 3])
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3)(x))
    x = layers.Concatenate()([layers.MaxPooling2D(2)(x), layers.AveragePooling2D(2)(x)])
    return keras.Model(inputs, layers.Dense(5, "softmax")(layers.GlobalAveragePooling2D()(x)))


def recurrent(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input([None], dtype="int32")
    x = layers.Embedding(20, 6, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x)
    return keras.Model(inputs, layers.Dense(2)(layers.GRU(4)(x)))


def attention(keras: Any) -> Any:
    layers = keras.layers
    inputs = keras.Input([7, 8])
    x = layers.MultiHeadAttention(2, 4)(inputs, inputs)
    return keras.Model(inputs, layers.Dense(3)(layers.LayerNormalization()(x + inputs)))


def inputs_of(shape: tuple[int | None, ...], dtype: Any) -> Any:
    rng = np.random.default_rng(5)
    sizes = [3, *(size or 6 for size in shape[1:])]
    return rng.integers(1, 20, sizes).astype(dtype) if dtype == "int32" else rng.normal(size=sizes).astype(dtype)


@pytest.mark.parametrize("build", [dense, convolutions, recurrent, attention])
@pytest.mark.parametrize("how", ["export", "save"])
async def test_keras_models(tmp_path: Path, build: Callable[[Any], Any], how: str) -> None:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(11)
    built = build(keras)
    if how == "export":
        built.export(str(tmp_path), verbose=False)
    else:
        tf.saved_model.save(built, str(tmp_path))
    x = inputs_of(built.inputs[0].shape, built.inputs[0].dtype)
    async with ax.load_model(tmp_path) as model:
        call = model.signatures["serving_default"]
        (name,) = call.inputs
        (found,) = (await call(**{name: x})).values()
    np.testing.assert_allclose(found, np.asarray(built(x)), rtol=1e-4, atol=1e-5)


async def test_tensorflow_restores_what_a_session_saves(tmp_path: Path) -> None:
    import tensorflow.compat.v1 as tf

    w, count = np.arange(6, dtype=np.float32).reshape(2, 3), np.int64(7)
    with ax.Graph() as graph:
        ax.Variable(w, name="w"), ax.Variable(count, name="count")
        ax.global_variables_initializer()
    async with ax.Session(graph) as session:
        await session.run([], targets=["init"])
        await session.save(tmp_path / "c")
    with tf.Graph().as_default(), tf.Session() as theirs:
        variables = [tf.get_variable("w", [2, 3]), tf.get_variable("count", [], tf.int64)]
        tf.train.Saver().restore(theirs, str(tmp_path / "c"))
        found = theirs.run(variables)
        tf.train.Saver().save(theirs, str(tmp_path / "theirs"))
    np.testing.assert_array_equal(found[0], w)
    assert found[1] == count
    async with ax.Session(graph) as session:
        await session.restore(tmp_path / "theirs")
        np.testing.assert_array_equal(await session.run("w/Read:0"), w)


async def test_the_save_op_of_a_saved_model_writes_what_tensorflow_loads(tmp_path: Path) -> None:
    """SaveV2, ShardedFilename and MergeV2Checkpoints, as tf.saved_model.save puts them into a graph."""
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable([1.0, 2.0], name="w")

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
        def __call__(self, x: Any) -> Any:
            return {"w": self.w.assign_add([x, x])}

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "model"), {"serving_default": module.__call__})
    saved = ax.load_saved_model(tmp_path / "model")
    with ax.Graph() as graph:
        ax.import_graph_def(saved.graph_def, allowed_folders=[tmp_path])
    signature = saved.signatures["serving_default"]
    save_op = next(
        node.name
        for node in graph.operations
        if node.type == "StatefulPartitionedCall" and "save" in repr(node.get_attr("f"))
    )
    async with ax.Session(graph) as session:
        filename = saved.checkpoint_tensor
        checkpoint = str(tmp_path / "model" / "variables" / "variables")
        await session.run([], {filename: checkpoint}, targets=[saved.restore_op])
        await session.run(signature.outputs["w"].name, {signature.inputs["x"].name: 5.0})
        await session.run([], {filename: str(tmp_path / "new" / "c")}, targets=[save_op])
    found = tf.train.load_checkpoint(str(tmp_path / "new" / "c")).get_tensor("w/.ATTRIBUTES/VARIABLE_VALUE")
    assert found.tolist() == [6.0, 7.0]
