"""Native code of convolutions of float32 numbers, channels last, as the text of one LLVM module for all sizes.

A convolution sums in registers, for some pixels of an output row and a *panel* of channels: for each number under the
windows, the panel's part of the filter is loaded once, and multiplied with a number of each pixel (Goto and van de
Geijn, *Anatomy of High-Performance Matrix Multiplication*, 2008; Georganas et al., *Anatomy of High-Performance Deep
Learning Convolutions on SIMD Architectures*, 2018).  No patches are laid out.  A depthwise one does the same for as
many channels as a vector holds.  What follows, a bias, another tensor and limits, is done before the sums leave the
registers.

Both functions take a pointer to their arguments, 64 bits each in the order of CONVOLUTION and DEPTHWISE, and limits.
Pointers end in ``_at``, distances are in bytes, and rows are counted through all images.  A third one makes swishes of
numbers that are there, by Moshier's approximation of the exponential function (Cephes, ``expf``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

CONVOLUTION: Final = (
    *("x_at", "filters_at", "out_at", "bias_at", "added_at"),
    *("image", "line", "pixel", "tap_rows", "tap_row", "tap_columns", "tap_column", "depth"),
    *("rows", "columns", "out_pixel", "channels", "panel", "first_row", "end_row", "first_panel", "end_panel"),
)
SWISH: Final = ("numbers_at", "rows", "row", "count")
DEPTHWISE: Final = (
    *("x_at", "filters_at", "out_at", "bias_at"),
    *("image", "row", "pixel", "height", "width", "tap_rows", "tap_columns", "rows", "columns", "channels"),
    *("row_stride", "column_stride", "row_dilation", "column_dilation", "top", "left"),
    *("first_inside", "end_inside", "first_row", "end_row"),
)
_ITEM: Final = 4  # bytes
_LARGEST: Final = 87.0  # of what an exponential is taken: beyond that a swish is nothing, or all of its number
_ROUNDING: Final = 1.5 * 2**23  # a number that has no bits for what is smaller than one
_LOG2: Final = (0.693359375, -2.12194440e-4)  # in two parts
_EXP: Final = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_PARTS: Final = (1, 2)  # vectors of a panel that a convolution takes
_STRIPS: Final = (8, 4, 2, 1)  # pixels that a depthwise convolution takes at a time
_VECTORS: Final = 4  # of channels, where it takes one pixel at a time


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


def write_layers(registers: Registers, pause: Callable[[], object] = lambda: None) -> str:
    """A module with ``native``, ``native_depthwise`` and ``native_swish``; *pause* is called between its parts."""
    lanes = registers.lanes
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            f"declare void @llvm.masked.store.v{lanes}f32.p0({vector}, ptr, i32, {mask})",
            f"declare {vector} @llvm.masked.load.v{lanes}f32.p0(ptr, i32, {mask}, {vector})",
            *(_Tile(registers, pixels, parts).text(pause) for pixels in registers.pixels for parts in _PARTS),
            _convolution(registers),
            *(_strip(registers, pixels, 1) for pixels in _STRIPS),
            _strip(registers, 1, _VECTORS),
            _depthwise(registers),
            _swish(lanes),
            "",
        ]
    )


class _Tile:
    """The function that writes some pixels and the channels of a panel, or of the first half of one."""

    def __init__(self, registers: Registers, pixels: int, parts: int) -> None:
        self._lanes = registers.lanes
        self._panel = registers.panel
        self._pixels = pixels
        self._parts = parts
        self._vector = f"<{registers.lanes} x float>"
        self._sums = [(pixel, part) for pixel in range(pixels) for part in range(parts)]

    def text(self, pause: Callable[[], object]) -> str:
        """The text of the function."""
        pause()
        step = f"getelementptr i8, ptr %under, i64 %tap_column_offset\n {self._pointers()}"
        return f"""
define internal void @tile{self._pixels}_{self._parts}(ptr %x, i64 %pixel, i64 %tap_rows, i64 %tap_row,
  i64 %tap_columns, i64 %tap_column, i64 %depth, ptr %filters, ptr %out, i64 %out_pixel, ptr %bias, ptr %added,
  float %low, float %high, <{self._panel} x i1> %is_channel) {{
entry:
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
 {_limits(self._lanes)}
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
        return _lines(
            f"%{loop}{pixel}_{part} = phi {self._vector} "
            f"[ {start.format(pixel, part)}, %{before} ], [ %sum{pixel}_{part}, %{after} ]"
            for pixel, part in self._sums
        )

    def _pointers(self) -> str:
        return _lines(
            f"%x{pixel} = getelementptr i8, ptr %x{pixel - 1}, i64 %pixel" for pixel in range(1, self._pixels)
        )

    def _products(self) -> str:
        lanes, vector = self._lanes, self._vector
        lines: list[str] = []
        for part in range(self._parts):
            lines.append(f"%filter_at{part} = getelementptr float, ptr %here, i64 {part * lanes}")
            lines.append(f"%filter{part} = load {vector}, ptr %filter_at{part}, align {lanes * _ITEM}")
        for pixel in range(self._pixels):
            lines.append(f"%number_at{pixel} = getelementptr float, ptr %x{pixel}, i64 %at")
            lines.append(f"%number{pixel} = load float, ptr %number_at{pixel}, align {_ITEM}")
            lines += _spread(f"number{pixel}", lanes)
            lines += [
                f"%sum{pixel}_{part} = call {vector} @llvm.fma.v{lanes}f32("
                f"{vector} %number{pixel}_all, {vector} %filter{part}, {vector} %depth{pixel}_{part})"
                for part in range(self._parts)
            ]
        return _lines(lines)

    def _part_facts(self) -> str:
        lanes, panel = self._lanes, self._panel
        lines: list[str] = []
        for part in range(self._parts):
            places = ", ".join(f"i32 {part * lanes + lane}" for lane in range(lanes))
            kind = f"<{panel} x i1>"
            lines.append(f"%mask{part} = shufflevector {kind} %is_channel, {kind} poison, <{lanes} x i32> <{places}>")
            lines.append(f"%bias_at{part} = getelementptr float, ptr %bias, i64 {part * lanes}")
            lines.append(f"%bias{part} = load {self._vector}, ptr %bias_at{part}, align {_ITEM}")
        return _lines(lines)

    def _results(self, kind: str, *, is_sum: bool) -> str:
        lanes, vector = self._lanes, self._vector
        lines: list[str] = []
        for pixel, part in self._sums:
            name = f"{kind}{pixel}_{part}"
            value, mask = f"%{name}_biased", f"<{lanes} x i1> %mask{part}"
            lines.append(f"%{name}_offset = mul i64 %out_pixel, {pixel}")
            lines.append(f"{value} = fadd {vector} %sum{pixel}_{part}, %bias{part}")
            if is_sum:
                lines += _pointer(f"{name}_added_at", "added", f"{name}_offset", part * lanes)
                at = f"ptr %{name}_added_at, i32 {_ITEM}, {mask}, {vector} zeroinitializer"
                lines.append(f"%{name}_added = call {vector} @llvm.masked.load.v{lanes}f32.p0({at})")
                lines.append(f"%{name}_total = fadd {vector} {value}, %{name}_added")
                value = f"%{name}_total"
            lines += _limited(name, value, lanes)
            lines += _pointer(f"{name}_at", "out", f"{name}_offset", part * lanes)
            at = f"ptr %{name}_at, i32 {_ITEM}, {mask}"
            lines.append(f"call void @llvm.masked.store.v{lanes}f32.p0({vector} %{name}_given, {at})")
        return _lines(lines)


def _convolution(registers: Registers) -> str:
    """The function that goes through panels, rows and pixels."""
    lanes, panel = registers.lanes, registers.panel
    first, *others = registers.pixels

    def call(pixels: int, parts: int) -> str:
        return f"""tile{pixels}_{parts}:
 call void @tile{pixels}_{parts}(ptr %x{pixels}, i64 %pixel, i64 %tap_rows, i64 %tap_row, i64 %tap_columns,
  i64 %tap_column, i64 %depth, ptr %filters, ptr %out{pixels}, i64 %out_pixel, ptr %bias, ptr %added{pixels},
  float %low, float %high, <{panel} x i1> %is_channel)
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
 %x{pixels} = getelementptr i8, ptr %x_row, i64 %x_offset{pixels}
 %out_offset{pixels} = mul i64 %column{pixels}, %out_pixel
 %out{pixels} = getelementptr i8, ptr %out_row, i64 %out_offset{pixels}
 %added_here{pixels} = getelementptr i8, ptr %added_row, i64 %out_offset{pixels}
 %added{pixels} = select i1 %is_sum, ptr %added_here{pixels}, ptr null
 br i1 %is_part, label %tile{pixels}_1, label %tile{pixels}_2
{call(pixels, 1)}
{call(pixels, 2)}"""
        )
    places = ", ".join(f"i32 {place}" for place in range(panel))
    return f"""
define void @native(ptr %arguments, float %low, float %high) {{
entry:
 {_arguments(CONVOLUTION)}
 %is_sum = icmp ne ptr %added_at, null
 br label %panels
panels:
 %number = phi i64 [ %first_panel, %entry ], [ %next_number, %panel_end ]
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
 br label %rows_start
rows_start:
 %row_number = phi i64 [ %first_row, %panel_start ], [ %next_row, %row_end ]
 %more_rows = icmp ult i64 %row_number, %end_row
 br i1 %more_rows, label %row, label %panel_end
row:
 %image_number = udiv i64 %row_number, %rows
 %y = urem i64 %row_number, %rows
 %image_offset = mul i64 %image_number, %image
 %line_offset = mul i64 %y, %line
 %x_offset = add i64 %image_offset, %line_offset
 %x_row = getelementptr i8, ptr %x_at, i64 %x_offset
 %pixels_before = mul i64 %row_number, %columns
 %out_before = mul i64 %pixels_before, %out_pixel
 %channels_before = mul i64 %first_channel, {_ITEM}
 %out_offset = add i64 %out_before, %channels_before
 %out_row = getelementptr i8, ptr %out_at, i64 %out_offset
 %added_row = getelementptr i8, ptr %added_at, i64 %out_offset
 br label %try{first}
{_lines(tiles, "")}
row_end:
 %next_row = add i64 %row_number, 1
 br label %rows_start
panel_end:
 %next_number = add i64 %number, 1
 br label %panels
end:
 ret void
}}"""


def _strip(registers: Registers, pixels: int, vectors: int) -> str:
    """The function that writes some pixels of some vectors of channels of a depthwise convolution."""
    lanes, vector = registers.lanes, f"<{registers.lanes} x float>"
    sums = [(pixel, part) for pixel in range(pixels) for part in range(vectors)]

    def carried(loop: str, first: str, before: str, after: str) -> str:
        start = first if first == "zeroinitializer" else first + "{}_{}"
        return _lines(
            f"%{loop}{i}_{j} = phi {vector} [ {start.format(i, j)}, %{before} ], [ %{after}{i}_{j}, %{after}_end ]"
            for i, j in sums
        )

    products: list[str] = []
    for j in range(vectors):
        products.append(f"%part_at{j} = getelementptr float, ptr %filter_at, i64 {j * lanes}")
        products.append(f"%filter{j} = load {vector}, ptr %part_at{j}, align {_ITEM}")
    for i, j in sums:
        if not j:
            products.append(f"%number_offset{i} = mul i64 %pixel, {i}")
        products += _pointer(f"number_at{i}_{j}", "under", f"number_offset{i}", j * lanes)
        products.append(f"%number{i}_{j} = load {vector}, ptr %number_at{i}_{j}, align {_ITEM}")
        factors = f"{vector} %number{i}_{j}, {vector} %filter{j}, {vector} %column{i}_{j}"
        products.append(f"%tap{i}_{j} = call {vector} @llvm.fma.v{lanes}f32({factors})")
    results: list[str] = []
    for j in range(vectors):
        results.append(f"%bias_at{j} = getelementptr float, ptr %bias, i64 {j * lanes}")
        results.append(f"%bias{j} = load {vector}, ptr %bias_at{j}, align {_ITEM}")
    for i, j in sums:
        if not j:
            results.append(f"%out_offset{i} = mul i64 %out_pixel, {i}")
        results.append(f"%biased{i}_{j} = fadd {vector} %row{i}_{j}, %bias{j}")
        results += _limited(f"r{i}_{j}", f"%biased{i}_{j}", lanes)
        results += _pointer(f"result_at{i}_{j}", "out", f"out_offset{i}", j * lanes)
        results.append(f"store {vector} %r{i}_{j}_given, ptr %result_at{i}_{j}, align {_ITEM}")
    return f"""
define internal void @strip{pixels}_{vectors}(ptr %x, i64 %pixel, i64 %tap_rows, i64 %tap_row, i64 %tap_columns,
  i64 %tap_column, ptr %filters, i64 %filter_row, i64 %out_pixel, ptr %out, ptr %bias, float %low, float %high) {{
entry:
 br label %rows
rows:
 %tap_y = phi i64 [ 0, %entry ], [ %next_tap_y, %column_end ]
 {carried("row", "zeroinitializer", "entry", "column")}
 %more_rows = icmp slt i64 %tap_y, %tap_rows
 br i1 %more_rows, label %row_start, label %end
row_start:
 %tap_row_offset = mul i64 %tap_y, %tap_row
 %x_row = getelementptr i8, ptr %x, i64 %tap_row_offset
 %filter_row_offset = mul i64 %tap_y, %filter_row
 %filters_row = getelementptr i8, ptr %filters, i64 %filter_row_offset
 br label %columns
columns:
 %tap_x = phi i64 [ 0, %row_start ], [ %next_tap_x, %tap_end ]
 {carried("column", "%row", "row_start", "tap")}
 %more_columns = icmp slt i64 %tap_x, %tap_columns
 br i1 %more_columns, label %tap_end, label %column_end
tap_end:
 %tap_column_offset = mul i64 %tap_x, %tap_column
 %under = getelementptr i8, ptr %x_row, i64 %tap_column_offset
 %filter_column_offset = mul i64 %tap_x, %out_pixel
 %filter_at = getelementptr i8, ptr %filters_row, i64 %filter_column_offset
 {_lines(products)}
 %next_tap_x = add nuw nsw i64 %tap_x, 1
 br label %columns
column_end:
 %next_tap_y = add nuw nsw i64 %tap_y, 1
 br label %rows
end:
 {_limits(lanes)}
 {_lines(results)}
 ret void
}}"""


def _depthwise(registers: Registers) -> str:
    """The function that goes through the rows of a depthwise convolution.

    At the edges, where a window is not inside as a whole, it takes several vectors of channels at a time, else several
    pixels.
    """
    lanes = registers.lanes
    strips: list[str] = []
    for pixels, before, behind in zip(_STRIPS, (None, *_STRIPS), (*_STRIPS[1:], None), strict=False):
        came = f"[ %first_inside, %inside ], [ %next{pixels}, %do{pixels} ]"
        if before is not None:
            came = f"[ %column{before}, %try{before} ], [ %next{pixels}, %do{pixels} ]"
        strips.append(
            f"""try{pixels}:
 %column{pixels} = phi i64 {came}
 %next{pixels} = add i64 %column{pixels}, {pixels}
 %fits{pixels} = icmp sle i64 %next{pixels}, %end_inside
 br i1 %fits{pixels}, label %do{pixels}, label %{"inside_end" if behind is None else f"try{behind}"}
do{pixels}:
 %strided{pixels} = mul i64 %column{pixels}, %column_stride
 %x_column{pixels} = sub i64 %strided{pixels}, %left
 %x_offset{pixels} = mul i64 %x_column{pixels}, %pixel
 %x{pixels} = getelementptr i8, ptr %x_inside, i64 %x_offset{pixels}
 %out_offset{pixels} = mul i64 %column{pixels}, %pixel
 %out{pixels} = getelementptr i8, ptr %out_inside, i64 %out_offset{pixels}
 call void @strip{pixels}_1(ptr %x{pixels}, i64 %step, i64 %taps_y, i64 %tap_row, i64 %tap_columns, i64 %tap_column,
  ptr %filters_inside, i64 %filter_row, i64 %pixel, ptr %out{pixels}, ptr %bias_inside, float %low, float %high)
 br label %try{pixels}"""
        )

    def edge(name: str, vectors: int) -> str:
        return f"""{name}:
 call void @strip1_{vectors}(ptr %x_edge, i64 %step, i64 %taps_y, i64 %tap_row, i64 %taps_x, i64 %tap_column,
  ptr %filters_edge, i64 %filter_row, i64 %pixel, ptr %out_edge, ptr %bias_edge, float %low, float %high)
 br label %edge_end"""

    return f"""
define void @native_depthwise(ptr %arguments, float %low, float %high) {{
entry:
 {_arguments(DEPTHWISE)}
 %step = mul i64 %column_stride, %pixel
 %tap_row = mul i64 %row_dilation, %row
 %tap_column = mul i64 %column_dilation, %pixel
 %filter_row = mul i64 %tap_columns, %pixel
 %last_vector = sub i64 %channels, {lanes}
 %last_vectors = sub i64 %channels, {_VECTORS * lanes}
 br label %rows_start
rows_start:
 %number = phi i64 [ %first_row, %entry ], [ %next_number, %row_end ]
 %more_rows = icmp ult i64 %number, %end_row
 br i1 %more_rows, label %row_start, label %end
row_start:
 %image_number = udiv i64 %number, %rows
 %y = urem i64 %number, %rows
 %y_strided = mul i64 %y, %row_stride
 %y0 = sub i64 %y_strided, %top
 {_taps_inside("y", "%y0", "%row_dilation", "%height", "%tap_rows")}
 %y_moved = mul i64 %first_y, %row_dilation
 %y_first = add i64 %y0, %y_moved
 %image_offset = mul i64 %image_number, %image
 %line_offset = mul i64 %y_first, %row
 %x_offset = add i64 %image_offset, %line_offset
 %x_row = getelementptr i8, ptr %x_at, i64 %x_offset
 %filters_offset = mul i64 %first_y, %filter_row
 %filters_row = getelementptr i8, ptr %filters_at, i64 %filters_offset
 %pixels_before = mul i64 %number, %columns
 %out_offset = mul i64 %pixels_before, %pixel
 %out_row = getelementptr i8, ptr %out_at, i64 %out_offset
 br label %edges
edges:
 %edge_wanted = phi i64 [ 0, %row_start ], [ %next_edge, %edges_end ]
 %is_edge = icmp ne i64 %edge_wanted, %first_inside
 %edge = select i1 %is_edge, i64 %edge_wanted, i64 %end_inside
 %more_edges = icmp ult i64 %edge, %columns
 br i1 %more_edges, label %edge_start, label %insides
edge_start:
 %edge_strided = mul i64 %edge, %column_stride
 %x0 = sub i64 %edge_strided, %left
 {_taps_inside("x", "%x0", "%column_dilation", "%width", "%tap_columns")}
 %x_moved = mul i64 %first_x, %column_dilation
 %x_first = add i64 %x0, %x_moved
 %x_edge_offset = mul i64 %x_first, %pixel
 %x_edges = getelementptr i8, ptr %x_row, i64 %x_edge_offset
 %filters_edge_offset = mul i64 %first_x, %pixel
 %filters_edges = getelementptr i8, ptr %filters_row, i64 %filters_edge_offset
 %out_edge_offset = mul i64 %edge, %pixel
 %out_edges = getelementptr i8, ptr %out_row, i64 %out_edge_offset
 br label %edge_channels
edge_channels:
 %edge_channel_wanted = phi i64 [ 0, %edge_start ], [ %next_edge_channel, %edge_end ]
 %more_edge_channels = icmp ult i64 %edge_channel_wanted, %channels
 br i1 %more_edge_channels, label %edge_choice, label %edges_end
edge_choice:
 %are_many = icmp sle i64 %edge_channel_wanted, %last_vectors
 %edge_step = select i1 %are_many, i64 {_VECTORS * lanes}, i64 {lanes}
 %is_edge_beyond = icmp sgt i64 %edge_channel_wanted, %last_vector
 %edge_channel = select i1 %is_edge_beyond, i64 %last_vector, i64 %edge_channel_wanted
 %x_edge = getelementptr float, ptr %x_edges, i64 %edge_channel
 %filters_edge = getelementptr float, ptr %filters_edges, i64 %edge_channel
 %out_edge = getelementptr float, ptr %out_edges, i64 %edge_channel
 %bias_edge = getelementptr float, ptr %bias_at, i64 %edge_channel
 br i1 %are_many, label %edge_many, label %edge_one
{edge("edge_many", _VECTORS)}
{edge("edge_one", 1)}
edge_end:
 %next_edge_channel = add i64 %edge_channel_wanted, %edge_step
 br label %edge_channels
edges_end:
 %next_edge = add i64 %edge, 1
 br label %edges
insides:
 %channel_wanted = phi i64 [ 0, %edges ], [ %next_channel, %inside_end ]
 %more_channels = icmp ult i64 %channel_wanted, %channels
 br i1 %more_channels, label %inside, label %row_end
inside:
 %is_beyond = icmp sgt i64 %channel_wanted, %last_vector
 %channel = select i1 %is_beyond, i64 %last_vector, i64 %channel_wanted
 %x_inside = getelementptr float, ptr %x_row, i64 %channel
 %filters_inside = getelementptr float, ptr %filters_row, i64 %channel
 %out_inside = getelementptr float, ptr %out_row, i64 %channel
 %bias_inside = getelementptr float, ptr %bias_at, i64 %channel
 br label %try{_STRIPS[0]}
{_lines(strips, "")}
inside_end:
 %next_channel = add i64 %channel_wanted, {lanes}
 br label %insides
row_end:
 %next_number = add i64 %number, 1
 br label %rows_start
end:
 ret void
}}"""


def _swish(lanes: int) -> str:
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
 {_arguments(SWISH)}
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
 %x = call {vector} @llvm.masked.load.v{lanes}f32.p0(ptr %at, i32 {_ITEM}, {mask} %mask, {vector} zeroinitializer)
 %minus = fneg {vector} %x
 %is_small = fcmp olt {vector} %minus, {all_of(-_LARGEST)}
 %not_small = select {mask} %is_small, {vector} {all_of(-_LARGEST)}, {vector} %minus
 %is_large = fcmp ogt {vector} %not_small, {all_of(_LARGEST)}
 %exponent = select {mask} %is_large, {vector} {all_of(_LARGEST)}, {vector} %not_small
 {fma("moved", "%exponent", all_of(1 / math.log(2)), all_of(_ROUNDING))}
 %power = fsub {vector} %moved, {all_of(_ROUNDING)}
 {fma("near", "%power", all_of(-_LOG2[0]), "%exponent")}
 {fma("rest", "%power", all_of(-_LOG2[1]), "%near")}
 {_lines(polynomial)}
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
 call void @llvm.masked.store.v{lanes}f32.p0({vector} %given, ptr %at, i32 {_ITEM}, {mask} %mask)
 %next_first = add i64 %first, {lanes}
 br label %vectors
row_end:
 %next_number = add i64 %number, 1
 br label %rows_start
end:
 ret void
}}"""


def _taps_inside(axis: str, start: str, dilation: str, size: str, taps: str) -> str:
    """Which taps of a window that begins at *start* are inside: ``%first_axis``, and how many, maybe less than none."""
    return f"""%short_{axis} = sub i64 0, {start}
 %is_outside_{axis} = icmp sgt i64 %short_{axis}, 0
 %missing_{axis} = select i1 %is_outside_{axis}, i64 %short_{axis}, i64 0
 %rounded_{axis} = add i64 %missing_{axis}, {dilation}
 %rounded_down_{axis} = sub i64 %rounded_{axis}, 1
 %first_{axis} = udiv i64 %rounded_down_{axis}, {dilation}
 %room_{axis} = sub i64 {size}, {start}
 %room_up_{axis} = add i64 %room_{axis}, {dilation}
 %room_rounded_{axis} = sub i64 %room_up_{axis}, 1
 %end_free_{axis} = sdiv i64 %room_rounded_{axis}, {dilation}
 %is_cut_{axis} = icmp slt i64 %end_free_{axis}, {taps}
 %end_{axis} = select i1 %is_cut_{axis}, i64 %end_free_{axis}, i64 {taps}
 %taps_{axis} = sub i64 %end_{axis}, %first_{axis}"""


def _arguments(names: Sequence[str]) -> str:
    """Read what the arguments are, into variables of these *names*."""
    lines: list[str] = []
    for number, name in enumerate(names):
        lines.append(f"%{name}_place = getelementptr i64, ptr %arguments, i64 {number}")
        lines.append(f"%{name} = load {'ptr' if name.endswith('_at') else 'i64'}, ptr %{name}_place, align 8")
    return _lines(lines)


def _limits(lanes: int) -> str:
    """The limits as vectors."""
    return _lines([*_spread("low", lanes), *_spread("high", lanes)])


def _limited(name: str, value: str, lanes: int) -> list[str]:
    """``%name_given``: *value* within the limits; not a number stays what it is."""
    vector, truth = f"<{lanes} x float>", f"<{lanes} x i1>"
    return [
        f"%{name}_is_low = fcmp olt {vector} {value}, %low_all",
        f"%{name}_raised = select {truth} %{name}_is_low, {vector} %low_all, {vector} {value}",
        f"%{name}_is_high = fcmp ogt {vector} %{name}_raised, %high_all",
        f"%{name}_given = select {truth} %{name}_is_high, {vector} %high_all, {vector} %{name}_raised",
    ]


def _spread(name: str, lanes: int) -> list[str]:
    """``%name_all``: a vector of the number *name*."""
    vector = f"<{lanes} x float>"
    return [
        f"%{name}_one = insertelement {vector} poison, float %{name}, i32 0",
        f"%{name}_all = shufflevector {vector} %{name}_one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _pointer(name: str, base: str, offset: str, numbers: int) -> list[str]:
    """``%name``: so many bytes behind *base*, and then so many *numbers*."""
    return [
        f"%{name}_before = getelementptr i8, ptr %{base}, i64 %{offset}",
        f"%{name} = getelementptr float, ptr %{name}_before, i64 {numbers}",
    ]


def _lines(lines: Iterable[str], indent: str = " ") -> str:
    return f"\n{indent}".join(lines)
