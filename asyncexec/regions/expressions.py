"""Calls of kernels as Python expressions: those of operators as such, which is quicker than to call them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final

from asyncexec.framework.kernel import Kernel
from asyncexec.ops.math.binary_math import add_group, add_up

OPERATORS: Final = {  # by id: a kernel need not be hashable
    id(operator.add): "+",
    id(operator.sub): "-",
    id(operator.mul): "*",
    id(operator.truediv): "/",
    id(operator.lt): "<",
    id(operator.le): "<=",
    id(operator.gt): ">",
    id(operator.ge): ">=",
    id(operator.eq): "==",
    id(operator.ne): "!=",
    id(operator.and_): "&",
    id(operator.or_): "|",
    id(operator.xor): "^",
}
_UNARY: Final = {id(operator.neg): "-", id(operator.invert): "~"}


def expression(kernel: Kernel, arguments: Sequence[str], name: Callable[[], str]) -> str:
    """The call of *kernel*; *name* gives what it is called in the source."""
    if id(kernel) in OPERATORS:
        return f"{arguments[0]} {OPERATORS[id(kernel)]} {arguments[1]}"
    if id(kernel) in _UNARY:
        return f"{_UNARY[id(kernel)]}{arguments[0]}"
    if kernel is add_up:
        return " + ".join(arguments)
    if kernel is add_group:
        return f"{arguments[0]} + ({' + '.join(arguments[1:])})"
    return f"{name()}({', '.join(arguments)})"
