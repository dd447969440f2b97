"""Repositories: folders, versions, loading, unloading and polling."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import asyncexec as ax
from asyncexec.service.model_files import ModelSource
from asyncexec.service.repository import Control, ModelRepository
from asyncexec.service.requests import InferRequest
from tests.service.models import rows, sums, until, write_model


def states(repository: ModelRepository) -> list[tuple[str, str, str]]:
    return [state[:3] for state in repository.index()]


async def answer(repository: ModelRepository, name: str, version: str = "") -> str:
    """Which version of *name* answers."""
    model = repository.model(name, version)
    return (await model.infer(InferRequest(name, {"x": rows(1), "y": rows(1)}))).model_version


async def test_all_models_of_a_folder(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    await asyncio.to_thread(write_model, tmp_path / "wide", sums(), config="max_batch_size: 8")
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "model.pb").write_bytes(b"rubbish")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README").write_text("not a model")
    repository = ModelRepository(tmp_path)
    assert not repository.is_ready
    await repository.start()
    assert states(repository) == [("bad", "1", "UNAVAILABLE"), ("sum", "1", "READY"), ("wide", "1", "READY")]
    assert "not a binary GraphDef" in repository.index()[0].reason
    assert [state.name for state in repository.index(is_ready=True)] == ["sum", "wide"]
    assert not repository.is_ready  # for one of them is not
    assert (await answer(repository, "sum"), repository.is_model_ready("bad")) == ("1", False)
    await repository.close()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", ["10"]),
        ("version_policy { latest { num_versions: 2 } }", ["3", "10"]),
        ("version_policy { all {} }", ["2", "3", "10"]),
        ("version_policy { specific { versions: [2, 7] } }", ["2"]),
    ],
)
async def test_version_policy(tmp_path: Path, policy: str, expected: list[str]) -> None:
    for version in (2, 3, 10):
        await asyncio.to_thread(write_model, tmp_path / "sum", sums(), version, policy)
    (tmp_path / "sum" / "notes").mkdir()
    repository = ModelRepository(tmp_path)
    await repository.start()
    assert repository.versions("sum") == expected
    assert await answer(repository, "sum") == expected[-1]
    assert await answer(repository, "sum", expected[0]) == expected[0]
    await repository.close()


async def test_what_is_unknown_or_not_ready(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    (tmp_path / "empty").mkdir()
    repository = ModelRepository(tmp_path)
    await repository.start()
    with pytest.raises(ax.errors.NotFoundError, match="Request for unknown model: 'no' is not found"):
        repository.model("no")
    with pytest.raises(ax.errors.NotFoundError, match="Request for unknown model: 'sum' version 7 is not found"):
        repository.model("sum", "7")
    with pytest.raises(ax.errors.UnavailableError, match="'empty' is not at ready state"):
        repository.model("empty")
    assert "at least one version must be available" in repository.index()[0].reason
    await repository.close()


async def test_models_are_loaded_and_unloaded_on_demand(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    await asyncio.to_thread(write_model, tmp_path / "other", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum",))
    await repository.start()
    assert states(repository) == [("sum", "1", "READY"), ("other", "", "")]
    await asyncio.to_thread(write_model, tmp_path / "sum", sums(), 2)
    before = repository.model("sum")
    await repository.load("sum")
    assert await answer(repository, "sum") == "2"
    assert repository.model("sum") is not before
    config = '{"version_policy": {"specific": {"versions": [1]}}}'
    await repository.load("sum", {"config": config})
    assert await answer(repository, "sum") == "1"
    await repository.unload("sum")
    with pytest.raises(ax.errors.UnavailableError):
        repository.model("sum")
    await repository.close()
    assert ("sum", "1", "UNAVAILABLE") in states(repository)


@pytest.mark.parametrize("name", ["no", "", "../outside", "/etc", ".."])
async def test_what_cannot_be_loaded(tmp_path: Path, name: str) -> None:
    await asyncio.to_thread(write_model, tmp_path / "outside", sums())
    await asyncio.to_thread(write_model, tmp_path / "models" / "sum", sums())
    repository = ModelRepository(tmp_path / "models", control="explicit")
    await repository.start()
    with pytest.raises(ax.errors.InvalidArgumentError, match="failed to poll from model repository"):
        await repository.load(name)
    with pytest.raises(ax.errors.UnimplementedError, match="only 'config'"):
        await repository.load("sum", {"file:1/model.pb": b""})
    with pytest.raises(ax.errors.InvalidArgumentError, match="is no model configuration"):
        await repository.load("sum", {"config": "{"})
    await repository.close()


async def test_a_version_that_fails_leaves_those_that_are_served(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum",))
    await repository.start()
    (tmp_path / "sum" / "config.pbtxt").write_text("max_batch_size: many")
    with pytest.raises(ax.errors.InvalidArgumentError, match="failed to load 'sum'"):
        await repository.load("sum")
    assert await answer(repository, "sum") == "1"
    await repository.close()


@pytest.mark.parametrize("control", ["none", "poll"])
async def test_loading_is_not_for_clients_where_the_files_decide(tmp_path: Path, control: Control) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control=control)
    await repository.start()
    with pytest.raises(ax.errors.UnimplementedError, match="explicit model load / unload is not allowed"):
        await repository.load("sum")
    with pytest.raises(ax.errors.UnimplementedError, match="explicit model load / unload is not allowed"):
        await repository.unload("sum")
    await repository.close()


async def test_polling_sees_what_changes(tmp_path: Path) -> None:
    path = await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="poll", poll_s=0.001)
    await repository.start()
    await asyncio.to_thread(write_model, path, sums(), 2)
    await until(lambda: repository.versions("sum") == ["2"])
    await asyncio.to_thread(write_model, tmp_path / "new", sums())
    await until(lambda: repository.is_model_ready("new"))
    (tmp_path / "new").rename(tmp_path / ".gone")
    await until(lambda: not repository.is_model_ready("new"))
    with pytest.raises(ax.errors.NotFoundError):
        repository.model("new")
    await repository.close()


async def test_python_of_the_operator_runs_where_it_is_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "greet" / "1"
    folder.mkdir(parents=True)
    (folder / "graph.py").write_text(
        "import asyncexec as ax\n"
        "with ax.Graph() as graph:\n"
        "    x = ax.placeholder(ax.float32, [None, 3], name='x')\n"
        "    y = ax.placeholder(ax.float32, [None, 3], name='y')\n"
        "    z = ax.add(x, y)\n"
        "model = ax.service.ModelSource(graph, outputs={'sum': z})\n"
    )
    refusing = ModelRepository(tmp_path)
    await refusing.start()
    assert "is Python code" in refusing.index()[0].reason
    await refusing.close()
    repository = ModelRepository(tmp_path, allow_python=True)
    await repository.start()
    assert await answer(repository, "greet") == "1"
    await repository.close()


async def test_a_saved_model_has_the_names_of_its_signature(tmp_path: Path) -> None:
    (tmp_path / "saved" / "1").mkdir(parents=True)
    saved = Path(__file__).parents[1] / "golden" / "saved_model"
    (tmp_path / "saved" / "1" / "model.savedmodel").symlink_to(saved)
    repository = ModelRepository(tmp_path)
    await repository.start()
    assert repository.model("saved").signature.outputs
    await repository.close()


async def test_models_of_graphs_are_there_from_the_start() -> None:
    bad = ModelSource(sums(), config={"max_batch_size": -1})
    repository = ModelRepository(sources={"sum": sums(), "bad": bad})
    await repository.start()
    assert await answer(repository, "sum") == "1"
    assert states(repository) == [("bad", "1", "UNAVAILABLE"), ("sum", "1", "READY")]
    await repository.close()


async def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ax.errors.NotFoundError, match="there is no folder of models"):
        await ModelRepository(tmp_path / "none").start()
