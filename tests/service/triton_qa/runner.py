"""``python runner.py MODULE RESULTS PART...``: runs tests of a module by unittest, and writes a line of JSON for each.

They are those without any PART in their names; or those that PARTs of the form =NAME name.

It runs in the folder of the tests, as their own script does, and knows nothing of the project.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import unittest
from collections.abc import Iterator
from typing import Any

LIMIT_S = 1200


class _Result(unittest.TestResult):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.failed = False

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.failed = False
        signal.alarm(LIMIT_S)

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.alarm(0)
        super().stopTest(test)
        if not self.failed:
            self._write(test, "pass", "")

    def addError(self, test: Any, err: Any) -> None:
        self._fail(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._fail(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._fail(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.failed = True
        self._write(test, "skipped", reason)

    def _fail(self, test: Any, err: Any) -> None:
        if self.failed:  # and its end fails, too
            return
        self.failed = True
        self._write(test, "fail", f"{err[0].__name__}: {err[1]}")

    def _write(self, test: Any, outcome: str, told: str) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps([test.id(), outcome, told]) + "\n")


def _tests(suite: Any) -> Iterator[Any]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _tests(each)
        else:
            yield each


def _late(*_: object) -> None:
    raise TimeoutError(f"it took more than {LIMIT_S} s")


def main(module: str, path: str, left_out: list[str]) -> None:
    only = [each[1:] for each in left_out if each.startswith("=")]
    left_out = [each for each in left_out if not each.startswith("=")]
    signal.signal(signal.SIGALRM, _late)
    sys.path.insert(0, ".")
    found = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    if only:
        unittest.TestSuite(test for test in _tests(found) if test.id() in only).run(_Result(path))
        return
    chosen = [test for test in _tests(found) if not any(each in test.id() for each in left_out)]
    for test in _tests(found):
        if test not in chosen:
            with open(path, "a") as file:
                file.write(json.dumps([test.id(), "left out", ""]) + "\n")
    unittest.TestSuite(chosen).run(_Result(path))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
