"""Random calls of each op give what TensorFlow gives, but for the differences that ``differences/known.py`` lists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.oracle.differences.__main__ import sweep
from tests.oracle.differences.compare import DIFFERENCES, Verdict
from tests.oracle.differences.generator import ops
from tests.oracle.differences.known import ABORTING, BY_PROCESSOR, KNOWN, UNSTEADY
from tests.oracle.differences.worker import Oracle

pytestmark = [pytest.mark.oracle, pytest.mark.deep, pytest.mark.allow_blocking]
CASES = 55  # of each op


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    found = Oracle()
    yield found
    found.close()


@pytest.fixture
def started(oracle: Oracle) -> None:
    """The process of all tests, which a test does without in the end if TensorFlow has ended it."""
    oracle.start()


@pytest.fixture(autouse=True)
def nothing_left_behind(started: None, nothing_left_behind: None) -> None:
    """As ever, but with a process from before the test."""


def asked(oracle: Oracle, op: str, number: int) -> Verdict:
    """What one case comes to."""
    (verdict,) = asyncio.run(sweep(op, range(number, number + 1), oracle))
    return verdict


def test_a_process_that_has_ended_is_replaced() -> None:
    oracle = Oracle()
    try:
        assert asked(oracle, "AddV2", 0) is Verdict.AGREE
        process = oracle.process
        assert process is not None
        process.kill()
        process.wait()
        assert asked(oracle, "AddV2", 0) is Verdict.AGREE
    finally:
        oracle.close()


def test_a_question_that_was_given_up_leaves_no_answer_behind() -> None:
    oracle = Oracle()
    try:
        oracle.ask("StringLower", 0)
        assert asked(oracle, "AddV2", 0) is Verdict.AGREE
    finally:
        oracle.close()


@pytest.mark.parametrize("op", ops())
@pytest.mark.filterwarnings("ignore")
def test_differences_are_those_that_are_listed(op: str, oracle: Oracle) -> None:
    mine = Oracle() if op in ABORTING else oracle
    process = oracle.process
    try:
        found = asyncio.run(sweep(op, range(CASES), mine))
    finally:
        if mine.process is not process:
            mine.close()
    ignored = BY_PROCESSOR.get(op, set()) | ({Verdict.VALUES} if op in UNSTEADY else set())
    assert Verdict.ABORTS in ignored or (Verdict.ABORTS in found) == (op in ABORTING)
    assert found.keys() - {Verdict.ABORTS} - DIFFERENCES
    differing = {verdict: numbers for verdict, numbers in found.items() if verdict in DIFFERENCES - ignored}
    assert differing.keys() == KNOWN.get(op, {}).keys() - ignored, f"{op}: {differing}"
