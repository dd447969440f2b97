"""Over all op cases: kernels take read-only inputs and leave all inputs alone, and what is said to be new is new."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from asyncexec.compilation.shared_inputs import makes_new
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.resource_mgr import ResourceMgr
from tests.ops.op_case import OpCase
from tests.ops.op_runner import as_input, infer_attrs, is_same
from tests.ops.test_golden_ops import FAMILIES, golden


def kernel_of(case: OpCase) -> tuple[Any, Callable[..., list[Any]]]:
    """The kernel of the case, and a function from inputs to a list of outputs."""
    op_def = op_registry.lookup(case.op).op_def
    attrs = infer_attrs(op_def, case)
    dtypes = op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)
    construction = OpKernelConstruction(case.op.lower(), op_def, attrs, *dtypes, ResourceMgr())
    kernel = kernel_registry.lookup(case.op, "CPU", attrs).factory(construction)

    def call(*inputs: Any) -> list[Any]:
        with np.errstate(all="ignore"):
            result = kernel(*inputs)
            if inspect.isawaitable(result):
                result = asyncio.run(_await(result))
        return list(result) if op_def.returns_tuple else [result]

    return kernel, call


async def _await(awaitable: Any) -> Any:
    return await awaitable


def arrays(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, np.ndarray) and value.size]


def share(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return any(np.may_share_memory(a, b) for a in arrays(one) for b in arrays(other))


def inputs_of(case: OpCase, *, writeable: bool) -> list[Any]:
    values = [as_input(value) for value in case.inputs]
    values = [value.copy() if isinstance(value, np.ndarray) else value for value in values]
    for value in arrays(values):
        value.flags.writeable = writeable
    return values


@pytest.mark.deep
def test_all_cases() -> None:
    num_cases, num_new, passing, kept = 0, 0, Counter[str](), Counter[str]()
    for family in FAMILIES:
        for case in importlib.import_module(f"tests.ops.cases.{family}").CASES:
            if "error" in golden(family)[case.label]:
                continue
            num_cases += 1
            kernel, call = kernel_of(case)
            frozen, inputs = inputs_of(case, writeable=False), inputs_of(case, writeable=True)
            before = inputs_of(case, writeable=True)
            call(*frozen)
            first, second = call(*inputs), call(*inputs)
            assert all(map(is_same, before, inputs)), f"{case.label} changes an input"
            passes_on = share(first, inputs) or any(share([a], [b]) for a, b in combinations(first, 2))
            if passes_on:
                passing[case.op] += 1
            elif share(first, second):  # what the kernel keeps for itself
                kept[case.op] += 1
            if makes_new(kernel):
                num_new += 1
                assert not passes_on, case.label
                assert not share(first, second), case.label
    print(f"{num_cases} cases: {num_new} of kernels that make new arrays only; {len(passing)} ops pass arrays on:")
    print(", ".join(sorted(passing)))
    assert num_cases > 5_000
    assert num_new > 200
    assert {"Identity", "Reshape", "Split"} <= set(passing)
    assert set(kept) <= {"Const"}  # whose value is frozen in a graph
