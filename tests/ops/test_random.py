"""Stateful random ops give TensorFlow's numbers, run after run, and share their state as a session does."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.state.variable_state import Variable
from tests.ops.op_case import OpCase, case, f32, i32, i64
from tests.ops.op_runner import run_case
from tests.ops.random_cases import CASES, GENERATOR_CASES, STATE
from tests.ops.session import Session
from tests.ops.test_golden_ops import decode


@cache
def golden() -> dict[str, list[Any]]:
    path = Path(__file__).parents[1] / "golden" / "random_stateful.json"
    answers: dict[str, list[Any]] = json.loads(path.read_text())
    return answers


@pytest.mark.parametrize("random_case", CASES, ids=lambda found: found.label)
def test_every_run_gives_tensorflows_numbers(random_case: OpCase) -> None:
    session = Session()
    for expected in golden()[random_case.label]:
        check(random_case, run_case(random_case, session), expected if isinstance(expected, list) else [expected])


def check(random_case: OpCase, outputs: list[Any], answers: list[dict[str, Any]]) -> None:
    for output, expected in zip(outputs, map(decode, answers), strict=True):
        got = np.asarray(output)
        assert got.dtype == expected.dtype
        if expected.dtype == np.float32 and ("Normal" in random_case.op or "LogUniform" in random_case.op):
            # Up to the last bits: TensorFlow's C library computes logarithms of floats.
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("random_case", GENERATOR_CASES, ids=lambda found: found.label)
def test_a_generator_goes_on_in_its_variable_as_tensorflows_does(random_case: OpCase) -> None:
    variable = generator(*((1, *STATE) if random_case.op == "StatefulStandardNormal" else STATE))
    called = replace(random_case, inputs=[variable, *random_case.inputs])
    for expected in golden()[random_case.label]:
        check(random_case, [*run_case(called), variable.value], expected)


def generator(*state: int) -> Variable:
    variable = Variable("state", types.int64, TensorShape([len(state)]))
    variable.assign(np.array(state, np.int64))
    return variable


@pytest.mark.parametrize(
    "wrong",
    [
        case("StatefulUniform", generator(1, 2, 3), np.int64(2), i64(3), id="threefry", dtype="float32"),
        case("StatefulUniform", generator(1, 2), np.int64(1), i64(3), id="short_state", dtype="float32"),
        case("StatefulUniform", generator(1, 2, 3), i64(1), i64(3), id="vector_algorithm", dtype="float32"),
        case("StatefulUniform", generator(1, 2, 3), np.int64(1), i64(-3), id="negative", dtype="float32"),
        case("StatefulStandardNormal", generator(2, 2, 3, 4), i64(3), id="threefry_in_state", dtype="float32"),
        case("StatefulUniformInt", generator(1, 2, 3), np.int64(1), i64(3), np.int32(4), np.int32(4), id="empty_range"),
        case("RngSkip", generator(1, 2, 3), np.int64(1), i64(3), id="vector_delta"),
        case("RngReadAndSkip", generator(1, 2, 3), np.int32(9), np.uint64(3), id="no_algorithm"),
        case("StatefulUniform", "no handle", np.int64(1), i64(3), id="no_handle", dtype="float32"),
    ],
    ids=lambda found: found.label,
)
def test_a_wrong_state_or_algorithm_is_an_invalid_argument(wrong: OpCase) -> None:
    with pytest.raises(InvalidArgumentError):
        run_case(wrong)


def test_a_cipher_of_very_many_rounds_is_refused() -> None:
    shuffle = case("RandomIndexShuffle", np.int64(7), i64(2**40, 1, 2), np.int64(2**50), id="rounds", rounds=2**40)
    with pytest.raises(InvalidArgumentError, match="at most 1024"):
        run_case(shuffle)


def test_a_generator_without_a_value_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        run_case(case("RngSkip", Variable("state", types.int64, TensorShape([3])), np.int64(1), np.int64(3)))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_that_are_not_determined_differ(dtype: str) -> None:
    call = case("NonDeterministicInts", i64(4, 5), dtype=dtype)
    (one,), (other,) = run_case(call), run_case(call)
    assert (one != other).any()
    assert one.shape == (4, 5)


@pytest.mark.parametrize(
    "endless",
    [
        case("StatelessRandomPoisson", i32(2), i64(1, 2), np.float32(np.nan), id="nan", dtype="float32"),
        case("StatelessRandomPoisson", i32(2), i64(1, 2), np.float64(1e20), id="too_large", dtype="int32"),
        case("StatelessRandomBinomial", i32(2), i64(1, 2), np.float64(np.nan), np.float64(0.5), id="nan"),
    ],
    ids=lambda found: found.label,
)
def test_parameters_that_no_number_fits_are_refused(endless: OpCase) -> None:
    with pytest.raises(InvalidArgumentError, match="has been found"):
        run_case(endless)


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
        case("RandomGamma", i32(2), np.zeros(0, np.float32), id="no_alphas"),
        case("RandomGamma", i32(-2), f32(1), id="negative"),
        case("RandomPoissonV2", np.int32(2), f32(1), id="scalar_shape"),
        case("ParameterizedTruncatedNormal", i32(2, 3), f32([1]), f32(1), f32(0), f32(2), id="matrix_of_means"),
        case("ParameterizedTruncatedNormal", i32(2, 3), f32(1, 2, 3), f32(1), f32(0), f32(2), id="three_means"),
        case("ParameterizedTruncatedNormal", i32(), f32(1), f32(1), f32(0), f32(2), id="no_shape"),
        case("ParameterizedTruncatedNormal", i32(2), f32(1), f32(0), f32(0), f32(2), id="no_deviation"),
        case("RandomCrop", np.zeros((3, 3), np.float32), i64(1, 1), id="no_channels"),
        case("RandomCrop", np.zeros((3, 3, 1), np.float32), i64(1, 1, 1), id="three_sizes"),
        case("RandomCrop", np.zeros((3, 3, 1), np.float32), i64(-1, 1), id="negative_size"),
        case("Multinomial", f32(1, 2), np.int32(3), id="vector_logits"),
        case("Multinomial", f32([1, 2]), np.int32(-3), id="negative_count"),
        case("Multinomial", np.zeros((2, 0), np.float32), np.int32(3), id="no_classes"),
    ],
    ids=lambda found: found.label,
)
def test_bad_input_is_an_invalid_argument(wrong: OpCase) -> None:
    with pytest.raises(InvalidArgumentError):
        run_case(wrong)


SAMPLED: dict[str, Any] = {"num_true": 1, "num_sampled": 4, "unique": True, "range_max": 9}


@pytest.mark.parametrize(
    "wrong",
    [
        case("UniformCandidateSampler", i64(1), id="vector", **SAMPLED),
        case("UniformCandidateSampler", i64([1, 2]), id="two_columns", **SAMPLED),
        case("UniformCandidateSampler", i64([9]), id="beyond", **SAMPLED),
        case("LogUniformCandidateSampler", i64([-1]), id="negative", **SAMPLED),
        case("LearnedUnigramCandidateSampler", i64([1]), id="too_few", **SAMPLED | {"range_max": 3}),
        case("FixedUnigramCandidateSampler", i64([1]), id="no_weights", **SAMPLED),
        case("FixedUnigramCandidateSampler", i64([1]), id="two_weights", unigrams=[1.0, 2.0], **SAMPLED),
        case("FixedUnigramCandidateSampler", i64([1]), id="all_zero", unigrams=[0.0] * 9, **SAMPLED),
        case("FixedUnigramCandidateSampler", i64([1]), id="nan", unigrams=[float("nan")] * 9, **SAMPLED),
        case("FixedUnigramCandidateSampler", i64([1]), id="few_possible", unigrams=[1.0] + [0.0] * 8, **SAMPLED),
        case(
            "FixedUnigramCandidateSampler",
            i64([1]),
            id="reserved",
            unigrams=[1.0],
            num_reserved_ids=2**40,
            **SAMPLED,
        ),
    ],
    ids=lambda found: found.label,
)
def test_samplers_refuse_what_they_cannot_sample(wrong: OpCase) -> None:
    with pytest.raises(InvalidArgumentError):
        run_case(wrong)


def test_weights_of_more_classes_than_memory_has_are_refused() -> None:
    with pytest.raises(ResourceExhaustedError):
        run_case(case("LearnedUnigramCandidateSampler", i64([1]), **SAMPLED | {"range_max": 2**40}))
    with pytest.raises(ResourceExhaustedError):
        run_case(case("UniformCandidateSampler", i64([1]), **SAMPLED | {"range_max": 2**60, "num_sampled": 2**40}))


def test_weights_come_from_the_last_column_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.csv"
    path.write_text("a,1\nb,0\nc,3\n")
    attrs = {"num_true": 1, "num_sampled": 20, "unique": False, "range_max": 3}
    sampled, truly, _ = run_case(case("FixedUnigramCandidateSampler", i64([2]), vocab_file=str(path), **attrs))
    assert set(sampled.tolist()) == {0, 2}
    assert truly.tolist() == [[15.0]]
    path.write_text("a,one\n")
    with pytest.raises(InvalidArgumentError, match="line 0"):
        run_case(case("FixedUnigramCandidateSampler", i64([0]), vocab_file=str(path), **attrs | {"range_max": 1}))


def test_a_shape_too_large_for_memory_is_refused_before_it_is_taken() -> None:
    with pytest.raises(ResourceExhaustedError):
        run_case(case("RandomUniform", i64(2**20, 2**20, 2**20), dtype="float32"))
    with pytest.raises(ResourceExhaustedError):
        run_case(case("StatelessTruncatedNormal", i64(2**20, 2**22), i64(1, 2), dtype="float32"))
    with pytest.raises(ResourceExhaustedError):
        run_case(case("Multinomial", np.zeros((2**12, 1), np.float32), np.int32(2**30)))
