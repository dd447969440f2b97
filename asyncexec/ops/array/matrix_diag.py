"""Diagonals of matrices: Diag, MatrixDiag, MatrixDiagPart, MatrixSetDiag (all versions), MatrixBandPart.

Rules: tensorflow/core/ops/array_ops.cc, linalg/matrix_diag_op.cc, matrix_set_diag_op.cc, matrix_band_part_op.cc,
diag_op.cc.  Diagonal 0 is the main one, positive ones lie above it.  A band of several diagonals is stored as rows,
the uppermost first, each aligned to the left or right of the longest as ``align`` says (superdiagonals, subdiagonals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.ops.array.array_common import POD, check_memory, empty, integers, scalar_int

_ALIGN = "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"
_V1 = (0, 0)


def diag_range(k: Any) -> tuple[int, int]:
    """The lowest and the highest diagonal that input *k*, a scalar or a vector of one or two, names."""
    if k.ndim > 1 or not 1 <= k.size <= 2:
        raise InvalidArgumentError(f"diag_index must be a scalar or a vector of 1 or 2 elements, not {list(k.shape)}")
    lower, *rest = np.ravel(k).tolist()
    upper = rest[0] if rest else lower
    if lower > upper:
        raise InvalidArgumentError(f"lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}")
    return lower, upper


def _scalar_padding(padding: Any) -> np.generic:
    if np.ndim(padding):
        raise InvalidArgumentError(f"padding_value must be a scalar, not of shape {list(np.shape(padding))}")
    return padding


def _check_in_matrix(lower: int, upper: int, rows: int, columns: int) -> None:
    for diag in (lower, upper):
        if diag != 0 and not -rows < diag < columns:
            raise InvalidArgumentError(f"diag_index is out of bound: {diag}. It must be between {-rows} and {columns}")


def longest(lower: int, upper: int, rows: int, columns: int) -> int:
    """The length of the longest diagonal from *lower* to *upper* of a matrix."""
    return min(rows + min(upper, 0), columns - max(lower, 0))


@dataclass(frozen=True, slots=True)
class Alignment:
    """Whether diagonals above and below the main one are stored from the left."""

    above_from_left: bool = True
    below_from_left: bool = True

    @staticmethod
    def of(c: OpKernelConstruction) -> Alignment:
        above, _, below = c.attrs.get("align", b"LEFT_LEFT").partition(b"_")
        return Alignment(above == b"LEFT", below == b"LEFT")

    def places(self, lower: int, upper: int, rows: int, columns: int) -> Iterator[tuple[int, slice, Any, Any]]:
        """For each diagonal of the band: its row in storage, where in that row, and the rows and columns it covers."""
        width = longest(lower, upper, rows, columns)
        for row, diag in enumerate(range(upper, lower - 1, -1)):
            length = min(rows + min(diag, 0), columns - max(diag, 0))
            from_left = (diag >= 0 and self.above_from_left) or (diag <= 0 and self.below_from_left)
            start = 0 if from_left else width - length
            along = np.arange(length)
            yield row, slice(start, start + length), along - min(diag, 0), along + max(diag, 0)


def _stored(diagonal: Array, lower: int, upper: int) -> Array:
    """*diagonal* with a dimension for the rows of the band, which a single diagonal does without."""
    return diagonal if lower != upper else diagonal[..., None, :]


def _range_shape(c: InferenceContext, index: int) -> tuple[int, int] | None:
    """The band that input *index* names, or None; its shape is checked either way."""
    shape, k = c.input(index).with_rank_at_most(1), c.value(index)
    if shape.rank == 1 and shape[0] is not None and not 1 <= shape[0] <= 2:
        raise InvalidArgumentError(f"diag_index must be a vector of one or two elements, not {shape}")
    return None if k is None else diag_range(np.asarray(k))


def _matrix_diag_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given = c.input(0).with_rank_at_least(1)
    return [UNKNOWN_SHAPE if given.dims is None else TensorShape((*given.dims, given.dims[-1]))]


def _matrix_diag_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, band = c.input(0).with_rank_at_least(1), _range_shape(c, 1)
    for index in (2, 3, 4):
        c.scalar(index)
    if given.dims is None or band is None:
        return [UNKNOWN_SHAPE]
    lower, upper = band
    dims = given.dims
    if upper > lower:
        given.with_rank_at_least(2)
        if dims[-2] not in (None, upper - lower + 1):
            raise InvalidArgumentError(f"{dims[-2]} diagonals were given, {upper - lower + 1} are named by k")
    known = [integers(c, index) for index in (2, 3)]
    batch = dims[:-1] if lower == upper else dims[:-2]
    if dims[-1] is None or known[0] is None or known[1] is None:
        return [TensorShape((*batch, None, None))]
    return [TensorShape((*batch, *matrix_size(dims[-1], lower, upper, known[0][0], known[1][0])))]


def matrix_size(length: int, lower: int, upper: int, rows: int, columns: int) -> tuple[int, int]:
    """The rows and columns of the matrix with those diagonals, where -1 leaves the choice; smallest, else square."""
    least_rows, least_columns = length - min(upper, 0), length + max(lower, 0)
    if (rows != -1 and rows < least_rows) or (columns != -1 and columns < least_columns):
        raise InvalidArgumentError(f"a matrix of [{rows}, {columns}] is too small for diagonals of length {length}")
    if rows == columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    if rows != least_rows and columns != least_columns:
        raise InvalidArgumentError(f"[{rows}, {columns}] is not consistent with the diagonals {lower} to {upper}")
    return rows, columns


def _diag_part_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given = c.input(0).with_rank_at_least(2)
    if given.dims is None:
        return [UNKNOWN_SHAPE]
    rows, columns = given.dims[-2:]
    return [TensorShape((*given.dims[:-2], None if rows is None or columns is None else min(rows, columns)))]


def _diag_part_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, band = c.input(0).with_rank_at_least(2), _range_shape(c, 1)
    c.scalar(2)
    if given.dims is None or band is None:
        return [UNKNOWN_SHAPE]
    return [TensorShape((*given.dims[:-2], *_band_dims(given.dims[-2], given.dims[-1], *band)))]


def _band_dims(rows: Dim, columns: Dim, lower: int, upper: int) -> tuple[Dim, ...]:
    length = None
    if rows is not None and columns is not None:
        _check_in_matrix(lower, upper, rows, columns)
        length = longest(lower, upper, rows, columns)
    return (length,) if lower == upper else (upper - lower + 1, length)


def _set_diag_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, diagonal = c.input(0).with_rank_at_least(2), c.input(1).with_rank_at_least(1)
    if given.dims is None:
        return [UNKNOWN_SHAPE if diagonal.dims is None else TensorShape((*diagonal.dims[:-1], None, None))]
    return [_with_batch_of(given.dims, diagonal, _band_dims(given.dims[-2], given.dims[-1], *_V1))]


def _set_diag_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, diagonal = c.input(0).with_rank_at_least(2), c.input(1).with_rank_at_least(1)
    band = _range_shape(c, 2)
    if given.dims is None or band is None:
        return [given]
    return [_with_batch_of(given.dims, diagonal, _band_dims(given.dims[-2], given.dims[-1], *band))]


def _with_batch_of(dims: tuple[Dim, ...], diagonal: TensorShape, tail: tuple[Dim, ...]) -> TensorShape:
    """*dims* of a matrix, its batch merged with that of *diagonal*, which must end in *tail*."""
    merged = diagonal.merge_with((*dims[:-2], *tail))
    return TensorShape((*merged[: len(dims) - 2], *dims[-2:]))


_K = "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T -> output: T"
_PART = "input: T, k: int32, padding_value: T -> diagonal: T"
_SET = "input: T, diagonal: T, k: int32 -> output: T"
for _prefix in ("", "Batch"):
    register_op(_prefix + "MatrixDiag", "diagonal: T -> output: T", "T: type", shape=_matrix_diag_shape)
    register_op(_prefix + "MatrixDiagPart", "input: T -> diagonal: T", "T: type", shape=_diag_part_shape)
    register_op(_prefix + "MatrixSetDiag", "input: T, diagonal: T -> output: T", "T: type", shape=_set_diag_shape)
for _version, _attrs in (("V2", "T: type"), ("V3", "T: type; " + _ALIGN)):
    register_op("MatrixDiag" + _version, _K, _attrs, shape=_matrix_diag_v2_shape)
    register_op("MatrixDiagPart" + _version, _PART, _attrs, shape=_diag_part_v2_shape)
    register_op("MatrixSetDiag" + _version, _SET, _attrs, shape=_set_diag_v2_shape)
register_op(
    "MatrixBandPart",
    "input: T, num_lower: Tindex, num_upper: Tindex -> band: T",
    "T: type; Tindex: {int32, int64} = int64",
    shape=unchanged,
)
register_op(
    "BatchMatrixBandPart",
    "input: T, num_lower: int64, num_upper: int64 -> band: T",
    "T: type",
    shape=unchanged,
)


def matrix_diag(
    diagonal: Any, lower: int, upper: int, rows: int, columns: int, padding: np.generic, alignment: Alignment
) -> Array:
    """Matrices with *diagonal* on their diagonals from *lower* to *upper*, and *padding* elsewhere."""
    if not diagonal.ndim:
        raise InvalidArgumentError("diagonal must be at least 1-dim")
    if lower != upper and (diagonal.ndim < 2 or diagonal.shape[-2] != upper - lower + 1):
        raise InvalidArgumentError("The number of diagonals provided in the input does not match the range of k.")
    rows, columns = matrix_size(diagonal.shape[-1], lower, upper, rows, columns)
    stored = _stored(diagonal, lower, upper)
    output = empty((*stored.shape[:-2], rows, columns), diagonal.dtype)
    output[...] = padding
    for row, part, along_rows, along_columns in alignment.places(lower, upper, rows, columns):
        output[..., along_rows, along_columns] = stored[..., row, part]
    return output


@register_kernel("MatrixDiag", "BatchMatrixDiag", dtypes={"T": POD})
def _matrix_diag(c: OpKernelConstruction) -> Kernel:
    zero, alignment = c.np_dtype("T").type(0), Alignment()
    return lambda diagonal: matrix_diag(diagonal, 0, 0, -1, -1, zero, alignment)


@register_kernel("MatrixDiagV2", "MatrixDiagV3", dtypes={"T": POD})
def _matrix_diag_v2(c: OpKernelConstruction) -> Kernel:
    alignment = Alignment.of(c)

    def kernel(diagonal: object, k: object, num_rows: object, num_cols: object, padding: object) -> Any:
        rows, columns = scalar_int(num_rows, "num_rows"), scalar_int(num_cols, "num_cols")
        return matrix_diag(diagonal, *diag_range(k), rows, columns, _scalar_padding(padding), alignment)

    return kernel


def matrix_diag_part(matrix: Array, lower: int, upper: int, padding: np.generic, alignment: Alignment) -> Array:
    """The diagonals from *lower* to *upper* of each matrix, *padding* where they are shorter than the longest."""
    rows, columns = _matrix_dims(matrix, lower, upper)
    shape = (*matrix.shape[:-2], upper - lower + 1, longest(lower, upper, rows, columns))
    check_memory(shape, matrix.dtype)
    output = np.empty(shape, matrix.dtype)
    output[...] = padding
    for row, part, along_rows, along_columns in alignment.places(lower, upper, rows, columns):
        output[..., row, part] = matrix[..., along_rows, along_columns]
    return output if lower != upper else output[..., 0, :]


def _matrix_dims(matrix: Array, lower: int, upper: int) -> tuple[int, int]:
    if matrix.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {list(matrix.shape)}")
    rows, columns = matrix.shape[-2:]
    _check_in_matrix(lower, upper, rows, columns)
    return rows, columns


@register_kernel("MatrixDiagPart", "BatchMatrixDiagPart", dtypes={"T": POD})
def _matrix_diag_part(c: OpKernelConstruction) -> Kernel:
    zero, alignment = c.np_dtype("T").type(0), Alignment()
    return lambda matrix: matrix_diag_part(matrix, 0, 0, zero, alignment)


@register_kernel("MatrixDiagPartV2", "MatrixDiagPartV3", dtypes={"T": POD})
def _matrix_diag_part_v2(c: OpKernelConstruction) -> Kernel:
    alignment = Alignment.of(c)
    return lambda matrix, k, padding: matrix_diag_part(matrix, *diag_range(k), _scalar_padding(padding), alignment)


def matrix_set_diag(matrix: Array, diagonal: Array, lower: int, upper: int, alignment: Alignment) -> Array:
    """*matrix* with its diagonals from *lower* to *upper* taken from *diagonal*."""
    rows, columns = _matrix_dims(matrix, lower, upper)
    width = longest(lower, upper, rows, columns)
    expected = (*matrix.shape[:-2], *((width,) if lower == upper else (upper - lower + 1, width)))
    if diagonal.shape != expected:
        raise InvalidArgumentError(f"diagonal must be of shape {list(expected)}, not {list(diagonal.shape)}")
    stored, output = _stored(diagonal, lower, upper), matrix.copy()
    for row, part, along_rows, along_columns in alignment.places(lower, upper, rows, columns):
        output[..., along_rows, along_columns] = stored[..., row, part]
    return output


@register_kernel("MatrixSetDiag", "BatchMatrixSetDiag", dtypes={"T": POD})
def _matrix_set_diag(c: OpKernelConstruction) -> Kernel:
    alignment = Alignment()
    return lambda matrix, diagonal: matrix_set_diag(matrix, diagonal, 0, 0, alignment)


@register_kernel("MatrixSetDiagV2", "MatrixSetDiagV3", dtypes={"T": POD})
def _matrix_set_diag_v2(c: OpKernelConstruction) -> Kernel:
    alignment = Alignment.of(c)
    return lambda matrix, diagonal, k: matrix_set_diag(matrix, diagonal, *diag_range(k), alignment)


@register_kernel("MatrixBandPart", "BatchMatrixBandPart", dtypes={"T": POD})
def _matrix_band_part(c: OpKernelConstruction) -> Kernel:
    zero = c.np_dtype("T").type(0)
    return lambda matrix, num_lower, num_upper: matrix_band_part(matrix, num_lower, num_upper, zero)


def matrix_band_part(matrix: Array, num_lower: ArrayOrScalar, num_upper: np.generic, zero: np.generic) -> Array:
    """*matrix* with zeros outside the band of so many diagonals below and above the main one (negative: all)."""
    if matrix.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {list(matrix.shape)}")
    if num_lower.ndim or num_upper.ndim:
        raise InvalidArgumentError("num_lower and num_upper must be scalars")
    rows, columns = matrix.shape[-2:]
    below, above = int(num_lower), int(num_upper)
    if below > rows or above > columns:
        raise InvalidArgumentError(f"a band of {below} below and {above} above does not lie in [{rows}, {columns}]")
    distance = np.arange(columns) - np.arange(rows)[:, None]
    kept = (distance >= (-below if below >= 0 else -rows)) & (distance <= (above if above >= 0 else columns))
    return np.where(kept, matrix, zero)


def _diag_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given = c.input(0).with_rank_at_least(1)
    return [given.concatenate(given)]


def _tensor_diag_part_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given = c.input(0)
    if given.dims is None:
        return [UNKNOWN_SHAPE]
    half, odd = divmod(len(given.dims), 2)
    if odd or not half:
        raise InvalidArgumentError(f"Input must have even and non-zero rank, input rank is {len(given.dims)}")
    return [given[:half].merge_with(given[half:])]


_DIAG_ATTRS = "T: {bfloat16, float16, float32, float64, int32, int64, complex64, complex128}"
register_op("Diag", "diagonal: T -> output: T", _DIAG_ATTRS, shape=_diag_shape)
register_op("DiagPart", "input: T -> diagonal: T", _DIAG_ATTRS, shape=_tensor_diag_part_shape)


def diag(diagonal: Array) -> Array:
    """The tensor of twice the rank whose diagonal is *diagonal*."""
    if not diagonal.ndim:
        raise InvalidArgumentError("Input must be at least rank 1, got 0")
    check_memory(diagonal.shape * 2, diagonal.dtype)
    output = np.zeros((diagonal.size, diagonal.size), diagonal.dtype)
    np.fill_diagonal(output, diagonal.ravel())
    return output.reshape(diagonal.shape * 2)


def diag_part(x: Array) -> Array:
    """The diagonal of a tensor of shape ``s + s``."""
    half, odd = divmod(x.ndim, 2)
    if odd or not half:
        raise InvalidArgumentError(f"The rank of the tensor should be even and positive, got shape {list(x.shape)}")
    if x.shape[:half] != x.shape[half:]:
        raise InvalidArgumentError(f"Invalid shape {list(x.shape)}: both halves must be the same")
    count = int(np.prod(x.shape[:half]))
    return x.reshape(count, count).diagonal().reshape(x.shape[:half])


_FUNCTIONS: dict[str, Callable[[Any], object]] = {"Diag": diag, "DiagPart": diag_part}
for _op, _function in _FUNCTIONS.items():
    register_kernel(_op, dtypes={"T": POD})(lambda c, function=_function: function)
