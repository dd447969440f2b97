"""Regular expressions: replace and full match (``tensorflow/core/ops/string_ops.cc``); the syntax is RE2's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.re2_syntax import compile_re2, decode, encode
from asyncexec.ops.string_elements import elementwise, elementwise_to, scalar_string

Rewrite = Callable[["re.Match[str]"], str]
_ESCAPE: Final = re.compile(r"\\(.|$)", re.DOTALL)
_ESCAPES: Final = frozenset("0123456789\\")


def _pattern_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(1, c.num_inputs):
        c.scalar(index)
    return unchanged(c)


register_op(
    "RegexReplace",
    "input: string, pattern: string, rewrite: string -> output: string",
    "replace_global: bool = True",
    shape=_pattern_shape,
)
register_op("RegexFullMatch", "input: string, pattern: string -> output: bool", shape=_pattern_shape)
register_op(
    "StaticRegexReplace",
    "input: string -> output: string",
    "pattern: string; rewrite: string; replace_global: bool = True",
    shape=unchanged,
)
register_op("StaticRegexFullMatch", "input: string -> output: bool", "pattern: string", shape=unchanged)


def _replacer(pattern: bytes, rewrite: bytes, is_global: bool) -> Callable[[bytes], bytes]:
    r"""What replaces in a text.  In *rewrite* ``\0`` to ``\9`` stand for the match and its groups.

    A rewrite that is wrong is no error in TensorFlow: one that names a group the pattern has not replaces nothing; an
    unknown escape ends the rewrite where it stands, or, where only the first match is replaced, replaces nothing.
    """
    compiled = compile_re2(pattern)
    parts = _ESCAPE.split(decode(rewrite))
    escapes = parts[1::2]
    wrong = next((index for index, escape in enumerate(escapes) if escape not in _ESCAPES), None)
    if any(escape in _ESCAPES and escape != "\\" and int(escape) > compiled.groups for escape in escapes):
        return lambda text: text
    if wrong is not None:
        if not is_global:
            return lambda text: text
        parts = parts[: 2 * wrong + 1]
    expand = _expander(parts)
    if is_global:
        return lambda text: encode(_replace_all(compiled, expand, decode(text)))
    return lambda text: encode(compiled.sub(expand, decode(text), count=1))


def _expander(parts: list[str]) -> Rewrite:
    """What a match is replaced with: text and, at the odd places, escapes."""
    if len(parts) == 1:
        return lambda match: parts[0]

    def expand(match: re.Match[str]) -> str:
        pieces = parts.copy()
        for index in range(1, len(parts), 2):
            escape = parts[index]
            pieces[index] = escape if escape == "\\" else match[int(escape)] or ""
        return "".join(pieces)

    return expand


def _replace_all(pattern: re.Pattern[str], expand: Rewrite, text: str) -> str:
    """As RE2 does it: no empty match where the last match ended."""
    out: list[str] = []
    place, last_end = 0, -1
    while place <= len(text) and (match := pattern.search(text, place)) is not None:
        start, end = match.span()
        out.append(text[place:start])
        if start == end == last_end:
            out.append(text[start : start + 1])
            place = start + 1
            continue
        out.append(expand(match))
        place = last_end = end
    out.append(text[place:])
    return "".join(out)


def _matcher(pattern: bytes) -> Kernel:
    match = compile_re2(pattern).fullmatch
    return elementwise_to(np.dtype(np.bool_), lambda text: match(decode(text)) is not None)


@register_kernel("RegexReplace", kind=KernelKind.EXPENSIVE)
def regex_replace(construction: OpKernelConstruction) -> Kernel:
    """Every match, or the first, replaced."""
    is_global = construction.attr("replace_global")

    def kernel(value: Any, pattern: Any, rewrite: Any) -> Any:
        replace = _replacer(scalar_string(pattern, "Pattern"), scalar_string(rewrite, "Rewrite"), is_global)
        return elementwise(replace)(value)

    return kernel


@register_kernel("StaticRegexReplace", kind=KernelKind.EXPENSIVE)
def static_regex_replace(construction: OpKernelConstruction) -> Kernel:
    """Every match, or the first, replaced; the pattern is an attr."""
    replace = _replacer(construction.attr("pattern"), construction.attr("rewrite"), construction.attr("replace_global"))
    return elementwise(replace)


def _full_match(value: Any, pattern: Any) -> Any:
    return _matcher(scalar_string(pattern, "Pattern"))(value)


register_function("RegexFullMatch", function=_full_match, kind=KernelKind.EXPENSIVE)


@register_kernel("StaticRegexFullMatch", kind=KernelKind.EXPENSIVE)
def static_regex_full_match(construction: OpKernelConstruction) -> Kernel:
    """Whether the pattern matches all of each string."""
    return _matcher(construction.attr("pattern"))
