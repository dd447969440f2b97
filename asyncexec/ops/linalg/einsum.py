"""Einsum (``tensorflow/core/ops/math_ops.cc``, ``kernels/linalg/einsum_op_impl.h``).

Each operand loses what can go at once (diagonals of repeated labels, sums over labels nobody else has), is laid out as
a stack of matrices ``[ellipsis, batch labels, free labels, contracted labels]``, and the product is one ``matmul``, so
that BLAS does the work.  The layout is worked out once for each combination of input shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.types import bfloat16, complex64, complex128, float16, float32, float64, int32, int64
from asyncexec.ops.linalg.einsum_equation import Equation, einsum_shape, label_sizes, parse_equation, split_shape
from asyncexec.ops.math.shared_product import multiply

register_op("Einsum", "inputs: N*T -> output: T", "equation: string; N: int >= 1; T: type", shape=einsum_shape)

_MAX_PLANS: Final = 64
_MAX_NDIM: Final = 64  # numpy's
_NARROW: Final = (float16, bfloat16)


@register_kernel(
    "Einsum",
    kind=KernelKind.EXPENSIVE,
    dtypes={"T": (float16, bfloat16, float32, float64, complex64, complex128, int32, int64)},
)
def einsum(construction: OpKernelConstruction) -> Kernel:
    """The contraction that the equation says; half and bfloat16 are computed in float32."""
    equation = parse_equation(construction.attr("equation"), construction.num_inputs)
    dtype = construction.np_dtype("T")
    work = np.dtype(np.float32) if construction.attr("T") in _NARROW else dtype
    plans: dict[tuple[tuple[int, ...], ...], Kernel] = {}

    def kernel(*inputs: ArrayOrScalar) -> ArrayOrScalar:
        shapes = tuple([value.shape for value in inputs])
        plan = plans.get(shapes)
        if plan is None:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            plan = plans[shapes] = make_plan(equation, shapes, work)
        return plan(*inputs)

    if work == dtype:
        return kernel
    return lambda *inputs: kernel(*[value.astype(work) for value in inputs]).astype(dtype)


def make_plan(equation: Equation, shapes: Sequence[tuple[int, ...]], dtype: NumpyDType) -> Kernel:
    """The contraction for inputs of *shapes*, which compute in *dtype*."""
    parts = [split_shape(equation, index, shape) for index, shape in enumerate(shapes)]
    sizes = {label: size or 0 for label, size in label_sizes(equation, parts).items()}
    ellipses = [tuple(size or 0 for size in dotted) for _, dotted in parts]
    try:
        ellipsis = np.broadcast_shapes(*ellipses)
    except ValueError:
        raise InvalidArgumentError(
            f"Incompatible shapes under the ellipsis of {equation.text!r}: {' vs. '.join(map(str, shapes))}"
        ) from None
    _check_rank(equation, sizes, ellipsis)
    labels = [_unique(subscript.labels) for subscript in equation.inputs]
    wanted = _unique(equation.output.labels)
    order, contract = _product_plan(labels, wanted, ellipses, sizes)
    reducers = [_reducer(equation, index, ellipses[index], kept, dtype) for index, kept in enumerate(order.operands)]
    finish = _finisher(equation, order.result, ellipsis, sizes, dtype)
    if len(reducers) == 1:
        return lambda value: as_value(finish(reducers[0](value)))
    left, right = reducers
    return lambda a, b: as_value(finish(contract(left(a), right(b))))


def _check_rank(equation: Equation, sizes: dict[int, int], ellipsis: tuple[int, ...]) -> None:
    dims = [*ellipsis, *(sizes[label] for label in equation.output.labels)]
    if len(ellipsis) + len(sizes) + len(dims) > _MAX_NDIM:
        raise ResourceExhaustedError(f"the result of {equation.text!r} would be of shape {dims}")


def _unique(labels: bytes) -> list[int]:
    return list(dict.fromkeys(labels))


class _Order:
    """Which labels each reduced operand keeps, in order, and the labels of the product."""

    __slots__ = ("operands", "result")

    def __init__(self, operands: list[list[int]], result: list[int]) -> None:
        self.operands = operands
        self.result = result


def _product_plan(
    labels: list[list[int]], wanted: list[int], ellipses: list[tuple[int, ...]], sizes: dict[int, int]
) -> tuple[_Order, Callable[[Any, Any], object]]:
    if len(labels) == 1:
        kept = [label for label in labels[0] if label in wanted]
        return _Order([kept], kept), lambda a, b: a
    a, b = labels
    batch = [label for label in wanted if label in a and label in b]
    contracted = [label for label in a if label in b and label not in wanted]
    free_a = [label for label in a if label in wanted and label not in b]
    free_b = [label for label in b if label in wanted and label not in a]
    order = _Order([[*batch, *free_a, *contracted], [*batch, *contracted, *free_b]], [*batch, *free_a, *free_b])
    rank = max(map(len, ellipses))

    def size(group: list[int]) -> int:
        return math.prod(sizes[label] for label in group)

    stack, rows, inner, columns = [sizes[label] for label in batch], size(free_a), size(contracted), size(free_b)
    left, right = ([1] * (rank - len(dims)) + [*dims, *stack] for dims in ellipses)
    free_sizes = [sizes[label] for label in [*free_a, *free_b]]

    def contract(x: Any, y: Any) -> Array:
        product = multiply(x.reshape([*left, rows, inner]), y.reshape([*right, inner, columns]))
        return product.reshape([*product.shape[:-2], *free_sizes])

    return order, contract


def _reducer(
    equation: Equation, index: int, dotted: tuple[int, ...], kept: list[int], dtype: NumpyDType
) -> Callable[[Any], object]:
    """Takes the diagonals of input *index*, sums what is not *kept*, and puts the ellipsis first."""
    subscript = equation.inputs[index]
    names = {label: number for number, label in enumerate(_unique(subscript.labels))}
    dots = [len(names) + number for number in range(len(dotted))]
    present = [*(names[label] for label in subscript.before), *dots, *(names[label] for label in subscript.after)]
    target = [*dots, *(names[label] for label in kept)]
    if len(set(present)) != len(present):
        return lambda value: np.einsum(np.asarray(value), present, target)
    gone = tuple(axis for axis, name in enumerate(present) if name not in target)
    rest = [name for name in present if name in target]
    axes = [rest.index(name) for name in target]
    moves = axes != sorted(axes)

    def reduce(value: Any) -> ArrayOrScalar:
        if gone:
            value = np.asarray(value.sum(axis=gone, dtype=dtype))
        return value.transpose(axes) if moves else value

    return reduce


def _finisher(
    equation: Equation, result: list[int], ellipsis: tuple[int, ...], sizes: dict[int, int], dtype: NumpyDType
) -> Callable[[Any], object]:
    """Brings [ellipsis, labels of the product] into the order of the output, repeated labels on diagonals."""
    output, rank = equation.output, len(ellipsis)
    dots = list(range(rank))
    place = {label: rank + number for number, label in enumerate(result)}
    target = [*(place[label] for label in output.before), *dots, *(place[label] for label in output.after)]
    if len(set(target)) == len(target):
        if target == sorted(target):
            return lambda value: value
        return lambda value: value.transpose(target)
    unique = list(dict.fromkeys(target))
    shape = [(ellipsis + tuple(sizes[label] for label in result))[axis] for axis in target]

    def inflate(value: Array) -> Array:
        whole = np.zeros(shape, dtype)
        diagonal = np.einsum(whole, target, unique)  # a writeable view
        diagonal[...] = value.transpose(unique)
        return whole

    return inflate
