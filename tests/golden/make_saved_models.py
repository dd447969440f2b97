"""Has TensorFlow and Keras write SavedModels and checkpoints: ``python -m tests.golden.make_saved_models``.

``saved_models/NAME`` are SavedModels, ``saved_models/checkpoints`` are checkpoints.  ``saved_models/expected.npz`` has
what TensorFlow gives: ``NAME/SIGNATURE/in/KEY`` and ``NAME/SIGNATURE/out/KEY``, and ``PREFIX/TENSOR`` for checkpoints.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "saved_models"
CHECKPOINTS = FOLDER / "checkpoints"
X = np.array([[1.0, 2.0], [-3.0, 0.5]], np.float32)
WORDS = np.array([b"red", b"blue", b"nothing"], object)


def vocabulary() -> str:
    path = Path(tempfile.mkdtemp()) / "colors.txt"
    path.write_text("red\ngreen\nblue\n")
    return str(path)


def table_of(path: str) -> Any:
    import tensorflow as tf

    whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, tf.string, whole, tf.int64, number), -1)


def make_module() -> None:
    """A tf.Module: variables of several dtypes, one that calls change, and a table from an asset."""
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="w")
            self.b = tf.Variable(tf.cast([1, 2, 3], tf.bfloat16), name="b")
            self.labels = tf.Variable(tf.constant(["one", "two"]), name="labels")
            self.calls = tf.Variable(0, dtype=tf.int64, name="calls")
            self.table = table_of(vocabulary())

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
        def __call__(self, x: Any) -> Any:
            calls = self.calls.assign_add(1)
            return {"y": x @ self.w + tf.cast(self.b, tf.float32), "calls": calls.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
        def ids(self, words: Any) -> Any:
            return {"ids": self.table.lookup(words), "labels": self.labels.read_value()}

    module = Module()
    tf.saved_model.save(module, str(FOLDER / "module"), {"serving_default": module.__call__, "ids": module.ids})
    CHECKPOINTS.mkdir()
    tf.train.Checkpoint(module=module).write(str(CHECKPOINTS / "objects"))


def make_keras() -> None:
    """A Keras 3 model, as ``export`` writes it."""
    import keras

    keras.utils.set_random_seed(7)
    inputs = keras.Input([2], name="x")
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(4, activation="relu")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))
    model.export(str(FOLDER / "keras"), verbose=False)


def part_of(rows: Any) -> Any:
    """An initializer of the parts of a partitioned variable."""

    def initialize(shape: Any, dtype: Any, partition_info: Any) -> Any:
        start = partition_info.var_offset[0]
        return rows[start : start + shape[0]]

    return initialize


def make_v1() -> None:
    """Graphs with references to variables, a partitioned one, and a table; and checkpoints of them."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x, words = tf.placeholder(tf.float32, [None, 2], name="x"), tf.placeholder(tf.string, [None], name="words")
        v = tf.get_variable("v", initializer=np.array([[1, -1, 2], [0.5, 3, 4]], np.float32), use_resource=False)
        rows = np.arange(15, dtype=np.float32).reshape(5, 3)
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2)):
            p = tf.get_variable("p", [5, 3], initializer=part_of(rows), use_resource=False)
        r = tf.get_variable("r", initializer=np.ones(3, np.float32), use_resource=True)
        y = tf.add(tf.matmul(x, v), r, name="y")
        z = tf.nn.embedding_lookup(p, [0, 4], partition_strategy="div")
        ids = table_of(vocabulary()).lookup(words)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        saved, info = tf.saved_model, tf.saved_model.build_tensor_info
        saved.simple_save(session, str(FOLDER / "v1_simple"), {"x": x}, {"y": y, "z": z}, tf.tables_initializer())
        tf.get_default_graph().clear_collection("saved_model_main_op")
        builder = saved.Builder(str(FOLDER / "v1_builder"))
        signature = saved.build_signature_def(
            {"x": info(x), "words": info(words)}, {"y": info(y), "ids": info(ids)}, "tensorflow/serving/predict"
        )
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
            strip_default_attrs=True,
        )
        builder.save()
        tf.train.Saver().save(session, str(CHECKPOINTS / "saver"), write_meta_graph=False)


def expected() -> dict[str, Any]:
    import tensorflow as tf

    found: dict[str, Any] = {}
    for model in ("module", "keras", "v1_simple", "v1_builder"):
        loaded = tf.saved_model.load(str(FOLDER / model))
        for name, signature in loaded.signatures.items():
            inputs = {}
            for key in signature.structured_input_signature[1]:
                inputs[key] = WORDS if key == "words" else X
            outputs = signature(**{key: tf.constant(value) for key, value in inputs.items()})
            found |= {f"{model}/{name}/in/{key}": value for key, value in inputs.items()}
            found |= {f"{model}/{name}/out/{key}": value.numpy() for key, value in outputs.items()}
    for prefix in ("objects", "saver"):
        reader = tf.train.load_checkpoint(str(CHECKPOINTS / prefix))
        for name in reader.get_variable_to_shape_map():
            if name != "_CHECKPOINTABLE_OBJECT_GRAPH":
                found[f"{prefix}/{name}"] = reader.get_tensor(name)
    # npz has no strings of any length and no bfloat16
    return {
        key: value.astype("S")
        if value.dtype == object
        else value.astype(np.float32)
        if value.dtype.kind == "V"
        else value
        for key, value in found.items()
    }


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    make_module()
    make_keras()
    make_v1()
    for path in FOLDER.rglob("fingerprint.pb"):
        path.unlink()
    for path in FOLDER.rglob("checkpoint"):
        path.unlink()
    np.savez_compressed(FOLDER / "expected.npz", **expected())


if __name__ == "__main__":
    main()
