"""Cases of string ops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64, i32, i64, text

UTF8 = "añ€😀 ß".encode()
BF16 = ml_dtypes.bfloat16
STRAY = b"a\x80\x80b\xff\xc3"


def grid(rows: int, *values: bytes) -> Any:
    return text(*values).reshape(rows, -1)


LENGTH_CASE_STRIP = [
    *[
        case("StringLength", text(b"", b"abc", UTF8, STRAY, b"a\0b\0"), id=unit, unit=unit.encode())
        for unit in ("BYTE", "UTF8_CHAR")
    ],
    case("StringLength", b"abc", id="scalar"),
    case("StringLength", text(), id="empty"),
    *[
        case(op, text(b"", b"aBc1", "äÖßİǅ ΑΣ".encode(), STRAY[:2]), id=encoding or "bytes", encoding=encoding.encode())
        for op in ("StringLower", "StringUpper")
        for encoding in ("", "utf-8", "latin-1")
    ],
    case("StringLower", b"ABC", id="scalar"),
    case("StringUpper", grid(2, b"a", b"b", b"c", b"d"), id="matrix"),
    case("StringStrip", text(b"", b"  a b ", b"\t\n\v\f\r x\r", b"\xa0 y", b"\0 ", b" z\0 x"), id="all"),
    case("StringStrip", b"  a\0 b", id="scalar"),
]

JOINS = [
    case("StringJoin", b"a", b"b", id="scalars", separator=b"-"),
    case("StringJoin", text(b"a", b"b"), b"x\0", text(b"c", b"d"), id="broadcast", separator=b", "),
    case("StringJoin", text(b"a", b"b"), id="one"),
    case("StringJoin", id="none", N=0),
    case("StringJoin", grid(2, b"a", b"b"), grid(2, b"c", b"d"), id="matrix"),
    case("StringJoin", text(b"a", b"b"), text(b"a", b"b", b"c"), id="mismatch"),
    case("StringJoin", text(b"a"), text(b"a", b"b"), id="one_is_no_scalar"),
    case("StringJoin", text(), b"a", id="empty"),
    case("StringJoin", *[text(b"%d" % n, b"x") for n in range(40)], id="forty", separator=b","),
    *[
        case(
            "ReduceJoin",
            grid(2, b"a", b"b", b"c", b"d"),
            np.array(axes, np.int32),
            id=f"{axes}_{keep:d}",
            keep_dims=keep,
            separator=sep,
        )
        for axes in (0, 1, -1, -2, [0, 1], [1, 0], [-1], [])
        for keep, sep in ((False, b""), (True, b"."))
    ],
    case("ReduceJoin", text(*(b"%d" % n for n in range(12))).reshape(2, 3, 2), i32(2, 0), id="three_dims"),
    case("ReduceJoin", np.empty((2, 0), object), i32(1), id="empty_axis"),
    case("ReduceJoin", np.empty((0, 2), object), i32(1), id="no_rows"),
    case("ReduceJoin", b"abc", np.empty(0, np.int32), id="scalar"),
    case("ReduceJoin", text(b"a"), np.int32(1), id="out_of_range"),
    case("ReduceJoin", text(b"a"), np.int32(-2), id="far_out_of_range"),
    case("ReduceJoin", grid(1, b"a", b"b"), i32(0, 0), id="twice"),
    case("ReduceJoin", grid(1, b"a", b"b"), i32(1, -1), id="twice_negative"),
    case(
        "UnsortedSegmentJoin", text(b"a", b"b", b"c", b"d"), i32(2, 0, 2, -1), np.int32(4), id="vector", separator=b"+"
    ),
    case(
        "UnsortedSegmentJoin",
        grid(3, *b"abcdef".split(b"x"), b"1", b"2", b"3", b"4", b"5"),
        i64(1, 0, 1),
        np.int64(2),
        id="rows",
    ),
    case("UnsortedSegmentJoin", grid(2, b"a", b"b", b"c", b"d"), i32([0, 1], [1, 0]), np.int32(2), id="matrix_ids"),
    case("UnsortedSegmentJoin", text(b"a", b"b"), i32(0, 5), np.int32(2), id="out_of_range"),
    case("UnsortedSegmentJoin", text(b"a", b"b"), i32(0, 1, 1), np.int32(2), id="mismatch"),
    case("UnsortedSegmentJoin", text(b"a", b"b"), i32(0, 1), np.int32(-1), id="negative_count"),
    case("UnsortedSegmentJoin", text(), np.empty(0, np.int32), np.int32(2), id="empty"),
]

SUBSTR = [
    *[
        case("Substr", text(b"hello", b"world", b"ab"), np.int32(pos), np.int32(size), id=f"{pos}_{size}")
        for pos, size in ((0, 2), (1, 9), (-2, 1), (2, 0), (-3, 2), (3, 1), (2, -1), (5, 1), (6, 1), (-6, 1))
    ],
    *[
        case("Substr", text(UTF8), np.int64(pos), np.int64(size), id=f"utf8_{pos}_{size}", unit=b"UTF8_CHAR")
        for pos, size in ((0, 2), (1, 9), (-2, 1), (3, 1), (2, 0), (6, 1), (7, 1), (-6, 3), (-7, 1))
    ],
    case("Substr", text(b"hello", b"world"), i32(1, 2), i32(3, 1), id="each"),
    case("Substr", b"hello\0x", np.int32(1), np.int32(9), id="scalar"),
    case("Substr", b"hello", i32(1, 2), i32(3, 1), id="scalar_text"),
    case("Substr", grid(2, b"hello", b"world", b"tensor", b"flow!"), i32(1, 2), i32(3, 1), id="broadcast"),
    case("Substr", grid(1, b"hello", b"world"), i32([1], [2]), i32([3], [1]), id="broadcast_both"),
    case("Substr", text(b"hello", b"world"), i32(1, 2, 3), i32(3, 1, 1), id="mismatch"),
    case("Substr", text(b"hello", b"world"), i32(1, 2), i32(3), id="pos_len_mismatch"),
    case("Substr", np.array([[[b"hello"], [b"world"]]], object), i32(1), i32(3), id="rank3_broadcast"),
    case("Substr", text(), np.int32(1), np.int32(3), id="empty"),
    case("Substr", b"", np.int32(0), np.int32(3), id="empty_text"),
]

NUMBERS = [
    *[
        case("StringToNumber", text(*good), id=f"{dtype}", out_type=dtype)
        for dtype, good in (
            ("float32", (b"1", b"-1.5e3", b" 2.25 ", b".5", b"5.", b"1e-50", b"1e50", b"inf", b"-INF", b"+3", b"0.1")),
            ("float64", (b"1", b"-1.5e3", b"\t2.25\n", b"1e400", b"1e-400", b"infinity", b"3.141592653589793")),
            ("int32", (b"1", b"-7", b" 42 ", b"2147483647", b"-2147483648", b"007")),
            ("int64", (b"1", b"-7", b"9223372036854775807", b"-9223372036854775808")),
            ("uint32", (b"1", b"4294967295")),
            ("uint64", (b"1", b"18446744073709551615")),
        )
    ],
    *[
        case("StringToNumber", bad, id=f"bad_{dtype}_{bad.decode()}", out_type=dtype)
        for dtype, bads in (
            (
                "float32",
                (
                    b"",
                    b"abc",
                    b"1_0",
                    b"1 2",
                    b"1e",
                    b"nan",
                    b"0x10",
                    b"1f",
                    b"--1",
                    b"1e5x",
                    b"Infinit",
                    b"nan(1)",
                    b"nan()",
                    b"-0x1.8p-3",
                    b"0x1p9999",
                    b"0x",
                    b"nan(",
                    b"0x.8",
                ),
            ),
            ("float64", (b"1_000.0", b"", b"0x1p3")),
            ("int32", (b"", b"1.0", b"1e3", b"2147483648", b"+5", b"0x10", b"1_000", b"- 5", b"-2147483649")),
            ("int64", (b"9223372036854775808", b"+1")),
            ("uint32", (b"-1", b"-0", b"4294967296")),
            ("uint64", (b"-1", b"+1")),
        )
        for bad in bads
    ],
    case("StringToNumber", b"12", id="scalar"),
    case("StringToNumber", text(), id="empty"),
    *[
        case("AsString", value, id=f"{value.dtype}_{'_'.join(f'{k}={v}' for k, v in attrs.items())}", **attrs)
        for value in (
            f32(0, -1.5, 1e10, 3.14159265, 1e-7),
            f64(0.1, -1e300, 123456.789),
            np.array([1.5, 1e4, -0.1], np.float16),
        )
        for attrs in (
            {},
            {"precision": 2},
            {"scientific": True},
            {"shortest": True},
            {"precision": 3, "shortest": True},
            {"width": 12},
            {"width": 12, "fill": b"0"},
            {"width": 12, "fill": b"-"},
            {"fill": b"+"},
            {"width": 10, "precision": 3, "scientific": True, "fill": b" "},
            {"precision": 0},
        )
    ],
    *[
        case("AsString", value, id=f"{value.dtype}_{'_'.join(f'{k}={v}' for k, v in attrs.items())}", **attrs)
        for value in (
            i32(0, -5, 2**31 - 1),
            i64(-(2**63), 2**63 - 1),
            np.array([1, 255], np.uint8),
            np.array([-128, 127], np.int8),
            np.array([2**64 - 1], np.uint64),
            np.array([True, False]),
        )
        for attrs in (
            {},
            {"width": 8},
            {"width": 8, "fill": b"0"},
            {"width": 8, "fill": b"-"},
            {"fill": b" "},
            {"fill": b"+"},
        )
    ],
    *[
        case("AsString", np.array([1 + 2j, -0.5j], np.complex64), id=f"c64_{'_'.join(attrs)}", **attrs)
        for attrs in ({}, {"precision": 2}, {"scientific": True}, {"shortest": True}, {"width": 9, "fill": b"0"})
    ],
    case("AsString", f32(np.inf, -np.inf, np.nan), id="not_finite"),
    case("AsString", f32(np.inf, -np.inf, np.nan), id="not_finite_width", width=8, fill=b"0"),
    case("AsString", text(b"a", b"bc\0"), id="string"),
    case("AsString", text(b"a", b"bc"), id="string_width", width=5),
    case("AsString", text(b"a", b"bc"), id="string_left", width=5, fill=b"-"),
    case("StringFormat", i32(1, 2, 3), id="summarize_none", summarize=0),
    case("AsString", np.array([1.5, -2], BF16), id="bf16"),
    case("StringFormat", np.array([0.1, 300], BF16), id="bf16"),
    case("AsString", np.float32(2.5), id="scalar"),
    case("AsString", np.bool_(True), id="bool_scalar"),
    case("AsString", i32(), id="empty"),
    case("AsString", f32(1), id="both", scientific=True, shortest=True),
    case("AsString", i32(1), id="int_precision", precision=2),
    case("AsString", i32(1), id="int_scientific", scientific=True),
    case("AsString", np.array([True]), id="bool_shortest", shortest=True),
    case("AsString", f32(1), id="bad_fill", fill=b"x"),
    case("AsString", f32(1), id="long_fill", fill=b"0-"),
    case("AsString", f32(1), id="hash_fill", fill=b"#"),
    case("AsString", np.array([True]), id="bool_precision", precision=2),
]

RAW = [
    *[
        case("DecodeRaw", text(data, data[::-1]), id=f"{dtype}_{little:d}", out_type=dtype, little_endian=little)
        for dtype in (
            "float16",
            "float32",
            "float64",
            "int32",
            "uint16",
            "uint8",
            "int16",
            "int8",
            "int64",
            "complex64",
            "complex128",
            "bfloat16",
        )
        for little in (True, False)
        for data in (bytes(range(32)),)
    ],
    case("DecodeRaw", text(b"\0\1\0\1"), id="bool", out_type="bool"),
    case("DecodeRaw", b"\1\0\2\0", id="scalar", out_type="int16"),
    case("DecodeRaw", b"", id="empty_text", out_type="int16"),
    case("DecodeRaw", text(), id="empty", out_type="int16"),
    case("DecodeRaw", b"abc", id="odd", out_type="int16"),
    case("DecodeRaw", text(b"abcd", b"ab"), id="lengths", out_type="int16"),
    *[
        case(
            "DecodePaddedRaw",
            text(b"", b"ab", b"abcdefghijk"),
            np.int32(8),
            id=f"{dtype}_{little:d}",
            out_type=dtype,
            little_endian=little,
        )
        for dtype in ("float32", "float64", "int32", "uint16", "uint8", "int16", "int8", "int64", "bfloat16")
        for little in (True, False)
    ],
    case("DecodePaddedRaw", b"abc", np.int32(4), id="scalar", out_type="int16"),
    case("DecodePaddedRaw", text(), np.int32(4), id="empty", out_type="int16"),
    case("DecodePaddedRaw", b"abc", np.int32(3), id="odd", out_type="int16"),
    case("DecodePaddedRaw", b"abc", np.int32(0), id="zero", out_type="int16"),
    case("DecodePaddedRaw", b"abc", np.int32(-2), id="negative", out_type="int16"),
    case("DecodePaddedRaw", b"abc", i32(2), id="vector", out_type="int16"),
    *[
        case("EncodeBase64", text(b"", b"a", b"ab", b"abc", bytes(range(250, 256))), id=f"{pad:d}", pad=pad)
        for pad in (True, False)
    ],
    case("EncodeBase64", b"ab\0c", id="scalar"),
    case("DecodeBase64", text(b"", b"YQ", b"YQ==", b"YWI", b"YWI=", b"YWJj", b"-vv8_f7_"), id="good"),
    case("DecodeBase64", b"YWI", id="scalar"),
    *[
        case("DecodeBase64", bad, id=f"bad_{bad.decode()}")
        for bad in (
            b"Y",
            b"Y===",
            b"YQ=",
            b"YQ===",
            b"+vv8",
            b"/vv8",
            b"YW I",
            b"Y=Q=",
            b"=",
            b"====",
            b"YR",
            b"YWJ",
            b"YWJjY",
        )
    ],
]

SPLITS = [
    *[
        case(
            "StringSplit",
            text(b"a,b c", b"", b",,d,", b"e\0f"),
            delimiter,
            id=f"{delimiter!r}_{skip:d}",
            skip_empty=skip,
        )
        for delimiter in (b",", b", ", b"", b"x")
        for skip in (True, False)
    ],
    case("StringSplit", text(), b",", id="empty"),
    case("StringSplit", b"a,b", b",", id="scalar"),
    case("StringSplit", text(b"a,b"), text(b","), id="vector_delimiter"),
    *[
        case(
            "StringSplitV2",
            text(b"1<>2<>3", b"", b" a  b\tc ", b"<><>", b"\va\f"),
            sep,
            id=f"{sep!r}_{most}",
            maxsplit=most,
        )
        for sep in (b"<>", b"", b"x", b" ")
        for most in (-1, 0, 1, 2, 9)
    ],
    case("StringSplitV2", text(), b",", id="empty"),
    case("StringSplitV2", b"a,b", b",", id="scalar"),
]


def csv(name: str, records: Any, *defaults: Any, **attrs: Any) -> OpCase:
    return case("DecodeCSV", records, *defaults, id=name, **attrs)


F, I, S = f32(-1), i64(-2), text(b"none")  # noqa: E741 - defaults
CSV = [
    csv("plain", text(b"1.5,2,x", b",,", b"3,4,"), F, I, S),
    csv("quoted", text(b'"1",2,"a ""b"", c"', b'3,"4",""'), F, I, S),
    csv("newline_in_quotes", text(b'1,2,"a\nb"'), F, I, S),
    csv("no_quotes", text(b'1,2,a"b'), F, I, S, use_quote_delim=False),
    csv("tabs", text(b"1\t2\tx"), F, I, S, field_delim=b"\t"),
    csv("na", text(b"NA,NA,NA", b"1,2,NA"), F, I, S, na_value=b"NA"),
    csv("selected", text(b"1,2,3,x"), I, S, select_cols=(1, 3)),
    csv("scalar_record", b"1,2,x", F, I, S),
    csv("scalar_defaults", text(b",,"), np.float32(7), np.int64(8), b"z"),
    csv("matrix", grid(2, b"1", b"2"), i32(0)),
    csv("empty", text(), F, I, S),
    csv("one_empty", text(b""), S),
    csv("f64_i32", text(b"1e300,5"), f64(0), i32(0)),
    csv("spaces", text(b" 1 , 2 , x "), F, I, S),
    csv("required", text(b"1,,x"), F, i64(), S),
    csv("too_few", text(b"1,2"), F, I, S),
    csv("too_many", text(b"1,2,3,4"), F, I, S),
    csv("bad_int", text(b"1,x,3"), F, I, S),
    csv("bad_float", text(b"x,1,3"), F, I, S),
    csv("stray_quote", text(b'1,2,a"b'), F, I, S),
    csv("open_quote", text(b'1,2,"ab'), F, I, S),
    csv("after_quote", text(b'1,2,"ab"c'), F, I, S),
    csv("bare_newline", text(b"1,2,a\nb"), F, I, S),
    csv("end_newline", text(b"1,2,a\n"), F, I, S),
    csv("long_default", text(b"1"), f32(1, 2)),
    csv("select_short", text(b"1,2"), I, select_cols=(5,)),
    csv("select_order", text(b"1,2,3"), I, I, select_cols=(2, 1)),
    csv("select_count", text(b"1,2,3"), I, select_cols=(1, 2)),
    csv("long_delim", text(b"1,2"), I, I, field_delim=b",,"),
    csv("trailing_delim", text(b"1,2,"), I, I, S),
    csv("quoted_na", text(b'"NA"'), S, na_value=b"NA"),
]

FORMATS = [
    case("StringFormat", i32(1, 2, 3), id="vector", template=b"a %s b"),
    case("StringFormat", i32(*range(20)), id="long"),
    case("StringFormat", i32(*range(20)), id="all", summarize=-1),
    case("StringFormat", i32(*range(20)), id="one", summarize=1),
    case("StringFormat", i32(*range(7)), id="seven"),
    case("StringFormat", np.arange(24, dtype=np.int32).reshape(2, 3, 4), id="three_dims"),
    case("StringFormat", np.arange(81, dtype=np.int64).reshape(9, 9), id="large_matrix"),
    case(
        "StringFormat",
        f32(1.5, 1e10, 0.1, 3.14159265, 1e-7, 123456789, 1, -0.0, np.inf, np.nan),
        id="floats",
        summarize=10,
    ),
    case("StringFormat", f64(1.5, 1e10, 0.1, 3.14159265358979, 1e-7, 123456789), id="doubles", summarize=10),
    case("StringFormat", np.array([0.1, 65504], np.float16), id="halves"),
    case("StringFormat", np.float32(2.5), id="scalar"),
    case("StringFormat", np.array([True, False]), id="bools"),
    case("StringFormat", np.array([1 + 2j], np.complex64), id="complex"),
    case("StringFormat", text(b"a", b"b c"), id="strings"),
    case("StringFormat", b"text", id="string_scalar"),
    case("StringFormat", i32(), id="empty"),
    case("StringFormat", np.zeros((2, 0), np.float32), id="empty_rows"),
    case("StringFormat", i32(1), b"x", id="two", template=b"%s and %s"),
    case("StringFormat", id="none", template=b"plain", T=()),
    case("StringFormat", i32(1), id="placeholder", template=b"{} 100%", placeholder=b"{}"),
    case("StringFormat", i32(1), id="too_many", template=b"%s %s"),
    case("StringFormat", i32(1), id="too_few", template=b"x"),
    case("StringFormat", np.array([-5, 5], np.int8), id="i8"),
    case("StringFormat", np.array([5, 255], np.uint8), id="u8"),
]

CASES = [*LENGTH_CASE_STRIP, *JOINS, *SUBSTR, *NUMBERS, *RAW, *SPLITS, *CSV, *FORMATS]
