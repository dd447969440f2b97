"""Device names, as TensorFlow's device_name_utils_test.cc and its Python client take them."""

from __future__ import annotations

import pytest

from asyncexec.framework.device_name import (
    NO_DEVICE,
    DeviceName,
    canonical_device_name,
    device_mapping_names,
    merge_device_names,
    parse_device_name,
    parse_local_name,
    split_device_name,
)
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


def test_only_whole_names_are_complete() -> None:
    assert parse_device_name("/job:a/replica:0/task:0/cpu:0").is_complete
    assert not parse_device_name("/job:a/task:0/cpu:0").is_complete


def test_the_order_of_parts_does_not_matter() -> None:
    name = parse_device_name("/job:*/replica:4/device:GPU:*")
    assert name == DeviceName(replica=4, device_type="GPU")
    assert parse_device_name("/gpu:*/job:*/replica:4") == parse_device_name("/job:*/device:GPU/replica:4") == name


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


@pytest.mark.parametrize("parts", range(16))
@pytest.mark.parametrize("device", ["CPU:3", "GPU:3", "cpu:3", "gpu:3", "device:CPU:3", "device:someDevice:3"])
def test_a_name_of_any_parts_is_written_as_it_is_read(parts: int, device: str) -> None:
    whole = ["/job:foo", "/replica:3", "/task:2", f"/{device}"]
    chosen = [part for i, part in enumerate(whole) if parts & 1 << i]
    written = f"/device:{device.removeprefix('device:')}".replace("cpu", "CPU").replace("gpu", "GPU")
    expected = "".join(written if part == f"/{device}" else part for part in chosen)
    assert str(parse_device_name("".join(chosen))) == expected


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("/job:foo/replica:1/task:2/gpu:4", True),
        ("/job:foo/replica:1/task:3/gpu:4", False),
        ("/job:foo/replica:10/task:2/gpu:4", False),
        ("/job:bar/replica:1/task:2/gpu:4", False),
        ("/job:foo/replica:1/gpu:4", False),
    ],
)
def test_address_spaces(other: str, is_same: bool) -> None:
    name = parse_device_name("/job:foo/replica:1/task:2/cpu:3")
    assert name.is_same_address_space(parse_device_name(other)) == is_same
    assert str(name.address_space) == "/job:foo/replica:1/task:2"
    assert not NO_DEVICE.is_same_address_space(NO_DEVICE)


def test_local_names() -> None:
    assert DeviceName(device_type="MySpecialDevice", index=13).local_name == "MySpecialDevice:13"
    assert parse_device_name("/job:foo/replica:1/task:2/device:abc:73").local_name == "abc:73"
    assert parse_device_name("/job:foo/replica:1/task:2/cpu:3").local_name == "CPU:3"
    assert parse_local_name("CPU:10") == DeviceName(device_type="CPU", index=10)
    for text in ("cpu:abc", "abc:", "abc", "myspecialdevice", "/cpu:0", ":1", "CPU:1:2"):
        with pytest.raises(InvalidArgumentError, match="Malformed device specification"):
            parse_local_name(text)


@pytest.mark.parametrize(
    ("pattern", "name", "accepts"),
    [
        ("/job:*", "/job:work/replica:1/task:2/gpu:3", True),
        ("/job:*/replica:*", "/job:work/replica:1/task:2/gpu:3", True),
        ("/job:*/task:*", "/job:work/replica:1/task:2/gpu:3", True),
        ("/job:*/replica:*/gpu:*", "/job:work/replica:1/task:2/gpu:3", True),
        ("/cpu:*", "/job:worker/replica:1/task:2/gpu:3", False),
        ("/gpu:2", "/job:worker/replica:1/task:2/gpu:1", False),
        ("/gpu:*", "/job:worker/replica:1/task:2/gpu:3", True),
    ],
)
def test_patterns_of_whole_names(pattern: str, name: str, accepts: bool) -> None:
    assert parse_device_name(name).is_complete
    assert parse_device_name(pattern).accepts(parse_device_name(name)) == accepts


@pytest.mark.parametrize(
    ("less", "more", "is_specification"),
    [
        ("/job:*", "/job:work/replica:1", True),
        ("/job:*", "/replica:1", True),
        ("/job:*", "/job:work", True),
        ("/job:work/replica:1/gpu:*", "/job:work/replica:1/task:2/gpu:3", True),
        ("/job:work/replica:1/gpu:3", "/job:work/replica:1/task:2/gpu:3", True),
        ("/job:work/replica:1/task:2", "/job:work/replica:1/task:2/gpu:3", True),
        ("/job:work/replica:*/task:2", "/job:work/replica:1/task:2/gpu:3", True),
        ("/task:*", "/job:*/replica:1/task:2/gpu:3", True),
        ("/task:2", "/job:*/replica:1/task:2/gpu:3", True),
        ("/cpu:*", "/job:*/replica:1/task:2/cpu:1", True),
        ("/cpu:0", "/cpu:0", True),
        ("/job:worker/replica:1/task:2/gpu:3", "/gpu:*", False),
        ("/cpu:*", "/job:*/replica:1/task:2", False),
        ("/cpu:*", "/job:*/replica:1/task:2/gpu:1", False),
        ("/gpu:2", "/job:worker/replica:1/task:2/gpu:1", False),
        ("/job:work/replica:*/task:0", "/job:work/replica:1/task:2/gpu:3", False),
        ("/job:work/replica:0/task:2", "/job:work/replica:*/task:2/gpu:3", False),
    ],
)
def test_specifications(less: str, more: str, is_specification: bool) -> None:
    assert parse_device_name(more).is_specification_of(parse_device_name(less)) == is_specification


@pytest.mark.parametrize(
    ("text", "task", "device"),
    [
        ("/job:foo/replica:1/task:2/cpu:1", "/job:foo/replica:1/task:2", "CPU:1"),
        ("/job:foo/cpu:1/task:2/replica:1", "/job:foo/replica:1/task:2", "CPU:1"),
        ("/gpu:3", "", "GPU:3"),
        ("/device:myspecialdevice:3", "", "myspecialdevice:3"),
    ],
)
def test_splitting(text: str, task: str, device: str) -> None:
    assert split_device_name(text) == (task, device)


@pytest.mark.parametrize("text", ["gpu:3", "/job:foo/task:2/replica:1", "/device:GPU:*", ""])
def test_what_cannot_be_split(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        split_device_name(text)


# a, b, and what asks for both
MERGED = [
    ("", "", ""),
    ("/job:foo/replica:1/task:2/cpu:1", "/job:foo/replica:1/task:2/cpu:1", "/job:foo/replica:1/task:2/cpu:1"),
    ("", "/job:foo", "/job:foo"),
    ("", "/replica:2", "/replica:2"),
    ("", "/task:7", "/task:7"),
    ("", "/device:GPU:1", "/device:GPU:1"),
    ("/job:foo", "/task:7", "/job:foo/task:7"),
    ("/job:foo", "/device:GPU:1", "/job:foo/device:GPU:1"),
    ("/job:foo/replica:0", "/replica:0/task:1", "/job:foo/replica:0/task:1"),
    ("", "/gpu:*", "/gpu:*"),
    ("/gpu:*", "/gpu:*", "/gpu:*"),
    ("/gpu:1", "/gpu:*", "/gpu:1"),
]


@pytest.mark.parametrize(("a", "b", "both"), MERGED)
def test_names_that_agree(a: str, b: str, both: str) -> None:
    first, second, merged = map(parse_device_name, (a, b, both))
    assert first.merge(second) == second.merge(first) == merged
    assert first.merge(second, allow_soft_placement=True) == merged
    assert first.merge_override(second) == second.merge_override(first) == merged
    assert first.merged_over(second) == second.merged_over(first) == merged
    assert first.ensure_specification(second) == merged
    assert first.is_compatible_with(second)
    assert merged.is_specification_of(first)
    assert merged.is_specification_of(second)


@pytest.mark.parametrize(
    ("a", "b", "part", "soft", "overridden"),
    [
        ("/job:foo", "/job:bar", "jobs", None, None),
        ("/replica:0", "/replica:1", "replicas", None, None),
        ("/task:0", "/task:1", "tasks", None, None),
        ("/gpu:*", "/cpu:*", "types", "", "/cpu:*"),
        ("/gpu:0", "/gpu:1", "ids", "/gpu:*", "/gpu:1"),
        ("/gpu:*", "/cpu:1", "types", "", "/cpu:1"),
        ("/cpu:*", "/device:GPU:1", "types", "", "/gpu:1"),
        ("/gpu:0", "/cpu:1", "types", "", "/cpu:1"),
        ("/job:foo/CPU:*", "/device:GPU:1", "types", "/job:foo", "/job:foo/GPU:1"),
        ("/cpu:*", "/job:foo/device:GPU:1", "types", "/job:foo", "/job:foo/GPU:1"),
        ("/task:0/cpu:*", "/device:GPU:1", "types", "/task:0", "/task:0/GPU:1"),
        ("/cpu:*", "/task:0/device:GPU:1", "types", "/task:0", "/task:0/GPU:1"),
    ],
)
def test_names_that_differ(a: str, b: str, part: str, soft: str | None, overridden: str | None) -> None:
    first, second = parse_device_name(a), parse_device_name(b)
    assert not first.is_compatible_with(second)
    with pytest.raises(InvalidArgumentError, match=f"Cannot merge devices with incompatible {part}"):
        first.merge(second)
    if soft is None or overridden is None:
        with pytest.raises(InvalidArgumentError, match=f"incompatible {part}"):
            first.merge(second, allow_soft_placement=True)
        with pytest.raises(InvalidArgumentError, match=f"incompatible {part}"):
            first.merge_override(second)
        return
    assert first.merge(second, allow_soft_placement=True) == parse_device_name(soft)
    assert second.merge(first, allow_soft_placement=True) == parse_device_name(soft)
    assert first.merge_override(second) == parse_device_name(overridden)


@pytest.mark.parametrize(
    ("a", "b"), [("/job:foo", "/job:bar"), ("/replica:0", "/replica:1"), ("/gpu:*", "/cpu:*"), ("/gpu:0", "/gpu:1")]
)
def test_of_names_that_differ_the_inner_one_holds(a: str, b: str) -> None:
    first, second = parse_device_name(a), parse_device_name(b)
    assert first.merged_over(second) == first
    assert second.merged_over(first) == second
    assert first.ensure_specification(second) == second


def test_the_parts_that_the_inner_name_leaves_open() -> None:
    assert merge_device_names("/job:foo/device:GPU", "/job:bar") == "/job:foo/device:GPU:*"
    assert merge_device_names("/job:bar", "/job:foo/device:GPU") == "/job:bar/device:GPU:*"


def test_names_that_a_device_is_looked_up_by() -> None:
    name = parse_device_name("/job:foo/replica:10/task:0/device:GPU:1")
    assert device_mapping_names(name) == (
        "/job:foo/replica:10/task:0/device:GPU:1",
        "/job:foo/replica:10/task:0/gpu:1",
    )
    assert device_mapping_names(parse_device_name("/job:foo/replica:10/device:GPU:1")) == ()


BASE = "/job:foo/replica:10/task:0/device:CPU:0"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/job:foo/replica:10/task:0/device:CPU:1", "/job:foo/replica:10/task:0/device:CPU:1"),
        ("/job:foo/task:0/replica:10/device:CPU:1", "/job:foo/replica:10/task:0/device:CPU:1"),
        ("/job:foo/task:0/replica:10/cpu:1", "/job:foo/replica:10/task:0/device:CPU:1"),
        ("CPU:0", BASE),
    ],
)
def test_canonical_names(text: str, canonical: str) -> None:
    assert canonical_device_name(text, BASE) == canonical


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("/job:foo/task:0/replica/cpu:1", BASE),
        ("/device:CPU:0", "/device:CPU:0"),
        ("/device:CPU:0", "/job:foo/task:0/replica/cpu:1"),
    ],
)
def test_what_has_no_canonical_name(text: str, base: str) -> None:
    with pytest.raises(InvalidArgumentError):
        canonical_device_name(text, base)


def test_names_are_ordered_part_by_part() -> None:
    ordered = ["", "/device:CPU:1", "/job:a", "/job:a/task:2", "/job:a/task:10", "/job:a/replica:0/cpu:0", "/job:b"]
    mixed = [parse_device_name(text) for text in ordered[::-1]]
    assert sorted(mixed, key=lambda name: name.sort_key) == [parse_device_name(text) for text in ordered]
