"""A graph as text: what is written reads back, and what cannot be read is told."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.framework.attr_value import decode_attr_value
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph_text import graph_text, parse_graph_text
from tests.graph.testing_ops import load

CANONICAL = """\
p: Const[false]
z: AddN(s:1, s:1, ^p)
x: Placeholder[float32, [2, ?]]
y: Cast[DstT=int32](x, ^p) @ /cpu:1
s: Switch(y, p)
c: Const[[[1, 2], [3, 4]], int64]
t: Const['a\\xff\\'\\\\b']
f: Const[[1.5, inf, -2e-05]]
e: Enter[frame_name='w'](c)
m: Merge(e, n)
n: NextIteration(m)
i: IdentityN(x, c, t)
k: TopKV2[sorted=false](x, three)
three: Const[3]
q: PlaceholderWithDefault[shape=?](x)
call: PartitionedCall[Tout=[int8], f=F](x)
u: Unheard[a=3, b=['q', 'r'], c=float32, d=true](x)"""


def test_text_comes_back_as_it_was() -> None:
    graph_def = parse_graph_text(CANONICAL)
    assert graph_text(graph_def) == CANONICAL
    assert parse_graph_text(graph_text(graph_def)) == graph_def


def test_what_follows_from_the_inputs_is_filled_in() -> None:
    attrs = {
        node.name: {name: decode_attr_value(value) for name, value in node.attr.items()}
        for node in parse_graph_text(CANONICAL).node
    }
    assert attrs["z"]["N"] == 2
    assert attrs["z"]["T"].name == "int32"
    assert attrs["y"]["SrcT"].name == "float32"
    assert [dtype.name for dtype in attrs["i"]["T"]] == ["float32", "int64", "string"]
    assert attrs["m"]["T"].name == "int64"
    assert attrs["t"]["value"] == b"a\xff'\\b"
    np.testing.assert_array_equal(attrs["c"]["value"], np.array([[1, 2], [3, 4]]))


def test_a_graph_has_a_text() -> None:
    text = "x: Placeholder[float32]\ny: Neg(x)\nz: AddN(x, y)"
    assert graph_text(load(text)) == text


def test_blank_lines_and_comments_are_nothing() -> None:
    assert graph_text(parse_graph_text("\n  # a comment\n\n   a: NoOp\n")) == "a: NoOp"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a", "no 'name: Op' in the line 'a'"),
        ("a: Neg(x", "is missing before ''"),
        ("a: Neg(x) y", "'y' is not expected"),
        ("a: Const[1", "is missing before ''"),
        ("a: Const[[1, [2]]]", "attr 'value' (tensor): setting an array element"),
        ("a: Const['unended]", "cannot be read"),
        ("a: Const[" + "[" * 100 + "]" * 100 + "]", "nested more than 64 deep"),
        ("a: Cast[float32](x)", "an attr of Cast is written name=value"),
        ("a: Cast[DstT=float3](x)", "attr 'DstT' (type)"),
        ("a: Placeholder[float32, [x]]", "attr 'shape' (shape)"),
        ("a: TopKV2[sorted=](x, k)", "a value is missing"),
    ],
)
def test_a_line_that_cannot_be_read_is_shown(line: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_graph_text(f"x: NoOp\n{line}")
    assert said in caught.value.message
    assert line[:20].partition(":")[2].strip() in caught.value.message
