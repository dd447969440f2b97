"""N-grams of the strings of each row of a ragged tensor (``string_ngrams_op.cc``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.string.string_elements import as_strings


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    return [TensorShape([None]), c.vector(1)]


register_op(
    "StringNGrams",
    "data: string, data_splits: Tsplits -> ngrams: string, ngrams_splits: Tsplits",
    "separator: string; ngram_widths: list(int) >= 0; left_pad: string; right_pad: string; pad_width: int;"
    " preserve_short_sequences: bool; Tsplits: {int32, int64} = int64",
    shape=_shape,
)


@register_kernel("StringNGrams")
def string_ngrams(c: OpKernelConstruction) -> Kernel:
    """For each row the n-grams of each width, with padding at both ends."""
    row_ngrams = _RowNGrams(c)
    splits_dtype = c.np_dtype("Tsplits")

    def kernel(data: Array, splits: Array) -> tuple[Any, Array]:
        if np.ndim(data) != 1 or splits.ndim != 1:
            raise InvalidArgumentError("data and data_splits must be vectors")
        rows = _rows(data.tolist(), splits)
        if not rows or not data.size:
            return as_strings([], (0,)), np.zeros(len(splits), splits_dtype)
        found: list[bytes] = []
        ends = [0]
        for row in rows:
            found.extend(row_ngrams.of(row))
            ends.append(len(found))
        return as_strings(found, (len(found),)), np.array(ends[: len(splits)], splits_dtype)

    return kernel


def _rows(data: list[bytes], splits: Array) -> list[list[bytes]]:
    """The strings of each row; without splits, none."""
    if not splits.size:
        return []
    if splits[0] != 0:
        raise InvalidArgumentError(f"First split value must be 0, got {int(splits[0])}")
    if (np.diff(splits) < 0).any() or splits[-1] > len(data):
        raise InvalidArgumentError(f"Invalid split values: they must not decrease or be more than {len(data)}")
    if splits[-1] != len(data):
        raise InvalidArgumentError(f"Last split value must be data size. Expected {len(data)}, got {int(splits[-1])}")
    bounds = splits.tolist()
    return [data[begin:end] for begin, end in pairwise(bounds)]


class _RowNGrams:
    """The n-grams of one row."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self._widths: Sequence[int] = c.attr("ngram_widths")
        self._separator: bytes = c.attr("separator")
        self._left: bytes = c.attr("left_pad")
        self._right: bytes = c.attr("right_pad")
        self._pad_width: int = c.attr("pad_width")
        self._preserves_short: bool = c.attr("preserve_short_sequences")
        if any(width <= 0 for width in self._widths):
            raise InvalidArgumentError(f"ngram_widths must contain positive values, got {list(self._widths)}")

    def _padding(self, width: int) -> int:
        """How many pads are at each end."""
        return min(self._pad_width if self._pad_width >= 0 else width - 1, width - 1)

    def of(self, row: list[bytes]) -> Iterator[bytes]:
        """The n-grams, width by width."""
        has_any = False
        for width in self._widths:
            pads = self._padding(width)
            count = max(0, len(row) + 2 * pads - width + 1)
            has_any = has_any or count > 0
            if count * width > 2**28:
                raise ResourceExhaustedError(f"{count} n-grams of {width} strings are too many")
            yield from self._of_width(row, width, pads, count)
        if not has_any and self._preserves_short and row:
            width = self._pad_width_of_short(row)
            yield from self._of_width(row, width, self._pad_width, 1)

    def _pad_width_of_short(self, row: list[bytes]) -> int:
        if self._pad_width == -1:
            raise InvalidArgumentError(
                "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not provided"
            )
        return len(row) + 2 * self._pad_width

    def _of_width(self, row: list[bytes], width: int, pads: int, count: int) -> Iterator[bytes]:
        padded = [*[self._left] * pads, *row, *[self._right] * pads]
        for start in range(count):
            yield self._separator.join(padded[start : start + width])
