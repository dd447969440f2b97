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
from functools import cache
from typing import Any, Final

from asyncexec.framework.message_pool import MessagePool, ProtoFile
from asyncexec.framework.types import object as object_dtype
from asyncexec.framework.wire_types import DATA_TYPES, FULL_TYPES
from asyncexec.importers import proto_tables

_PACKAGE: Final = "asyncexec"
# What is seen first of two pools made at a time would not know the messages of the other.
_LOCK: Final = threading.RLock()
_FILES: Final = {
    "debug_info": ProtoFile(proto_tables.DEBUG_INFO, (), "proto2"),
    "graph": ProtoFile(proto_tables.GRAPH, ("debug_info",)),
    "saved_model": ProtoFile(proto_tables.SAVED_MODEL, ("graph",)),
    "events": ProtoFile(proto_tables.EVENTS, ("graph",)),
}
# Enums whose values stand in no table: the numbers of their values, by name.
LARGE_ENUMS: Final[dict[str, dict[str, int]]] = {
    "DataType": {name: number for name, number in DATA_TYPES.numbers.items() if number != object_dtype.enum},
    "FullTypeId": dict(FULL_TYPES.numbers),
}


class ProtoMessages(MessagePool):
    """The classes of TensorFlow's messages; with *packed*, ``NodeDef.attr`` is a list of entries as bytes."""

    def __init__(self, *, packed: bool) -> None:
        packing = ("NodeDef", "string>AttrValue", "bytes*") if packed else None
        super().__init__(_PACKAGE, _FILES, enums=LARGE_ENUMS, replaced=packing, extra="tf")

    @property
    def graph_def(self) -> Any:
        """GraphDef."""
        return self.message("GraphDef", "graph")

    @property
    def attr_entry(self) -> Any:
        """One entry of ``map<string, AttrValue>``: fields ``key`` and ``value``."""
        return self.message("AttrEntry", "graph")

    @property
    def saved_model(self) -> Any:
        """SavedModel; its MetaGraphDefs hold GraphDefs of the same pool."""
        return self.message("SavedModel", "saved_model")

    @property
    def asset_file_def(self) -> Any:
        """AssetFileDef."""
        return self.message("AssetFileDef", "saved_model")

    @property
    def run_metadata(self) -> Any:
        """RunMetadata."""
        return self.message("RunMetadata", "events")

    @property
    def event(self) -> Any:
        """Event, a record of the files that TensorBoard reads."""
        return self.message("Event", "events")


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
