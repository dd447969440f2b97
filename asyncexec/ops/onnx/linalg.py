"""Products of matrices: MatMul, Gemm, Einsum, Det.  Halves are computed in float32 and rounded once."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.linalg.einsum import make_plan
from asyncexec.ops.linalg.einsum_equation import parse_equation
from asyncexec.ops.onnx.common import check_product, check_shape, in_single, is_half, of_one, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_MAX_PLANS: Final = 64
_MANY: Final = 2**22  # elements; a result of fewer is small
_EQUATION: Final = re.compile(r"[A-Za-z.,]*(->[A-Za-z.]*)?")


def product(a: Array, b: Any) -> Any:
    """``a @ b`` in their own dtype."""
    if a.dtype != b.dtype:
        raise InvalidArgumentError(f"A is {a.dtype.name}, but B is {b.dtype.name}")
    check_product(a, b, a.dtype.itemsize)
    if is_half(a.dtype):
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    return np.matmul(a, b)


onnx_kernel("MatMul", kind=KernelKind.EXPENSIVE)(refusing(lambda node: lambda a, b: (product(a, b),)))


@onnx_kernel("Gemm", since=7, kind=KernelKind.EXPENSIVE)
@refusing
def make_gemm(node: OnnxNode) -> Kernel:
    """The kernel of Gemm: ``alpha * A @ B + beta * C``, A and B transposed where told so."""
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    flip_a, flip_b = node.attr("transA", 0), node.attr("transB", 0)

    def gemm(a: Any, b: Array, c: Any = None) -> tuple[Array]:
        if a.ndim != 2 or b.ndim != 2:
            raise InvalidArgumentError(f"A and B must be matrices, not of shapes {list(a.shape)} and {list(b.shape)}")
        result = product(a.T if flip_a else a, b.T if flip_b else b)
        if alpha != 1:
            result = _scaled(result, alpha)
        if c is not None and beta != 0:
            np.add(result, c if beta == 1 else _scaled(c, beta), out=result)
        return (result,)

    return gemm


def _scaled(x: Array, factor: float) -> Array:
    if x.dtype.kind in "iu":
        return (x * factor).astype(x.dtype)
    return np.multiply(x, x.dtype.type(factor))


def explicit_equation(equation: str) -> str:
    """*equation* without spaces, and with its output: labels that come once, sorted, where it tells none."""
    text = equation.replace(" ", "")
    if not _EQUATION.fullmatch(text):
        raise InvalidArgumentError(f"{equation!r} is no equation of Einsum")
    if "->" in text:
        return text
    counts = Counter(text.replace(",", "").replace(".", ""))
    dots = "..." if "..." in text else ""
    return f"{text}->{dots}{''.join(sorted(label for label, count in counts.items() if count == 1))}"


@onnx_kernel("Einsum", since=12, kind=KernelKind.EXPENSIVE)
@refusing
def make_einsum(node: OnnxNode) -> Kernel:
    """The kernel of Einsum: one product of matrices for two operands, and for more their best order."""
    equation = explicit_equation(node.text("equation"))
    operands = equation.partition("->")[0].count(",") + 1
    if operands != len(node.inputs):
        raise InvalidArgumentError(f"equation {equation!r} does not have {len(node.inputs)} operands")
    if operands > 2:
        return _einsum_of_many(equation)
    parsed = parse_equation(equation.encode(), operands)
    plans: dict[tuple[object, ...], Kernel] = {}

    def contract(*values: Any) -> ArrayOrScalar:
        key = (values[0].dtype, *[value.shape for value in values])
        if math.prod([value.size for value in values]) > _MANY:
            _check_einsum_size(equation, values)
        plan = plans.get(key)
        if plan is None:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            plan = plans[key] = make_plan(parsed, key[1:], values[0].dtype)
        return plan(*values)

    computed = in_single(contract)
    return lambda *values: (computed(*values),)


def _einsum_of_many(equation: str) -> Kernel:
    def contract(*values: Any) -> ArrayOrScalar:
        path, _ = np.einsum_path(equation, *values, optimize="greedy")
        _check_einsum_size(equation, values)
        return np.einsum(equation, *values, optimize=path)

    computed = in_single(contract)
    return lambda *values: (computed(*values),)


def _check_einsum_size(equation: str, values: tuple[Array, ...]) -> None:
    """Refuse a result that is larger than memory can be."""
    inputs, _, output = equation.partition("->")
    sizes: dict[str, int] = {}
    dotted: list[tuple[int, ...]] = [()]
    for subscript, value in zip(inputs.split(","), values, strict=True):
        before, _, after = subscript.partition("...")
        sizes.update(zip(before, value.shape, strict=False))
        sizes.update(zip(reversed(after), reversed(value.shape), strict=False))
        dotted.append(value.shape[len(before) : value.ndim - len(after)])
    dims = [sizes.get(label, 1) for label in output.replace(".", "")]
    check_shape([*dims, math.prod(np.broadcast_shapes(*dotted))], values[0].dtype)


@onnx_kernel("Det", since=11)
def make_det(node: OnnxNode) -> Kernel:
    """The kernel of Det: the determinant of each matrix."""
    determinant = in_single(np.linalg.det)

    def det(x: Array) -> ArrayOrScalar:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise InvalidArgumentError(f"the input must be square matrices, not of shape {list(x.shape)}")
        return determinant(x)

    return of_one(det)(node)
