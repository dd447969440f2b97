"""Strings, which are UTF-8 in bytes: StringConcat, StringSplit, StringNormalizer, RegexFullMatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import as_array, check_shape, of_two, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.string.string_elements import TextRoom, as_strings, flat_strings, joined
from asyncexec.ops.string.string_regex import compiler, matcher

_CASES: Final[dict[str, Callable[[str], str]]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def text_of(string: bytes) -> str:
    """*string* decoded; InvalidArgumentError where it is no UTF-8."""
    try:
        return string.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{string[:80]!r} is no UTF-8: {error}") from error


@onnx_kernel("StringConcat", since=20)
def make_string_concat(node: OnnxNode) -> Kernel:
    """The kernel of StringConcat."""
    room = TextRoom()
    ufunc = np.frompyfunc(lambda x, y: joined(b"", (x, y), room), 2, 1)
    return of_two(lambda x, y: ufunc(as_array(x), as_array(y)))(node)


@onnx_kernel("StringSplit", since=20)
@refusing
def make_string_split(node: OnnxNode) -> Kernel:
    """The kernel of StringSplit: the parts of each string, with empty ones at the end, and how many there are."""
    delimiter, most = node.text("delimiter") or None, node.attr("maxsplit", -1)

    def string_split(x: Any) -> tuple[object, object]:
        x = as_array(x)
        parts = [text_of(string).split(delimiter, most) for string in x.ravel()]
        longest = max(map(len, parts), default=0)
        check_shape([*x.shape, longest], x.dtype)
        filled = [part.encode() for found in parts for part in (*found, *[""] * (longest - len(found)))]
        counts = np.array([len(found) for found in parts], np.int64)
        return as_strings(filled, (*x.shape, longest)), counts.reshape(x.shape)

    return string_split


@onnx_kernel("StringNormalizer", since=10)
@refusing
def make_string_normalizer(node: OnnxNode) -> Kernel:
    """The kernel of StringNormalizer: stop words dropped, then the case changed, by Unicode's own rules."""
    action, is_case_sensitive = node.text("case_change_action", "NONE"), bool(node.attr("is_case_sensitive", 0))
    if action not in _CASES:
        raise InvalidArgumentError(f"case_change_action must be one of {', '.join(_CASES)}, not {action!r}")
    key: Callable[[str], str] = str if is_case_sensitive else str.lower
    change, stopwords = _CASES[action], {key(text_of(word)) for word in _words(node.attr("stopwords", []))}

    def string_normalizer(x: Any) -> tuple[Array]:
        x = as_array(x)
        if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
            raise InvalidArgumentError(f"the input must be of shape [C] or [1, C], not {list(x.shape)}")
        kept = [change(text).encode() for text in map(text_of, flat_strings(x)) if key(text) not in stopwords]
        return (as_strings(kept or [b""], (*x.shape[:-1], max(len(kept), 1))),)

    return string_normalizer


def _words(values: Iterable[Any]) -> list[bytes]:
    return [value.encode() if isinstance(value, str) else value for value in values]


@onnx_kernel("RegexFullMatch", since=20)
@refusing
def make_regex_full_match(node: OnnxNode) -> Kernel:
    """The kernel of RegexFullMatch, by RE2."""
    matches = matcher(compiler()(node.text("pattern").encode()))
    return lambda x: (matches(x),)
