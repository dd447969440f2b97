"""Linear algebra: products, decompositions, norms, diagonals.

Names and arguments are those of ``tf.linalg`` and ``tf`` (``tensorflow/python/ops/math_ops.py``, ``linalg_ops.py``,
``special_math_ops.py``).  The last two dimensions are the matrix; the dimensions before them count matrices.

Raises:
    InvalidArgumentError: shapes do not fit: while the graph is built where they are known, else when it runs.
    InvalidTypeError: the operands have different dtypes.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import as_dtype
from asyncexec.frontend import array_functions as array
from asyncexec.frontend import math_functions as math
from asyncexec.frontend import unary_functions as unary
from asyncexec.frontend.calls import (
    DTypeLike,
    TensorLike,
    composite,
    dtype_of,
    in_graph_of,
    same_dtype,
    static_rank,
    tensor_op,
)
from asyncexec.frontend.create_op import as_tensor, graph_of, graph_to_use
from asyncexec.frontend.reduction_functions import reduce_max, reduce_min, reduce_sum
from asyncexec.graph.node import Tensor


def matmul(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """The matrix product of *a* and *b*; dimensions before the last two are broadcast.

    >>> show(ax.matmul([[1.0, 2.0], [3.0, 4.0]], [[1.0], [1.0]]))
    [[3.]
     [7.]]

    Args:
        a: [..., m, k], or [..., k, m] with *transpose_a* or *adjoint_a* (conjugated too).
        b: [..., k, n], or [..., n, k] with *transpose_b* or *adjoint_b*.

    Raises:
        InvalidArgumentError: both transpose and adjoint; shapes that do not fit.
        InvalidTypeError: different dtypes.
    """
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise InvalidArgumentError("an operand of matmul is transposed or adjoint, not both")
    x, y = same_dtype(a, b)
    if x.shape.rank == 2 and y.shape.rank == 2 and dtype_of(x) is not types.int16:
        x, flip_x = _plain_operand(x, transpose_a, adjoint_a)
        y, flip_y = _plain_operand(y, transpose_b, adjoint_b)
        return tensor_op("MatMul", [x, y], name, transpose_a=flip_x, transpose_b=flip_y)
    x, flip_x = _batched_operand(x, transpose_a, adjoint_a)
    y, flip_y = _batched_operand(y, transpose_b, adjoint_b)
    return tensor_op("BatchMatMulV2", [x, y], name, adj_x=flip_x, adj_y=flip_y)


def _plain_operand(x: Tensor, transpose: bool, adjoint: bool) -> tuple[Tensor, bool]:
    """MatMul can transpose; it cannot conjugate."""
    return (unary.conj(x) if adjoint else x), transpose or adjoint


def _batched_operand(x: Tensor, transpose: bool, adjoint: bool) -> tuple[Tensor, bool]:
    """BatchMatMul conjugates what it transposes."""
    return (unary.conj(x) if transpose else x), transpose or adjoint


def tensordot(a: TensorLike, b: TensorLike, axes: object, name: str | None = None) -> Tensor:
    """The sum of products of *a* and *b* over pairs of dimensions.

    >>> show(ax.tensordot([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], 1))
    [ 7. 10.]

    Args:
        a: a tensor of known rank.
        b: a tensor of known rank.
        axes: how many dimensions, the last of a and the first of b; or two lists of dimensions, or two ints.
    """
    x, y = same_dtype(a, b)
    rank_x, rank_y = static_rank(x, "tensordot"), static_rank(y, "tensordot")
    over_x, over_y = _contracted(axes, rank_x, rank_y)
    letters = iter(string.ascii_letters)
    labels_x = [next(letters) for _ in range(rank_x)]
    shared = {place: labels_x[other] for other, place in zip(over_x, over_y, strict=True)}
    labels_y = [shared.get(place) or next(letters) for place in range(rank_y)]
    kept = [label for label in (*labels_x, *labels_y) if label not in shared.values()]
    return einsum(f"{''.join(labels_x)},{''.join(labels_y)}->{''.join(kept)}", x, y, name=name or "Tensordot")


def _contracted(axes: Any, rank_x: int, rank_y: int) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_x, rank_y):
            raise InvalidArgumentError(f"tensordot over {axes} dimensions of tensors of rank {rank_x} and {rank_y}")
        return list(range(rank_x - axes, rank_x)), list(range(axes))
    over_x, over_y = ([entry] if isinstance(entry, int) else list(entry) for entry in axes)
    if len(over_x) != len(over_y):
        raise InvalidArgumentError(f"tensordot pairs {len(over_x)} dimensions with {len(over_y)}")
    for axis, rank in [(axis, rank_x) for axis in over_x] + [(axis, rank_y) for axis in over_y]:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"tensordot over dimension {axis} of a tensor of rank {rank}")
    return [axis % rank_x for axis in over_x], [axis % rank_y for axis in over_y]


def einsum(equation: str, *inputs: TensorLike, name: str | None = None) -> Tensor:
    """Einstein's summation, such as ``"bij,bjk->bik"``.  Without an arrow, labels that occur once are kept, in order.

    >>> show(ax.einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0]))
    [21. 43.]
    """
    return tensor_op("Einsum", [list(inputs)], name, equation=_explicit(equation.replace(" ", "")))


def _explicit(equation: str) -> str:
    if "->" in equation:
        return equation
    counts = Counter(label for label in equation if label.isalpha())
    kept = "".join(sorted(label for label, count in counts.items() if count == 1))
    return f"{equation}->{'...' if '...' in equation else ''}{kept}"


def norm(
    tensor: TensorLike,
    ord: object = "euclidean",  # noqa: A002
    axis: object = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    """The norm of vectors over *axis*, by default everything: ``"euclidean"``, any positive number, or infinity.

    >>> show(ax.norm([3.0, 4.0]))
    5.0
    """
    with composite(name, "norm", [tensor]) as scope:
        (x,) = in_graph_of([tensor])
        size = unary.abs(x)
        if ord in ("euclidean", "fro", 2):
            return unary.sqrt(reduce_sum(unary.square(size), axis, keepdims), scope)
        if ord == 1:
            return reduce_sum(size, axis, keepdims, scope)
        if ord == float("inf"):
            return reduce_max(size, axis, keepdims, scope)
        if ord == float("-inf"):
            return reduce_min(size, axis, keepdims, scope)
        if isinstance(ord, (int, float)) and ord > 0:
            return math.pow(reduce_sum(math.pow(size, ord), axis, keepdims), 1.0 / ord, scope)
    raise InvalidArgumentError(f"ord is 'euclidean' or a positive number, not {ord!r}")


def cholesky(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The lower triangular L with L L^H = x.  If x is not positive definite, the run fails.

    >>> show(ax.cholesky([[4.0, 2.0], [2.0, 5.0]]))
    [[2. 0.]
     [1. 2.]]
    """
    return tensor_op("Cholesky", [input], name)


def inv(input: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:  # noqa: A002
    """The inverse of square matrices, or of their adjoints.  If a matrix has no inverse, the run fails.

    >>> show(ax.inv([[2.0, 0.0], [0.0, 4.0]]))
    [[0.5  0.  ]
     [0.   0.25]]
    """
    return tensor_op("MatrixInverse", [input], name, adjoint=adjoint)


def solve(matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The x with matrix x = rhs (with the matrix's adjoint if *adjoint*), *rhs* being [..., m, k].

    >>> show(ax.solve([[2.0, 0.0], [0.0, 4.0]], [[2.0], [8.0]]))
    [[1.]
     [2.]]
    """
    return tensor_op("MatrixSolve", [matrix, rhs], name, adjoint=adjoint)


def triangular_solve(
    matrix: TensorLike, rhs: TensorLike, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """The x with matrix x = rhs, where only the lower (or upper) triangle of the matrix counts.

    >>> show(ax.triangular_solve([[2.0, 0.0], [1.0, 1.0]], [[4.0], [5.0]]))
    [[2.]
     [3.]]
    """
    return tensor_op("MatrixTriangularSolve", [matrix, rhs], name, lower=lower, adjoint=adjoint)


def det(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The determinants of square matrices.

    >>> show(ax.det([[2.0, 0.0], [0.0, 3.0]]))
    6.0
    """
    return tensor_op("MatrixDeterminant", [input], name)


def trace(x: TensorLike, name: str | None = None) -> Tensor:
    """The sums of the main diagonals.

    >>> show(ax.trace([[1, 2], [3, 4]]))
    5
    """
    with composite(name, "Trace", [x]) as scope:
        return reduce_sum(diag_part(x), [-1], name=scope)


def diag(diagonal: TensorLike, name: str | None = None) -> Tensor:
    """Square matrices with the vectors in the last dimension of *diagonal* as main diagonals, and zeros elsewhere.

    >>> show(ax.diag([1, 2]))
    [[1 0]
     [0 2]]
    """
    (x,) = in_graph_of([diagonal])
    return _diag(x, -1, -1, name)


def _diag(diagonal: Tensor, num_rows: object, num_cols: object, name: str | None) -> Tensor:
    with graph_to_use(diagonal):
        zero = array.zeros([], dtype_of(diagonal))
        return tensor_op("MatrixDiagV3", [diagonal, 0, num_rows, num_cols, zero], name)


def diag_part(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The main diagonals of matrices.

    >>> show(ax.diag_part([[1, 2], [3, 4]]))
    [1 4]
    """
    (x,) = in_graph_of([input])
    with graph_to_use(x):
        return tensor_op("MatrixDiagPartV3", [x, 0, array.zeros([], dtype_of(x))], name)


def matrix_band_part(
    input: TensorLike,  # noqa: A002
    num_lower: TensorLike,
    num_upper: TensorLike,
    name: str | None = None,
) -> Tensor:
    """Matrices with zeros outside *num_lower* and *num_upper* diagonals beside the main one; -1 keeps all of a side.

    >>> show(ax.matrix_band_part([[1, 2, 3], [4, 5, 6], [7, 8, 9]], 0, -1))
    [[1 2 3]
     [0 5 6]
     [0 0 9]]
    """
    return tensor_op("MatrixBandPart", [input, num_lower, num_upper], name)


def eye(
    num_rows: TensorLike,
    num_columns: TensorLike | None = None,
    batch_shape: Sequence[TensorLike] | Tensor | None = None,
    dtype: DTypeLike = types.float32,
    name: str | None = None,
) -> Tensor:
    """Identity matrices: ones on the main diagonal and zeros elsewhere, one for each place of *batch_shape*.

    >>> show(ax.eye(2))
    [[1. 0.]
     [0. 1.]]
    """
    columns = num_rows if num_columns is None else num_columns
    with graph_of((num_rows, columns, batch_shape)):
        shorter = min(num_rows, columns) if _is_static(num_rows, columns) else math.minimum(num_rows, columns)
        if isinstance(batch_shape, Tensor):
            sizes = tensor_op("ConcatV2", [[batch_shape, tensor_op("Pack", [[shorter]])], 0])
        else:
            sizes = as_tensor([*(batch_shape or ()), shorter], types.int32)
        return _diag(array.ones(sizes, as_dtype(dtype)), num_rows, columns, name or "eye")


def _is_static(*values: TensorLike) -> bool:
    return not any(isinstance(value, Tensor) for value in values)
