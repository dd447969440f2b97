"""Which calls of a group may overwrite their first input: an array made in the group, that nobody takes any more."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np

from asyncexec.compilation.shared_inputs import makes_new
from asyncexec.framework.kernel import Kernel
from asyncexec.regions.lifetimes import Lifetimes
from asyncexec.regions.program import Call, Value

_ARITHMETIC: Final = frozenset(map(id, (operator.add, operator.sub, operator.mul, operator.truediv)))
_EXACT: Final = frozenset({np.maximum, np.minimum, np.sqrt})  # the same bits wherever they write to


def may_overwrite(kernel: object) -> bool:
    """Whether *kernel* gives the same when it writes over its first input."""
    return id(kernel) in _ARITHMETIC or (isinstance(kernel, np.ufunc) and kernel in _EXACT)


def overwriting(kernel: Kernel) -> Kernel:
    """*kernel*, which writes over its first input if that is an array."""

    def call(first: object, *others: object) -> Any:
        return kernel(first, *others, out=first if isinstance(first, np.ndarray) else None)

    return call


class InPlace:
    """To be told of the calls of a program in order, whose arrays are all of one shape."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self._at = lifetimes
        self._own: set[Value] = set()  # arrays made here, which no other value is a part of

    def note_move(self, source: Value) -> None:
        """*source* is another value, too."""
        self._own.discard(source)

    def overwrites(self, call: Call) -> bool:
        """Whether *call*, the next one, may overwrite its first input."""
        is_able = may_overwrite(call.kernel) and call.inputs[0] in self._own
        if makes_new(call.kernel) and not call.returns_tuple:
            self._own.update(call.outputs)
        else:
            self._own.difference_update(call.inputs)
        if not is_able or self._at.last[call.inputs[0]] != self._at.end[call]:
            return False
        properties = call.node.properties
        return properties.output_dtypes[0] == properties.input_dtypes[0]
