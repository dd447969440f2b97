"""ONNX's data types: the numbers of ``TensorProto.DataType``, as numpy dtypes."""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require

STRING: Final = 8
FLOAT8E8M0: Final = 24
_NUMPY: Final = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    STRING: "object",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
}
_ML_DTYPES: Final = {
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    FLOAT8E8M0: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
_BITS: Final = {
    "uint4": 4,
    "int4": 4,
    "float4_e2m1fn": 4,
    "uint2": 2,
    "int2": 2,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
SATURATING: Final = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})


def numpy_dtype(number: int) -> NumpyDType:
    """The numpy dtype of an ONNX data type, object for strings; InvalidArgumentError where there is none."""
    if number in _NUMPY:
        return np.dtype(_NUMPY[number])
    if number in _ML_DTYPES:
        dtype: NumpyDType = np.dtype(getattr(require("ml_dtypes", extra="ops"), _ML_DTYPES[number]))
        return dtype
    raise InvalidArgumentError(f"{number} is no data type of ONNX")


def bit_width(dtype: NumpyDType) -> int:
    """Bits that an element has in ONNX; numpy takes a byte for those with fewer than 8."""
    return _BITS.get(str(dtype.name)) or 8 * int(dtype.itemsize)
