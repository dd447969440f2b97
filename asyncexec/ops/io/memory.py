"""A check of sizes that come from inputs, before memory is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError

MAX_BYTES: Final = 2**40


def check_size(shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """ResourceExhaustedError for a tensor too large to be meant, InvalidArgumentError for a negative size."""
    if any(size < 0 for size in shape):
        raise InvalidArgumentError(f"a shape has no negative sizes: {list(shape)}")
    if math.prod(shape) * dtype.itemsize > MAX_BYTES:
        raise ResourceExhaustedError(f"OOM when allocating tensor with shape{list(shape)} and type {dtype.name}")
