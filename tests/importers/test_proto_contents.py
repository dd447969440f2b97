"""Contents of tensors that are cut out of a GraphDef are where they were before protobuf had parsed them."""

from __future__ import annotations

import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.importers import proto_contents, proto_parts
from asyncexec.importers.graph_formats import parse_graph_def
from asyncexec.importers.proto_contents import Contents, sliced, without_content
from asyncexec.importers.proto_messages import proto_messages
from asyncexec.importers.proto_wire import fields, written
from tests.importers.test_proto_parts import graph_def

pytest.importorskip("google.protobuf")

CONTENT = written(4, b"content")
OTHER = written(4, b"other content")
DTYPE = b"\x08\x01"
VALUE = written(2, written(8, DTYPE + CONTENT))
KEY = written(1, b"value")
NAME = written(1, b"c")

# Nodes, of which a content is cut out or not: what is told twice, in an odd order, or is damaged.
NODES = {
    "plain": NAME + written(5, KEY + VALUE),
    "content first": NAME + written(5, KEY + written(2, written(8, CONTENT + DTYPE))),
    "value first": written(5, VALUE + KEY) + NAME,
    "content twice": NAME + written(5, KEY + written(2, written(8, OTHER + DTYPE + CONTENT))),
    "tensor twice": NAME + written(5, KEY + written(2, written(8, OTHER) + written(8, DTYPE + CONTENT))),
    "another kind behind": NAME + written(5, KEY + written(2, written(8, CONTENT) + b"\x18\x07")),
    "another kind before": NAME + written(5, KEY + written(2, b"\x18\x07" + written(8, CONTENT))),
    "value twice": NAME + written(5, KEY + VALUE + written(2, written(8, OTHER))),
    "key twice": NAME + written(5, written(1, b"k") + KEY + VALUE),
    "no key": NAME + written(5, VALUE),
    "attr twice": NAME + written(5, KEY + VALUE) + written(5, KEY + written(2, written(8, OTHER))),
    "two attrs": NAME + written(5, written(1, b"k") + written(2, b"\x18\x07")) + written(5, KEY + VALUE),
    "two tensors": NAME + written(5, written(1, b"k") + VALUE) + written(5, KEY + VALUE),
    "key that is no text": NAME + written(5, written(1, b"\xff") + VALUE),
    "name that is no text": written(1, b"\xff") + written(5, KEY + VALUE),
    "no name": written(5, KEY + VALUE),
    "internal attr": NAME + written(5, written(1, b"_k") + written(2, written(8, CONTENT))),
    "unknown fields": NAME + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + written(5, KEY + VALUE + written(15, b"u")),
    "a group": NAME + b"\x7b\x7c" + written(5, KEY + VALUE),
    "a field without a number": NAME + written(5, KEY + VALUE) + b"\x02\x00",
    "a field cut short": NAME + written(5, KEY + VALUE) + b"\x0a\x05a",
    "content cut short": NAME + written(5, KEY + written(2, written(8, b"\x22\x20content"))),
    "a long length": NAME + written(5, KEY + written(2, written(8, DTYPE + b"\x22\x87\x80\x00content"))),
    "a long tag": NAME + written(5, KEY + written(2, written(8, DTYPE + b"\xa2\x80\x00\x07content"))),
    "a tag of ten bytes": NAME + written(5, KEY + b"\x92" + b"\x80" * 8 + b"\x00" + VALUE[1:]),
    "a length without end": NAME + written(5, KEY + VALUE[:1] + b"\x8b" + b"\x80" * 9 + b"\x00" + VALUE[2:]),
    "a long length of the attr": NAME + b"\x2a" + b"\x96\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00" + KEY + VALUE,
    "very many fields": NAME + b"\x20\x01" * 5000 + written(5, KEY + VALUE),
    "tensor of no type": NAME + written(5, KEY + written(2, written(8, CONTENT))),
}


def outcome(data: bytes) -> Any:
    try:
        return parse_graph_def(data, "pb")
    except Exception as error:
        return type(error)


def outcome_of_parts(data: bytes) -> Any:
    """What comes of *data* where all contents are cut out that can be."""
    at_once = mock.patch.object(proto_parts.parsed, "__defaults__", (1, None))
    with mock.patch.object(proto_contents, "LARGE", 1), at_once:
        return outcome(data)


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_read_or_refused_as_without_cutting(name: str) -> None:
    data = written(1, NODES["plain"]) + written(1, NODES[name]) + written(1, NODES["two attrs"])
    assert outcome_of_parts(data) == outcome(data)


@given(st.lists(st.sampled_from(sorted(NODES)), max_size=6), st.integers(0, 300), st.booleans())
def test_graphs_are_read_or_refused_as_without_cutting(names: list[str], end: int, has_function: bool) -> None:
    parts = [written(1, NODES[name]) for name in names]
    if has_function:  # its nodes have no numbers of the graph's
        function = written(1, written(1, b"f")) + written(3, NODES["plain"])
        parts.insert(len(parts) // 2, written(2, written(1, function)))
    data = b"".join(parts)
    assert outcome_of_parts(data) == outcome(data)
    assert outcome_of_parts(data[:end]) == outcome(data[:end])


@given(st.data())
def test_damaged_graphs_are_read_or_refused_as_without_cutting(draw: st.DataObject) -> None:
    data = bytearray(written(1, NODES["plain"]) + written(1, NODES["two attrs"]))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    assert outcome_of_parts(bytes(data)) == outcome(bytes(data))


def test_protobuf_does_not_see_large_contents() -> None:
    data = graph_def(3, bytes(range(256)) * 2**12).SerializeToString()
    contents: Contents = {}
    message = proto_parts.parsed(proto_messages(packed=True).graph_def, data, contents=contents)
    assert message.ByteSize() < 1000
    assert list(contents) == [0, 1, 2]
    read = parse_graph_def(data, "pb")
    for node in read.node:
        tensor = node.attr["value"].tensor
        assert tensor is not None
        assert tensor.tensor_content == bytes(range(256)) * 2**12


@pytest.mark.parametrize("length", [b"\x80\x00", b"\x80" * 9 + b"\x00", b"\x80" * 10 + b"\x00", b"\x80" * 4 + b"\x10"])
def test_a_node_whose_length_is_told_in_an_odd_way(length: bytes) -> None:
    node = NODES["plain"]
    data = b"\x0a" + bytes([len(node) | 0x80]) + length + node + written(1, NODES["two attrs"])
    assert outcome_of_parts(data) == outcome(data)


def test_bytes_that_somebody_may_change_are_left_to_protobuf() -> None:
    data = graph_def(3, bytes(2**20)).SerializeToString()
    for kind in (bytearray, memoryview):
        contents: Contents = {}
        message = proto_parts.parsed(proto_messages(packed=True).graph_def, kind(data), contents=contents)
        assert message.ByteSize() > 2**20
        assert not contents


def test_fields_of_a_large_node_are_not_all_kept() -> None:
    data = written(1, NAME + b"\x20\x01" * 1_000_000 + written(5, KEY + VALUE))
    tracemalloc.start()
    try:
        assert without_content(data, 6, len(data), 0, {}) is None
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_what_is_left_of_a_node() -> None:
    node = NAME + written(5, KEY + written(2, written(8, DTYPE + written(4, bytes(2**17)))))
    contents: Contents = {}
    left = without_content(node, 0, len(node), 7, contents)
    assert left == written(1, NAME + written(5, KEY + written(2, written(8, DTYPE))))
    key, place = contents[7]
    assert key == "value"
    assert node[place] == bytes(2**17)


@pytest.mark.parametrize("place", [slice(0, 0), slice(3, 4), slice(1, 2**20 + 1), slice(5, 3 * 2**20 + 7)])
def test_a_long_slice_is_put_together(place: slice) -> None:
    data = bytes(range(251)) * 2**14
    assert sliced(data, place) == data[place]


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\x02a", b"\x09abc", b"\x80"])
def test_what_is_no_message_has_no_fields(data: bytes) -> None:
    assert fields(data, 0, len(data)) is None
