"""Device names, as TensorFlow's device_name_utils_test.cc and its Python client take them."""

from __future__ import annotations

import pytest

from asyncexec.framework.device_name import DeviceName, merge_device_names, parse_device_name
from asyncexec.framework.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "name", "canonical"),
    [
        ("", DeviceName(), ""),
        ("/", DeviceName(), ""),
        (
            "/job:a_b1/replica:0/task:12/device:CPU:3",
            DeviceName("a_b1", 0, 12, "CPU", 3),
            "/job:a_b1/replica:0/task:12/device:CPU:3",
        ),
        ("/cpu:0", DeviceName(device_type="CPU", index=0), "/device:CPU:0"),
        ("cpu:0", DeviceName(device_type="CPU", index=0), "/device:CPU:0"),
        ("/GPU:1", DeviceName(device_type="GPU", index=1), "/device:GPU:1"),
        ("/tpu:0", DeviceName(device_type="TPU", index=0), "/device:TPU:0"),
        ("/CPU", DeviceName(device_type="CPU"), "/device:CPU:*"),
        ("/device:cpu:0", DeviceName(device_type="CPU", index=0), "/device:CPU:0"),
        ("/device:GPU:*", DeviceName(device_type="GPU"), "/device:GPU:*"),
        ("/device:*:2", DeviceName(index=2), "/device:*:2"),
        ("/device:XLA_CPU:0", DeviceName(device_type="XLA_CPU", index=0), "/device:XLA_CPU:0"),
        ("/job:*/replica:*/task:1", DeviceName(task=1), "/task:1"),
        ("/job:a/job:b", DeviceName(job="b"), "/job:b"),
        ("/replica:01", DeviceName(replica=1), "/replica:1"),
    ],
)
def test_names(text: str, name: DeviceName, canonical: str) -> None:
    assert parse_device_name(text) == name
    assert str(name) == canonical
    assert parse_device_name(canonical) == name


@pytest.mark.parametrize(
    "text",
    [
        "/foo:bar",
        "xyz",
        "/job:1a",
        "/job:",
        "/job:a-b",
        "/job:a /cpu:0",
        "/task:x",
        "/task:-1",
        "/task:99999999999999999999",
        "/replica:1:2",
        "/device",
        "/device:CPU:x",
        "/device:CPU:-1",
        "/device:CPU:0:0",
        "/device:1CPU:0",
        "/TPU_SYSTEM:0",
        "/cpu:0/gpu:1",
        "/cpu:٣",
        "/job:" + "a" * 2000,
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="Malformed device specification"):
        parse_device_name(text)


def test_only_whole_names_are_full() -> None:
    assert parse_device_name("/job:a/replica:0/task:0/cpu:0").is_full
    assert not parse_device_name("/job:a/task:0/cpu:0").is_full


@pytest.mark.parametrize(
    ("inner", "outer", "merged"),
    [
        ("", "/gpu:13", "/device:GPU:13"),
        ("/job:w", "/gpu:13", "/job:w/device:GPU:13"),
        ("/cpu:0", "/gpu:13", "/device:CPU:0"),
        ("/cpu", "/gpu:13", "/device:CPU:*"),
        ("/gpu", "/gpu:13", "/device:GPU:13"),
        ("/task:2/cpu:1", "/job:w/task:1", "/job:w/task:2/device:CPU:1"),
    ],
)
def test_merging(inner: str, outer: str, merged: str) -> None:
    assert merge_device_names(inner, outer) == merged


def test_what_a_partial_name_accepts() -> None:
    device = parse_device_name("/job:w/replica:0/task:1/cpu:0")
    assert parse_device_name("/task:1").accepts(device)
    assert parse_device_name("/cpu").accepts(device)
    assert not parse_device_name("/gpu").accepts(device)
    assert not parse_device_name("/cpu:1").accepts(device)
