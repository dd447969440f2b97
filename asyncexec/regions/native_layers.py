"""Native code of convolutions of float32 numbers, channels last, as the text of one LLVM module for all sizes.

A convolution sums in registers, for some pixels of an output row and a *panel* of channels: for each number under the
windows, the panel's part of the filter is loaded once, and multiplied with a number of each pixel (Goto and van de
Geijn, *Anatomy of High-Performance Matrix Multiplication*, 2008; Georganas et al., *Anatomy of High-Performance Deep
Learning Convolutions on SIMD Architectures*, 2018).  No patches are laid out.  A depthwise one does the same for as
many channels as a vector holds.  What follows, a bias, another tensor and limits, is done before the sums leave the
registers.

Both functions take a pointer to their arguments, 64 bits each in the order of CONVOLUTION and DEPTHWISE, and limits.
Pointers end in ``_at``, distances are in bytes, and rows are counted through all images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from asyncexec.regions.native_depthwise import write_depthwise
from asyncexec.regions.native_gates import write_gates
from asyncexec.regions.native_recurrent import write_recurrent
from asyncexec.regions.native_rows import write_rows
from asyncexec.regions.native_vectors import (
    CONVOLUTION,
    ITEM,
    Registers,
    joined,
    limited,
    pointer,
    read_arguments,
    spread,
    spread_limits,
)

_PARTS: Final = (1, 2)  # vectors of a panel that a convolution takes
# Panels that are taken together for a single pixel: with one, each product would wait for the sum before it.
_TOGETHER: Final = 4


def write_layers(registers: Registers, pause: Callable[[], object] = lambda: None) -> str:
    """A module of ``native``, ``native_depthwise``, gates, rows, recurrent layers; *pause* is called between parts."""
    lanes = registers.lanes
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            f"declare void @llvm.masked.store.v{lanes}f32.p0({vector}, ptr, i32, {mask})",
            f"declare {vector} @llvm.masked.load.v{lanes}f32.p0(ptr, i32, {mask}, {vector})",
            *(_Tile(registers, pixels, parts).text(pause) for pixels in registers.pixels for parts in _PARTS),
            _Tile(registers, 1, registers.panel // lanes, _TOGETHER).text(pause),
            _convolution(registers),
            write_depthwise(registers),
            write_gates(lanes),
            write_rows(lanes),
            write_recurrent(lanes),
            "",
        ]
    )


class _Tile:
    """The function that writes some pixels and the channels of a panel, of the first half of one, or of several."""

    def __init__(self, registers: Registers, pixels: int, parts: int, panels: int = 1) -> None:
        self._lanes = registers.lanes
        self._panel = registers.panel
        self._pixels = pixels
        self._parts = parts * panels
        self._parts_of_panel = parts
        self._name = f"tile{pixels}_{parts}" if panels == 1 else f"tile{pixels}_of_{panels}"
        self._vector = f"<{registers.lanes} x float>"
        self._sums = [(pixel, part) for pixel in range(pixels) for part in range(self._parts)]

    def text(self, pause: Callable[[], object]) -> str:
        """The text of the function."""
        pause()
        step = f"getelementptr i8, ptr %under, i64 %tap_column_offset\n {self._pointers()}"
        return f"""
define internal void @{self._name}(ptr %x, i64 %pixel, i64 %tap_rows, i64 %tap_row,
  i64 %tap_columns, i64 %tap_column, i64 %depth, ptr %filters, i64 %panel, ptr %out, i64 %out_pixel, ptr %bias,
  ptr %added, float %low, float %high, <{self._panel} x i1> %is_channel) {{
entry:
 {joined(f"%panel{number} = mul i64 %panel, {number}" for number in range(self._parts // self._parts_of_panel))}
 br label %rows
rows:
 %tap_y = phi i64 [ 0, %entry ], [ %next_tap_y, %rows_end ]
 %row_filters = phi ptr [ %filters, %entry ], [ %next_filters, %rows_end ]
 {self._carried("row", "zeroinitializer", "entry", "rows_end")}
 %tap_row_offset = mul i64 %tap_y, %tap_row
 %under = getelementptr i8, ptr %x, i64 %tap_row_offset
 br label %columns
columns:
 %tap_x = phi i64 [ 0, %rows ], [ %next_tap_x, %columns_end ]
 %column_filters = phi ptr [ %row_filters, %rows ], [ %next_filters, %columns_end ]
 {self._carried("column", "%row", "rows", "columns_end")}
 %tap_column_offset = mul i64 %tap_x, %tap_column
 %x0 = {step}
 br label %depths
depths:
 %at = phi i64 [ 0, %columns ], [ %next_at, %depths ]
 %here = phi ptr [ %column_filters, %columns ], [ %next_filters, %depths ]
 {self._carried("depth", "%column", "columns", "depths")}
 {self._products()}
 %next_filters = getelementptr float, ptr %here, i64 {self._panel}
 %next_at = add nuw nsw i64 %at, 1
 %more_depth = icmp ult i64 %next_at, %depth
 br i1 %more_depth, label %depths, label %columns_end
columns_end:
 %next_tap_x = add nuw nsw i64 %tap_x, 1
 %more_columns = icmp ult i64 %next_tap_x, %tap_columns
 br i1 %more_columns, label %columns, label %rows_end
rows_end:
 %next_tap_y = add nuw nsw i64 %tap_y, 1
 %more_rows = icmp ult i64 %next_tap_y, %tap_rows
 br i1 %more_rows, label %rows, label %end
end:
 {spread_limits(self._lanes)}
 {self._part_facts()}
 %is_sum = icmp ne ptr %added, null
 br i1 %is_sum, label %sum, label %alone
sum:
 {self._results("sum", is_sum=True)}
 ret void
alone:
 {self._results("alone", is_sum=False)}
 ret void
}}"""

    def _carried(self, loop: str, first: str, before: str, after: str) -> str:
        """The sums at the start of a round of *loop*."""
        start = first if first == "zeroinitializer" else first + "{}_{}"
        return joined(
            f"%{loop}{pixel}_{part} = phi {self._vector} "
            f"[ {start.format(pixel, part)}, %{before} ], [ %sum{pixel}_{part}, %{after} ]"
            for pixel, part in self._sums
        )

    def _pointers(self) -> str:
        return joined(
            f"%x{pixel} = getelementptr i8, ptr %x{pixel - 1}, i64 %pixel" for pixel in range(1, self._pixels)
        )

    def _products(self) -> str:
        lanes, vector = self._lanes, self._vector
        lines: list[str] = []
        for part in range(self._parts):
            panel, place = divmod(part, self._parts_of_panel)
            lines += pointer(f"filter_at{part}", "here", f"panel{panel}", place * lanes)
            lines.append(f"%filter{part} = load {vector}, ptr %filter_at{part}, align {lanes * ITEM}")
        for pixel in range(self._pixels):
            lines.append(f"%number_at{pixel} = getelementptr float, ptr %x{pixel}, i64 %at")
            lines.append(f"%number{pixel} = load float, ptr %number_at{pixel}, align {ITEM}")
            lines += spread(f"number{pixel}", lanes)
            lines += [
                f"%sum{pixel}_{part} = call {vector} @llvm.fma.v{lanes}f32("
                f"{vector} %number{pixel}_all, {vector} %filter{part}, {vector} %depth{pixel}_{part})"
                for part in range(self._parts)
            ]
        return joined(lines)

    def _part_facts(self) -> str:
        lanes, panel = self._lanes, self._panel
        lines: list[str] = []
        for part in range(self._parts):
            first = part % self._parts_of_panel * lanes
            places = ", ".join(f"i32 {first + lane}" for lane in range(lanes))
            kind = f"<{panel} x i1>"
            lines.append(f"%mask{part} = shufflevector {kind} %is_channel, {kind} poison, <{lanes} x i32> <{places}>")
            lines.append(f"%bias_at{part} = getelementptr float, ptr %bias, i64 {part * lanes}")
            lines.append(f"%bias{part} = load {self._vector}, ptr %bias_at{part}, align {ITEM}")
        return joined(lines)

    def _results(self, kind: str, *, is_sum: bool) -> str:
        lanes, vector = self._lanes, self._vector
        lines: list[str] = []
        for pixel, part in self._sums:
            name = f"{kind}{pixel}_{part}"
            value, mask = f"%{name}_biased", f"<{lanes} x i1> %mask{part}"
            lines.append(f"%{name}_offset = mul i64 %out_pixel, {pixel}")
            lines.append(f"{value} = fadd {vector} %sum{pixel}_{part}, %bias{part}")
            if is_sum:
                lines += pointer(f"{name}_added_at", "added", f"{name}_offset", part * lanes)
                at = f"ptr %{name}_added_at, i32 {ITEM}, {mask}, {vector} zeroinitializer"
                lines.append(f"%{name}_added = call {vector} @llvm.masked.load.v{lanes}f32.p0({at})")
                lines.append(f"%{name}_total = fadd {vector} {value}, %{name}_added")
                value = f"%{name}_total"
            lines += limited(name, value, lanes)
            lines += pointer(f"{name}_at", "out", f"{name}_offset", part * lanes)
            at = f"ptr %{name}_at, i32 {ITEM}, {mask}"
            lines.append(f"call void @llvm.masked.store.v{lanes}f32.p0({vector} %{name}_given, {at})")
        return joined(lines)


def _convolution(registers: Registers) -> str:
    """The function that goes through panels, rows and pixels; several panels at a time where there is one pixel."""
    lanes, panel = registers.lanes, registers.panel
    places = ", ".join(f"i32 {place}" for place in range(panel))
    return f"""
define void @native(ptr %arguments, float %low, float %high) {{
entry:
 {read_arguments(CONVOLUTION)}
 %is_sum = icmp ne ptr %added_at, null
 %num_rows = sub i64 %end_row, %first_row
 %num_pixels = mul i64 %num_rows, %columns
 %is_one = icmp eq i64 %num_pixels, 1
 %full_panels = udiv i64 %channels, {panel}
 %is_short = icmp ult i64 %full_panels, %end_panel
 %end_full = select i1 %is_short, i64 %full_panels, i64 %end_panel
 br label %panels
panels:
 %number = phi i64 [ %first_panel, %entry ], [ %next_number, %panel_end ], [ %behind, %together ]
 %more_panels = icmp ult i64 %number, %end_panel
 br i1 %more_panels, label %panel_start, label %end
panel_start:
 %filters_offset = mul i64 %number, %panel
 %filters = getelementptr i8, ptr %filters_at, i64 %filters_offset
 %first_channel = mul i64 %number, {panel}
 %channels_left = sub i64 %channels, %first_channel
 %is_last = icmp ult i64 %channels_left, {panel}
 %count = select i1 %is_last, i64 %channels_left, i64 {panel}
 %count32 = trunc i64 %count to i32
 %count0 = insertelement <{panel} x i32> poison, i32 %count32, i32 0
 %counts = shufflevector <{panel} x i32> %count0, <{panel} x i32> poison, <{panel} x i32> zeroinitializer
 %is_channel = icmp ult <{panel} x i32> <{places}>, %counts
 %bias = getelementptr float, ptr %bias_at, i64 %first_channel
 %is_part = icmp ule i64 %count, {lanes}
 %behind = add i64 %number, {_TOGETHER}
 %are_full = icmp ule i64 %behind, %end_full
 %is_wide = and i1 %is_one, %are_full
 br i1 %is_wide, label %together, label %rows_start
{_panels_together(panel)}
rows_start:
 %row_number = phi i64 [ %first_row, %panel_start ], [ %next_row, %row_end ]
 %more_rows = icmp ult i64 %row_number, %end_row
 br i1 %more_rows, label %row, label %panel_end
row:
 {_pointers("each", "row_number")}
 br label %try{registers.pixels[0]}
{_pixels_of_row(registers)}
row_end:
 %next_row = add i64 %row_number, 1
 br label %rows_start
panel_end:
 %next_number = add i64 %number, 1
 br label %panels
end:
 ret void
}}"""


def _panels_together(panel: int) -> str:
    """The block that writes the sole pixel for the channels of several panels, all of which there are."""
    all_channels = ", ".join(["i1 1"] * panel)
    return f"""together:
 {_pointers("sole", "first_row")}
 %sole_added = select i1 %is_sum, ptr %sole_added_row, ptr null
 call void @tile1_of_{_TOGETHER}(ptr %sole_x_row, i64 %pixel, i64 %tap_rows, i64 %tap_row, i64 %tap_columns,
  i64 %tap_column, i64 %depth, ptr %filters, i64 %panel, ptr %sole_out_row, i64 %out_pixel, ptr %bias,
  ptr %sole_added, float %low, float %high, <{panel} x i1> <{all_channels}>)
 br label %panels"""


def _pointers(name: str, row: str) -> str:
    """Where *row* begins in the input, the output and what is added, for the channels of a panel."""
    return joined(
        [
            f"%{name}_image_number = udiv i64 %{row}, %rows",
            f"%{name}_y = urem i64 %{row}, %rows",
            f"%{name}_image_offset = mul i64 %{name}_image_number, %image",
            f"%{name}_line_offset = mul i64 %{name}_y, %line",
            f"%{name}_x_offset = add i64 %{name}_image_offset, %{name}_line_offset",
            f"%{name}_x_row = getelementptr i8, ptr %x_at, i64 %{name}_x_offset",
            f"%{name}_pixels_before = mul i64 %{row}, %columns",
            f"%{name}_out_before = mul i64 %{name}_pixels_before, %out_pixel",
            f"%{name}_channels_before = mul i64 %first_channel, {ITEM}",
            f"%{name}_out_offset = add i64 %{name}_out_before, %{name}_channels_before",
            f"%{name}_out_row = getelementptr i8, ptr %out_at, i64 %{name}_out_offset",
            f"%{name}_added_row = getelementptr i8, ptr %added_at, i64 %{name}_out_offset",
        ]
    )


def _pixels_of_row(registers: Registers) -> str:
    """The blocks that go through the pixels of a row: as many at a time as there are left for."""
    panel = registers.panel
    first, *others = registers.pixels

    def call(pixels: int, parts: int) -> str:
        return f"""tile{pixels}_{parts}:
 call void @tile{pixels}_{parts}(ptr %x{pixels}, i64 %pixel, i64 %tap_rows, i64 %tap_row, i64 %tap_columns,
  i64 %tap_column, i64 %depth, ptr %filters, i64 %panel, ptr %out{pixels}, i64 %out_pixel, ptr %bias,
  ptr %added{pixels}, float %low, float %high, <{panel} x i1> %is_channel)
 br label %try{pixels}"""

    tiles: list[str] = []
    for pixels, before, behind in zip(registers.pixels, (None, first, *others), (*others, None), strict=False):
        came = "[ 0, %row ]" if before is None else f"[ %column{before}, %try{before} ]"
        came += "".join(f", [ %next{pixels}, %tile{pixels}_{parts} ]" for parts in _PARTS)
        otherwise = "row_end" if behind is None else f"try{behind}"
        tiles.append(
            f"""try{pixels}:
 %column{pixels} = phi i64 {came}
 %next{pixels} = add i64 %column{pixels}, {pixels}
 %fits{pixels} = icmp ule i64 %next{pixels}, %columns
 br i1 %fits{pixels}, label %tile{pixels}, label %{otherwise}
tile{pixels}:
 %x_offset{pixels} = mul i64 %column{pixels}, %pixel
 %x{pixels} = getelementptr i8, ptr %each_x_row, i64 %x_offset{pixels}
 %out_offset{pixels} = mul i64 %column{pixels}, %out_pixel
 %out{pixels} = getelementptr i8, ptr %each_out_row, i64 %out_offset{pixels}
 %added_here{pixels} = getelementptr i8, ptr %each_added_row, i64 %out_offset{pixels}
 %added{pixels} = select i1 %is_sum, ptr %added_here{pixels}, ptr null
 br i1 %is_part, label %tile{pixels}_1, label %tile{pixels}_2
{call(pixels, 1)}
{call(pixels, 2)}"""
        )
    return joined(tiles, "")
