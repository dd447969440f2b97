"""Products of matrices that idle cores share.

BLAS has threads of its own, but they wait for one another at each product, and spin while they wait: on two cores a
network took twice the processor's time with them, and no less of the clock's.  Here a product is cut into parts, by its
shape alone, so that its bits do not depend on who helps.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.process.cores import num_cores
from asyncexec.process.shards import share

_MUCH: Final = 1e7  # multiplications from which on it is cut: some tenths of a millisecond
_LEAST: Final = 64  # rows, or columns, of a part: each part lays out all of the other operand
_MOST: Final = 5e8  # multiplications of a part: others may wait for the thread that helps


def multiply(left: Array, right: Array, out: Array | None = None) -> Array:
    """``left @ right``, in *out* if that is given, for matrices or stacks of them; ValueError if they do not fit."""
    if out is None:
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0] or left.dtype != right.dtype:
            return _multiply_stacks(left, right)
        if left.size * right.shape[1] < _MUCH:
            product: Array = np.matmul(left, right)
            return product
        out = np.empty((len(left), right.shape[1]), left.dtype)
    whole = out
    num_bytes = left.nbytes + right.nbytes + out.nbytes

    def multiply_rows(part: slice) -> None:
        np.matmul(left[part], right, out=whole[part])

    def multiply_columns(part: slice) -> None:
        np.matmul(left, right[:, part], out=whole[:, part])

    rows, columns = out.shape
    work = left.size * columns
    if work < _MUCH or max(rows, columns) < 2 * _LEAST:
        np.matmul(left, right, out=out)
    elif rows >= columns:
        share(multiply_rows, _parts(rows, work), num_bytes, calls_blas=True)
    else:
        share(multiply_columns, _parts(columns, work), num_bytes, calls_blas=True)
    return out


def _multiply_stacks(left: Array, right: Array) -> Array:
    batch = left.shape[:-2]
    work = left.size * right.shape[-1] if left.ndim > 2 else 0
    if work and right.ndim == 2 and left.shape[-1] == len(right) and left.dtype == right.dtype:
        return multiply(left.reshape(-1, len(right)), right).reshape(*left.shape[:-1], -1)
    if work < _MUCH or right.shape[:-2] != batch or left.shape[-1] != right.shape[-2] or left.dtype != right.dtype:
        return np.asarray(np.matmul(left, right))
    out = np.empty((*batch, left.shape[-2], right.shape[-1]), left.dtype)
    lefts, rights, outs = (each.reshape(-1, *each.shape[-2:]) for each in (left, right, out))
    if len(outs) == 1:
        multiply(lefts[0], rights[0], outs[0])
        return out

    def multiply_some(part: slice) -> None:
        np.matmul(lefts[part], rights[part], out=outs[part])

    num_bytes = left.nbytes + right.nbytes + out.nbytes
    share(multiply_some, _parts(len(outs), work, 1), num_bytes, calls_blas=True)
    return out


def _parts(length: int, work: int, least: int = _LEAST) -> list[slice]:
    """As many parts as cores, or more where there is very much to do, of *least* rows at least."""
    count = max(1, min(max(num_cores(), int(work / _MOST)), length // least))
    step = -(-length // count)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
