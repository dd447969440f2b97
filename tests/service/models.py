"""Models for the tests of the service: graphs, their folders, and what clients send them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.service.models.config import config_of
from asyncexec.service.models.files import ModelSource, ReadModel
from asyncexec.service.models.kinds import make_model
from asyncexec.service.models.model import Model
from asyncexec.service.requests import InferTensor


def sums() -> ax.Graph:
    """Inputs x and y, rows of three floats; outputs sum and diff."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        y = ax.placeholder(ax.float32, [None, 3], name="y")
        ax.add(x, y, name="sum")
        ax.subtract(x, y, name="diff")
    return graph


def model_of(source: ax.Graph | ModelSource, **config: Any) -> Model:
    """Model "m", of *source*, with the fields of its configuration."""
    given = source if isinstance(source, ModelSource) else ModelSource(source)
    read = ReadModel.of("m", "1", given, config_of(config, "the config of the test"))
    return make_model("m", read)


def rows(value: float, count: int = 1, width: int = 3) -> InferTensor:
    """*count* rows of float32, all *value*."""
    return InferTensor("FP32", np.full((count, width), value, np.float32))


def write_model(folder: Path, graph: ax.Graph, version: int = 1, config: str = "") -> Path:
    """The model that *folder* is made to have: *graph* as its *version*."""
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    ax.save_graph_def(graph.as_graph_def(), folder / str(version) / "model.pb")
    if config:
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    return folder


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody tells of; the test's own timeout ends it."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
