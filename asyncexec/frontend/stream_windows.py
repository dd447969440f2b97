"""``ax.window``: the values of the last items of a stream, or of those of the last seconds, as one tensor.

The kernels, and what they go by, are in ``asyncexec/ops/flow/stream_windows.py``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.frontend.calls import TensorLike, composite, dtype_of, tensor_op, tensors_op
from asyncexec.frontend.convert import constant
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.stream_functions import stream_state
from asyncexec.graph.node import Tensor

_MAX_SIZE: Final = 2**31 - 1
_MICROS_PER_S: Final = 1_000_000
_MAX_S: Final = 10**12


def window(
    x: TensorLike,
    size: int | None = None,
    seconds: float | None = None,
    *,
    fill: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The values of *x* in the last items of a stream, stacked along a new first axis, the oldest first::

        recent = ax.window(x, size=100)                  # [1, ...] in the first item, [100, ...] from the 100th on
        last_minute = ax.window(x, size=1000, seconds=60)
        always_100 = ax.window(x, size=100, fill=0.0)    # [100, ...]

    The value of the item itself is always the last one.  In a run that is no stream it is the only one.  The order is
    that of the items.  An item does not change the window if *x* fails in it and the stream goes on
    (``on_error="yield"``), or if *x* is on a branch that is not taken.

    >>> x = ax.placeholder(ax.float32, [])
    >>> recent = ax.window(x, size=100)
    >>> recent.shape
    TensorShape([None])

    Args:
        x: a tensor of any dtype that arrays have.  All values in a window have one shape.
        size: the largest number of items.
        seconds: how long a value stays after its item began, by the clock of the event loop.  Without *size*, the
            65,537th value fails with ResourceExhaustedError.
        fill: pads a window that is not full yet at its front, so that its shape is always [size, ...]; a scalar, or a
            value of the shape of *x*.

    Raises:
        InvalidArgumentError: neither *size* nor *seconds* is given, or one is out of range; *fill* is of another shape,
            or is given without *size*, or with *seconds*; a window is made in a function, branch or loop.
        InvalidTypeError: *x* is of a dtype without arrays, or *fill* of another dtype than *x*.
    """
    micros = None if seconds is None else round(check_seconds(seconds) * _MICROS_PER_S)
    if size is not None:
        check_count(size)
    elif micros is None:
        raise InvalidArgumentError("a window has a size, or a number of seconds, or both", hint="ax.window(x, size=10)")
    if fill is not None and (size is None or micros is not None):
        raise InvalidArgumentError("fill is for windows of a size, without seconds: only they have a size to fill")
    with composite(name, "window", [x, fill]) as scope:
        value = as_tensor(x)
        dtype = dtype_of(value)
        if dtype.is_opaque:
            raise InvalidTypeError(
                f"{value.name!r} is of dtype {dtype.name}, whose values cannot be stacked", node=value.op
            )
        stack = UNKNOWN_SHAPE if value.shape.dims is None else TensorShape([None, *value.shape.dims])
        kept = stream_state(_no_values(value), stack, name="state")
        if micros is None:
            filling = [] if fill is None else [as_tensor(fill, dtype)]
            output = tensor_op("StreamWindow", [kept.value, value, filling], scope, size=size)
        else:
            times = stream_state(constant(np.zeros(0), name="no_times"), [None], name="times")
            now = tensor_op("StreamTime", name="now")
            inputs = [kept.value, times.value, value, now]
            output, new_times = tensors_op("StreamTimeWindow", inputs, scope, size=size or 0, micros=micros)
            times.update(new_times, name="update_times")
        kept.update(output, name="update")
        return output


def _no_values(x: Tensor) -> Tensor:
    """A stack of no values like *x*."""
    dtype = dtype_of(x)
    dims = () if x.shape.dims is None else x.shape.dims
    return constant(np.zeros((0, *(dim or 0 for dim in dims)), dtype.as_numpy_dtype), dtype, name="no_values")


def check_count(size: object, what: str = "the size of a window") -> int:
    """*size*; InvalidArgumentError unless it is a number of items from 1 on."""
    if type(size) is not int or not 0 < size <= _MAX_SIZE:
        raise InvalidArgumentError(f"{what} is a number of items from 1 to {_MAX_SIZE}, not {size!r}")
    return size


def check_seconds(seconds: Any, what: str = "the seconds of a window") -> float:
    """*seconds*; InvalidArgumentError unless they are a time that passes, and not for ever."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if is_number and 1 / _MICROS_PER_S <= seconds <= _MAX_S:
        return float(seconds)
    raise InvalidArgumentError(f"{what} are a number from 1e-06 to {_MAX_S:.0e}, not {seconds!r}")
