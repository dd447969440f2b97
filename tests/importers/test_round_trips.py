"""Every graph of the oracle set survives each format unchanged, as protobuf itself reads and writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, text_format
from tensorboard.compat.proto import graph_pb2

from asyncexec.framework.graph_def import GraphDef
from asyncexec.importers.tf_graph_def import (
    format_graph_def,
    graph_def_from_proto,
    graph_def_to_proto,
    load_graph_def,
    parse_graph_def,
    save_graph_def,
)

FOLDER = Path(__file__).parents[1] / "golden" / "tf"
CASES = sorted(path.parent.name for path in FOLDER.glob("*/graph.pb"))


def message(case: str) -> graph_pb2.GraphDef:
    return graph_pb2.GraphDef.FromString((FOLDER / case / "graph.pb").read_bytes())


def graph(case: str) -> GraphDef:
    return load_graph_def(FOLDER / case / "graph.pb")


def test_the_oracle_graphs_are_here() -> None:
    assert len(CASES) >= 106


@pytest.mark.parametrize("case", CASES)
def test_binary_round_trip_gives_the_same_bytes(case: str) -> None:
    expected = message(case).SerializeToString(deterministic=True)
    assert format_graph_def(graph(case), "pb") == expected
    ours = graph_def_to_proto(graph(case))
    assert ours.SerializeToString(deterministic=True) == expected
    assert text_format.MessageToString(ours) == text_format.MessageToString(message(case))


@pytest.mark.parametrize("case", CASES)
def test_json_is_what_protobuf_writes(case: str) -> None:
    ours = json.loads(format_graph_def(graph(case), "json"))
    assert ours == json.loads(json_format.MessageToJson(message(case)))


@pytest.mark.parametrize("case", CASES)
def test_json_of_protobuf_is_read_in_both_spellings(case: str) -> None:
    expected = format_graph_def(graph(case), "pb")
    for keep_proto_names in (False, True):
        text = json_format.MessageToJson(message(case), preserving_proto_field_name=keep_proto_names)
        assert format_graph_def(parse_graph_def(text.encode(), "json"), "pb") == expected


@pytest.mark.parametrize("case", CASES)
def test_text_round_trip(case: str) -> None:
    text = format_graph_def(graph(case), "pbtxt")
    assert text_format.Parse(text, graph_pb2.GraphDef()) == message(case)
    assert format_graph_def(parse_graph_def(text, "pbtxt"), "pb") == format_graph_def(graph(case), "pb")


@pytest.mark.parametrize("suffix", [".pb", ".pbtxt", ".json"])
def test_files_round_trip_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"graph{suffix}"
    save_graph_def(graph("model_mlp64"), path)
    assert load_graph_def(path) == graph("model_mlp64")


def test_every_field_of_the_protos_has_a_place() -> None:
    """A message with all of its fields set comes back with all of them."""
    full = full_graph()
    model = graph_def_from_proto(full)
    assert of_tensorboard(graph_def_to_proto(model)) == full
    assert json.loads(format_graph_def(model, "json")) == json.loads(json_format.MessageToJson(full))
    assert of_tensorboard(graph_def_to_proto(parse_graph_def(format_graph_def(model, "json"), "json"))) == full
    assert of_tensorboard(graph_def_to_proto(parse_graph_def(format_graph_def(model, "pbtxt"), "pbtxt"))) == full


def of_tensorboard(ours: Any) -> graph_pb2.GraphDef:
    """The message that tensorboard's class makes of the bytes of *ours*."""
    return graph_pb2.GraphDef.FromString(ours.SerializeToString())


def full_graph() -> graph_pb2.GraphDef:
    text = """
        node {
          name: "n" op: "Op" input: "a:1" input: "^b" device: "/cpu:0"
          attr { key: "s" value { s: "\\377\\000" } }  attr { key: "i" value { i: -9223372036854775808 } }
          attr { key: "f" value { f: 0.1 } }  attr { key: "nan" value { f: nan } }
          attr { key: "inf" value { f: -inf } }
          attr { key: "b" value { b: false } }  attr { key: "t" value { type: DT_FLOAT_REF } }
          attr { key: "unknown" value { type: DT_FLOAT8_E4M3FNUZ } }  attr { key: "zero" value { type: DT_INVALID } }
          attr { key: "shape" value { shape { dim { size: -1 name: "d" } dim {} } } }
          attr { key: "no_rank" value { shape { unknown_rank: true } } }
          attr { key: "p" value { placeholder: "T" } }  attr { key: "empty" value { list {} } }
          attr { key: "func" value { func { name: "F" attr { key: "T" value { type: DT_INT8 } } } } }
          attr { key: "list" value { list {
            s: "x" i: 1 i: 2 f: 1.5 b: true b: false type: DT_HALF shape {} tensor { dtype: DT_FLOAT }
            func { name: "G" }
          } } }
          attr { key: "tensor" value { tensor {
            dtype: DT_VARIANT tensor_shape { dim { size: 2 } } version_number: 1 tensor_content: "abc"
            half_val: 1 float_val: 1e-45 float_val: 3.4e38 double_val: 0.1 int_val: -1 string_val: "s"
            scomplex_val: 1 scomplex_val: 2 int64_val: 5 bool_val: true dcomplex_val: 3 uint32_val: 4294967295
            uint64_val: 18446744073709551615 float8_val: "8"
            resource_handle_val { device: "d" container: "c" name: "n" hash_code: 7 maybe_type_name: "t"
                                  dtypes_and_shapes { dtype: DT_FLOAT shape {} } }
            variant_val { type_name: "t" metadata: "m" tensors { dtype: DT_INT32 } }
          } } }
          experimental_debug_info { original_node_names: "o" original_func_names: "f" }
          experimental_type {
            type_id: TFT_PRODUCT args { type_id: TFT_TENSOR args { type_id: TFT_FLOAT } } args { s: "" }
          }
        }
        library {
          function {
            signature {
              name: "F" input_arg { name: "x" type_attr: "T" experimental_full_type { type_id: TFT_ANY i: 3 } }
              input_arg { name: "y" type: DT_INT64 is_ref: true number_attr: "N" description: "d"
                          handle_data { dtype: DT_FLOAT } }
              output_arg { name: "z" type_list_attr: "L" }  control_output: "c"
              attr { name: "T" type: "type" default_value { type: DT_INT8 } has_minimum: true minimum: 2
                     description: "q" allowed_values { list { type: DT_INT8 } } }
              deprecation { version: 8 explanation: "old" } summary: "s" description: "d"
              is_commutative: true is_aggregate: true is_stateful: true allows_uninitialized_input: true
              is_distributed_communication: true
            }
            attr { key: "_a" value { b: true } }
            arg_attr { key: 0 value { attr { key: "_b" value { i: 1 } } } }  arg_attr { key: 3 value {} }
            resource_arg_unique_id { key: 1 value: 2 }
            node_def { name: "m" op: "Neg" input: "x" }
            ret { key: "z" value: "m:y:0" }  control_ret { key: "c" value: "m" }
          }
          gradient { function_name: "F" gradient_func: "G" }
          registered_gradients { gradient_func: "G" registered_op_type: "Op" }
        }
        versions { producer: 2474 min_consumer: 12 bad_consumers: 3 bad_consumers: 4 }
        version: 21
        debug_info {
          files: "f.py" frames_by_id { key: 1 value { file_index: 0 line: 2 col: 3 func: "" code: "x" } }
          traces_by_id { key: 2 value { frame_id: 1 file_line_cols { line: 1 } } }
          traces { key: "n" value { frame_id: 1 } } name_to_trace_id { key: "n" value: 2 }
        }
    """
    return text_format.Parse(text, graph_pb2.GraphDef())
