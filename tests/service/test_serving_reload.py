"""HandleReloadConfigRequest: which models and versions are served, and their labels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf import json_format

import asyncexec as ax
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from asyncexec.service.http.front import http_app
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.tf_serving.messages import message
from asyncexec.service.tf_serving.reload import Reloader
from tests.service.models import write_model

pytestmark = pytest.mark.allow_blocking


def times(factor: float) -> ax.Graph:
    with ax.Graph() as graph:
        ax.multiply(ax.placeholder(ax.float32, [None], name="x"), factor, name="y")
    return graph


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[ModelRepository]:
    for name in ("a", "b", "c"):
        for version in (1, 2, 3):
            write_model(tmp_path / name, times(version), version=version)
    found = ModelRepository(tmp_path, control="explicit", load_at_start=("c",))
    await found.start()
    yield found
    await found.close()


def config_of(*entries: dict[str, Any]) -> Any:
    return json_format.ParseDict({"model_config_list": {"config": list(entries)}}, message("ModelServerConfig")())


def served(repository: ModelRepository) -> dict[str, list[str]]:
    names = {model.name for model in repository.models()}
    return {name: repository.versions(name) for name in sorted(names)}


async def test_the_models_of_the_config_are_served_and_no_others(repository: ModelRepository) -> None:
    reloader = Reloader(repository)
    await reloader.reload(config_of({"name": "a", "base_path": "/models/a"}, {"name": "b", "model_platform": "t"}))
    assert served(repository) == {"a": ["3"], "b": ["3"]}
    kept = repository.model("a")
    await reloader.reload(config_of({"name": "a"}))
    assert served(repository) == {"a": ["3"]}
    assert repository.model("a") is kept
    await reloader.reload(config_of())
    assert served(repository) == {}


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ({"all": {}}, ["1", "2", "3"]),
        ({"latest": {"num_versions": 2}}, ["2", "3"]),
        ({"latest": {}}, ["3"]),
        ({"specific": {"versions": [1, 3]}}, ["1", "3"]),
    ],
)
async def test_version_policies(repository: ModelRepository, policy: dict[str, Any], versions: list[str]) -> None:
    reloader = Reloader(repository)
    await reloader.reload(config_of({"name": "a"}))
    await reloader.reload(config_of({"name": "a", "model_version_policy": policy}))
    assert served(repository) == {"a": versions}
    await reloader.reload(config_of({"name": "a"}))
    assert served(repository) == {"a": ["3"]}


async def test_labels_name_versions_that_are_served(repository: ModelRepository) -> None:
    reloader, every = Reloader(repository), {"name": "a", "model_version_policy": {"all": {}}}
    await reloader.reload(config_of({**every, "version_labels": {"stable": 2, "canary": 3}}))
    transport = httpx.ASGITransport(http_app(repository))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for label, expected in (("stable", 2.0), ("canary", 3.0)):
            answer = await client.post(f"/v1/models/a/labels/{label}:predict", json={"instances": [1.0]})
            assert answer.json() == {"predictions": [expected]}
        await reloader.reload(config_of({**every, "version_labels": {"stable": 1}}))
        stable = await client.post("/v1/models/a/labels/stable:predict", json={"instances": [1.0]})
        assert stable.json() == {"predictions": [1.0]}
        assert (await client.get("/v1/models/a/labels/canary")).status_code == 404
    with pytest.raises(FailedPreconditionError, match="label 'old' of model 'a' is for version 9, which is not served"):
        await reloader.reload(config_of({**every, "version_labels": {"old": 9}}))


async def test_the_models_of_an_ensemble_stay(repository: ModelRepository, tmp_path: Path) -> None:
    (tmp_path / "all" / "1").mkdir(parents=True)
    tensors = 'input { name: "X" data_type: TYPE_FP32 dims: -1 } output { name: "Y" data_type: TYPE_FP32 dims: -1 }'
    maps = 'input_map { key: "x" value: "X" } output_map { key: "y" value: "Y" }'
    scheduling = f'ensemble_scheduling {{ step {{ model_name: "b" {maps} }} }}'
    (tmp_path / "all" / "config.pbtxt").write_text(f"{tensors} {scheduling}")
    await Reloader(repository).reload(config_of({"name": "all"}))
    assert sorted(served(repository)) == ["all", "b"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (message("ModelServerConfig")(), "no 'model_config_list'"),
        (config_of({"name": "a"}, {"name": "a"}), "a model is there twice"),
        (config_of({"base_path": "/models/a"}), "has no name"),
        (config_of({"name": "a", "base_path": "/etc"}), "'base_path' of model 'a' is '/etc'"),
        (config_of({"name": "none"}), "failed to load 'none'"),
    ],
)
async def test_configs_that_are_refused_change_nothing(repository: ModelRepository, config: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        await Reloader(repository).reload(config)
    assert served(repository) == {"c": ["3"]}


async def test_without_explicit_control_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(UnimplementedError, match="explicit model load / unload is not allowed"):
        await Reloader(ModelRepository(tmp_path)).reload(config_of())
