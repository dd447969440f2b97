"""SavedModels written by TensorFlow, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.compat.proto import graph_pb2

import asyncexec as ax
from asyncexec.framework import types
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, NotFoundError
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.importers.proto_messages import proto_messages
from asyncexec.importers.tf_graph_def import TensorInfo, load_graph_def, load_saved_model, parse_graph_def

FOLDER = Path(__file__).parents[1] / "golden" / "saved_model"


@pytest.mark.parametrize("path", [FOLDER, FOLDER / "saved_model.pb", FOLDER / "saved_model.pbtxt", str(FOLDER)])
def test_the_graph_tagged_serve_with_its_signatures(path: Path) -> None:
    model = load_saved_model(path)
    assert model.tags == ("serve", "cpu")
    assert {node.name for node in model.graph_def.node} >= {"x", "y", "words", "length"}
    assert model.graph_def == load_graph_def(path)
    default = model.signatures["serving_default"]
    assert default.inputs == {"x": TensorInfo("x:0", types.float32, TensorShape([None, 2]))}
    assert default.outputs == {"y": TensorInfo("y:0", types.float32, TensorShape([None, 1]))}
    assert default.method_name == "tensorflow/serving/predict"


def test_sparse_inputs_are_told_by_their_parts() -> None:
    inputs = load_saved_model(FOLDER).signatures["words"].inputs
    assert inputs["words"] == TensorInfo("words:0", types.string, UNKNOWN_SHAPE)
    assert inputs["sparse/values"] == TensorInfo("sparse/values:0", types.int32, UNKNOWN_SHAPE)
    assert inputs["sparse/indices"].dtype is types.int64


def saved_model(folder: Path, **meta_graph: object) -> Path:
    """A SavedModel file of one graph."""
    message = proto_messages(packed=False).saved_model(saved_model_schema_version=1)
    added = message.meta_graphs.add()
    added.graph_def.node.add(name="n", op="NoOp")
    for key, dtype in meta_graph.items():
        added.signature_def["s"].outputs[key].name = "n:0"
        added.signature_def["s"].outputs[key].dtype = dtype
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
    return folder


def test_the_first_graph_when_none_is_tagged_serve(tmp_path: Path) -> None:
    assert load_saved_model(saved_model(tmp_path)).tags == ()


def test_operations_in_signatures_are_no_tensors(tmp_path: Path) -> None:
    assert load_saved_model(saved_model(tmp_path, init_op=0)).signatures["s"].outputs == {}


def test_a_dtype_that_is_not_known_stops_the_signatures_and_not_the_graph(tmp_path: Path) -> None:
    folder = saved_model(tmp_path, x=77)
    assert load_graph_def(folder).node[0].name == "n"
    with pytest.raises(InvalidArgumentError, match=r"saved_model.pb', in a signature: data type 77"):
        load_saved_model(folder)


def test_a_folder_that_is_no_saved_model(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no saved_model.pb"):
        load_graph_def(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\x08\x01\x12\xff", b"garbage"])
def test_files_that_are_no_saved_model(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "saved_model.pb").write_bytes(data)
    with pytest.raises(DataLossError, match=r"saved_model.pb' is not a SavedModel"):
        load_saved_model(tmp_path)


def test_a_saved_model_under_another_name_is_told_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes((FOLDER / "saved_model.pb").read_bytes())
    with pytest.raises(DataLossError, match="SavedModel is loaded by its folder"):
        load_graph_def(path)


def test_the_packed_classes_read_the_same_bytes() -> None:
    data = (FOLDER / "saved_model.pb").read_bytes()
    plain = proto_messages(packed=False).saved_model.FromString(data)
    packed = proto_messages(packed=True).saved_model.FromString(data)
    for theirs, ours in zip(plain.meta_graphs, packed.meta_graphs, strict=True):
        expected = graph_pb2.GraphDef.FromString(theirs.graph_def.SerializeToString())
        assert graph_pb2.GraphDef.FromString(ours.graph_def.SerializeToString()) == expected


def test_internal_attrs_without_a_value_are_left_out() -> None:
    data = b'node { name: "n" op: "NoOp" attr { key: "_input_shapes" value { } } } library { function { '
    data += b'signature { name: "f" } attr { key: "_input_shapes" value { } } attr { key: "_x" value { i: 1 } } } }'
    graph_def = parse_graph_def(data, "pbtxt")
    assert graph_def.node[0].attr == {}
    assert graph_def.library is not None
    assert list(graph_def.library.function[0].attr) == ["_x"]
    assert parse_graph_def(b'{"node": [{"name": "n", "op": "NoOp", "attr": {"_x": {}}}]}', "json").node[0].attr == {}
    with pytest.raises(InvalidArgumentError, match="an attr has no value"):
        parse_graph_def(data.replace(b"_input_shapes", b"shapes"), "pbtxt")
    with pytest.raises(InvalidArgumentError):
        parse_graph_def(b'{"node": [{"attr": {"x": {}}}]}', "json")


@pytest.mark.parametrize(("producer", "fits"), [(0, True), (21, True), (22, False)])
async def test_scalar_placeholders_of_old_producers_have_an_unknown_shape(producer: int, fits: bool) -> None:
    data = b'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }'
    data += b'attr { key: "shape" value { shape { } } } } versions { producer: %d }' % producer
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_def(data, "pbtxt"))
    assert (graph["x:0"].shape.rank is None) is fits


@pytest.mark.parametrize("name", ["model.pb", "saved_model.pb", "model.json"])
def test_pointers_of_git_lfs_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(DataLossError, match="Git LFS pointer"):
        load_graph_def(tmp_path / name)
