"""Kernels that call BLAS, which takes as many threads for them as ``process/blas_threads.py`` says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.kernel import Kernel, marked_as
from asyncexec.graph.node import Node
from asyncexec.process.blas_threads import BlasThreads

# Multiplications up to which OpenBLAS takes one thread, or is through before another has begun.
SHORT: Final = 2**16

_MISFITS: Final = (AttributeError, IndexError, ValueError)  # of inputs: the kernel tells better what is wrong with them

Work: TypeAlias = Callable[[tuple[Any, ...]], float]


def _of_product(flag: str) -> Callable[[Node], Work]:
    """Every element of the first operand is multiplied with a row of the second; *flag*: whether that is transposed."""

    def make(node: Node) -> Work:
        axis = -2 if node.attrs.get(flag) else -1
        return lambda inputs: inputs[0].size * inputs[1].shape[axis]

    return make


def _of_convolution(node: Node) -> Work:
    """As if all strides were 1."""
    return lambda inputs: inputs[0].size * inputs[1].size / max(1, inputs[1].shape[-2])


def _of_gradient(node: Node) -> Work:
    return lambda inputs: max(np.size(inputs[0]), np.size(inputs[2])) * math.sqrt(np.size(inputs[2]))


def _of_decomposition(node: Node) -> Work:
    return lambda inputs: float(inputs[0].size * inputs[0].shape[-1])


def _of_sum(node: Node) -> Work:
    """Of an Einsum: as if its operands were square matrices."""
    return lambda inputs: float(max(map(np.size, inputs)) ** 1.5)


_WORK: Final[Mapping[str, Callable[[Node], Work]]] = {
    "MatMul": _of_product("transpose_b"),
    "SparseMatMul": _of_product("transpose_b"),
    "_FusedMatMul": _of_product("transpose_b"),
    "_FusedProduct": _of_product(""),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _of_product("adj_y")),
    **dict.fromkeys(("Conv2D", "Conv3D", "_FusedConv2D"), _of_convolution),
    **dict.fromkeys(
        (
            *("Conv2DBackpropFilter", "Conv2DBackpropInput"),
            *("Conv3DBackpropFilterV2", "Conv3DBackpropInputV2"),
        ),
        _of_gradient,
    ),
    **dict.fromkeys(
        (
            *("Cholesky", "Eig", "LogMatrixDeterminant", "Lu", "MatrixDeterminant", "MatrixInverse", "MatrixSolve"),
            *("MatrixSolveLs", "MatrixTriangularSolve", "Qr", "SelfAdjointEigV2", "Svd"),
            *("BatchCholesky", "BatchCholeskyGrad", "BatchMatrixDeterminant", "BatchMatrixInverse", "BatchMatrixSolve"),
            *("BatchMatrixSolveLs", "BatchMatrixTriangularSolve", "BatchSelfAdjointEig", "BatchSelfAdjointEigV2"),
            *("BatchSvd", "CholeskyGrad", "MatrixExponential", "SelfAdjointEig"),
        ),
        _of_decomposition,
    ),
    "Einsum": _of_sum,
}
BLAS_OPS: Final = _WORK.keys()


def calls_blas(node: Node) -> bool:
    """Whether the kernel of *node* calls BLAS."""
    return node.op in _WORK


def blas_work(node: Node, inputs: Sequence[object]) -> float:
    """Roughly how many multiplications the kernel of *node* needs for *inputs*; 0 where it does not call BLAS."""
    return work_function(node)(tuple(inputs)) if calls_blas(node) else 0


def work_function(node: Node) -> Work:
    """What gives as many for its inputs, of a node that calls BLAS; 0 for inputs that the kernel refuses."""
    return partial(_checked_work, _WORK[node.op](node))


def _checked_work(work_of: Work, inputs: tuple[object, ...]) -> float:
    try:
        return work_of(inputs)
    except _MISFITS:
        return 0


def with_blas_threads(kernel: Kernel, node: Node, threads: BlasThreads) -> Kernel:
    """*kernel* of *node*, which calls BLAS, with as many threads as *threads* gives it."""
    work_of = _WORK[node.op](node)

    def call(*inputs: object) -> Any:
        try:
            work = work_of(inputs)
        except _MISFITS:
            work = 0.0
        if work <= SHORT:
            return kernel(*inputs)
        return threads.call(kernel, inputs, work)

    return marked_as(kernel, call)
