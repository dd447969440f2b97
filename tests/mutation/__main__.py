"""Mutation tests of the core: ``python -m tests.mutation [--sample 60 | --all] [--seed 0] [PART OF A KEY ...]``.

Changes one thing in a function of the executor, the rendezvous, the partitioner or the session, and runs the tests that
reach the changed line, quickest first, until one fails.  A mutant that all of them pass under has survived: something
is not tested, or the mutant is equivalent to the original (``equivalent.txt`` lists such, with the reason).

Why not a library.  mutmut 3 and cosmic-ray 8 were looked at.  mutmut copies the tree to ``mutants/``, writes each
function of it anew with a trampoline, and runs pytest from there: with that the generated code, the line numbers in
expected messages and the frames that tests count are others, and the plain run of the suite fails under it.  cosmic-ray
starts the test command anew for each mutant, with all imports, which takes longer than most of the tests that it runs,
and does not choose tests by line.  Here one process collects the tests, and each mutant is a fork of it that swaps
``__code__`` of one function: half a second a mutant, and line numbers stay.

Each test is run once, traced, to see which of the functions' lines it runs.  Tests that take long, fail when traced, or
repeat another on the second event loop are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.operators import mutants_of, sample, sources
from tests.mutation.runner import MutationRun, Verdict

ROOT: Final = Path(__file__).parents[2]
MUTATED: Final = [f"asyncexec/{package}" for package in ("executor", "rendezvous", "partition", "session")]
TESTED: Final = ("executor", "rendezvous", "partition", "session", "regions", "devices")
TESTS: Final = [f"tests/{folder}" for folder in TESTED]
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")


def main(arguments: list[str]) -> int:
    """Run it; 0 unless the tests do not pass without any mutant, or a mutant that is not listed has survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=60, help="how many mutants to try")
    parser.add_argument("--all", action="store_true", help="try every mutant")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders of tests")
    parser.add_argument("keys", nargs="*", help="only mutants with one of these in their keys")
    options = parser.parse_args(arguments)
    listed = equivalents()
    texts = sources(ROOT, MUTATED)
    mutants = [mutant for path, text in texts.items() for mutant in mutants_of(text, path)]
    wanted = [one for one in mutants if not options.keys or any(key in one.key for key in options.keys)]
    wanted = [one for one in wanted if (one.key, one.text) not in listed]
    chosen = sample(wanted, None if options.all else options.sample, options.seed)
    run = MutationRun(chosen, texts, ROOT, options.processes)
    given = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-s"]
    pytest.main([*given, "--rootdir", str(ROOT), *options.tests], plugins=[run])
    report(run, len(wanted))
    survived = [mutant for mutant, verdict in run.verdicts.items() if verdict is Verdict.SURVIVED]
    return 1 if survived or len(run.verdicts) < len(chosen) else 0


def equivalents() -> set[tuple[str, str]]:
    """Key and text of the mutants that are known to change nothing that can be seen."""
    found: set[tuple[str, str]] = set()
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            key, _, text = line.partition(": ")
            found.add((key, text))
    return found


def report(run: MutationRun, num_wanted: int) -> None:
    """Print what came out, survivors one by one."""
    for mutant, verdict in run.verdicts.items():
        if verdict is not Verdict.KILLED:
            print(f"{verdict.value}: {mutant.key}: {mutant.text}")
    counts = Counter(run.verdicts.values())
    print(f"{run.num_tests} tests traced, {run.num_left_out} of them left out")
    print(
        f"{len(run.verdicts)} mutants tried of {num_wanted}: "
        + ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
