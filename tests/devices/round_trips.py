"""Values to send to a device and back: every dtype, every shape, every layout."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

DTYPES: Final = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
).split()


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _values(dtype: np.dtype[Any]) -> list[Any]:
    numbers = np.arange(24).reshape(2, 3, 4)
    array = numbers % 3 == 0 if dtype.kind == "b" else (numbers * (1 - 2j) if dtype.kind == "c" else numbers)
    array = array.astype(dtype)
    read_only = array[0].copy()
    read_only.flags.writeable = False
    extremes: list[Any] = []
    if dtype.kind in "iu":
        extremes = [np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)]
    elif dtype.kind in "fcV":
        extremes = [np.array([np.inf, -np.inf, np.nan, -0.0], np.float32).astype(dtype)]
    empty = [np.empty(shape, dtype) for shape in ((0,), (3, 0, 2))]
    return [array, array[1, 2, 3], array[:1, :1, :1], array.T, array[:, ::2], read_only, *empty, *extremes]


# dtype -> arrays and one scalar of it
ARRAYS: Final = {name: _values(numpy_dtype(name)) for name in DTYPES}


def layouts() -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of float32 that lie in memory in every way there is."""
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6)
    return {
        "plain": base,
        "transposed": base.T,
        "every other": base[::2, 1::3],
        "backwards": base[::-1, ::-2],
        "broadcast": np.broadcast_to(base[0], (5, 6)),
        "read-only": np.frombuffer(base.tobytes(), np.float32),
        "Fortran": np.asfortranarray(base),
        "other byte order": base.astype(base.dtype.newbyteorder()),
        "unaligned": unaligned,
    }


def assert_same(got: Any, expected: Any) -> None:
    """AssertionError unless both are of one dtype and shape, and the same to the bit, NaN and -0.0 too."""
    assert isinstance(got, np.generic) == (np.ndim(expected) == 0)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()
