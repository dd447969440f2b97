"""ONNX's conformance suite: some ops of it each time, all of it in the deep tests."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from tests.importers.onnx.backend import AsyncexecBackend
from tests.importers.onnx.backend_table import KINDS, cases, outcome

# Cases that do not pass, and why.
LISTED = {
    **dict.fromkeys(
        "test_bernoulli_cpu test_bernoulli_double_cpu test_bernoulli_double_expanded_cpu test_bernoulli_expanded_cpu "
        "test_bernoulli_seed_cpu test_bernoulli_seed_expanded_cpu".split(),
        "the numbers that it expects are random ones of numpy",
    ),
    "test_loop16_seq_none_cpu": "the suite cannot compare the scalar within the sequence that is expected",
    "test_attention_4d_causal_fp16_expanded_cpu": "it rounds to float16 within Softmax; ours rounds its result once",
    **dict.fromkeys(
        "test_resize_downsample_scales_cubic_align_corners_cpu "
        "test_resize_downsample_scales_linear_align_corners_cpu".split(),
        "it takes scale * length for the length of the output, which the op rounds down; so does ONNX Runtime",
    ),
}
LEAST = {"node": 1860, "simple": 23, "pytorch-operator": 35, "pytorch-converted": 82, "real": 9}
# The modules of the suite that make the cases; all of them take 16 seconds, these are quick.
SAMPLE = {
    "add": "test_add",
    "concat": "test_concat",
    "gather": "test_gather",
    "gemm": "test_gemm",
    "if_": "test_if",
    "loop": "test_loop",
    "optionalgetelement": "test_optional_get",
    "scan": "test_scan",
    "sequence_map": "test_sequence_map",
    "sequenceinsert": "test_sequence_insert",
    "topk": "test_top_k",
    "where": "test_where",
}

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def cases_of(module: str) -> list[TestCase]:
    import_module(f"{node_cases.__name__}.{module}")
    return [case for case in node_cases._NodeTestCases if case.name.startswith(SAMPLE[module])]


@pytest.mark.parametrize("module", SAMPLE)
def test_some_ops_of_the_suite(module: str) -> None:
    failures = {}
    found = cases_of(module)
    assert found
    for case in found:
        if f"{case.name}_cpu" in LISTED:
            continue
        model = AsyncexecBackend.prepare(case.model)
        for inputs, outputs in case.data_sets:
            try:
                Runner.assert_similar_outputs(outputs, list(model.run(inputs)), rtol=case.rtol, atol=case.atol)
            except AssertionError as error:
                failures[case.name] = str(error)
    assert failures == {}


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_suite(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))  # where it puts the real models together
    outcomes = {case.id().rpartition(".")[2]: outcome(case) for case in cases(kind)}
    failed = {name: why for name, (found, why) in outcomes.items() if found == "failed"}
    assert {name: why for name, why in failed.items() if name not in LISTED} == {}
    assert len(outcomes) - len(failed) >= LEAST[kind]
