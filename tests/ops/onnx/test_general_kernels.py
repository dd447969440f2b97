"""What the node cases do not show of the general ONNX kernels: versions, scalars, strings, small dtypes, randomness."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from asyncexec.framework.errors import UnimplementedError
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, find_onnx_kernel
from asyncexec.ops.onnx.reference_kernel import reference_kernel
from tests.ops.onnx.node_cases import run_node, run_op

X = np.arange(6, dtype=np.float32).reshape(2, 3)
STRING = 8


def strings(*values: bytes) -> Any:
    return np.array(values, object)


@pytest.mark.parametrize("opset", [7, 12, 13, 28])
def test_axes_are_an_attribute_first_and_an_input_later(opset: int) -> None:
    x = X.reshape(2, 1, 3)
    axes = np.array([1], np.int64)
    of_squeeze = run_op("Squeeze", x, axes, opset=opset) if opset >= 13 else run_op("Squeeze", x, opset=opset, axes=[1])
    of_sum = run_op("ReduceSum", x, axes, opset=opset) if opset >= 13 else run_op("ReduceSum", x, opset=opset, axes=[1])
    of_max = run_op("ReduceMax", x, axes, opset=opset) if opset >= 18 else run_op("ReduceMax", x, opset=opset, axes=[1])
    assert (of_squeeze.shape, of_sum.shape, of_max.shape) == ((2, 3), (2, 1, 3), (2, 1, 3))


def test_bounds_of_slice_pads_and_limits_were_attributes() -> None:
    assert run_op("Slice", X, opset=9, starts=[0, -2], ends=[1, 9]).tolist() == [[1, 2]]
    assert run_op("Pad", X[0], opset=10, pads=[1, 0], value=9.0).tolist() == [9, 0, 1, 2]
    assert run_op("Clip", X[0], opset=10, min=0.5, max=1.5).tolist() == [0.5, 1, 1.5]
    assert run_op("TopK", X[0], opset=9, k=1, outputs=2)[1].tolist() == [2]


def test_backwards_from_before_the_first_element_is_from_the_first() -> None:
    def backwards(start: int, end: int) -> Any:
        return run_op("Slice", X[1], *(np.array([number], np.int64) for number in (start, end, 0, -1))).tolist()

    assert (backwards(-9, -9), backwards(9, -9), backwards(-9, 0), backwards(-3, -9)) == ([3], [5, 4, 3], [], [3])


def test_all_axes_or_none_are_reduced_without_axes() -> None:
    assert run_op("ReduceSumSquare", X, keepdims=0) == 55
    assert run_op("ReduceSumSquare", X, noop_with_empty_axes=1).tolist() == [[0, 1, 4], [9, 16, 25]]


@pytest.mark.parametrize(
    ("op_type", "dtype", "expected"),
    [
        ("ReduceMax", np.float32, -np.inf),
        ("ReduceMin", np.float32, np.inf),
        ("ReduceMax", np.int8, -128),
        ("ReduceMin", np.uint8, 255),
        ("ReduceMax", np.bool_, False),
        ("ReduceMin", np.bool_, True),
        ("ReduceSum", np.int32, 0),
        ("ReduceProd", np.float16, 1),
        ("ReduceLogSum", np.float64, -np.inf),
        ("ReduceLogSumExp", np.float32, -np.inf),
    ],
)
def test_nothing_reduces_to_the_neutral_element(op_type: str, dtype: Any, expected: Any) -> None:
    result = run_op(op_type, np.zeros((2, 0), dtype), np.array([1], np.int64), keepdims=0)
    assert result.dtype == dtype
    assert result.tolist() == [expected, expected]


def test_halves_are_summed_in_single() -> None:
    x = np.full(4096, 0.1, np.float16)
    assert run_op("ReduceSum", x, keepdims=0) == np.float16(x.astype(np.float32).sum())
    assert run_op("ReduceMean", x.astype(ml_dtypes.bfloat16), keepdims=0).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("op_type", ["Exp", "Tanh", "Erf", "Sqrt", "Round", "Sign", "Reciprocal", "Ceil", "Acosh"])
def test_floats_keep_their_dtype(op_type: str, dtype: Any) -> None:
    x = np.array([1, 2.5, 3.5], dtype)
    assert run_op(op_type, x).dtype == dtype
    assert run_op(op_type, x[0]).dtype == dtype


def test_integers_are_divided_towards_zero() -> None:
    x, y = np.array([-7, 7, -7, 7], np.int32), np.array([2, -2, -2, 2], np.int32)
    assert run_op("Div", x, y).tolist() == [-3, -3, 3, 3]
    assert run_op("Mod", x, y).tolist() == [1, -1, -1, 1]
    assert run_op("Mod", x, y, fmod=1).tolist() == [-1, 1, -1, 1]
    assert run_op("Div", np.uint64(2**64 - 1), np.uint64(2)) == 2**63 - 1


def test_a_power_has_the_dtype_of_the_base() -> None:
    for base, exponent in [(np.int32(3), np.float32(2.5)), (np.float32(3), np.int64(2)), (np.int64(3), np.int32(40))]:
        assert run_op("Pow", base, exponent).dtype == base.dtype
    assert run_op("Pow", np.int64(3), np.int32(39)) == 3**39


def test_shifts_by_all_bits_leave_the_sign() -> None:
    x = np.array([-5, 5], np.int8)
    for by in (8, 100, -1):
        assert run_op("BitShift", x, np.array([by], np.int8), direction="RIGHT").tolist() == [-1, 0]
        assert run_op("BitShift", x, np.array([by], np.int8), direction="LEFT").tolist() == [0, 0]


def test_a_scalar_has_no_axis_in_which_it_is_not_zero() -> None:
    assert run_op("NonZero", np.float32(3)).shape == (0, 1)
    assert run_op("NonZero", np.float32(0)).shape == (0, 0)


def test_strings_that_stand_alone_move_like_others() -> None:
    assert run_op("Reshape", b"x", np.array([1, 1], np.int64)).tolist() == [[b"x"]]
    assert run_op("Squeeze", strings(b"x")) == b"x"
    assert run_op("Unsqueeze", b"x", np.array([0], np.int64)).tolist() == [b"x"]
    assert run_op("Expand", b"x", np.array([2], np.int64)).tolist() == [b"x", b"x"]
    assert run_op("Shape", b"x").tolist() == []
    assert run_op("Size", b"x") == 1
    assert run_op("Where", np.array([True, False]), b"x", strings(b"y", b"z")).tolist() == [b"x", b"z"]
    assert run_op("Equal", b"a\0", b"a").tolist() is False
    assert run_op("StringConcat", b"x", strings(b"y")).tolist() == [b"xy"]
    assert run_op("Gather", strings(b"x", b"y"), np.int64(-1)) == b"y"
    assert run_op("Pad", strings(b"x"), np.array([1, 0], np.int64)).tolist() == [b"", b"x"]
    assert run_op("RegexFullMatch", b"xx", pattern="x+") is np.True_


@pytest.mark.parametrize("text", [b"1.5", b"+INF", b"-inf", b"nan", b"1e-5", b"  7 "])
def test_text_is_read_as_a_number(text: bytes) -> None:
    expected = np.float32(text.strip().decode())
    np.testing.assert_array_equal(run_op("Cast", text, to=1), expected)


def test_numbers_are_told_and_read_back() -> None:
    x = np.array([0.1, -2.0, np.inf, np.nan, 1e30], np.float32)
    text = run_op("Cast", x, to=STRING)
    assert all(isinstance(item, bytes) for item in text)
    np.testing.assert_array_equal(run_op("Cast", text, to=1), x)
    assert run_op("Cast", np.int64(-(2**63)), to=STRING) == b"-9223372036854775808"
    assert run_op("Cast", b"-9223372036854775808", to=7) == -(2**63)


def test_wide_integers_are_cut_to_narrow_ones() -> None:
    x = np.array([200, -9, 7], np.int16)
    assert run_op("Cast", x, to=3).tolist() == [-56, -9, 7]
    assert run_op("Cast", x, to=22).astype(int).tolist() == [-8, 7, 7]
    assert run_op("Cast", x, to=21).astype(int).tolist() == [8, 7, 7]
    assert run_op("Cast", x, to=26).astype(int).tolist() == [0, -1, -1]


def test_float8_saturates_unless_told_otherwise() -> None:
    x = np.array([1e6, -np.inf, np.nan, 1], np.float32)
    assert run_op("Cast", x, to=17).astype(np.float32)[:2].tolist() == [448, -448]
    assert np.isnan(run_op("Cast", x, to=17, saturate=0).astype(np.float32)[:3]).all()
    assert np.isnan(run_op("CastLike", x, np.zeros(1, ml_dtypes.float8_e5m2)).astype(np.float32)[2])
    assert run_op("CastLike", x, np.zeros(1, ml_dtypes.float8_e5m2), saturate=0)[0] == np.inf


def test_every_pair_of_dtypes_can_be_cast() -> None:
    numbers = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, *range(16, 29)]
    for source in numbers:
        x = run_op("Cast", np.array([1.0, 0.5], np.float32), to=source)
        for target in numbers:
            assert run_op("Cast", x, to=target).astype(np.float32)[0] == 1
            assert float(run_op("Cast", x[0], to=target)) == 1


@pytest.mark.parametrize("is_largest", [0, 1])
def test_of_equal_elements_the_first_is_on_top(is_largest: int) -> None:
    x = np.array([[3, 1, 3, 1, 3]], np.int32)
    values, places = run_op("TopK", x, np.array([2], np.int64), axis=1, largest=is_largest, outputs=2)
    assert (values.tolist(), places.tolist()) == (([[3, 3]], [[0, 2]]) if is_largest else ([[1, 1]], [[1, 3]]))


def test_unique_slices_of_strings_and_halves() -> None:
    words = np.array([[b"b", b"a"], [b"a", b"a"], [b"b", b"a"]], object)
    y, first, inverse, counts = run_op("Unique", words, axis=0, sorted=0, outputs=4)
    assert y.tolist() == [[b"b", b"a"], [b"a", b"a"]]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([0, 1], [0, 1, 0], [2, 1])
    assert run_op("Unique", np.array([2, 1, 2], ml_dtypes.bfloat16)).astype(int).tolist() == [1, 2]


@pytest.mark.parametrize(
    "equation", ["ij,jk,kl", "ij,jk,kl->li", "...i,...i,...i->...", "ii", "bij, bjk -> bik", "ij,j"]
)
def test_einsum_is_that_of_numpy(equation: str) -> None:
    rng = np.random.default_rng(0)
    inputs = [
        rng.random((3, 3, 3) if part.strip()[0] == "b" else (3, 3)) for part in equation.split("->")[0].split(",")
    ]
    inputs = [x[0] if equation == "ij,j" and place else x for place, x in enumerate(inputs)]
    np.testing.assert_allclose(run_op("Einsum", *inputs, equation=equation), np.einsum(equation, *inputs), rtol=1e-12)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_pads_may_be_longer_than_the_axis(mode: str) -> None:
    pads = np.array([5, 7], np.int64)
    assert run_op("Pad", X[0], pads, mode=mode).tolist() == np.pad(X[0], (5, 7), mode).tolist()  # type: ignore[call-overload]


def test_a_transform_comes_back() -> None:
    x = np.random.default_rng(0).random((2, 8, 2)).astype(np.float32)
    there = run_op("DFT", x, None, np.int64(1))
    np.testing.assert_allclose(run_op("DFT", there, None, np.int64(1), inverse=1), x, atol=1e-6)
    half = run_op("DFT", x[..., :1], opset=17, axis=1, onesided=1)
    assert half.shape == (2, 5, 2)
    np.testing.assert_allclose(run_op("DFT", half, opset=17, axis=1, onesided=1, inverse=1), x[..., :1], atol=1e-6)


def _runs(op_type: str, count: int, *inputs: Any, **attrs: Any) -> list[Any]:
    found = find_onnx_kernel(op_type, 22)
    assert found is not None
    kernel = found.factory(OnnxNode(op_type, "", 22, attrs))
    return [kernel(*inputs)[0].tolist() for _ in range(count)]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("RandomNormal", (), {"shape": [4]}),
        ("RandomUniformLike", (X,), {}),
        ("Multinomial", (X,), {"sample_size": 9}),
        ("Bernoulli", (np.full(99, 0.5),), {}),
    ],
)
def test_a_seed_gives_the_same_runs_which_differ(op_type: str, inputs: Any, attrs: dict[str, Any]) -> None:
    first, second = _runs(op_type, 2, *inputs, seed=5.0, **attrs)
    assert first != second
    assert _runs(op_type, 2, *inputs, seed=5.0, **attrs) == [first, second]
    assert _runs(op_type, 2, *inputs, seed=6.0, **attrs) != [first, second]


def test_random_numbers_have_the_distribution_that_is_asked_for() -> None:
    normal = run_op("RandomNormal", shape=[20_000], mean=3.0, scale=2.0, seed=1.0)
    assert normal.dtype == np.float32
    assert (normal.mean(), normal.std()) == (pytest.approx(3, abs=0.1), pytest.approx(2, abs=0.1))
    uniform = run_op("RandomUniformLike", np.zeros(20_000), low=-1.0, high=3.0, seed=1.0)
    assert (uniform.min(), uniform.max()) == (pytest.approx(-1, abs=0.01), pytest.approx(3, abs=0.01))
    odds = np.array([[0, np.log(3), -np.inf, np.log(6)]], np.float32)
    drawn = run_op("Multinomial", odds, sample_size=20_000, seed=1.0, dtype=7)
    assert np.bincount(drawn[0]) / 20_000 == pytest.approx([0.1, 0.3, 0, 0.6], abs=0.02)
    assert run_op("Bernoulli", np.full(20_000, 0.2), seed=1.0, dtype=9).mean() == pytest.approx(0.2, abs=0.02)


def test_stop_words_are_dropped_and_the_case_changed() -> None:
    words = strings("Über".encode(), b"Monday", b"MONDAY", b"x")
    given = run_op("StringNormalizer", words, case_change_action="UPPER", stopwords=[b"monday"])
    assert given.tolist() == ["ÜBER".encode(), b"X"]
    node = OnnxNode("StringNormalizer", "", 10, {"is_case_sensitive": 1, "stopwords": [b"Monday"]})
    assert run_node(node, words[1:2])[0].tolist() == [b""]


def test_n_grams_skip_items_and_carry_weights() -> None:
    attrs = {
        "mode": "TFIDF",
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 1,
        "ngram_counts": [0, 1],
        "ngram_indexes": [1, 0],
        "pool_strings": [b"a", b"a", b"c"],
        "weights": [2.0, 0.5],
    }
    given = run_op("TfIdfVectorizer", strings(b"a", b"b", b"c", b"a", b"c"), **attrs)
    assert given.dtype == np.float32
    assert given.tolist() == [1.0, 4.0]  # "a c" twice, once over "b", with 0.5; "a" twice, with 2


def test_kernels_leave_their_inputs_alone() -> None:
    x, indices = X.copy(), np.zeros((1, 3), np.int64)
    x.flags.writeable = False
    run_op("ScatterElements", x, indices, X[:1])
    run_op("ScatterND", x, np.zeros((1, 1), np.int64), X[:1], reduction="add")
    run_op("TensorScatter", x, X[:, :1], axis=1)
    assert x.tolist() == X.tolist()


def test_an_op_of_a_later_operator_set_is_not_there() -> None:
    with pytest.raises(UnimplementedError, match="opset 1, is of a later opset"):
        reference_kernel(OnnxNode("RMSNormalization", "", 1, {}, (True, True), (True,)))
