"""The cases of TensorFlow's node_def_util_test.cc, by what they mean, and the notation that ops are declared in.

In, Out, Enum, SameIn, AnyIn: the tests of those names.  Device, ValidSyntax: test_graph_constructor.py.
InputTypesForNode, OutputTypesForNode (2), LargeOutput: test_dtypes, test_large_output.
NameRangesForNode Simple, Polymorphic, NRepeats, TypeList: test_name_ranges.
AddPrefixAndSuffixToNode: frames get prefixes when functions are inlined, which is not yet.
MaybeAddPrefixToColocation... (2), MaybeUpdateColocation...WithMap (2): test_graph_constructor.py (prefix, new names).
FormatNodeForError (3), AttachDef (2): test_errors_name_a_node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework import types
from asyncexec.framework.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    MissingExtraError,
    OpError,
    error_class,
)
from asyncexec.framework.op_def import MAX_REPEATS, REQUIRED, NameAttrList, OpDef, arg_slices, parse_op_def
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import as_dtype

IN = parse_op_def("In", "i: T ->", "T: type")
OUT = parse_op_def("Out", "-> o: T", "T: numbertype")
ENUM = parse_op_def("Enum", "->", "e: {'apple', 'orange'}")
SAME_IN = parse_op_def("SameIn", "i: N*T ->", "N: int >= 2; T: {float32, float64}")
ANY_IN = parse_op_def("AnyIn", "i: T ->", "T: list(type) >= 1")
SIMPLE = parse_op_def("Simple", "a: float32, b: int32 -> c: string, d: bool")


def problem(op_def: OpDef, attrs: dict[str, Any], *, imported: bool = True) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        op_def.input_dtypes(op_def.complete_attrs(attrs, imported=imported))
    return str(caught.value)


def test_in() -> None:
    assert IN.input_dtypes(IN.complete_attrs({"T": types.float32})) == (types.float32,)
    assert "NodeDef missing attr 'T' from Op<In(i: T) -> ()" in problem(IN, {})
    assert "attr 'T' takes a type, not int 17" in problem(IN, {"T": 17})
    assert "NodeDef mentions attr 'U' not in Op<In" in problem(IN, {"T": types.int8, "U": 1}, imported=False)


def test_out() -> None:
    assert OUT.output_dtypes({"T": types.int32}) == (types.int32,)
    said = problem(OUT, {"T": types.string})
    assert "Value for attr 'T' of string is not in the list of allowed values: float32, float64, int32, uint8" in said


def test_enum() -> None:
    assert ENUM.complete_attrs({"e": b"orange"}) == {"e": b"orange"}
    assert "attr 'e' of b'foo' is not in the list of allowed values: apple, orange" in problem(ENUM, {"e": b"foo"})


def test_same_in() -> None:
    good = {"N": 2, "T": types.float64}
    assert SAME_IN.input_dtypes(SAME_IN.complete_attrs(good)) == (types.float64, types.float64)
    assert "of string is not in the list of allowed values: float32, float64" in problem(
        SAME_IN, {"N": 2, "T": types.string}
    )
    assert "Value for attr 'N' of 1 must be at least minimum 2" in problem(SAME_IN, {"N": 1, "T": types.float32})


def test_any_in() -> None:
    good = (types.int32, types.string)
    assert ANY_IN.input_dtypes(ANY_IN.complete_attrs({"T": good})) == good
    assert "Length for attr 'T' of 0 must be at least minimum 1" in problem(ANY_IN, {"T": ()})
    assert "attr 'T' takes a list(type), not" in problem(ANY_IN, {"T": types.int32})
    assert "attr 'T' takes a list(type), not int 3" in problem(ANY_IN, {"T": (types.int32, 3)})


def test_dtypes() -> None:
    assert SIMPLE.input_dtypes({}) == (types.float32, types.int32)
    assert SIMPLE.output_dtypes({}) == (types.string, types.bool)
    ref = parse_op_def("Ref", "a: Ref(T), b: Ref(N*T) -> c: Ref(float32)", "T: type; N: int")
    assert ref.input_dtypes({"T": types.int8, "N": 2}) == (types.int8.as_ref,) * 3
    assert ref.output_dtypes({}) == (types.float32.as_ref,)


def test_large_output() -> None:
    split = parse_op_def("TestSplitOp", "value: int64 -> output: num_split*int64", "num_split: int >= 1")
    assert len(split.output_dtypes({"num_split": MAX_REPEATS})) == MAX_REPEATS
    for number in (MAX_REPEATS + 1, 10**12, 2**63 - 1, -1):
        with pytest.raises(InvalidArgumentError, match="'num_split'"):
            split.output_dtypes({"num_split": number})


@pytest.mark.parametrize(
    ("signature", "attrs", "given", "inputs", "outputs"),
    [
        ("a: float32, b: int32 -> c: string, d: bool", "", {}, [("a", 0, 1), ("b", 1, 2)], [("c", 0, 1), ("d", 1, 2)]),
        ("a: T, b: T -> c: T", "T: type", {"T": types.bool}, [("a", 0, 1), ("b", 1, 2)], [("c", 0, 1)]),
        (
            "a: N*int32, b: N*T -> c: T, d: N*string, e: M*bool",
            "N: int; M: int; T: type",
            {"N": 4, "M": 3, "T": types.float32},
            [("a", 0, 4), ("b", 4, 8)],
            [("c", 0, 1), ("d", 1, 5), ("e", 5, 8)],
        ),
        (
            "a: T1, b: T2 -> c: T2, d: T3, e: T1",
            "T1: list(type); T2: list(type); T3: list(type)",
            {"T1": (types.bool,) * 2, "T2": (types.float32,) * 4, "T3": (types.int32,) * 3},
            [("a", 0, 2), ("b", 2, 6)],
            [("c", 0, 4), ("d", 4, 7), ("e", 7, 9)],
        ),
    ],
)
def test_name_ranges(
    signature: str,
    attrs: str,
    given: dict[str, Any],
    inputs: list[tuple[str, int, int]],
    outputs: list[tuple[str, int, int]],
) -> None:
    op_def = parse_op_def("Ranges", signature, attrs)
    assert arg_slices(op_def.inputs, given) == {name: slice(start, stop) for name, start, stop in inputs}
    assert arg_slices(op_def.outputs, given) == {name: slice(start, stop) for name, start, stop in outputs}


def test_which_ops_return_tuples() -> None:
    returns = {sig: parse_op_def("R", sig, "N: int; L: list(type)").returns_tuple for sig in ("->", "-> a: int8")}
    assert returns == {"->": True, "-> a: int8": False}
    for signature in ("-> a: int8, b: int8", "-> a: N*int8", "-> a: L"):
        assert parse_op_def("R", signature, "N: int; L: list(type)").returns_tuple


KINDS: dict[str, list[Any]] = {
    "int": [3, -(2**63)],
    "float": [2.5],
    "bool": [True],
    "string": [b"x"],
    "type": [types.int8],
    "shape": [TensorShape([1]), UNKNOWN_SHAPE],
    "tensor": [np.arange(3), np.float32(1), b"text"],
    "func": [NameAttrList("F")],
    "list(int)": [(), (1, 2)],
    "list(string)": [(b"a",)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_takes_its_own_values_only(kind: str) -> None:
    op_def = parse_op_def("Kinds", "->", f"a: {kind}")
    for other, values in KINDS.items():
        for value in values:
            fits = other == kind or ({other, kind} == {"tensor", "string"} and isinstance(value, bytes))
            fits = fits or (other.startswith("list(") and kind.startswith("list(") and value == ())
            if fits:
                assert op_def.complete_attrs({"a": value}, imported=True)["a"] is value
            else:
                assert f"attr 'a' takes a {kind}, not" in problem(op_def, {"a": value})


def test_an_integer_is_a_float_to_people_but_not_in_a_file() -> None:
    op_def = parse_op_def("Floats", "->", "alpha: float = 0.2")
    assert op_def.complete_attrs({"alpha": 1}) == {"alpha": 1}
    assert "attr 'alpha' takes a float, not int 1" in problem(op_def, {"alpha": 1})
    assert "attr 'alpha' takes a float, not bool True" in problem(op_def, {"alpha": True}, imported=False)


def test_internal_and_unknown_attrs() -> None:
    op_def = parse_op_def("None", "->")
    assert op_def.complete_attrs({"_x": 1}) == {"_x": 1}
    assert op_def.complete_attrs({"_x": 1, "y": 2}, imported=True) == {"_x": 1, "y": 2}
    assert "mentions attr 'y'" in problem(op_def, {"y": 2}, imported=False)


@pytest.mark.parametrize(
    ("declared", "kind", "default"),
    [
        ("a: int", "int", REQUIRED),
        ("a: int >= -1 = 3", "int", 3),
        ("a: float = 1e-5", "float", 1e-5),
        ("a: bool = True", "bool", True),
        ("a: string = ''", "string", b""),
        ("a: string = 'NHWC'", "string", b"NHWC"),
        ("a: {'SAME', 'VALID'} = 'SAME'", "string", b"SAME"),
        ("a: {int32, int64} = int64", "type", types.int64),
        ("a: realnumbertype", "type", REQUIRED),
        ("a: shape = shape(?)", "shape", UNKNOWN_SHAPE),
        ("a: shape = shape(2,3)", "shape", TensorShape([2, 3])),
        ("a: func = func('F')", "func", NameAttrList("F")),
        ("a: list(int) = [1, 1]", "list(int)", (1, 1)),
        ("a: list(int) >= 2 = []", "list(int)", ()),
        ("a: list({float32, float64}) >= 1", "list(type)", REQUIRED),
        ("a: list(string) = ['x', 'y']", "list(string)", (b"x", b"y")),
    ],
)
def test_declared_attrs(declared: str, kind: str, default: Any) -> None:
    attr = parse_op_def("Declared", "->", declared).attrs["a"]
    assert attr.kind == kind
    assert attr.default == default
    assert attr.minimum == (
        {"-1": -1, "2": 2, "1": 1}[declared.split(">= ")[1].split()[0]] if ">=" in declared else None
    )
    assert attr.is_list == kind.startswith("list")


@pytest.mark.parametrize(
    ("signature", "attrs"),
    [("a: nonsense ->", ""), ("a: T ->", ""), ("->", "a"), ("->", "a: tensor = 3"), ("->", "a: int = x")],
)
def test_a_declaration_that_is_wrong(signature: str, attrs: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_op_def("Wrong", signature, attrs)


def test_how_an_op_is_shown() -> None:
    op_def = parse_op_def("ConcatV2", "values: N*T, axis: Tidx -> output: Ref(T)", "N: int >= 2; T: type; Tidx: type")
    shown = "Op<ConcatV2(values: N*T, axis: Tidx) -> output: Ref(T); N: int; T: type; Tidx: type>"
    assert str(op_def) == shown


def test_errors_name_a_node() -> None:
    class Place:
        name, op, user_line = "enter", "Enter", "model.py:3"

    error = OpError("Error").locate(Place())
    assert str(error) == "Error\n  [[{{node enter}} = Enter]]\n  made at model.py:3"

    class Other:
        name, op, user_line = "b", "NoOp", None

    assert error.locate(Other()).node == "enter"  # the first place is the right one


@pytest.mark.parametrize("kind", [OpError, *(error_class(code) for code in range(1, 17)), MissingExtraError])
def test_an_error_that_is_raised_for_many_nodes_stays_as_it_is(kind: type[OpError]) -> None:
    class Place:
        name, op, user_line = "a", "NoOp", None

    shared = kind("Error", hint="mend it")
    shared.__cause__ = cause = KeyError()
    found = shared.locate(Place())
    assert (shared.node, str(shared)) == (None, "Error\n  hint: mend it")
    assert (type(found), found.node, found.hint, found.__cause__) == (kind, "a", "mend it", cause)
    assert str(found) == "Error\n  [[{{node a}} = NoOp]]\n  hint: mend it"


def test_none_is_no_data_type() -> None:
    with pytest.raises(InvalidTypeError, match="None is not a data type"):
        as_dtype(None)
