"""Native code of depthwise convolutions (``native_layers.py`` tells of what it is a part)."""

from __future__ import annotations

from typing import Final

from asyncexec.regions.native_vectors import ITEM, Registers, joined, limited, pointer, read_arguments, spread_limits

DEPTHWISE: Final = (
    *("x_at", "filters_at", "out_at", "bias_at"),
    *("image", "row", "pixel", "height", "width", "tap_rows", "tap_columns", "rows", "columns", "channels"),
    *("row_stride", "column_stride", "row_dilation", "column_dilation", "top", "left"),
    *("first_inside", "end_inside", "first_row", "end_row"),
)
_STRIPS: Final = (8, 4, 2, 1)  # pixels that a depthwise convolution takes at a time
_VECTORS: Final = 4  # of channels, where it takes one pixel at a time


def _strip(registers: Registers, pixels: int, vectors: int) -> str:
    """The function that writes some pixels of some vectors of channels of a depthwise convolution."""
    lanes, vector = registers.lanes, f"<{registers.lanes} x float>"
    sums = [(pixel, part) for pixel in range(pixels) for part in range(vectors)]

    def carried(loop: str, first: str, before: str, after: str) -> str:
        start = first if first == "zeroinitializer" else first + "{}_{}"
        return joined(
            f"%{loop}{i}_{j} = phi {vector} [ {start.format(i, j)}, %{before} ], [ %{after}{i}_{j}, %{after}_end ]"
            for i, j in sums
        )

    products: list[str] = []
    for j in range(vectors):
        products.append(f"%part_at{j} = getelementptr float, ptr %filter_at, i64 {j * lanes}")
        products.append(f"%filter{j} = load {vector}, ptr %part_at{j}, align {ITEM}")
    for i, j in sums:
        if not j:
            products.append(f"%number_offset{i} = mul i64 %pixel, {i}")
        products += pointer(f"number_at{i}_{j}", "under", f"number_offset{i}", j * lanes)
        products.append(f"%number{i}_{j} = load {vector}, ptr %number_at{i}_{j}, align {ITEM}")
        factors = f"{vector} %number{i}_{j}, {vector} %filter{j}, {vector} %column{i}_{j}"
        products.append(f"%tap{i}_{j} = call {vector} @llvm.fma.v{lanes}f32({factors})")
    results: list[str] = []
    for j in range(vectors):
        results.append(f"%bias_at{j} = getelementptr float, ptr %bias, i64 {j * lanes}")
        results.append(f"%bias{j} = load {vector}, ptr %bias_at{j}, align {ITEM}")
    for i, j in sums:
        if not j:
            results.append(f"%out_offset{i} = mul i64 %out_pixel, {i}")
        results.append(f"%biased{i}_{j} = fadd {vector} %row{i}_{j}, %bias{j}")
        results += limited(f"r{i}_{j}", f"%biased{i}_{j}", lanes)
        results += pointer(f"result_at{i}_{j}", "out", f"out_offset{i}", j * lanes)
        results.append(f"store {vector} %r{i}_{j}_given, ptr %result_at{i}_{j}, align {ITEM}")
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
 {joined(products)}
 %next_tap_x = add nuw nsw i64 %tap_x, 1
 br label %columns
column_end:
 %next_tap_y = add nuw nsw i64 %tap_y, 1
 br label %rows
end:
 {spread_limits(lanes)}
 {joined(results)}
 ret void
}}"""


def write_depthwise(registers: Registers) -> str:
    """The function that goes through the rows of a depthwise convolution, and those that it calls.

    At the edges, where a window is not inside as a whole, it takes several vectors of channels at a time, else several
    pixels.
    """
    lanes = registers.lanes
    called = [*(_strip(registers, pixels, 1) for pixels in _STRIPS), _strip(registers, 1, _VECTORS)]
    return f"""{joined(called, "")}
define void @native_depthwise(ptr %arguments, float %low, float %high) {{
entry:
 {read_arguments(DEPTHWISE)}
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
{_edges(lanes)}
{_insides(lanes)}
row_end:
 %next_number = add i64 %number, 1
 br label %rows_start
end:
 ret void
}}"""


def _edges(lanes: int) -> str:
    """The blocks that go through the pixels of a row at its edges, and their channels."""

    def edge(name: str, vectors: int) -> str:
        return f"""{name}:
 call void @strip1_{vectors}(ptr %x_edge, i64 %step, i64 %taps_y, i64 %tap_row, i64 %taps_x, i64 %tap_column,
  ptr %filters_edge, i64 %filter_row, i64 %pixel, ptr %out_edge, ptr %bias_edge, float %low, float %high)
 br label %edge_end"""

    return f"""edges:
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
 br label %edges"""


def _insides(lanes: int) -> str:
    """The blocks that go through the channels of a row, and the pixels that are not at its edges."""
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
    return f"""insides:
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
{joined(strips, "")}
inside_end:
 %next_channel = add i64 %channel_wanted, {lanes}
 br label %insides"""


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
