"""Ops at the edges of what they take: values that follow from their definitions, and what TensorFlow refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from tests.ops.op_case import OpCase, case, f32, f64, i32, text
from tests.ops.op_runner import run_case

INF, NAN = np.inf, np.nan
HUGE = 1.7e308
BYTES = np.ones((1, 1), np.uint8)
COUNTS = {"binary_output": False}
EMPTY = text()
IMAGE = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 4, 1)


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("Lgamma", [f64(INF, -INF, 0, -1, 1, NAN)], [INF, INF, INF, INF, 0, NAN]),
        # Nothing has been integrated at zero, and nothing but next to nothing as long as x is far below a.
        ("Igamma", [f64(2, 0, -1, NAN, HUGE, HUGE, 0), f64(0, 0, 0, 0, 3, 1e300, 1)], [0, 0, 0, 0, 0, 0, NAN]),
        ("Igammac", [f64(2, HUGE, HUGE, 0), f64(0, 3, 1e300, 1)], [1, 1, 1, NAN]),
        # All terms vanish where the least of them is a power of more than one; at a pole one of them does not.
        ("Zeta", [f64(HUGE, INF, 1e17, INF, INF), f64(3, 2, 1.5, 0, -3)], [0, 0, 0, INF, INF]),
        ("Polygamma", [f64(INF, 1), f64(-2, -2)], [INF, INF]),
        ("SqrtGrad", [f64(0, 0, NAN, 2, INF), f64(0, 1, 0, 4, 0)], [0, INF, 0, 1, 0]),
        ("RsqrtGrad", [f64(0, INF, NAN, 2), f64(0, 0, 0, 4)], [0, 0, 0, -16]),
        ("ReciprocalGrad", [f64(0, INF, NAN, 2, INF), f64(0, 0, 0, 4, 1)], [0, 0, 0, -16, -INF]),
        ("InvGrad", [f64(INF, 3), f64(0, 2)], [0, -18]),
        ("SqrtGrad", [np.array([NAN, 2j], np.complex128), np.array([0, 4], np.complex128)], [0, 1j]),
    ],
)
def test_functions(op: str, inputs: list[Any], expected: list[Any]) -> None:
    (found,) = run_case(OpCase(op, inputs))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("op", "dims", "shape", "lengths"),
    [
        ("RFFT2D", (0, 6), (5, 3), i32(5, 5)),
        ("IRFFT2D", (5, 0), (5, 5), i32(5, 5)),
        ("IRFFT3D", (2, 0, 5, 0), (2, 4, 4, 4), i32(4, 4, 4)),
    ],
)
def test_transforms_of_nothing_are_zeros(op: str, dims: Any, shape: Any, lengths: Any) -> None:
    (found,) = run_case(OpCase(op, [np.zeros(dims, np.complex64 if op[0] == "I" else np.float32), lengths]))
    np.testing.assert_array_equal(found, np.zeros(shape))


def test_a_resize_spreads_what_is_not_finite_to_where_it_counts() -> None:
    image = np.ones((1, 4, 4, 1), np.float32)
    image[0, 0, 0, 0] = NAN
    (halved,) = run_case(case("ResizeArea", image, i32(2, 2)))
    np.testing.assert_array_equal(halved.reshape(2, 2), [[NAN, 1], [1, 1]])
    image[0, 0, 0, 0] = INF
    (gradient,) = run_case(case("ResizeBilinearGrad", image, np.zeros((1, 2, 2, 1), np.float32)))
    # Along each axis the first pixel gets 1 and a half of the four gradients, the second a half, 1 and 1.
    assert gradient.reshape(2, 2).tolist() == [[INF, 3.75], [3.75, 6.25]]


def test_the_gradient_of_resizing_to_the_nearest_takes_both_corners_and_no_rows() -> None:
    (found,) = run_case(
        case("ResizeNearestNeighborGrad", IMAGE, i32(4, 6), align_corners=True, half_pixel_centers=True)
    )
    expected = [[0] * 6, [0, 1, 0, 2, 3, 4], [0, 5, 0, 6, 7, 8], [0, 9, 0, 10, 11, 12]]
    assert found.reshape(4, 6).tolist() == expected
    (of_nothing,) = run_case(case("ResizeNearestNeighborGrad", np.zeros((2, 0, 2, 3), np.float32), i32(4, 6)))
    np.testing.assert_array_equal(of_nothing, np.zeros((2, 4, 6, 3)))


def test_an_update_of_no_elements_takes_any_value() -> None:
    (found,) = run_case(case("TensorStridedSliceUpdate", f32(1, 2, 3), i32(2), i32(1), i32(1), np.zeros((5, 7))))
    assert found.tolist() == [1, 2, 3]


def test_of_no_characters_a_negative_length_takes_none() -> None:
    whole = "añ€ß".encode()
    (found,) = run_case(case("Substr", text(whole), i32(1)[0], i32(-9)[0], unit="UTF8_CHAR"))
    assert found.tolist() == [b""]


def test_keys_of_examples_are_taken_as_a_row() -> None:
    record = b"\n\x0b\n\t\n\x01k\x12\x04\x1a\x02\x08\x07"
    keys = text(b"k")[None]
    attrs = {"num_sparse": 1, "sparse_types": ["int64"], "ragged_value_types": [], "ragged_split_types": []}
    (_, values, _) = run_case(
        OpCase("ParseExampleV2", [text(record), EMPTY, keys, EMPTY, EMPTY], {**attrs, "dense_shapes": [], "Tdense": []})
    )
    assert values.tolist() == [7]


SEQUENCE_KEYS = {
    "feature_list_dense_missing_assumed_empty": [],
    "context_sparse_keys": [],
    "context_dense_keys": [],
    "feature_list_sparse_keys": [],
    "feature_list_dense_keys": [],
}


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (case("RFFT2D", np.zeros((0, 5, 1), np.float32), i32(4, 2)), "at least 2"),
        (case("IRFFT2D", np.zeros((1, 0, 5, 2), np.complex64), i32(4, 4)), "at least 3"),
        (case("Substr", text("añ€".encode()), i32(-2)[0], i32(-1)[0], unit="UTF8_CHAR"), "out of range"),
        (case("UnsortedSegmentJoin", text(b"a", b"b"), i32(0)[0], i32(1)[0]), "scalar"),
        (case("QuantizeAndDequantizeV2", f32(1), f32(NAN)[0], f32(1)[0], range_given=True), "range"),
        (case("QuantizeAndDequantizeV2", f32(1), f32(0)[0], f32(NAN)[0], range_given=True), "range"),
        (
            case("TridiagonalSolve", np.ones((3, 2)), np.ones((2, 1)), partial_pivoting=False, perturb_singular=True),
            "partial_pivoting",
        ),
        (case("SelfAdjointEigV2", np.array([[1, 0, 0], [0, 1, 0], [0, INF, 1]])), "not successful"),
        (case("MaxPool", IMAGE, ksize=[1] * 4, strides=[1] * 4, padding="SAME", data_format="NCHW_VECT_C"), "GPU"),
        (case("QuantizedRelu", np.ones(2, np.uint8), f32(-1)[0], f32(NAN)[0], Tinput="quint8"), "finite"),
        (
            case("QuantizedMatMul", BYTES, BYTES, *f32(0, 1, 2, 1), T1="quint8", T2="quint8", Toutput="qint32"),
            "min_b must be less",
        ),
        (case("QuantizedConcat", i32(-1)[0], BYTES, BYTES, *f32(0, 0, 1, 1), N=2, T="quint8"), "concat_dim"),
        (
            OpCase("SparseCountSparseOutput", [np.array([[0]]), np.array([2**63 - 1]), np.array([1]), f32()], COUNTS),
            "less than",
        ),
        (case("ParseSequenceExample", EMPTY, EMPTY, Ncontext_dense=1, **SEQUENCE_KEYS), "Ncontext_dense"),
        (
            OpCase(
                "ParseSingleSequenceExample",
                [b"", EMPTY, text(b"k"), b""],
                {"context_sparse_types": ["int64"]},
                arg_lengths={
                    "context_sparse_keys": 1,
                    "context_dense_keys": 0,
                    "feature_list_sparse_keys": 0,
                    "feature_list_dense_keys": 0,
                    "context_dense_defaults": 0,
                },
            ),
            "scalar",
        ),
    ],
    ids=lambda value: value.op if isinstance(value, OpCase) else "",
)
def test_what_tensorflow_refuses(refused: OpCase, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        run_case(refused)


def test_no_values_have_no_range() -> None:
    (found,) = run_case(
        case("QuantizeAndDequantizeV3", np.zeros((0, 5)), f64(1)[0], f64(3)[0], i32(4)[0], range_given=False)
    )
    assert found.shape == (0, 5)


def test_eigenvalues_read_no_more_than_the_lower_triangle() -> None:
    values, _ = run_case(case("SelfAdjointEigV2", np.array([[2, NAN], [0, 3]])))
    assert values.tolist() == [2, 3]


def test_counts_up_to_a_maximum_of_zero_are_none() -> None:
    indices, counts, shape = run_case(
        OpCase("DenseCountSparseOutput", [i32([1, 2, 2]), f32()], {**COUNTS, "maxlength": 0})
    )
    assert (indices.shape, counts.shape, shape.tolist()) == ((0, 2), (0,), [1, 0])
