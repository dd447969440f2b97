"""Functions of strings, element by element.

Names and arguments are those of ``tf.strings`` and ``tf.compat.v1`` (``tensorflow/python/ops/string_ops.py``).  A
string is a
sequence of bytes; with *unit* ``"UTF8_CHAR"`` lengths and positions count characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from asyncexec.framework import types
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.calls import DTypeLike, TensorLike, composite, in_graph_of, tensor_op, tensors_op
from asyncexec.frontend.reduction_functions import axes_of
from asyncexec.graph.node import Tensor


class SplitStrings(NamedTuple):
    """What string_split gives: a sparse matrix of the parts, row i being of string i."""

    indices: Tensor
    values: Tensor
    dense_shape: Tensor


def as_string(
    input: TensorLike,  # noqa: A002
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Each element written as text.

    Args:
        input: numbers, bools or strings.
        precision: digits after the point, of floats.
        scientific: with an exponent, of floats.
        shortest: with an exponent where that is shorter, of floats.
        width: of at least so many characters.
        fill: what stands before it up to that width, by default blanks.
    """
    options: dict[str, Any] = {"precision": precision, "scientific": scientific, "shortest": shortest}
    return tensor_op("AsString", [input], name, width=width, fill=fill, **options)


def string_join(inputs: Sequence[TensorLike], separator: str = "", name: str | None = None) -> Tensor:
    """The strings of several tensors of one shape (or scalars) joined, with *separator* between them."""
    return tensor_op("StringJoin", [list(inputs)], name, separator=separator)


def string_split(input: TensorLike, sep: TensorLike = "", maxsplit: int = -1, name: str | None = None) -> SplitStrings:  # noqa: A002
    """The parts of each string of a vector between *sep*, by default white space; at most *maxsplit* times."""
    return SplitStrings(*tensors_op("StringSplitV2", [input, sep], name, maxsplit=maxsplit))


def string_length(input: TensorLike, unit: str = "BYTE", name: str | None = None) -> Tensor:  # noqa: A002
    """How long each string is, as int32."""
    return tensor_op("StringLength", [input], name, unit=unit)


def string_lower(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:  # noqa: A002
    """In small letters: ASCII only, or all with *encoding* ``"utf-8"``."""
    return tensor_op("StringLower", [input], name, encoding=encoding)


def string_upper(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:  # noqa: A002
    """In capital letters: ASCII only, or all with *encoding* ``"utf-8"``."""
    return tensor_op("StringUpper", [input], name, encoding=encoding)


def string_strip(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """Without white space at both ends."""
    return tensor_op("StringStrip", [input], name)


def string_to_number(
    input: TensorLike,  # noqa: A002
    out_type: DTypeLike = types.float32,
    name: str | None = None,
) -> Tensor:
    """The number each string spells, as *out_type*; text that is none fails when the graph runs."""
    return tensor_op("StringToNumber", [input], name, out_type=as_dtype(out_type))


def substr(
    input: TensorLike,  # noqa: A002
    pos: TensorLike,
    len: TensorLike,  # noqa: A002
    unit: str = "BYTE",
    name: str | None = None,
) -> Tensor:
    """*len* bytes or characters of each string from *pos* on (negative: from the end)."""
    return tensor_op("Substr", [input, pos, len], name, unit=unit)


def regex_replace(
    input: TensorLike,  # noqa: A002
    pattern: TensorLike,
    rewrite: TensorLike,
    replace_global: bool = True,
    name: str | None = None,
) -> Tensor:
    r"""Each string with what matches *pattern* replaced by *rewrite* (``\1`` is group 1), everywhere or only once."""
    return tensor_op("RegexReplace", [input, pattern, rewrite], name, replace_global=replace_global)


def regex_full_match(input: TensorLike, pattern: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """Whether *pattern* matches the whole of each string, as bool."""
    return tensor_op("RegexFullMatch", [input, pattern], name)


def string_to_hash_bucket_fast(input: TensorLike, num_buckets: int, name: str | None = None) -> Tensor:  # noqa: A002
    """A number below *num_buckets*, int64, that depends on the string alone."""
    return tensor_op("StringToHashBucketFast", [input], name, num_buckets=num_buckets)


def reduce_join(
    inputs: TensorLike, axis: Any = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Tensor:
    """The strings along *axis*, by default all, joined with *separator* between them."""
    with composite(name, "ReduceJoin", [inputs]) as scope:
        (x,) = in_graph_of([inputs])
        return tensor_op("ReduceJoin", [x, axes_of(x, axis)], scope, keep_dims=keepdims, separator=separator)
