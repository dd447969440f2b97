"""The optimizers leave in their variables what TensorFlow leaves there (``tests/golden/training_ops.json``)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import OpError
from asyncexec.framework.op_registry import registry
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import as_dtype
from asyncexec.ops.state.variable_state import Variable
from tests.ops.kernel_bench import KernelBench, infer
from tests.ops.test_golden_ops import decode
from tests.ops.training_cases import CASES, OPTIMIZERS, SCALARS, STEPS, TrainingCase

GOLDEN = Path(__file__).parents[1] / "golden" / "training_ops.json"
TOLERANCE = {"float64": 1e-12, "complex128": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}


@cache
def golden() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return answers


def variables_of(case: TrainingCase) -> list[Variable]:
    variables = []
    for name, value in case.variables.items():
        variable = Variable(name, as_dtype(case.dtype), TensorShape(value.shape))
        variable.assign(value)
        variables.append(variable)
    return variables


def attrs_of(case: TrainingCase) -> dict[str, Any]:
    attrs: dict[str, Any] = {"T": case.dtype, **case.attrs}
    return attrs | {"Tindices": case.inputs["indices"].dtype.name} if "indices" in case.inputs else attrs


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_tensorflows(name: str) -> None:
    bench = KernelBench()
    for case in CASES:
        if case.op.removeprefix("Resource").removeprefix("Sparse") == f"Apply{name}":
            try:
                check(bench, case)
            except BaseException as error:
                error.add_note(case.label)
                raise


def check(bench: KernelBench, case: TrainingCase) -> None:
    expected, variables = golden()[case.label], variables_of(case)
    kernel = bench.kernel(case.op, **attrs_of(case))
    if "error" in expected:
        with pytest.raises(OpError) as caught:
            kernel(*variables, *case.inputs.values())
        assert caught.value.code == expected["error"]
        for variable, value in zip(variables, case.variables.values(), strict=True):
            np.testing.assert_array_equal(variable.value, value)
        return
    for _ in range(STEPS):
        result = kernel(*variables, *case.inputs.values())
    assert result is variables[0] or (case.op.startswith("Resource") and result == ())
    for variable, answer in zip(variables, map(decode, expected["outputs"]), strict=True):
        assert variable.value.dtype == answer.dtype
        tolerance, wide = TOLERANCE.get(case.dtype, 2e-6), "complex128" if answer.dtype.kind == "c" else "float64"
        np.testing.assert_allclose(
            variable.value.astype(wide), answer.astype(wide), rtol=tolerance, atol=tolerance, err_msg=variable.name
        )


@pytest.mark.parametrize(
    ("name", "flag"), [(name, flag) for name, rule in OPTIMIZERS.items() for flag in dict.fromkeys(("", rule[4]))]
)
def test_large_variables_are_updated_as_their_parts_are(name: str, flag: str) -> None:
    names, inputs, _, _, _, _ = OPTIMIZERS[name]
    attrs = {"T": "float32"} | ({flag: flag != "update_slots"} if flag else {})
    apply = KernelBench().kernel(f"ResourceApply{name}", **attrs)
    rng, size = np.random.default_rng(1), 3 * 2**15 + 7
    scalars = {key: np.float32(value) for key, value in SCALARS.items()} | {"global_step": np.int64(3)}
    start = [rng.random((size, 1), np.float32) + np.float32(0.5) for _ in names.split()]
    gradient = rng.random((size, 1), np.float32) - np.float32(0.5)

    def updated(rows: slice) -> list[Any]:
        variables = [Variable(part, as_dtype("float32"), TensorShape([None, 1])) for part in names.split()]
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value[rows])
        with np.errstate(invalid="ignore"):  # a root of these statistics may be none
            apply(*variables, *(scalars.get(key, gradient[rows]) for key in inputs.split()))
        return [variable.value for variable in variables]

    step = 20_000
    parts = [updated(slice(first, first + step)) for first in range(0, size, step)]
    for whole, *pieces in zip(updated(slice(None)), *parts, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(pieces))


def test_scalars_are_updated_too() -> None:
    variable, accum = (Variable(name, as_dtype("float32"), TensorShape([])) for name in ("var", "accum"))
    variable.assign(np.float32(1))
    accum.assign(np.float32(3))
    apply = KernelBench().kernel("ResourceApplyAdagrad", T="float32")
    apply(variable, accum, np.float32(0.5), np.float32(1))
    assert accum.value == 4
    assert variable.value == 0.75
    assert type(variable.value) is np.float32


def test_a_row_named_twice_is_updated_twice() -> None:
    variable, accum = (Variable(name, as_dtype("float64"), TensorShape([2])) for name in ("var", "accum"))
    variable.assign(np.array([1.0, 1.0]))
    accum.assign(np.array([0.0, 0.0]))
    apply = KernelBench().kernel("SparseApplyMomentum", T="float64", Tindices="int32")
    apply(variable, accum, np.float64(1), np.array([1.0, 2.0]), np.array([1, 1], np.int32), np.float64(0.5))
    np.testing.assert_array_equal(accum.value, [0, 2.5])
    np.testing.assert_array_equal(variable.value, [1, 1 - 1 - 2.5])


def test_static_shapes_of_optimizers() -> None:
    sparse = {"T": "float32", "Tindices": "int32"}
    assert infer("SparseApplyMomentum", [5, 2], [None, 2], [], [3, 2], [3], [], **sparse) == [[5, 2]]
    assert infer("ResourceSparseApplyMomentum", [], [], [], [3, 2], [3], [], **sparse) == []
    for grad, indices in (([3, 2], [4]), ([3, 7], [3]), ([3, 2], [3, 1])):
        with pytest.raises(OpError):
            infer("SparseApplyMomentum", [5, 2], [5, 2], [], grad, indices, [], **sparse)


def test_every_optimizer_has_its_forms() -> None:
    ops = set(registry)
    for name, (_, _, _, by_rows, _, with_ref) in OPTIMIZERS.items():
        assert {f"ResourceApply{name}"} | ({f"Apply{name}"} if with_ref else set()) <= ops
        if by_rows:
            assert f"ResourceSparseApply{name}" in ops
