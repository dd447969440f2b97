"""Reductions, ArgMax and matrix products on any array library.

What they mean is told in asyncexec.ops (reduction.py, arg_reduction.py, matmul.py).  Axes come in host memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.kernel_table import HALVES, KernelTable, in_float32, shape_list
from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.ops.array.array_common import canonical_axis
from asyncexec.ops.math.elementwise import COMPLEXES, FLOATS, NUMBERS, REALS
from asyncexec.ops.math.reduction import highest, lowest, normalized_axes

_PRODUCT_TYPES: Final = FLOATS | COMPLEXES
_MAX_ARG_RANK: Final = 7
_EXPENSIVE: Final = KernelKind.EXPENSIVE


def register_reductions(table: KernelTable) -> None:
    """Add the kernels of this module."""
    for op, name in {"Sum": "sum", "Prod": "prod"}.items():
        table.add(op, partial(_accumulation, name), NUMBERS)
    table.add("Mean", _mean, FLOATS | COMPLEXES)
    table.add("Max", partial(_ordering, "max"), REALS)
    table.add("Min", partial(_ordering, "min"), REALS)
    for op, name in {"All": "all", "Any": "any"}.items():
        table.add(op, partial(_logical, name), attrs="")
    for op, name in {"ArgMax": "argmax", "ArgMin": "argmin"}.items():
        table.add(op, partial(_arg_reduction, name), REALS | {types.bool})
    table.add("MatMul", _matmul, _PRODUCT_TYPES, kind=_EXPENSIVE)
    table.add("BatchMatMul", partial(_batch_matmul, False), _PRODUCT_TYPES, kind=_EXPENSIVE)
    table.add("BatchMatMulV2", partial(_batch_matmul, True), _PRODUCT_TYPES, kind=_EXPENSIVE)
    for dtype in _PRODUCT_TYPES - HALVES:
        table.add("BatchMatMulV3", partial(_batch_matmul, True), {dtype}, attrs="Ta Tb Tout", kind=_EXPENSIVE)


def _over_axes(op: OpKernelConstruction, reduce: Callable[..., Any]) -> Kernel:
    keep_dims = op.attr("keep_dims")
    return lambda x, axes: reduce(x, normalized_axes(axes, x.ndim), keep_dims)


def _accumulation(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, dtype = library.xp, library.dtype(op.attr("T"))
    accumulate = getattr(xp, name)
    is_half = op.attr("T") in HALVES

    def reduce(x: object, axes: tuple[int, ...], keep: bool) -> Any:
        if is_half:
            return xp.astype(accumulate(x, axis=axes, dtype=xp.float32, keepdims=keep), dtype) if axes else x
        return accumulate(x, axis=axes, dtype=dtype, keepdims=keep) if axes else x

    return _over_axes(op, reduce)


def _mean(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, is_complex = library.xp, op.attr("T").is_complex
    dtype = library.dtype(op.attr("T"))
    work = xp.float32 if op.attr("T") in HALVES else dtype

    def reduce(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
        if not axes:
            return x
        total, count = xp.sum(x, axis=axes, dtype=work, keepdims=keep), 1
        for axis in axes:
            count *= x.shape[axis]
        mean = total / max(count, 1) if count or is_complex else xp.full_like(total, float("nan"))
        return xp.astype(mean, dtype, copy=False)

    return _over_axes(op, reduce)


def _ordering(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp
    search = getattr(xp, name)
    of_nothing = (lowest if name == "max" else highest)(op.attr("T")).item()

    def reduce(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
        if not axes:
            return x
        if all(x.shape[axis] for axis in axes):
            return search(x, axis=axes, keepdims=keep)
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
        return xp.full(tuple(shape), of_nothing, dtype=x.dtype, device=library.device)

    return _over_axes(op, reduce)


def _logical(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    decide = getattr(library.xp, name)
    return _over_axes(op, lambda x, axes, keep: decide(x, axis=axes, keepdims=keep) if axes else x)


def _checked_axis(x: Any, dimension: Any) -> int:
    if dimension.ndim:
        raise InvalidArgumentError(f"dim must be a scalar, but received tensor of shape: {shape_list(dimension)}")
    axis = canonical_axis(int(dimension), x.ndim, "dimension")
    if x.ndim > _MAX_ARG_RANK:
        raise InvalidArgumentError(f"Argmax and Argmin only support up to {_MAX_ARG_RANK} dimensions, not {x.ndim}")
    if x.shape[axis] == 0:
        raise InvalidArgumentError(f"Reduction axis {axis} is empty in shape {shape_list(x)}")
    return axis


def _arg_reduction(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, dtype = library.xp, op.attr("T")
    search = getattr(xp, name)
    worst = float("-inf") if name == "argmax" else float("inf")
    output_type = getattr(xp, op.attr("output_type").name)

    def find(x: object, dimension: object) -> Any:
        axis = _checked_axis(x, dimension)
        if dtype.is_floating:
            x = xp.where(xp.isnan(x), xp.full_like(x, worst), x)
        elif dtype is types.bool:
            x = xp.astype(x, xp.uint8)
        return xp.astype(search(x, axis=axis), output_type, copy=False)

    return find


def _matmul(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp
    flip_a, flip_b = op.attr("transpose_a"), op.attr("transpose_b")

    def matmul(a: Any, b: Any) -> Any:
        for index, value in enumerate((a, b)):
            if value.ndim != 2:
                raise InvalidArgumentError(f"In[{index}] is not a matrix: it is of shape {shape_list(value)}")
        left, right = xp.matrix_transpose(a) if flip_a else a, xp.matrix_transpose(b) if flip_b else b
        _check_inner(left, right)
        return xp.matmul(left, right)

    return in_float32(library, op, matmul)


def _batch_matmul(may_broadcast: bool, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp
    adjoint_x, adjoint_y = op.attr("adj_x"), op.attr("adj_y")
    is_complex = op.output_dtypes[0].is_complex

    def adjoint(x: object) -> Any:
        return xp.matrix_transpose(xp.conj(x) if is_complex else x)

    def product(x: Any, y: Any) -> Any:
        if x.ndim < 2 or y.ndim < 2:
            raise InvalidArgumentError(f"In[0] and In[1] must be matrices: {shape_list(x)} vs. {shape_list(y)}")
        left, right = adjoint(x) if adjoint_x else x, adjoint(y) if adjoint_y else y
        _check_batches(x, y, may_broadcast)
        _check_inner(left, right)
        return xp.matmul(left, right)

    return in_float32(library, op, product) if op.output_dtypes[0] in HALVES else product


def _check_inner(left: Any, right: Any) -> None:
    if left.shape[-1] != right.shape[-2]:
        raise InvalidArgumentError(
            f"Matrix size-incompatible: In[0] (as multiplied): {shape_list(left)}, In[1]: {shape_list(right)}"
        )


def _check_batches(x: Any, y: Any, may_broadcast: bool) -> None:
    ours, theirs = tuple(x.shape[:-2]), tuple(y.shape[:-2])
    pairs = zip(reversed(ours), reversed(theirs), strict=False)
    fit = all(a == b or 1 in (a, b) for a, b in pairs) if may_broadcast else ours == theirs
    if not fit:
        raise InvalidArgumentError(
            f"In[0] and In[1] must have compatible batch dimensions: {shape_list(x)} vs. {shape_list(y)}"
        )
