"""What others wait for, though nobody takes its value, is not computed if it is a gradient."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.passes.unused_values import skip_unused_values
from tests.passes.rewriting import lines, rewritten

X = "x: Placeholder[float32, [?, 4]]\ny: Placeholder[float32, [4, 3]]\na: Neg(x)\nb: Abs(y)\n"
FEEDS = ["x:0", "y:0"]


def test_what_waits_for_it_waits_for_what_it_takes() -> None:
    text = X + "c: NoOp\nm: MatMul(a, b, ^c)\nend: NoOp(^m)"
    expected = "a: Neg(x)\nb: Abs(y)\nc: NoOp\nend: NoOp(^a, ^b, ^c)"
    assert rewritten(skip_unused_values, text, feeds=FEEDS, targets=["end"]) == lines(expected)


@pytest.mark.parametrize(
    "text",
    [
        X + "m: MatMul(a, b)\nend: Neg(m, ^m)",  # its value is taken
        X + "m: MatMul(a, b)\nz: CheckNumerics[message='no'](m)\nend: NoOp(^m, ^z)",  # what takes it is there to fail
        X + "m: MatMul(x, y)\nend: NoOp(^m)",  # nothing is left to wait for
        X + "p: Const[true]\ns: Switch(a, p)\nm: MatMul(s, b)\nend: NoOp(^m)",  # it is dead where one side is
    ],
)
def test_others_stay(text: str) -> None:
    found = rewritten(skip_unused_values, text, feeds=FEEDS, targets=["end"])
    assert "MatMul" in found
    assert "^m" in found


async def test_an_update_still_waits_for_the_read_before() -> None:
    """The variable is read, then changed; the product between the two is for nobody."""
    with ax.Graph() as graph:
        handle = ax.create_op("VarHandleOp", [], attrs={"dtype": ax.float32, "shape": [2, 2]}, name="v")
        start = ax.create_op("AssignVariableOp", [handle, np.eye(2, dtype=np.float32)], name="start")
        read = ax.create_op("ReadVariableOp", [handle], attrs={"dtype": ax.float32}, name="read")
        product = ax.create_op("MatMul", [read, read], name="product")
        with ax.control_dependencies([product]):
            update = ax.create_op("AssignAddVariableOp", [handle, np.ones((2, 2), np.float32)], name="update")
        with ax.control_dependencies([update]):
            before = ax.identity(read, name="before")
    async with ax.Session(graph, config=ax.SessionConfig(executor_type="COMPILED")) as session:
        await session.run([], targets=[start])
        for count in range(3):
            found = await session.run(before)
            np.testing.assert_array_equal(found, np.eye(2) + count)
