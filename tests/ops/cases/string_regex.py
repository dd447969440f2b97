r"""Cases of regular expressions: RE2's syntax, where it differs from Python's ``re``, and its rewrites."""

from __future__ import annotations

from tests.ops.op_case import OpCase, case, text

TEXTS = text(
    b"",
    b"abc",
    b"aaa bbb",
    b"Hello World\n",
    b"a\nb",
    b"foo.bar-baz_9",
    "äöü ß€".encode(),
    b"a\xffb",
    b"x\0y",
    b"aXbXc",
)


def replace(pattern: bytes, rewrite: bytes, **attrs: object) -> OpCase:
    name = f"{pattern!r}_{rewrite!r}{'_first' if attrs else ''}"
    return case("StaticRegexReplace", TEXTS, id=name, pattern=pattern, rewrite=rewrite, **attrs)


def match(pattern: bytes) -> OpCase:
    return case("StaticRegexFullMatch", TEXTS, id=repr(pattern), pattern=pattern)


REPLACED = [
    (b"a", b"-"),
    (b"a*", b"-"),
    (b"b*", b"-"),
    (b"", b"-"),
    (b"x*", b"<\\0>"),
    (b"(a)(b)?", b"[\\2\\1]"),
    (b"\\w+", b"W"),
    (b"[^a-c]", b"."),
    (b"$", b"!"),
    (b"^", b"!"),
    (b"(?m)^", b"!"),
    (b"(?m)$", b"!"),
    (b"(?i)A", b"_"),
    (b"a(?i)B|X", b"_"),
    (b"(?i:a)b", b"_"),
    (b".", b"_"),
    (b"(?s).", b"_"),
    (b"\\s+", b"_"),
    (b"[[:punct:]]", b"P"),
    (b"[[:^alpha:]]", b"N"),
    (b"\\bb", b"_"),
    (b"o|l", b"0"),
    (b"a+?", b"_"),
    (b"(?U)a+", b"_"),
    (b"(?U)a+?", b"_"),
    (b"\\Q.\\E", b"dot"),
    (b"\\x61", b"_"),
    (b"\\x{20ac}", b"EUR"),
    (b"\\pL", b"L"),
    (b"\\P{Lu}", b"_"),
    (b"[\\pN_]", b"#"),
    (b"\\141", b"_"),
    (b"a{2}", b"_"),
    (b"a{1,}", b"_"),
    (b"a{,2}", b"_"),
    (b"{", b"_"),
    (b"]", b"_"),
    (b"[]a]", b"_"),
    (b"[a\\]]", b"_"),
    (b"a", b"\\\\"),
    (b"(?P<n>a)", b"<\\1>"),
    ("ö".encode(), b"oe"),
    ("[ä-ü]".encode(), b"u"),
    (b"\\n", b"nl"),
    (b"\\z", b"!"),
    (b"[\\d\\s]", b"_"),
    (b"[^\\w]", b"_"),
    (b"\\D", b"_"),
    (b"\\0", b"0"),
    (b"(a|ab)(c|bcd)?", b"(\\1,\\2)"),
    (b"-", b"\\0\\0"),
    (b"a", b""),
    (b"(?i)\xc3\x84", b"_"),
    (b"[a-]", b"_"),
    (b"(?:a|b)+", b"_"),
    (b"(?-s).", b"_"),
    (b"a|", b"_"),
    (b"\\a", b"_"),
]

INVALID = [
    b"(",
    b")",
    b"[",
    b"a**",
    b"a*+",
    b"*a",
    b"\\",
    b"(?=a)",
    b"(?!a)",
    b"(?<=a)b",
    b"(a)\\1",
    b"(?#c)a",
    b"(?>a)",
    b"a{1001}",
    b"a{2,1}",
    b"[b-a]",
    b"[[:foo:]]",
    b"\\q",
    b"(?P<n>a)(?P<n>b)",
    b"(?P=n)",
    b"a++",
    b"\xff",
    b"(?z)a",
    b"|*",
    b"a{2}{3}",
]

CASES = [
    *[replace(pattern, rewrite) for pattern, rewrite in REPLACED],
    *[replace(pattern, rewrite, replace_global=False) for pattern, rewrite in REPLACED[:10]],
    *[replace(pattern, b"x") for pattern in INVALID],
    replace(b"(a)", b"\\2"),
    replace(b"a", b"\\q"),
    replace(b"a", b"a\\"),
    *[
        match(pattern)
        for pattern in (b"abc", b"a.*", b"a.b", b"(?s)a.b", b"[a-z ]*", b"", b"ab|abc", b"\\pL*.*", b"(?i)ABC", b"(")
    ],
    case("RegexReplace", b"abcabc", b"b", b"<\\0>", id="scalar"),
    case("RegexReplace", TEXTS, b"[ab]", b"", id="vector"),
    case("RegexReplace", TEXTS, b"a", b"z", id="first", replace_global=False),
    case("RegexReplace", text(), b"a", b"z", id="empty"),
    case("RegexReplace", b"a", text(b"a"), b"z", id="vector_pattern"),
    case("RegexReplace", b"a", b"(", b"z", id="invalid"),
    case("RegexReplace", b"a", b"a", text(b"a"), id="vector_rewrite"),
    case("RegexReplace", b"a", b"a", b"\\1", id="no_group"),
    case("RegexFullMatch", TEXTS, b"a.*c", id="vector"),
    case("RegexFullMatch", b"abc", b"a.*c", id="scalar"),
    case("RegexFullMatch", b"abc", b"[", id="invalid"),
    case("RegexFullMatch", b"abc", text(b"a"), id="vector_pattern"),
]
