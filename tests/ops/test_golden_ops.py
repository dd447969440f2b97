"""Every op case gives what TensorFlow gave (``tests/golden/ops``): values, dtypes, shapes, status codes."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.ops.cases
from asyncexec.framework.errors import OpError
from asyncexec.framework.types import as_dtype
from tests.ops.op_case import OpCase
from tests.ops.op_runner import run_case

FOLDER = Path(__file__).parents[1] / "golden" / "ops"
FAMILIES = sorted(module.name for module in pkgutil.iter_modules(tests.ops.cases.__path__))


@cache
def golden(family: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((FOLDER / f"{family}.json").read_text())
    return answers


def all_cases() -> list[Any]:
    """The cases of each op, by family: a test for each case would take longer than the case."""
    found: dict[tuple[str, str], list[OpCase]] = {}
    for family in FAMILIES:
        for case in importlib.import_module(f"tests.ops.cases.{family}").CASES:
            found.setdefault((family, case.op), []).append(case)
    return [pytest.param(family, cases, id=f"{family}-{op}") for (family, op), cases in found.items()]


def decode(output: dict[str, Any]) -> Any:
    if output["dtype"] == "string":
        array = np.empty(len(output["data"]), object)
        array[:] = [base64.b64decode(item) for item in output["data"]]
        return array.reshape(output["shape"])
    np_dtype = as_dtype(output["dtype"]).as_numpy_dtype
    return np.frombuffer(base64.b64decode(output["data"]), np_dtype).reshape(output["shape"])


@pytest.mark.parametrize(("family", "cases"), all_cases())
def test_kernels_give_tensorflows_answers(family: str, cases: list[OpCase]) -> None:
    for case in cases:
        try:
            check(case, golden(family)[case.label])
        except BaseException as error:
            error.add_note(f"case {case.label}")
            raise


def check(case: OpCase, expected: dict[str, Any]) -> None:
    if "error" in expected:
        with pytest.raises(OpError) as caught:
            run_case(case)
        assert caught.value.code == expected["error"], caught.value
        return
    outputs = run_case(case)
    assert len(outputs) == len(expected["outputs"])
    for got, answer in zip(outputs, map(decode, expected["outputs"]), strict=True):
        compare(case, got, answer)


def compare(case: OpCase, got: Any, expected: Any) -> None:
    got = np.asarray(got, object) if isinstance(got, bytes) else np.asarray(got)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if not case.compare:
        return
    if expected.dtype.kind in "fcV":
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=case.rtol, atol=case.atol)
    else:
        np.testing.assert_array_equal(got, expected)
