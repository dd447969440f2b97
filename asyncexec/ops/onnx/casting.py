"""Cast, CastLike and BitCast.

Integers wrap around, floats round to nearest; the float8 types saturate unless told otherwise.  ``ml_dtypes`` knows the
small types and casts most of them; what numpy has no cast for goes by float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import as_array, refusing
from asyncexec.ops.onnx.onnx_dtypes import SATURATING, bit_width, numpy_dtype
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.string.string_elements import as_strings

Caster = Callable[[Any], Any]

_ROUND_MODES: Final = ("up", "down", "nearest")
_SPECIAL: Final = {b"+inf": np.inf, b"inf": np.inf, b"-inf": -np.inf, b"nan": np.nan}


@onnx_kernel("Cast", since=6)
@refusing
def make_cast(node: OnnxNode) -> Kernel:
    """The kernel of Cast."""
    cast = caster(numpy_dtype(node.attr("to")), *_float8_rules(node))
    return lambda x: (cast(x),)


@onnx_kernel("CastLike", since=15)
@refusing
def make_cast_like(node: OnnxNode) -> Kernel:
    """The kernel of CastLike: to the dtype of the second input."""
    casters: dict[NumpyDType, Caster] = {}
    saturates, round_mode = _float8_rules(node)

    def cast_like(x: object, like: object) -> tuple[object]:
        dtype = as_array(like).dtype
        cast = casters.get(dtype)
        if cast is None:
            cast = casters[dtype] = caster(dtype, saturates, round_mode)
        return (cast(x),)

    return cast_like


def _float8_rules(node: OnnxNode) -> tuple[bool, str]:
    round_mode = node.text("round_mode", "up")
    if round_mode not in _ROUND_MODES:
        raise InvalidArgumentError(f"round_mode must be one of {', '.join(_ROUND_MODES)}, not {round_mode!r}")
    return bool(node.attr("saturate", 1)), round_mode


def caster(target: NumpyDType, saturates: bool = True, round_mode: str = "up") -> Caster:
    """What casts a tensor of any dtype to *target*."""
    if target.kind == "O":
        return to_strings
    if target.name == "float8_e8m0fnu":
        convert: Caster = _exponent_caster(target, saturates, round_mode)
    elif target.name in SATURATING and saturates:
        convert = _saturating_caster(target)
    else:
        convert = _plain_caster(target)

    def cast(x: Any) -> ArrayOrScalar:
        if isinstance(x, bytes) or x.dtype.kind == "O":
            return convert(numbers_of(as_array(x), target))
        return x if x.dtype == target else convert(x)

    return cast


def _plain_caster(target: NumpyDType) -> Caster:
    if bit_width(target) < 8 and target.name.lstrip("u").startswith("int"):
        return _small_integer_caster(target)

    def cast(x: ArrayOrScalar) -> ArrayOrScalar:
        if target.kind == "V" and x.dtype.kind == "V":  # ml_dtypes knows no cast between some of its own
            x = x.astype(np.float32)
        return x.astype(target)

    return cast


def _small_integer_caster(target: NumpyDType) -> Caster:
    """To an integer of 2 or 4 bits: the higher bits are cut off."""
    bits = bit_width(target)
    sign = 0 if target.name.startswith("u") else 1 << (bits - 1)
    mask = (1 << bits) - 1

    def cast(x: Any) -> ArrayOrScalar:
        whole = x.astype(np.float32) if x.dtype.kind == "V" else x
        whole = whole.astype(np.int64)
        return (((whole & mask) ^ sign) - sign).astype(np.int8).astype(target)

    return cast


def _saturating_caster(target: NumpyDType) -> Caster:
    largest = float(require("ml_dtypes", extra="ops").finfo(target).max)

    def cast(x: ArrayOrScalar) -> ArrayOrScalar:
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 or x.dtype.kind != "f" else x
        return np.clip(wide, -largest, largest).astype(target)

    return cast


def _exponent_caster(target: NumpyDType, saturates: bool, round_mode: str) -> Caster:
    """To float8e8m0, which has nothing but an exponent: the bits of float32, with the fraction rounded away."""

    def cast(x: object) -> ArrayOrScalar:
        bits = np.asarray(x, np.float32).view(np.uint32)
        exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
        if round_mode == "up":
            rounds_up = fraction > 0
        elif round_mode == "down":
            rounds_up = np.zeros(bits.shape, np.bool_)
        else:
            half = 0x400000
            rounds_up = (fraction > half) | ((fraction == half) & (exponent > 0))
        if saturates:
            rounds_up &= exponent != 0xFE
        exponent = exponent + (rounds_up & (exponent != 0xFF))
        return exponent.astype(np.uint8).view(target)

    return cast


def numbers_of(x: Array, target: NumpyDType) -> Array:
    """The numbers that strings tell, ready to be cast to *target*."""
    if target.kind in "iub":
        return np.array([_whole_number(text) for text in x.ravel()], object).astype(np.int64).reshape(x.shape)
    wide = np.float64 if target.name == "float64" else np.float32
    return np.array([_real_number(text) for text in x.ravel()], np.float64).astype(wide).reshape(x.shape)


def _whole_number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        number = _real_number(text)
    if not abs(number) < 2**63:
        raise InvalidArgumentError(f"{_shown(text)} is no integer of 64 bits")
    return int(number)


def _real_number(text: bytes) -> float:
    special = _SPECIAL.get(text.strip().lower())
    if special is not None:
        return special
    try:
        return float(text)
    except ValueError:
        raise InvalidArgumentError(f"{_shown(text)} is no number") from None


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("utf-8", "replace"))


def to_strings(x: ArrayOrScalar | bytes) -> object:
    """Each number as the shortest text that tells it."""
    if isinstance(x, bytes) or x.dtype.kind == "O":
        return x
    x = x.astype(np.float32) if x.dtype.kind == "V" else x
    return as_strings([str(text).encode() for text in x.astype(np.str_).ravel()], x.shape)


@onnx_kernel("BitCast", since=26)
@refusing
def make_bit_cast(node: OnnxNode) -> Kernel:
    """The kernel of BitCast: the same bits as another dtype of the same width."""
    target = numpy_dtype(node.attr("to"))
    if target.kind == "O":
        raise InvalidArgumentError("BitCast knows no strings")

    def bit_cast(x: ArrayOrScalar) -> tuple[ArrayOrScalar]:
        source = as_array(x).dtype
        if source.kind == "O" or bit_width(source) != bit_width(target):
            raise InvalidArgumentError(f"{source.name} and {target.name} are not of one width")
        if bit_width(target) < 8:
            return (_small_bits(x, target),)
        return (x.view(target),)

    return bit_cast


def _small_bits(x: object, target: NumpyDType) -> Any:
    """The low bits of each byte of *x*; a signed integer has its sign in all bits above."""
    bits = bit_width(target)
    sign = 1 << (bits - 1) if target.name.startswith("int") else 0
    return (((np.asarray(x).view(np.uint8) & ((1 << bits) - 1)) ^ sign) - sign).astype(np.uint8).view(target)
