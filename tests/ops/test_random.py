"""Stateful random ops give TensorFlow's numbers, run after run, and share their state as a session does."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from tests.ops.op_case import OpCase, case, f32, i32, i64
from tests.ops.op_runner import run_case
from tests.ops.random_cases import CASES
from tests.ops.session import Session
from tests.ops.test_golden_ops import decode


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    path = Path(__file__).parents[1] / "golden" / "random_stateful.json"
    answers: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
    return answers


@pytest.mark.parametrize("random_case", CASES, ids=lambda found: found.label)
def test_every_run_gives_tensorflows_numbers(random_case: OpCase) -> None:
    session = Session()
    for expected in map(decode, golden()[random_case.label]):
        (got,) = run_case(random_case, session)
        got = np.asarray(got)
        assert got.dtype == expected.dtype
        if "Normal" in random_case.op and expected.dtype == np.float32:  # up to the last bits
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("op", ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"])
def test_without_seeds_no_two_sessions_agree(op: str) -> None:
    unseeded = case(op, i32(8), dtype="float32")
    (one,), (other,) = run_case(unseeded), run_case(unseeded)
    assert (one != other).any()


def test_a_shuffle_keeps_every_row_and_its_input() -> None:
    rows = np.arange(200).reshape(100, 2)
    (shuffled,) = run_case(case("RandomShuffle", rows))
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), rows)
    np.testing.assert_array_equal(rows, np.arange(200).reshape(100, 2))
    assert (shuffled != rows).any()


@pytest.mark.parametrize(
    "wrong",
    [
        case("RandomUniform", i32(-1), dtype="float32", id="negative"),
        case("RandomUniform", np.int32(3), dtype="float32", id="scalar_shape"),
        case("RandomUniformInt", i32(3), np.int32(5), np.int32(5), id="empty_range"),
        case("RandomUniformInt", i32(3), i32(0), np.int32(5), id="vector_bound"),
        case("Multinomial", f32(1, 2), np.int32(3), id="vector_logits"),
        case("Multinomial", f32([1, 2]), np.int32(-3), id="negative_count"),
        case("Multinomial", np.zeros((2, 0), np.float32), np.int32(3), id="no_classes"),
    ],
    ids=lambda found: found.label,
)
def test_bad_input_is_an_invalid_argument(wrong: OpCase) -> None:
    with pytest.raises(InvalidArgumentError):
        run_case(wrong)


def test_a_shape_too_large_for_memory_is_refused_before_it_is_taken() -> None:
    with pytest.raises(ResourceExhaustedError):
        run_case(case("RandomUniform", i64(2**20, 2**20, 2**20), dtype="float32"))
    with pytest.raises(ResourceExhaustedError):
        run_case(case("StatelessTruncatedNormal", i64(2**20, 2**22), i64(1, 2), dtype="float32"))
    with pytest.raises(ResourceExhaustedError):
        run_case(case("Multinomial", np.zeros((2**12, 1), np.float32), np.int32(2**30)))
