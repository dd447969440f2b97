r"""Regular expressions: replace and full match (``tensorflow/core/ops/string_ops.cc``).

They run on RE2, as in TensorFlow: a search takes time linear in the text, however hostile the pattern.
``_replace_all`` and ``_replacer`` are RE2's ``GlobalReplace`` and ``Replace``, which its Python binding has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.string.string_elements import (
    PIECE_BYTES,
    BigText,
    TextRoom,
    elementwise,
    elementwise_to,
    joined,
    scalar_string,
)
from asyncexec.process.free_memory import check_room

Match = Any  # re2's
Pattern = Any
Compile = Callable[[bytes], Pattern]
_ESCAPE: Final = re.compile(rb"\\(.|\Z)", re.DOTALL)
# A pattern that stands for itself, and is short beside a piece of a text.
_LITERAL: Final = re.compile(rb"[A-Za-z0-9 _,;:@#%&=~'\"<>/!-]{1,1000}")
_DIGITS: Final = frozenset(b"%d" % digit for digit in range(10))


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


def compiler() -> Compile:
    """What compiles a pattern, with RE2's default options; MissingExtraError where RE2 is not installed."""
    re2 = require("re2", extra="ops")
    options = re2.Options()
    options.log_errors = False  # else C++ writes to stderr

    def compile_pattern(pattern: bytes) -> Pattern:
        try:
            return re2.compile(pattern, options)
        except re2.error as error:
            shown = pattern[:200].decode("utf-8", "replace")
            why = error.args[0] if error.args else ""
            why = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
            raise InvalidArgumentError(f"Invalid pattern: {shown}, error: {why}") from None

    return compile_pattern


def _replacer(pattern: Pattern, rewrite: bytes, is_global: bool) -> Callable[[bytes], bytes]:
    r"""What replaces in a text.  In *rewrite* ``\0`` to ``\9`` stand for the match and its groups.

    A rewrite that is wrong is no error in TensorFlow: one that names a group the pattern has not replaces nothing; an
    unknown escape ends the rewrite where it stands, or, where only the first match is replaced, replaces nothing.
    """
    parts = _ESCAPE.split(rewrite)
    escapes = parts[1::2]
    wrong = next((index for index, escape in enumerate(escapes) if escape not in _DIGITS and escape != b"\\"), None)
    if any(escape in _DIGITS and int(escape) > pattern.groups for escape in escapes):
        return lambda text: text
    if wrong is not None:
        if not is_global:
            return lambda text: text
        parts = parts[: 2 * wrong + 1]
    room = TextRoom()
    if is_global and len(parts) == 1 and is_literal(pattern.pattern):
        return lambda text: replace_literal(pattern.pattern, parts[0], text, room)
    expand = _expander(parts, room)
    replace = _replace_all if is_global else _replace_first
    return lambda text: replace(pattern, expand, text, room)


def replace_literal(literal: bytes, rewrite: bytes, text: bytes, room: TextRoom, size: int = PIECE_BYTES) -> bytes:
    """*text* with *rewrite* for each *literal*: many times quicker than a search for each.

    Pieces of *size* are taken up to their last match, or up to where one may begin that is not all there.
    """
    out = BigText(room)
    place = 0
    while place < len(text):
        piece = text[place : place + size]
        if place + size < len(text):
            last = piece.rfind(literal)
            piece = piece[: last + len(literal) if last >= 0 else 1 - len(literal) or None]
        check_room(piece.count(literal) * len(rewrite))
        out.add(piece.replace(literal, rewrite))
        place += len(piece)
    return out.text()


def is_literal(pattern: bytes) -> bool:
    """Whether *pattern* stands for itself, and no two of it overlap, so that the last match is the last found."""
    return bool(_LITERAL.fullmatch(pattern)) and not any(
        pattern.startswith(pattern[start:]) for start in range(1, len(pattern))
    )


def _expander(parts: list[bytes], room: TextRoom) -> Callable[[Match], bytes]:
    """What a match is replaced with: text and, at the odd places, escapes."""
    if len(parts) == 1:
        return lambda match: parts[0]

    def expand(match: Match) -> bytes:
        pieces = parts.copy()
        for index in range(1, len(parts), 2):
            escape = parts[index]
            pieces[index] = escape if escape == b"\\" else match[int(escape)] or b""
        return joined(b"", pieces, room)

    return expand


def _replace_first(pattern: Pattern, expand: Callable[[Match], bytes], text: bytes, room: TextRoom) -> bytes:
    match = pattern.search(text)
    if match is None:
        return text
    out = BigText(room)
    for part in (text[: match.start()], expand(match), text[match.end() :]):
        out.add(part)
    return out.text()


def _replace_all(pattern: Pattern, expand: Callable[[Match], bytes], text: bytes, room: TextRoom) -> bytes:
    """As RE2 does it: no empty match where the last match ended."""
    out = BigText(room)
    place, last_end = 0, -1
    while place <= len(text) and (match := pattern.search(text, place)) is not None:
        start, end = match.span()
        out.add(text[place:start])
        if start == end == last_end:
            place = start + _character_length(text, start)
            out.add(text[start:place])
            continue
        out.add(expand(match))
        place = last_end = end
    out.add(text[place:])
    return out.text()


def _character_length(text: bytes, place: int) -> int:
    """The bytes of the character at *place*; 1 where there is no UTF-8, and at the end."""
    lead = text[place] if place < len(text) else 0
    length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    try:
        text[place : place + length].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return 1
    return length


def matcher(pattern: Pattern) -> Kernel:
    """The kernel that tells of each string whether the pattern matches all of it."""
    return elementwise_to(np.dtype(np.bool_), lambda text: pattern.fullmatch(text) is not None)


@register_kernel("RegexReplace", kind=KernelKind.EXPENSIVE)
def regex_replace(construction: OpKernelConstruction) -> Kernel:
    """Every match, or the first, replaced."""
    is_global = construction.attr("replace_global")
    compile_pattern = compiler()

    def kernel(value: object, pattern: object, rewrite: object) -> Any:
        compiled = compile_pattern(scalar_string(pattern, "Pattern"))
        return elementwise(_replacer(compiled, scalar_string(rewrite, "Rewrite"), is_global))(value)

    return kernel


@register_kernel("StaticRegexReplace", kind=KernelKind.EXPENSIVE)
def static_regex_replace(construction: OpKernelConstruction) -> Kernel:
    """Every match, or the first, replaced; the pattern is an attr."""
    pattern = compiler()(construction.attr("pattern"))
    return elementwise(_replacer(pattern, construction.attr("rewrite"), construction.attr("replace_global")))


@register_kernel("RegexFullMatch", kind=KernelKind.EXPENSIVE)
def regex_full_match(construction: OpKernelConstruction) -> Kernel:
    """Whether the pattern matches all of each string."""
    compile_pattern = compiler()
    return lambda value, pattern: matcher(compile_pattern(scalar_string(pattern, "Pattern")))(value)


@register_kernel("StaticRegexFullMatch", kind=KernelKind.EXPENSIVE)
def static_regex_full_match(construction: OpKernelConstruction) -> Kernel:
    """Whether the pattern, an attr, matches all of each string."""
    return matcher(compiler()(construction.attr("pattern")))
