"""Convolutions by native code, where there is some: float32 numbers, channels last, one group or one a channel.

A product of many rows with a constant matrix is a convolution, too, of one image whose windows are pixels.  Filters are
laid out anew, panel by panel; constant ones once.  The work is cut into parts that stay in the cache, which idle cores
share: by rows, or where the filters are more than the input, by panels.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.arrays import Array
from asyncexec.framework.layer_rule import LayerRule, NativeLayers
from asyncexec.framework.ownership import is_frozen
from asyncexec.ops.array.windows import Axis, pad_spatial
from asyncexec.ops.nn.panels import Key, Laid, LaidOut, aligned, panels_of
from asyncexec.process.cores import num_cores
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share, spare

_Part: TypeAlias = tuple[range, range]  # rows through all images, or pixels; and panels
_PART_BYTES: Final = 2**18  # of input and output, at most: they stay in the cache
_PANEL_BYTES: Final = 2**21  # of panels
_PIXELS: Final = 84  # a multiple of how many native code takes at a time
_FEW_ROWS: Final = 8  # of a product: with fewer, as much is read as computed
_LONG: Final = 4e7  # multiplications of a product: others BLAS has done before they have begun
_FLOAT: Final = np.dtype(np.float32)
_MOST_PLANS: Final = 64  # of one node


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

    __slots__ = ("_laid_out", "_met", "_plans", "is_depthwise", "rule")

    def __init__(self, *, is_depthwise: bool = False) -> None:
        self.is_depthwise: bool = is_depthwise
        self.rule: LayerRule = LayerRule()
        self._laid_out = LaidOut()  # constant filters and biases
        self._plans: dict[tuple[object, ...], _PanelPlan] = {}  # by shapes, windows and cores
        self._met: dict[Key, weakref.ref[Array]] = {}  # constant weights of products

    def product(self, rows: Array, weights: Array, bias: Array | None = None) -> Array | None:
        """*rows* [..., in] times constant *weights* [in, out], plus *bias*; None if that is not for native code.

        Weights have come twice, so that it is worth while to lay them out.
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
        tail = NO_TAIL if bias is None else Tail(bias)
        made = self(rows.reshape(1, 1, count, -1), weights[None, None], axes, tail, owner)
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
        key = (x.shape, filters.shape, *axes, num_cores())
        plan = self._plans.get(key)
        if plan is None or plan.code is not code:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = _PanelPlan(code, x.shape, filters.shape, axes)
        panels = self._panels(code, filters, filters if owner is None else owner)
        return plan.convolve(x, panels, self._padded_bias(tail.bias, plan.bias_size), tail)

    def _by_channel(
        self, code: NativeLayers, x: Array, filters: Array, axes: Sequence[Axis], out_shape: Sequence[int], tail: Tail
    ) -> Array | None:
        if filters.shape[3] != 1 or not code.lanes <= x.shape[3] == filters.shape[2] or tail.added is not None:
            return None
        rows, columns = axes
        check_array(out_shape, x.dtype)
        out, at_out = aligned(out_shape, x.dtype)
        bias = self._padded_bias(tail.bias, x.shape[3])
        _, height, width, channels = x.shape
        pixel = channels * x.itemsize
        reach = (columns.kernel - 1) * columns.dilation
        first_inside = -(-columns.before // columns.stride)
        end_inside = min(columns.out, (width - 1 - reach + columns.before) // columns.stride + 1)
        if end_inside <= first_inside:  # no window is inside as a whole
            first_inside = end_inside = columns.out
        arguments = (
            *(address_of(x), address_of(filters), at_out, bias.address),
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

        share(convolve, _cut_rows(x.nbytes + out.nbytes, out_shape, 1), out.nbytes)
        return out

    def _panels(self, code: NativeLayers, filters: Array, owner: Array) -> Laid:
        """*filters* [panels, numbers under a window, channels of a panel], with zeros where there are no channels."""
        weights = filters.reshape(-1, filters.shape[-1])
        return self._laid_out.get(owner, _key(owner, filters), lambda: panels_of(weights, code.panel))

    def _padded_bias(self, bias: Array | None, size: int) -> Laid:
        """*bias*, or zeros, *size* numbers in all, with zeros behind."""

        def pad() -> Array:
            padded = np.zeros(size, _FLOAT)
            if bias is not None:
                padded[: bias.size] = bias
            return padded

        if bias is not None:
            return self._laid_out.get(bias, (id(bias), 0, size), pad)
        zeros = pad()
        return Laid(zeros, address_of(zeros))


class _PanelPlan:
    """How images and filters of certain shapes are convolved, panel by panel.

    Attributes:
        bias_size: how many numbers the bias has, with those for channels that are not there.
    """

    __slots__ = (
        "_channels",
        "_columns",
        "_depth",
        "_is_plain",
        "_is_seen_whole",
        "_line",
        "_out_pixel",
        "_out_shape",
        "_outputs",
        "_parts",
        "_room",
        "_rows",
        "_sizes",
        "_windows",
        "bias_size",
        "code",
    )

    def __init__(
        self, code: NativeLayers, x_shape: Sequence[int], filters_shape: Sequence[int], axes: Sequence[Axis]
    ) -> None:
        rows, columns = axes
        depth, channels = filters_shape[2:]
        self.code: NativeLayers = code
        self._rows, self._columns, self._depth, self._channels = rows, columns, depth, channels
        self._out_shape = (x_shape[0], rows.out, columns.out, channels)
        count, item = -(-channels // code.panel), _FLOAT.itemsize
        taps = math.prod(filters_shape[:3])
        self.bias_size: int = count * code.panel
        panel, self._out_pixel = taps * code.panel * item, channels * item
        in_bytes, out_bytes = math.prod(x_shape) * item, math.prod(self._out_shape) * item
        self._is_plain = rows.is_plain and columns.is_plain  # all pixels are one row then, which is cut where it may be
        by_panels = count * panel > in_bytes + out_bytes
        is_padded = _is_padded(rows) or _is_padded(columns)
        self._is_seen_whole = by_panels and is_padded
        if by_panels:
            self._parts = _cut_panels(count, count * panel, self._out_shape, is_plain=self._is_plain)
        else:
            self._parts = _cut_rows(in_bytes + out_bytes, self._out_shape, count, is_plain=self._is_plain)
        width = columns.before + columns.size + columns.after
        self._room: tuple[int, int, int] | None = None  # in which a part pads its rows
        if is_padded and not by_panels:
            self._room = (_reach(len(self._parts[0][0]), rows), width, depth)
            check_array(self._room, _FLOAT)
        height, wide = (rows.before + rows.size + rows.after, width) if self._is_seen_whole else x_shape[1:3]
        self._line = (wide if self._room is None else width) * depth * item
        kernel = (columns.kernel, columns.dilation * depth * item, depth)
        if columns.dilation == 1:  # the numbers in a row of a window are side by side
            kernel = (1, 0, columns.kernel * depth)
        self._sizes = (height * wide * depth * item, rows.stride * self._line, columns.stride * depth * item)
        self._windows = (rows.kernel, rows.dilation * self._line, *kernel)
        self._outputs = (self._out_pixel, channels, panel)

    def convolve(self, x: Array, panels: Laid, bias: Laid, tail: Tail) -> Array:
        """The convolution of *x*, and what follows."""
        check_array(self._out_shape, _FLOAT)
        out, at_out = aligned(self._out_shape, _FLOAT)
        seen = pad_spatial(x, (self._rows, self._columns)) if self._is_seen_whole else x
        at = address_of(seen), panels.address, at_out, bias.address, _address(tail.added)
        scratch: list[tuple[Array, int]] = []
        share(lambda part: self._convolve_part(part, x, at, tail, scratch), self._parts, out.nbytes)
        return out

    def _convolve_part(
        self, part: _Part, x: Array, at: tuple[int, int, int, int, int], tail: Tail, scratch: list[tuple[Array, int]]
    ) -> None:
        lines, some = part
        at_cells, at_panels, at_out, at_bias, at_added = at
        rows, columns = self._rows, self._columns
        begin, pixels, ends = 0, columns.out, (lines.start, lines.stop)
        room = None
        if self._is_plain:
            begin, pixels, ends = lines.start, len(lines), (0, 1)
            at_cells += begin * self._depth * _FLOAT.itemsize
        elif self._room is not None:
            begin, ends = lines.start * columns.out, (0, len(lines))
            room = spare(scratch, self._make_room)
            image, first = divmod(lines.start, rows.out)
            _fill(room[0][: _reach(len(lines), rows)], x[image], first * rows.stride - rows.before, columns)
            at_cells = room[1]
        at_out += begin * self._out_pixel
        places = (at_cells, at_panels, at_out, at_bias, at_added and at_added + begin * self._out_pixel)
        outputs = (rows.out, pixels, *self._outputs, *ends, some.start, some.stop)
        self.code.convolve((*places, *self._sizes, *self._windows, *outputs), tail.low, tail.high)
        if tail.is_swish:
            first_channel, end_channel = some.start * self.code.panel, min(self._channels, some.stop * self.code.panel)
            at_first = at_out + ends[0] * pixels * self._out_pixel + first_channel * _FLOAT.itemsize
            num_pixels = (ends[1] - ends[0]) * pixels
            numbers = (at_first, at_first, num_pixels, self._out_pixel, end_channel - first_channel)
            self.code.activate("swish", numbers)
        if room is not None:
            scratch.append(room)

    def _make_room(self) -> tuple[Array, int]:
        assert self._room is not None
        room = np.zeros(self._room, _FLOAT)
        return room, address_of(room)


def _are_images(x: Array, filters: Array, tail: Tail) -> bool:
    """Whether *x* is of float32 images, and the others fit: what comes of native code is as its arguments lie."""
    if not x.ndim == filters.ndim == 4:
        return False
    if tail.added is not None and not tail.added.flags.c_contiguous:
        return False
    return all(array is None or array.dtype == _FLOAT for array in (x, filters, tail.bias, tail.added))


def _owner(array: Array) -> Array:
    """The array that *array*, which is frozen, is all of in another shape: a constant may come through a Reshape."""
    base = array.base
    is_all = isinstance(base, np.ndarray) and base.nbytes == array.nbytes and base.flags.c_contiguous
    return base if is_all and isinstance(base, np.ndarray) else array


def _key(owner: Array, filters: Array) -> Key:
    return id(owner), math.prod(filters.shape[:-1]), filters.shape[-1]


def _address(array: Array | None) -> int:
    return 0 if array is None else address_of(array)


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


def _cut_panels(num_panels: int, num_bytes: int, out_shape: Sequence[int], *, is_plain: bool) -> list[_Part]:
    """Parts of all rows, or pixels, and some panels each; all panels are *num_bytes*."""
    count = max(2 * num_cores(), num_bytes // _PANEL_BYTES)
    lines = range(math.prod(out_shape[: 3 if is_plain else 2]))
    return [(lines, some) for some in _cut(num_panels, count)]


def _cut_rows(num_bytes: int, out_shape: Sequence[int], num_panels: int, *, is_plain: bool = False) -> list[_Part]:
    """Parts of some rows of an image each, or of pixels, and all panels; input and output are *num_bytes*."""
    count = max(2 * num_cores() if num_bytes > _PART_BYTES else 1, num_bytes // _PART_BYTES)
    panels = range(num_panels)
    if is_plain:
        return [(some, panels) for some in _cut(math.prod(out_shape[:3]), count, _PIXELS)]
    batch, rows = out_shape[:2]
    some_rows = _cut(rows, -(-count // batch))
    starts = range(0, batch * rows, rows)
    return [(range(start + some.start, start + some.stop), panels) for start in starts for some in some_rows]


def _cut(count: int, parts: int, unit: int = 1) -> list[range]:
    """*count* things in about so many *parts*, at multiples of *unit*."""
    step = -(-max(1, -(-count // parts)) // unit) * unit
    return [range(start, min(start + step, count)) for start in range(0, count, step)]
