"""Windows over the last dimensions of arrays: how many there are, borders, and the cells that each tap sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.process.free_memory import check_array

Pads = Sequence[tuple[int, int]]
# What torch and numpy call ways to fill borders.
_MODES: Final = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def num_windows(size: int, window: int, stride: int, dilation: int = 1, pad: tuple[int, int] = (0, 0)) -> int:
    """How many windows fit into *size* cells with borders; InvalidArgumentError when none does."""
    reach = dilation * (window - 1) + 1
    count = (size + sum(pad) - reach) // stride + 1
    if min(window, stride, dilation) < 1 or count < 1:
        raise InvalidArgumentError(
            f"a window of {window} cells (stride {stride}, dilation {dilation}) does not fit into {size} cells with "
            f"borders of {pad[0]} and {pad[1]}"
        )
    return count


def padded(x: Any, pads: Pads, mode: str = "zeros", value: object = 0) -> Array:
    """*x* with borders around its last dimensions; negative ones cut it.

    Raises:
        InvalidArgumentError: there is no such mode, or the borders do not fit it.
        ResourceExhaustedError: the result is too large.
    """
    if not any(pad for pair in pads for pad in pair):
        return x
    cut = tuple(
        slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(_sizes(x, pads), pads, strict=True)
    )
    x = x[(..., *cut)]
    widths = [(0, 0)] * (x.ndim - len(pads)) + [(max(low, 0), max(high, 0)) for low, high in pads]
    shape = [size + low + high for size, (low, high) in zip(x.shape, widths, strict=True)]
    check_array(shape, x.dtype)
    if mode not in ("zeros", "constant"):
        return _padded_by_itself(x, widths, mode)
    out = np.full(shape, value, x.dtype)
    out[tuple(slice(low, low + size) for size, (low, _) in zip(x.shape, widths, strict=True))] = x
    return out


def _sizes(x: Any, pads: Pads) -> tuple[int, ...]:
    if len(pads) > x.ndim:
        raise InvalidArgumentError(f"borders for {len(pads)} dimensions do not fit an array of shape {list(x.shape)}")
    return tuple(x.shape[x.ndim - len(pads) :])


def _padded_by_itself(x: Array, widths: Pads, mode: str) -> Array:
    if mode not in _MODES:
        raise InvalidArgumentError(f"there is no padding mode {mode!r}")
    most = {"reflect": -1, "replicate": None, "circular": 0}[mode]
    for size, pair in zip(x.shape, widths, strict=True):
        if most is not None and max(pair) > size + most:
            raise InvalidArgumentError(f"borders of {pair[0]} and {pair[1]} do not fit {size} cells in mode {mode!r}")
    return np.pad(x, widths, mode=_MODES[mode])  # type: ignore[call-overload]


def taps(
    x: Any, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For each cell of the window: its place, and a view of *x* with what the windows have there."""
    for place in product(*map(range, window)):
        cells = tuple(
            slice(k * d, k * d + s * (n - 1) + 1, s) for k, d, s, n in zip(place, dilation, stride, out, strict=True)
        )
        yield place, x[(..., *cells)]


def with_batch(x: Array, dims: int) -> tuple[Array, bool]:
    """*x* with a batch dimension before channels and *dims* more, and whether it was added.

    Raises:
        InvalidArgumentError: *x* has another number of dimensions.
    """
    if x.ndim == dims + 2:
        return x, False
    if x.ndim != dims + 1:
        raise InvalidArgumentError(f"expected {dims + 1} or {dims + 2} dimensions, not shape {list(x.shape)}")
    return x[None], True
