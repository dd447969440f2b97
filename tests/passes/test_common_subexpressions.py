"""Equal nodes become one; after ``optimizer_cse_test.cc``."""

from __future__ import annotations

import pytest

from asyncexec.passes.common_subexpressions import merge_common_subexpressions
from tests.passes.rewriting import lines, rewritten

X = "x: Placeholder[float32, [2]]\ny: Placeholder[float32, [2]]\n"
I = "x: Placeholder[int32, [2]]\ny: Placeholder[int32, [2]]\n"  # noqa: E741


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            X + "a: Mul(x, y)\nb: Mul(x, y)\nend: AddV2(a, b)", "a: Mul(x, y)\nend: AddV2(a, a)", id="two are one"
        ),
        pytest.param(
            X + "a: Mul(x, y)\nb: Mul(x, y)\nc: Mul(x, y)\nend: AddN(a, b, c)",
            "a: Mul(x, y)\nend: AddN(a, a, a)",
            id="three are one",
        ),
        pytest.param(
            X + "a: Mul(x, y)\nb: Mul(x, y)\nc: Neg(a)\nd: Neg(b)\nend: Sub(c, d)",
            "a: Mul(x, y)\nc: Neg(a)\nend: Sub(c, c)",
            id="what takes equal nodes is equal",
        ),
        pytest.param(
            I + "a: Mul(x, y)\nb: Mul(y, x)\nend: Sub(a, b)",
            "a: Mul(x, y)\nend: Sub(a, a)",
            id="a commutative op takes integers in any order",
        ),
        pytest.param(
            X + "a: Mul(x, y)\nb: Mul(y, x)\nend: Sub(a, b)",
            "a: Mul(x, y)\nb: Mul(y, x)\nend: Sub(a, b)",
            id="of floats the order may show in a NaN",
        ),
        pytest.param(
            I + "a: Sub(x, y)\nb: Sub(y, x)\nend: Mul(a, b)",
            "a: Sub(x, y)\nb: Sub(y, x)\nend: Mul(a, b)",
            id="not so for others",
        ),
        pytest.param(
            X + "a: Neg(x)\nb: Abs(x)\nend: Sub(a, b)", "a: Neg(x)\nb: Abs(x)\nend: Sub(a, b)", id="another op"
        ),
        pytest.param(
            X + "a: Cast[DstT=int32](x)\nb: Cast[DstT=int64](x)\nend: NoOp(^a, ^b)",
            "a: Cast[DstT=int32](x)\nb: Cast[DstT=int64](x)\nend: NoOp(^a, ^b)",
            id="another attr",
        ),
        pytest.param(
            X + "a: Neg(x)\nb: Neg(y)\nend: Sub(a, b)", "a: Neg(x)\nb: Neg(y)\nend: Sub(a, b)", id="another input"
        ),
        pytest.param(
            X + "a: Neg(x)\nb: Neg(x)\nend: NoOp(^a, ^b)", "a: Neg(x)\nend: NoOp(^a)", id="control edges follow"
        ),
        pytest.param(
            X + "n: Neg(y)\na: Neg(x, ^n)\nb: Neg(x)\nend: Sub(a, b)",
            "n: Neg(y)\na: Neg(x, ^n)\nb: Neg(x)\nend: Sub(a, b)",
            id="other control inputs",
        ),
        pytest.param(
            "shape: Const[[2]]\na: RandomUniform[dtype=float32](shape)\nb: RandomUniform[dtype=float32](shape)\n"
            "end: Sub(a, b)",
            "shape: Const[[2]]\na: RandomUniform[dtype=float32](shape)\nb: RandomUniform[dtype=float32](shape)\n"
            "end: Sub(a, b)",
            id="stateful ops never",
        ),
        pytest.param(
            """
            a: Const[1]
            b: Const[1]
            c: Const[2]
            d: Const[2]
            e: Const[1.0]
            f: Const[1.0]
            g: Const[[1]]
            h: Const[[1]]
            end: NoOp(^a, ^b, ^c, ^d, ^e, ^f, ^g, ^h)
            """,
            "a: Const[1]\nc: Const[2]\ne: Const[1.0]\ng: Const[[1]]\nend: NoOp(^a, ^c, ^e, ^g)",
            id="of 8 constants of 4 kinds 4 are left",
        ),
        pytest.param(
            "a: Const[0.0]\nb: Const[-0.0]\nend: NoOp(^a, ^b)",
            "a: Const[0.0]\nb: Const[-0.0]\nend: NoOp(^a, ^b)",
            id="zeros have signs",
        ),
    ],
)
def test_merges_as_tensorflow_does(text: str, expected: str) -> None:
    feeds = ["x:0", "y:0"] if "x: Placeholder" in text else []
    assert rewritten(merge_common_subexpressions, text, feeds=feeds, targets=["end"]) == lines(expected)


def test_what_is_fetched_keeps_its_name() -> None:
    text = X + "a: Neg(x)\nb: Neg(x)\nc: Neg(x)\nend: Sub(a, c)"
    kept = rewritten(merge_common_subexpressions, text, ["b", "end"], feeds=["x:0"])
    assert kept == "a: Neg(x)\nb: Neg(x)\nend: Sub(a, a)"


def test_nodes_on_two_devices_are_two() -> None:
    text = X + "a: Neg(x) @ /cpu:0\nb: Neg(x) @ /cpu:1\nend: Sub(a, b)"
    assert "end: Sub(a, b)" in rewritten(merge_common_subexpressions, text, ["end"], feeds=["x:0"])
