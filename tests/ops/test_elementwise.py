"""Between scalars an elementwise kernel is the plain operator; it still gives TensorFlow's errors and dtypes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import SCALAR
from asyncexec.framework.types import as_dtype


def scalar_kernel(op: str, dtype: str) -> Kernel:
    op_def = op_registry.lookup(op).op_def
    given = {"T": as_dtype(dtype)} if "T" in op_def.attrs else {}
    attrs = op_def.complete_attrs(given)
    construction = OpKernelConstruction(
        op.lower(), op_def, attrs, op_def.input_dtypes(attrs), op_def.output_dtypes(attrs), output_shapes=(SCALAR,)
    )
    return kernel_registry.lookup(op, "CPU", attrs).factory(construction)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("AddV2", operator.add),
        ("Sub", operator.sub),
        ("Mul", operator.mul),
        ("RealDiv", operator.truediv),
        ("Less", operator.lt),
        ("GreaterEqual", operator.ge),
        ("Equal", operator.eq),
        ("LogicalAnd", operator.and_),
    ],
)
def test_between_scalars_the_kernel_is_the_operator(op: str, function: Kernel) -> None:
    assert scalar_kernel(op, "float32") is function


@pytest.mark.parametrize(
    ("op", "x", "y", "result"),
    [
        ("AddV2", np.int32(2**31 - 1), np.int32(1), np.int32(-(2**31))),
        ("FloorDiv", np.int32(-7), np.int32(2), np.int32(-4)),
        ("Div", np.int32(-7), np.int32(2), np.int32(-3)),
        ("FloorMod", np.int64(-7), np.int64(3), np.int64(2)),
        ("Pow", np.int32(-2), np.int32(3), np.int32(-8)),
        ("Maximum", np.float32(1), np.float32(2), np.float32(2)),
        ("Minimum", np.float32(1), np.float32(2), np.float32(1)),
        ("Maximum", np.float32(np.nan), np.float32(2), np.float32(np.nan)),
        ("Minimum", np.float32(1), np.float32(np.nan), np.float32(np.nan)),
        ("DivNoNan", np.float32(1), np.float32(0), np.float32(0)),
        ("Less", np.int32(1), np.int32(2), np.bool_(True)),
    ],
)
def test_scalars_give_scalars_of_the_right_dtype(op: str, x: Any, y: Any, result: Any) -> None:
    with np.errstate(all="ignore"):
        got = scalar_kernel(op, x.dtype.name)(x, y)
    assert type(got) is type(result)
    np.testing.assert_equal(got, result)


@pytest.mark.parametrize(
    ("op", "error"),
    [
        ("FloorDiv", InvalidArgumentError),
        ("FloorMod", InvalidArgumentError),
        ("Div", InvalidArgumentError),
        ("Mod", InvalidArgumentError),
        ("TruncateDiv", InternalError),
        ("TruncateMod", InternalError),
    ],
)
def test_a_scalar_integer_divided_by_zero_fails(op: str, error: type[OpError]) -> None:
    with pytest.raises(error, match="division by zero"):
        scalar_kernel(op, "int32")(np.int32(1), np.int32(0))


@pytest.mark.parametrize(
    ("value", "target"),
    [
        (np.int32(-3), "float32"),
        (np.uint64(2**64 - 1), "float32"),
        (np.int64(2**53 + 1), "float64"),
        (np.bool_(True), "int8"),
        (np.int32(-3), "int64"),
        (np.int32(300), "int8"),
        (np.float32(2.9), "int32"),
        (np.float32(np.nan), "int32"),
        (np.float32(0.1), "float64"),
        (np.float64(1e300), "float32"),
    ],
)
def test_a_scalar_is_cast_as_an_array_is(value: Any, target: str) -> None:
    op_def = op_registry.lookup("Cast").op_def
    attrs = op_def.complete_attrs({"SrcT": as_dtype(value.dtype), "DstT": as_dtype(target)})
    construction = OpKernelConstruction("cast", op_def, attrs, output_shapes=(SCALAR,))
    kernel = kernel_registry.lookup("Cast", "CPU", attrs).factory(construction)
    with np.errstate(all="ignore"):
        got, expected = kernel(value), np.array([value]).astype(target)[0]
    assert type(got) is type(expected)
    np.testing.assert_equal(got, expected)
