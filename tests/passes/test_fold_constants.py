"""Constant folding; after ``constant_folding_test.cc``."""

from __future__ import annotations

from functools import partial

import pytest

from asyncexec.passes.fold_constants import FoldLimits, fold_constants
from tests.passes.rewriting import lines, rewritten

SIMPLE = """
    a: Const[[1, 0, 0, 1], int32]
    c: Const[2]
    m1: Mul(a, c)
    m2: Mul(m1, c)
    x: Placeholder[int32, [4]]
    sum: AddV2(m2, x)
"""


@pytest.mark.parametrize(
    ("text", "fetches", "expected"),
    [
        pytest.param(
            SIMPLE,
            ["sum"],
            """
            m2: Const[[4, 0, 0, 4]]
            sum: AddV2(m2, x)
            """,
            id="folds",
        ),
        pytest.param(
            """
            c: Const[2]
            sum: AddV2(c, d)
            d: Mul(c, c)
            """,
            ["sum"],
            "sum: Const[6]",
            id="whatever the order of the nodes",
        ),
        pytest.param("c: Const[2]\nn: NoOp", ["c"], "c: Const[2]", id="a const is not replaced by a const"),
        pytest.param(
            """
            split_dim: Const[0]
            v: Const[[1, 2, 3, 4]]
            s: Split[num_split=2](split_dim, v)
            x: Placeholder[int32, [2]]
            y0: AddV2(s, x)
            y1: AddV2(s:1, x)
            """,
            ["y0", "y1"],
            """
            s/folded_0: Const[[1, 2]]
            s/folded_1: Const[[3, 4]]
            y0: AddV2(s/folded_0, x)
            y1: AddV2(s/folded_1, x)
            """,
            id="both outputs",
        ),
        pytest.param(
            """
            split_dim: Const[0]
            v: Const[[1, 2, 3, 4]]
            s: Split[num_split=2](split_dim, v)
            x: Placeholder[int32, [2]]
            y1: AddV2(s:1, x)
            """,
            ["y1"],
            """
            s/folded_1: Const[[3, 4]]
            y1: AddV2(s/folded_1, x)
            """,
            id="one output alone",
        ),
        pytest.param(
            """
            r: RandomUniform[dtype=float32](shape)
            shape: Const[[2]]
            n: Neg(r)
            """,
            ["n"],
            """
            shape: Const[[2]]
            r: RandomUniform[dtype=float32](shape)
            n: Neg(r)
            """,
            id="random numbers are drawn when the graph runs",
        ),
        pytest.param(
            """
            first: RandomUniform[dtype=float32](one)
            one: Const[[1]]
            a: Const[2](^first)
            b: Const[3](^second)
            second: RandomUniform[dtype=float32](one)
            sum: AddV2(a, b)
            """,
            ["sum"],
            """
            one: Const[[1]]
            second: RandomUniform[dtype=float32](one)
            first: RandomUniform[dtype=float32](one)
            sum: Const[5](^first, ^second)
            """,
            id="control edges move to the constant",
        ),
        pytest.param(
            "a: Const[1]\nzero: Const[0]\nd: FloorDiv(a, zero)",
            ["d"],
            "a: Const[1]\nzero: Const[0]\nd: FloorDiv(a, zero)",
            id="what raises is left to raise when it runs",
        ),
        pytest.param(
            """
            x: Placeholder[float32, [2, 3]]
            n: Neg(x)
            shape: Shape(n)
            size: Size(n)
            rank: Rank(n)
            total: AddV2(size, rank)
            again: Reshape(x, shape)
            """,
            ["again", "total"],
            """
            n: Neg(x)
            shape: Const[[2, 3]](^n)
            total: Const[8](^n)
            again: Reshape(x, shape)
            """,
            id="shape, size and rank of a known shape; what has it still runs",
        ),
        pytest.param(
            """
            x: Placeholder[float32, [2, 3]]
            shape: Shape(x)
            c: Const[[1, 2]]
            m: Mul(c, c)
            sum: AddV2(m, c)
            """,
            ["shape", "sum"],
            """
            shape: Shape(x)
            c: Const[[1, 2]]
            m: Const[[1, 4]]
            sum: AddV2(m, c)
            """,
            id="an array that the caller may write to is made anew",
        ),
        pytest.param(
            """
            x: Placeholder[float32, [?, 3]]
            shape: Shape(x)
            size: Size(x)
            rank: Rank(x)
            """,
            ["shape", "size", "rank"],
            """
            shape: Shape(x)
            size: Size(x)
            rank: Const[2]
            """,
            id="of one known in part, the rank",
        ),
        pytest.param(
            "name: Const['no such file']\nread: Placeholder[string, []]\njoined: StringJoin[N=2](name, read)",
            ["joined"],
            "name: Const['no such file']\njoined: StringJoin(name, read)",
            id="a feed is no constant",
        ),
    ],
)
def test_folds_as_tensorflow_does(text: str, fetches: list[str], expected: str) -> None:
    feeds = [name for name in ("x:0", "read:0") if f"{name[:-2]}: Placeholder" in text]
    assert rewritten(fold_constants, text, fetches, feeds=feeds) == lines(expected)


def test_a_fed_tensor_is_not_folded_and_neither_is_what_takes_it() -> None:
    text = "c: Const[2]\nd: Neg(c)\ne: Neg(d)\nf: Neg(c)\ng: AddV2(e, f)"
    expected = "c: Const[2]\ne: Neg(d)\nf: Const[-2]\ng: AddV2(e, f)"
    assert rewritten(fold_constants, text, ["g", "c"], feeds=["d:0"]) == expected


def test_sizes_are_bounded_and_so_are_they_all_together() -> None:
    text = (
        "dims: Const[[64]]\nzero: Const[0]\na: Fill(dims, zero)\nb: Neg(a)\nx: Placeholder[int32, [64]]\ny: AddV2(b, x)"
    )
    small, large = (FoldLimits(max_bytes=size) for size in (100, 256))
    kept = rewritten(partial(fold_constants, limits=small), text, ["y"], feeds=["x:0"])
    assert "a: Fill(dims, zero)" in kept
    folded = rewritten(partial(fold_constants, limits=large), text, ["y"], feeds=["x:0"])
    assert "Fill" not in folded
    assert "Neg" not in folded
    few = FoldLimits(max_total_bytes=300)  # room for one of them
    assert "Neg" in rewritten(partial(fold_constants, limits=few), text, ["y"], feeds=["x:0"])
    quick = FoldLimits(max_elements=50)
    assert "Fill" in rewritten(partial(fold_constants, limits=quick), text, ["y"], feeds=["x:0"])


def test_a_node_in_a_branch_stays_in_the_branch() -> None:
    text = """
        p: Placeholder[bool, []]
        s: Switch(p, p)
        taken: Identity(s:1)
        a: Const[1](^taken)
        b: Const[2](^taken)
        sum: AddV2(a, b)
    """
    assert "sum: Const[3](^taken)" in rewritten(fold_constants, text, ["sum"], feeds=["p:0"])


def test_the_shape_of_a_side_of_a_switch_is_not_known_to_be_there() -> None:
    text = "p: Placeholder[bool, []]\nc: Const[[1, 2]]\ns: Switch(c, p)\nshape: Shape(s:1)"
    assert "shape: Shape(s:1)" in rewritten(fold_constants, text, ["shape"], feeds=["p:0"])
