"""UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeTranscode, UnicodeEncode, UnicodeScript, StringNGrams."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, i32, i64, text

WORDS = text(b"", b"hello", "é€😀\u0301".encode(), b"a\tb\x01\x7f\x80")
BAD = text(
    b"a\xffb", b"\xe2\x82", b"\xe2\x82a", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80"
)
POLICIES = (b"replace", b"ignore", b"strict")


def reading(op: str, value: Any, encoding: bytes = b"UTF-8", **attrs: Any) -> OpCase:
    name = " ".join([encoding.decode(), *(f"{key} {item}" for key, item in attrs.pop("said", {}).items())])
    return case(
        op, value, id=f"{attrs.pop('what', 'words')} {name} {sorted(attrs.items())}", input_encoding=encoding, **attrs
    )


READ = [
    reading(op, value, what=what, errors=errors)
    for op in ("UnicodeDecode", "UnicodeDecodeWithOffsets")
    for what, value in [("words", WORDS), ("bad", BAD)]
    for errors in POLICIES
]
READ += [
    reading(op, WORDS, errors=errors, replace_control_characters=True)
    for op in ("UnicodeDecode", "UnicodeDecodeWithOffsets")
    for errors in POLICIES
]
READ += [
    reading("UnicodeDecodeWithOffsets", "aé😀".encode("utf-16-be"), b"UTF-16-BE", what="big endian"),
    reading("UnicodeDecodeWithOffsets", "aé😀".encode("utf-16-be"), b"UTF-16", what="without a mark"),
    reading("UnicodeDecodeWithOffsets", b"\xff\xfe" + "aé😀".encode("utf-16-le"), b"UTF-16", what="little endian"),
    reading("UnicodeDecodeWithOffsets", b"\xfe\xff" + "aé😀".encode("utf-16-be"), b"UTF-16", what="marked"),
    reading("UnicodeDecodeWithOffsets", "aé😀".encode("utf-32-be"), b"UTF-32-BE", what="utf 32"),
    reading("UnicodeDecodeWithOffsets", "aé".encode("utf-16-be") + b"\0", b"UTF-16-BE", what="odd"),
    reading("UnicodeDecodeWithOffsets", b"\xd8\x00\x00a", b"UTF-16-BE", what="half of a pair"),
    reading("UnicodeDecodeWithOffsets", "日本a".encode("shift-jis"), b"Shift_JIS", what="japanese"),
    reading("UnicodeDecode", WORDS, b"ISO-8859-1", what="latin"),
    reading("UnicodeDecode", WORDS, b"latin1", Tsplits="int32"),
    reading("UnicodeDecode", WORDS, b"US-ASCII", what="ascii"),
    reading("UnicodeDecode", BAD, what="replacement", replacement_char=63),
    reading("UnicodeDecode", BAD, what="replacement too large", replacement_char=0x110000),
    reading("UnicodeDecode", BAD, what="replacement negative", replacement_char=-1, errors=b"ignore"),
    reading("UnicodeDecode", WORDS, b"nonsense", what="unknown"),
    reading("UnicodeDecode", WORDS, b"hex", what="no encoding"),
    reading("UnicodeDecode", b"scalar", what="scalar"),
    reading("UnicodeDecode", WORDS.reshape(2, 2), what="matrix"),
    reading("UnicodeDecode", text(), what="no strings"),
]
TRANSCODED = [
    reading("UnicodeTranscode", value, what=f"{what} to {output.decode()}", output_encoding=output, errors=errors)
    for what, value in [("words", WORDS), ("bad", BAD)]
    for output in (b"UTF-8", b"UTF-16-BE", b"UTF-32-BE")
    for errors in POLICIES
]
TRANSCODED += [
    reading("UnicodeTranscode", WORDS, output_encoding=b"UTF-8", errors=errors, replace_control_characters=True)
    for errors in POLICIES
]
TRANSCODED += [
    reading("UnicodeTranscode", b"\xd8\x00\x00a", b"UTF-16-BE", what="half of a pair", output_encoding=b"UTF-8"),
    reading("UnicodeTranscode", b"abc\xe9", b"windows-1252", what="windows", output_encoding=b"UTF-8"),
    reading("UnicodeTranscode", BAD, what="surrogate", replacement_char=0xD800, output_encoding=b"UTF-8"),
    reading("UnicodeTranscode", BAD.reshape(2, 4), what="matrix", output_encoding=b"UTF-8"),
]
POINTS = i32(0x61, 0xE9, 0x20AC, 0x1F600, 0, 0xFFFE, 0xFDD0)
OUTSIDE = i32(0x61, -1, 0x110000, 0x62)
SURROGATES = i32(0xD800, 0x61, 0xD83D, 0xDE00, 0xDC00)
ENCODED = [
    case(
        "UnicodeEncode", points, i64(0, 2, 2, len(points)), id=f"{what} {output.decode()} {errors.decode()}",
        output_encoding=output, errors=errors,
    )
    for what, points in [("points", POINTS), ("outside", OUTSIDE), ("surrogates", SURROGATES)]
    for output in (b"UTF-8", b"UTF-16-BE", b"UTF-32-BE")
    for errors in POLICIES
]  # fmt: skip
ENCODED += [
    case("UnicodeEncode", POINTS, i32(0, 7), id="int32 splits", output_encoding=b"UTF-8"),
    case("UnicodeEncode", i32(), i64(0), id="no rows", output_encoding=b"UTF-8"),
    case("UnicodeEncode", OUTSIDE, i64(0, 4), id="replacement", output_encoding=b"UTF-8", replacement_char=63),
    case("UnicodeEncode", POINTS, i64(0, 5, 3, 7), id="not sorted", output_encoding=b"UTF-8"),
    case("UnicodeEncode", POINTS, i64(0, 9), id="beyond", output_encoding=b"UTF-8"),
    case("UnicodeEncode", POINTS, i64(1, 7), id="not from zero", output_encoding=b"UTF-8"),
]
SCRIPTS = [
    case("UnicodeScript", i32([0x61, 0x3B1, 0x416], [0x5D0, 0x4E2D, 0x3042]), id="matrix"),
    case("UnicodeScript", i32(-1, 0, 0x10FFFF, 0x110000, 2**31 - 1), id="ends"),
    case("UnicodeScript", np.int32(0x1F600), id="scalar"),
    case("UnicodeScript", np.arange(0, 0x11000, 97, np.int32), id="many"),
]


def ngrams(data: Any, splits: Any, id: str, **attrs: Any) -> OpCase:
    full = {"separator": b" ", "left_pad": b"L", "right_pad": b"R", "pad_width": 0, "preserve_short_sequences": False}
    return case("StringNGrams", data, splits, id=id, **full | attrs)


LETTERS = text(b"a", b"b", b"c", b"d", b"", b"f")
ROWS = i64(0, 4, 4, 6)
NGRAMS = [
    ngrams(LETTERS, ROWS, "pairs", ngram_widths=[2]),
    ngrams(LETTERS, ROWS, "two widths", ngram_widths=[3, 1]),
    ngrams(LETTERS, ROWS, "no separator", ngram_widths=[2], separator=b""),
    ngrams(LETTERS, ROWS, "padded", ngram_widths=[3], pad_width=1),
    ngrams(LETTERS, ROWS, "padded as far as possible", ngram_widths=[3, 2], pad_width=-1),
    ngrams(LETTERS, ROWS, "padded far", ngram_widths=[3], pad_width=9),
    ngrams(LETTERS, ROWS, "short", ngram_widths=[3], preserve_short_sequences=True),
    ngrams(LETTERS, ROWS, "short, padded", ngram_widths=[5], pad_width=1, preserve_short_sequences=True),
    ngrams(LETTERS, ROWS.astype(np.int32), "int32", ngram_widths=[2]),
    ngrams(LETTERS, ROWS, "no widths", ngram_widths=[]),
    ngrams(LETTERS, ROWS, "no widths, short", ngram_widths=[], preserve_short_sequences=True),
    ngrams(LETTERS, ROWS, "no widths, no pad", ngram_widths=[], preserve_short_sequences=True, pad_width=-1),
    ngrams(text(), i64(0, 0), "empty row", ngram_widths=[2], pad_width=-1),
    ngrams(text(), i64(), "nothing", ngram_widths=[2]),
    ngrams(text(), i64(0), "no rows", ngram_widths=[2]),
    ngrams(LETTERS, ROWS, "width of zero", ngram_widths=[0]),
    ngrams(LETTERS, i64(1, 6), "not from zero", ngram_widths=[2]),
    ngrams(LETTERS, i64(0, 4, 3, 6), "not sorted", ngram_widths=[2]),
    ngrams(LETTERS, i64(0, 7), "beyond", ngram_widths=[2]),
    ngrams(LETTERS, i64(0, 5), "ends early", ngram_widths=[2]),
]

CASES = [*READ, *TRANSCODED, *ENCODED, *SCRIPTS, *NGRAMS]
