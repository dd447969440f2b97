"""The models follow proto3-JSON: names, numbers, bytes and enums in every spelling that protobuf accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from pydantic import ValidationError
from tensorboard.compat.proto import full_type_pb2, node_def_pb2, types_pb2

from asyncexec.cli.schema import written_types
from asyncexec.framework import types
from asyncexec.framework.graph_def import AttrValue, GraphDef, NodeDef, VersionDef, make_attr
from asyncexec.framework.schema import schema_file_name, schema_text, write_schemas
from asyncexec.framework.wire_types import DATA_TYPES, FULL_TYPES, round_float32
from asyncexec.importers.tf_graph_def import load_graph_def

SCHEMAS = Path(__file__).parents[2] / "schemas"


def attr(text: str) -> AttrValue:
    return GraphDef.model_validate_json(f'{{"node": [{{"name": "n", "attr": {{"a": {text}}}}}]}}').node[0].attr["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"i": "-5"}', AttrValue(i=-5)),
        ('{"i": 5}', AttrValue(i=5)),
        ('{"i": 5.0}', AttrValue(i=5)),
        ('{"i": "9223372036854775807"}', AttrValue(i=2**63 - 1)),
        ('{"s": "+/8="}', AttrValue(s=b"\xfb\xff")),
        ('{"s": "-_8"}', AttrValue(s=b"\xfb\xff")),
        ('{"s": ""}', AttrValue(s=b"")),
        ('{"f": 1}', AttrValue(f=1.0)),
        ('{"f": "1.5"}', AttrValue(f=1.5)),
        ('{"f": "-Infinity"}', AttrValue(f=float("-inf"))),
        ('{"f": 0.1}', AttrValue(f=round_float32(0.1))),
        ('{"b": false}', AttrValue(b=False)),
        ('{"type": "DT_FLOAT"}', AttrValue(type=types.float32)),
        ('{"type": 1}', AttrValue(type=1)),
        ('{"type": "DT_STRING_REF"}', AttrValue(type=107)),
        ('{"type": "DT_OBJECT"}', AttrValue(type=1000)),
        ('{"type": 12345}', AttrValue(type=12345)),
        ('{"shape": {"unknownRank": true}}', AttrValue(shape={"unknown_rank": True})),
        ('{"shape": {"unknown_rank": true}}', AttrValue(shape={"unknown_rank": True})),
        ('{"shape": {"dim": [{"size": "-1"}, {"size": 2, "name": "x"}, {}]}}', None),
        ('{"placeholder": "T"}', AttrValue(placeholder="T")),
        ('{"list": {}}', AttrValue(list={})),
        ('{"tensor": {"dtype": "DT_UINT64", "uint64Val": ["18446744073709551615", 1]}}', None),
        ('{"tensor": {"dtype": "DT_BOOL", "tensorShape": {}, "boolVal": [true]}}', None),
        ('{"tensor": {"dtype": "DT_DOUBLE", "doubleVal": ["NaN", 1e308, 3]}}', None),
    ],
)
def test_values_are_read_as_protobuf_reads_them(text: str, expected: AttrValue | None) -> None:
    assert expected is None or attr(text) == expected
    if "OBJECT" in text:
        return
    message = node_def_pb2.NodeDef()
    json_format.Parse(f'{{"attr": {{"a": {text}}}}}', message)
    written = json.loads(json_format.MessageToJson(message))
    assert json.loads(NodeDef(attr={"a": attr(text)}).to_json()) == written


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "exactly one of"),
        ('{"i": 1, "b": true}', "not i and b"),
        ('{"i": "9223372036854775808"}', "less than"),
        ('{"i": true}', "boolean"),
        ('{"i": 1.5}', "fractional"),
        ('{"i": "x"}', "integer"),
        ('{"f": true}', "boolean"),
        ('{"f": 1e39}', "too large"),
        ('{"f": "x"}', "float"),
        ('{"b": 1}', "boolean"),
        ('{"b": "true"}', "boolean"),
        ('{"s": 5}', "bytes"),
        ('{"s": "a"}', "base64"),
        ('{"s": "*"}', "base64"),
        ('{"type": "DT_NONSENSE"}', "not a data type"),
        ('{"type": true}', "boolean"),
        ('{"type": 4294967296}', "less than"),
        ('{"shape": {"rank": 1}}', "Extra inputs"),
        ('{"shape": []}', "object"),
        ('{"Type": "DT_FLOAT"}', "Extra inputs"),
        ('{"tensor": {"intVal": [2147483648]}}', "less than"),
        ('{"tensor": {"uint32Val": [-1]}}', "greater than"),
        ('{"tensor": {"tensorShape": {}, "tensor_shape": {}}}', "Extra inputs"),
    ],
)
def test_what_is_wrong_is_told(text: str, what: str) -> None:
    with pytest.raises(ValidationError, match=what) as caught:
        attr(text)
    assert str(caught.value.errors()[0]["loc"]).startswith("('node', 0, 'attr', 'a'")


def test_enums_are_those_of_the_protos() -> None:
    ours = {name: number for name, number in DATA_TYPES.numbers.items() if number != types.object.enum}
    assert ours.items() >= dict(types_pb2.DataType.items()).items()  # an older tensorboard knows fewer
    assert FULL_TYPES.numbers.items() >= dict(full_type_pb2.FullTypeId.items()).items()


def test_floats_are_written_as_short_as_they_can_be() -> None:
    for value, text in [
        (0.1, "0.1"),
        (1e-45, "1.4013e-45"),
        (3.4028235e38, "3.4028235e+38"),
        (16777217.0, "16777216.0"),
    ]:
        assert AttrValue(f=value).to_json() == f'{{"f":{text}}}'


def test_models_do_not_change() -> None:
    node = NodeDef(name="n", op="Op")
    with pytest.raises(ValidationError, match="frozen"):
        node.name = "m"  # type: ignore[misc]


def test_trusted_constructors_make_equal_models() -> None:
    checked = NodeDef(name="n", op="Op", input=("a",), attr={"T": AttrValue(type=1)})
    trusted = NodeDef.model_construct(name="n", op="Op", input=("a",), attr={"T": make_attr("type", 1)})
    assert trusted == checked
    assert trusted.to_json() == checked.to_json()
    assert trusted.model_dump() == checked.model_dump()
    assert trusted.model_copy(update={"name": "m"}).name == "m"
    assert repr(trusted) == "NodeDef(name='n', op='Op', input=('a',), attr={'T': AttrValue(type=1)})"


def test_equal_attrs_of_json_are_shared() -> None:
    assert attr('{"type": "DT_FLOAT"}') is attr('{"type": 1}')


def test_defaults_are_left_out() -> None:
    assert GraphDef().to_json() == "{}"
    assert GraphDef(versions=VersionDef()).to_json() == '{"versions":{}}'
    assert GraphDef(versions={"minConsumer": 2}).to_json() == '{"versions":{"minConsumer":2}}'


class TestSchemas:
    def test_written_schemas_are_current(self) -> None:
        models = written_types()
        assert {path.name for path in SCHEMAS.iterdir()} == {schema_file_name(model) for model in models}
        for model in models:
            path = SCHEMAS / schema_file_name(model)
            assert path.read_text(encoding="utf-8") == schema_text(model), "run asyncexec schema schemas"

    def test_they_are_written_to_a_folder(self, tmp_path: Path) -> None:
        written = write_schemas(tmp_path / "new", [GraphDef])
        assert "graph_def.schema.json" in {path.name for path in written}
        assert all(path.read_text(encoding="utf-8") for path in written)

    def test_graphs_of_the_oracle_follow_the_schema(self) -> None:
        jsonschema = pytest.importorskip("jsonschema")
        check: Any = jsonschema.Draft202012Validator(json.loads(schema_text(GraphDef))).validate
        golden = Path(__file__).parents[1] / "golden" / "tf"
        for case in ("func_while_v2", "fetch_no_placeholders_all_dtypes", "device_colocation_and_control"):
            check(json.loads(load_graph_def(golden / case / "graph.pb").to_json()))
