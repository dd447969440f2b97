"""A sample of the mutants of the core: the tests notice almost all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = int(os.environ.get("MUTANTS", "40"))
# Of the mutants that are made, those that may survive, with those that no test reaches: new ones are for people to see.
ALLOWED = 0.15


@pytest.mark.deep
@pytest.mark.allow_blocking
def test_most_mutants_of_a_sample_are_noticed() -> None:
    command = [sys.executable, "-m", "tests.mutation", "--sample", str(SAMPLE)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(ran.stdout)
    *_, last = ran.stdout.splitlines()
    counts = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z][a-z ]+[a-z])", last)}
    assert counts["mutants tried of"] == SAMPLE, ran.stderr
    missed = counts["survived"] + counts["reached by no test"]
    assert missed <= ALLOWED * (SAMPLE - counts["not made"]), ran.stdout
