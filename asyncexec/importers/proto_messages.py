"""The protobuf classes of GraphDef and SavedModel, made from the descriptors in ``tensorboard.compat.proto``.

Reading attributes of protobuf messages is what loading costs: a node with three attrs makes a dozen small objects.
So there is a second set of classes, the *packed* ones, on the same wire format, in which ``NodeDef.attr`` is declared
as repeated bytes: on the wire a map is a repeated field of entries, and an entry left as bytes is a key for a dict of
those seen before.  ``saved_model.proto`` is not among tensorboard's and is declared here; it has two fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from asyncexec.framework.extras import require

_ATTR_ENTRY_FILE: Final = "asyncexec/attr_entry.proto"
_SAVED_MODEL_FILE: Final = "asyncexec/saved_model.proto"


@dataclass(frozen=True, slots=True)
class ProtoMessages:
    """Message classes of one descriptor pool.

    Attributes:
        graph_def: GraphDef.
        saved_model: SavedModel; its MetaGraphDefs hold GraphDefs of the same pool.
        attr_entry: one entry of ``map<string, AttrValue>``: fields ``key`` and ``value``.
    """

    graph_def: Any
    saved_model: Any
    attr_entry: Any


def plain_graph_def() -> Any:
    """The class ``GraphDef`` of tensorboard."""
    return require("tensorboard.compat.proto.graph_pb2", extra="tf").GraphDef


@cache
def proto_messages(*, packed: bool) -> ProtoMessages:
    """The message classes; with *packed*, ``NodeDef.attr`` is a list of entries as bytes.

    Raises:
        MissingExtraError: extra ``tf`` is not installed.
    """
    meta_graph = require("tensorboard.compat.proto.meta_graph_pb2", extra="tf")
    pool = require("google.protobuf.descriptor_pool", extra="tf").DescriptorPool()
    _add_file(pool, meta_graph.DESCRIPTOR, packed)
    package = meta_graph.DESCRIPTOR.package
    attr_value = _file_of(meta_graph.DESCRIPTOR, "AttrValue")
    entry = [("key", 1, "string"), ("value", 2, f".{package}.AttrValue")]
    saved_model = [("saved_model_schema_version", 1, "int64"), ("meta_graphs", 2, f"*.{package}.MetaGraphDef")]
    _declare(pool, _ATTR_ENTRY_FILE, "AttrEntry", entry, attr_value)
    _declare(pool, _SAVED_MODEL_FILE, "SavedModel", saved_model, meta_graph.DESCRIPTOR.name)
    return ProtoMessages(
        message_class(pool.FindMessageTypeByName(f"{package}.GraphDef")),
        message_class(pool.FindMessageTypeByName("asyncexec.SavedModel")),
        message_class(pool.FindMessageTypeByName("asyncexec.AttrEntry")),
    )


def message_class(descriptor: Any) -> Any:
    """The class of messages of *descriptor*."""
    return require("google.protobuf.message_factory", extra="tf").GetMessageClass(descriptor)


def _add_file(pool: Any, file: Any, packed: bool) -> None:
    """Copy a file's descriptors, and those it depends on, into *pool*."""
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        for dependency in file.dependencies:
            _add_file(pool, dependency, packed)
        copy = require("google.protobuf.descriptor_pb2", extra="tf").FileDescriptorProto()
        file.CopyToProto(copy)
        for message in copy.message_type:
            if packed and message.name == "NodeDef":
                _pack_attrs(message)
        pool.Add(copy)


def _pack_attrs(node_def: Any) -> None:
    (attr,) = (field for field in node_def.field if field.name == "attr")
    attr.type = attr.TYPE_BYTES
    attr.ClearField("type_name")
    (entry,) = (nested for nested in node_def.nested_type if nested.name == "AttrEntry")
    node_def.nested_type.remove(entry)


def _file_of(file: Any, message: str) -> str:
    """Name of the file that declares *message*, among *file* and those it depends on."""
    waiting: list[Any] = [file]
    seen: set[str] = set()
    while waiting:
        found = waiting.pop()
        if message in found.message_types_by_name:
            return str(found.name)
        waiting += [each for each in found.dependencies if each.name not in seen]
        seen.update(each.name for each in waiting)
    raise LookupError(message)


def _declare(pool: Any, file: str, message: str, fields: list[tuple[str, int, str]], dependency: str) -> None:
    """Add a message of scalar, message (``.name``) and repeated message (``*.name``) fields to *pool*."""
    proto = require("google.protobuf.descriptor_pb2", extra="tf").FileDescriptorProto(
        name=file, package="asyncexec", syntax="proto3", dependency=[dependency]
    )
    declared = proto.message_type.add(name=message)
    for name, number, kind in fields:
        field = declared.field.add(name=name, number=number, label=3 if kind.startswith("*") else 1)
        kind = kind.removeprefix("*")
        if kind.startswith("."):
            field.type, field.type_name = field.TYPE_MESSAGE, kind
        else:
            field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool.Add(proto)
