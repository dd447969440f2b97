"""Sliding windows of streams: the values of the last items, or of those of the last seconds, along a new first axis.

The ops take what the item before has left (a state of the stream, see ``stream.py``) and give what this one leaves.
They are of this project; that the newest value is in the window, and one exactly as old as the window is long is not,
is pandas' ``DataFrame.rolling`` of a time offset.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration, registry
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import freeze
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.ops.array.array_common import PLAIN, boxed, boxing, empty

# Values at most in a window that only a time bounds.
MAX_WINDOW: Final = 2**16
_MICROS_PER_S: Final = 1_000_000


def _stacked(value: TensorShape, window: TensorShape, size: Dim) -> TensorShape:
    """The shape of *size* values, as far as it is known from one, or from those before."""
    if window.dims is not None:
        value = value.merge_with(window.with_rank_at_least(1)[1:])
    return UNKNOWN_SHAPE if value.dims is None else TensorShape([size, *value.dims])


def _window_shape(c: InferenceContext) -> Sequence[TensorShape]:
    window, value, *fill = c.input_shapes
    for shape in fill:
        if shape.rank != 0:
            value = value.merge_with(shape)
    return [_stacked(value, window, c.attr("size") if fill else None)]


def _time_window_shape(c: InferenceContext) -> Sequence[TensorShape]:
    window, times, value, now = c.input_shapes
    times.with_rank(1)
    now.with_rank(0)
    return [_stacked(value, window, None), TensorShape([None])]


register_op(
    "StreamWindow",
    "window: T, value: T, fill: N * T -> output: T",
    "T: type; size: int >= 1; N: int >= 0",
    shape=_window_shape,
)
register_op(
    "StreamTimeWindow",
    "window: T, times: float64, value: T, now: float64 -> output: T, output_times: float64",
    "T: type; size: int >= 0 = 0; micros: int >= 1",
    shape=_time_window_shape,
)
register_op("StreamTime", "-> time: float64", shape=lambda _: [SCALAR], is_stateful=True)


def _check_alike(window: Any, value: Any) -> None:
    if window.ndim == 0 or (len(window) and window.shape[1:] != value.shape):
        held = f"values of shape {list(window.shape[1:])}" if window.ndim else "a scalar"
        raise InvalidArgumentError(
            f"the window holds {held}, and the next one is of shape {list(value.shape)}",
            hint="all values in a window are of one shape",
        )


def _window_kernel(c: OpKernelConstruction) -> Kernel:
    size, np_dtype = c.attr("size"), c.np_dtype("T")

    def window_kernel(window: Any, value: Any, *fill: object) -> object:
        _check_alike(window, value)
        kept = window[max(0, len(window) - size + 1) :]
        num_missing = size - 1 - len(kept) if fill else 0
        output = empty((num_missing + len(kept) + 1, *value.shape), np_dtype)
        if num_missing:
            _fill_in(output[:num_missing], fill[0], value)
        if len(kept):
            output[num_missing:-1] = kept
        output[-1:] = value  # by a slice: a string in a 0-d array is taken out of it
        return freeze(output)  # the stream keeps it

    return boxing(c, window_kernel)


def _fill_in(output: Any, fill: Any, value: Any) -> None:
    if fill.shape not in ((), value.shape):
        raise InvalidArgumentError(
            f"fill is a scalar or of the shape of the values, {list(value.shape)}, not of shape {list(fill.shape)}"
        )
    output[...] = fill


def _time_window_kernel(c: OpKernelConstruction) -> Kernel:
    size, np_dtype = c.attr("size"), c.np_dtype("T")
    seconds = c.attr("micros") / _MICROS_PER_S

    def time_window_kernel(window: Any, times: Any, value: Any, now: Any) -> tuple[object, object]:
        window, value = boxed(window), boxed(value)
        _check_alike(window, value)
        if times.shape != window.shape[:1] or now.ndim:
            raise InvalidArgumentError(
                f"there are {len(window)} values in the window, and times of shape {list(times.shape)}"
            )
        if len(times):
            now = max(now, times[-1])
        first = int(np.searchsorted(times, now - seconds, side="right"))
        count = len(times) - first + 1
        if size:
            first += max(0, count - size)
        elif count > MAX_WINDOW:
            raise ResourceExhaustedError(
                f"there are more than {MAX_WINDOW} values in {seconds:g} seconds",
                hint="size= bounds a window: it then holds the last of them",
            )
        count = len(times) - first + 1
        output, output_times = empty((count, *value.shape), np_dtype), np.empty(count)
        if count > 1:
            output[:-1], output_times[:-1] = window[first:], times[first:]
        output[-1:], output_times[-1:] = value, now
        return freeze(output), freeze(output_times)

    return time_window_kernel


def _time() -> object:
    """What the clock of the event loop says; outside of a loop, the clock that loops go by."""
    try:
        return np.float64(asyncio.get_running_loop().time())
    except RuntimeError:
        return np.float64(time.monotonic())


_CONSTRAINTS: Final = {"T": PLAIN}
registry.register("StreamWindow", "CPU", KernelRegistration(_window_kernel, constraints=_CONSTRAINTS))
registry.register("StreamTimeWindow", "CPU", KernelRegistration(_time_window_kernel, constraints=_CONSTRAINTS))
# Never on a worker thread: there is no event loop there.
registry.register("StreamTime", "CPU", KernelRegistration(lambda _: _time, KernelKind.CHEAP, is_expensive=False))
