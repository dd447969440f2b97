"""Text between encodings, and as code points (``unicode_ops.cc``).

ICU's converters read the text there, and Python's codecs here: encodings that both have, by the names that both know.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.ragged.row_partitions import check_splits
from asyncexec.ops.string.string_elements import as_strings, elementwise, flat_strings
from asyncexec.ops.string.unicode_scripts import RANGES

_ERRORS: Final = "errors: {'ignore', 'replace', 'strict'} = 'replace'"
_OUTPUTS: Final = "output_encoding: {'UTF-16-BE', 'UTF-32-BE', 'UTF-8'}"
_CODECS: Final = {b"UTF-8": "utf-8", b"UTF-16-BE": "utf-16-be", b"UTF-32-BE": "utf-32-be"}
_LAST: Final = 0x10FFFF
_LAST_CONTROL: Final = 0x1F
# Codecs of Python's that are no encodings of files.
_REFUSED: Final = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "unicode_escape"})
# Of encodings whose byte order a mark at the start tells: the marks, and the codecs; big endian without.
_MARKED: Final = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"), (b"", "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (b"", "utf-32-be")),
}
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_Points: TypeAlias = "Array"


def _decode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count = c.input(0).num_elements if c.input(0).is_fully_defined else None
    vector = TensorShape([None])
    return [TensorShape([None if count is None else count + 1]), *[vector] * (c.num_outputs - 1)]


_READING: Final = (
    f"input_encoding: string; {_ERRORS}; replacement_char: int = 65533; replace_control_characters: bool = False"
)
_SPLITS: Final = "Tsplits: {int32, int64} = int64"
register_op(
    "UnicodeDecode",
    "input: string -> row_splits: Tsplits, char_values: int32",
    f"{_READING}; {_SPLITS}",
    shape=_decode_shape,
)
register_op(
    "UnicodeDecodeWithOffsets",
    "input: string -> row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64",
    f"{_READING}; {_SPLITS}",
    shape=_decode_shape,
)
register_op(
    "UnicodeTranscode",
    "input: string -> output: string",
    f"input_encoding: string; {_OUTPUTS}; {_ERRORS}; replacement_char: int = 65533;"
    " replace_control_characters: bool = False",
    shape=unchanged,
)


def _encode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    splits = c.vector(1)
    count = splits[0] if splits.dims is not None else None
    return [TensorShape([None if not count else count - 1])]


register_op(
    "UnicodeEncode",
    "input_values: int32, input_splits: Tsplits -> output: string",
    f"{_ERRORS}; {_OUTPUTS}; replacement_char: int = 65533; {_SPLITS}",
    shape=_encode_shape,
)
register_op("UnicodeScript", "input: int32 -> output: int32", shape=unchanged)


def _replacement(c: OpKernelConstruction) -> int:
    found: int = c.attr("replacement_char")
    if not 0 <= found <= _LAST:
        raise InvalidArgumentError(f"replacement_char out of unicode codepoint range: {found}")
    return found


class _Reader:
    """Reads strings of one encoding."""

    def __init__(self, c: OpKernelConstruction) -> None:
        name = c.attr("input_encoding").decode("ascii", "replace")
        try:
            self._codec = codecs.lookup(name)
            "".encode(name)
        except (LookupError, ValueError):
            raise InvalidArgumentError(f"Could not create converter for input encoding: {name}") from None
        if self._codec.name in _REFUSED:
            raise InvalidArgumentError(f"Could not create converter for input encoding: {name}")
        self._errors: bytes = c.attr("errors")
        self._replacement = _replacement(c)
        self._replaces_controls: bool = c.attr("replace_control_characters")

    def read(self, data: bytes) -> tuple[_Points, _Points, bool]:
        """The code points, the byte where each begins, and whether a control character was replaced."""
        parts, starts = self._parts(data)
        points, places = np.concatenate(parts), np.concatenate(starts)
        is_bad = points < 0
        if is_bad.any() and self._errors == b"strict":
            raise InvalidArgumentError(f"Invalid formatting on input string: {data[:50]!r}")
        is_control = (points >= 0) & (points <= _LAST_CONTROL) & self._replaces_controls
        is_bad |= is_control
        if self._errors == b"ignore":
            return points[~is_bad], places[~is_bad], bool(is_control.any())
        points[is_bad] = self._replacement
        return points, places, bool(is_control.any())

    def _parts(self, data: bytes) -> tuple[list[_Points], list[_Points]]:
        """Runs of text and what is none: a code point of -1."""
        codec, place = self._codec, 0
        for mark, name in _MARKED.get(codec.name, ()):
            if data.startswith(mark):
                codec, place = codecs.lookup(name), len(mark)
                break
        found, starts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        skipped = place  # a mark belongs to the first character
        while place < len(data):
            try:
                text, bad = codec.decode(data[place:])[0], 0
            except UnicodeDecodeError as error:
                text, bad = codec.decode(data[place : place + error.start])[0], max(1, error.end - error.start)
            sizes = _sizes(text, codec)
            found.append(_as_points(text))
            starts.append(place + np.cumsum(sizes) - sizes)
            place = place + int(sizes.sum()) if bad else len(data)
            if bad:
                found.append(np.array([-1], np.int32))
                starts.append(np.array([place]))
                place += bad
        places = np.concatenate(starts)
        places[:1] -= skipped if places.size else 0
        return found, [places]


def _as_points(text: str) -> _Points:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int32)


def _sizes(text: str, codec: codecs.CodecInfo) -> _Points:
    """How many bytes each character has."""
    points = _as_points(text)
    if codec.name == "utf-8":
        return (1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)).astype(np.int64)
    if codec.name.startswith("utf-16"):
        return (2 + 2 * (points >= 0x10000)).astype(np.int64)
    if codec.name.startswith("utf-32"):
        return np.full(len(text), 4, np.int64)
    if len(codec.encode(text)[0]) == len(text):
        return np.ones(len(text), np.int64)
    return np.array([len(codec.encode(character)[0]) for character in text], np.int64)


@register_kernel("UnicodeDecode", "UnicodeDecodeWithOffsets")
def unicode_decode(c: OpKernelConstruction) -> Kernel:
    """The code points of all strings, row by row, and where each begins in its string."""
    reader, splits_dtype = _Reader(c), c.np_dtype("Tsplits")
    has_offsets = c.op == "UnicodeDecodeWithOffsets"

    def kernel(value: object) -> tuple[Any, ...]:
        rows = [reader.read(text) for text in flat_strings(value)]
        splits = np.cumsum([0, *(points.size for points, _, _ in rows)]).astype(splits_dtype)
        values = np.concatenate([np.zeros(0, np.int32), *(points for points, _, _ in rows)])
        if not has_offsets:
            return splits, values
        return splits, values, np.concatenate([np.zeros(0, np.int64), *(starts for _, starts, _ in rows)])

    return kernel


def _writer(encoding: bytes) -> Callable[[str], bytes]:
    """Writes text; half of a pair of surrogates stands alone but for UTF-8, where there is no such."""

    def write(text: str) -> bytes:
        units = text.encode("utf-16-be", "surrogatepass")
        if encoding == b"UTF-16-BE":
            return units
        joined = units.decode("utf-16-be", "surrogatepass")
        if encoding == b"UTF-32-BE":
            return joined.encode("utf-32-be", "surrogatepass")
        return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", joined).encode()

    return write


@register_kernel("UnicodeTranscode")
def unicode_transcode(c: OpKernelConstruction) -> Kernel:
    """The same text in another encoding."""
    reader, write, errors = _Reader(c), _writer(c.attr("output_encoding")), c.attr("errors")

    def transcoded(data: bytes) -> bytes:
        points, _, has_controls = reader.read(data)
        if has_controls and errors == b"strict":
            raise InvalidArgumentError(f"Invalid formatting on input string: {data[:50]!r}")
        return write("".join(map(chr, points.tolist())))

    return elementwise(transcoded)


@register_kernel("UnicodeEncode")
def unicode_encode(c: OpKernelConstruction) -> Kernel:
    """A string for each row of code points."""
    write, errors, replacement = _writer(c.attr("output_encoding")), c.attr("errors"), _replacement(c)

    def text(points: Array) -> bytes:
        is_valid = (points >= 0) & (points <= _LAST) & ~((points >= 0xD800) & (points <= 0xDFFF))
        if not is_valid.all():
            if errors == b"strict":
                raise InvalidArgumentError("Code point value out of valid Unicode range.")
            points = points[is_valid] if errors == b"ignore" else np.where(is_valid, points, replacement)
        return write("".join(map(chr, points.tolist())))

    def kernel(values: Array, splits: Array) -> Array:
        if values.ndim != 1 or splits.ndim != 1:
            raise InvalidArgumentError("input_values and input_splits must be vectors")
        check_splits(splits, values.size, "input_splits")
        bounds = splits.tolist()
        rows = [text(values[begin:end]) for begin, end in pairwise(bounds)]
        return as_strings(rows, (len(rows),))

    return kernel


@cache
def _scripts() -> Array:
    """The script of each code point."""
    pairs = [part.split(":") for part in RANGES.split()]
    return np.repeat(np.array([int(script) for _, script in pairs], np.int16), [int(count) for count, _ in pairs])


@register_kernel("UnicodeScript")
def unicode_script(c: OpKernelConstruction) -> Kernel:
    """ICU's number of the script of each code point, -1 of what is none."""
    scripts = _scripts()

    def kernel(points: Any) -> ArrayOrScalar:
        is_point = (points >= 0) & (points <= _LAST)
        return as_value(np.where(is_point, scripts[np.where(is_point, points, 0)], -1).astype(np.int32))

    return kernel
