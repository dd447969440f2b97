"""Data types: TensorFlow's names and numbers, numpy's layouts.

The numbers are those of ``tensorflow/core/framework/types.proto``; a reference type is its base plus 100.
A tensor has no wrapper here: it is a numpy array, a numpy scalar when 0-d, ``bytes`` for a 0-d string, an object
array of ``bytes`` for other strings, and any Python value under ``object``, ``resource`` and ``variant``.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import NumpyDType
from asyncexec.framework.errors import InvalidTypeError
from asyncexec.framework.extras import require

_REF_OFFSET: Final = 100


class DType:
    """An element type.  Instances are unique, so they compare by identity.  ``as_dtype`` raises InvalidTypeError.

    >>> ax.int16.is_integer, ax.int16.itemsize, ax.int16.as_numpy_dtype
    (True, 2, dtype('int16'))

    Attributes:
        name: TensorFlow's Python name, such as ``float32``; a reference type ends in ``_ref``.
        enum: TensorFlow's number in ``types.proto``; from 1000 on those that TensorFlow does not have: ``object``, and
            ``float8_e8m0fnu`` of ONNX.
        proto_name: TensorFlow's enum name, such as ``DT_FLOAT``.
        is_ref: whether it is a reference to a variable's buffer.
    """

    __slots__ = ("_base", "_np_name", "_np_dtype", "_ref", "enum", "is_ref", "name", "proto_name")

    def __init__(self, name: str, enum: int, proto_name: str, np_name: str | None, base: DType | None = None) -> None:
        self.name: str = name
        self.enum: int = enum
        self.proto_name: str = proto_name
        self.is_ref: builtins.bool = base is not None
        self._base = base
        self._np_name = np_name
        self._np_dtype: NumpyDType | None = None
        self._ref: DType | None = None

    @property
    def base_dtype(self) -> DType:
        """The type referred to, or the type itself."""
        return self._base or self

    @property
    def as_ref(self) -> DType:
        """The reference type of this type."""
        if self.is_ref or self is object:
            return self
        if self._ref is None:
            ref_name = self.proto_name + "_REF"
            self._ref = DType(self.name + "_ref", self.enum + _REF_OFFSET, ref_name, self._np_name, self)
        return self._ref

    @property
    def as_numpy_dtype(self) -> NumpyDType:
        """The numpy dtype of the arrays that carry it (``object`` for strings, handles and Python values)."""
        if self._np_dtype is None:
            if self._np_name is None:
                self._np_dtype = np.dtype(np.object_)
            elif self._np_name.startswith("ml:"):
                module = require("ml_dtypes", extra="ops")
                self._np_dtype = np.dtype(getattr(module, self._np_name.removeprefix("ml:")))
            else:
                self._np_dtype = np.dtype(self._np_name)
        return self._np_dtype

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in an array."""
        return self.as_numpy_dtype.itemsize

    @property
    def is_floating(self) -> builtins.bool:
        return self.base_dtype in _FLOATING

    @property
    def is_integer(self) -> builtins.bool:
        return self.base_dtype in _INTEGER

    @property
    def is_unsigned(self) -> builtins.bool:
        return self.base_dtype in _UNSIGNED

    @property
    def is_complex(self) -> builtins.bool:
        return self.base_dtype in _COMPLEX

    @property
    def is_bool(self) -> builtins.bool:
        return self.base_dtype is bool

    @property
    def is_numeric(self) -> builtins.bool:
        """Whether its elements are numbers in a numpy array (bool excluded)."""
        return self.is_floating or self.is_integer or self.is_complex

    @property
    def is_opaque(self) -> builtins.bool:
        """Whether a value is one Python object without dtype or shape of its own (resource, variant, object)."""
        return self.base_dtype in _OPAQUE

    def is_compatible_with(self, other: DType) -> builtins.bool:
        """Whether a value of type *other* can stand where this type is wanted (a reference can be read)."""
        return self is other or (not self.is_ref and other.is_ref and other.base_dtype is self)

    def __repr__(self) -> str:
        return f"asyncexec.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))


def _make() -> dict[str, DType]:
    table: list[tuple[str, int, str, str | None]] = [
        ("float32", 1, "DT_FLOAT", "float32"),
        ("float64", 2, "DT_DOUBLE", "float64"),
        ("int32", 3, "DT_INT32", "int32"),
        ("uint8", 4, "DT_UINT8", "uint8"),
        ("int16", 5, "DT_INT16", "int16"),
        ("int8", 6, "DT_INT8", "int8"),
        ("string", 7, "DT_STRING", None),
        ("complex64", 8, "DT_COMPLEX64", "complex64"),
        ("int64", 9, "DT_INT64", "int64"),
        ("bool", 10, "DT_BOOL", "bool"),
        ("qint8", 11, "DT_QINT8", "int8"),
        ("quint8", 12, "DT_QUINT8", "uint8"),
        ("qint32", 13, "DT_QINT32", "int32"),
        ("bfloat16", 14, "DT_BFLOAT16", "ml:bfloat16"),
        ("qint16", 15, "DT_QINT16", "int16"),
        ("quint16", 16, "DT_QUINT16", "uint16"),
        ("uint16", 17, "DT_UINT16", "uint16"),
        ("complex128", 18, "DT_COMPLEX128", "complex128"),
        ("float16", 19, "DT_HALF", "float16"),
        ("resource", 20, "DT_RESOURCE", None),
        ("variant", 21, "DT_VARIANT", None),
        ("uint32", 22, "DT_UINT32", "uint32"),
        ("uint64", 23, "DT_UINT64", "uint64"),
        ("float8_e5m2", 24, "DT_FLOAT8_E5M2", "ml:float8_e5m2"),
        ("float8_e4m3fn", 25, "DT_FLOAT8_E4M3FN", "ml:float8_e4m3fn"),
        ("float8_e4m3fnuz", 26, "DT_FLOAT8_E4M3FNUZ", "ml:float8_e4m3fnuz"),
        ("float8_e4m3b11fnuz", 27, "DT_FLOAT8_E4M3B11FNUZ", "ml:float8_e4m3b11fnuz"),
        ("float8_e5m2fnuz", 28, "DT_FLOAT8_E5M2FNUZ", "ml:float8_e5m2fnuz"),
        ("int4", 29, "DT_INT4", "ml:int4"),
        ("uint4", 30, "DT_UINT4", "ml:uint4"),
        ("int2", 31, "DT_INT2", "ml:int2"),
        ("uint2", 32, "DT_UINT2", "ml:uint2"),
        ("float4_e2m1fn", 33, "DT_FLOAT4_E2M1FN", "ml:float4_e2m1fn"),
        ("object", 1000, "DT_OBJECT", None),
        ("float8_e8m0fnu", 1001, "DT_FLOAT8_E8M0FNU", "ml:float8_e8m0fnu"),
    ]
    return {name: DType(name, enum, proto, np_name) for name, enum, proto, np_name in table}


_BY_NAME: Final = _make()

float16: Final = _BY_NAME["float16"]
float32: Final = _BY_NAME["float32"]
float64: Final = _BY_NAME["float64"]
bfloat16: Final = _BY_NAME["bfloat16"]
float8_e5m2: Final = _BY_NAME["float8_e5m2"]
float8_e4m3fn: Final = _BY_NAME["float8_e4m3fn"]
float8_e4m3fnuz: Final = _BY_NAME["float8_e4m3fnuz"]
float8_e4m3b11fnuz: Final = _BY_NAME["float8_e4m3b11fnuz"]
float8_e5m2fnuz: Final = _BY_NAME["float8_e5m2fnuz"]
float8_e8m0fnu: Final = _BY_NAME["float8_e8m0fnu"]
float4_e2m1fn: Final = _BY_NAME["float4_e2m1fn"]
int2: Final = _BY_NAME["int2"]
uint2: Final = _BY_NAME["uint2"]
int4: Final = _BY_NAME["int4"]
uint4: Final = _BY_NAME["uint4"]
int8: Final = _BY_NAME["int8"]
int16: Final = _BY_NAME["int16"]
int32: Final = _BY_NAME["int32"]
int64: Final = _BY_NAME["int64"]
uint8: Final = _BY_NAME["uint8"]
uint16: Final = _BY_NAME["uint16"]
uint32: Final = _BY_NAME["uint32"]
uint64: Final = _BY_NAME["uint64"]
complex64: Final = _BY_NAME["complex64"]
complex128: Final = _BY_NAME["complex128"]
qint8: Final = _BY_NAME["qint8"]
quint8: Final = _BY_NAME["quint8"]
qint16: Final = _BY_NAME["qint16"]
quint16: Final = _BY_NAME["quint16"]
qint32: Final = _BY_NAME["qint32"]
string: Final = _BY_NAME["string"]
resource: Final = _BY_NAME["resource"]
variant: Final = _BY_NAME["variant"]
bool: Final = _BY_NAME["bool"]  # noqa: A001 - TensorFlow's name, reached as ax.bool
object: Final = _BY_NAME["object"]  # noqa: A001 - reached as ax.object

FLOAT8_DTYPES: Final = frozenset(
    {float8_e5m2, float8_e4m3fn, float8_e4m3fnuz, float8_e4m3b11fnuz, float8_e5m2fnuz, float8_e8m0fnu}
)
_SMALL: Final = FLOAT8_DTYPES | {float4_e2m1fn, int2, uint2, int4, uint4}
_FLOATING = frozenset({float16, float32, float64, bfloat16, float4_e2m1fn}) | FLOAT8_DTYPES
_QUANTIZED = frozenset({qint8, quint8, qint16, quint16, qint32})
_UNSIGNED = frozenset({uint2, uint4, uint8, uint16, uint32, uint64})
_INTEGER = frozenset({int2, int4, int8, int16, int32, int64}) | _UNSIGNED
_COMPLEX = frozenset({complex64, complex128})
_OPAQUE = frozenset({resource, variant, object})

ALL_DTYPES: Final[tuple[DType, ...]] = tuple(_BY_NAME.values())
NUMBER_DTYPES: Final = frozenset(_INTEGER | _FLOATING | _COMPLEX | _QUANTIZED) - _SMALL
REAL_NUMBER_DTYPES: Final = NUMBER_DTYPES - _COMPLEX - _QUANTIZED

_BY_ENUM: Final = {dtype.enum: dtype for dtype in ALL_DTYPES}
_BY_PROTO_NAME: Final = {dtype.proto_name: dtype for dtype in ALL_DTYPES}
_ALIASES: Final = {"half": float16, "float": float32, "double": float64, "str": string, "bytes": string}
# Quantized types share numpy layouts with plain integers: a numpy dtype always means the plain one.
_BY_NUMPY: Final = {
    np.dtype(dtype._np_name): dtype
    for dtype in ALL_DTYPES
    if dtype._np_name is not None and not dtype._np_name.startswith("ml:") and dtype not in _QUANTIZED
}
_PYTHON_TYPES: Final[dict[Any, DType]] = {
    builtins.float: float32,
    builtins.int: int32,
    builtins.bool: bool,
    builtins.complex: complex128,
    builtins.bytes: string,
    builtins.str: string,
    builtins.object: object,
}


def _with_ref(dtype: DType, is_ref: Any) -> DType:
    return dtype.as_ref if is_ref else dtype


def as_dtype(value: Any) -> DType:
    """The DType of *value*: a DType, TensorFlow's name, enum name or number of one, a numpy dtype, or a Python type.

    >>> ax.as_dtype("float32") is ax.as_dtype(np.float32) is ax.float32
    True

    Raises:
        InvalidTypeError: *value* is no dtype.
    """
    if isinstance(value, DType):
        return value
    found: DType | None = None
    if isinstance(value, str):
        name = value.removesuffix("_REF").removesuffix("_ref")
        found = _BY_NAME.get(name) or _BY_PROTO_NAME.get(name) or _ALIASES.get(name)
        if found is not None:
            return _with_ref(found, name != value)
    elif isinstance(value, int):
        is_ref = _REF_OFFSET < value < 2 * _REF_OFFSET
        found = _BY_ENUM.get(value - _REF_OFFSET if is_ref else value)
        if found is not None:
            return _with_ref(found, is_ref)
    elif isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    if found is None and value is not None:  # which numpy takes for float64
        found = _from_numpy(value)
    if found is None:
        raise InvalidTypeError(f"{value!r} is not a data type", hint="use one like ax.float32, 'int64' or np.bool_")
    return found


def _from_numpy(value: Any) -> DType | None:
    try:
        np_dtype = np.dtype(value)
    except TypeError:
        return None
    if np_dtype.kind in "SUT":
        return string
    if np_dtype.kind == "O":
        return object
    return _BY_NUMPY.get(np_dtype.newbyteorder("=")) or _BY_NAME.get(np_dtype.name)


def dtype_names(dtypes: Iterable[DType]) -> str:
    """Names of several types for a message, in TensorFlow's order: ``float32, int32``."""
    return ", ".join(dtype.name for dtype in sorted(dtypes, key=lambda d: d.enum))
