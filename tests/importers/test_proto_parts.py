"""Messages that are parsed in parts are those that are parsed in one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.importers.proto_messages import proto_messages
from asyncexec.importers.proto_parts import parsed
from asyncexec.importers.proto_wire import varint

pytest.importorskip("google.protobuf")


class Recorded:
    """Stands for a class of messages: keeps what it is to parse."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    @classmethod
    def FromString(cls, data: bytes) -> Recorded:
        made = cls()
        made.parts.append(data)
        return made

    def MergeFromString(self, data: bytes) -> None:
        self.parts.append(data)


def graph_def(num_nodes: int, content: bytes = b"") -> Any:
    message = proto_messages(packed=False).graph_def()
    for number in range(num_nodes):
        node = message.node.add(name=f"n{number}", op="Const")
        node.attr["value"].tensor.tensor_content = content
    message.versions.producer = 22
    return message


@pytest.mark.parametrize("part_bytes", [1, 100, 1000])
def test_a_graph_in_parts(part_bytes: int) -> None:
    message = graph_def(20, bytes(200))
    data = message.SerializeToString()
    assert parsed(type(message), data, part_bytes) == message
    parts = parsed(Recorded, data, part_bytes).parts
    assert b"".join(parts) == data
    longest_field = max(map(len, parsed(Recorded, data, 1).parts))
    assert max(map(len, parts)) < part_bytes + longest_field


def test_what_is_small_is_parsed_at_once() -> None:
    data = graph_def(20).SerializeToString()
    assert parsed(Recorded, data).parts == [data]


def check_outcome(data: bytes, part_bytes: int) -> None:
    """What comes of *data* in parts is what comes of it in one go."""
    message_class = proto_messages(packed=False).graph_def

    def outcome(parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except Exception as error:
            return type(error)

    assert outcome(lambda: parsed(message_class, data, part_bytes)) == outcome(lambda: message_class.FromString(data))


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_are_parsed_or_refused_as_in_one_go(data: bytes, part_bytes: int) -> None:
    check_outcome(data, part_bytes)


@given(st.integers(0, 400), st.integers(1, 50))
def test_what_is_cut_short_is_refused_as_in_one_go(end: int, part_bytes: int) -> None:
    check_outcome(graph_def(5, bytes(40)).SerializeToString()[:end], part_bytes)


@pytest.mark.parametrize("start", [b"", b"\x0a", b"\x0a\x01a"])
@pytest.mark.parametrize("byte", [b"\x80", b"\xff"])
def test_a_varint_without_end_is_refused_after_ten_bytes(start: bytes, byte: bytes) -> None:
    data = start + byte * 1000
    check_outcome(data, 1)
    assert varint(data, len(start))[1] == len(start) + 10
