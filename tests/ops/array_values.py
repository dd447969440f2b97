"""Small arrays of any dtype for the cases of the array families."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

REAL: Final = (
    "float32",
    "float64",
    "float16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
NUMBER: Final = (*REAL, "complex64", "complex128")
POD: Final = (*NUMBER, "bool")
POD_STRING: Final = (*POD, "string")


def values(dtype: str, *shape: int, start: int = 0) -> Any:
    """An array of that shape whose elements differ where the dtype allows it."""
    count = int(np.prod(shape))
    numbers = np.arange(start, start + count)
    if dtype == "string":
        array = np.empty(count, object)
        array[:] = [b"s%d" % number for number in numbers.tolist()]
    elif dtype == "bool":
        array = numbers % 3 != 1
    elif dtype.startswith("complex"):
        array = (numbers + 1j * (numbers % 4)).astype(dtype)
    else:
        array = numbers.astype(dtype)
    array = array.reshape(shape)
    return array if shape else array.item() if dtype == "string" else array[()]
