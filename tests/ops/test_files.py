"""Ops that reach outside: they are marked, and those with kernels read and write files."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from tests.ops.op_case import OpCase, text
from tests.ops.op_runner import run_case

OUTSIDE = [
    "ReadFile", "WriteFile", "MatchingFiles", "InitializeTableFromTextFile", "InitializeTableFromTextFileV2",
    "WholeFileReader", "WholeFileReaderV2", "TextLineReaderV2", "FixedLengthRecordReaderV2", "TFRecordReaderV2",
    "ReaderReadV2", "SaveV2", "RestoreV2", "MergeV2Checkpoints", "PyFunc", "PyFuncStateless", "EagerPyFunc",
]  # fmt: skip


@pytest.mark.parametrize("op", OUTSIDE)
def test_what_reaches_outside_is_marked(op: str) -> None:
    assert op_registry.lookup(op).op_def.touches_outside


@pytest.mark.parametrize("op", ["PyFunc", "PyFuncStateless", "EagerPyFunc"])
def test_foreign_code_has_no_kernel(op: str) -> None:
    assert kernel_registry.device_types(op) == []


def name_of(path: Path) -> bytes:
    return str(path).encode()


def test_a_file_is_written_with_its_folders_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    assert run_case(OpCase("WriteFile", [name_of(path), b"\0content\n\xff"])) == []
    assert run_case(OpCase("ReadFile", [name_of(path)])) == [b"\0content\n\xff"]
    assert run_case(OpCase("ReadFile", [b"file://" + name_of(path)])) == [b"\0content\n\xff"]


def test_matching_files_are_sorted_and_named_once(tmp_path: Path) -> None:
    for name in ("b1.txt", "a1.txt", ".a2.txt", "c.bin"):
        (tmp_path / name).touch()
    patterns = text(name_of(tmp_path / "*.txt"), name_of(tmp_path / "b?.txt"))
    (found,) = run_case(OpCase("MatchingFiles", [patterns]))
    assert [Path(name.decode()).name for name in found] == [".a2.txt", "a1.txt", "b1.txt"]
    (none,) = run_case(OpCase("MatchingFiles", [name_of(tmp_path / "nothing*")]))
    assert none.shape == (0,)


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        run_case(OpCase("ReadFile", [name_of(tmp_path / "missing")]))
    with pytest.raises(FailedPreconditionError):
        run_case(OpCase("ReadFile", [name_of(tmp_path)]))
    with pytest.raises(FailedPreconditionError):
        run_case(OpCase("WriteFile", [name_of(tmp_path), b"x"]))
    with pytest.raises(InvalidArgumentError):
        run_case(OpCase("ReadFile", [text(name_of(tmp_path))]))
    with pytest.raises(InvalidArgumentError):
        run_case(OpCase("ReadFile", [b"a\0b"]))
