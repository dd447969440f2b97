"""Has TensorFlow write a small SavedModel: ``python -m tests.golden.make_saved_model`` makes ``saved_model/``."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).parent / "saved_model"


def main() -> None:
    import tensorflow.compat.v1 as tf

    shutil.rmtree(FOLDER, ignore_errors=True)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        words = tf.placeholder(tf.string, name="words")
        y = tf.matmul(x, tf.constant([[1.0], [2.0]]), name="y")
        length = tf.strings.length(words, name="length")
        saved = tf.saved_model
        info, signature = saved.utils.build_tensor_info, saved.signature_def_utils.build_signature_def
        builder = saved.Builder(str(FOLDER))
        builder.add_meta_graph_and_variables(session, ["train"], signature_def_map={"other": signature()})
        builder.add_meta_graph(
            ["serve", "cpu"],
            signature_def_map={
                "serving_default": signature({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
                "words": signature(
                    {"words": info(words), "sparse": info(tf.sparse.placeholder(tf.int32, [2, 2], name="sparse"))},
                    {"length": info(length)},
                ),
            },
        )
        builder.save()
        builder.save(as_text=True)
    shutil.rmtree(FOLDER / "variables", ignore_errors=True)


if __name__ == "__main__":
    main()
