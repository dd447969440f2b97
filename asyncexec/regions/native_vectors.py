"""Words of the native code of layers: what a processor has, and lines that several functions have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

ITEM: Final = 4  # bytes
# The arguments of a convolution (``native_layers.py``).
CONVOLUTION: Final = (
    *("x_at", "filters_at", "out_at", "bias_at", "added_at"),
    *("image", "line", "pixel", "tap_rows", "tap_row", "tap_columns", "tap_column", "depth"),
    *("rows", "columns", "out_pixel", "channels", "panel", "first_row", "end_row", "first_panel", "end_panel"),
)


@dataclass(frozen=True, slots=True)
class Registers:
    """What a kind of processor has.

    Attributes:
        lanes: how many numbers a vector holds.
        pixels: how many of them a convolution takes at a time: what fits best first, and less for what is left.
    """

    lanes: int
    pixels: tuple[int, ...]

    @property
    def panel(self) -> int:
        """How many channels a panel has: two vectors."""
        return 2 * self.lanes


AVX512: Final = Registers(16, (14, 7, 4, 2, 1))
AVX2: Final = Registers(8, (6, 4, 2, 1))


def read_arguments(names: Sequence[str]) -> str:
    """Read what the arguments are, into variables of these *names*."""
    lines: list[str] = []
    for number, name in enumerate(names):
        lines.append(f"%{name}_place = getelementptr i64, ptr %arguments, i64 {number}")
        lines.append(f"%{name} = load {'ptr' if name.endswith('_at') else 'i64'}, ptr %{name}_place, align 8")
    return joined(lines)


def spread_limits(lanes: int) -> str:
    """The limits as vectors."""
    return joined([*spread("low", lanes), *spread("high", lanes)])


def limited(name: str, value: str, lanes: int) -> list[str]:
    """``%name_given``: *value* within the limits; not a number stays what it is."""
    vector, truth = f"<{lanes} x float>", f"<{lanes} x i1>"
    return [
        f"%{name}_is_low = fcmp olt {vector} {value}, %low_all",
        f"%{name}_raised = select {truth} %{name}_is_low, {vector} %low_all, {vector} {value}",
        f"%{name}_is_high = fcmp ogt {vector} %{name}_raised, %high_all",
        f"%{name}_given = select {truth} %{name}_is_high, {vector} %high_all, {vector} %{name}_raised",
    ]


def spread(name: str, lanes: int) -> list[str]:
    """``%name_all``: a vector of the number *name*."""
    vector = f"<{lanes} x float>"
    return [
        f"%{name}_one = insertelement {vector} poison, float %{name}, i32 0",
        f"%{name}_all = shufflevector {vector} %{name}_one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def mask_lines(prefix: str, lanes: int) -> list[str]:
    """``%mask``: which numbers of a vector there are, from ``%first`` on, of ``%count``; names have the *prefix*."""
    integers = f"<{lanes} x i32>"
    places = ", ".join(f"i32 {place}" for place in range(lanes))
    here = f"%{prefix}num_here"
    return [
        f"%{prefix}left = sub i64 %count, %{prefix}first",
        f"%{prefix}is_last = icmp ult i64 %{prefix}left, {lanes}",
        f"{here} = select i1 %{prefix}is_last, i64 %{prefix}left, i64 {lanes}",
        f"{here}32 = trunc i64 {here} to i32",
        f"{here}_one = insertelement {integers} poison, i32 {here}32, i32 0",
        f"{here}_all = shufflevector {integers} {here}_one, {integers} poison, {integers} zeroinitializer",
        f"%{prefix}mask = icmp ult {integers} <{places}>, {here}_all",
    ]


def over_rows(name: str, arguments: Sequence[str], before: Sequence[str], lines: Sequence[str], last: str) -> str:
    """The function *name*, with *lines* for each row, from ``%numbers`` to ``%results``; *last* is their last block."""
    return f"""
define void @native_{name}(ptr %arguments) {{
entry:
 {joined([read_arguments(arguments), *before])}
 br label %rows_start
rows_start:
 %number = phi i64 [ 0, %entry ], [ %next_number, %{last} ]
 %more_rows = icmp ult i64 %number, %rows
 br i1 %more_rows, label %row_start, label %end
row_start:
 %row_offset = mul i64 %number, %row
 %numbers = getelementptr i8, ptr %from_at, i64 %row_offset
 %results = getelementptr i8, ptr %to_at, i64 %row_offset
 {joined(lines)}
 %next_number = add i64 %number, 1
 br label %rows_start
end:
 ret void
}}"""


def pointer(name: str, base: str, offset: str, numbers: int) -> list[str]:
    """``%name``: so many bytes behind *base*, and then so many *numbers*."""
    return [
        f"%{name}_before = getelementptr i8, ptr %{base}, i64 %{offset}",
        f"%{name} = getelementptr float, ptr %{name}_before, i64 {numbers}",
    ]


def joined(lines: Iterable[str], indent: str = " ") -> str:
    return f"\n{indent}".join(lines)
