"""Native code of swishes, by Moshier's approximation of the exponential function (Cephes, ``expf``)."""

from __future__ import annotations

import math
import struct
from typing import Final

from asyncexec.regions.native_vectors import ITEM, joined, read_arguments

SWISH: Final = ("numbers_at", "rows", "row", "count")
_LARGEST: Final = 87.0  # of what an exponential is taken: beyond that a swish is nothing, or all of its number
_ROUNDING: Final = 1.5 * 2**23  # a number that has no bits for what is smaller than one
_LOG2: Final = (0.693359375, -2.12194440e-4)  # in two parts
_EXP: Final = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def write_swish(lanes: int) -> str:
    """The function that makes swishes of some rows of numbers: ``x / (1 + exp(-x))``."""
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    integers = f"<{lanes} x i32>"
    places = ", ".join(f"i32 {place}" for place in range(lanes))

    def all_of(value: float) -> str:
        """A vector of the float32 next to *value*."""
        bits = struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<f", value))[0]))[0]
        return f"<{', '.join([f'float 0x{bits:016X}'] * lanes)}>"

    def fma(name: str, one: str, other: str, added: str) -> str:
        return f"%{name} = call {vector} @llvm.fma.v{lanes}f32({vector} {one}, {vector} {other}, {vector} {added})"

    polynomial: list[str] = []
    last = all_of(_EXP[0])
    for number, coefficient in enumerate(_EXP[1:]):
        polynomial.append(fma(f"term{number}", last, "%rest", all_of(coefficient)))
        last = f"%term{number}"
    shifts = ", ".join(["i32 23"] * lanes)
    return f"""
define void @native_swish(ptr %arguments) {{
entry:
 {read_arguments(SWISH)}
 br label %rows_start
rows_start:
 %number = phi i64 [ 0, %entry ], [ %next_number, %row_end ]
 %more_rows = icmp ult i64 %number, %rows
 br i1 %more_rows, label %row_start, label %end
row_start:
 %row_offset = mul i64 %number, %row
 %numbers = getelementptr i8, ptr %numbers_at, i64 %row_offset
 br label %vectors
vectors:
 %first = phi i64 [ 0, %row_start ], [ %next_first, %vector ]
 %more = icmp ult i64 %first, %count
 br i1 %more, label %vector, label %row_end
vector:
 %left = sub i64 %count, %first
 %is_last = icmp ult i64 %left, {lanes}
 %num_here = select i1 %is_last, i64 %left, i64 {lanes}
 %num_here32 = trunc i64 %num_here to i32
 %num_here_one = insertelement {integers} poison, i32 %num_here32, i32 0
 %num_here_all = shufflevector {integers} %num_here_one, {integers} poison, {integers} zeroinitializer
 %mask = icmp ult {integers} <{places}>, %num_here_all
 %at = getelementptr float, ptr %numbers, i64 %first
 %x = call {vector} @llvm.masked.load.v{lanes}f32.p0(ptr %at, i32 {ITEM}, {mask} %mask, {vector} zeroinitializer)
 %minus = fneg {vector} %x
 %is_small = fcmp olt {vector} %minus, {all_of(-_LARGEST)}
 %not_small = select {mask} %is_small, {vector} {all_of(-_LARGEST)}, {vector} %minus
 %is_large = fcmp ogt {vector} %not_small, {all_of(_LARGEST)}
 %exponent = select {mask} %is_large, {vector} {all_of(_LARGEST)}, {vector} %not_small
 {fma("moved", "%exponent", all_of(1 / math.log(2)), all_of(_ROUNDING))}
 %power = fsub {vector} %moved, {all_of(_ROUNDING)}
 {fma("near", "%power", all_of(-_LOG2[0]), "%exponent")}
 {fma("rest", "%power", all_of(-_LOG2[1]), "%near")}
 {joined(polynomial)}
 %square = fmul {vector} %rest, %rest
 {fma("rising", last, "%square", "%rest")}
 %mantissa = fadd {vector} %rising, {all_of(1.0)}
 %bits = bitcast {vector} %moved to {integers}
 %shifted = shl {integers} %bits, <{shifts}>
 %mantissa_bits = bitcast {vector} %mantissa to {integers}
 %scaled_bits = add {integers} %mantissa_bits, %shifted
 %scaled = bitcast {integers} %scaled_bits to {vector}
 %below = fadd {vector} %scaled, {all_of(1.0)}
 %swish = fdiv {vector} %x, %below
 %nothing = fmul {vector} %x, {all_of(0.0)}
 %bounded = select {mask} %is_large, {vector} %nothing, {vector} %swish
 %is_known = fcmp ord {vector} %x, %x
 %given = select {mask} %is_known, {vector} %bounded, {vector} %x
 call void @llvm.masked.store.v{lanes}f32.p0({vector} %given, ptr %at, i32 {ITEM}, {mask} %mask)
 %next_first = add i64 %first, {lanes}
 br label %vectors
row_end:
 %next_number = add i64 %number, 1
 br label %rows_start
end:
 ret void
}}"""
