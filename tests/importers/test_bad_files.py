"""Whatever bytes a file holds, loading it gives a graph or a typed error that names the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import attr_value_pb2, full_type_pb2, graph_pb2

from asyncexec.framework import types
from asyncexec.framework.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
)
from asyncexec.framework.graph_def import AttrValue, GraphDebugInfo, GraphDef, NameAttrList, NodeDef, make_attr
from asyncexec.importers.graph_formats import FORMATS, serialize
from asyncexec.importers.tf_graph_def import (
    format_graph_def,
    graph_def_from_proto,
    graph_def_to_proto,
    load_graph_def,
    parse_graph_def,
    save_graph_def,
)

MLP = Path(__file__).parents[1] / "golden" / "tf" / "model_mlp64" / "graph.pb"


def write(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


class TestFiles:
    @pytest.mark.parametrize("suffix", [".pb", ".pbtxt", ".json"])
    def test_missing(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(NotFoundError, match=f"no{suffix}' does not exist; expected a GraphDef"):
            load_graph_def(tmp_path / f"no{suffix}")

    def test_unknown_suffix(self, tmp_path: Path) -> None:
        path = write(tmp_path, "graph.bin", MLP.read_bytes())
        with pytest.raises(InvalidArgumentError, match=r"none of the suffixes \.pb, \.pbtxt, \.json"):
            load_graph_def(path)
        assert load_graph_def(path, format="pb") == load_graph_def(MLP)

    def test_unknown_format(self) -> None:
        wrong: Any = "onnx"
        with pytest.raises(InvalidArgumentError, match="'onnx' is not a format"):
            parse_graph_def(b"", wrong)
        with pytest.raises(InvalidArgumentError, match="'onnx' is not a format"):
            format_graph_def(GraphDef(), wrong)

    @pytest.mark.parametrize("suffix", [".pb", ".pbtxt", ".json"])
    def test_empty(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(DataLossError, match="is empty; expected a GraphDef"):
            load_graph_def(write(tmp_path, f"graph{suffix}", b""))

    def test_a_name_no_file_can_have(self) -> None:
        with pytest.raises(InvalidArgumentError):
            load_graph_def("a\0b.pb")

    def test_a_folder_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "folder.json").mkdir()
        with pytest.raises((InvalidArgumentError, PermissionDeniedError)):
            save_graph_def(GraphDef(), tmp_path / "folder.json")

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError):
            save_graph_def(GraphDef(), tmp_path / "no" / "graph.json")

    @pytest.mark.parametrize("keep", [1, 7, 0.3, 0.9, 0.999])
    def test_cut_short(self, tmp_path: Path, keep: float) -> None:
        data = MLP.read_bytes()
        path = write(tmp_path, "graph.pb", data[: int(keep if keep >= 1 else keep * len(data))])
        with pytest.raises(DataLossError, match=r"graph\.pb' is not a binary GraphDef, or is cut short"):
            load_graph_def(path)
        text = format_graph_def(load_graph_def(MLP), "json")
        path = write(tmp_path, "graph.json", text[: int(keep if keep >= 1 else keep * len(text))])
        with pytest.raises(DataLossError, match=r"graph\.json' is not a GraphDef as JSON, or is cut short"):
            load_graph_def(path)

    @pytest.mark.parametrize(
        "data",
        [
            b"hello world\n",
            b"\x89PNG\r\n\x1a\n",
            b"PK\x03\x04",
            b"\x08\x07\x12\x04test",
            b"{}",
            b"\xfa\x01\x00",
            b"\0" * 9,
        ],
    )
    def test_other_files_named_pb(self, tmp_path: Path, data: bytes) -> None:
        with pytest.raises(DataLossError, match=r"graph\.pb' is not a binary GraphDef"):
            load_graph_def(write(tmp_path, "graph.pb", data))


class TestText:
    def test_the_line_is_named(self, tmp_path: Path) -> None:
        path = write(tmp_path, "graph.pbtxt", 'node {\n  name: "n"\n  operation: "NoOp"\n}\n')
        with pytest.raises(InvalidArgumentError, match=r"graph\.pbtxt', line 3: .*operation"):
            load_graph_def(path)

    @pytest.mark.parametrize(
        "text", ["node {", "node { name: 5 }", "\xff".encode("latin-1"), "versions { producer: 99999999999 }", "}"]
    )
    def test_text_that_is_none(self, tmp_path: Path, text: str | bytes) -> None:
        with pytest.raises((InvalidArgumentError, DataLossError), match=r"graph\.pbtxt'"):
            load_graph_def(write(tmp_path, "graph.pbtxt", text))


class TestJson:
    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ('{"nodes": []}', "nodes: unknown field"),
            ('{"node": [{"name": "n", "ops": "x"}]}', r"node\.0\.ops: unknown field"),
            ('{"node": [{"name": "n", "attr": {"T": {}}}]}', r"node\.0\.attr\.T: exactly one of"),
            ('{"node": [{"name": "n", "attr": {"T": {"type": "DT_X"}}}]}', r"attr\.T\.type: 'DT_X' is not a data type"),
            ('{"node": {"name": "n"}}', "node: "),
            ("[]", "top level: "),
            ('{"node": [1, 2, 3, 4, 5]}', "and 2 more"),
        ],
    )
    def test_what_is_wrong_is_told(self, tmp_path: Path, text: str, what: str) -> None:
        with pytest.raises(InvalidArgumentError, match=rf"graph\.json' is not a GraphDef as JSON: .*{what}"):
            load_graph_def(write(tmp_path, "graph.json", text))

    def test_null_is_the_same_as_leaving_out(self) -> None:
        text = b'{"node": [{"name": "null", "device": null, "attr": {"a": {"i": "1", "b": null}}}], "library": null}'
        assert parse_graph_def(text, "json") == GraphDef(node=(NodeDef(name="null", attr={"a": AttrValue(i=1)}),))

    @pytest.mark.parametrize("text", [b'{"node": null', b'{"node": [null]}', b"null"])
    def test_null_where_it_cannot_be(self, text: bytes) -> None:
        with pytest.raises((InvalidArgumentError, DataLossError)):
            parse_graph_def(text, "json")


class TestValues:
    def test_an_attr_without_value_is_named(self) -> None:
        message = graph_pb2.GraphDef()
        message.node.add(name="n", op="Op").attr["T"].SetInParent()
        with pytest.raises(InvalidArgumentError, match="an attr has no value") as caught:
            graph_def_from_proto(message)
        assert (caught.value.node, caught.value.op) == ("n", "Op")

    def test_a_node_without_name(self) -> None:
        message = graph_pb2.GraphDef()
        message.node.add(name="n")
        message.node.add(op="Op")
        with pytest.raises(InvalidArgumentError, match="node 1 has no name"):
            graph_def_from_proto(message)

    def test_dtype_object_is_for_json_only(self) -> None:
        nodes = (NodeDef(name="n", attr={"T": AttrValue(type=types.object)}),)
        graph = GraphDef(node=nodes)
        assert parse_graph_def(format_graph_def(graph, "json"), "json") == graph
        for format in ("pb", "pbtxt"):
            with pytest.raises(InvalidArgumentError, match="dtype object is not TensorFlow's"):
                format_graph_def(graph, format)  # type: ignore[arg-type]
        message = graph_pb2.GraphDef()
        message.node.add(name="n").attr["T"].type = 1000
        with pytest.raises(InvalidArgumentError, match="dtype object is not TensorFlow's"):
            graph_def_from_proto(message)

    def test_unchecked_values_that_no_file_can_hold(self) -> None:
        graph = GraphDef(node=(NodeDef(name="n", attr={"i": make_attr("i", 2**63)}),))
        with pytest.raises(InvalidArgumentError):
            format_graph_def(graph, "pb")
        graph = GraphDef(node=(NodeDef.model_construct(name="\ud800"),))
        for format in FORMATS:
            with pytest.raises(InvalidArgumentError):
                format_graph_def(graph, format)  # type: ignore[arg-type]

    def test_the_same_key_twice_gives_the_last(self) -> None:
        one, two = (attr_value_pb2.NameAttrList(attr={"k": attr_value_pb2.AttrValue(i=i)}) for i in (1, 2))
        entries = [message.SerializeToString() for message in (one, two)]
        node = b"\x0a\x01n" + b"".join(b"\x2a" + entry[1:] for entry in entries)
        data = b"\x0a" + bytes([len(node)]) + node
        assert graph_pb2.GraphDef.FromString(data).node[0].attr["k"].i == 2
        assert parse_graph_def(data, "pb").node[0].attr["k"] == AttrValue(i=2)


def nested_function(depth: int) -> NameAttrList:
    func = NameAttrList.model_construct(name="F")
    for _ in range(depth):
        func = NameAttrList.model_construct(name="F", attr={"f": make_attr("func", func)})
    return func


class TestNesting:
    """upb refuses messages nested deeper than 100."""

    @pytest.mark.parametrize("depth", [40, 100, 5000])
    def test_binary(self, depth: int) -> None:
        value = b"\x52\x03\x0a\x01F"  # AttrValue.func { name: "F" }
        for _ in range(depth):
            entry = b"\x0a\x01k\x12" + varint(len(value)) + value
            func = b"\x12" + varint(len(entry)) + entry
            value = b"\x52" + varint(len(func)) + func
        entry = b"\x0a\x01k\x12" + varint(len(value)) + value
        node = b"\x0a\x01n\x2a" + varint(len(entry)) + entry
        with pytest.raises((InvalidArgumentError, DataLossError), match="nested deeper"):
            parse_graph_def(b"\x0a" + varint(len(node)) + node, "pb")

    @pytest.mark.parametrize("depth", [40, 100, 5000])
    def test_text(self, depth: int) -> None:
        text = 'node { name: "n" attr { key: "k" value { ' + 'func { name: "F" attr { key: "k" value { ' * depth
        text += "i: 1" + "} } }" * depth + "} } }"
        with pytest.raises((InvalidArgumentError, DataLossError), match="nested deeper"):
            parse_graph_def(text.encode(), "pbtxt")

    @pytest.mark.parametrize("depth", [100, 5000, 100_000])
    def test_json(self, depth: int) -> None:
        text = '{"node":[{"attr":{"k":' + '{"func":{"attr":{"k":' * depth + '{"i":1}' + "}}}" * depth + "}}]}"
        with pytest.raises(OpError):
            parse_graph_def(text.encode(), "json")
        with pytest.raises(OpError):
            parse_graph_def(text.replace("1", "null").encode(), "json")

    def test_full_types(self) -> None:
        deep = full_type_pb2.FullTypeDef()
        at = deep
        for _ in range(300):
            at = at.args.add()
        message = graph_pb2.GraphDef()
        message.node.add(name="n").experimental_type.CopyFrom(deep)
        with pytest.raises((InvalidArgumentError, DataLossError), match="nested deeper"):
            graph_def_from_proto(message)

    # JSON may be nested 200 deep, the others 100 (an attr takes several levels of them).
    @pytest.mark.parametrize(
        ("format", "depth"),
        [(format, 2000) for format in FORMATS] + [(format, 40) for format in FORMATS if format != "json"],
    )
    def test_writing(self, format: str, depth: int) -> None:
        graph = GraphDef(
            node=(NodeDef.model_construct(name="n", attr={"f": make_attr("func", nested_function(depth))}),)
        )
        with pytest.raises(OpError):
            format_graph_def(graph, format)  # type: ignore[arg-type]


def varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


class TestAnyBytes:
    @given(st.binary(max_size=200), st.sampled_from(FORMATS))
    def test_random(self, data: bytes, format: Any) -> None:
        self.parses_or_is_refused(data, format)

    @given(st.data())
    def test_spoilt(self, data: st.DataObject) -> None:
        """A real graph in which a few bytes were changed."""
        format: Any = data.draw(st.sampled_from(FORMATS))
        spoilt = bytearray(SMALL[format])
        for _ in range(data.draw(st.integers(1, 4))):
            spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
        self.parses_or_is_refused(bytes(spoilt), format)

    def parses_or_is_refused(self, data: bytes, format: Any) -> None:
        try:
            graph = parse_graph_def(data, format)
        except OpError:
            return
        assert graph_def_from_proto(graph_def_to_proto(graph)).node == graph.node or "nan" in repr(graph).lower()

    @pytest.mark.parametrize("format", FORMATS)
    def test_file_names_that_are_not_utf_8(self, format: Any) -> None:
        """They are for messages alone: TensorFlow's parser takes them, and so does this, with marks in their place."""
        message = graph_def_to_proto(GraphDef(debug_info=GraphDebugInfo(files=("name",))))
        graph = parse_graph_def(serialize(message, "it").replace(b"name", b"n\x80me"), "pb")
        assert graph.debug_info == GraphDebugInfo(files=("n\ufffdme",))
        assert parse_graph_def(format_graph_def(graph, format), format) == graph


SMALL_TEXT = """
    node { name: "c" op: "Const" attr { key: "value" value { tensor {
      dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 1 } } } attr { key: "dtype" value { type: DT_INT32 } } }
    node { name: "n" op: "Neg" input: "c" attr { key: "T" value { type: DT_INT32 } }
      attr { key: "l" value { list { s: "a" } } } }
    library { function { signature { name: "F" input_arg { name: "x" type: DT_FLOAT } } ret { key: "y" value: "x" } } }
    versions { producer: 21 }
"""
SMALL_GRAPH = graph_def_from_proto(text_format.Parse(SMALL_TEXT, graph_pb2.GraphDef()))
SMALL = {format: format_graph_def(SMALL_GRAPH, format) for format in FORMATS}  # type: ignore[arg-type]


class TestManyThings:
    """Time and memory are linear in the bytes of a file."""

    def test_100_000_nodes(self) -> None:
        message = graph_pb2.GraphDef(versions={"producer": 21})
        for i in range(100_000):
            message.node.add(name=f"n{i}", op="AddV2", input=[f"n{i - 1}", "one"]).attr["T"].type = 1
        data = message.SerializeToString()
        graph = parse_graph_def(data, "pb")
        assert len(graph.node) == 100_000
        assert graph.node[0].attr is graph.node[-1].attr
        assert graph.node[7].input[0] is graph.node[6].name

    def test_unknown_fields_are_passed_over(self) -> None:
        unknown = b"\xc2\x3e\x04junk" * 100_000
        assert len(parse_graph_def(SMALL["pb"] + unknown, "pb").node) == 2

    def test_nodes_of_four_bytes(self) -> None:
        with pytest.raises(InvalidArgumentError, match="node 0 has no name"):
            parse_graph_def(b"\x0a\x02\x0a\x00" * 1_000_000, "pb")

    def test_a_node_with_a_million_inputs(self) -> None:
        message = graph_pb2.GraphDef()
        message.node.add(name="n", input=["x"] * 1_000_000)
        assert len(graph_def_from_proto(message).node[0].input) == 1_000_000

    def test_a_list_of_a_million(self) -> None:
        message = graph_pb2.GraphDef()
        message.node.add(name="n").attr["l"].list.i.extend([1] * 1_000_000)
        value = graph_def_from_proto(message).node[0].attr["l"].list
        assert value is not None
        assert len(value.i) == 1_000_000


def test_json_needs_no_protobuf() -> None:
    program = """
import sys
sys.modules["google.protobuf"] = None
from asyncexec.framework.errors import MissingExtraError
from asyncexec.importers.tf_graph_def import format_graph_def, parse_graph_def
graph = parse_graph_def(b'{"node": [{"name": "n"}]}', "json")
assert format_graph_def(graph, "json").strip().endswith(b"}")
for use in (lambda: parse_graph_def(b"", "pb"), lambda: format_graph_def(graph, "pbtxt")):
    try:
        use()
    except MissingExtraError as error:
        assert "protobuf is needed" in str(error)
        assert 'pip install "asyncexec[tf]"' in str(error)
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)
