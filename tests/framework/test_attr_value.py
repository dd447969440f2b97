"""AttrValues and Python values, both ways."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from asyncexec.framework import graph_def, op_def, types
from asyncexec.framework.attr_value import AttrPlaceholder, decode_attr_value, encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.graph_def import AttrValue, ListValue, intern_attr, make_attr
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.framework.tensor_shape import TensorShape

PAIRS = [
    ("int", 3, AttrValue(i=3)),
    ("int", -(2**63), AttrValue(i=-(2**63))),
    ("float", 1.5, AttrValue(f=1.5)),
    ("float", math.inf, AttrValue(f="Infinity")),
    ("bool", False, AttrValue(b=False)),
    ("string", b"\xff\0", AttrValue(s=b"\xff\0")),
    ("type", types.float32, AttrValue(type="DT_FLOAT")),
    ("type", types.float32.as_ref, AttrValue(type="DT_FLOAT_REF")),
    ("type", types.object, AttrValue(type="DT_OBJECT")),
    ("shape", TensorShape(None), AttrValue(shape=TensorShapeProto(unknown_rank=True))),
    ("shape", TensorShape([None, 2]), AttrValue(shape={"dim": [{"size": -1}, {"size": "2"}]})),
    ("shape", TensorShape([]), AttrValue(shape={})),
    ("func", op_def.NameAttrList("F", {}), AttrValue(func={"name": "F"})),
    ("func", op_def.NameAttrList("F", {"n": 1}), AttrValue(func={"name": "F", "attr": {"n": {"i": 1}}})),
    ("list(int)", (1, 2), AttrValue(list={"i": [1, 2]})),
    ("list(float)", (0.5,), AttrValue(list={"f": [0.5]})),
    ("list(bool)", (True, False), AttrValue(list={"b": [True, False]})),
    ("list(string)", (b"a", b""), AttrValue(list=ListValue(s=(b"a", b"")))),
    ("list(type)", (types.int8, types.string), AttrValue(list={"type": ["DT_INT8", 7]})),
    (
        "list(shape)",
        (TensorShape([1]), TensorShape(None)),
        AttrValue(list={"shape": [{"dim": [{"size": 1}]}, {"unknownRank": True}]}),
    ),
    ("list(func)", (op_def.NameAttrList("F"),), AttrValue(list={"func": [{"name": "F"}]})),
    ("list(int)", (), AttrValue(list={})),
]


@pytest.mark.parametrize(("kind", "value", "wire"), PAIRS, ids=[f"{kind}-{value!r}" for kind, value, _ in PAIRS])
class TestPairs:
    def test_encodes(self, kind: str, value: Any, wire: AttrValue) -> None:
        assert encode_attr_value(value, kind) == wire

    def test_encodes_without_a_kind(self, kind: str, value: Any, wire: AttrValue) -> None:
        assert encode_attr_value(value) == wire

    def test_decodes(self, kind: str, value: Any, wire: AttrValue) -> None:
        decoded = decode_attr_value(wire)
        assert type(decoded) is type(value)
        assert decoded == value
        assert decode_attr_value(wire) == value

    def test_json(self, kind: str, value: Any, wire: AttrValue) -> None:
        assert AttrValue.model_validate_json(wire.to_json()) == wire
        assert decode_attr_value(AttrValue.model_validate_json(wire.to_json())) == value


def test_tensors() -> None:
    array = np.array([[1, 2]], np.int16)
    wire = encode_attr_value(array, "tensor")
    assert wire == encode_attr_value(array)
    np.testing.assert_array_equal(decode_attr_value(wire), array)
    scalars = decode_attr_value(encode_attr_value((np.float32(1), b"text"), "list(tensor)"))
    assert scalars == (np.float32(1), b"text")
    assert decode_attr_value(encode_attr_value(b"text", "tensor")) == b"text"


def test_placeholders() -> None:
    assert decode_attr_value(AttrValue(placeholder="T")) == AttrPlaceholder("T")
    assert encode_attr_value(AttrPlaceholder("T"), "type") == AttrValue(placeholder="T")


def test_numpy_scalars_are_numbers_where_a_number_is_wanted() -> None:
    assert encode_attr_value(np.int32(3), "int") == AttrValue(i=3)
    assert encode_attr_value(np.float64(0.5), "float") == AttrValue(f=0.5)
    assert encode_attr_value(np.True_, "bool") == AttrValue(b=True)
    assert encode_attr_value("text", "string") == AttrValue(s=b"text")
    assert encode_attr_value([1, 2], "list(int)") == AttrValue(list={"i": [1, 2]})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "int"),
        (1.5, "int"),
        (2**63, "int"),
        (1e300, "float"),
        ("1", "float"),
        (1, "bool"),
        (1, "string"),
        (1, "type"),
        ([1], "shape"),
        (1, "func"),
        (1, "list(int)"),
        ((1, "x"), "list(int)"),
        (object(), ""),
        ((object(),), ""),
        ((1, "x"), ""),
        (1, "no_such_kind"),
        (object(), "tensor"),
    ],
)
def test_values_that_are_not_of_the_kind(value: Any, kind: str) -> None:
    with pytest.raises(InvalidArgumentError):
        encode_attr_value(value, kind)


@pytest.mark.parametrize(
    "wire",
    [
        AttrValue(type=0),
        AttrValue(type=34),
        AttrValue(type=205),
        AttrValue(list={"type": [1, 77]}),
        AttrValue(list={"i": [1], "b": [True]}),
        AttrValue(shape={"dim": [{"size": -2}]}),
        AttrValue(shape={"dim": [{"size": 2**40}] * 3}),
        AttrValue(tensor={"dtype": "DT_FLOAT", "floatVal": [1, 2]}),
        AttrValue(func={"name": "F", "attr": {"T": {"type": 77}}}),
    ],
)
def test_wire_values_that_mean_nothing(wire: AttrValue) -> None:
    with pytest.raises(InvalidArgumentError):
        decode_attr_value(wire)


def test_a_list_of_tensors_shares_the_budget() -> None:
    spread = TensorProto(dtype=1, tensor_shape=TensorShapeProto(dim=(DimProto(size=100),)), float_val=(1.0,))
    wire = AttrValue(list=ListValue(tensor=(spread, spread)))
    assert len(decode_attr_value(wire, byte_budget=800)) == 2
    with pytest.raises(ResourceExhaustedError, match="budget"):
        decode_attr_value(wire, byte_budget=700)


class TestInterning:
    @pytest.mark.parametrize(
        "value", [AttrValue(type=1), AttrValue(i=0), AttrValue(i=1), AttrValue(b=True), AttrValue(s=b"SAME")]
    )
    def test_common_values_are_shared(self, value: AttrValue) -> None:
        assert intern_attr(value) is intern_attr(value.model_copy())

    def test_kinds_do_not_mix(self) -> None:
        assert make_attr("i", 1) != make_attr("b", True) != make_attr("type", 1)

    def test_large_ones_are_not_kept(self) -> None:
        assert make_attr("i", 10**9) is not make_attr("i", 10**9)
        assert make_attr("s", b"x" * 100) is not make_attr("s", b"x" * 100)

    def test_what_was_decoded_leaves_the_model_as_it_was(self) -> None:
        plain, used = AttrValue(f=0.25), AttrValue(f=0.25)
        decode_attr_value(used)
        assert used == plain
        assert plain == used
        assert used.model_dump() == plain.model_dump()
        assert used.to_json() == plain.to_json()
        assert repr(used) == repr(plain) == "AttrValue(f=0.25)"
        assert hash(used) == hash(plain)
        assert copy.deepcopy(used) == plain


def test_functions_nested_without_end_are_a_typed_error() -> None:
    wire = graph_def.NameAttrList(name="F")
    value = op_def.NameAttrList("F")
    for _ in range(2000):
        wire = graph_def.NameAttrList.model_construct(name="F", attr={"f": make_attr("func", wire)})
        value = op_def.NameAttrList("F", {"f": value})
    with pytest.raises(InvalidArgumentError, match="nested"):
        decode_attr_value(make_attr("func", wire))
    with pytest.raises(InvalidArgumentError, match="nested"):
        encode_attr_value(value)
