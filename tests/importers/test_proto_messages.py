"""The messages are those of TensorFlow, field by field, as tensorboard carries them; and live beside them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tensorboard.compat.proto import config_pb2, event_pb2, graph_pb2, meta_graph_pb2

from asyncexec.importers.proto_messages import proto_messages

PLAIN, PACKED = proto_messages(packed=False), proto_messages(packed=True)
# Messages of which only those fields are declared that are read or written.
IN_PART = {"RunMetadata", "NodeExecStats", "AllocatorMemoryUsed", "AllocationDescription", "Event"}


def name_of(descriptor: Any) -> str:
    """The name of a message or an enum in its package."""
    names = descriptor.name, *(outer.name for outer in outers_of(descriptor))
    return ".".join(reversed(names))


def outers_of(descriptor: Any) -> Iterator[Any]:
    while descriptor.containing_type is not None:
        descriptor = descriptor.containing_type
        yield descriptor


def field_of(field: Any) -> dict[str, Any]:
    """All that is known of a field but its options."""
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return {
        "name": field.name,
        "json_name": field.json_name,
        "number": field.number,
        "type": field.type,
        "of": kind and name_of(kind),
        "oneof": oneof and oneof.name,
        "is_repeated": field.is_repeated,
        "is_packed": field.is_packed,
        "has_presence": field.has_presence,
        "default": None if field.is_repeated or field.message_type else field.default_value,
    }


def fields_of(descriptor: Any) -> dict[str, dict[str, Any]]:
    return {field.name: field_of(field) for field in descriptor.fields}


def closure(*roots: Any) -> dict[str, Any]:
    """*roots* and all messages and enums that their fields are of, by name."""
    found: dict[str, Any] = {}
    waiting = list(roots)
    while waiting:
        descriptor = waiting.pop()
        if name_of(descriptor) not in found:
            found[name_of(descriptor)] = descriptor
            kinds = [field.message_type or field.enum_type for field in getattr(descriptor, "fields", ())]
            waiting += filter(None, kinds)
    return found


OURS = closure(*(PLAIN.saved_model.DESCRIPTOR.fields_by_name["meta_graphs"].message_type,))
EVENTS = closure(PLAIN.event.DESCRIPTOR, PLAIN.run_metadata.DESCRIPTOR)
THEIRS = closure(meta_graph_pb2.MetaGraphDef.DESCRIPTOR, event_pb2.Event.DESCRIPTOR, config_pb2.RunMetadata.DESCRIPTOR)
ALL = OURS | EVENTS
MESSAGES = sorted(name for name, descriptor in ALL.items() if hasattr(descriptor, "fields"))
ENUMS = sorted(ALL.keys() - set(MESSAGES))


def test_all_that_a_saved_model_may_hold_is_declared() -> None:
    assert OURS.keys() == closure(meta_graph_pb2.MetaGraphDef.DESCRIPTOR).keys()
    assert len(MESSAGES) > 90
    assert len(ENUMS) == 7


@pytest.mark.parametrize("name", MESSAGES)
def test_each_field_is_tensorflows(name: str) -> None:
    ours, theirs = fields_of(ALL[name]), fields_of(THEIRS[name])
    if name in IN_PART:
        assert ours.items() <= theirs.items()
        assert ours != theirs
    else:
        assert ours == theirs
    assert ALL[name].GetOptions().map_entry == THEIRS[name].GetOptions().map_entry


@pytest.mark.parametrize("name", ENUMS)
def test_each_enum_is_tensorflows(name: str) -> None:
    ours, theirs = ({value.name: value.number for value in each[name].values} for each in (ALL, THEIRS))
    assert ours.items() >= theirs.items()  # an older tensorboard knows fewer data types
    assert name == "DataType" or ours == theirs


def test_a_saved_model_as_its_file_declares_it() -> None:
    """``saved_model.proto`` is not among tensorboard's."""
    fields = fields_of(PLAIN.saved_model.DESCRIPTOR)
    assert {name: field["number"] for name, field in fields.items()} == {
        "saved_model_schema_version": 1,
        "meta_graphs": 2,
    }


def test_packed_nodes_differ_in_their_attrs_alone() -> None:
    plain, packed = (closure(each.graph_def.DESCRIPTOR) for each in (PLAIN, PACKED))
    assert plain.keys() - packed.keys() == {"NodeDef.AttrEntry"}
    for name in packed.keys() - set(ENUMS):
        ours, theirs = fields_of(packed[name]), fields_of(plain[name])
        assert {field for field in ours if ours[field] != theirs[field]} == ({"attr"} if name == "NodeDef" else set())
    entry = fields_of(PACKED.attr_entry.DESCRIPTOR)
    assert entry == fields_of(plain["NodeDef.AttrEntry"])


def test_unknown_fields_are_kept() -> None:
    unknown = b"\xc2\x3e\x04junk"
    for message in (PLAIN.graph_def, PACKED.graph_def, PLAIN.saved_model, PLAIN.run_metadata, PLAIN.event):
        assert message.FromString(unknown).SerializeToString() == unknown


def test_enums_have_their_names_in_text() -> None:
    text = 'node {\n  name: "n"\n  attr {\n    key: "T"\n    value {\n      type: DT_FLOAT_REF\n    }\n  }\n}\n'
    message = text_format.Parse(text, PLAIN.graph_def())
    assert message.node[0].attr["T"].type == 101
    assert text_format.MessageToString(message) == text
    message.node[0].attr["T"].type = 99  # of a data type that is not known, its number
    assert "type: 99" in text_format.MessageToString(message)


GOLDEN = Path(__file__).parents[1] / "golden"
GRAPHS = sorted((GOLDEN / "functions").glob("*.pb"))


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_graphs_with_functions_are_read_alike(path: Path) -> None:
    ours, theirs = (kind.FromString(path.read_bytes()) for kind in (PLAIN.graph_def, graph_pb2.GraphDef))
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)
    text = text_format.MessageToString(ours)
    assert text == text_format.MessageToString(theirs)
    assert text_format.Parse(text, PLAIN.graph_def()) == ours


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_saved_models_are_read_alike(name: str) -> None:
    data = (GOLDEN / "saved_model" / name).read_bytes()
    if name.endswith(".pb"):
        message = PLAIN.saved_model.FromString(data)
    else:
        message = text_format.Parse(data.decode(), PLAIN.saved_model())
    assert message.meta_graphs
    for ours in message.meta_graphs:
        theirs = meta_graph_pb2.MetaGraphDef.FromString(ours.SerializeToString())
        assert text_format.MessageToString(ours) == text_format.MessageToString(theirs)
        assert text_format.MessageToString(ours, print_unknown_fields=True) == text_format.MessageToString(ours)


def test_threads_that_ask_first_get_the_same_classes() -> None:
    program = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from asyncexec.importers.proto_messages import proto_messages
barrier = threading.Barrier(8)
sys.setswitchinterval(1e-6)
def ask(_):
    barrier.wait()
    return proto_messages(packed=True).graph_def
with ThreadPoolExecutor(8) as pool:
    assert len(set(pool.map(ask, range(8)))) == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True)


MODULES = {
    "tensorboard": "from tensorboard.compat.proto import graph_pb2",
    "ours": "from asyncexec.importers.proto_messages import proto_messages; proto_messages(packed=False).saved_model",
}


@pytest.mark.parametrize("order", list(itertools.permutations(MODULES)), ids="-".join)
def test_they_live_beside_others_in_one_process(order: tuple[str, ...]) -> None:
    program = [MODULES[name] for name in order]
    program += [
        "ours = proto_messages(packed=False).graph_def(version=3)",
        "assert graph_pb2.GraphDef.FromString(ours.SerializeToString()).version == 3",
        "from google.protobuf import descriptor_pool",
        "default = descriptor_pool.Default()",
        "try: default.FindMessageTypeByName('asyncexec.GraphDef')",
        "except KeyError: pass",
        "else: raise AssertionError",
    ]
    subprocess.run([sys.executable, "-W", "error", "-c", "\n".join(program)], check=True)


@pytest.mark.oracle
@pytest.mark.parametrize("first", ["ours", "tensorflow"])
def test_they_live_beside_tensorflow(first: str) -> None:
    program = ["import tensorflow as tf", MODULES["ours"]]
    program = program[:: -1 if first == "ours" else 1]
    program += [
        "ours = proto_messages(packed=False).graph_def(version=3)",
        "assert tf.compat.v1.GraphDef.FromString(ours.SerializeToString()).version == 3",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(program)], check=True)
