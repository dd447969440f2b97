"""GenerateVocabRemapping and LoadAndRemapMatrix: a matrix of a checkpoint for another vocabulary.

Rules from ``generate_vocab_remapping_op.cc`` and ``load_and_remap_matrix_op.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.checkpoints.tensor_slice import TensorSlice
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from asyncexec.framework.file_access import named_path
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import float32
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.io.files import read_whole, vocabulary_lines
from asyncexec.ops.string.string_elements import scalar_string


@register_kernel("GenerateVocabRemapping", kind=KernelKind.EXPENSIVE, is_expensive=True)
def make_vocab_remapping(op: OpKernelConstruction) -> Kernel:
    """The kernel of GenerateVocabRemapping."""
    first, count, old_count = op.attr("new_vocab_offset"), op.attr("num_new_vocab"), op.attr("old_vocab_size")
    files, name = op.resource_mgr.files, op.op

    def words(filename: object, what: str, size: int) -> list[bytes]:
        path = files.path(name, named_path(scalar_string(filename, what)))
        return list(vocabulary_lines(read_whole(path), size))

    def kernel(new_file: object, old_file: object) -> tuple[Any, object]:
        wanted = words(new_file, "new_vocab_file", first + count)[first:]
        old: dict[bytes, int] = {}
        for number, word in enumerate(words(old_file, "old_vocab_file", old_count)):
            if old.setdefault(word, number) != number:
                raise FailedPreconditionError(
                    f"{word!r} stands in lines {old[word]} and {number} of the old vocabulary"
                )
        remapping = np.array([old.get(word, -1) for word in wanted], np.int64)
        return remapping, np.int32((remapping >= 0).sum())

    return kernel


def _check_mapping(what: str, mapping: Any, size: int) -> None:
    """An error unless *mapping* tells an old place for each new one, none of them twice."""
    if np.ndim(mapping) != 1 or len(mapping) != size:
        raise InvalidArgumentError(f"{what} must be a vector of {size}, not of shape {list(np.shape(mapping))}")
    present = mapping[mapping >= 0]
    if len(np.unique(present)) != len(present):
        raise UnimplementedError(f"{what} maps one old place to several new ones, which is not supported")


@register_kernel("LoadAndRemapMatrix", kind=KernelKind.EXPENSIVE, is_expensive=True)
def make_load_and_remap(op: OpKernelConstruction) -> Kernel:
    """The kernel of LoadAndRemapMatrix."""
    rows, columns, most = op.attr("num_rows"), op.attr("num_cols"), op.attr("max_rows_in_memory")
    allowed = partial(op.resource_mgr.files.path, op.op)

    def kernel(path: object, name: object, of_rows: Any, of_columns: Any, initial: Any) -> Any:
        _check_mapping("row_remapping", of_rows, rows)
        if np.size(of_columns):
            _check_mapping("col_remapping", of_columns, columns)
        reader = BundleReader(named_path(scalar_string(path, "ckpt_path")), check=allowed)
        tensor = scalar_string(name, "old_tensor_name").decode("utf-8", "surrogateescape")
        reader.require([tensor])
        shape = _matrix_shape(reader, tensor)
        if not np.size(of_columns):
            if shape[1] != columns:
                raise InvalidArgumentError(f"Tensor {tensor} has {shape[1]} columns instead of num_cols={columns}")
            of_columns = np.arange(columns)
        for what, mapping, size in (("row", of_rows, shape[0]), ("col", of_columns, shape[1])):
            if (mapping >= size).any():
                raise InvalidArgumentError(f"{what}_remapping has places beyond the {size} of Tensor {tensor}")
        check_memory((rows, columns), np.dtype(np.float32))
        matrix = np.empty((rows, columns), np.float32)
        _load(matrix, reader, tensor, shape, (of_rows, of_columns), most if most > 0 else max(shape[0], 1))
        missing = (of_rows < 0)[:, None] | (of_columns < 0)
        if missing.sum() != np.size(initial):
            raise InvalidArgumentError(
                f"initializing_values contained {np.size(initial)} elements, but {missing.sum()} values are missing"
            )
        matrix[missing] = np.ravel(initial)
        return matrix

    return kernel


def _matrix_shape(reader: BundleReader, name: str) -> tuple[int, ...]:
    entry = reader.entry(name)
    if entry.dtype is not float32:
        raise InvalidArgumentError(
            f"Tensor {name} has invalid type {entry.dtype.name} instead of expected type float32"
        )
    if len(entry.shape) != 2:
        raise InvalidArgumentError(f"Tensor {name} has shape {list(entry.shape)} instead of expected shape of rank 2.")
    return tuple(entry.shape)


def _load(
    matrix: Any, reader: BundleReader, name: str, shape: Sequence[int], mappings: tuple[Any, Any], step: int
) -> None:
    """Read *step* rows at a time, and put what is wanted into *matrix*."""
    of_rows, of_columns = mappings
    present = np.flatnonzero(of_columns >= 0)
    wanted = of_rows[of_rows >= 0]
    if not wanted.size:
        return
    for start in range(int(wanted.min()), int(wanted.max()) + 1, step):
        stop = min(start + step, int(wanted.max()) + 1)
        part = reader.read(name, TensorSlice(((start, stop - start), None)))
        new = np.flatnonzero((of_rows >= start) & (of_rows < stop))
        matrix[np.ix_(new, present)] = part[np.ix_(of_rows[new] - start, of_columns[present])]


def vocab_remapping_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """A number for each word of the new vocabulary, and how many of them were found."""
    c.scalar(0)
    c.scalar(1)
    return [TensorShape([c.attr("num_new_vocab")]), SCALAR]


def load_and_remap_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As many rows and columns as asked for."""
    c.vector(2).merge_with([c.attr("num_rows")])
    c.vector(3)
    return [TensorShape([c.attr("num_rows"), c.attr("num_cols")])]


register_op(
    "GenerateVocabRemapping",
    "new_vocab_file: string, old_vocab_file: string -> remapping: int64, num_present: int32",
    "new_vocab_offset: int >= 0; num_new_vocab: int >= 0; old_vocab_size: int >= -1 = -1",
    touches_outside=True,
    shape=vocab_remapping_shape,
)
register_op(
    "LoadAndRemapMatrix",
    "ckpt_path: string, old_tensor_name: string, row_remapping: int64, col_remapping: int64, "
    "initializing_values: float32 -> output_matrix: float32",
    "num_rows: int >= 0; num_cols: int >= 1; max_rows_in_memory: int = -1",
    is_stateful=True,
    touches_outside=True,
    shape=load_and_remap_shape,
)
