"""Functions of strings, element by element.

Names and arguments are those of ``tf.strings`` and ``tf.compat.v1`` (``tensorflow/python/ops/string_ops.py``).  A
string is a sequence of bytes.  With *unit* ``"UTF8_CHAR"`` lengths and positions count characters.

Raises:
    InvalidTypeError: an argument has no strings.
    InvalidArgumentError: when the graph runs, a pattern is malformed, a position is out of range, or a text is no
        number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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

    >>> show(ax.as_string([1, 2]))
    [b'1' b'2']

    Args:
        input: numbers, bools or strings.
        precision: digits after the point, of floats.
        scientific: with an exponent, of floats.
        shortest: with an exponent where that is shorter, of floats.
        width: the smallest number of characters.
        fill: the character that pads the text at its front, by default a blank.
    """
    options: dict[str, object] = {"precision": precision, "scientific": scientific, "shortest": shortest}
    return tensor_op("AsString", [input], name, width=width, fill=fill, **options)


def string_join(inputs: Sequence[TensorLike], separator: str = "", name: str | None = None) -> Tensor:
    """The strings of several tensors of one shape (or scalars) joined, with *separator* between them.

    >>> show(ax.string_join([["a", "b"], ["c", "d"]], separator="/"))
    [b'a/c' b'b/d']
    """
    return tensor_op("StringJoin", [list(inputs)], name, separator=separator)


def string_split(input: TensorLike, sep: TensorLike = "", maxsplit: int = -1, name: str | None = None) -> SplitStrings:  # noqa: A002
    """The parts of each string of a vector between *sep*, by default white space; at most *maxsplit* splits.

    >>> show(*ax.string_split(["a b", "c"]))
    [[0 0]
     [0 1]
     [1 0]]
    [b'a' b'b' b'c']
    [2 2]
    """
    return SplitStrings(*tensors_op("StringSplitV2", [input, sep], name, maxsplit=maxsplit))


def string_length(input: TensorLike, unit: str = "BYTE", name: str | None = None) -> Tensor:  # noqa: A002
    """The length of each string, as int32.

    >>> show(ax.string_length(["tea", "bread"]))
    [3 5]
    """
    return tensor_op("StringLength", [input], name, unit=unit)


def string_lower(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:  # noqa: A002
    """Each string in lower case: ASCII letters only, or all letters with *encoding* ``"utf-8"``.

    >>> show(ax.string_lower(["TEA"]))
    [b'tea']
    """
    return tensor_op("StringLower", [input], name, encoding=encoding)


def string_upper(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:  # noqa: A002
    """Each string in upper case: ASCII letters only, or all letters with *encoding* ``"utf-8"``.

    >>> show(ax.string_upper(["tea"]))
    [b'TEA']
    """
    return tensor_op("StringUpper", [input], name, encoding=encoding)


def string_strip(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """Each string without white space at both ends.

    >>> show(ax.string_strip(["  tea "]))
    [b'tea']
    """
    return tensor_op("StringStrip", [input], name)


def string_to_number(
    input: TensorLike,  # noqa: A002
    out_type: DTypeLike = types.float32,
    name: str | None = None,
) -> Tensor:
    """The number in each string, as *out_type*.  A string that is no number fails the run.

    >>> show(ax.string_to_number(["3.5", "-2"]))
    [ 3.5 -2. ]
    """
    return tensor_op("StringToNumber", [input], name, out_type=as_dtype(out_type))


def substr(
    input: TensorLike,  # noqa: A002
    pos: TensorLike,
    len: TensorLike,  # noqa: A002
    unit: str = "BYTE",
    name: str | None = None,
) -> Tensor:
    """*len* bytes or characters of each string from *pos* on (negative: from the end).

    >>> show(ax.substr(["bread"], 1, 3))
    [b'rea']
    """
    return tensor_op("Substr", [input, pos, len], name, unit=unit)


def regex_replace(
    input: TensorLike,  # noqa: A002
    pattern: TensorLike,
    rewrite: TensorLike,
    replace_global: bool = True,
    name: str | None = None,
) -> Tensor:
    r"""Each string with the matches of *pattern*, or only the first, replaced by *rewrite* (``\1`` is group 1).

    >>> show(ax.regex_replace(["a-b-c"], "-", "+"))
    [b'a+b+c']
    """
    return tensor_op("RegexReplace", [input, pattern, rewrite], name, replace_global=replace_global)


def regex_full_match(input: TensorLike, pattern: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """Whether *pattern* matches the whole of each string, as bool.

    >>> show(ax.regex_full_match(["cat", "dog"], "c.*"))
    [ True False]
    """
    return tensor_op("RegexFullMatch", [input, pattern], name)


def string_to_hash_bucket_fast(input: TensorLike, num_buckets: int, name: str | None = None) -> Tensor:  # noqa: A002
    """A number below *num_buckets*, int64, that depends on the string alone.

    >>> show(ax.string_to_hash_bucket_fast(["Hello", "TensorFlow", "2.x"], 3))
    [0 2 2]
    """
    return tensor_op("StringToHashBucketFast", [input], name, num_buckets=num_buckets)


def reduce_join(
    inputs: TensorLike, axis: object = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Tensor:
    """The strings along *axis*, by default all, joined with *separator* between them.

    >>> show(ax.reduce_join(["a", "b"], separator="-"))
    b'a-b'
    """
    with composite(name, "ReduceJoin", [inputs]) as scope:
        (x,) = in_graph_of([inputs])
        return tensor_op("ReduceJoin", [x, axes_of(x, axis)], scope, keep_dims=keepdims, separator=separator)
