"""Large tensors of checkpoints in files: each in ``safetensors``, whole or not there, and checked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import asyncexec as ax
from asyncexec.durable.checkpoint_log import CheckpointLog
from asyncexec.durable.record import JsonCodec, Record

pytestmark = pytest.mark.allow_blocking


def tensors(number: int) -> dict[str, Any]:
    generator = np.random.default_rng(number)
    return {
        "state 'large'": generator.random(2**18),
        "state 'wide'": generator.integers(-9, 9, (2**10, 2**10), np.int16).T,
        "state 'odd'": generator.random(2**18).astype(np.complex64),
        "state 'small'": generator.random(3),
        "state 'words'": np.array([b"a", b"b"], object),
    }


async def saved(folder: Path, count: int) -> CheckpointLog:
    log = CheckpointLog(ax.checkpoint.FileStore(folder), "orders", JsonCodec())
    for number in range(1, count + 1):
        await log.append(log.entry(Record({"number": number}, tensors(number))))
    return log


async def loaded(folder: Path) -> Record:
    found = await CheckpointLog(ax.checkpoint.FileStore(folder), "orders", JsonCodec()).load()
    assert found is not None
    return found.record


def check(record: Record, number: int) -> None:
    assert record.about["number"] == number
    for name, value in tensors(number).items():
        assert record.values[name].dtype == value.dtype
        np.testing.assert_array_equal(record.values[name], value)


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_they_come_back_and_older_ones_are_gone(count: int, tmp_path: Path) -> None:
    await saved(tmp_path, count)
    check(await loaded(tmp_path), count)
    assert len(await ax.checkpoint.FileStore(tmp_path).list()) == 2 * min(count, 2) + 1


async def test_other_programs_can_read_them(tmp_path: Path) -> None:
    await saved(tmp_path, 1)
    (path,) = files(tmp_path)
    found = safetensors.numpy.load_file(path)
    assert found.keys() == {"state 'large'", "state 'wide'"}
    for name, value in found.items():
        np.testing.assert_array_equal(value, tensors(1)[name])


async def test_a_crash_between_the_two_files_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    log = await saved(tmp_path, 3)
    entry = log.entry(Record({"number": 4}, tensors(4)))
    await ax.checkpoint.FileStore(tmp_path).put_tensors(log._tensors_key(4), entry.tensors)
    check(await loaded(tmp_path), 3)  # without a warning: both checkpoints are whole
    await log.append(entry)
    check(await loaded(tmp_path), 4)
    assert len(await ax.checkpoint.FileStore(tmp_path).list()) == 5


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("spoil", ["cut", "changed", "foreign", "gone", "of another number"])
async def test_a_file_that_is_damaged_is_told_and_the_checkpoint_before_is_used(spoil: str, tmp_path: Path) -> None:
    await saved(tmp_path, 2)
    before, last = files(tmp_path)
    content = last.read_bytes()
    if spoil == "gone":
        last.unlink()
    elif spoil == "of another number":
        last.write_bytes(before.read_bytes())
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        last.write_bytes({"cut": content[:-1], "changed": changed, "foreign": b"a text"}[spoil])
    with pytest.warns(ax.checkpoint.CheckpointWarning, match=r"'orders/1'.*'orders/0' is used instead"):
        check(await loaded(tmp_path), 1)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, ax.errors.ResourceExhaustedError),
        (errno.EACCES, ax.errors.PermissionDeniedError),
        (errno.EIO, ax.errors.UnavailableError),
    ],
)
async def test_what_a_disk_says_is_told(
    code: int, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await saved(tmp_path, 2)

    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    def fail_as_library(*_: Any) -> None:
        raise safetensors.SafetensorError(f"Error while serializing: I/O error: nothing fits (os error {code})")

    for target, name, failing in ((os, "fsync", fail), (safetensors.numpy, "save_file", fail_as_library)):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, failing)
            with pytest.raises(kind, match="cannot be written"):
                await log.append(log.entry(Record({"number": 3}, tensors(3))))
        check(await loaded(tmp_path), 2)
        assert unfinished(tmp_path) == []


async def test_a_limit_of_the_system_is_told_by_either_way_of_writing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    log = await saved(tmp_path, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for values in (tensors(3), {"state": bytes(2**20)}):
        entry = log.entry(Record({"number": 3}, values))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, before[1]))
        try:
            with pytest.raises(ax.errors.ResourceExhaustedError, match="cannot be written: File too large"):
                await log.append(entry)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        check(await loaded(tmp_path), 2)


def unfinished(folder: Path) -> list[Path]:
    return list(folder.rglob(".written-*"))


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))
