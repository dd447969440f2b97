"""Static shapes of matrix ops (``tensorflow/core/framework/common_shape_fns.cc``, ``core/ops/linalg_ops.cc``).

A "batch" is whatever stands before the last two dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape


def merge_dim(a: Dim, b: Dim) -> Dim:
    """The size that both are; InvalidArgumentError when they differ."""
    if a is not None and b is not None and a != b:
        raise InvalidArgumentError(f"Dimensions must be equal, but are {a} and {b}")
    return b if a is None else a


def min_dim(a: Dim, b: Dim) -> Dim:
    """The smaller size, where it is known."""
    if a == 0 or b == 0:
        return 0
    return None if a is None or b is None else min(a, b)


def square(shape: TensorShape) -> TensorShape:
    """*shape*, a batch of square matrices."""
    shape = shape.with_rank_at_least(2)
    if shape.rank is None:
        return shape
    size = merge_dim(shape[-2], shape[-1])
    return batch_of(shape).concatenate([size, size])


def square_matrices(c: InferenceContext) -> Sequence[TensorShape]:
    """The output is of the shape of the input, a batch of square matrices."""
    return [square(c.input(0))]


def batch_of(shape: TensorShape) -> TensorShape:
    """The batch part of *shape*, which is at least a matrix."""
    batch: TensorShape = shape.with_rank_at_least(2)[:-2]
    return batch


def last_two(shape: TensorShape) -> tuple[Dim, Dim]:
    """Rows and columns of *shape*, which is at least a matrix."""
    shape.with_rank_at_least(2)
    return (None, None) if shape.rank is None else (shape[-2], shape[-1])


def matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """MatMul: two matrices."""
    return [_product(c, c.with_rank(0, 2), c.with_rank(1, 2), "transpose_a", "transpose_b", TensorShape(()))]


def batch_matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """BatchMatMul: both of one rank, with the same batch."""
    a, b = c.input(0).with_rank_at_least(2), c.input(1).with_rank_at_least(2)
    return [_product(c, a, b, "adj_x", "adj_y", batch_of(a).merge_with(batch_of(b)))]


def batch_matmul_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """BatchMatMulV2 and V3: the batches broadcast."""
    a, b = c.input(0).with_rank_at_least(2), c.input(1).with_rank_at_least(2)
    return [_product(c, a, b, "adj_x", "adj_y", broadcast_shapes(batch_of(a), batch_of(b)))]


def _product(
    c: InferenceContext, a: TensorShape, b: TensorShape, flip_a: str, flip_b: str, batch: TensorShape
) -> TensorShape:
    rows, inner_a = last_two(a)[:: -1 if c.attr(flip_a) else 1]
    inner_b, columns = last_two(b)[:: -1 if c.attr(flip_b) else 1]
    merge_dim(inner_a, inner_b)
    return batch.concatenate([rows, columns])


def solve_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """MatrixSolve: a square matrix and right-hand sides with the same batch."""
    return [_solution(c.input(0), c.input(1), is_square=True)]


def solve_ls_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """MatrixSolveLs: any matrix; the regularizer is a scalar."""
    c.scalar(2)
    return [_solution(c.input(0), c.input(1), is_square=False)]


def _solution(matrix: TensorShape, rhs: TensorShape, *, is_square: bool) -> TensorShape:
    matrix = square(matrix) if is_square else matrix.with_rank_at_least(2)
    rhs = rhs.with_rank_at_least(2)
    if matrix.rank is None and rhs.rank is None:
        return UNKNOWN_SHAPE
    batch = batch_of(matrix).merge_with(batch_of(rhs))
    (rows, columns), (rhs_rows, width) = last_two(matrix), last_two(rhs)
    rows = merge_dim(rows, rhs_rows)
    return batch.concatenate([rows if is_square else columns, width])


def triangular_solve_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """MatrixTriangularSolve: the batches broadcast."""
    return [_broadcast_solution(square(c.input(0)), c.input(1).with_rank_at_least(2))]


def _broadcast_solution(matrix: TensorShape, rhs: TensorShape) -> TensorShape:
    if matrix.rank is None or rhs.rank is None:
        return UNKNOWN_SHAPE
    rows = merge_dim(matrix[-1], rhs[-2])
    return broadcast_shapes(matrix[:-2], rhs[:-2]).concatenate([rows, rhs[-1]])


def banded_solve_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """BandedTriangularSolve: the matrix is a batch of [bands, rows]."""
    matrix, rhs = c.input(0).with_rank_at_least(2), c.input(1).with_rank_at_least(2)
    bands, size = last_two(matrix)
    if bands is not None and (bands < 1 or (size is not None and bands > size)):
        raise InvalidArgumentError(f"Number of bands {bands} must be in [1, {size}], the size of the matrix")
    return [_broadcast_solution(matrix, rhs)]


def tridiagonal_solve_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """TridiagonalSolve: diagonals [..., 3, M] and right-hand sides [..., M, K]."""
    diagonals, rhs = c.input(0).with_rank_at_least(2), c.input(1).with_rank_at_least(2)
    batch_of(diagonals).merge_with(batch_of(rhs))
    three, size = last_two(diagonals)
    merge_dim(three, 3)
    merge_dim(size, last_two(rhs)[0])
    return [rhs]


def tridiagonal_matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """TridiagonalMatMul: three diagonals [..., 1, M] and right-hand sides [..., M, N]."""
    rhs = c.input(3).with_rank_at_least(2)
    for index in range(3):
        diagonal = c.input(index).with_rank_at_least(2)
        batch_of(diagonal).merge_with(batch_of(rhs))
        merge_dim(last_two(diagonal)[0], 1)
        merge_dim(last_two(diagonal)[1], last_two(rhs)[0])
    return [rhs]


def determinant_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One scalar a matrix, for each output."""
    return [batch_of(square(c.input(0)))] * c.num_outputs


def qr_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Q and R."""
    matrix = c.input(0).with_rank_at_least(2)
    (rows, columns), batch = last_two(matrix), batch_of(matrix)
    inner = rows if c.attr("full_matrices") else min_dim(rows, columns)
    return [batch.concatenate([rows, inner]), batch.concatenate([inner, columns])]


def svd_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Singular values, left and right singular vectors."""
    matrix = c.input(0).with_rank_at_least(2)
    (rows, columns), batch = last_two(matrix), batch_of(matrix)
    inner = min_dim(rows, columns)
    values = batch.concatenate([inner])
    if not c.attr("compute_uv"):
        return [values, TensorShape([0]), TensorShape([0])]
    is_full = c.attr("full_matrices")
    left = batch.concatenate([rows, rows if is_full else inner])
    return [values, left, batch.concatenate([columns, columns if is_full else inner])]


def eig_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Eigenvalues and, when asked for, eigenvectors."""
    matrix = square(c.input(0))
    values = batch_of(matrix).concatenate([last_two(matrix)[0]])
    return [values, matrix if c.attr("compute_v") else TensorShape([0])]


def lu_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The packed factors and the permutation."""
    matrix = square(c.input(0))
    return [matrix, batch_of(matrix).concatenate([last_two(matrix)[0]])]
