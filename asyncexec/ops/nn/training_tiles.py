"""The rule of an optimizer on whole variables: tile by tile, by numpy or by native code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.element_rule import ElementRule, NativeCode
from asyncexec.framework.kernel import as_value
from asyncexec.ops.nn import training_rules as rules

TILE: Final = 2**15  # numbers of a variable that are updated at a time: they stay in the cache meanwhile


class Arrays(Protocol):
    """Gives what is to have the new values; if it may, old values that are to be written over."""

    def __call__(self, *, may_overwrite: bool) -> Sequence[Array]: ...


class TiledRule:
    """Gives the new values of variables.

    Args:
        rule: does so for all of them at once, or for a part.
        inputs: what the op is given, by name; of these *tensor* is the gradient.
        flags: attrs that change the rule.

    Attributes:
        element_rule: the same for who makes native code of it.
    """

    def __init__(self, rule: rules.Rule, inputs: Sequence[str], tensor: str, flags: Mapping[str, object]) -> None:
        self._rule = rule
        self._inputs = inputs
        self._pick = itemgetter(*inputs)
        self._tensor = tensor
        self._flags = flags
        self.element_rule: ElementRule = ElementRule(self._on_elements)

    def __call__(self, values: Sequence[Any], given: Mapping[str, Any], arrays: Arrays) -> Sequence[Array] | None:
        """The new values for the old ones and what the op is *given*; None where *arrays* have got them.

        These are asked for where native code writes to them: each is the old value, or an array to copy that to.  Old
        values are written over in one call, which no signal handler interrupts.
        """
        size = np.size(values[0])
        if not size or not all(map(_is_plain, [*values, given[self._tensor]])):
            return self._rule(values, given)
        inputs = [*values, *map(as_value, self._pick(given))]  # an array would have elements to go over
        find = self.element_rule.find_native
        native = None if find is None else find(inputs, max(size, TILE))  # a call on few numbers takes its time, too
        if native is not None:
            self._overwrite(native, inputs, given, arrays(may_overwrite=native.does_all))
            return None
        if size <= TILE:
            return self._rule(values, given)
        parts = _Parts(values, given[self._tensor], [np.empty_like(value) for value in values])
        for start in range(0, size, TILE):
            self._update(parts, slice(start, start + TILE), given)
        return [value if value is not None else new for value, new in zip(parts.untouched, parts.news, strict=True)]

    def _overwrite(
        self, native: NativeCode, inputs: Sequence[Any], given: Mapping[str, object], outs: Sequence[Array]
    ) -> None:
        """Write the new values to *outs*, each of which is the old one or an array to copy that to."""
        count, size = len(outs), outs[0].size
        copies = [(out.reshape(-1), old.reshape(-1)) for out, old in zip(outs, inputs, strict=False) if out is not old]
        step = TILE if copies else size
        do = native.overwriting([*outs, *inputs[count:]])
        for start in range(0, size, step):
            end = min(start + step, size)
            for out, old in copies:
                out[start:end] = old[start:end]
            come_to = do(start, end)
            if come_to < end:
                self._overwrite_by_numpy(outs, given, slice(come_to, end))

    def _overwrite_by_numpy(self, outs: Sequence[Array], given: Mapping[str, Any], where: slice) -> None:
        """Write the new values over the old ones."""
        parts, grad = [out.reshape(-1)[where] for out in outs], given[self._tensor].reshape(-1)[where]
        for part, new in zip(parts, self._rule(parts, {**given, self._tensor: grad}), strict=True):
            part[:] = new

    def _update(self, parts: _Parts, where: slice, given: Mapping[str, object]) -> None:
        """Update the numbers of *parts* at *where*, by numpy."""
        olds, outs = [old[where] for old in parts.olds], [new[where] for new in parts.updated]
        news = self._rule(olds, {**given, self._tensor: parts.grad[where], rules.OUT: outs})
        for number, (old, out, new) in enumerate(zip(olds, outs, news, strict=True)):
            if new is old:  # the rule leaves it alone
                parts.untouched[number] = parts.values[number]
            elif new is not out:
                out[:] = new

    def _on_elements(self, inputs: Sequence[object]) -> Sequence[object]:
        given = dict(zip(self._inputs, inputs[-len(self._inputs) :], strict=True))
        return self._rule(inputs[: -len(self._inputs)], {**given, **self._flags})


class _Parts:
    """The variables of one call and its gradient, as vectors.

    Attributes:
        untouched: by variable, its value where the rule leaves that alone, else None.
    """

    def __init__(self, values: Sequence[Array], grad: Array, updated: Sequence[Array]) -> None:
        self.values = values
        self.olds = [value.reshape(-1) for value in values]
        self.grad = grad.reshape(-1)
        self.news = updated
        self.updated = [new.reshape(-1) for new in updated]
        self.untouched: list[Array | None] = [None] * len(values)


def _is_plain(array: object) -> bool:
    if type(array) is not np.ndarray or not array.ndim:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned
