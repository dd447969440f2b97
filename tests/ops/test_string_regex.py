"""Regular expressions run on RE2: hostile patterns take linear time, and there is no other engine."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, MissingExtraError
from asyncexec.ops.string.string_elements import TextRoom
from asyncexec.ops.string.string_regex import is_literal, replace_literal
from tests.ops.op_case import OpCase, case
from tests.ops.op_runner import run_case

HOSTILE = [b"(a+)+$", b"(a*)*b", b"(a|aa)+$", b"(.*a){20}$", b"(?:a?){200}a{200}$"]
TEXT = b"a" * 3000 + b"!"
STATIC = {"StaticRegexFullMatch": {"pattern": b"a"}, "StaticRegexReplace": {"pattern": b"a", "rewrite": b"b"}}
EVERY_OP = [
    case("RegexFullMatch", b"a", b"a"),
    case("RegexReplace", b"a", b"a", b"b"),
    *[case(op, b"a", **attrs) for op, attrs in STATIC.items()],
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_does_not_freeze_the_process(pattern: bytes) -> None:
    assert run_case(case("RegexReplace", TEXT, pattern, b"x")) == [TEXT]
    assert run_case(case("RegexFullMatch", TEXT, pattern)) == [False]


def test_a_pattern_too_large_for_re2_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Invalid pattern"):
        run_case(case("RegexFullMatch", b"a", b"((a{100}){100}){100}"))


def test_an_invalid_pattern_is_named_and_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Invalid pattern: \(b, error: missing \): \(b"):
        run_case(case("RegexFullMatch", b"a", b"(b"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(r"\p{Han}+", "<漢字> αβ кот"), (r"\p{Greek}+", "漢字 <αβ> кот"), (r"[\p{Cyrillic}]+", "漢字 αβ <кот>")],
)
def test_scripts_are_classes(pattern: str, expected: str) -> None:
    case_ = case("RegexReplace", "漢字 αβ кот".encode(), pattern.encode(), rb"<\0>")
    assert run_case(case_) == [expected.encode()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aé€😀".encode(), "-a-é-€-😀-".encode()),
        (b"\xff\xc3", b"-\xff-\xc3-"),
        (b"\xe2\x82", b"-\xe2-\x82-"),
    ],
)
def test_empty_matches_step_over_whole_characters(text: bytes, expected: bytes) -> None:
    assert run_case(case("RegexReplace", text, b"", b"-")) == [expected]


@pytest.mark.parametrize("op_case", EVERY_OP, ids=lambda op_case: op_case.op)
def test_without_re2_the_error_says_what_to_install(op_case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(MissingExtraError, match=r"asyncexec\[ops\]"):
        run_case(op_case)


@pytest.mark.parametrize("literal", [b"a", b"ab", b"aab", b"abbb"])
@pytest.mark.parametrize("size", [4, 5, 7, 100])
def test_a_literal_is_replaced_in_pieces_as_in_the_whole(literal: bytes, size: int) -> None:
    rng = np.random.default_rng(size)
    for length in range(60):
        text = bytes(rng.choice(list(b"ab"), length).tolist())
        got = replace_literal(literal, b"<>", text, TextRoom(), size)
        assert got == text.replace(literal, b"<>")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(b"a", True), (b"ab c", True), (b"aa", False), (b"aba", False), (b"a.", False), (b"", False), (b"\\d", False)],
)
def test_literals_are_plain_and_do_not_overlap(pattern: bytes, expected: bool) -> None:
    assert is_literal(pattern) == expected
