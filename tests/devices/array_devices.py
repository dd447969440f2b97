"""Array devices for tests, and what runs an op's kernel on one of them, from numpy to numpy."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import array_api_strict
import numpy as np
import pytest

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.devices.array_device import ArrayDeviceContext
from asyncexec.devices.array_kernels import register_array_kernels
from asyncexec.devices.array_library import ArrayLibrary, PendingCopy, standard_dtypes
from asyncexec.devices.memory_types import memory_types
from asyncexec.devices.structure_kernels import FOR_ANY_VALUE
from asyncexec.framework.errors import OpError
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistry
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from tests.ops.op_case import OpCase
from tests.ops.op_runner import as_input, check_output, infer_attrs
from tests.ops.test_golden_ops import FAMILIES, compare, decode, golden

DEVICE_TYPE = "ARRAY"


@dataclass(frozen=True, slots=True, eq=False)
class StrictLibrary(ArrayLibrary):
    """array-api-strict on a device that is not its own default one: what is there must have been put there."""

    def start_copy_out(self, array: Any) -> PendingCopy:
        return PendingCopy(lambda: np.from_dlpack(array.to_device(self.xp.Device("CPU_DEVICE"))))


def strict_library(index: int = 0) -> ArrayLibrary:
    """Nothing but what the array-API standard asks for."""
    xp = array_api_strict
    return StrictLibrary("array_api_strict", xp, xp.Device(f"device{index + 1}"), standard_dtypes(xp))


class ArrayOps:
    """Runs kernels on the arrays of one library."""

    def __init__(self, library: ArrayLibrary) -> None:
        self.kernels = KernelRegistry()
        register_array_kernels(lambda device: library, DEVICE_TYPE, self.kernels)
        self.context = ArrayDeviceContext(library)

    @property
    def ops(self) -> list[str]:
        """The ops that have kernels which look at the elements of arrays, or at their shapes."""
        return sorted({op for op in op_registry if self.kernels.device_types(op)} - set(FOR_ANY_VALUE.split()))

    def has_kernel(self, case: OpCase) -> bool:
        """Whether the case's dtypes are such as there is a kernel for."""
        return self.kernels.find(case.op, DEVICE_TYPE, infer_attrs(op_def_of(case), case)) is not None

    async def run(self, case: OpCase) -> list[Any]:
        """The outputs of the case's kernel, which no shape function has saved from bad inputs."""
        op_def = op_def_of(case)
        attrs = infer_attrs(op_def, case)
        dtypes = op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)
        construction = OpKernelConstruction(case.op.lower(), op_def, attrs, *dtypes)
        kernel: Any = self.kernels.lookup(case.op, DEVICE_TYPE, attrs).factory(construction)
        types = memory_types(op_def, attrs)
        inputs = [
            value if on_host else await self.context.copy_in(value)
            for value, on_host in zip(map(as_input, case.inputs), types.inputs_on_host, strict=True)
        ]
        with np.errstate(all="ignore"):
            result = kernel(*inputs)
        outputs = result if op_def.returns_tuple else (result,)
        return [
            value if on_host else await self.context.copy_out(value)
            for value, on_host in zip(outputs, types.outputs_on_host, strict=True)
        ]

    async def run_inferred(self, case: OpCase) -> tuple[list[TensorShape], list[Any]]:
        """What the op's shape function says of the outputs, and the outputs."""
        return inferred_shapes(case), await self.run(case)

    async def check_golden(self, family: str, case: OpCase) -> None:
        """AssertionError unless the case gives what TensorFlow gave."""
        expected = golden(family)[case.label]
        if "error" in expected:
            with pytest.raises(OpError) as caught:
                await self.run_inferred(case)
            assert caught.value.code == expected["error"], f"{case.label}: {caught.value}"
            return
        shapes, outputs = await self.run_inferred(case)
        op_def = op_def_of(case)
        dtypes = op_def.output_dtypes(infer_attrs(op_def, case))
        answers = map(decode, expected["outputs"])
        for index, (got, dtype, shape, answer) in enumerate(zip(outputs, dtypes, shapes, answers, strict=True)):
            check_output(case, index, got, dtype, (shape, shape, shape))
            compare(case, got, answer)


def op_def_of(case: OpCase) -> OpDef:
    return op_registry.lookup(case.op).op_def


def inferred_shapes(case: OpCase) -> list[TensorShape]:
    """What the op's shape function says, every input known."""
    op_def = op_def_of(case)
    attrs = infer_attrs(op_def, case)
    inputs = [as_input(value) for value in case.inputs]
    shapes = [TensorShape(np.shape(value)) for value in inputs]
    context = InferenceContext(op_def, attrs, shapes, op_def.input_dtypes(attrs), inputs.__getitem__)
    return list(op_registry.lookup(case.op).shape_function(context))


@cache
def golden_cases() -> dict[str, list[tuple[str, OpCase]]]:
    """Op -> its golden cases, each with the family it is of."""
    found: dict[str, list[tuple[str, OpCase]]] = {}
    for family in FAMILIES:
        for case in importlib.import_module(f"tests.ops.cases.{family}").CASES:
            found.setdefault(case.op, []).append((family, case))
    return found


def cases_with_kernels(ops: ArrayOps, op: str) -> Iterator[tuple[str, OpCase]]:
    """The golden cases of *op* that *ops* has a kernel for."""
    for family, case in golden_cases()[op]:
        if ops.has_kernel(case):
            yield family, case
