"""Regular expressions run on RE2: hostile patterns take linear time, and there is no other engine."""

from __future__ import annotations

import sys

import pytest

from asyncexec.framework.errors import InvalidArgumentError, MissingExtraError
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
