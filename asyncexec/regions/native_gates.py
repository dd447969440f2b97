"""Native code of activations that are ``x / (1 + exp(e))``: swish, and GELU as ``ops/nn/fused_layers.py`` has it.

The exponential function is Moshier's approximation (Cephes, ``expf``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.ops.nn.fused_layers import GELU, GELU_BOUND, TANH
from asyncexec.regions.native_vectors import ITEM, joined, mask_lines, over_rows

GATE: Final = ("from_at", "to_at", "rows", "row", "count")
LARGEST: Final = 87.0  # of what an exponential is taken: beyond that nothing is left of a number, or all of it
_ROUNDING: Final = 1.5 * 2**23  # a number that has no bits for what is smaller than one
_LOG2: Final = (0.693359375, -2.12194440e-4)  # in two parts
_EXP: Final = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def write_gates(lanes: int) -> str:
    """The functions ``native_swish``, ``native_gelu`` and ``native_gelu_tanh``, of some rows of numbers."""
    negated = [f"%given_exponent = fneg <{lanes} x float> %x"]
    exact = _polynomial(lanes, GELU, GELU_BOUND)
    return "\n".join(
        [
            _gate("swish", lanes, negated),
            _gate("gelu", lanes, exact),
            _gate("gelu_tanh", lanes, _polynomial(lanes, TANH)),
        ]
    )


def all_of(value: float | np.float32, lanes: int) -> str:
    """A vector of the float32 next to *value*."""
    bits = struct.unpack("<Q", struct.pack("<d", float(np.float32(value))))[0]
    return f"<{', '.join([f'float 0x{bits:016X}'] * lanes)}>"


def exponential(lanes: int, prefix: str = "") -> list[str]:
    """``%scaled``: e to the power of ``%exponent``, -LARGEST to LARGEST; all names have the *prefix* before theirs."""
    vector, integers = f"<{lanes} x float>", f"<{lanes} x i32>"
    own = f"%{prefix}"

    def fma(name: str, one: str, other: str, added: str) -> str:
        return f"{own}{name} = call {vector} @llvm.fma.v{lanes}f32({vector} {one}, {vector} {other}, {vector} {added})"

    polynomial: list[str] = []
    last = all_of(_EXP[0], lanes)
    for number, coefficient in enumerate(_EXP[1:]):
        polynomial.append(fma(f"term{number}", last, f"{own}rest", all_of(coefficient, lanes)))
        last = f"{own}term{number}"
    shifts = ", ".join(["i32 23"] * lanes)
    return [
        fma("moved", f"{own}exponent", all_of(1 / math.log(2), lanes), all_of(_ROUNDING, lanes)),
        f"{own}power = fsub {vector} {own}moved, {all_of(_ROUNDING, lanes)}",
        fma("near", f"{own}power", all_of(-_LOG2[0], lanes), f"{own}exponent"),
        fma("rest", f"{own}power", all_of(-_LOG2[1], lanes), f"{own}near"),
        *polynomial,
        f"{own}square = fmul {vector} {own}rest, {own}rest",
        fma("rising", last, f"{own}square", f"{own}rest"),
        f"{own}mantissa = fadd {vector} {own}rising, {all_of(1.0, lanes)}",
        f"{own}bits = bitcast {vector} {own}moved to {integers}",
        f"{own}shifted = shl {integers} {own}bits, <{shifts}>",
        f"{own}mantissa_bits = bitcast {vector} {own}mantissa to {integers}",
        f"{own}scaled_bits = add {integers} {own}mantissa_bits, {own}shifted",
        f"{own}scaled = bitcast {integers} {own}scaled_bits to {vector}",
    ]


def _polynomial(lanes: int, coefficients: Sequence[np.float32], bound: np.float32 | None = None) -> list[str]:
    """``%given_exponent``: x times a polynomial in the square of x, which is *bound* at most."""
    vector = f"<{lanes} x float>"
    lines = [f"%square_free = fmul {vector} %x, %x"]
    square = "%square_free"
    if bound is not None:
        lines.append(f"%is_far = fcmp ogt {vector} %square_free, {all_of(bound, lanes)}")
        far = f"<{lanes} x i1> %is_far, {vector} {all_of(bound, lanes)}"
        lines.append(f"%square_bounded = select {far}, {vector} %square_free")
        square = "%square_bounded"
    last = all_of(coefficients[0], lanes)
    for number, coefficient in enumerate(coefficients[1:]):
        factors = f"{vector} {last}, {vector} {square}, {vector} {all_of(coefficient, lanes)}"
        lines.append(f"%power{number} = call {vector} @llvm.fma.v{lanes}f32({factors})")
        last = f"%power{number}"
    return [*lines, f"%given_exponent = fmul {vector} {last}, %x"]


def _gate(name: str, lanes: int, exponent: Sequence[str]) -> str:
    """The function *name*, with the lines that give ``%given_exponent``."""
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    largest, smallest = all_of(LARGEST, lanes), all_of(-LARGEST, lanes)
    lines = f"""br label %vectors
vectors:
 %first = phi i64 [ 0, %row_start ], [ %next_first, %vector ]
 %more = icmp ult i64 %first, %count
 br i1 %more, label %vector, label %row_end
vector:
 {joined(mask_lines("", lanes))}
 %at = getelementptr float, ptr %numbers, i64 %first
 %result_at = getelementptr float, ptr %results, i64 %first
 %x = call {vector} @llvm.masked.load.v{lanes}f32.p0(ptr %at, i32 {ITEM}, {mask} %mask, {vector} zeroinitializer)
 {joined(exponent)}
 %is_small = fcmp olt {vector} %given_exponent, {smallest}
 %not_small = select {mask} %is_small, {vector} {smallest}, {vector} %given_exponent
 %is_large = fcmp ogt {vector} %not_small, {largest}
 %exponent = select {mask} %is_large, {vector} {largest}, {vector} %not_small
 {joined(exponential(lanes))}
 %below = fadd {vector} %scaled, {all_of(1.0, lanes)}
 %swish = fdiv {vector} %x, %below
 %nothing = fmul {vector} %x, {all_of(0.0, lanes)}
 %bounded = select {mask} %is_large, {vector} %nothing, {vector} %swish
 %is_known = fcmp ord {vector} %x, %x
 %given = select {mask} %is_known, {vector} %bounded, {vector} %x
 call void @llvm.masked.store.v{lanes}f32.p0({vector} %given, ptr %result_at, i32 {ITEM}, {mask} %mask)
 %next_first = add i64 %first, {lanes}
 br label %vectors
row_end:"""
    return over_rows(name, GATE, (), [lines], "row_end")
