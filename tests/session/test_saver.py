"""Saving and restoring the variables of a session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.framework.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "saved_models"
NAMES = ("c", "c.safetensors")
VALUES = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.ones(3, ml_dtypes.bfloat16),
    "count": np.int64(7),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 2)),
}


def graph_of(values: dict[str, Any]) -> ax.Graph:
    """A graph of variables with *values*; ``init`` initializes them, ``w/add`` adds one to w."""
    with ax.Graph() as graph:
        variables = [ax.Variable(value, name=name) for name, value in values.items()]
        ax.global_variables_initializer()
        for variable in variables:
            if variable.name == "w":
                variable.assign_add(np.ones_like(values["w"]), name="w/add")
        reference = ax.create_op("VariableV2", attrs={"dtype": ax.int32, "shape": ax.TensorShape([2])}, name="ref")
        ax.create_op("Assign", [reference, np.array([1, 2], np.int32)], name="ref/init")
    return graph


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        assert np.asarray(found[name]).dtype == np.asarray(value).dtype
        np.testing.assert_array_equal(found[name], value)


async def initialized(session: ax.Session) -> None:
    await session.run([], targets=["init", "ref/init"])


@pytest.mark.parametrize("name", NAMES)
async def test_variables_are_saved_and_restored_in_another_session(tmp_path: Path, name: str) -> None:
    graph = graph_of(VALUES)
    async with ax.Session(graph) as session:
        await initialized(session)
        for _ in range(2):
            await session.save(tmp_path / "new" / name)
        await session.run([], targets=["w/add"])
    async with ax.Session(graph) as session:
        await session.restore(tmp_path / "new" / name)
        reads = {each: f"{each}/Read:0" for each in VALUES}
        same(await session.run(reads), VALUES)
        assert (await session.run("ref:0")).tolist() == [1, 2]


def test_sessions_without_a_loop_of_ones_own(tmp_path: Path) -> None:
    graph = graph_of(VALUES)
    with ax.BlockingSession(graph) as session:
        session.run([], targets=["init", "ref/init"])
        session.save(str(tmp_path / "c"))
        session.run([], targets=["w/add"])
        session.restore(str(tmp_path / "c.index"))
        np.testing.assert_array_equal(session.run("w/Read:0"), VALUES["w"])
    assert BundleReader(tmp_path / "c").names == sorted([*VALUES, "ref"])


async def test_variables_without_a_value_are_named(tmp_path: Path) -> None:
    async with ax.Session(graph_of(VALUES)) as session:
        await session.run([], targets=["w/Assign"])
        with pytest.raises(FailedPreconditionError, match="'count', 'empty', 'flags', 'half', 'ref'"):
            await session.save(tmp_path / "c")
        await session.save(tmp_path / "c", variables=["w"])
        with pytest.raises(NotFoundError, match="no variables 'a', 'b'"):
            await session.save(tmp_path / "c", variables=["b", "w", "a"])
    reader = await asyncio.to_thread(BundleReader, tmp_path / "c")
    assert reader.names == ["w"]


@pytest.mark.parametrize("name", NAMES)
async def test_all_that_does_not_fit_is_named_and_nothing_is_changed(tmp_path: Path, name: str) -> None:
    async with ax.Session(graph_of({"w": np.zeros((3, 3), np.float32), "x": 1, "count": np.int32(1)})) as session:
        await initialized(session)
        await session.save(tmp_path / name)
    async with ax.Session(graph_of(VALUES)) as session:
        await initialized(session)
        with pytest.raises(NotFoundError) as caught:
            await session.restore(tmp_path / name)
        message = str(caught.value)
        assert "missing there: 'empty', 'flags', 'half'" in message
        assert "not in the graph: 'x'" in message
        assert "'w' is float32 of shape [2,3] here, and float32 of shape [3, 3] there" in message
        assert "'count' is int64" in message
        with pytest.raises(InvalidArgumentError, match="'w' is float32"):
            await session.restore(tmp_path / name, variables=["ref", "w"])
        same(await session.run({each: f"{each}/Read:0" for each in VALUES}), VALUES)
        await session.restore(tmp_path / name, variables=["ref"])


async def test_strings_are_saved_in_checkpoints_alone(tmp_path: Path) -> None:
    words = np.array([b"a", b"\xff\0"], "O")
    with ax.Graph() as graph:
        variable = ax.Variable(words, name="words")
    async with ax.Session(graph) as session:
        await session.run([], targets=[variable.initializer])
        with pytest.raises(InvalidArgumentError, match=r"no form for 'words' \(string\)"):
            await session.save(tmp_path / "c.safetensors")
        await session.save(tmp_path / "c")
        await session.restore(tmp_path / "c")
        assert (await session.run(variable)).tolist() == words.tolist()
    assert not (tmp_path / "c.safetensors").exists()


@pytest.mark.parametrize("prefix", ["checkpoints/saver", "v1_simple"])
async def test_checkpoints_of_tensorflow_are_restored(prefix: str) -> None:
    with ax.Graph() as graph:
        variables = {"v": (2, 3), "p": (5, 3), "r": (3,)}
        reads = {name: ax.Variable(np.zeros(shape, np.float32), name=name) for name, shape in variables.items()}
    async with ax.Session(graph) as session:
        await session.restore(GOLDEN / prefix)
        found = await session.run(reads)
    np.testing.assert_array_equal(found["p"], np.arange(15).reshape(5, 3))
    np.testing.assert_array_equal(found["r"], np.ones(3))


async def test_checkpoints_of_objects_are_restored_by_full_names() -> None:
    with ax.Graph() as graph:
        w = ax.Variable(np.zeros((2, 3), np.float32), name="w")
        calls = ax.Variable(np.int64(9), name="calls")
    async with ax.Session(graph) as session:
        await session.restore(GOLDEN / "checkpoints" / "objects", variables=["w", "calls"])
        assert await session.run(calls) == 0
        np.testing.assert_array_equal(await session.run(w), np.arange(6).reshape(2, 3))
        with pytest.raises(InvalidArgumentError, match="not in the graph: 'b', 'labels'"):
            await session.restore(GOLDEN / "checkpoints" / "objects")


def cut_all(folder: Path) -> None:
    """Make each file in *folder* a little shorter."""
    for path in list(folder.iterdir()):
        path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("name", NAMES)
async def test_files_that_are_missing_or_damaged(tmp_path: Path, name: str) -> None:
    async with ax.Session(graph_of(VALUES)) as session:
        await initialized(session)
        with pytest.raises(NotFoundError):
            await session.restore(tmp_path / name)
        await session.save(tmp_path / name)
        cut_all(tmp_path)
        with pytest.raises(DataLossError):
            await session.restore(tmp_path / name)
        (tmp_path / "file").touch()
        with pytest.raises((NotFoundError, FailedPreconditionError)):
            await session.save(tmp_path / "file" / name)
        same(await session.run({each: f"{each}/Read:0" for each in VALUES}), VALUES)


async def test_a_closed_session_saves_nothing(tmp_path: Path) -> None:
    session = ax.Session(graph_of(VALUES))
    await session.close()
    with pytest.raises(Exception, match="closed"):
        await session.save(tmp_path / "c")
