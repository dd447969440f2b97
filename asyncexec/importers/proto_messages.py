"""The protobuf classes of TensorFlow's messages, made from the tables of :mod:`asyncexec.importers.proto_tables`.

They live in pools and in a package of their own, so that TensorFlow, tensorboard or whatever else brings its own may be
in the same process.

Reading attributes of protobuf messages is what loading costs: a node with three attrs makes a dozen small objects.
So there is a second set of classes, the *packed* ones, on the same wire format, in which ``NodeDef.attr`` is declared
as repeated bytes: on the wire a map is a repeated field of entries, and an entry left as bytes is a key for a dict of
those seen before.
"""

from __future__ import annotations

import threading
from collections.abc import Container
from functools import cache
from typing import Any, Final, NamedTuple

from asyncexec.framework.extras import require
from asyncexec.framework.types import object as object_dtype
from asyncexec.framework.wire_types import DATA_TYPES, FULL_TYPES
from asyncexec.importers import proto_tables

_PACKAGE: Final = "asyncexec"
# What is seen first of two pools made at a time would not know the messages of the other.
_LOCK: Final = threading.RLock()


class _File(NamedTuple):
    table: str
    dependencies: tuple[str, ...]
    syntax: str = "proto3"


_FILES: Final = {
    "debug_info": _File(proto_tables.DEBUG_INFO, (), "proto2"),
    "graph": _File(proto_tables.GRAPH, ("debug_info",)),
    "saved_model": _File(proto_tables.SAVED_MODEL, ("graph",)),
    "events": _File(proto_tables.EVENTS, ("graph",)),
}
# Numbers of FieldDescriptorProto.
_ONE, _REPEATED, _MESSAGE, _ENUM = 1, 3, 11, 14
_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sint64": 18,
}
_PACKED: Final = ("fixed64*",)  # in proto2; in proto3 all numbers are
# Enums whose values stand in no table: the numbers of their values, by name.
_LARGE_ENUMS: Final[dict[str, dict[str, int]]] = {
    "DataType": {name: number for name, number in DATA_TYPES.numbers.items() if number != object_dtype.enum},
    "FullTypeId": dict(FULL_TYPES.numbers),
}


class ProtoMessages:
    """Message classes of one descriptor pool, each made when it is first asked for."""

    def __init__(self, *, packed: bool) -> None:
        self._pool = require("google.protobuf.descriptor_pool", extra="tf").DescriptorPool()
        self._is_packed = packed
        self._classes: dict[str, Any] = {}
        self._added: set[str] = set()

    @property
    def graph_def(self) -> Any:
        """GraphDef."""
        return self._class("GraphDef", "graph")

    @property
    def attr_entry(self) -> Any:
        """One entry of ``map<string, AttrValue>``: fields ``key`` and ``value``."""
        return self._class("AttrEntry", "graph")

    @property
    def saved_model(self) -> Any:
        """SavedModel; its MetaGraphDefs hold GraphDefs of the same pool."""
        return self._class("SavedModel", "saved_model")

    @property
    def run_metadata(self) -> Any:
        """RunMetadata."""
        return self._class("RunMetadata", "events")

    @property
    def event(self) -> Any:
        """Event, a record of the files that TensorBoard reads."""
        return self._class("Event", "events")

    def _class(self, name: str, file: str) -> Any:
        with _LOCK:
            if name not in self._classes:
                self._add_file(file)
                self._classes[name] = message_class(self._pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
            return self._classes[name]

    def _add_file(self, name: str) -> None:
        """Add what the file called *name* declares, after those that it depends on."""
        if name in self._added:
            return
        file = _FILES[name]
        for dependency in file.dependencies:
            self._add_file(dependency)
        declared = require("google.protobuf.descriptor_pb2", extra="tf").FileDescriptorProto(
            name=_path(name), package=_PACKAGE, syntax=file.syntax, dependency=map(_path, file.dependencies)
        )
        _declare(declared, file.table, is_packed=self._is_packed)
        self._pool.Add(declared)
        self._added.add(name)


def proto_messages(*, packed: bool) -> ProtoMessages:
    """The message classes; with *packed*, ``NodeDef.attr`` is a list of entries as bytes.

    Raises:
        MissingExtraError: extra ``tf`` is not installed.
    """
    with _LOCK:
        return _proto_messages(packed)


@cache
def _proto_messages(packed: bool) -> ProtoMessages:
    return ProtoMessages(packed=packed)


def message_class(descriptor: Any) -> Any:
    """The class of messages of *descriptor*."""
    return require("google.protobuf.message_factory", extra="tf").GetMessageClass(descriptor)


def _path(file: str) -> str:
    return f"{_PACKAGE}/{file}.proto"


def _declare(file: Any, table: str, *, is_packed: bool) -> None:
    """Declare the messages and enums of *table* in *file*, a FileDescriptorProto."""
    entries: list[tuple[str, list[str]]] = []
    for token in table.split():
        if "=" in token:
            entries[-1][1].append(token)
        else:
            entries.append((token, []))
    enums = _LARGE_ENUMS | {name: _numbers(tokens) for name, tokens in entries if tokens and ":" not in tokens[0]}
    messages: dict[str, Any] = {}
    for full_name, tokens in entries:
        parent, _, name = full_name.rpartition(".")
        holder = messages[parent] if parent else file
        if full_name in enums:
            enum = holder.enum_type.add(name=name)
            for value, number in enums[full_name].items():
                enum.value.add(name=value, number=number)
            continue
        message = messages[full_name] = (holder.nested_type if parent else holder.message_type).add(name=name)
        for token in tokens:
            if is_packed and full_name == "NodeDef":
                token = token.replace("string>AttrValue", "bytes*")
            _add_field(message, full_name, token, enums)


def _numbers(tokens: list[str]) -> dict[str, int]:
    return {name: int(number) for name, _, number in (token.partition("=") for token in tokens)}


def _add_field(message: Any, full_name: str, token: str, enums: Container[str]) -> None:
    """Add the field that *token* tells of to *message*."""
    name, _, rest = token.partition(":")
    kind, _, number = rest.partition("=")
    choice, _, name = name.rpartition(".")
    key, is_map, value = kind.partition(">")
    field = message.field.add(name=name, number=int(number), label=_REPEATED if is_map or kind[-1] == "*" else _ONE)
    if choice:
        if not message.oneof_decl:
            message.oneof_decl.add(name=choice)
        field.oneof_index = 0  # no message has two
    if is_map:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry", options={"map_entry": True})
        _set_kind(entry.field.add(name="key", number=1, label=_ONE), key, enums)
        _set_kind(entry.field.add(name="value", number=2, label=_ONE), value, enums)
        kind = f"{full_name}.{entry.name}"
    _set_kind(field, kind.rstrip("*"), enums)
    if kind in _PACKED:
        field.options.packed = True


def _set_kind(field: Any, kind: str, enums: Container[str]) -> None:
    number = _SCALARS.get(kind)
    if number is None:
        field.type_name = f".{_PACKAGE}.{kind}"
        number = _ENUM if kind in enums else _MESSAGE
    field.type = number
