"""Random calls of each op give what TensorFlow gives, but for the differences that ``differences/known.py`` lists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.oracle.differences.__main__ import sweep
from tests.oracle.differences.compare import DIFFERENCES, Verdict
from tests.oracle.differences.generator import ops
from tests.oracle.differences.known import ABORTING, KNOWN, UNSTEADY
from tests.oracle.differences.worker import Oracle

pytestmark = [pytest.mark.oracle, pytest.mark.deep, pytest.mark.allow_blocking]
CASES = 55  # of each op


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    found = Oracle()
    found.start()
    yield found
    found.close()


@pytest.mark.parametrize("op", ops())
@pytest.mark.filterwarnings("ignore")
def test_differences_are_those_that_are_listed(op: str, oracle: Oracle) -> None:
    mine = Oracle() if op in ABORTING else oracle
    try:
        found = asyncio.run(sweep(op, range(CASES), mine))
    finally:
        if mine is not oracle:
            mine.close()
    assert (Verdict.ABORTS in found) == (op in ABORTING)
    assert found.keys() - {Verdict.ABORTS} - DIFFERENCES
    ignored = {Verdict.VALUES} if op in UNSTEADY else set()
    differing = {verdict: numbers for verdict, numbers in found.items() if verdict in DIFFERENCES - ignored}
    assert differing.keys() == KNOWN.get(op, {}).keys() - ignored, f"{op}: {differing}"
