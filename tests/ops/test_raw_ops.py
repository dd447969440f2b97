"""``ax.raw_ops``: every op as a function, and stubs that say the same."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.op_registry import registry
from tests.ops.make_raw_op_stubs import STUBS, source


def test_stubs_are_what_the_ops_declare() -> None:
    assert STUBS.read_text(encoding="utf-8") == source(), "run python -m tests.ops.make_raw_op_stubs"


def test_there_is_a_function_for_each_op() -> None:
    ops = dir(ax.raw_ops)
    assert {"AddV2", "TopKV2", "While"} <= set(ops)
    assert not [op for op in ops if op.startswith("_")]
    for op in ops:
        function = getattr(ax.raw_ops, op)
        taken = [*(arg.name for arg in registry.lookup(op).op_def.inputs), *registry.lookup(op).op_def.attrs, "name"]
        assert sorted(inspect.signature(function).parameters) == sorted(taken)
        assert function.__name__ == op


async def test_inputs_attrs_and_names() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        added = ax.raw_ops.AddV2(x=x, y=1.0, name="added")
        values, indices = ax.raw_ops.TopKV2(input=added, k=2)
        joined = ax.raw_ops.ConcatV2([x, values], 0)
        cast = ax.raw_ops.Cast(x=joined, DstT=ax.int64)
        nothing = ax.raw_ops.NoOp(name="nothing")
    assert (added.op.name, isinstance(nothing, ax.Operation), nothing.name) == ("added", True, "nothing")
    async with ax.Session(graph) as session:
        got = await session.run([values, indices, cast], {x: [3.0, 1.0, 2.0]})
    for found, expected in zip(got, [[4.0, 3.0], [0, 2], [3, 1, 2, 4, 3]], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda ops: ops.AddV2(x=1.0), InvalidTypeError, "AddV2: missing a required argument: 'y'"),
        (lambda ops: ops.AddV2(1.0, 2.0, z=3), InvalidTypeError, "AddV2: got an unexpected keyword argument 'z'"),
        (lambda ops: ops.Cast(1.0), InvalidTypeError, "Cast: missing a required"),
        (lambda ops: ops.AddV2("a", "b"), InvalidArgumentError, "string"),
        (lambda ops: ops.AddV3, AttributeError, "AddV2"),
        (lambda ops: ops._Arg, AttributeError, "_Arg"),
    ],
)
def test_what_there_is_not(call: Any, kind: type[Exception], said: str) -> None:
    with ax.Graph(), pytest.raises(kind, match=said):
        call(ax.raw_ops)
