"""Checkpoints: those that TensorFlow wrote, those that are written here, and files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from asyncexec.checkpoints.bundle_entry import BundleEntry, encode_index, index_path
from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.checkpoints.bundle_writer import SavedTensor, merge_bundles, write_bundle
from asyncexec.checkpoints.table import read_table, write_table
from asyncexec.checkpoints.tensor_slice import TensorSlice, parse_shape_and_slice
from asyncexec.framework import types
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, NotFoundError, UnimplementedError

GOLDEN = Path(__file__).parents[1] / "golden" / "saved_models"
WHOLE = np.arange(35, dtype=np.int32).reshape(5, 7)
FIRST, SECOND = TensorSlice(((0, 2), None)), TensorSlice(((2, 3), None))
SHARD = "c.data-00000-of-00001"


def tensors() -> list[SavedTensor]:
    return [
        SavedTensor("float", np.arange(1000.0), types.float64),
        SavedTensor("words", np.array([b"x", b"y" * 300, b""], "O"), types.string),
        SavedTensor("word", b"zz\0", types.string),
        SavedTensor("scalar", np.float32(3), types.float32),
        SavedTensor("half", np.ones((1, 3), ml_dtypes.bfloat16), types.bfloat16),
        SavedTensor("flags", np.array([True, False]), types.bool),
        SavedTensor("empty", np.zeros((0, 3), np.int8), types.int8),
        SavedTensor("complex", np.array([1 + 2j]), types.complex128),
    ]


def same(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and getattr(a, "dtype", 0) == getattr(b, "dtype", 0) and bool(np.all(a == b))


@pytest.mark.parametrize("prefix", ["objects", "saver"])
def test_checkpoints_that_tensorflow_wrote(prefix: str) -> None:
    reader = BundleReader(GOLDEN / "checkpoints" / prefix)
    with np.load(GOLDEN / "expected.npz") as expected:
        names = [name for name in reader.names if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
        assert {f"{prefix}/{name}" for name in names} == {key for key in expected if key.startswith(f"{prefix}/")}
        for name in names:
            value, wanted = reader.read(name), expected[f"{prefix}/{name}"]
            if reader.entry(name).dtype is types.bfloat16:
                value = value.astype(np.float32)
            np.testing.assert_array_equal(np.asarray(value).astype(wanted.dtype), wanted)


def test_a_partitioned_variable_that_tensorflow_wrote() -> None:
    reader = BundleReader(GOLDEN / "checkpoints" / "saver")
    assert len(reader.entry("p").slices) == 2
    np.testing.assert_array_equal(reader.read("p", TensorSlice(((2, 2), (1, 2)))), np.arange(15).reshape(5, 3)[2:4, 1:])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_bundle(tmp_path / "new" / "c", tensors())
    reader = BundleReader(tmp_path / "new" / "c")
    assert reader.names == sorted(tensor.name for tensor in tensors())
    for tensor in tensors():
        value = reader.read(tensor.name)
        assert same(value, tensor.value)
        assert isinstance(value, bytes) or not isinstance(value, np.ndarray) or not value.flags.writeable


def test_a_checkpoint_is_replaced_as_a_whole(tmp_path: Path) -> None:
    prefix = tmp_path / "c"
    for number in range(4):
        write_bundle(prefix, [SavedTensor("n", np.int64(number), types.int64)])
        assert BundleReader(prefix).read("n") == number
        num_shards = number % 2 + 1
        assert len(list(tmp_path.iterdir())) == 1 + num_shards

    def failing() -> Any:
        yield SavedTensor("n", np.int64(9), types.int64)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_bundle(prefix, failing())
    assert BundleReader(prefix).read("n") == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_parts_make_up_a_tensor(tmp_path: Path) -> None:
    parts = [
        SavedTensor("p\0\xff", WHOLE[:2], types.int32, (5, 7), FIRST),
        SavedTensor("p\0\xff", WHOLE[2:], types.int32, (5, 7), SECOND),
    ]
    write_bundle(tmp_path / "c", parts)
    reader = BundleReader(tmp_path / "c")
    assert reader.names == ["p\0\xff"]
    assert same(reader.read("p\0\xff"), WHOLE)
    assert same(reader.read("p\0\xff", TensorSlice(((1, 3), (2, 2)))), WHOLE[1:4, 2:4])
    write_bundle(tmp_path / "c", parts[:1])
    with pytest.raises(NotFoundError, match="do not make up"):
        BundleReader(tmp_path / "c").read("p\0\xff")


def test_checkpoints_are_merged(tmp_path: Path) -> None:
    write_bundle(tmp_path / "a", [*tensors(), SavedTensor("p", WHOLE[:2], types.int32, (5, 7), FIRST)])
    write_bundle(tmp_path / "b", [SavedTensor("p", WHOLE[2:], types.int32, (5, 7), SECOND)])
    merge_bundles([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    reader = BundleReader(tmp_path / "merged")
    assert same(reader.read("p"), WHOLE)
    assert all(same(reader.read(tensor.name), tensor.value) for tensor in tensors())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["merged.data-00000-of-00002", "merged.data-00001-of-00002", "merged.index"]


def test_checkpoints_that_cannot_be_merged(tmp_path: Path) -> None:
    for name in "ab":
        write_bundle(tmp_path / name, [SavedTensor("x", WHOLE, types.int32)])
    with pytest.raises(InvalidArgumentError, match="'x'"):
        merge_bundles([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    with pytest.raises(NotFoundError):
        merge_bundles([tmp_path / "a", tmp_path / "none"], tmp_path / "c")
    with pytest.raises(InvalidArgumentError, match="no checkpoint"):
        merge_bundles([tmp_path / "none"], tmp_path / "c", allow_missing_files=True)
    merge_bundles([tmp_path / "a", tmp_path / "none"], tmp_path / "c", allow_missing_files=True)
    assert same(BundleReader(tmp_path / "c").read("x"), WHOLE)


def test_all_missing_names_are_told(tmp_path: Path) -> None:
    write_bundle(tmp_path / "c", tensors())
    with pytest.raises(NotFoundError, match="'bias', 'kernel'") as caught:
        BundleReader(tmp_path / "c").require(["kernel", "float", "bias"])
    assert "'complex', 'empty'" in str(caught.value)
    with pytest.raises(NotFoundError, match="Key kernel not found"):
        BundleReader(tmp_path / "c").read("kernel")
    with pytest.raises(NotFoundError):
        BundleReader(tmp_path / "none")


def write_entry(prefix: Path, entry: BundleEntry, data: bytes = bytes(16), num_shards: int = 1) -> BundleReader:
    index_path(prefix).write_bytes(write_table(encode_index(num_shards, {b"x": entry})))
    prefix.with_name(SHARD).write_bytes(data)
    return BundleReader(prefix)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (BundleEntry(types.float32, (4,), 0, 0, 16, 1), "checksum"),
        (BundleEntry(types.float32, (4,), 0, 4, 16), "outside of the 16 bytes"),
        (BundleEntry(types.float32, (4,), 0, -4, 16), "outside"),
        (BundleEntry(types.float32, (2**40,), 0, 0, 16), "not the 4398046511104"),
        (BundleEntry(types.float32, (2**40,), 0, 0, 2**42), "outside"),
        (BundleEntry(types.float32, (4,), 1, 0, 16), "shard 1 of 1"),
        (BundleEntry(types.string, (2**40,), 0, 0, 16), "cannot hold"),
        (BundleEntry(types.string, (2,), 0, 0, 16), "do not add up"),
    ],
)
def test_entries_that_lie(tmp_path: Path, entry: BundleEntry, message: str) -> None:
    with pytest.raises(DataLossError, match=message) as caught:
        write_entry(tmp_path / "c", entry).read("x")
    assert "'x'" in str(caught.value)


def test_what_has_no_form_in_numpy(tmp_path: Path) -> None:
    with pytest.raises(UnimplementedError, match="variant"):
        write_entry(tmp_path / "c", BundleEntry(types.variant, (), 0, 0, 16)).read("x")


def test_a_part_that_is_another(tmp_path: Path) -> None:
    write_bundle(tmp_path / "c", [SavedTensor("x", WHOLE[:2], types.int32, (5, 7), FIRST)])
    table = read_table((tmp_path / "c.index").read_bytes(), "")
    key = max(table)
    whole = encode_index(1, {b"x": BundleEntry(types.int32, (5, 7), slices=(TensorSlice(((0, 3), None)),))})
    (tmp_path / "c.index").write_bytes(write_table({**table, b"x": whole[b"x"], key: table[key]}))
    with pytest.raises(NotFoundError):
        BundleReader(tmp_path / "c").read("x")


def test_shards_that_are_cut_or_missing(tmp_path: Path) -> None:
    write_bundle(tmp_path / "c", tensors())
    shard = tmp_path / SHARD
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(DataLossError, match=r"'complex' in .*cut short"):
        BundleReader(tmp_path / "c").read("complex")
    assert same(BundleReader(tmp_path / "c").read("scalar"), np.float32(3))
    shard.unlink()
    with pytest.raises(NotFoundError, match=SHARD):
        BundleReader(tmp_path / "c").read("scalar")


def test_pointers_of_git_lfs_are_named(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    write_bundle(tmp_path / "c", tensors())
    (tmp_path / SHARD).write_bytes(pointer)
    with pytest.raises(DataLossError, match="Git LFS pointer") as caught:
        BundleReader(tmp_path / "c").read("scalar")
    assert "git lfs pull" in str(caught.value)
    (tmp_path / "c.index").write_bytes(pointer)
    with pytest.raises(DataLossError, match="Git LFS pointer"):
        BundleReader(tmp_path / "c")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    for wrong, message in (
        ([SavedTensor("x", WHOLE, types.int32)] * 2, "two tensors"),
        ([SavedTensor("", WHOLE, types.int32)], "needs a name"),
        ([SavedTensor("x", object(), types.resource)], "cannot be saved"),
        ([SavedTensor("x", WHOLE, types.int32, (5, 7), FIRST)], "has the shape"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            write_bundle(tmp_path / "c", wrong)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["5", "5 7 0,2", "5 7 0,6:-", "5 7 -1,2:-", "5 7 a:-", "x 0,2", "-5 7 0,2:-"])
def test_what_is_no_shape_and_slice(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_shape_and_slice(text)


def test_shapes_and_slices() -> None:
    assert parse_shape_and_slice("") is None
    assert parse_shape_and_slice("5 7 0,2:-") == ((5, 7), FIRST)
    assert str(FIRST) == "0,2:-"
