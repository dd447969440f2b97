"""Inputs at the edges of what ops take: what TensorFlow gives, or refuses, and what follows from the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from tests.ops.op_case import OpCase, case, f32
from tests.ops.op_runner import run_case


def test_turned_hue_keeps_the_largest_and_the_least_channel() -> None:
    (turned,) = run_case(case("AdjustHue", f32(-0.001, -1e4, -1e4).reshape(1, 1, 3), np.float32(1 / 3)))
    np.testing.assert_array_equal(turned, f32(-1e4, -0.001, -1e4).reshape(1, 1, 3))


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"precision": 2}, b"abcdef"),
        ({"scientific": True}, b"abcdef"),
        ({"shortest": True}, b"abcdef"),
        ({"precision": 2, "width": 8}, b"      ab"),
        ({"precision": 2, "width": 8, "fill": "-"}, b"ab      "),
        ({"width": 8, "fill": "0"}, b"  abcdef"),
    ],
)
def test_strings_as_strings_have_a_precision_with_a_width_only(attrs: dict[str, Any], text: bytes) -> None:
    assert run_case(case("AsString", b"abcdef", **attrs)) == [text]


@pytest.mark.parametrize("is_lower", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_bands_connect_no_rows_but_those_that_they_reach(is_lower: bool, adjoint: bool) -> None:
    rhs = f32(1, np.nan, 6, np.inf).reshape(4, 1)
    attrs = {"lower": is_lower, "adjoint": adjoint}
    (found,) = run_case(case("BandedTriangularSolve", f32(1, 2, 3, 4).reshape(1, 4), rhs, **attrs))
    np.testing.assert_array_equal(found, f32(1, np.nan, 2, np.inf).reshape(4, 1))


@pytest.mark.parametrize("shape", [(2, 3, 0, 2, 3), (0, 3, 2, 2, 3), (2, 3, 2, 2, 0)])
def test_filters_of_no_cell_have_a_gradient_of_none(shape: tuple[int, ...]) -> None:
    x, dy = np.ones((1, 4, 5, 5, 2), np.float32), np.ones((1, 4, 5, 5, shape[-1]), np.float32)
    attrs: dict[str, Any] = {"strides": [1] * 5, "padding": "SAME"}
    (found,) = run_case(case("Conv3DBackpropFilterV2", x, np.array(shape, np.int32), dy, **attrs))
    assert found.shape == shape


def test_gradients_of_dilation_where_no_cell_is_above_the_least_number() -> None:
    x, filters = np.zeros((1, 2, 2, 1), np.uint8), np.zeros((3, 3, 1), np.uint8)
    dy = np.arange(1, 5, dtype=np.uint8).reshape(1, 2, 2, 1)
    attrs: dict[str, Any] = {"strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
    (to_input,) = run_case(case("Dilation2DBackpropInput", x, filters, dy, **attrs))
    (to_filter,) = run_case(case("Dilation2DBackpropFilter", x, filters, dy, **attrs))
    assert to_input.ravel().tolist() == [10, 0, 0, 0]
    assert to_filter.ravel().tolist() == [10, *[0] * 8]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["FresnelCos", "FresnelSin"])
def test_fresnel_integrals_far_out_are_at_their_limits(op: str, dtype: Any) -> None:
    far = np.finfo(dtype).max
    (found,) = run_case(case(op, np.array([far, -far, np.inf, -np.inf], dtype)))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [0.5, -0.5, 0.5, -0.5])


def dense_bincount(values: Any, weights: Any, binary: bool) -> OpCase:
    return case("DenseBincount", np.asarray(values, np.int32), np.int32(3), weights, binary_output=binary)


@pytest.mark.parametrize("binary", [False, True])
def test_weights_of_counts_are_of_the_shape_of_the_values(binary: bool) -> None:
    values = [[0, 1, 1], [2, 1, 0]]
    for weights in (np.ones(6, np.float32), np.ones(3, np.float32), np.float32(1)):
        with pytest.raises(InvalidArgumentError, match="must be the same shape"):
            run_case(dense_bincount(values, weights, binary))
    (found,) = run_case(dense_bincount(values, np.ones((2, 3), np.float32), binary))
    assert found.tolist() == ([[1, 1, 0], [1, 1, 1]] if binary else [[1, 2, 0], [1, 1, 1]])


def batch_norm(shape: tuple[int, ...], *statistics: Any, op: str = "FusedBatchNormV3", **attrs: Any) -> OpCase:
    x, vector = np.ones(shape, np.float32), np.ones(shape[-1], np.float32)
    if "Grad" in op:
        return case(op, x, x, vector, vector, vector, f32(0), **attrs)
    return case(op, x, vector, vector, *(statistics or [np.zeros(0, np.float32)] * 2), **attrs)


REFUSED = [
    ("1-dimensional", batch_norm((1, 2, 2, 3), np.zeros(0, np.float32), np.zeros((1, 0), np.float32))),
    ("1-dimensional", batch_norm((1, 2, 2, 3), np.float32(0), np.zeros(0, np.float32), op="FusedBatchNormV2")),
    ("rank 4|4-dimensional", batch_norm((1, 2, 2, 2, 3))),
    ("rank 4|4-dimensional", batch_norm((1, 2, 2, 2, 3), op="FusedBatchNormGradV3")),
    ("rank 5|5-dimensional", batch_norm((1, 2, 2, 3), op="FusedBatchNormGradV3", data_format="NDHWC")),
    (
        "must be the complex type of T",
        case("Eig", np.eye(2), Tout="complex64"),
    ),
    (
        "must be of type float64",
        case(
            "_FusedConv2D",
            np.ones((1, 1, 1, 1)),
            np.ones((1, 1, 1, 1)),
            f32(1),
            num_args=1,
            fused_ops=[b"BiasAdd"],
            strides=[1] * 4,
            padding="SAME",
            TArgs=["float32"],
        ),
    ),
]


@pytest.mark.parametrize(("message", "op_case"), REFUSED, ids=lambda part: getattr(part, "op", ""))
def test_refused(message: str, op_case: OpCase) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        run_case(op_case)


def test_batch_normalization_of_volumes() -> None:
    y, mean, *_ = run_case(batch_norm((1, 2, 2, 2, 3), data_format="NDHWC"))
    assert y.shape == (1, 2, 2, 2, 3)
    assert mean.tolist() == [1, 1, 1]
