"""Small inputs that ask for much are refused with the name of the node, whether a limit is set or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.compilation import growing_kernels
from asyncexec.framework.op_registry import registry
from asyncexec.ops.onnx import common, indexing, linalg
from asyncexec.ops.string import string_elements
from asyncexec.process import free_memory
from tests.compilation.growing_cases import CASES
from tests.ops.op_case import OpCase
from tests.ops.op_runner import as_input, dtype_of, infer_attrs

FREE = 2**20
LARGE = 2**16


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (free_memory, growing_kernels, string_elements, common):
        monkeypatch.setattr(module, "LARGE_BYTES", LARGE)
    for module in (indexing, linalg):
        monkeypatch.setattr(module, "_MANY", LARGE)


def arguments(case: OpCase, values: list[Any], attrs: Any) -> Iterator[Any]:
    """*values* as the arguments of the op take them: one, or a list."""
    rest = iter(values)
    for arg in registry.lookup(case.op).op_def.inputs:
        taken = [next(rest) for _ in arg.dtypes(attrs)]
        yield taken if arg.is_list else taken[0]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
async def test_much_of_little_is_refused_by_name(case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    attrs = infer_attrs(registry.lookup(case.op).op_def, case)
    with ax.Graph() as graph:
        inputs = [ax.placeholder(dtype_of(value), None) for value in case.inputs]
        ax.create_op(case.op, list(arguments(case, inputs, attrs)), attrs, name="much")
    feeds = {tensor: as_input(value) for tensor, value in zip(inputs, case.inputs, strict=True)}
    for config, why in ((ax.SessionConfig(memory_limit=FREE), "memory_limit"), (ax.SessionConfig(), "are free")):
        monkeypatch.setattr(free_memory, "free_bytes", lambda why=why: FREE if why == "are free" else None)
        async with ax.Session(graph, config) as session:
            with pytest.raises(ax.errors.ResourceExhaustedError, match=why) as caught:
                await session.run("much:0", feeds)
        assert caught.value.node == "much"
        assert caught.value.__cause__ is None
