"""The check of case tables finds what it is for."""

from __future__ import annotations

from tests.case_table import missing_tests


def test_it_finds_tests_and_reasons() -> None:
    cases = {
        "here": "test_it_finds_tests_and_reasons",
        "there": "tests.test_case_table:test_it_finds_tests_and_reasons",
        "reason": "there is no such thing here",
    }
    assert missing_tests(cases, __name__) == []


def test_it_finds_what_is_missing() -> None:
    cases = {"here": "test_nothing", "there": "tests.case_table:test_nothing", "reason": "", "word": "later"}
    assert missing_tests(cases, __name__) == list(cases)
