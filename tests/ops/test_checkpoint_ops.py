"""Ops that save and restore checkpoints, and what they may touch."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from asyncexec.framework.op_registry import registry
from asyncexec.ops.io.file_ops import FILE_OPS
from tests.ops.op_case import OpCase, text
from tests.ops.op_runner import run_case

W, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.int64(7)


def name_of(path: Path) -> bytes:
    return str(path).encode()


def save(prefix: Path) -> None:
    names, parts = text(b"w", b"b"), text(b"", b"")
    case = OpCase("SaveV2", [name_of(prefix), names, parts, W, B], {"dtypes": ["float32", "int64"]})
    assert run_case(case) == []


def restore(prefix: Path, names: Any, parts: Any, dtypes: list[str]) -> list[Any]:
    return run_case(OpCase("RestoreV2", [name_of(prefix), names, parts], {"dtypes": dtypes}))


def test_all_ops_of_files_are_known() -> None:
    touching = {name for name in registry if registry.lookup(name).op_def.touches_outside}
    assert {name for name in touching if "PyFunc" not in name} >= FILE_OPS
    assert {"ReadFile", "WriteFile", "RestoreV2", "SaveV2", "MergeV2Checkpoints"} <= FILE_OPS


def test_what_is_saved_is_restored(tmp_path: Path) -> None:
    save(tmp_path / "new" / "c")
    w, b, part = restore(
        tmp_path / "new" / "c", text(b"w", b"b", b"w"), text(b"", b"", b"2 3 1,1:-"), ["float32", "int64", "float32"]
    )
    np.testing.assert_array_equal(w, W)
    assert b == 7
    np.testing.assert_array_equal(part, W[1:])


def test_shards_are_named_and_merged(tmp_path: Path) -> None:
    (name,) = run_case(OpCase("ShardedFilename", [name_of(tmp_path / "part"), np.int32(0), np.int32(1)]))
    assert Path(name.decode()).name == "part-00000-of-00001"
    assert run_case(OpCase("ShardedFilespec", [b"p", np.int32(3)])) == [b"p-?????-of-00003"]
    shard = tmp_path / "temporary" / "part"
    save(shard)
    assert run_case(OpCase("MergeV2Checkpoints", [text(name_of(shard)), name_of(tmp_path / "c")])) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.data-00000-of-00001", "c.index"]
    np.testing.assert_array_equal(restore(tmp_path / "c", text(b"w"), text(b""), ["float32"])[0], W)


def test_everything_that_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    save(tmp_path / "c")
    with pytest.raises(NotFoundError, match="'bias', 'kernel'"):
        restore(tmp_path / "c", text(b"kernel", b"w", b"bias"), text(b"", b"", b""), ["float32"] * 3)
    with pytest.raises(InvalidArgumentError) as caught:
        restore(tmp_path / "c", text(b"w", b"b"), text(b"3 3 0,1:-", b""), ["float32", "int32"])
    assert "'w' has the shape [2, 3] there, and should have [3, 3]" in str(caught.value)
    assert "'b' is int64 there, and should be int32" in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="1 tensors"):
        restore(tmp_path / "c", text(b"w", b"b"), text(b"", b""), ["float32"])


def graph_of(build: Any) -> ax.GraphDef:
    with ax.Graph() as graph:
        build()
    return graph.as_graph_def()


def reading() -> None:
    ax.create_op("ReadFile", [ax.placeholder(ax.string, [], name="name")], name="read")
    ax.create_op("MatchingFiles", [ax.placeholder(ax.string, [], name="pattern")], name="match")
    ax.create_op("WriteFile", [ax.placeholder(ax.string, [], name="target"), "x"], name="write")


async def test_ops_touch_only_what_is_in_their_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_bytes(folder.name.encode())
    (inside / "link").symlink_to(outside / "file")
    (inside / "folder").symlink_to(outside)
    graph_def = graph_of(reading)
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def, "refused")
        ax.import_graph_def(graph_def, allowed_folders=[inside])
    async with ax.Session(graph) as session:
        with pytest.raises(PermissionDeniedError, match="allowed_folders"):
            await session.run("refused/read:0", {"refused/name:0": str(inside / "file")})
        assert await session.run("read:0", {"name:0": str(inside / "file")}) == b"inside"
        await session.run("write", {"target:0": str(inside / "new")})
        found = await session.run("match:0", {"pattern:0": str(inside / "f*e")})
        assert [Path(name.decode()).name for name in found] == ["file"]
        for name in (outside / "file", inside / "link", inside / ".." / "outside" / "file", inside / "folder" / "file"):
            with pytest.raises(PermissionDeniedError, match="may not read"):
                await session.run("read:0", {"name:0": str(name)})
            with pytest.raises(PermissionDeniedError, match="may not write"):
                await session.run("write", {"target:0": str(name)})
        for pattern in (outside / "*", inside / "folder" / "*", inside / "li*", inside / "f*r" / "file"):
            with pytest.raises(PermissionDeniedError):
                await session.run("match:0", {"pattern:0": str(pattern)})
        with pytest.raises(InvalidArgumentError):
            await session.run("match:0", {"pattern:0": str(inside / "*" / ".." / ".." / "outside" / "*")})
    assert (outside / "file").read_bytes() == b"outside"


async def test_an_op_that_is_named_touches_all_files(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "file").write_bytes(b"content")
    with ax.Graph() as graph:
        ax.import_graph_def(graph_of(reading), allowed_ops=["ReadFile"], allowed_folders=[tmp_path / "inside"])
    async with ax.Session(graph) as session:
        assert await session.run("read:0", {"name:0": str(tmp_path / "file")}) == b"content"
        with pytest.raises(PermissionDeniedError):
            await session.run("write", {"target:0": str(tmp_path / "file")})


async def test_variables_are_restored_by_the_ops_of_a_graph(tmp_path: Path) -> None:
    await asyncio.to_thread(save, tmp_path / "c")
    with ax.Graph() as graph:
        variable = ax.Variable(np.zeros((2, 3), np.float32), name="w")
        value = ax.create_op("RestoreV2", [str(tmp_path / "c"), ["w"], [""]], attrs={"dtypes": [ax.float32]})[0]
        assign = variable.assign(value)
        ax.create_op("DisableCopyOnRead", [variable.handle], name="disable")
    async with ax.Session(graph) as session:
        await session.run([], targets=[assign, "disable"])
        np.testing.assert_array_equal(await session.run(variable), W)
