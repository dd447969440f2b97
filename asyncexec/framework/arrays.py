"""What type checkers are told of numpy's arrays: of any shape, with elements of any type."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
ArrayOrScalar: TypeAlias = Array | np.generic  # a value of rank 0 is a numpy scalar, unless it is text
NumpyDType: TypeAlias = np.dtype[Any]
