"""Protobuf messages of GraphDef <-> the pydantic models of :mod:`asyncexec.framework.graph_def`.

Both directions follow the descriptors field by field.  Nodes, of which there are many, go a faster way: the bytes of
an attr are looked up among those met before (most nodes share theirs with thousands of others).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from asyncexec.framework import graph_def as models
from asyncexec.framework import tensor_protos
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import AttrValue, GraphDef, NodeDef, make_attr
from asyncexec.framework.message_pool import message_class
from asyncexec.framework.tensor_protos import TensorProto, TensorShapeProto
from asyncexec.framework.types import object as object_dtype
from asyncexec.framework.wire_types import WireModel
from asyncexec.importers.proto_contents import Contents, sliced
from asyncexec.importers.proto_messages import proto_messages

_OTHER_NAMES: Final[dict[str, type[WireModel]]] = {
    "AttrValue.ListValue": models.ListValue,
    "FunctionDef.ArgAttrs": models.ArgAttrs,
    "GraphDebugInfo.FileLineCol": models.FileLineCol,
    "GraphDebugInfo.StackTrace": models.StackTrace,
    "NodeDef.ExperimentalDebugInfo": models.ExperimentalDebugInfo,
    "OpDef": models.OpDefProto,
    "OpDef.ArgDef": models.ArgDefProto,
    "OpDef.AttrDef": models.AttrDefProto,
    "ResourceHandleProto.DtypeAndShape": tensor_protos.DtypeAndShape,
    "TensorShapeProto.Dim": tensor_protos.DimProto,
}
# Attrs of a node are remembered up to this size: larger ones are tensors, which are seldom alike.
_MAX_REMEMBERED_BYTES: Final = 256
# Of proto2, where a parser does not look whether text is UTF-8, and gives bytes where it is not.
_UNCHECKED_TEXT: Final = ("GraphDebugInfo", "GraphDebugInfo.FileLineCol")


def _model_of(descriptor: Any) -> type[WireModel]:
    name = descriptor.full_name.partition(".")[2]
    found: type[WireModel] | None = _OTHER_NAMES.get(name) or getattr(models, name, None)
    return found or getattr(tensor_protos, name)


def _refuse_object(number: int) -> int:
    if number == object_dtype.enum:
        raise InvalidArgumentError(
            "dtype object is not TensorFlow's and has no binary form", hint="keep such a graph as .json"
        )
    return number


class GraphReader:
    """Turns messages of the packed classes into models; what it met before it gives again.

    Args:
        data: what a GraphDef was parsed from; contents: where in it those of tensors are that its nodes lack.
    """

    def __init__(self, data: bytes = b"", contents: Contents | None = None) -> None:
        self._data = data
        self._contents: Contents = {} if contents is None else contents
        self._attr_entry = proto_messages(packed=True).attr_entry
        self._by_type: dict[str, Callable[[Any], Any]] = {}
        self._names: dict[str, str] = {}
        self._entries: dict[bytes, tuple[str, AttrValue]] = {}
        self._attrs: dict[tuple[bytes, ...], Mapping[str, AttrValue]] = {}
        self._shapes: dict[bytes, TensorShapeProto] = {}
        self._read_attr_value = self._reader_of(self._attr_entry.DESCRIPTOR.fields_by_name["value"].message_type)

    def read(self, message: Any) -> Any:
        """The model of *message*."""
        return self._reader_of(message.DESCRIPTOR)(message)

    def _reader_of(self, descriptor: Any) -> Callable[[Any], Any]:
        """What reads messages of *descriptor*."""
        found = self._by_type.get(descriptor.full_name)
        if found is not None:
            return found
        fields: dict[object, tuple[str, Callable[[Any], Any] | None]] = {}
        model = _model_of(descriptor)
        reader = _attr_value_reader(fields) if model is AttrValue else _fields_reader(model, fields)
        if model is TensorShapeProto:
            reader = self._shared_shape(reader)
        self._by_type[descriptor.full_name] = reader  # before its fields' readers are made: types refer to themselves
        defaults = model.field_defaults()
        for field in descriptor.fields:
            fields[field] = (field.name, self._field_reader(field, defaults[field.name]))
        return reader

    def _field_reader(self, field: Any, default: object) -> Callable[[Any], Any] | None:
        """What turns the value of *field* into that of the model; None when it is the same."""
        one: Callable[[Any], Any] | None = None
        if isinstance(default, Mapping):
            inner = field.message_type.fields_by_name["value"].message_type
            if inner is None:
                return dict
            read = self._reader_of(inner)
            if inner.name == "AttrValue":
                return lambda values: {key: read(values[key]) for key in values if not _is_left_out(key, values[key])}
            return lambda values: {key: read(values[key]) for key in values}
        if field.message_type is not None and field.message_type.name == "NodeDef":
            is_graph = field.containing_type.name == "GraphDef"
            return partial(self._read_nodes, self._contents if is_graph else {})
        if field.message_type is not None:
            one = self._reader_of(field.message_type)
        elif field.enum_type is not None and field.enum_type.name == "DataType":
            one = _refuse_object
        elif field.containing_type.full_name.endswith(_UNCHECKED_TEXT):
            one = _as_text
        if isinstance(default, tuple):
            return tuple if one is None else lambda values: tuple(map(one, values))
        return one

    def _shared_shape(self, read: Callable[[Any], Any]) -> Callable[[Any], object]:
        def read_shape(message: Any) -> object:
            key = message.SerializeToString()
            found = self._shapes.get(key)
            if found is None:
                found = self._shapes[key] = read(message)
            return found

        return read_shape

    def _read_nodes(self, contents: Contents, messages: Any) -> tuple[NodeDef, ...]:
        """The models of NodeDef messages, strings shared.  One flat loop: it runs once for every node of a file."""
        same, known, make = self._names.setdefault, self._attrs.get, NodeDef.from_fields
        nodes: list[NodeDef] = []
        for message in messages:
            name, op, device, inputs = message.name, message.op, message.device, message.input[:]
            entries = tuple(message.attr)
            if not name:
                raise InvalidArgumentError(f"node {len(nodes)} has no name", op=op or None)
            is_small = sum(map(len, entries)) <= _MAX_REMEMBERED_BYTES  # to hash weights takes as long as to copy them
            attrs = known(entries) if is_small else None
            if attrs is None:
                attrs = self._read_attrs(entries, name, op, is_small=is_small)
            if len(nodes) in contents:
                attrs = self._with_content(attrs, *contents[len(nodes)])
            fields = {
                "name": same(name, name),
                "op": same(op, op),
                "input": tuple(map(same, inputs, inputs)),
                "device": same(device, device),
                "attr": attrs,
                "experimental_debug_info": None,
                "experimental_type": None,
            }
            if message.HasField("experimental_debug_info"):
                fields["experimental_debug_info"] = self.read(message.experimental_debug_info)
            if message.HasField("experimental_type"):
                fields["experimental_type"] = self.read(message.experimental_type)
            nodes.append(make(fields))
        return tuple(nodes)

    def _read_attrs(self, entries: tuple[bytes, ...], node: str, op: str, *, is_small: bool) -> Mapping[str, AttrValue]:
        try:
            attrs = dict(filter(None, map(self._read_entry, entries)))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.message, node=node, op=op, hint=error.hint) from error
        if is_small:
            self._attrs[entries] = attrs
        return attrs

    def _with_content(self, attrs: Mapping[str, AttrValue], key: str, place: slice) -> Mapping[str, AttrValue]:
        """*attrs*, in which the tensor *key* has the content at that *place* of the data."""
        tensor = attrs[key].tensor
        assert tensor is not None  # as it was found
        whole = TensorProto.from_fields({**tensor.__dict__, "tensor_content": sliced(self._data, place)})
        return {**attrs, key: make_attr("tensor", whole)}

    def _read_entry(self, entry: bytes) -> tuple[str, AttrValue] | None:
        is_small = len(entry) <= _MAX_REMEMBERED_BYTES
        found = self._entries.get(entry) if is_small else None
        if found is None:
            message = self._attr_entry.FromString(entry)
            if _is_left_out(message.key, message.value):
                return None
            found = (self._names.setdefault(message.key, message.key), self._read_attr_value(message.value))
            if is_small:
                self._entries[entry] = found
        return found


def _is_left_out(key: str, value: Any) -> bool:
    """Whether an attr is internal and has no value, as ``_input_shapes`` where there are no inputs."""
    return key.startswith("_") and not value.ByteSize()


def _as_text(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _fields_reader(
    model: type[WireModel], readers: dict[object, tuple[str, Callable[[Any], Any] | None]]
) -> Callable[[Any], Any]:
    defaults, make = model.field_defaults(), model.from_fields

    def read_fields(message: Any) -> object:
        fields = defaults.copy()
        for field, value in message.ListFields():
            name, reader = readers[field]
            fields[name] = value if reader is None else reader(value)
        return make(fields)

    return read_fields


def _attr_value_reader(readers: dict[object, tuple[str, Callable[[Any], Any] | None]]) -> Callable[[Any], Any]:
    def read_attr_value(message: Any) -> AttrValue:
        for field, value in message.ListFields():
            name, reader = readers[field]
            return make_attr(name, value if reader is None else reader(value))
        raise InvalidArgumentError("an attr has no value")

    return read_attr_value


class GraphWriter:
    """Turns models into messages of the packed classes."""

    def __init__(self) -> None:
        self._graph_def = proto_messages(packed=True).graph_def
        self._attr_entry = proto_messages(packed=True).attr_entry
        self._by_type: dict[str, Callable[[Any], Any]] = {}
        self._attrs: dict[int, list[bytes]] = {}
        self._entries: dict[tuple[str, int], bytes] = {}

    def graph_def(self, graph: GraphDef) -> Any:
        """The message of *graph*, which has to live as long as this writer."""
        return self._writer_of(self._graph_def.DESCRIPTOR)(graph)

    def _writer_of(self, descriptor: Any) -> Callable[[Any], Any]:
        """What writes models as messages of *descriptor*."""
        found = self._by_type.get(descriptor.full_name)
        if found is not None:
            return found
        make, writers = message_class(descriptor), dict[str, Callable[[Any], Any] | None]()
        defaults = _model_of(descriptor).field_defaults()

        def write(model: WireModel) -> Any:
            values: dict[str, object] = {}
            for name, value in model.__dict__.items():
                default = defaults.get(name)
                # Only what a message has no presence for is left out at its default: False is not None here.
                if value is None or value is default or (default is not None and value == default):
                    continue
                if name in writers:
                    writer = writers[name]
                    values[name] = value if writer is None else writer(value)
            return make(**values)

        self._by_type[descriptor.full_name] = write  # before its fields' writers are made: types refer to themselves
        is_node = descriptor.name == "NodeDef"
        for field in descriptor.fields:
            is_attrs = is_node and field.name == "attr"
            writers[field.name] = self._entries_of if is_attrs else self._field_writer(field, defaults[field.name])
        return write

    def _field_writer(self, field: Any, default: object) -> Callable[[Any], Any] | None:
        """What turns the value of a model's field into that of a message; None when it is the same."""
        one: Callable[[Any], Any] | None = None
        if isinstance(default, Mapping):
            inner = field.message_type.fields_by_name["value"].message_type
            if inner is None:
                return dict
            write = self._writer_of(inner)
            return lambda values: {key: write(value) for key, value in values.items()}
        if field.message_type is not None:
            one = self._writer_of(field.message_type)
        elif field.enum_type is not None and field.enum_type.name == "DataType":
            one = _refuse_object
        if isinstance(default, tuple) and one is not None:
            return lambda values: [*map(one, values)]
        return one

    def _entries_of(self, attrs: Mapping[str, AttrValue]) -> list[bytes]:
        """The entries of a map of attrs, in the order of their keys."""
        found = self._attrs.get(id(attrs))
        if found is None:
            found = self._attrs[id(attrs)] = [self._entry(key, attrs[key]) for key in sorted(attrs)]
        return found

    def _entry(self, key: str, value: AttrValue) -> bytes:
        found = self._entries.get((key, id(value)))
        if found is None:
            descriptor = self._attr_entry.DESCRIPTOR
            write = self._writer_of(descriptor.fields_by_name["value"].message_type)
            found = self._attr_entry(key=key, value=write(value)).SerializeToString(deterministic=True)
            self._entries[key, id(value)] = found
        return found
