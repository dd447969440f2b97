"""The cases of TensorFlow's graph_constructor_test.cc, by what they mean.

=====================================================  ==============================================================
case                                                   test here
=====================================================  ==============================================================
InvalidNodeName                                        test_node_names
InvalidSourceNodeName, InvalidSourceNodeIndex          test_an_input_that_is_not_there
GraphWithCycle                                         test_a_cycle_is_refused
GraphWithOKCycle, ImportGraphDef_WithCycle             test_a_while_loop_is_taken
ImportGraphThatUsesConstantValueFromInsideLoop         test_values_inside_a_loop_are_not_taken_for_constants
TypeMismatch                                           test_a_wrong_dtype_names_both
EmptyGraph, VersionGraph                               test_an_empty_graph
ForwardCompatError, NoForwardCompatError               the guarantee is about TensorFlow's own releases: not promised
LowVersion, HighVersion, BadVersion,                   test_versions_that_cannot_be_read
  ImportGraphDef_Versioning                              and test_versions_that_can
SimpleModel, SimpleModelWithControlEdges               test_a_simple_model
Error_ControlEdgeBeforeRealInput                       test_control_inputs_come_last
ImportGraphDef                                         test_a_graph_imported_twice
ImportGraphDef_DefaultAttrs                            test_defaults_are_filled_in
ImportGraphDef_DeprecatedOps                           test_removed_ops
ImportGraphDef_InputMap                                test_input_map
ImportGraphDef_InputMapWithPrefix                      test_input_map_with_a_prefix
ImportGraphDef_InputMapWithControlEdges                test_input_map_of_control_edges
ImportGraphDef_InputMapWithBadControlEdge              test_an_input_map_that_mixes_edges
ImportGraphDef_InputMapWithInvalidNodeIndex,           the map holds Tensors and Nodes here, not names: one of
  ..MissingEntries, ..DuplicateNodeNames                 another graph is what can be wrong, test_input_map_of_...
ImportGraphDef_InputMapMissingUnusedKeys               test_input_map_keys_that_are_nothing
ImportGraphDef_InputMapWithUnboundInput                test_input_map_for_a_node_that_is_not_there
ImportGraphDef_SkipMappedNodes_FullyMapped,            TensorFlow's Python has no such option, nor have we: prune
  .._NotFullyMapped                                      drops such nodes before anything runs
ImportGraphDef_ReturnTensors, _ReturnNodes             test_return_elements
ImportGraphDef_ReturnTensorsErrors, _ReturnNodesErrors test_return_elements_that_are_not_there
ImportGraphDef_UniquifyNames                           test_uniquified_names, test_uniquified_prefixes
ImportGraphDef_UniquifyNames_ColocationGroups          test_colocation_follows_uniquified_names
ImportGraphDef_ControlDeps                             test_added_control_dependencies
ImportGraphDef_ControlDepsWithCycle                    test_added_control_dependencies_reach_a_loop_once
ImportGraphDef_ControlDepsErrors                       test_a_control_dependency_of_another_graph
ImportGraphDef_ErrorsDoNoChangeTheGraph                test_errors_do_not_change_the_graph
ImportGraphDef_FunctionDefs, _NestedFunctionDefs       test_functions_come_along (running them: with functions)
ImportGraphDef_OptionsMemMgmt                          C++ memory: nothing to test
CopyGraph                                              test_versions_survive_a_copy
GraphDefVersionUsedForShapeInference,                  no shape function here depends on the version: what TensorFlow
  ImportGraphDefProvidedShapeRefinerVersions             took only from graphs of 2017 is refused
GraphDefVersionMergingDuringImport                     test_versions_are_merged
ImportGraphDef_ValidateColocationConstraints           test_colocation_with_an_unknown_node
ImportGraphDef_ValidateDefaultDevice                   test_device_scope_around_an_import
ImportGraphDef_UnknownOps                              test_unknown_op
GraphDebugInfo_Node_StackTrace_Deserialize,            test_debug_info_tells_where_nodes_were_made
  .._InvalidFileIndex
GraphDebugInfo_FunctionLibrary_StackTrace_Deserialize  functions have no lines yet; the GraphDef keeps them
=====================================================  ==============================================================
"""

from __future__ import annotations

import logging

import pytest

from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnimplementedError,
)
from asyncexec.framework.graph_def import (
    ArgDefProto,
    FileLineCol,
    FunctionDef,
    FunctionDefLibrary,
    GraphDebugInfo,
    GraphDef,
    NodeDef,
    OpDefProto,
    StackTrace,
    VersionDef,
    make_attr,
)
from asyncexec.graph.current_graph import control_dependencies, device, name_scope
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_import import import_graph_def
from asyncexec.graph.graph_text import graph_text, parse_graph_text
from asyncexec.graph.import_checks import CONSUMER_VERSION
from asyncexec.graph.node import Node
from tests.graph.testing_ops import NO_VERSIONS, everything, inputs, load, load_def, names

WHILE = """
    Const: Const[0]
    while/Enter: Enter[frame_name='while/while/'](Const)
    while/Merge: Merge(while/Enter, while/NextIteration)
    while/Less/y: Const[10](^while/Merge)
    while/Less: Less(while/Merge, while/Less/y)
    while/LoopCond: LoopCond(while/Less)
    while/Switch: Switch[_class=['loc:@while/Merge']](while/Merge, while/LoopCond)
    while/Identity: Identity(while/Switch:1)
    while/Add/y: Const[1](^while/Identity)
    while/Add: Add(while/Identity, while/Add/y)
    while/NextIteration: NextIteration(while/Add)
    while/Exit: Exit(while/Switch)
"""


def refused(text: str, *parts: str, error: type[OpError] = InvalidArgumentError, **options: object) -> OpError:
    """The error that importing *text* raises; it says *parts*, and the graph is as it was."""
    graph = options.pop("graph", None) or Graph()
    assert isinstance(graph, Graph)
    before = everything(graph)
    with pytest.raises(error) as caught:
        load(text, graph, **options)
    assert everything(graph) == before
    for part in parts:
        assert part in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ["a:b", "_abc", "a\\b", "/a", "-a", "", "a\nb", "a b", "ä", "a>", "x" * 10_001])
def test_node_names_that_are_refused(name: str) -> None:
    graph = Graph()
    with pytest.raises(InvalidArgumentError, match="node name is invalid"):
        load_def(GraphDef(node=(NodeDef(name=name, op="TestABC"),)), graph)
    assert len(graph) == 0


@pytest.mark.parametrize("name", ["a-bc_", "a-B.0/.c_", "0123", ".0123", "Project>a/b"])
def test_node_names(name: str) -> None:
    assert names(load(f"{name}: TestABC")) == [name]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("t1: TestMul(W999, input)", "Unknown input node 'W999'"),
        ("t1: TestMul(W1:1, input:1)", "Connecting to invalid output 1 of source node W1 which has 1 outputs"),
        ("t1: TestMul(W1:-1, input:1)", "'W1:-1' is not the name of an input"),
        ("t1: TestMul(W1:9999999999, input:1)", "is not the name of an input"),
        ("t1: TestMul(W1:b, input:1)", "'W1:b' is not the name of an input"),
        ("t1: TestMul(W1, input:1, ^W9)", "Unknown input node 'W9'"),
        ("t1: TestMul(W1, input:1, ^W1:0)", "Unknown input node 'W1:0'"),
    ],
)
def test_an_input_that_is_not_there(line: str, said: str) -> None:
    error = refused(f"W1: TestParams\ninput: TestInput\n{line}", said)
    assert (error.node, error.op) == ("t1", "TestMul")


def test_a_near_miss_is_named() -> None:
    assert refused("weights: TestParams\nr: TestRelu(weight)").hint == "did you mean 'weights'?"


def test_a_cycle_is_refused() -> None:
    refused("input: TestInput\nt1: TestMul(input, t2)\nt2: TestMul(input:1, t1)", "2 nodes in a cycle: t2 -> t1 -> t2")


def test_a_while_loop_is_taken() -> None:
    graph = load(WHILE)
    assert inputs(graph.operation("while/Merge")) == ["while/Enter", "while/NextIteration"]
    assert graph_text(load_def(graph.as_graph_def())) == graph_text(graph)


def test_a_while_loop_is_taken_whatever_the_order() -> None:
    backwards = "\n".join(reversed(WHILE.strip().splitlines()))
    graph = load(backwards)
    position = {name: i for i, name in enumerate(names(graph))}
    for node in graph.operations:
        for tensor in node.inputs:
            assert position[tensor.op.name] < position[node.name] or tensor.op.op == "NextIteration"


def test_values_inside_a_loop_are_not_taken_for_constants() -> None:
    graph = load("""
        i: Const[[0]]
        e: Enter[frame_name='w'](i)
        m: Merge(e, n)
        p: Const[true](^m)
        s: Switch(m, p)
        id: Identity(s:1)
        t: Transpose(id, id)
        n: NextIteration(t)
        x: Exit(s)
    """)
    assert graph.tensor("t:0").shape.rank in (None, 1)


def test_a_wrong_dtype_names_both() -> None:
    error = refused(
        "input: TestInput\nint: TestInt(input)",
        "Input 0 of node int was passed float32 from input:0 incompatible with expected int32.",
    )
    assert error.node == "int"


def test_an_empty_graph() -> None:
    graph = load("")
    assert len(graph) == 0
    assert graph.versions.producer == CONSUMER_VERSION
    load_def(GraphDef(), graph)
    assert graph.versions.producer == 0


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (VersionDef(producer=-1), "producer version -1 is below"),
        (VersionDef(min_consumer=CONSUMER_VERSION + 1), "needs a consumer of version"),
        (VersionDef(producer=CONSUMER_VERSION + 1, bad_consumers=(CONSUMER_VERSION,)), "disallows consumers"),
    ],
)
def test_versions_that_cannot_be_read(versions: VersionDef, said: str) -> None:
    graph = Graph()
    before = everything(graph)
    with pytest.raises(InvalidArgumentError, match=said):
        load_def(GraphDef(versions=versions), graph)
    assert everything(graph) == before


def test_versions_that_can() -> None:
    graph = load_def(GraphDef(versions=VersionDef(producer=CONSUMER_VERSION + 22, bad_consumers=(7,), min_consumer=14)))
    assert graph.versions == VersionDef(producer=CONSUMER_VERSION, min_consumer=14, bad_consumers=(7,))


def test_versions_are_merged() -> None:
    graph = Graph()
    load_def(GraphDef(versions=VersionDef(producer=15, min_consumer=13, bad_consumers=(2, 3))), graph)
    load_def(GraphDef(versions=VersionDef(producer=10, min_consumer=14, bad_consumers=(1, 3))), graph)
    merged = VersionDef(producer=10, min_consumer=14, bad_consumers=(1, 2, 3))
    assert graph.versions == merged
    load_def(GraphDef(versions=VersionDef(producer=20, min_consumer=7)), graph)
    assert graph.versions == merged


def test_versions_survive_a_copy() -> None:
    versions = VersionDef(producer=CONSUMER_VERSION - 1, min_consumer=100, bad_consumers=(CONSUMER_VERSION + 17,))
    copy = load_def(load_def(GraphDef(versions=versions)).as_graph_def())
    assert copy.versions == versions


def test_a_simple_model() -> None:
    graph = load("""
        W1: TestParams
        input: TestInput(^W1)
        t1: TestMul(W1, input:1)
        t2: TestMul(W1, input:1, ^t1)
    """)
    assert names(graph) == ["W1", "input", "t1", "t2"]
    assert [inputs(node) for node in graph] == [[], ["^W1"], ["W1", "input:1"], ["W1", "input:1", "^t1"]]


def test_control_inputs_come_last() -> None:
    error = refused(
        "W1: TestParams\ninput: TestInput(^W1)\nt2: TestMul(W1, ^input, input:1)",
        "Node 't2': Control dependencies must come after regular dependencies",
    )
    assert error.node == "t2"


def test_a_graph_imported_twice() -> None:
    text = """
        A: TestParams
        X: TestParams
        B: TestOneInputTwoOutputs[_class=['loc:@A']](A)
        C: TestOneInputTwoOutputs(B:1, ^X)
        D: TestMul(B, C)
    """
    graph = load(text)
    once = graph_text(graph)
    error = refused(text, "Node name", "already exists in the Graph", graph=graph)
    assert error.node in ("A", "X", "B", "C", "D")
    load(text, graph, name="import")
    assert graph_text(graph).startswith(once)
    assert inputs(graph.operation("import/C")) == ["import/B:1", "^import/X"]
    assert graph.operation("B").get_attr("_class") == (b"loc:@A",)
    assert graph.operation("import/B").get_attr("_class") == (b"loc:@import/A",)
    load(text, graph, name="import")
    assert "import_1/D" in graph


def test_a_name_scope_around_an_import() -> None:
    graph = Graph()
    with graph, name_scope("outer"):
        load("a: TestParams\nb: TestRelu(a)", graph)
        load("a: TestParams", graph, name="inner/")
    assert names(graph) == ["outer/a", "outer/b", "outer/inner/a"]


def test_defaults_are_filled_in() -> None:
    assert load("A: TestDefaultAttr").operation("A").get_attr("default_int") == 31415


def test_removed_ops() -> None:
    text = "x: Placeholder[float32, [2]]\nd: BatchMatrixDiag(x)"
    load_def(parse_graph_text(text, versions=NO_VERSIONS))
    load_def(parse_graph_text(text, versions=VersionDef(producer=13)))
    with pytest.raises(UnimplementedError, match="BatchMatrixDiag is not available in GraphDef version 14") as caught:
        load_def(parse_graph_text(text, versions=VersionDef(producer=14)))
    assert caught.value.node == "d"


def test_input_map() -> None:
    graph = load("input: TestInput")
    mapped = {"new_input:0": graph.tensor("input:1"), "new_input:1": graph.tensor("input:0")}
    load(
        "new_input: TestInput\nt1: TestMul(new_input:0, new_input:1)\nt2: TestMul(t1:0, t1:0)", graph, input_map=mapped
    )
    assert names(graph) == ["input", "new_input", "t1", "t2"]  # new_input is there, though nothing uses it
    assert inputs(graph.operation("t1")) == ["input:1", "input"]
    assert inputs(graph.operation("t2")) == ["t1", "t1"]


def test_input_map_with_a_prefix() -> None:
    graph = load("input: TestInput\nunmapped: TestInput")
    text = """
        input: TestInput
        unmapped: TestInput
        t1: TestMul(input:0, input:1)
        t2: TestMul(t1:0, t1:0)
        t3: TestMul(unmapped:0, unmapped:1)
    """
    first = graph.tensor("input:0")
    load(text, graph, name="import", input_map={"input:0": first, "input:1": first})
    assert inputs(graph.operation("import/t1")) == ["input", "input"]
    assert inputs(graph.operation("import/t2")) == ["import/t1", "import/t1"]
    assert inputs(graph.operation("import/t3")) == ["import/unmapped", "import/unmapped:1"]


def test_input_map_of_control_edges() -> None:
    graph = load("W1: TestParams")
    text = """
        W2: TestParams
        W3: TestParams
        input: TestInput(^W2)
        t1: TestOneInputTwoOutputs(W2)
        t2: TestOneInputTwoOutputs(input, ^W2, ^W3)
    """
    w1 = graph.operation("W1")
    load(text, graph, input_map={"^W2": w1, "^W3": w1})
    assert inputs(graph.operation("input")) == ["^W1"]
    assert inputs(graph.operation("t1")) == ["W2"]  # a data edge is another matter
    assert inputs(graph.operation("t2")) == ["input", "^W1"]  # two that were mapped to one are one
    load("W1: TestParams\nt: TestInput(^W1)", graph, name="import", input_map={"^W1": w1})
    assert inputs(graph.operation("import/t")) == ["^W1"]


def test_an_input_map_that_mixes_edges() -> None:
    graph = load("W1: TestParams")
    refused(
        "W2: TestParams\nr: TestRelu(W2)",
        "must be a tensor",
        graph=graph,
        input_map={"W2:0": graph.operation("W1")},
    )


def test_input_map_of_another_graph() -> None:
    other = load("W1: TestParams")
    refused("r: TestRelu(W2)", "in another graph", input_map={"W2:0": other.tensor("W1:0")})


def test_input_map_of_a_wrong_dtype() -> None:
    graph = load("i: Const[1]")
    error = refused(
        "r: TestRelu(W2)", "was passed int32 from i:0", graph=graph, input_map={"W2:0": graph.tensor("i:0")}
    )
    assert error.node == "r"


def test_input_map_keys_that_are_nothing() -> None:
    graph = load("W1: TestParams\ninput: TestInput")
    text = """
        W2: TestParams
        new_input: TestInput(^W2)
        t1: TestMul(new_input:0, new_input:1)
        variadic: TestVariadicOutput[N=5]
    """
    first = graph.tensor("input:0")
    used = {"^W2": graph.operation("W1"), "new_input:0": first, "new_input:1": first}
    unused = {"t1:0": first, "variadic:4": first}  # not used, but they exist
    missing = {"new_input:3": first, "DNE:0": first}
    error = refused(text, "not found in graph_def", graph=graph, input_map={**used, **unused, **missing})
    assert "['new_input:3', 'DNE:0']" in error.message
    load(text, graph, input_map={**used, **unused})


def test_input_map_for_a_node_that_is_not_there() -> None:
    graph = load("input: TestInput")
    mapped = {"new_input:0": graph.tensor("input:1"), "new_input:1": graph.tensor("input:0")}
    load("t1: TestMul(new_input:0, new_input:1)\nt2: TestMul(t1:0, t1:0)", graph, input_map=mapped)
    assert names(graph) == ["input", "t1", "t2"]
    assert inputs(graph.operation("t1")) == ["input:1", "input"]


def test_return_elements() -> None:
    graph = Graph()
    text = "input: TestInput\nt1: TestMul(input:0, input:1)"
    found = import_graph_def(graph, parse_graph_text(text), return_elements=["input:1", "t1:0", "input", "t1"])
    assert found is not None
    assert [element.name for element in found] == ["input:1", "t1:0", "input", "t1"]
    assert found[1] is graph.tensor("t1:0")

    mapped = {"new:1": graph.tensor("input:0")}
    options = {"name": "import", "input_map": mapped, "return_elements": ["new:0", "new:1", "new"]}
    again = import_graph_def(graph, parse_graph_text("new: TestInput"), **options)  # type: ignore[arg-type]
    assert again is not None
    assert [element.name for element in again] == ["import/new:0", "input:0", "import/new"]


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ("W2:0", "'W2:0' not found in graph_def"),
        ("W2", "'W2' not found in graph_def"),
        ("W1:2", "Invalid return output 2 of node 'W1', which has 1 outputs"),
        ("W 1", "is not the name of a tensor"),
    ],
)
def test_return_elements_that_are_not_there(element: str, said: str) -> None:
    refused("W1: TestParams", said, return_elements=[element])


def test_a_mapped_operation_is_not_a_return_element() -> None:
    graph = load("W1: TestParams")
    mapped = {"W2:0": graph.tensor("W1:0")}
    refused("r: TestRelu(W2)", "not found in graph_def", graph=graph, input_map=mapped, return_elements=["W2"])


def test_uniquified_names() -> None:
    graph = Graph()
    text = "A: TestInput\nB: TestOneInputTwoOutputs(A)"
    for _ in range(3):
        load(text, graph, uniquify_names=True)
    assert names(graph) == ["A", "B", "A_1", "B_1", "A_2", "B_2"]
    assert inputs(graph.operation("B_2")) == ["A_2"]
    load("A_1: TestInput\nB_1: TestOneInputTwoOutputs(A_1)", graph, uniquify_names=True)
    assert inputs(graph.operation("B_1_1")) == ["A_1_1"]
    load("A: TestInput\nA_3: TestInput", graph, uniquify_names=True)
    assert names(graph)[-2:] == ["A_4", "A_3"]  # A_3 is taken by the graph that comes


def test_uniquified_prefixes() -> None:
    graph = load("outer/inner/abc: TestABC")
    text = "outer: TestInput\ninner: TestInput\nouter/inner: TestInput\nouter/inner/abc: TestInput"
    load(text, graph, uniquify_names=True)
    assert names(graph)[1:] == ["outer_1", "inner", "outer/inner_1", "outer/inner/abc_1"]


def test_colocation_follows_uniquified_names() -> None:
    graph = load("A: TestInput\nB: TestOneInputTwoOutputs(A)")
    text = "A: TestInput[_class=['loc:@B']]\nB: TestOneInputTwoOutputs[_class=['loc:@A', 'other']](A)"
    load(text, graph, uniquify_names=True)
    assert graph.operation("A_1").get_attr("_class") == (b"loc:@B_1",)
    assert graph.operation("B_1").get_attr("_class") == (b"loc:@A_1", b"other")


def test_added_control_dependencies() -> None:
    graph = load("W1: TestParams\nW2: TestParams")
    w1, w2 = graph.operations
    text = """
        W2: TestParams
        input: TestInput
        input2: TestInput(^W2)
        input3: TestInput(^W2, ^W3)
        t1: TestMul(input:0, input:1)
        t2: TestMul(input:0, input:1, ^W2, ^W3)
    """
    load(text, graph, name="import", control_dependencies=[w1, w2], input_map={"^W2": w2, "^W3": w2})
    assert inputs(graph.operation("import/W2")) == ["^W1", "^W2"]
    assert inputs(graph.operation("import/input")) == ["^W1", "^W2"]
    assert inputs(graph.operation("import/input2")) == ["^W2", "^W1"]
    assert inputs(graph.operation("import/input3")) == ["^W2", "^W1"]
    assert inputs(graph.operation("import/t1")) == ["import/input", "import/input:1"]  # it has them from input
    assert inputs(graph.operation("import/t2")) == ["import/input", "import/input:1", "^W2"]


def test_control_dependencies_of_a_scope_are_added_too() -> None:
    graph = load("W1: TestParams")
    with graph, control_dependencies([graph.operation("W1")]):
        load("a: TestInput", graph)
    assert inputs(graph.operation("a")) == ["^W1"]


def test_added_control_dependencies_reach_a_loop_once() -> None:
    graph = load("W1: TestParams\ninput: TestInput\nenter: Enter[frame_name='w'](input)")
    text = """
        merge: Merge[T=float32, N=2](new_input:0, next:0)
        t1: TestMul(merge:0, merge:0)
        next: NextIteration[T=float32](t1:0)
    """
    # Control from outside of the frame would be a mistake, so W1 stands in for a node of the frame.
    inside = {"new_input:0": graph.tensor("enter:0")}
    load(text, graph, control_dependencies=[graph.operation("enter")], input_map=inside)
    assert inputs(graph.operation("merge")) == ["enter", "next", "^enter"]
    assert inputs(graph.operation("t1")) == ["merge", "merge"]
    assert inputs(graph.operation("next")) == ["t1"]


def test_a_control_dependency_of_another_graph() -> None:
    other = load("W1: TestParams")
    refused("W1: TestParams", "in another graph", control_dependencies=other.operations)


@pytest.mark.parametrize(
    ("text", "said", "error"),
    [
        ("scope/A: TestParams", "Node name 'scope/A' already exists in the Graph", InvalidArgumentError),
        ("!B: TestParams", "Node '!B': the node name is invalid", InvalidArgumentError),
        ("B: SomeUnknownOp", "Op type not registered 'SomeUnknownOp'", NotFoundError),
        ("B: TestOneInputTwoOutputs(C)", "Node 'B': Unknown input node 'C'", InvalidArgumentError),
        (
            "Root: TestParams\nInteger: TestOneInputOneOutput[T=int64](Root)",
            "Input 0 of node Integer was passed float32 from Root:0 incompatible with expected int64",
            InvalidArgumentError,
        ),
        (
            "A: TestParams\nB: TestOneInputTwoOutputs(A:1)",
            "Node 'B': Connecting to invalid output 1 of source node A which has 1 outputs",
            InvalidArgumentError,
        ),
        (
            "A: TestParams\nB: TestParams\nC: TestOneInputTwoOutputs(A, B)",
            "NodeDef expected inputs 'float32' do not match 2 inputs specified",
            InvalidArgumentError,
        ),
        ("A: TestOneInputTwoOutputs", "do not match 0 inputs specified", InvalidArgumentError),
        (
            "A: TestParams[_class=['loc:@B']]",
            "Node 'A' expects to be colocated with unknown node 'B'",
            InvalidArgumentError,
        ),
        (
            "A: TestParams\nB: L2Loss[_output_shapes=[[43]]](A)",
            "Node 'B' has an _output_shapes attribute inconsistent with the GraphDef for output #0",
            InvalidArgumentError,
        ),
    ],
)
def test_errors_do_not_change_the_graph(text: str, said: str, error: type[OpError]) -> None:
    graph = load("scope/A: TestParams")
    refused(text, said, error=error, graph=graph)
    assert names(graph) == ["scope/A"]


def test_output_shapes_that_the_graph_def_tells_are_believed() -> None:
    graph = load(
        "A: Placeholder[float32, _output_shapes=[[43, ?]]]\nB: Placeholder[float32, _output_shapes=[[1], [2]]]"
    )
    assert str(graph.tensor("A:0").shape) == "[43,?]"
    assert str(graph.tensor("B:0").shape) == "[1]"  # one too many does no harm
    assert "_output_shapes" not in graph.operation("A").attrs


def test_a_bad_prefix_changes_nothing() -> None:
    graph = load("scope/A: TestParams")
    refused("A: TestParams", "prefix '!bad/' would lead to invalid node names", graph=graph, name="!bad")
    refused("A: TestRelu(B)", "Unknown input node", graph=graph, name="import")
    load("A: TestParams", graph, name="import")
    assert names(graph) == ["scope/A", "import/A"]  # the import that failed took no name


def test_a_finalized_graph_takes_no_import() -> None:
    graph = load("A: TestParams")
    graph.finalize()
    with pytest.raises(FailedPreconditionError, match="finalized"):
        load("B: TestParams", graph)


def _function(name: str, op: str, ret: str = "n:y:0", **attrs: object) -> FunctionDef:
    """name(x: float32) -> y: float32, whose only node is n = op(x)."""
    return FunctionDef(
        signature=OpDefProto(
            name=name, input_arg=(ArgDefProto(name="x", type=1),), output_arg=(ArgDefProto(name="y", type=1),)
        ),
        node_def=(NodeDef(name="n", op=op, input=("x",), attr={"T": make_attr("type", 1)}),),
        ret={"y": ret},
    )


def test_functions_come_along() -> None:
    library = FunctionDefLibrary(function=(_function("OuterOfTwo", "InnerOfTwo"), _function("InnerOfTwo", "Neg")))
    nodes = (*parse_graph_text("x: Placeholder[float32]").node, NodeDef(name="call", op="OuterOfTwo", input=("x",)))
    graph = load_def(GraphDef(node=nodes, library=library))
    assert [dtype.name for dtype in graph.operation("call").properties.output_dtypes] == ["float32"]
    again = load_def(graph.as_graph_def())
    assert again.functions == graph.functions
    assert again.functions.keys() == {"OuterOfTwo", "InnerOfTwo"}
    load_def(GraphDef(library=library), graph)  # the same functions once more are no conflict


def test_colocation_with_an_unknown_node() -> None:
    error = refused("A: TestInput[_class=['loc:@missing']]", "unknown node 'missing'")
    assert error.node == "A"
    assert names(load("A: TestInput[_class=['missing']]")) == ["A"]  # no colocation, some other class


def test_device_scope_around_an_import() -> None:
    graph = Graph()
    with graph, device("/gpu:13"):
        load("a: TestABC\nb: TestABC @ /job:w\nc: TestABC @ /cpu:0", graph)
    assert [node.device for node in graph] == ["/device:GPU:13", "/job:w/device:GPU:13", "/device:CPU:0"]


@pytest.mark.parametrize("name", ["some dev", "/foo:bar", "/job:1a", "/device:CPU:x", "/cpu:0/gpu:1", "/task:-1"])
def test_a_malformed_device_is_refused(name: str) -> None:
    graph = Graph()
    with pytest.raises(InvalidArgumentError, match="Malformed device specification") as caught:
        load_def(GraphDef(node=(NodeDef(name="a", op="TestABC", device=name),)), graph)
    assert caught.value.node == "a"
    assert len(graph) == 0


def test_unknown_op() -> None:
    error = refused("a: TestMull", "Op type not registered 'TestMull'", "did you mean TestMul", error=NotFoundError)
    assert (error.node, error.op) == ("a", "TestMull")


def test_unknown_attrs_are_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "asyncexec"):
        graph = load("a: TestParams[zork=1]")
    assert graph.operation("a").get_attr("zork") == 1
    assert "op TestParams has no attrs ['zork']" in caplog.text


def test_debug_info_tells_where_nodes_were_made() -> None:
    def trace(*lines: tuple[int, int]) -> StackTrace:
        return StackTrace(file_line_cols=tuple(FileLineCol(file_index=index, line=line) for index, line in lines))

    debug_info = GraphDebugInfo(
        files=("alpha.py", "beta.py"),
        traces={"w1": trace((0, 20), (1, 30)), "w2": trace((0, 20), (9, 35)), "w3@F": trace((0, 1))},
    )
    nodes = parse_graph_text("w1: TestParams\nw2: TestParams\nw3: TestParams").node
    graph = load_def(GraphDef(node=nodes, debug_info=debug_info), source_line=("main.py", 7))
    lines = [node.user_line for node in graph]
    assert lines == ["beta.py:30", "<UNKNOWN_FILE_NAME>:35", "main.py:7"]


def test_nodes_are_shared_by_nobody() -> None:
    graph = load("a: TestParams\nb: TestParams")
    a, b = graph.operations
    assert isinstance(a, Node)
    assert a.properties is b.properties  # one op with the same attrs: their properties are, to save memory
    assert a.outputs[0] is not b.outputs[0]
