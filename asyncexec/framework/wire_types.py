"""What the wire models are made of: a base class and the scalar types of the proto3-JSON mapping.

The mapping (https://protobuf.dev/programming-guides/json): names in camelCase (snake_case accepted), 64-bit integers
as strings (numbers accepted), bytes in base64, floats as numbers or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, enums
by name (numbers accepted), fields at their default left out.  Numbers and names of the enums are those of
``types.proto`` and ``full_type.proto`` in ``tensorflow/core/framework``.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from asyncexec.framework.types import ALL_DTYPES, DType

_new, _set = object.__new__, object.__setattr__


def camel_case(name: str) -> str:
    """The JSON name of a proto field."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class WireModel(BaseModel):
    """Base of the models that mirror a protobuf message: frozen, unknown fields refused, built only when first used.

    There are two fast constructors that check nothing, for values that come from a parsed message: ``model_construct``
    takes some fields, ``from_fields`` all of them.  Both want Python field names, tuples for repeated fields and
    mappings that nobody will change: equal ones are shared.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=camel_case,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
        protected_namespaces=(),
    )
    _defaults: ClassVar[dict[str, Any] | None] = None
    _all_fields: ClassVar[set[str]] = set()

    @classmethod
    def field_defaults(cls) -> dict[str, Any]:
        """A fresh dict of every field at its default."""
        if "_defaults" not in cls.__dict__:
            cls._defaults = {name: info.default for name, info in cls.__pydantic_fields__.items()}
            cls._all_fields = set(cls._defaults)
        assert cls._defaults is not None
        return cls._defaults.copy()

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: object) -> Self:
        """A model of trusted *values*, the other fields at their defaults; nothing is checked."""
        fields = cls.field_defaults()
        fields.update(values)
        return cls.from_fields(fields)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """A model that takes over *fields* (every field, trusted, by Python name); nothing is checked."""
        model = _new(cls)
        _set(model, "__dict__", fields)
        _set(model, "__pydantic_fields_set__", cls._all_fields)
        _set(model, "__pydantic_extra__", None)
        _set(model, "__pydantic_private__", None)
        return model

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        defaults = self.field_defaults()
        return ((name, value) for name, value in self.__dict__.items() if name in defaults and value != defaults[name])

    def to_json(self, *, indent: int | None = None) -> str:
        """The proto3-JSON text, defaults left out."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True, indent=indent)


def _decode_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from None


def _encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def round_float32(value: float) -> float:
    """The float32 nearest to *value*, as a Python float; ValueError when it is too large for one."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError(f"{value!r} is too large for a 32-bit float") from None
    return rounded


_FLOAT_NAMES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _read_float64(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    return _FLOAT_NAMES.get(value, value) if isinstance(value, str) else value


def _read_float32(value: object) -> object:
    number = _read_float64(value)
    return round_float32(float(number)) if isinstance(number, (int, float, str)) else number


def _write_float64(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# What float32's largest value is written as; anything above it may round to infinity.
_MAX_FLOAT32_TEXT: Final = 3.4028235e38


def _write_float32(value: float) -> float | str:
    """The shortest decimal that is the same float32, as protobuf writes it."""
    if not math.isfinite(value):
        return _write_float64(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= _MAX_FLOAT32_TEXT and round_float32(short) == value:
            return short
    return float(f"{value:.9g}")


class WireEnum:
    """An open proto3 enum kept as its number; JSON has the name where there is one."""

    def __init__(self, what: str, numbers: Mapping[str, int]) -> None:
        self.what = what
        self.numbers = numbers
        self.names: dict[int, str] = {number: name for name, number in numbers.items()}

    def read(self, value: object) -> Any:
        if isinstance(value, DType):
            return value.enum
        if isinstance(value, str):
            if value not in self.numbers:
                raise ValueError(f"{value!r} is not a {self.what}")
            return self.numbers[value]
        if isinstance(value, bool):
            raise ValueError(f"a boolean is not a {self.what}")
        return value

    def write(self, value: int) -> str | int:
        return self.names.get(value, value)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self.numbers), "type": "string"}, {"type": "integer"}]}


def _data_types() -> dict[str, int]:
    """``DT_*`` by name: TensorFlow's, their reference types, and those that TensorFlow does not have."""
    known = {"DT_INVALID": 0} | {dtype.proto_name: dtype.enum for dtype in ALL_DTYPES}
    ours = {name: number for name, number in known.items() if number >= 1000}
    numbers = {name: number for name, number in sorted(known.items(), key=lambda item: item[1]) if name not in ours}
    return numbers | {f"{name}_REF": number + 100 for name, number in numbers.items() if number} | ours


DATA_TYPES: Final = WireEnum("data type", _data_types())
FULL_TYPES: Final = WireEnum(
    "full type",
    {
        "TFT_UNSET": 0,
        "TFT_VAR": 1,
        "TFT_ANY": 2,
        "TFT_PRODUCT": 3,
        "TFT_NAMED": 4,
        "TFT_FOR_EACH": 20,
        "TFT_CALLABLE": 100,
        "TFT_BOOL": 200,
        "TFT_UINT8": 201,
        "TFT_UINT16": 202,
        "TFT_UINT32": 203,
        "TFT_UINT64": 204,
        "TFT_INT8": 205,
        "TFT_INT16": 206,
        "TFT_INT32": 207,
        "TFT_INT64": 208,
        "TFT_HALF": 209,
        "TFT_FLOAT": 210,
        "TFT_DOUBLE": 211,
        "TFT_COMPLEX64": 212,
        "TFT_COMPLEX128": 213,
        "TFT_STRING": 214,
        "TFT_BFLOAT16": 215,
        "TFT_TENSOR": 1000,
        "TFT_ARRAY": 1001,
        "TFT_OPTIONAL": 1002,
        "TFT_LITERAL": 1003,
        "TFT_ENCODED": 1004,
        "TFT_SHAPE_TENSOR": 1005,
        "TFT_DATASET": 10102,
        "TFT_RAGGED": 10103,
        "TFT_ITERATOR": 10104,
        "TFT_MUTEX_LOCK": 10202,
        "TFT_LEGACY_VARIANT": 10203,
    },
)

_INT64_SCHEMA: Final = {"anyOf": [{"pattern": "^-?[0-9]+$", "type": "string"}, {"type": "integer"}]}
_FLOAT_SCHEMA: Final = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"], "type": "string"}]}


def _whole(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    return value


def _as_string(value: int) -> str:
    return str(value)


Int32 = Annotated[int, BeforeValidator(_whole), Field(ge=-(2**31), lt=2**31)]
UInt32 = Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=2**32)]
Int64 = Annotated[
    int,
    BeforeValidator(_whole),
    Field(ge=-(2**63), lt=2**63),
    PlainSerializer(_as_string, when_used="json"),
    WithJsonSchema(_INT64_SCHEMA),
]
UInt64 = Annotated[
    int,
    BeforeValidator(_whole),
    Field(ge=0, lt=2**64),
    PlainSerializer(_as_string, when_used="json"),
    WithJsonSchema(_INT64_SCHEMA),
]
Float32 = Annotated[
    float,
    BeforeValidator(_read_float32),
    PlainSerializer(_write_float32, when_used="json"),
    WithJsonSchema(_FLOAT_SCHEMA),
]
Float64 = Annotated[
    float,
    BeforeValidator(_read_float64),
    PlainSerializer(_write_float64, when_used="json"),
    WithJsonSchema(_FLOAT_SCHEMA),
]
Base64Bytes = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    PlainSerializer(_encode_base64, when_used="json"),
    WithJsonSchema({"contentEncoding": "base64", "type": "string"}),
]
DataType = Annotated[
    int,
    BeforeValidator(DATA_TYPES.read),
    Field(ge=-(2**31), lt=2**31),
    PlainSerializer(DATA_TYPES.write, when_used="json"),
    WithJsonSchema(DATA_TYPES.json_schema()),
]
FullTypeId = Annotated[
    int,
    BeforeValidator(FULL_TYPES.read),
    Field(ge=-(2**31), lt=2**31),
    PlainSerializer(FULL_TYPES.write, when_used="json"),
    WithJsonSchema(FULL_TYPES.json_schema()),
]
