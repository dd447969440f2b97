"""The shape that an input of a random op spells, checked before memory is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.process.free_memory import check_room


def spelled_shape(value: Any, itemsize: int) -> tuple[int, ...]:
    """The sizes in *value*; an error when it spells no shape, or one too large for memory."""
    if np.ndim(value) != 1:
        raise InvalidArgumentError(f"shape must be a vector of {{int32,int64}}, got shape {list(np.shape(value))}")
    sizes = tuple(value.tolist())
    if any(size < 0 for size in sizes):
        raise InvalidArgumentError(f"Dimensions must be >= 0, got {list(sizes)}")
    check_room(math.prod(sizes) * itemsize)
    return sizes


def from_first_input(c: InferenceContext) -> Sequence[TensorShape]:
    """The output has the shape that the first input spells."""
    return [c.value_as_shape(0)]


def check_seed(seed: Any) -> None:
    """InvalidArgumentError unless *seed* is two integers."""
    if np.shape(seed) != (2,):
        raise InvalidArgumentError(f"seed must have shape [2], not {list(np.shape(seed))}")


def multinomial_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """[rows of logits, number of samples]."""
    logits = c.with_rank(0, 2)
    c.scalar(1)
    return [TensorShape([logits[0], c.int_value(1)])]
