"""Native code that goes over rows more than once: softmax, and layer normalization.

A row stays in the cache meanwhile.  Sums are made number by number of a vector, and these are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.regions.native_gates import GATE, LARGEST, all_of, exponential
from asyncexec.regions.native_vectors import ITEM, mask_lines, over_rows, spread

# The last two are the bits of float32 numbers: what is added to the variance, and one over the count.
NORM: Final = (
    *("from_at", "to_at", "scale_at", "offset_at"),
    *("rows", "row", "count", "epsilon_bits", "each_bits"),
)
_NOTHING: Final = "0xFFF0000000000000"  # below all numbers


def write_rows(lanes: int) -> str:
    """The functions ``native_softmax`` and ``native_norm``, of some rows of numbers."""
    kinds = f"v{lanes}f32(<{lanes} x float>)"
    return "\n".join(
        [
            f"declare float @llvm.vector.reduce.fmax.{kinds}",
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, <{lanes} x float>)",
            "declare float @llvm.sqrt.f32(float)",
            _softmax(lanes),
            _norm(lanes),
        ]
    )


class _Pass:
    """One pass over a row, by vectors: ``%first`` and ``%mask`` have the *name* before theirs, and so has ``%x``.

    Args:
        before: the block in front of it; start: that of the ``%sum`` which the lines make the ``%next_sum`` of, if any.
    """

    def __init__(self, name: str, lanes: int, before: str, source: str, start: str | None = None) -> None:
        self.name = name
        self.end: str = f"{name}_end"
        self._lanes, self._before, self._source, self._start = lanes, before, source, start

    def text(self, lines: Sequence[str]) -> list[str]:
        """The blocks, with *lines* for each vector; the last of them is still open."""
        name, lanes, before = self.name, self._lanes, self._before
        vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
        sums = [] if self._start is None else [
            f"%{name}_sum = phi {vector} [ {self._start}, %{before} ], [ %{name}_next_sum, %{name}_vector ]"
        ]  # fmt: skip
        load = f"@llvm.masked.load.v{lanes}f32.p0(ptr %{name}_at, i32 {ITEM}, {mask} %{name}_mask"
        return [
            f"br label %{name}_start\n{name}_start:",
            f"%{name}_first = phi i64 [ 0, %{before} ], [ %{name}_next, %{name}_vector ]",
            *sums,
            f"%{name}_more = icmp ult i64 %{name}_first, %count",
            f"br i1 %{name}_more, label %{name}_vector, label %{self.end}\n{name}_vector:",
            *mask_lines(f"{name}_", lanes),
            f"%{name}_at = getelementptr float, ptr %{self._source}, i64 %{name}_first",
            f"%{name}_x = call {vector} {load}, {vector} zeroinitializer)",
            *lines,
            f"%{name}_next = add i64 %{name}_first, {lanes}",
            f"br label %{name}_start\n{self.end}:",
        ]


def _store(name: str, value: str, lanes: int) -> list[str]:
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    place = f"ptr %{name}_result_at, i32 {ITEM}, {mask} %{name}_mask"
    return [
        f"%{name}_result_at = getelementptr float, ptr %results, i64 %{name}_first",
        f"call void @llvm.masked.store.v{lanes}f32.p0({vector} {value}, {place})",
    ]


def _total(name: str, sums: str, lanes: int) -> str:
    numbers = f"float -0.0, <{lanes} x float> {sums}"
    return f"%{name} = call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32({numbers})"


def _softmax(lanes: int) -> str:
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    zeros, lowest = f"{vector} zeroinitializer", f"<{', '.join([f'float {_NOTHING}'] * lanes)}>"
    smallest = all_of(-LARGEST, lanes)
    largest = _Pass("largest", lanes, "row_start", "numbers", lowest)
    powers = _Pass("powers", lanes, largest.end, "numbers", "zeroinitializer")
    shares = _Pass("shares", lanes, powers.end, "results")
    lines = [
        *largest.text(
            [
                f"%largest_known = select {mask} %largest_mask, {vector} %largest_x, {vector} {lowest}",
                f"%is_more = fcmp ogt {vector} %largest_known, %largest_sum",
                f"%largest_next_sum = select {mask} %is_more, {vector} %largest_known, {vector} %largest_sum",
            ]
        ),
        f"%most = call float @llvm.vector.reduce.fmax.v{lanes}f32({vector} %largest_sum)",
        *spread("most", lanes),
        *powers.text(
            [
                f"%below = fsub {vector} %powers_x, %most_all",
                f"%is_small = fcmp olt {vector} %below, {smallest}",
                f"%exponent = select {mask} %is_small, {vector} {smallest}, {vector} %below",
                *exponential(lanes),
                f"%is_known = fcmp ord {vector} %below, %below",
                f"%known = select {mask} %is_known, {vector} %scaled, {vector} %below",
                f"%power_given = select {mask} %is_small, {zeros}, {vector} %known",
                *_store("powers", "%power_given", lanes),
                f"%counted = select {mask} %powers_mask, {vector} %power_given, {zeros}",
                f"%powers_next_sum = fadd {vector} %powers_sum, %counted",
            ]
        ),
        _total("whole", "%powers_sum", lanes),
        *spread("whole", lanes),
        *shares.text(
            [f"%shared = fdiv {vector} %shares_x, %whole_all", *_store("shares", "%shared", lanes)],
        ),
    ]
    return over_rows("softmax", GATE, (), lines, shares.end)


def _norm(lanes: int) -> str:
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    zeros = f"{vector} zeroinitializer"
    counted = f"{vector} %off_counted, {vector} %off_counted, {vector} %spreading_sum"
    mean = _Pass("mean", lanes, "row_start", "numbers", "zeroinitializer")
    spreading = _Pass("spreading", lanes, mean.end, "numbers", "zeroinitializer")
    given = _Pass("given", lanes, spreading.end, "numbers")

    def column(name: str) -> list[str]:
        load = f"@llvm.masked.load.v{lanes}f32.p0(ptr %{name}_here, i32 {ITEM}, {mask} %given_mask, {zeros})"
        return [
            f"%{name}_here = getelementptr float, ptr %{name}_at, i64 %given_first",
            f"%{name} = call {vector} {load}",
        ]

    before = [
        line
        for name in ("epsilon", "each")
        for line in (f"%{name}_32 = trunc i64 %{name}_bits to i32", f"%{name} = bitcast i32 %{name}_32 to float")
    ]
    lines = [
        *mean.text([f"%mean_next_sum = fadd {vector} %mean_sum, %mean_x"]),
        _total("total", "%mean_sum", lanes),
        "%middle = fmul float %total, %each",
        *spread("middle", lanes),
        *spreading.text(
            [
                f"%off = fsub {vector} %spreading_x, %middle_all",
                f"%off_counted = select {mask} %spreading_mask, {vector} %off, {zeros}",
                f"%spreading_next_sum = call {vector} @llvm.fma.v{lanes}f32({counted})",
            ]
        ),
        _total("squares", "%spreading_sum", lanes),
        "%variance = fmul float %squares, %each",
        "%positive = fadd float %variance, %epsilon",
        "%root = call float @llvm.sqrt.f32(float %positive)",
        "%factor = fdiv float 1.0, %root",
        *spread("factor", lanes),
        *given.text(
            [
                f"%moved = fsub {vector} %given_x, %middle_all",
                f"%unit = fmul {vector} %moved, %factor_all",
                *column("scale"),
                *column("offset"),
                f"%wide = fmul {vector} %unit, %scale",
                f"%normal = fadd {vector} %wide, %offset",
                *_store("given", "%normal", lanes),
            ]
        ),
    ]
    return over_rows("norm", NORM, before, lines, given.end)
