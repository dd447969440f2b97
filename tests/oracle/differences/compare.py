"""How two answers to one case differ."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import OpError
from tests.ops.op_case import OpCase
from tests.oracle.differences.worker import decode


class Verdict(StrEnum):
    """What a comparison came to."""

    AGREE = "agree"
    BOTH_REFUSE = "both refuse"
    VALUES = "values"
    FORM = "form"  # dtypes, shapes, the number of outputs
    CODE = "code"  # both refuse, with different codes
    WE_ACCEPT = "we accept"
    THEY_ACCEPT = "they accept"
    LEAK = "leak"  # an error of another library comes out of a kernel
    ABORTS = "aborts"  # TensorFlow's process ends


DIFFERENCES: Final = frozenset(Verdict) - {Verdict.AGREE, Verdict.BOTH_REFUSE, Verdict.ABORTS}

# Relative to the largest finite value of the output; some libraries' functions differ by more.
TOLERANCE: Final = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "complex64": 2e-5}
WIDE_TOLERANCE: Final = 1e-9
# What adds up many numbers, in any order: the error goes by the largest of them.
SUMS: Final = re.compile("Mean|Sum|FFT|Resize|MatMul|Einsum|Conv|Pool|Norm|Segment|SqrtN|Softmax|Matrix|Solve|LRN|Cum")
LOOSE: Final = {
    # Decompositions and solvers: of matrices that are nearly singular.
    **dict.fromkeys(("MatrixSolve", "MatrixInverse", "MatrixSolveLs", "MatrixLogarithm", "MatrixSquareRoot"), 1e-3),
}


def compare(case: OpCase, ours: list[Any] | Exception, theirs: dict[str, Any] | None) -> Verdict:
    """The verdict on one case."""
    op, scale = case.op, largest_of(case.inputs) if SUMS.search(case.op) else 0.0
    if theirs is None:
        return Verdict.ABORTS
    if isinstance(ours, Exception):
        if not isinstance(ours, OpError) or _is_foreign(ours.__cause__):
            return Verdict.LEAK
        if "outputs" in theirs:
            return Verdict.THEY_ACCEPT
        return Verdict.BOTH_REFUSE if ours.code == theirs["error"] else Verdict.CODE
    if "outputs" not in theirs:
        return Verdict.WE_ACCEPT
    expected = [decode(output) for output in theirs["outputs"]]
    if [(found.shape, found.dtype) for found in ours] != [(found.shape, found.dtype) for found in expected]:
        return Verdict.FORM
    same = all(is_close(op, found, wanted, scale) for found, wanted in zip(ours, expected, strict=True))
    return Verdict.AGREE if same else Verdict.VALUES


def _is_foreign(cause: BaseException | None) -> bool:
    return cause is not None and not isinstance(cause, (OpError, MemoryError))


def largest_of(values: Any) -> float:
    """The largest finite number among some arrays of numbers."""
    arrays = [np.asarray(value) for value in values if not isinstance(value, bytes)]
    sizes = [np.abs(array.astype(np.complex128)) for array in arrays if array.dtype.kind in "fcViu"]
    return max((float(np.max(size, initial=0.0, where=np.isfinite(size))) for size in sizes), default=0.0)


def is_close(op: str, found: Any, wanted: Any, scale: float = 0.0) -> bool:
    """Equal; or, of floats, NaN and infinities in the same places and the rest close, to *scale* where one is given.

    Where one part of a complex number is not finite, both must not be: which of the parts is, libraries differ in.
    """
    if wanted.dtype.kind not in "fcV":
        return bool(np.array_equal(found, wanted))
    if wanted.dtype.kind == "c":
        finite = np.isfinite(wanted)
        if not np.array_equal(finite, np.isfinite(found)):
            return False
        scale = max(scale, float(np.max(np.abs(wanted), initial=0.0, where=finite)))
        found, wanted = found[finite], wanted[finite]
        return is_close(op, found.real, wanted.real, scale) and is_close(op, found.imag, wanted.imag, scale)
    tolerance = max(TOLERANCE.get(wanted.dtype.name, WIDE_TOLERANCE), LOOSE.get(op, 0.0))
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isnan(found), np.isnan(wanted)):
        return False
    infinite = np.isinf(wanted) | np.isinf(found)
    if not np.array_equal(found[infinite], wanted[infinite]):
        return False
    finite = ~infinite & ~np.isnan(wanted)
    found, wanted = found[finite], wanted[finite]
    scale = max(scale, float(np.max(np.abs(wanted), initial=0.0)))
    with np.errstate(over="ignore"):
        return bool(np.all(np.abs(found - wanted) <= 0.1 * tolerance * scale + 1e-37 + tolerance * np.abs(wanted)))
