"""Checkpoints that are written here, as TensorFlow reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asyncexec.checkpoints.bundle_writer import SavedTensor, merge_bundles, write_bundle
from asyncexec.checkpoints.tensor_slice import TensorSlice
from asyncexec.framework import types
from tests.checkpoints.test_bundle import FIRST, SECOND, WHOLE, tensors

pytestmark = pytest.mark.oracle


def test_tensorflow_reads_what_is_written(tmp_path: Path) -> None:
    import tensorflow as tf

    for _ in range(3):  # in place of the one before
        write_bundle(tmp_path / "c", tensors())
        reader = tf.train.load_checkpoint(str(tmp_path / "c"))
        assert set(reader.get_variable_to_shape_map()) == {tensor.name for tensor in tensors()}
        for tensor in tensors():
            np.testing.assert_array_equal(
                np.asarray(reader.get_tensor(tensor.name), "O"), np.asarray(tensor.value, "O")
            )


# Numbers of each length, at the ends of what a length holds.
STARTS = [0, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**34 - 1, 2**34, 2**41, 2**48, 2**55, 2**61]


def test_tensorflow_finds_parts(tmp_path: Path) -> None:
    import tensorflow as tf

    name = "p\0q\xff/r"
    parts = [TensorSlice(((start, 1), None)) for start in STARTS]
    shape = (2**62, 1)
    value = np.array([[1]], np.int32)
    rows = [SavedTensor(name, value + index, types.int32, shape, part) for index, part in enumerate(parts)]
    write_bundle(tmp_path / "c", rows)
    for index, part in enumerate(parts):
        spec = f"{shape[0]} {shape[1]} {part}"
        (found,) = tf.raw_ops.RestoreV2(
            prefix=str(tmp_path / "c"),
            tensor_names=[name.encode("utf-8", "surrogateescape")],
            shape_and_slices=[spec],
            dtypes=[tf.int32],
        )
        np.testing.assert_array_equal(found.numpy(), value + index)


def test_tensorflow_reads_what_is_merged(tmp_path: Path) -> None:
    import tensorflow as tf

    write_bundle(tmp_path / "a", [SavedTensor("p", WHOLE[:2], types.int32, (5, 7), FIRST)])
    write_bundle(tmp_path / "b", [SavedTensor("p", WHOLE[2:], types.int32, (5, 7), SECOND), *tensors()])
    merge_bundles([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    reader = tf.train.load_checkpoint(str(tmp_path / "c"))
    np.testing.assert_array_equal(reader.get_tensor("p"), WHOLE)
    np.testing.assert_array_equal(reader.get_tensor("float"), np.arange(1000.0))
