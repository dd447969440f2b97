"""Graphs that were made to do harm, or are just wrong.

Each is refused with a typed error that names the node, and the graph that it was to be added to is as it was.
"""

from __future__ import annotations

import pytest

import asyncexec.ops  # noqa: F401
from asyncexec.framework.errors import (
    InvalidArgumentError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
)
from asyncexec.framework.graph_def import (
    ArgDefProto,
    AttrValue,
    FunctionDef,
    FunctionDefLibrary,
    GraphDef,
    ListValue,
    NameAttrList,
    NodeDef,
    OpDefProto,
    make_attr,
)
from asyncexec.framework.tensor_proto import DEFAULT_TENSOR_BYTES
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_text import parse_graph_text
from tests.graph.testing_ops import everything, load, load_def

FLOAT = make_attr("type", 1)


def refusal(graph_def: GraphDef, error: type[OpError] = InvalidArgumentError) -> OpError:
    graph = load("existing: TestParams\nmore: TestRelu(existing)")
    before = everything(graph)
    with pytest.raises(error) as caught:
        load_def(graph_def, graph)
    assert everything(graph) == before
    load("later: TestParams", graph)  # and it still takes what is right
    return caught.value


LOOP = "x: TestParams\nenter: Enter[frame_name='w'](x)\nm: Merge(enter, n)\nn: NextIteration(m)\n"


@pytest.mark.parametrize(
    ("text", "node", "said"),
    [
        ("a: NoSuchOpXyz", "a", "Op type not registered 'NoSuchOpXyz'"),
        ("a: TestParams\na: TestParams", "a", "not unique"),
        ("a: TestRelu(missing)", "a", "Unknown input node 'missing'"),
        ("x: TestParams\na: TestRelu(x:5)", "a", "invalid output 5"),
        ("x: TestParams\na: TestRelu(x:-1)", "a", "'x:-1' is not the name of an input"),
        ("x: TestParams\na: TestRelu(^x, x)", "a", "Control dependencies must come after"),
        ("x: TestParams\na: AddV2(x)", "a", "expected inputs 'float32, float32' do not match 1 inputs"),
        ("x: TestParams\na: Cast(x)", "a", "missing attr 'DstT'"),
        ("x: Const['a']\na: Exp(x)", "a", "of string is not in the list of allowed values"),
        ("a: TestRelu(a)", "a", "1 nodes in a cycle"),
        ("a: TestRelu(b)\nb: TestRelu(a)", "b", "2 nodes in a cycle"),
        ("a: TestABC(^b)\nb: TestABC(^a)", "b", "2 nodes in a cycle"),
        ("a: Merge[T=float32](b, b)\nb: TestRelu(a)", "b", "2 nodes in a cycle"),
        ("a: Merge[T=float32](n)\nn: NextIteration[T=float32](a)", "a", "no NextIteration"),
        ("x: TestParams\na: NextIteration(x)", "a", "not inside a frame"),
        ("x: TestParams\na: Exit(x)", "a", "not inside a frame"),
        ("x: TestParams\na: Enter[frame_name='', is_constant=true](x)", "a", "frame_name of an Enter is empty"),
        ("x: TestParams\na: Enter[frame_name='w', parallel_iterations=-5](x)", "a", "parallel_iterations"),
        (LOOP + "a: TestMul(m, x)", "a", "inputs from different frames"),
        (LOOP + "a: TestABC(^m, ^x)", "a", "inputs from different frames"),
        (LOOP + "a: Enter[frame_name='w'](m)", "a", "two parent frames"),
        (LOOP + "p: Const[true](^m)\nc: LoopCond(p)\na: LoopCond(p)", "a", "two LoopConds"),
        (
            "x: TestParams\ne: Enter[frame_name='w'](x)\na: Merge(x, n)\nf: TestRelu(e)\nn: NextIteration(f)",
            "a",
            "inputs from different frames",
        ),
        ("x: TestParams\na: Merge[N=3](x, x)", "a", "do not match 2 inputs"),
        ("x: TestParams\na: Merge[N=1000000](x, x)", "a", "(1000000 in all)' do not match 2 inputs"),
        ("x: TestParams\na: Merge[N=1000000000000](x, x)", "a", "repeated attr 'N' = 1000000000000 times"),
        ("x: TestParams\na: Merge[N=-1, T=float32](x)", "a", "must be at least minimum 1"),
        ("z: Const[0]\nx: TestParams\na: Split[num_split=1000000000000](z, x)", "a", "'num_split' = 1000000000000"),
        ("x: TestParams\np: Const[[true, false]]\na: Switch(x, p)", "a", "rank 0"),
        ("x: Placeholder[float32, [2, 3]]\na: MatMul(x, x)", "a", "Dimensions must be equal, but are 3 and 2"),
        ("a: TestParams[_class=['loc:@nowhere']]", "a", "unknown node 'nowhere'"),
        ("a: TestParams @ /foo:bar", "a", "Malformed device specification '/foo:bar'"),
        (
            "a: _Recv[tensor_type=float32, tensor_name='t', send_device='', send_device_incarnation=1, recv_device='']",
            "a",
            "runtime's own",
        ),
        ("a: Const[1, _output_shapes=[[7]]]", "a", "inconsistent"),
    ],
)
def test_text(text: str, node: str, said: str) -> None:
    error = refusal(parse_graph_text(text), NotFoundError if "NoSuchOp" in text else InvalidArgumentError)
    assert said in error.message
    assert error.node == node


def const(**fields: object) -> GraphDef:
    tensor = TensorProto(**{"dtype": 1, **fields})  # type: ignore[arg-type]
    return GraphDef(node=(NodeDef(name="a", op="Const", attr={"dtype": FLOAT, "value": make_attr("tensor", tensor)}),))


def dims(*sizes: int) -> TensorShapeProto:
    return TensorShapeProto(dim=tuple(DimProto(size=size) for size in sizes))


@pytest.mark.parametrize(
    ("graph_def", "error", "said"),
    [
        (const(tensor_shape=dims(2**28), float_val=(1.0,)), ResourceExhaustedError, "byte budget"),
        (const(tensor_shape=dims(2**40), float_val=(1.0,)), ResourceExhaustedError, "byte budget"),
        (const(tensor_shape=dims(2**32, 2**32)), InvalidArgumentError, "elements"),
        (const(tensor_shape=dims(2**62)), ResourceExhaustedError, "byte budget"),
        (const(tensor_shape=dims(-3)), InvalidArgumentError, "negative"),
        (const(tensor_shape=dims(*[1] * 300)), InvalidArgumentError, "at most 254 dimensions, not 300"),
        (const(tensor_shape=dims(4), tensor_content=b"1234"), InvalidArgumentError, "4 bytes"),
        (const(tensor_shape=dims(1), float_val=(1.0, 2.0)), InvalidArgumentError, "not 2"),
        (const(dtype=3, int_val=(1,)), InvalidArgumentError, "attr dtype is float32, but the value is int32"),
        (const(dtype=20), InvalidArgumentError, "resource"),
    ],
)
def test_tensors(graph_def: GraphDef, error: type[OpError], said: str) -> None:
    found = refusal(graph_def, error)
    assert said in found.message
    assert found.node == "a"


def test_all_tensors_share_the_byte_budget() -> None:
    size = DEFAULT_TENSOR_BYTES // 8  # of float32: half of the budget
    nodes = [const(tensor_shape=dims(size - i)).node[0].model_copy(update={"name": f"c{i}"}) for i in range(3)]
    load_def(GraphDef(node=tuple(nodes[1:])))
    found = refusal(GraphDef(node=tuple(nodes)), ResourceExhaustedError)
    assert "of which tensors before it took" in found.message
    assert found.node == "c2"


def test_wide_nodes_share_the_byte_budget_with_tensors() -> None:
    """A hundred bytes may ask for a million outputs: not again and again."""
    wide = "Split[num_split=1000000, T=float32](z, x)"
    text = "z: Placeholder[int32]\nx: Placeholder[float32]\n" + "\n".join(f"a{i}: {wide}" for i in range(3))
    found = refusal(parse_graph_text(text), ResourceExhaustedError)
    assert "1000000 outputs" in found.message
    assert found.node == "a2"


def test_many_nodes_of_some_outputs_are_fine() -> None:
    some = "Split[num_split=64, T=float32](z, x)"
    text = "z: Placeholder[int32]\nx: Placeholder[float32]\n" + "\n".join(f"a{i}: {some}" for i in range(5_000))
    assert len(load(text)) == 5_002


def node(op: str, **attr: AttrValue) -> NodeDef:
    """Node a, which takes x."""
    types = {"Cast": {"SrcT": FLOAT}, "LeakyRelu": {"T": FLOAT}}.get(op, {})
    return NodeDef(name="a", op=op, input=("x",), attr={**types, **attr})


@pytest.mark.parametrize(
    ("node_def", "said"),
    [
        (node("Cast", DstT=make_attr("i", 3)), "attr 'DstT' takes a type, not int 3"),
        (node("LeakyRelu", alpha=make_attr("i", 1)), "attr 'alpha' takes a float, not int 1"),
        (node("TestRelu", _class=make_attr("i", 3)), "attr '_class' takes a list(string)"),
        (NodeDef(name="a"), "does not specify an operation"),
        (NodeDef(name="a", op="Neg", input=("",), attr={"T": FLOAT}), "Unknown input node ''"),
        (NodeDef(name="a", op="Neg", input=("^",), attr={"T": FLOAT}), "Unknown input node ''"),
        (NodeDef(name="a", op="TestABC", device="/cpu:" + "9" * 5000), "Malformed device"),
        (NodeDef(name="a", op="Placeholder", attr={"dtype": make_attr("type", 999)}), "data type"),
        (NodeDef(name="a", op="Placeholder", attr={"dtype": make_attr("placeholder", "T")}), "takes a type"),
        (
            NodeDef(name="a", op="TestParams", attr={"m": make_attr("list", ListValue(i=(1,), b=(True,)))}),
            "several kinds",
        ),
    ],
)
def test_node_defs(node_def: NodeDef, said: str) -> None:
    x = NodeDef(name="x", op="Placeholder", attr={"dtype": FLOAT})
    error = refusal(GraphDef(node=(x, node_def)))
    assert said in error.message
    assert error.node == "a"


def test_names_that_differ_by_unicode_form_alone_are_no_names() -> None:
    nodes = (NodeDef(name="caf\u00e9", op="TestABC"), NodeDef(name="cafe\u0301", op="TestABC"))
    assert "the node name is invalid" in refusal(GraphDef(node=nodes)).message


Y = ArgDefProto(name="y", type=1)


def function(name: str, *nodes: NodeDef, ret: str = "n:y:0", y: ArgDefProto = Y) -> FunctionDef:
    x = ArgDefProto(name="x", type=1)
    return FunctionDef(signature=OpDefProto(name=name, input_arg=(x,), output_arg=(y,)), node_def=nodes, ret={"y": ret})


def calls(op: str, **functions: str | list[str]) -> NodeDef:
    attr = {key: called(names) for key, names in functions.items()}
    return NodeDef(name="n", op=op, input=("x",), attr=attr)


def called(names: str | list[str]) -> AttrValue:
    if isinstance(names, str):
        return AttrValue(func=NameAttrList(name=names))
    return AttrValue(list=ListValue(func=tuple(NameAttrList(name=name) for name in names)))


NEG = NodeDef(name="n", op="Neg", input=("x",), attr={"T": FLOAT})


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ([function("F", calls("F"))], "recursion through F: F -> F"),
        ([function("F", calls("G")), function("G", calls("F"))], "recursion through F: F -> G -> F"),
        ([function("F", calls("PartitionedCall", f="F"))], "recursion through F: F -> F"),
        (
            [
                function("F", calls("StatelessIf", then_branch="G", else_branch="H")),
                function("G", calls("H")),
                function("H", calls("F")),
            ],
            "recursion through F: F -> G -> H -> F, without end",
        ),
        ([function("F", calls("While", cond="F", body="G")), function("G", NEG)], "recursion through F: F -> F"),
        ([function("F", calls("Case", branches=["F", "F"]))], "recursion through F: F -> F"),
        ([function("F", NEG, ret="elsewhere:y:0")], "output 'y' of function 'F' is 'elsewhere:y:0'"),
        ([function("F", NEG, ret="")], "output 'y' of function 'F' is ''"),
        ([function("Neg", NEG)], "an op with the same name already exists"),
        ([function("F", NEG), function("F", calls("Exp"))], "a different function with the same name"),
        ([function("", NEG)], "has no name"),
        ([function("F", NEG, y=ArgDefProto(name="y"))], "function 'F': argument 'y' has no type"),
        ([function("F", NEG, y=ArgDefProto(name="y", type_attr="T"))], "argument 'y' refers to attr 'T'"),
    ],
)
def test_functions(functions: list[FunctionDef], said: str) -> None:
    assert said in refusal(GraphDef(library=FunctionDefLibrary(function=tuple(functions)))).message


def test_functions_that_call_each_other_deep_and_often_are_fine() -> None:
    deep = [function(f"F{i}", calls(f"F{i + 1}"), calls(f"F{i + 1}")) for i in range(2_000)]
    graph = load_def(GraphDef(library=FunctionDefLibrary(function=(*deep, function("F2000", NEG)))))
    assert len(graph.functions) == 2_001


def test_a_function_cannot_change_by_a_second_import() -> None:
    graph = load_def(GraphDef(library=FunctionDefLibrary(function=(function("F", NEG),))))
    with pytest.raises(InvalidArgumentError, match="a different function with the same name"):
        load_def(GraphDef(library=FunctionDefLibrary(function=(function("F", calls("Exp")),))), graph)


def test_a_chain_of_20_000_nodes_is_fine() -> None:
    text = "n0: TestParams\n" + "\n".join(f"n{i}: TestRelu(n{i - 1})" for i in range(1, 20_000))
    assert len(load(text)) == 20_000


def test_a_merge_takes_any_of_its_inputs() -> None:
    assert isinstance(load("x: TestParams\ny: TestParams\na: Merge(x, y)"), Graph)
