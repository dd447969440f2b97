"""Values between cells of images, by the cells around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.ops.onnx.arrays import zeros

# Gives the cells that stand for those of any numbers along an axis of that length, and which of them count.
Border: TypeAlias = Callable[[Array, int], tuple[Array, Array | None]]


def zeros_outside(cells: Array, size: int) -> tuple[Array, Array | None]:
    """Cells outside count as zeros."""
    return np.clip(cells, 0, size - 1), (cells >= 0) & (cells < size)


def linear_taps(place: Array) -> list[tuple[Array, Array]]:
    """The two cells around each place, and how much of each it takes."""
    first = np.floor(place)
    share = place - first
    cells = first.astype(np.int64)
    return [(cells, 1 - share), (cells + 1, share)]


def cubic_taps(place: Array, a: float = -0.75) -> list[tuple[Array, Array]]:
    """The four cells around each place, and how much of each it takes."""
    first = np.floor(place)
    share = place - first
    cells = first.astype(np.int64)
    taps = []
    for k in range(-1, 3):
        distance = np.abs(share - k)
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        taps.append((cells + k, near if k in (0, 1) else far))
    return taps


def sample(
    image: Array,
    places: Sequence[Array],
    taps: Callable[[Array], list[tuple[Array, Array]]],
    border: Border = zeros_outside,
) -> Array:
    """The values of *image* [channels, spatial...] at *places*, which are an array for each spatial axis."""
    sizes = image.shape[1:]
    out = zeros((len(image), *places[0].shape), image.dtype)
    if not image.size or not out.size:
        return out
    flat = image.reshape(len(image), -1)
    for cells, weight in _corners(places, sizes, taps, border):
        out += np.take(flat, cells, axis=1) * weight.astype(image.dtype, copy=False)
    return out


def _corners(
    places: Sequence[Array],
    sizes: Sequence[int],
    taps: Callable[[Array], list[tuple[Array, Array]]],
    border: Border,
) -> Iterator[tuple[Array, Array]]:
    """The flat number of a cell near each place, and its weight, for each combination of taps."""
    along = []
    for i, (place, size) in enumerate(zip(places, sizes, strict=True)):
        step = math.prod(sizes[i + 1 :])
        found = []
        for cells, weight in taps(place):
            inside, counts = border(cells, size)
            found.append((inside * step, weight if counts is None else weight * counts))
        along.append(found)
    for combination in product(*along):
        cells, weight = combination[0]
        for more, factor in combination[1:]:
            cells, weight = cells + more, weight * factor
        yield cells, weight
