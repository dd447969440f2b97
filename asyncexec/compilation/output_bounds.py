"""How many bytes the outputs of an op take at most, where its shape function does not tell.

Each bound is reached, or nearly so, by some input of that size: a call that it refuses is one that may take so much.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.graph.node import Node

_sparse_cross: Final = LazyModule("asyncexec.ops.sparse.sparse_cross")

Bound: TypeAlias = Callable[[Node, Sequence[Any]], int]

_POINTER: Final = 8  # of an element of an array of strings
_INT64: Final = 8
_INT32: Final = 4
_LONGEST_NUMBER: Final = 64  # characters of a number that AsString writes without a width
_REFERENCE: Final = re.compile(rb"\\[0-9]")


def makes_text(node: Node) -> bool:
    """Whether the strings that *node* gives are new ones."""
    return node.op in TEXT_OPS


def text_bytes(value: object) -> int:
    """The bytes of the strings in *value*."""
    if isinstance(value, bytes):
        return len(value)
    return sum(map(len, value.flat)) if isinstance(value, np.ndarray) and value.dtype == object else 0


def _count(value: object) -> int:
    return int(value.size) if isinstance(value, np.ndarray) else 1


def _where(node: Node, inputs: Sequence[Array]) -> int:
    return int(np.count_nonzero(inputs[0])) * np.ndim(inputs[0]) * _INT64


def _as_string(node: Node, inputs: Sequence[ArrayOrScalar]) -> int:
    width, precision = int(node.attrs["width"]), int(node.attrs["precision"])
    number = _LONGEST_NUMBER + _whole_digits(inputs[0]) + max(precision, 0)
    return _count(inputs[0]) * (_POINTER + max(width, 0) + (2 * number if np.iscomplexobj(inputs[0]) else number))


def _whole_digits(value: ArrayOrScalar) -> int:
    """Of the largest of floating-point numbers, all of which AsString may write."""
    if np.asarray(value).dtype.kind not in "fc":
        return 0
    largest = np.abs(np.asarray(value, np.complex128)).max(initial=1, where=np.isfinite(value))
    return math.ceil(math.log10(max(1.0, float(largest))))


def _string_join(node: Node, inputs: Sequence[object]) -> int:
    """Scalars are joined to each element of the others."""
    count = max(map(_count, inputs), default=1)
    joined = sum(text_bytes(value) * (1 if isinstance(value, np.ndarray) else count) for value in inputs)
    return count * (_POINTER + len(node.attrs["separator"]) * max(0, len(inputs) - 1)) + joined


def _reduce_join(node: Node, inputs: Sequence[object]) -> int:
    return text_bytes(inputs[0]) + _count(inputs[0]) * (_POINTER + len(node.attrs["separator"]))


def _regex_replace(node: Node, inputs: Sequence[Any]) -> int:
    """Matches do not overlap, so each reference of the replacement gives no more than the text is long."""
    rewrite = node.attrs["rewrite"] if "rewrite" in node.attrs else inputs[2]
    count, size = _count(inputs[0]), text_bytes(inputs[0])
    matches = count + size if node.attrs["replace_global"] else count
    references = len(_REFERENCE.findall(rewrite))
    return matches * len(rewrite) + size * (1 + references) + count * _POINTER


def _string_format(node: Node, inputs: Sequence[object]) -> int:
    """Of each tensor, ``summarize`` elements at both ends of each dimension; all of them if it is negative."""
    summarize = int(node.attrs["summarize"])
    total = len(node.attrs["template"])
    for value in inputs:
        rank = value.ndim if isinstance(value, np.ndarray) else 0
        shown = _count(value) if summarize < 0 else min(_count(value), max(1, 2 * summarize) ** max(1, rank))
        total += shown * _LONGEST_NUMBER + text_bytes(value)
    return total


def _stacked(node: Node, inputs: Sequence[Any]) -> int:
    """Elements of a dataset, each a tuple of components."""
    return sum(getattr(value, "nbytes", _POINTER) for element in inputs[0] for value in element)


def _padded(node: Node, inputs: Sequence[Any]) -> int:
    """The same, each component as large as the padding tells, or as the largest of its size."""
    padding, elements = inputs[0]
    total = 0
    for index, (dtype, sizes) in enumerate(zip(node.properties.output_dtypes, padding.shapes, strict=True)):
        found = [np.shape(element[index]) for element in elements]
        largest = [
            max((shape[axis] for shape in found), default=0) if size < 0 else size for axis, size in enumerate(sizes)
        ]
        total += len(elements) * math.prod(largest) * dtype.as_numpy_dtype.itemsize
    return total


def _like_text(factor: int) -> Bound:
    return lambda node, inputs: factor * (text_bytes(inputs[0]) + _POINTER * _count(inputs[0]))


def _n_grams(node: Node, inputs: Sequence[Array]) -> int:
    """Of each width: a string is in as many n-grams as these are wide, and pads may be all that is in one."""
    attrs, (data, splits) = node.attrs, inputs
    rows = np.diff(splits).astype(object)
    pad, most_pads = len(attrs["left_pad"]) + len(attrs["right_pad"]) + _POINTER, attrs["pad_width"]
    size, separator = text_bytes(data), len(attrs["separator"])
    is_short = rows > 0
    total = 0
    for width in attrs["ngram_widths"]:
        pads = min(most_pads if most_pads >= 0 else width - 1, width - 1)
        counts = np.maximum(rows + 2 * pads - width + 1, 0)
        is_short &= counts == 0
        count = int(counts.sum())
        total += min(width, count) * size + count * (_POINTER + (width - 1) * separator)
        total += min(count * width, 2 * pads * width * len(rows)) * pad
    num_short = int(is_short.sum()) if attrs["preserve_short_sequences"] else 0
    return int(total + (size if num_short else 0) + num_short * 2 * max(0, most_pads) * (pad + separator))


def _split(node: Node, inputs: Sequence[Array | bytes]) -> int:
    """Each part is a string with two indices."""
    value, separator = inputs
    found = [value] if isinstance(value, bytes) else value.flat
    marks = [separator] if node.op == "StringSplitV2" else [separator[i : i + 1] for i in range(len(separator))]
    count = _count(value) + sum(text.count(mark) if mark else len(text) for text in found for mark in marks or [b""])
    return text_bytes(value) + count * (_POINTER + 2 * _INT64)


def _characters(width: int) -> Bound:
    """A character takes one byte or more."""
    return lambda node, inputs: text_bytes(inputs[0]) * width + (_count(inputs[0]) + 1) * _INT64


def _substrings(node: Node, inputs: Sequence[Any]) -> int:
    """A text may be cut at many places."""
    text, place, length = inputs
    if getattr(text, "shape", ()) == getattr(place, "shape", ()):
        return text_bytes(text) + _POINTER * _count(text)
    count = math.prod(np.broadcast_shapes(*[np.shape(value) for value in inputs]))
    longest = len(text) if isinstance(text, bytes) else max(map(len, text.flat), default=0)
    return count * (_POINTER + min(longest, max(0, int(np.max(length, initial=0)))))


def _serialized(node: Node, inputs: Sequence[Any]) -> int:
    """A few bytes for the length of each string, and for what the tensor is."""
    return (
        int(getattr(inputs[0], "nbytes", _POINTER)) + 2 * text_bytes(inputs[0]) + _LONGEST_NUMBER * np.ndim(inputs[0])
    )


def _found(node: Node, inputs: Sequence[object]) -> int:
    """For each key a value, like the default."""
    _, keys, default = inputs
    return _count(keys) * _count(default) * _item_bytes(node)


def _bincount(node: Node, inputs: Sequence[ArrayOrScalar]) -> int:
    return max(0, int(inputs[1])) * node.properties.output_dtypes[0].as_numpy_dtype.itemsize


def _item_bytes(node: Node) -> int:
    return int(node.properties.output_dtypes[0].as_numpy_dtype.itemsize)


def _dense_of_rows(node: Node, inputs: Sequence[Any]) -> int:
    return int(math.prod(inputs[0].shape)) * _item_bytes(node)


def _product_of_rows(node: Node, inputs: Sequence[Any]) -> int:
    """Of a sparse matrix, or a batch of them, with a dense one."""
    matrix, dense = inputs
    rows = matrix.shape[-1 if node.attrs["transpose_a"] or node.attrs["adjoint_a"] else -2]
    columns = np.shape(dense)[-2 if node.attrs["transpose_b"] or node.attrs["adjoint_b"] else -1]
    return int(matrix.batch * rows * columns * _item_bytes(node))


def _row_pointers(node: Node, inputs: Sequence[Array]) -> int:
    """An integer for each row of a sparse matrix of the shape that the last input tells, elements or not."""
    return math.prod(int(size) for size in np.ravel(inputs[-1])[:-1]) * _INT32


def _a_row_each(width: int) -> Bound:
    return lambda node, inputs: int(inputs[2][0]) * width


def _crossed(node: Node, inputs: Sequence[object]) -> int:
    return int(_sparse_cross.crossed_bytes(node.op_def, node.attrs, inputs))


def _sizes(value: Any) -> list[int]:
    return [max(0, int(size)) for size in np.ravel(value).tolist()]


def _of_shape(node: Node, inputs: Sequence[object]) -> int:
    return math.prod(_sizes(inputs[0])) * _item_bytes(node)


def _expanded(node: Node, inputs: Sequence[ArrayOrScalar]) -> int:
    """Broadcast to a shape, which may be smaller."""
    shape, wanted = list(np.shape(inputs[0])), _sizes(inputs[1])
    rank = max(len(shape), len(wanted))
    both = zip([1] * (rank - len(shape)) + shape, [1] * (rank - len(wanted)) + wanted, strict=True)
    return int(math.prod(0 if 0 in (one, other) else max(one, other) for one, other in both) * _item_bytes(node))


def _mel_weights(node: Node, inputs: Sequence[object]) -> int:
    num_bins, length = (_sizes(value)[0] for value in inputs[:2])
    return (length // 2 + 1) * num_bins * _item_bytes(node)


def _one_hot(node: Node, inputs: Sequence[object]) -> int:
    return _count(inputs[0]) * math.prod(_sizes(inputs[1])) * _item_bytes(node)


def _pad(node: Node, inputs: Sequence[ArrayOrScalar]) -> int:
    """At both ends of each dimension, or of those that the last input names."""
    shape, pads = list(np.shape(inputs[0])), np.ravel(inputs[1]).tolist()
    count, last = len(pads) // 2, inputs[-1]
    has_axes = len(inputs) > 2 and np.ndim(last) == 1 and last.dtype.kind == "i" and last.size == count
    for number, axis in enumerate(last.tolist() if has_axes else range(count)):
        shape[axis] = max(0, shape[axis] + pads[number] + pads[number + count])
    return int(math.prod(shape)) * _item_bytes(node)


def _range(node: Node, inputs: Sequence[ArrayOrScalar]) -> int:
    start, limit, delta = (np.ravel(value)[0].item() for value in inputs)
    if isinstance(delta, int):
        return len(range(start, limit, delta)) * _item_bytes(node)
    count: int = max(0, math.ceil((limit - start) / delta))
    return count * _item_bytes(node)


_POLICIES: Final[Mapping[bytes, Callable[[Iterable[float]], float]]] = {b"not_larger": min, b"not_smaller": max}


def _resized(node: Node, inputs: Sequence[Array]) -> int:
    """By factors, or to sizes, whichever comes last."""
    image, last = inputs[0], np.ravel(inputs[-1])
    if last.dtype.kind == "f":
        count: int = math.ceil(image.size * math.prod(last.tolist()))
        return count * _item_bytes(node)
    shape, axes = list(image.shape), list(node.attrs.get("axes") or range(image.ndim))
    sizes = _sizes(last)
    choose = _POLICIES.get(node.attrs.get("keep_aspect_ratio_policy", b"stretch"))
    if choose is not None:
        factor = choose(size / shape[axis] for axis, size in zip(axes, sizes, strict=True))
        sizes = [math.ceil(factor * shape[axis]) for axis in axes]
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return int(math.prod(shape) * _item_bytes(node))


def _tiled(node: Node, inputs: Sequence[object]) -> int:
    return _count(inputs[0]) * math.prod(_sizes(inputs[1])) * _item_bytes(node)


_TEXT: Final[Mapping[str, Bound]] = {
    "AsString": _as_string,
    "DecodeBase64": _like_text(1),
    "EncodeBase64": _like_text(2),
    "ReduceJoin": _reduce_join,
    "RegexReplace": _regex_replace,
    "StaticRegexReplace": _regex_replace,
    "StringFormat": _string_format,
    "SerializeTensor": _serialized,
    "StringJoin": _string_join,
    "StringLower": _like_text(3),
    "StringNGrams": _n_grams,
    "StringUpper": _like_text(3),
    "Substr": _substrings,
    "UnicodeTranscode": _like_text(4),
    "UnsortedSegmentJoin": _reduce_join,
}
TEXT_OPS: Final = frozenset(_TEXT)  # they make new strings
BOUNDS: Final[Mapping[str, Bound]] = {
    **_TEXT,
    "AddManySparseToTensorsMap": _a_row_each(_INT64),
    "Bincount": _bincount,
    "CSRSparseMatrixToDense": _dense_of_rows,
    "Onnx>BlackmanWindow": _of_shape,
    "Onnx>ConstantOfShape": _of_shape,
    "Onnx>HammingWindow": _of_shape,
    "Onnx>HannWindow": _of_shape,
    "Onnx>MelWeightMatrix": _mel_weights,
    "Onnx>Expand": _expanded,
    "Onnx>OneHot": _one_hot,
    "Onnx>Pad": _pad,
    "Onnx>Range": _range,
    "Onnx>Resize": _resized,
    "Onnx>Tile": _tiled,
    "Onnx>Upsample": _resized,
    "LookupTableFind": _found,
    "LookupTableFindV2": _found,
    "SerializeManySparse": _a_row_each(3 * _POINTER),
    "SparseCross": _crossed,
    "SparseCrossHashed": _crossed,
    "SparseCrossV2": _crossed,
    "SparseMatrixMatMul": _product_of_rows,
    "SparseMatrixZeros": _row_pointers,
    "SparseTensorToCSRSparseMatrix": _row_pointers,
    "TensorListReserve": lambda node, inputs: max(0, int(inputs[1])) * _POINTER,
    "Where": _where,
    "StringSplit": _split,
    "StringSplitV2": _split,
    "UnicodeDecode": _characters(_INT32),
    "UnicodeDecodeWithOffsets": _characters(_INT32 + _INT64),
    "_PadElements": _padded,
    "_StackElements": _stacked,
}
