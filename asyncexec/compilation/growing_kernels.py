"""Kernels of a session without a memory limit: one that makes much of little is called if the process has the memory.

Only ops whose outputs may be far larger than their inputs are looked at, and only where the shapes that are known
before do not say that they are small.  Their size is guessed first, too high rather than too low, from what costs
nothing; a guess that is large is reckoned exactly (``guarded_kernels.py``), and then the system is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.guarded_kernels import Reckoner
from asyncexec.compilation.output_bounds import BOUNDS
from asyncexec.framework import types
from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.kernel import CheckedKernel, Kernel, marked_as
from asyncexec.framework.shape_inference import broadcast
from asyncexec.framework.tensor_shape import Dim
from asyncexec.graph.node import Node, Tensor
from asyncexec.process.free_memory import LARGE_BYTES, check_room

Guess: TypeAlias = Callable[[Sequence[Any]], int]

_ITEM: Final = 16  # bytes of the largest dtype


def _sizes(index: int) -> Guess:
    """Input *index* is the shape of the output."""
    return lambda inputs: math.prod(np.ravel(inputs[index]).tolist()) * _ITEM


def _times(index: int) -> Guess:
    """The first input, as often as the numbers in input *index* say."""
    return lambda inputs: np.size(inputs[0]) * math.prod(np.ravel(inputs[index]).tolist()) * _ITEM


def _padded(inputs: Sequence[ArrayOrScalar]) -> int:
    sides = np.asarray(inputs[1]).sum(axis=-1).tolist()
    return int(math.prod([size + more for size, more in zip(np.shape(inputs[0]), sides, strict=True)])) * _ITEM


def _segments(inputs: Sequence[ArrayOrScalar]) -> int:
    """Each segment is no larger than all data."""
    return int(np.size(inputs[0]) * int(inputs[2])) * _ITEM


def _samples_of_each(inputs: Sequence[ArrayOrScalar]) -> int:
    """A shape, and the parameters of distributions that each give as much."""
    return int(math.prod(np.ravel(inputs[0]).tolist()) * np.size(inputs[1])) * _ITEM


def _crops(inputs: Sequence[Any]) -> int:
    image, boxes, _, sizes = inputs
    return int(math.prod(np.ravel(sizes).tolist()) * np.size(boxes) * image.shape[-1]) * _ITEM


def _padded_blocks(inputs: Sequence[Any]) -> int:
    value, _, paddings = inputs
    sides = np.asarray(paddings).sum(axis=-1).tolist()
    sizes = [size + more for size, more in zip_longest(value.shape[1:], sides, fillvalue=0)]
    return int(value.shape[0] * math.prod(sizes)) * _ITEM


def _range(inputs: Sequence[np.generic]) -> int:
    start, limit, delta = map(float, inputs)
    return int(abs(limit - start) / abs(delta)) * _ITEM


def _product(inputs: Sequence[ArrayOrScalar]) -> int:
    return int(math.prod([value.size for value in inputs])) * _ITEM


def _spread(inputs: Sequence[ArrayOrScalar]) -> int:
    first = inputs[0].shape
    return 0 if all(value.shape == first for value in inputs) else _product(inputs)


def _gathered(inputs: Sequence[ArrayOrScalar]) -> int:
    params, indices = inputs[:2]
    axis = int(inputs[2]) if len(inputs) > 2 else 0
    return int(params.nbytes // max(1, params.shape[axis]) * indices.size)


def _gathered_points(inputs: Sequence[Any]) -> int:
    params, indices = inputs
    depth = indices.shape[-1]
    return int(params.nbytes // max(1, math.prod(params.shape[:depth])) * math.prod(indices.shape[:-1]))


def _total(inputs: Sequence[object]) -> int:
    return sum(value.nbytes for value in inputs if isinstance(value, np.ndarray))


_GUESSES: Final[Mapping[str, Guess]] = {
    **dict.fromkeys(("BroadcastTo", "SparseToDense"), _sizes(1)),
    **dict.fromkeys(("Empty", "Fill", "RandomUniform", "RandomUniformInt", "RandomStandardNormal"), _sizes(0)),
    **dict.fromkeys(
        (
            *("StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomUniform", "StatelessRandomUniformV2"),
            *("ParameterizedTruncatedNormal", "StatelessTruncatedNormal", "TruncatedNormal"),
        ),
        _sizes(0),
    ),
    **dict.fromkeys(
        (
            *("StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2", "StatelessRandomUniformInt"),
            *("StatelessRandomUniformIntV2", "StatelessTruncatedNormalV2", "StridedSliceGrad"),
            *("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"),
        ),
        _sizes(0),
    ),
    **dict.fromkeys(("RandomGamma", "RandomPoisson", "RandomPoissonV2"), _samples_of_each),
    **dict.fromkeys(("HistogramFixedWidth", "LinSpace", "ScatterNd"), _sizes(2)),
    **dict.fromkeys(("OneHot", "ResizeBilinear", "ResizeNearestNeighbor", "Tile"), _times(1)),
    **dict.fromkeys(("DenseBincount", "Multinomial", "ResizeArea", "ResizeBicubic", "StatelessMultinomial"), _times(1)),
    **{f"UnsortedSegment{kind}": _segments for kind in ("Max", "Min", "Prod", "Sum")},
    "CropAndResize": _crops,
    "SpaceToBatchND": _padded_blocks,
    **dict.fromkeys(("MirrorPad", "Pad", "PadV2"), _padded),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"), _product),
    **dict.fromkeys(("Gather", "GatherV2"), _gathered),
    "GatherNd": _gathered_points,
    **dict.fromkeys(
        ("MatMul", "QuantizedMatMul", "SparseMatMul", "_FusedMatMul"),
        lambda inputs: max(inputs[0].shape) * max(inputs[1].shape) * _ITEM,
    ),
    "_FusedProduct": lambda inputs: inputs[0].size // max(1, inputs[0].shape[-1]) * inputs[1].shape[-1] * _ITEM,
    **dict.fromkeys(("BatchMatrixDiag", "Diag", "MatrixDiag"), lambda inputs: np.size(inputs[0]) ** 2 * _ITEM),
    **dict.fromkeys(("Concat", "ConcatV2", "Pack"), _total),
    "Range": _range,
}
# Ops on strings check what they make themselves where a bound says too much.
_UNBOUNDED_TEXT: Final = frozenset({"RegexReplace", "StaticRegexReplace", "StringJoin", "StringLower", "StringUpper"})


def may_grow(node: Node) -> bool:
    """Whether nodes with the properties and the output shapes of *node* may make much of little."""
    op, registration = node.properties.op, node.properties.registration
    if registration.kernel is not None or op in _UNBOUNDED_TEXT:
        return False
    may_spread = registration.shape_function is broadcast or op == "SelectV2"
    return (may_spread or op in BOUNDS or op in _GUESSES) and not _is_small(node)


def checks_room(kernel: Kernel, node: Node) -> Kernel:
    """*kernel* of *node*, which ``may_grow``; unless its input shapes rule that out, called if there is memory."""
    guess = _guess_of(node)
    if guess is None:
        return kernel
    if isinstance(kernel, CheckedKernel):
        return CheckedKernel(_checked(kernel.function, node, guess), kernel.check)
    return _checked(kernel, node, guess)


def _checked(kernel: Kernel, node: Node, guess: Guess) -> Kernel:
    reckoner = Reckoner(node)

    def call(*inputs: object) -> Any:
        try:
            is_large = guess(inputs) >= LARGE_BYTES
        except Exception:  # the kernel tells better what is wrong with the inputs
            is_large = True
        if is_large:
            num_bytes = reckoner.num_bytes(inputs)
            if num_bytes > _largest(inputs):  # else it does not grow, and may be a view of an input
                check_room(num_bytes)
        return kernel(*inputs)

    return marked_as(kernel, call)


def _largest(inputs: Sequence[object]) -> int:
    return max((value.nbytes for value in inputs if isinstance(value, np.ndarray)), default=0)


def _guess_of(node: Node) -> Guess | None:
    op = node.properties.op
    bound = BOUNDS.get(op)
    if bound is not None:
        return lambda inputs: bound(node, inputs)
    found = _GUESSES.get(op)
    if found is None and _spreads(node.inputs):  # what broadcasts
        return _spread
    return found


def _spreads(tensors: Sequence[Tensor]) -> bool:
    """Whether *tensors* broadcast to something larger than each of them.

    Where that is not known they count as alike, as they mostly are: regions know the plain kernels of such ops.
    """
    known: list[tuple[Dim, ...]] = []
    for tensor in tensors:
        dims = tensor.op.output_shapes[tensor.index].dims
        if dims is None:
            return False
        known.append(dims[::-1])
    axes = list(zip_longest(*known, fillvalue=1))
    return all(any(axis[index] == 1 and set(axis) != {1} for axis in axes) for index in range(len(known)))


def _is_small(node: Node) -> bool:
    """Whether the outputs of *node* are known to be small."""
    sizes = [shape.num_elements for shape in node.output_shapes]
    is_text = any(dtype is types.string for dtype in node.properties.output_dtypes)
    return not is_text and all(size is not None and size * _ITEM < LARGE_BYTES for size in sizes)
