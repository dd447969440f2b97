"""Messages whose descriptor is in a file, or in the process; and files that an op may not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from tests.ops.cases.proto_fields import FULL, SOURCE
from tests.ops.kernel_bench import KernelBench, infer
from tests.ops.op_case import text

ATTRS: dict[str, Any] = {"message_type": "case.All", "field_names": [b"i32"], "output_types": ["int32"]}


@pytest.fixture
def bench() -> KernelBench:
    return KernelBench()


@pytest.fixture
def descriptor(tmp_path: Path) -> Path:
    path = tmp_path / "case.pb"
    path.write_bytes(SOURCE.removeprefix(b"bytes://"))
    return path


def decode(bench: KernelBench, source: str, **changed: Any) -> Any:
    return bench.run("DecodeProtoV2", text(FULL), **{**ATTRS, "descriptor_source": source, **changed})


def test_a_descriptor_in_a_file(bench: KernelBench, descriptor: Path) -> None:
    sizes, values = decode(bench, str(descriptor))
    assert sizes.tolist() == [[3]]
    assert values.tolist() == [[7, 8, -1]]
    bench.resource_mgr.files.allow_folder(descriptor.parent, writes=False)
    assert decode(bench, str(descriptor))[0].tolist() == [[3]]


def test_a_file_elsewhere_is_not_read(bench: KernelBench, descriptor: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    bench.resource_mgr.files.allow_folder(tmp_path / "model", writes=False)
    with pytest.raises(PermissionDeniedError, match="DecodeProtoV2"):
        decode(bench, str(descriptor))


def test_a_file_that_is_not_there(bench: KernelBench, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        decode(bench, str(tmp_path / "nope.pb"))


def test_a_file_that_is_no_descriptor(bench: KernelBench, descriptor: Path) -> None:
    descriptor.write_bytes(b"\xff")
    with pytest.raises(InvalidArgumentError, match="file descriptor set"):
        decode(bench, str(descriptor))


def test_messages_that_are_part_of_the_process(bench: KernelBench) -> None:
    known = {"message_type": "google.protobuf.FieldDescriptorProto", "field_names": [b"number"]}
    found = bench.run("DecodeProtoV2", text(b"\x18\x07"), **known, output_types=["int32"])
    assert found[1].tolist() == [[7]]


def test_negative_sizes_are_refused(bench: KernelBench) -> None:
    attrs = {"message_type": "case.All", "descriptor_source": SOURCE, "field_names": [b"i32"]}
    kernel = bench.kernel("EncodeProto", Tinput_types=["int32"], **attrs)
    with pytest.raises(InvalidArgumentError, match="-1 > 2 at message 0 field 0"):
        kernel(np.array([[-1]], np.int32), np.array([[1, 2]], np.int32))


def test_shapes() -> None:
    attrs = {"message_type": "case.All", "field_names": [b"a", b"b"]}
    assert infer("DecodeProtoV2", [3, None], output_types=["int32", "string"], **attrs) == [
        *([3, None, 2], [3, None, None], [3, None, None])
    ]
    assert infer("EncodeProto", [3, 2], [3, 9], [3, None], Tinput_types=["int32", "string"], **attrs) == [[3]]
    with pytest.raises(InvalidArgumentError):
        infer("DecodeProtoV2", [3], output_types=["int32"], **attrs)
