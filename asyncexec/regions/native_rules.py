"""The rule of a kernel -> LLVM: what its function does to arrays, it does to stand-ins for elements, which take note.

So there is one text of each rule.  A rule that asks for more than operators and ufuncs with instructions, the value of
a number, say, is not native.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.kernel import Kernel
from asyncexec.ops.math.math import square
from asyncexec.regions.native_emitter import FLOATS, Emitter, NotNativeError, Operand
from asyncexec.regions.native_ops import emit_of
from asyncexec.regions.native_tiles import Taken, TileText, write_overwriting_loop

_KERNELS: Final[Mapping[np.ufunc, Kernel]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.negative: operator.neg,
    np.absolute: operator.abs,
    np.square: square,
    np.sqrt: np.sqrt,
    np.maximum: np.maximum,
    np.minimum: np.minimum,
}


def write_rule(
    function: Callable[[Sequence[Any]], Sequence[Any]], takes: Sequence[Taken], pause: Callable[[], object]
) -> TileText:
    """What *function* does, for inputs of these types; NotNativeError if there are no instructions for that.

    It writes over the first inputs.
    """

    def emit(to: Emitter, operands: Sequence[Operand]) -> Sequence[Operand]:
        pause()
        try:
            given = function([_Element(to, operand) for operand in operands])
        except (AttributeError, TypeError) as error:  # it asks for what only arrays have
            raise NotNativeError from error
        return [_operand_of(to, value, operands[0]) for value in given]

    return write_overwriting_loop(emit, takes)


class _Element(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an element, or a scalar: what is done to it becomes instructions."""

    def __init__(self, to: Emitter, operand: Operand) -> None:
        self._to = to
        self.operand = operand

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> _Element:
        kernel = _KERNELS.get(ufunc)
        emit = None if kernel is None else emit_of(kernel)
        (out,) = options.pop("out", (None,))
        if emit is None or method != "__call__" or options:
            raise NotNativeError
        result = emit(self._to, [_operand_of(self._to, value, self.operand) for value in inputs])
        if out is None:
            return _Element(self._to, result)
        if not isinstance(out, _Element) or out.operand.type is not result.type:
            raise NotNativeError
        out.operand = result
        return out

    def __array_function__(self, *call: object) -> Any:
        raise NotNativeError

    def __bool__(self) -> bool:
        raise NotNativeError


def _operand_of(to: Emitter, value: object, like: Operand) -> Operand:
    """What stands for *value*; a number of Python's is of the type of *like*."""
    if isinstance(value, _Element):
        return value.operand
    if type(value) in (int, float) and like.type in FLOATS:
        return to.constant(like.type(value))
    return to.constant(value)
