"""Classes of protobuf messages, made from tables of what the messages are on the wire.

A table is the name, the kind and the number of each field, by message.  ``name:kind=number`` is a field;
``choice.name`` one of the fields of the oneof *choice*; ``kind*`` a repeated field; ``key>value`` a map.  A kind is a
scalar type of protobuf, a message or an enum.  ``NAME=number`` is a value of an enum.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
from typing import Any, Final, NamedTuple

from asyncexec.framework.extras import require


class ProtoFile(NamedTuple):
    """What one file declares, and the files that it needs, by name."""

    table: str
    dependencies: tuple[str, ...] = ()
    syntax: str = "proto3"


# Numbers of FieldDescriptorProto.
_ONE, _REPEATED, _MESSAGE, _ENUM = 1, 3, 11, 14
_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sint64": 18,
}
_PACKED: Final = ("fixed64*",)  # in proto2; in proto3 all numbers are


class MessagePool:
    """Message classes of one descriptor pool, each made when it is first asked for.

    The pool is its own, so that whatever declares the same messages may be in the same process.

    Args:
        package: of the messages.
        files: what they are, by the names of files.
        enums: the values of enums that stand in no table, by name.
        replaced: a message, a kind of its fields, and what to declare in its place.
        extra: what to install where protobuf is missing.
    """

    def __init__(
        self,
        package: str,
        files: Mapping[str, ProtoFile],
        *,
        enums: Mapping[str, Mapping[str, int]] | None = None,
        replaced: tuple[str, str, str] | None = None,
        extra: str,
    ) -> None:
        self._extra = extra
        self._pool = require("google.protobuf.descriptor_pool", extra=extra).DescriptorPool()
        self._package = package
        self._files = files
        self._enums: Mapping[str, Mapping[str, int]] = enums or {}
        self._replaced = replaced
        self._classes: dict[str, Any] = {}
        self._added: set[str] = set()
        self._lock = threading.RLock()

    def message(self, name: str, file: str) -> Any:
        """The class of the messages called *name*, which *file* declares."""
        with self._lock:
            if name not in self._classes:
                self._add_file(file)
                self._classes[name] = message_class(self._pool.FindMessageTypeByName(f"{self._package}.{name}"))
            return self._classes[name]

    def file(self, name: str) -> Any:
        """The FileDescriptor of the file called *name*."""
        with self._lock:
            self._add_file(name)
            return self._pool.FindFileByName(self._path(name))

    def _add_file(self, name: str) -> None:
        """Add what the file called *name* declares, after those that it depends on."""
        if name in self._added:
            return
        file = self._files[name]
        for dependency in file.dependencies:
            self._add_file(dependency)
        declared = require("google.protobuf.descriptor_pb2", extra=self._extra).FileDescriptorProto(
            name=self._path(name),
            package=self._package,
            syntax=file.syntax,
            dependency=map(self._path, file.dependencies),
        )
        self._declare(declared, file.table)
        self._pool.Add(declared)
        self._added.add(name)

    def _path(self, file: str) -> str:
        return f"{self._package}/{file}.proto"

    def _declare(self, file: Any, table: str) -> None:
        """Declare the messages and enums of *table* in *file*, a FileDescriptorProto."""
        entries: list[tuple[str, list[str]]] = []
        for token in table.split():
            if "=" in token:
                entries[-1][1].append(token)
            else:
                entries.append((token, []))
        here = {name: _numbers(tokens) for name, tokens in entries if tokens and ":" not in tokens[0]}
        enums = {**self._enums, **here}
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
                if self._replaced is not None and full_name == self._replaced[0]:
                    token = token.replace(*self._replaced[1:])
                self._add_field(message, full_name, token, enums)

    def _add_field(self, message: Any, full_name: str, token: str, enums: Container[str]) -> None:
        """Add the field that *token* tells of to *message*."""
        name, _, rest = token.partition(":")
        kind, _, number = rest.partition("=")
        choice, _, name = name.rpartition(".")
        key, is_map, value = kind.partition(">")
        label = _REPEATED if is_map or kind[-1] == "*" else _ONE
        field = message.field.add(name=name, number=int(number), label=label)
        if choice:
            if not message.oneof_decl:
                message.oneof_decl.add(name=choice)
            field.oneof_index = 0  # no message has two
        if is_map:
            entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry", options={"map_entry": True})
            self._set_kind(entry.field.add(name="key", number=1, label=_ONE), key, enums)
            self._set_kind(entry.field.add(name="value", number=2, label=_ONE), value, enums)
            kind = f"{full_name}.{entry.name}"
        self._set_kind(field, kind.rstrip("*"), enums)
        if kind in _PACKED:
            field.options.packed = True

    def _set_kind(self, field: Any, kind: str, enums: Container[str]) -> None:
        number = _SCALARS.get(kind)
        if number is None:
            field.type_name = f".{self._package}.{kind}"
            number = _ENUM if kind in enums else _MESSAGE
        field.type = number


def message_class(descriptor: object) -> Any:
    """The class of messages of *descriptor*."""
    return require("google.protobuf.message_factory", extra="tf").GetMessageClass(descriptor)


def _numbers(tokens: list[str]) -> dict[str, int]:
    return {name: int(number) for name, _, number in (token.partition("=") for token in tokens)}
