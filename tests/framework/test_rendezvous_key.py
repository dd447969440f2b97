"""Keys of a rendezvous: their five parts, and what is refused (case Key of TensorFlow's rendezvous_test.cc)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.framework.device_name import DeviceName
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.rendezvous import FrameAndIter, RendezvousKey, create_key, full_key, parse_key

CPU = "/job:mnist/replica:1/task:2/CPU:0"
GPU = "/job:mnist/replica:1/task:2/device:GPU:0"
KEY = f"{CPU};0000000000001ed2;{GPU};var0;0:0"


def test_a_key_has_five_parts() -> None:
    assert create_key(CPU, 7890, GPU, "var0") == KEY


def test_a_key_is_read_back() -> None:
    parsed = parse_key(KEY)
    assert parsed == RendezvousKey(CPU, 7890, GPU, "var0", FrameAndIter(0, 0))
    assert (parsed.src, parsed.dst) == (DeviceName("mnist", 1, 2, "CPU", 0), DeviceName("mnist", 1, 2, "GPU", 0))
    assert str(parsed) == KEY


def test_frame_and_iteration_are_added_to_the_prefix() -> None:
    prefix = parse_key(KEY).prefix
    assert prefix == KEY.removesuffix(";0:0")
    key = full_key(prefix, FrameAndIter(17, 4))
    assert parse_key(key).frame_iter == FrameAndIter(17, 4)
    assert key.endswith(";17:4")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo;bar;baz",
        f"{CPU};{GPU};",
        f"{KEY};{KEY}",
        f"{KEY};",
        KEY.removesuffix(";0:0"),
        KEY.replace("0:0", ""),
        KEY.replace(";0:0", ";0"),
        KEY.replace(";0:0", ";0:-1"),
        KEY.replace(";0:0", ";a:b"),
        KEY.replace(";0:0", ";٣:0"),
        KEY.replace("var0", ""),
        KEY.replace("0000000000001ed2", ""),
        KEY.replace("0000000000001ed2", "1ed2g"),
        KEY.replace("0000000000001ed2", "00000000000001ed2"),
        KEY.replace("0000000000001ed2", "-1"),
        KEY.replace(CPU, "/foo:bar"),
        KEY.replace(GPU, "device"),
        "\0" * 100_000,
    ],
)
def test_a_malformed_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="Invalid rendezvous key") as raised:
        parse_key(text)
    assert len(str(raised.value)) < 5000


@pytest.mark.parametrize(
    ("device", "incarnation", "edge", "expected"),
    [
        ("/foo:bar", 1, "e", "Malformed device"),
        (CPU, -1, "e", "64 bits"),
        (CPU, 2**64, "e", "64 bits"),
        (CPU, 1, "", "edge name"),
        (CPU, 1, "a;b", "edge name"),
    ],
)
def test_a_key_that_could_not_be_read_back_is_not_made(device: str, incarnation: int, edge: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        create_key(device, incarnation, GPU, edge)


@given(
    st.integers(0, 2**64 - 1),
    st.text(st.characters(exclude_characters=";"), min_size=1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**63 - 1),
)
def test_every_key_that_is_made_is_read_back(incarnation: int, edge: str, frame_id: int, iter_id: int) -> None:
    place = FrameAndIter(frame_id, iter_id)
    parsed = parse_key(create_key(CPU, incarnation, GPU, edge, place))
    assert parsed == RendezvousKey(CPU, incarnation, GPU, edge, place)
