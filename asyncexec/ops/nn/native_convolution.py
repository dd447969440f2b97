"""Convolutions by native code, where there is some: float32 numbers, channels last, one group or one a channel.

A product of many rows with a constant matrix is a convolution, too, of one image whose windows are pixels.  Filters are
laid out anew, panel by panel; constant ones once.  The work is cut into parts that stay in the cache, which idle cores
share: by rows, or where the filters are more than the input, by panels.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.layer_rule import LayerRule, NativeLayers
from asyncexec.framework.ownership import is_frozen
from asyncexec.ops.array.windows import Array, Axis, pad_spatial
from asyncexec.process.cores import num_cores
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share, spare

_Key: TypeAlias = tuple[int, int, int]  # of an array: its id, and taps and channels that it is seen as
_Part: TypeAlias = tuple[range, range]  # rows through all images, or pixels; and panels
_PART_BYTES: Final = 2**18  # of input and output, at most: they stay in the cache
_PANEL_BYTES: Final = 2**21  # of panels
_PIXELS: Final = 84  # a multiple of how many native code takes at a time
_FEW_ROWS: Final = 8  # of a product: with fewer, as much is read as computed
_LONG: Final = 4e7  # multiplications of a product: others BLAS has done before they have begun
_ALIGNED: Final = 64  # bytes
_FLOAT: Final = np.dtype(np.float32)


class Tail(NamedTuple):
    """What follows a convolution: a bias, or None; a tensor of its shape that is added, or None; limits, or a swish."""

    bias: Array | None = None
    added: Array | None = None
    low: float = -math.inf
    high: float = math.inf
    is_swish: bool = False


NO_TAIL: Final = Tail()


class NativeConvolution:
    """Convolutions of all nodes that have the same attrs.

    Args:
        is_depthwise: whether each channel is convolved by itself.

    Attributes:
        rule: what gives the native code.
    """

    __slots__ = ("_laid_out", "_met", "is_depthwise", "rule")

    def __init__(self, *, is_depthwise: bool = False) -> None:
        self.is_depthwise: bool = is_depthwise
        self.rule: LayerRule = LayerRule()
        self._laid_out: dict[_Key, tuple[weakref.ref[Array], Array]] = {}  # constant filters
        self._met: dict[_Key, weakref.ref[Array]] = {}  # constant weights of products

    def product(self, rows: Array, weights: Array) -> Array | None:
        """*rows* [..., in] times constant *weights* [in, out]; None if that is not for native code.

        That has come twice, so that it is worth while to lay it out.
        """
        if self.rule.find_native is None or weights.ndim != 2 or rows.size * weights.shape[1] < _LONG:
            return None
        count = rows.size // rows.shape[-1]
        if rows.shape[-1] != len(weights) or weights.dtype != _FLOAT or not weights.flags.c_contiguous:
            return None
        if count < _FEW_ROWS or not is_frozen(weights):
            return None
        owner = _owner(weights)
        key = _key(owner, weights)
        if key not in self._laid_out:
            known = self._met.get(key)
            if known is None or known() is not owner:
                met = self._met
                met[key] = weakref.ref(owner, lambda _: met.pop(key, None))
                return None
        axes = (Axis(1, 1, 1, 1, 1, 0, 0), Axis(count, 1, 1, 1, count, 0, 0))
        made = self(rows.reshape(1, 1, count, -1), weights[None, None], axes, NO_TAIL, owner)
        return None if made is None else made.reshape(*rows.shape[:-1], -1)

    def __call__(
        self, x: Array, filters: Array, axes: Sequence[Axis], tail: Tail, owner: Array | None = None
    ) -> Array | None:
        """*x* convolved with *filters*, and what follows; None if that is not for native code.

        The constant *filters* are a view of *owner*, if that is given.
        """
        if self.rule.find_native is None or not _are_images(x, filters, tail):
            return None
        depth, channels = filters.shape[2:]
        out_shape = (x.shape[0], axes[0].out, axes[1].out, depth * channels if self.is_depthwise else channels)
        work = math.prod(out_shape) * math.prod(filters.shape[:2]) * (1 if self.is_depthwise else depth)
        if not work or (tail.added is not None and tail.added.shape != out_shape):
            return None
        if tail.bias is not None and tail.bias.shape != out_shape[3:]:
            return None
        code = self.rule.find_native(work)
        if code is None:
            return None
        x, filters = np.ascontiguousarray(x), np.ascontiguousarray(filters)
        if self.is_depthwise:
            return self._by_channel(code, x, filters, axes, out_shape, tail)
        if x.shape[3] != depth:
            return None
        panels = self._panels(code, filters, filters if owner is None else owner)
        return self._by_panel(code, x, panels, channels, axes, out_shape, tail)

    def _by_panel(
        self,
        code: NativeLayers,
        x: Array,
        panels: Array,
        channels: int,
        axes: Sequence[Axis],
        out_shape: Sequence[int],
        tail: Tail,
    ) -> Array:
        depth = x.shape[3]
        rows, columns = axes
        check_array(out_shape, x.dtype)
        out = _aligned(out_shape, x.dtype)
        bias = np.zeros(len(panels) * code.panel, x.dtype)
        if tail.bias is not None:
            bias[:channels] = tail.bias
        is_plain = rows.is_plain and columns.is_plain  # all pixels are one row then, which is cut where it may be
        by_panels = panels.nbytes > x.nbytes + out.nbytes
        seen = pad_spatial(x, axes) if by_panels else x
        scratch = list[Array]() if not by_panels and (_is_padded(rows) or _is_padded(columns)) else None
        width = columns.before + columns.size + columns.after
        item, out_pixel = x.itemsize, channels * x.itemsize
        line = (seen.shape[2] if scratch is None else width) * depth * item
        taps = (columns.kernel, columns.dilation * depth * item, depth)
        if columns.dilation == 1:  # the numbers in a row of a window are side by side
            taps = (1, 0, columns.kernel * depth)
        at_x, at_out, at_added = seen.ctypes.data, out.ctypes.data, _address(tail.added)
        at_filters, at_bias, panel = panels.ctypes.data, bias.ctypes.data, panels.strides[0]
        sizes = (math.prod(seen.shape[1:]) * item, rows.stride * line, columns.stride * depth * item)
        windows = (rows.kernel, rows.dilation * line, *taps)

        def convolve(part: _Part) -> None:
            lines, some = part
            begin, pixels, ends = 0, columns.out, (lines.start, lines.stop)
            room, at_cells = None, at_x
            if is_plain:
                begin, pixels, ends = lines.start, len(lines), (0, 1)
                at_cells += begin * depth * item
            elif scratch is not None:
                begin, ends = lines.start * columns.out, (0, len(lines))
                room = spare(scratch, lambda: np.zeros((_reach(most_rows, rows), width, depth), x.dtype))
                image, first = divmod(lines.start, rows.out)
                _fill(room[: _reach(len(lines), rows)], x[image], first * rows.stride - rows.before, columns)
                at_cells = room.ctypes.data
            at_part = at_out + begin * out_pixel
            places = (at_cells, at_filters, at_part, at_bias, at_added and at_added + begin * out_pixel)
            outputs = (rows.out, pixels, out_pixel, channels, panel, *ends, some.start, some.stop)
            code.convolve((*places, *sizes, *windows, *outputs), tail.low, tail.high)
            if tail.is_swish:
                first_channel, end_channel = some.start * code.panel, min(channels, some.stop * code.panel)
                at_first = at_part + ends[0] * pixels * out_pixel + first_channel * item
                num_pixels = (ends[1] - ends[0]) * pixels
                code.activate("swish", (at_first, at_first, num_pixels, out_pixel, end_channel - first_channel))
            if scratch is not None and room is not None:
                scratch.append(room)

        parts = _cut_panels(panels, out, is_plain) if by_panels else _cut_rows(x, out, len(panels), is_plain)
        most_rows = len(parts[0][0])
        if scratch is not None:
            check_array((_reach(most_rows, rows), width, depth), x.dtype)
        share(convolve, parts, out.nbytes)
        return out

    def _by_channel(
        self, code: NativeLayers, x: Array, filters: Array, axes: Sequence[Axis], out_shape: Sequence[int], tail: Tail
    ) -> Array | None:
        if filters.shape[3] != 1 or not code.lanes <= x.shape[3] == filters.shape[2] or tail.added is not None:
            return None
        rows, columns = axes
        check_array(out_shape, x.dtype)
        out = _aligned(out_shape, x.dtype)
        bias = np.zeros(x.shape[3], x.dtype) if tail.bias is None else np.ascontiguousarray(tail.bias)
        _, height, width, channels = x.shape
        pixel = channels * x.itemsize
        reach = (columns.kernel - 1) * columns.dilation
        first_inside = -(-columns.before // columns.stride)
        end_inside = min(columns.out, (width - 1 - reach + columns.before) // columns.stride + 1)
        if end_inside <= first_inside:  # no window is inside as a whole
            first_inside = end_inside = columns.out
        at_out = out.ctypes.data
        arguments = (
            *(x.ctypes.data, filters.ctypes.data, at_out, bias.ctypes.data),
            *(height * width * pixel, width * pixel, pixel, height, width, rows.kernel, columns.kernel),
            *(rows.out, columns.out, channels, rows.stride, columns.stride, rows.dilation, columns.dilation),
            *(rows.before, columns.before, first_inside, end_inside),
        )

        def convolve(part: _Part) -> None:
            lines, _ = part
            code.convolve_depthwise((*arguments, lines.start, lines.stop), tail.low, tail.high)
            if tail.is_swish:
                row = columns.out * pixel
                at_first = at_out + lines.start * row
                code.activate("swish", (at_first, at_first, len(lines), row, columns.out * channels))

        share(convolve, _cut_rows(x, out, 1), out.nbytes)
        return out

    def _panels(self, code: NativeLayers, filters: Array, owner: Array) -> Array:
        """*filters* [panels, numbers under a window, channels of a panel], with zeros where there are no channels.

        They are kept as long as *owner* is there, if nobody can write to it.
        """
        key = _key(owner, filters)
        known = self._laid_out.get(key)
        if known is not None and known[0]() is owner:
            return known[1]
        taps, channels = math.prod(filters.shape[:-1]), filters.shape[-1]
        count = -(-channels // code.panel)
        check_array((count, taps, code.panel), filters.dtype)
        panels = _aligned((count, taps, code.panel), filters.dtype)
        weights = filters.reshape(taps, channels)
        for number, panel in enumerate(panels):
            some = weights[:, number * code.panel : (number + 1) * code.panel]
            panel[:, : some.shape[1]] = some
            panel[:, some.shape[1] :] = 0
        if is_frozen(owner):
            laid_out = self._laid_out
            laid_out[key] = weakref.ref(owner, lambda _: laid_out.pop(key, None)), panels
        return panels


def _are_images(x: Array, filters: Array, tail: Tail) -> bool:
    """Whether *x* is of float32 images, and the others fit: what comes of native code is as its arguments lie."""
    if not x.ndim == filters.ndim == 4:
        return False
    if tail.added is not None and not tail.added.flags.c_contiguous:
        return False
    return all(array is None or array.dtype == _FLOAT for array in (x, filters, tail.bias, tail.added))


def _aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array that begins where a line of the cache does: loads of vectors take twice as long across two lines.

    It can be frozen: nobody else can write to what it is a view of.
    """
    size = math.prod(shape)
    room = np.empty(size + _ALIGNED // dtype.itemsize, dtype)
    start = -room.ctypes.data % _ALIGNED // dtype.itemsize
    array = room[start : start + size].reshape(shape)
    room.setflags(write=False)
    return array


def _owner(array: Array) -> Array:
    """The array that *array*, which is frozen, is all of in another shape: a constant may come through a Reshape."""
    base = array.base
    is_all = isinstance(base, np.ndarray) and base.nbytes == array.nbytes and base.flags.c_contiguous
    return base if is_all and isinstance(base, np.ndarray) else array


def _key(owner: Array, filters: Array) -> _Key:
    return id(owner), math.prod(filters.shape[:-1]), filters.shape[-1]


def _address(array: Array | None) -> int:
    return 0 if array is None else array.ctypes.data


def _is_padded(axis: Axis) -> bool:
    return axis.before > 0 or axis.after > 0


def _reach(count: int, axis: Axis) -> int:
    """How many cells are under *count* windows along *axis*."""
    return (count - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1


def _fill(cells: Array, image: Array, top: int, columns: Axis) -> None:
    """Let *cells* be the rows of *image* from *top* on, with zeros where there are none, and pads, which are zeros."""
    first, end = max(0, top), min(len(image), top + len(cells))
    if first >= end:
        cells.fill(0)
        return
    cells[: first - top].fill(0)
    cells[end - top :].fill(0)
    np.copyto(cells[first - top : end - top, columns.before : columns.before + columns.size], image[first:end])


def _cut_panels(panels: Array, out: Array, is_plain: bool) -> list[_Part]:
    """Parts of all rows, or pixels, and some *panels* each."""
    count = max(2 * num_cores(), panels.nbytes // _PANEL_BYTES)
    lines = range(math.prod(out.shape[: 3 if is_plain else 2]))
    return [(lines, some) for some in _cut(len(panels), count)]


def _cut_rows(x: Array, out: Array, num_panels: int, is_plain: bool = False) -> list[_Part]:
    """Parts of some rows of an image each, or of pixels, and all panels."""
    num_bytes = x.nbytes + out.nbytes
    count = max(2 * num_cores() if num_bytes > _PART_BYTES else 1, num_bytes // _PART_BYTES)
    panels = range(num_panels)
    if is_plain:
        return [(some, panels) for some in _cut(math.prod(out.shape[:3]), count, _PIXELS)]
    batch, rows = out.shape[:2]
    some_rows = _cut(rows, -(-count // batch))
    starts = range(0, batch * rows, rows)
    return [(range(start + some.start, start + some.stop), panels) for start in starts for some in some_rows]


def _cut(count: int, parts: int, unit: int = 1) -> list[range]:
    """*count* things in about so many *parts*, at multiples of *unit*."""
    step = -(-max(1, -(-count // parts)) // unit) * unit
    return [range(start, min(start + step, count)) for start in range(0, count, step)]
