"""``python -m tests.importers.onnx.backend_table [KIND ...]`` runs ONNX's conformance suite and prints what passes.

A case counts as *own* if kernels of asyncexec, and bodies of functions made of them, run all of its nodes; as
*reference* if the onnx library's reference implementation runs some.
"""

from __future__ import annotations

import re
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator

from onnx.backend.test import BackendTest

from asyncexec.framework.kernel_warning import KernelWarning
from tests.importers.onnx.backend import AsyncexecBackend

KINDS = {
    "node": "OnnxBackendNodeModelTest",
    "simple": "OnnxBackendSimpleModelTest",
    "pytorch-converted": "OnnxBackendPyTorchConvertedModelTest",
    "pytorch-operator": "OnnxBackendPyTorchOperatorModelTest",
    "real": "OnnxBackendRealModelTest",
}


def cases(kind: str) -> Iterator[unittest.TestCase]:
    """The cases of *kind* that run on a CPU."""
    found = BackendTest(AsyncexecBackend, __name__).test_cases[KINDS[kind]]
    for name in sorted(dir(found)):
        if name.startswith("test_") and name.endswith("_cpu"):
            yield found(name)


def outcome(case: unittest.TestCase) -> tuple[str, str]:
    """own, reference, skipped or failed; and why."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = unittest.TestResult()
        case.run(result)
    for kind, found in (("failed", result.failures + result.errors), ("skipped", result.skipped)):
        if found:
            lines = found[0][1].strip().splitlines()
            return kind, " | ".join(lines[-3:])[:300] if kind == "failed" else lines[-1]
    by_reference = [str(each.message) for each in told if each.category is KernelWarning]
    ops = [op for message in by_reference for op in re.findall(r"([\w.]+:\w+) of operator set", message)]
    return ("reference", " ".join(ops)) if ops else ("own", "")


def main(kinds: list[str]) -> None:
    pattern = next((kind[2:] for kind in kinds if kind.startswith("k=")), "")
    for kind in [kind for kind in kinds if kind in KINDS] or KINDS:
        counts: Counter[str] = Counter()
        ops: Counter[str] = Counter()
        for case in cases(kind):
            if not re.search(pattern, case.id()):
                continue
            found, why = outcome(case)
            counts[found] += 1
            ops.update(why.split() if found == "reference" else ())
            if found in ("failed", "skipped"):
                print(f"{found}: {case.id().rpartition('.')[2]}: {why}", flush=True)
        print(f"{kind}: {counts.total()} cases, {dict(counts)}")
        if ops:
            print("  by reference:", ", ".join(f"{op} {count}" for op, count in ops.most_common()))


if __name__ == "__main__":
    main(sys.argv[1:])
