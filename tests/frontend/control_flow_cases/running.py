"""What the cases share: a session on what a function builds, results as plain values, ops of control flow by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.graph.graph_text import parse_graph_text


def plain(value: Any) -> Any:
    """*value* with its arrays as nested lists; lists, tuples and dicts stay what they are."""
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(plain, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@asynccontextmanager
async def session_of(build: Callable[[], Any], **config: Any) -> AsyncIterator[tuple[ax.Session, Any]]:
    """A session on the graph that *build* makes, with its variables initialized, and what *build* gives."""
    with ax.Graph() as graph:
        built = build()
        initializer = ax.global_variables_initializer()
    async with ax.Session(graph, ax.SessionConfig(**config)) as session:
        await session.run(initializer)
        yield session, built


async def value_of(build: Callable[[], Any], feeds: Mapping[str, Any] | None = None, **config: Any) -> Any:
    """The value of what *build* makes, as plain Python values; *feeds* are by the names of tensors."""
    async with session_of(build, **config) as (session, built):
        return plain(await session.run(built, feeds))


async def value_of_text(text: str, fetches: Any, feeds: Mapping[str, Any] | None = None) -> Any:
    """The value of *fetches* in the graph that *text* spells, as plain Python values."""
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(text))
    async with ax.Session(graph) as session:
        return plain(await session.run(fetches, feeds))


def after(dependencies: list[Any], tensor: Any) -> ax.Tensor:
    """*tensor* once all of *dependencies* have run: TensorFlow's ``with_dependencies``."""
    with ax.control_dependencies(dependencies):
        return ax.identity(tensor)


def switch(data: Any, pred: Any) -> list[ax.Tensor]:
    """The two outputs of a Switch, the one for false first."""
    outputs: list[ax.Tensor] = ax.create_op("Switch", [data, pred])
    return outputs


def merge(inputs: list[Any]) -> list[ax.Tensor]:
    """The outputs of a Merge: the value, and the index of the input it is of."""
    outputs: list[ax.Tensor] = ax.create_op("Merge", [inputs])
    return outputs


def enter(data: Any, frame_name: str, *, is_constant: bool = False) -> ax.Tensor:
    """*data* in the frame *frame_name*."""
    tensor: ax.Tensor = ax.create_op("Enter", [data], {"frame_name": frame_name, "is_constant": is_constant})
    return tensor


def leave(data: Any) -> ax.Tensor:
    """*data* in the frame around its own."""
    tensor: ax.Tensor = ax.create_op("Exit", [data])
    return tensor
