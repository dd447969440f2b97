"""The kernels of array devices need nothing but the array-API standard: on array-api-strict, TensorFlow's answers.

Its device is not the library's default one, so that an array made in the wrong place cannot be missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.devices.memory_types import HOST_MEMORY_ARGS, memory_types
from asyncexec.framework.errors import InvalidArgumentError, OpError, UnimplementedError
from asyncexec.framework.kernel import DEAD, OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import TensorShape
from tests.devices.array_devices import (
    DEVICE_TYPE,
    ArrayOps,
    cases_with_kernels,
    golden_cases,
    op_def_of,
    strict_library,
)
from tests.devices.bad_inputs import BAD_INPUTS
from tests.ops.op_case import OpCase, case, f32, f64, i32
from tests.ops.op_runner import as_input, infer_attrs

OPS = ArrayOps(strict_library())
# float64 to float32 is the only one of the standard's dtypes that loses bits, and it has no views of bits.
NOT_STANDARD = {"Cast-float64 to float32 truncated"}


def test_every_op_with_a_kernel_has_golden_cases() -> None:
    assert len(OPS.ops) > 100
    assert [op for op in OPS.ops if not list(cases_with_kernels(OPS, op))] == []


@pytest.mark.parametrize("op", OPS.ops)
async def test_kernel_gives_tensorflows_answer(op: str) -> None:
    for family, golden_case in cases_with_kernels(OPS, op):
        if golden_case.label not in NOT_STANDARD:
            await OPS.check_golden(family, golden_case)


async def test_what_the_standard_cannot_say_is_refused() -> None:
    (refused,) = [one for _, one in golden_cases()["Cast"] if one.label in NOT_STANDARD]
    with pytest.raises(UnimplementedError, match="place the node on a CPU device"):
        await OPS.run(refused)


def on_numpy(one: OpCase) -> Any:
    """What the numpy kernel gives."""
    op_def = op_def_of(one)
    attrs = infer_attrs(op_def, one)
    dtypes = op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)
    kernel: Any = kernel_registry.lookup(one.op, "CPU", attrs).factory(
        OpKernelConstruction("n", op_def, attrs, *dtypes)
    )
    with np.errstate(all="ignore"):
        return kernel(*map(as_input, one.inputs))


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=lambda bad: bad.label)
async def test_bad_input_gets_the_same_status_as_on_the_cpu(bad: OpCase) -> None:
    with pytest.raises(OpError) as caught:
        await OPS.run(bad)
    with pytest.raises(OpError) as expected:
        on_numpy(bad)
    assert caught.value.code == expected.value.code


@pytest.mark.parametrize(
    ("given", "masks"),
    [
        (((5,), (0,), (-2,)), {}),
        (((-1, 0), (-9, 9), (-1, 2)), {}),
        (((0, 0, -1), (0, 0, 0), (1, 1, -3)), {"ellipsis_mask": 2, "begin_mask": 1, "end_mask": 1}),
        (((1, 0, 4), (2, 0, 0), (1, 1, -1)), {"shrink_axis_mask": 1, "new_axis_mask": 2}),
        (((3,), (1,), (1,)), {}),
    ],
)
async def test_slices_are_those_of_numpy(given: Any, masks: dict[str, int]) -> None:
    x = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    sliced = OpCase("StridedSlice", (x, *map(np.int32, given)), masks)
    (got,) = await OPS.run(sliced)
    np.testing.assert_array_equal(got, on_numpy(sliced), strict=True)


@pytest.mark.parametrize("op", ["Enter", "Exit", "NextIteration", "Switch", "PlaceholderWithDefault"])
def test_control_flow_passes_on_what_it_gets(op: str) -> None:
    there = OPS.context.library.from_host(f32(1, 2))
    attrs = {"T": ax.float32, "dtype": ax.float32, "frame_name": b"f", "shape": TensorShape(None)}
    construction = OpKernelConstruction("n", op_registry.lookup(op).op_def, attrs)
    kernel: Any = OPS.kernels.lookup(op, DEVICE_TYPE, attrs).factory(construction)
    if op == "Switch":
        assert kernel(there, np.bool_(True)) == (DEAD, there)
        assert kernel(there, np.bool_(False)) == (there, DEAD)
    else:
        assert kernel(there) is there


def test_where_inputs_and_outputs_are() -> None:
    for op, attrs, inputs, outputs in (
        ("Switch", {"T": ax.float32}, (False, True), (False, False)),
        ("Merge", {"T": ax.float32, "N": 2}, (False, False), (False, True)),
        ("Switch", {"T": ax.string}, (True, True), (True, True)),
        ("StridedSlice", {"T": ax.float32, "Index": ax.int32}, (False, True, True, True), (False,)),
        ("ShapeN", {"T": ax.float32, "N": 3, "out_type": ax.int32}, (False,) * 3, (True,) * 3),
        ("ConcatV2", {"T": ax.float32, "N": 2, "Tidx": ax.int32}, (False, False, True), (False,)),
        ("IdentityN", {"T": (ax.float32, ax.resource)}, (False, True), (False, True)),
    ):
        assert memory_types(op_registry.lookup(op).op_def, attrs) == (inputs, outputs)


@pytest.mark.parametrize("op", sorted(HOST_MEMORY_ARGS))
def test_what_is_in_host_memory_is_an_argument_of_the_op(op: str) -> None:
    op_def = op_registry.lookup(op).op_def
    names = {arg.name for arg in (*op_def.inputs, *op_def.outputs)}
    assert set(HOST_MEMORY_ARGS[op]) <= names
    assert OPS.kernels.device_types(op) == [DEVICE_TYPE]


async def test_an_input_is_not_changed() -> None:
    x, y = f32(-1, 2, float("nan")), f32(4, 5, 6)
    before = x.copy(), y.copy()
    for op in ("AddV2", "Maximum", "DivNoNan", "SquaredDifference"):
        await OPS.run(case(op, x, y))
    for op in ("Relu", "Softmax", "Neg"):
        await OPS.run(case(op, x))
    np.testing.assert_array_equal((x, y), before)


async def test_there_is_no_kernel_for_a_dtype_that_the_library_lacks() -> None:
    assert not OPS.has_kernel(case("Neg", np.float16(1)))
    with pytest.raises(InvalidArgumentError, match="No OpKernel was registered"):
        await OPS.run(case("Neg", np.float16(1)))
    assert OPS.has_kernel(case("Neg", f64(1)))
    assert OPS.has_kernel(case("Neg", i32(1)))
