"""The node cases of the ``onnx`` library, kernel by kernel; a session runs them elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ops.onnx.node_cases import DIFFERENT, NoKernelError, all_cases, cases_in, run_case

# One or two of each family: module of the library -> how many cases it has at least.
_QUICK = {
    "abs": 1,
    "erf": 1,
    "pow": 8,
    "mod": 13,
    "clip": 10,
    "bitshift": 8,
    "cumsum": 7,
    "where": 2,
    "isinf": 4,
    "equal": 6,
    "bitcast": 10,
    "constantofshape": 3,
    "pad": 6,
    "onehot": 4,
    "eyelike": 3,
    "rangeop": 2,
    "reshape": 10,
    "split": 10,
    "squeeze": 2,
    "expand": 2,
    "transpose": 7,
    "depthtospace": 2,
    "slice": 8,
    "gathernd": 3,
    "gatherelements": 3,
    "scatterelements": 6,
    "scatternd": 5,
    "tensorscatter": 3,
    "trilu": 18,
    "reversesequence": 2,
    "compress": 4,
    "center_crop_pad": 6,
    "unique": 7,
    "topk": 6,
    "argmax": 16,
    "reduce_log_sum_exp": 9,
    "reducemax": 6,
    "reducel2": 9,
    "gemm": 11,
    "det": 2,
    "dft": 10,
    "stft": 2,
    "hannwindow": 2,
    "melweightmatrix": 1,
    "bernoulli": 3,
    "stringnormalizer": 6,
    "string_split": 6,
    "regex_full_match": 3,
    "tfidfvectorizer": 7,
}


@pytest.fixture(scope="module")
def quick_cases() -> dict[str, list[Any]]:
    return {module: cases_in(module) for module in _QUICK}


@pytest.mark.parametrize("module", _QUICK)
def test_cases_of_one_op(quick_cases: dict[str, list[Any]], module: str) -> None:
    failed: dict[str, str] = {}
    ran = 0
    for case in quick_cases[module]:
        try:
            run_case(case)
        except NoKernelError:
            continue
        except Exception as error:
            failed[case.name] = repr(error)
        ran += 1
    assert failed == {}
    assert ran >= _QUICK[module]


@pytest.mark.deep
def test_every_case_whose_ops_have_kernels() -> None:
    failed: dict[str, str] = {}
    ran = 0
    for case in all_cases():
        try:
            run_case(case)
        except NoKernelError:
            continue
        except Exception as error:
            failed[case.name] = repr(error)
        ran += 1
    assert failed.keys() <= DIFFERENT.keys()
    assert ran >= 1114
