"""Bytes -> GraphDef and back, in three formats: ``pb`` (binary), ``pbtxt`` (protobuf text) and ``json`` (proto3-JSON).

Whatever the bytes are, what comes of them is a GraphDef or an OpError that tells what was expected: DataLossError for
what is cut short or no such file at all, InvalidArgumentError for what can be read and is wrong.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import ValidationError
from pydantic_core import from_json

from asyncexec.framework.errors import DataLossError, InvalidArgumentError, OpError
from asyncexec.framework.extras import require
from asyncexec.framework.graph_def import GraphDef
from asyncexec.importers.proto_contents import Contents
from asyncexec.importers.proto_convert import GraphReader, GraphWriter
from asyncexec.importers.proto_messages import proto_messages
from asyncexec.importers.proto_parts import parsed
from asyncexec.process.gc_pause import paused_gc

GraphFormat: TypeAlias = Literal["pb", "pbtxt", "json"]
FORMATS: Final[tuple[str, ...]] = get_args(GraphFormat)

_TOO_DEEP: Final = "nested deeper than protobuf allows (100 levels)"
_SHOWN_ERRORS: Final = 3
# How the fields of a GraphDef are told on the wire: number -> wire type.
_GRAPH_DEF_FIELDS: Final = {1: 2, 2: 2, 3: 0, 4: 2, 5: 2}


def parse_graph_def(data: bytes, format: GraphFormat, *, source: str = "the data") -> GraphDef:  # noqa: A002
    """The GraphDef in *data*; *source* names the data in messages.

    Raises:
        DataLossError: it is cut short, or no GraphDef.
        InvalidArgumentError: it has fields that are unknown, wrong or nested too deep.
        MissingExtraError: the format is not JSON and extra ``tf`` is not installed.
    """
    if format == "pb":
        return _parse_binary(data, source)
    if format == "pbtxt":
        return _parse_text(data, source)
    if format == "json":
        return _parse_json(data, source)
    raise InvalidArgumentError(f"{format!r} is not a format of GraphDefs; there are {', '.join(FORMATS)}")


def format_graph_def(graph_def: GraphDef, format: GraphFormat) -> bytes:  # noqa: A002
    """*graph_def* in *format*: the same bytes every time.

    Raises:
        InvalidArgumentError: it holds what the format cannot (dtype object; values that were constructed unchecked).
    """
    if format == "json":
        return _format_json(graph_def)
    if format == "pb":
        return serialize(graph_def_to_proto(graph_def), "this graph")
    if format == "pbtxt":
        text_format = require("google.protobuf.text_format", extra="tf")
        text: str = text_format.MessageToString(graph_def_to_proto(graph_def), as_utf8=True)
        return text.encode()
    raise InvalidArgumentError(f"{format!r} is not a format of GraphDefs; there are {', '.join(FORMATS)}")


def graph_def_from_proto(message: object) -> GraphDef:
    """The GraphDef of a protobuf message (one of this package, TensorFlow's own, or tensorboard's)."""
    return parse_graph_def(serialize(message, "the message"), "pb", source="the message")


def graph_def_to_proto(graph_def: GraphDef) -> object:
    """*graph_def* as a protobuf message with the fields of TensorFlow's GraphDef.

    Its class is of this package; TensorFlow's own reads the same bytes:
    ``tf.compat.v1.GraphDef.FromString(message.SerializeToString())``.
    """
    try:
        packed = GraphWriter().graph_def(graph_def)
    except (ValueError, TypeError, RecursionError) as error:
        raise _typed(error, "this graph cannot be written as protobuf") from error
    except require("google.protobuf.message", extra="tf").Error as error:
        raise InvalidArgumentError(f"this graph is {_TOO_DEEP}: {error}") from error
    plain = proto_messages(packed=False).graph_def
    return parse_message(plain, serialize(packed, "this graph"), "this graph", "a GraphDef")


def serialize(message: Any, source: str) -> bytes:
    """The bytes of *message*; InvalidArgumentError when it is nested too deep for that."""
    try:
        data: bytes = message.SerializeToString(deterministic=True)
    except require("google.protobuf.message", extra="tf").EncodeError as error:
        raise InvalidArgumentError(f"{source} is {_TOO_DEEP}: {error}") from error
    return data


def parse_message(message_class: object, data: bytes, source: str, what: str, contents: Contents | None = None) -> Any:
    """*data* as a message; DataLossError, naming *source*, when it is not *what*.

    Of a GraphDef, large contents of tensors may be left out: *contents* are told where they are.
    """
    try:
        return parsed(message_class, data, contents=contents)
    except require("google.protobuf.message", extra="tf").DecodeError as error:
        raise DataLossError(
            f"{source} is not {what}, or is cut short, or is {_TOO_DEEP}: {error}", hint=f"expected {what}"
        ) from error


def parse_text_message(message: object, data: bytes, source: str, what: str) -> object:
    """*message*, filled from protobuf text; InvalidArgumentError, naming the line, when that is not *what*."""
    text_format = require("google.protobuf.text_format", extra="tf")
    try:
        return text_format.Parse(data.decode(), message)
    except UnicodeDecodeError as error:
        raise DataLossError(f"{source} is not {what} as text: {error}") from error
    except text_format.ParseError as error:
        line = error.GetLine()
        place = f"{source}, line {line}" if line is not None else source
        raise InvalidArgumentError(f"{place}: not {what} as text: {error}") from error
    except RecursionError as error:
        raise InvalidArgumentError(f"{source} is {_TOO_DEEP}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgumentError(f"{source} is not {what} as text: {error}") from error


def read_message(message: object, source: str, data: bytes = b"", contents: Contents | None = None) -> GraphDef:
    """The model of a GraphDef message of the packed classes, errors naming *source*.

    Its *contents* that were left out are in *data*.
    """
    try:
        with paused_gc():
            graph_def: GraphDef = GraphReader(data, contents).read(message)
    except OpError as error:
        raise type(error)(f"{source}: {error.message}", node=error.node, op=error.op, hint=error.hint) from error
    except require("google.protobuf.message", extra="tf").DecodeError as error:
        raise InvalidArgumentError(f"{source} has an attr that is {_TOO_DEEP}: {error}") from error
    return graph_def


def _parse_binary(data: bytes, source: str) -> GraphDef:
    message_class = proto_messages(packed=True).graph_def
    if data and not _begins_like_graph_def(data):
        raise DataLossError(
            f"{source} is not a binary GraphDef", hint="a SavedModel is loaded by its folder or as saved_model.pb"
        )
    contents: Contents = {}
    message = parse_message(message_class, data, source, "a binary GraphDef", contents)
    if data and not message.ListFields():
        raise DataLossError(f"{source} is not a binary GraphDef: it has no nodes, functions or versions")
    return read_message(message, source, data, contents)


def _begins_like_graph_def(data: bytes) -> bool:
    """Whether the first field has a type that a GraphDef's field of that number has (unknown numbers pass)."""
    number, wire_type = data[0] >> 3, data[0] & 7
    return data[0] >= 0x80 or _GRAPH_DEF_FIELDS.get(number, wire_type) == wire_type


def _parse_text(data: bytes, source: str) -> GraphDef:
    message = parse_text_message(proto_messages(packed=False).graph_def(), data, source, "a GraphDef")
    return _parse_binary(serialize(message, source), source)


def _format_json(graph_def: GraphDef) -> bytes:
    try:
        return (graph_def.to_json(indent=1) + "\n").encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise _typed(error, "this graph cannot be written as JSON") from error


def _parse_json(data: bytes, source: str) -> GraphDef:
    try:
        with paused_gc():
            if b"null" in data:  # in proto3-JSON the same as leaving the field out
                return GraphDef.model_validate(_without_nulls(from_json(data)))
            return GraphDef.model_validate_json(data)
    except ValidationError as error:
        raise _typed(error, f"{source} is not a GraphDef as JSON") from error
    except (ValueError, RecursionError) as error:
        raise DataLossError(f"{source} is not a GraphDef as JSON, or is cut short: {error}") from error


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _typed(error: Exception, message: str) -> OpError:
    """*error* of pydantic or protobuf as an OpError that begins with *message*."""
    if isinstance(error, OpError):
        return error
    if not isinstance(error, ValidationError):
        return InvalidArgumentError(f"{message}: {error}")
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return DataLossError(f"{message}, or is cut short: {details[0]['msg']}")
    shown = [f"{'.'.join(map(str, each['loc'])) or 'top level'}: {_said(each)}" for each in details[:_SHOWN_ERRORS]]
    more = f" (and {len(details) - _SHOWN_ERRORS} more)" if len(details) > _SHOWN_ERRORS else ""
    return InvalidArgumentError(f"{message}: {'; '.join(shown)}{more}")


def _said(detail: Any) -> str:
    return "unknown field" if detail["type"] == "extra_forbidden" else str(detail["msg"]).removeprefix("Value error, ")
