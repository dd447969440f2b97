"""The cases of TensorFlow's validate_test.cc, by what they mean.

TestValidGraph, GraphWithUnspecifiedDefaultAttr, GraphWithUnspecifiedRequiredAttr: test_attrs_*.
GraphWithOpOnlyInOpList, GraphWithGlobalOpNotInOpList: test_ops_of_another_registry.
ShouldStripDocs: an OpDef here has no documentation.
NoDuplicateNodeNames, DuplicateNodeNames: test_duplicate_names.  NoCyclePasses, NoCycleWithMergePasses, CycleFails:
test_cycles (TensorFlow's case loops outside of any frame, which is refused here).
"""

from __future__ import annotations

import pytest

from asyncexec.framework.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from asyncexec.framework.graph_def import GraphDef, NodeDef
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration, OpRegistry
from asyncexec.framework.shape_inference import unknown
from asyncexec.graph.graph_text import parse_graph_text
from tests.graph.testing_ops import load, load_def, names


def test_attrs_that_follow_from_the_op() -> None:
    graph = load("A: TestParams\nB: TestParams\nC: Mul(A, B)")
    assert graph.operation("C").get_attr("T").name == "float32"


def test_attrs_at_their_default_may_be_left_out() -> None:
    text = "A: TestParams\nB: Const[[0]]\nC: Sum[T=float32](A, B)"
    node = parse_graph_text(text).node[2]
    kept = {name: value for name, value in node.attr.items() if name == "T"}
    graph_def = GraphDef(
        node=(*parse_graph_text(text).node[:2], NodeDef(name="C", op="Sum", input=("A", "B"), attr=kept))
    )
    graph = load("B: Const[[0]]\nx: Placeholder[float32, [3]]\nC: Sum(x, B)")
    assert graph.operation("C").get_attr("keep_dims") is False
    assert graph.operation("C").get_attr("Tidx").name == "int32"
    with pytest.raises(InvalidArgumentError, match="Invalid reduction dimension"):
        load_def(graph_def)  # a scalar has no axis 0


def test_attrs_that_are_required() -> None:
    with pytest.raises(InvalidArgumentError, match="NodeDef missing attr 'DstT' from Op<Cast") as caught:
        load("A: TestParams\nB: Cast(A)")
    assert (caught.value.node, caught.value.op) == ("B", "Cast")


def test_ops_of_another_registry() -> None:
    own = OpRegistry()
    own.register(OpRegistration(parse_op_def("UniqueSnowflake", "->"), unknown))
    assert own.lookup("UniqueSnowflake").op_def.name == "UniqueSnowflake"
    with pytest.raises(NotFoundError, match="Op type not registered 'TestParams'"):
        own.lookup("TestParams")
    with pytest.raises(AlreadyExistsError):
        own.register(OpRegistration(parse_op_def("UniqueSnowflake", "->"), unknown))
    with pytest.raises(NotFoundError, match="Op type not registered 'UniqueSnowflake'"):
        load("A: UniqueSnowflake")


def test_duplicate_names() -> None:
    assert names(load("A: TestParams\nB: TestParams")) == ["A", "B"]
    with pytest.raises(InvalidArgumentError, match="Node 'A' is not unique") as caught:
        load("A: TestParams\nA: TestInput\nC: TestMul(A, A)")
    assert caught.value.node == "A"


def test_cycles() -> None:
    load("A: TestParams\nB: TestParams\nC: Mul(A, B)")
    load("""
        A: TestParams
        enter: Enter[frame_name='w'](A)
        merge: Merge(enter, next)
        B: Mul(merge, merge)
        next: NextIteration(B)
    """)
    with pytest.raises(InvalidArgumentError, match="1 nodes in a cycle: C -> C"):
        load("A: TestParams\nC: TestMul(A, C)")
