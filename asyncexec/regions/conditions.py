"""Conditions: when one of several holds, and what tells the side of a predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.regions.program import Liveness, Value


def covered(choices: Sequence[Liveness], sides: Mapping[Value, int]) -> Liveness | None:
    """When one and only one of *choices* holds; None if that cannot be said.

    *sides* tells how many sides each predicate has.
    """
    common = frozenset.intersection(*choices)
    return common if _is_partition([choice - common for choice in choices], sides) else None


def _is_partition(choices: Sequence[Liveness], sides: Mapping[Value, int]) -> bool:
    """Whether one and only one of *choices* holds, whatever the predicates are."""
    if len(choices) == 1:
        return not choices[0]
    if not choices or not all(choices):
        return False
    for pred in frozenset.intersection(*[frozenset(pred for pred, _ in choice) for choice in choices]):
        parts: dict[int, list[Liveness]] = {side: [] for side in range(sides[pred])}
        for choice in choices:
            side = next(side for each, side in choice if each is pred)
            parts[side].append(choice - {(pred, side)})
        if all(_is_partition(part, sides) for part in parts.values()):
            return True
    return False


def truth(pred: object) -> bool:
    """Whether a predicate holds; InvalidArgumentError unless it is a scalar."""
    _check_scalar(pred)
    return bool(pred)


def chooser(sides: int) -> Callable[[Any], int]:
    """What gives the side that an index tells."""
    return partial(choose_side, sides)


def choose_side(sides: int, index: Any) -> int:
    """The one of so many *sides* that *index* tells: if it is out of range, the last."""
    _check_scalar(index)
    number = int(index)
    return number if 0 <= number < sides else sides - 1


def _check_scalar(value: Any) -> None:
    if np.ndim(value):
        shape = TensorShape(np.shape(value))
        raise InvalidArgumentError(f"The second input must be a scalar, but it has shape {shape}")


def number_of(index: int) -> Value:
    """The number of a Merge's input, as the Merge gives it."""
    return Value(constant=np.int32(index), is_scalar=True)
