"""A repository of a few small models, for the tests of the HTTP front."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf import json_format

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, UnavailableError
from asyncexec.service.models.files import ModelSource, ReadModel
from asyncexec.service.models.kinds import make_model
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository, ModelState
from asyncexec.service.protocol_messages import message


def made(name: str, graph: ax.Graph, version: str = "1", **config: Any) -> Model:
    """The model called *name* of *graph*, with the fields of its configuration."""
    parsed = json_format.ParseDict(config, message("ModelConfig")())
    return make_model(name, ReadModel.of(name, version, ModelSource(graph), parsed))


def unary(dtype: Any, shape: Any, function: Callable[..., Any]) -> ax.Graph:
    """Input x, output y: *function* of it."""
    with ax.Graph() as graph:
        function(ax.placeholder(dtype, shape, name="x"), name="y")
    return graph


def calling(function: Callable[[Any], Awaitable[Any]]) -> ax.Graph:
    """Input x, a float; output y: what *function* returns for it."""
    with ax.Graph() as graph:
        result = ax.op(outputs=[ax.float32])(function)(ax.placeholder(ax.float32, [], name="x"))
        ax.identity(result, name="y")
    return graph


class FakeRepository(ModelRepository):
    """Serves *models*; notes what is to be loaded and unloaded."""

    def __init__(self, *models: Model) -> None:
        super().__init__()
        self.all = {(model.name, model.version): model for model in models}
        self.unready: set[str] = set()
        self.asked: list[Any] = []

    def model(self, name: str, version: str = "") -> Model:
        found = [model for key, model in self.all.items() if key == (name, version or key[1])]
        if not found or found[-1].name != name:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        if name in self.unready:
            raise UnavailableError(f"Request for unknown model: '{name}' is not ready")
        return found[-1]

    def versions(self, name: str) -> list[str]:
        self.model(name)
        return [version for known, version in self.all if known == name]

    def models(self) -> list[Model]:
        return [model for (name, _), model in self.all.items() if name not in self.unready]

    def is_model_ready(self, name: str, version: str = "") -> bool:
        return name not in self.unready and any(key == (name, version or key[1]) for key in self.all)

    @property
    def is_ready(self) -> bool:
        return not self.unready

    def index(self, *, is_ready: bool = False) -> list[ModelState]:
        states = [
            ModelState(name, version, *(("UNAVAILABLE", "it broke") if name in self.unready else ("READY", "")))
            for name, version in self.all
        ]
        return [state for state in states if state.state == "READY" or not is_ready]

    async def load(self, name: str, parameters: Mapping[str, str | bytes | bool | int] | None = None) -> None:
        if name not in {known for known, _ in self.all}:
            raise InvalidArgumentError(f"failed to load '{name}'", hint="there is no such folder")
        self.asked.append(("load", name, parameters))

    async def unload(self, name: str) -> None:
        self.asked.append(("unload", name))

    async def close(self) -> None:
        """End all models."""
        await asyncio.gather(*[model.close() for model in self.all.values()])
