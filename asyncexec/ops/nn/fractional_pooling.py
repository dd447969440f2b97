"""FractionalMaxPool, FractionalAvgPool and their gradients: windows of random sizes (``fractional_*_pool_op.cc``).

A pooling sequence holds where each window begins, and where the last one ends.  B. Graham,
"Fractional max-pooling", 2014.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.random.random_stateful import GuardedPhilox
from asyncexec.ops.random.simple_philox import SimplePhilox
from asyncexec.process.free_memory import check_array


def _pseudo_random(length: int, windows: int, generator: GuardedPhilox) -> list[int]:
    alpha, k = length / windows, length // windows
    most = min((k + 2) / alpha - 1, (length + 1 - k) / alpha - (windows - 1))
    u = SimplePhilox(generator.reserve(1)).float64() * most
    return [0, *(math.ceil(alpha * (i + u)) - 1 for i in range(1, windows)), length]


def _random(length: int, windows: int, generator: GuardedPhilox) -> list[int]:
    sizes = [length // windows + (i < length % windows) for i in range(windows)]
    random = SimplePhilox(generator.reserve(-(-windows // 4)))
    for i in range(windows - 1):
        other = i + random.word() % (windows - i)
        sizes[i], sizes[other] = sizes[other], sizes[i]
    return [0, *np.cumsum(sizes).tolist()]


class _Sequences:
    """The windows of a node.  With *deterministic*, those of the first run stay."""

    def __init__(self, op: OpKernelConstruction) -> None:
        self._generator = GuardedPhilox(op.attr("seed"), op.attr("seed2"))
        self._draw = _pseudo_random if op.attr("pseudo_random") else _random
        self._keeps: bool = op.attr("deterministic")
        self._kept: tuple[Array, Array] | None = None
        self._lock = threading.Lock()

    def draw(self, lengths: Sequence[int], windows: Sequence[int]) -> tuple[Array, Array]:
        """The sequences of rows and of columns."""
        with self._lock:
            if self._kept is not None:
                rows, columns = self._kept
                return rows.copy(), columns.copy()  # what a run gives is its own
            pairs = zip(lengths, windows, strict=True)
            rows, columns = (np.array(self._draw(length, count, self._generator), np.int64) for length, count in pairs)
            if self._keeps:
                self._kept = rows.copy(), columns.copy()
            return rows, columns


def _window_counts(shape: Sequence[int], ratios: Sequence[float]) -> list[int]:
    if len(shape) != 4:
        raise InvalidArgumentError(f"tensor_in must be 4-dimensional, not of shape {list(shape)}")
    for size, ratio in zip(shape, ratios, strict=True):
        if size < ratio:
            raise InvalidArgumentError(f"Pooling ratio is higher than input dimension size: {list(shape)}")
    counts = [math.floor(size / np.float32(ratio)) for size, ratio in zip(shape, ratios, strict=True)]
    if min(counts) <= 0:
        raise InvalidArgumentError(f"an input of shape {list(shape)} has no windows")
    return counts


def _ends(sequence: Array, size: int, overlapping: bool) -> tuple[Array, Array]:
    """The first cell of each window, and the one after its last."""
    return sequence[:-1], np.minimum(sequence[1:] + overlapping, size)


def _pooled(x: Array, axis: int, starts: Array, stops: Array, combine: np.ufunc) -> Array:
    """*x* with the cells of each window on one axis combined; windows overlap by a cell at most."""
    out: Array = combine.reduceat(x, starts, axis=axis, dtype=x.dtype)
    # reduceat ends a window where the next begins: the cell that both have is left.
    extra = np.minimum(stops - 1, x.shape[axis] - 1)
    shared = stops > np.append(starts[1:], x.shape[axis])
    place: list[Any] = [slice(None)] * x.ndim
    place[axis] = np.flatnonzero(shared)
    if shared.any():
        out[tuple(place)] = combine(out[tuple(place)], x.take(extra[shared], axis))
    return out


@register_kernel("FractionalMaxPool", "FractionalAvgPool", kind=KernelKind.EXPENSIVE)
def make_fractional_pool(op: OpKernelConstruction) -> Kernel:
    """The kernel of FractionalMaxPool and FractionalAvgPool."""
    ratios, overlapping, is_max = op.attr("pooling_ratio"), op.attr("overlapping"), op.op == "FractionalMaxPool"
    check_ratios(ratios)
    if not op.attr("deterministic") and (op.attr("seed") or op.attr("seed2")):
        raise InvalidArgumentError("Both seed and seed2 should be 0 if deterministic is false.")
    sequences = op.node_state(_Sequences, lambda: _Sequences(op))

    def kernel(x: Array) -> tuple[Array, Array, Array]:
        counts = _window_counts(x.shape, ratios)
        rows, columns = sequences.draw(x.shape[1:3], counts[1:3])
        y_ends, x_ends = (_ends(seq, x.shape[1 + i], overlapping) for i, seq in enumerate((rows, columns)))
        combine = np.maximum if is_max else np.add
        if is_max and x.dtype.kind == "f":
            x = np.where(np.isnan(x), np.finfo(x.dtype).min, x)
        out = _pooled(_pooled(x, 1, *y_ends, combine), 2, *x_ends, combine)
        if not is_max:
            cells = np.multiply.outer(y_ends[1] - y_ends[0], x_ends[1] - x_ends[0])[..., None].astype(x.dtype)
            out = out / cells if x.dtype.kind == "f" else _cut_quotient(out, cells)
        return out, rows, columns

    return kernel


def _cut_quotient(values: Array, counts: Array) -> Array:
    quotient = values // counts
    cut: Array = quotient + ((values < 0) & (quotient * counts != values))
    return cut


def check_ratios(ratios: Sequence[float]) -> None:
    """An error unless *ratios* are those of rows and columns."""
    if len(ratios) != 4:
        raise InvalidArgumentError(f"pooling_ratio field must specify 4 dimensions, not {len(ratios)}")
    if min(ratios) < 1:
        raise InvalidArgumentError(f"pooling_ratio cannot be smaller than 1, got {list(ratios)}")
    if ratios[0] != 1 or ratios[3] != 1:
        raise UnimplementedError("Fractional pooling is not yet supported on the batch nor channel dimension.")


def _checked_sequences(dy: Array, rows: Array, columns: Array, sides: Sequence[int]) -> None:
    for what, sequence, count, side in zip(("row", "column"), (rows, columns), dy.shape[1:3], sides, strict=True):
        if sequence.ndim != 1 or len(sequence) != count + 1:
            raise InvalidArgumentError(f"the {what} pooling sequence must have {count + 1} elements")
        if (sequence < 0).any() or (sequence[:-1] >= side).any() or (np.diff(sequence) < 1).any():
            raise InvalidArgumentError(f"the {what} pooling sequence must rise within [0, {side}]: {sequence.tolist()}")


@register_kernel("FractionalAvgPoolGrad", kind=KernelKind.EXPENSIVE)
def make_average_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of FractionalAvgPoolGrad."""
    overlapping, dtype = op.attr("overlapping"), op.np_dtype("T")

    def kernel(shape: Array, dy: Array, rows: Array, columns: Array) -> Array:
        if np.shape(shape) != (4,) or (shape <= 0).any():
            raise InvalidArgumentError(f"original input tensor shape must be 4 sizes, not {np.asarray(shape).tolist()}")
        sizes = [int(size) for size in shape]
        if dy.ndim != 4 or not dy.size or dy.shape[0] > sizes[0] or dy.shape[3] != sizes[3]:
            raise InvalidArgumentError(f"out_backprop {list(dy.shape)} does not fit the input {sizes}")
        _checked_sequences(dy, rows, columns, sizes[1:3])
        check_array(sizes, np.dtype(np.float64))
        total = np.zeros(sizes)
        starts, stops = _ends(rows, sizes[1], overlapping)
        left, right = _ends(columns, sizes[2], overlapping)
        share = dy / np.multiply.outer(stops - starts, right - left)[..., None]
        for y, (top, bottom) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            for x, (first, last) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
                total[: len(dy), top:bottom, first:last] += share[:, y : y + 1, x : x + 1]
        return total.astype(dtype)

    return kernel


@register_kernel("FractionalMaxPoolGrad", kind=KernelKind.EXPENSIVE)
def make_max_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of FractionalMaxPoolGrad: to the first cell of each window that has the maximum."""
    overlapping, dtype = op.attr("overlapping"), op.np_dtype("T")

    def kernel(x: Array, y: Array, dy: Array, rows: Array, columns: Array) -> Array:
        if x.ndim != 4 or y.ndim != 4 or dy.shape != y.shape or (y.shape[0], y.shape[3]) != (x.shape[0], x.shape[3]):
            raise InvalidArgumentError(
                f"orig_input {list(x.shape)}, orig_output {list(y.shape)} and out_backprop {list(dy.shape)} do not fit"
            )
        if not x.size:
            raise InvalidArgumentError(f"orig_input {list(x.shape)} is empty")
        _checked_sequences(dy, rows, columns, x.shape[1:3])
        total = np.zeros(x.shape, dtype)
        starts, stops = _ends(rows, x.shape[1], overlapping)
        left, right = _ends(columns, x.shape[2], overlapping)
        batch, channel = np.ogrid[: x.shape[0], : x.shape[3]]
        for i, (top, bottom) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            for j, (first, last) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
                cells = x[:, top:bottom, first:last].reshape(x.shape[0], -1, x.shape[3])
                best = cells.argmax(1)
                if (np.take_along_axis(cells, best[:, None], 1)[:, 0] != y[:, i, j]).any():
                    raise InvalidArgumentError("orig_output is not what orig_input comes to when it is pooled")
                where = top + best // (last - first), first + best % (last - first)
                total[batch, where[0], where[1], channel] += dy[:, i, j]
        return total

    return kernel


def pool_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Of windows as many as the ratios tell, and where they are."""
    ratios = c.attr("pooling_ratio")
    check_ratios(ratios)
    sizes = c.with_rank(0, 4).as_list()
    counts = [None if n is None else math.floor(n / np.float32(r)) for n, r in zip(sizes, ratios, strict=True)]
    ends = [TensorShape([None if count is None else count + 1]) for count in counts[1:3]]
    return [TensorShape(counts), *ends]


def average_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """What the first input spells."""
    return [c.value_as_shape(0).with_rank(4)]


def max_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the input."""
    return [c.with_rank(0, 4)]


_TYPES: Final = "T: {float32, float64, int32, int64}"
for _name in ("FractionalMaxPool", "FractionalAvgPool"):
    register_op(
        _name,
        "value: T -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
        "pooling_ratio: list(float) >= 4; pseudo_random: bool = False; overlapping: bool = False; "
        f"deterministic: bool = False; seed: int = 0; seed2: int = 0; {_TYPES}",
        shape=pool_shape,
    )
register_op(
    "FractionalAvgPoolGrad",
    "orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64 "
    "-> output: T",
    f"overlapping: bool = False; {_TYPES}",
    shape=average_grad_shape,
)
register_op(
    "FractionalMaxPoolGrad",
    "orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64 "
    "-> output: T",
    f"overlapping: bool = False; {_TYPES}",
    shape=max_grad_shape,
)
