"""Kernels that were never timed with inputs as large as they get are called on worker threads."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import LARGE_SIZE
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op

SMALL: Final = np.zeros(4, np.float32)
LARGE: Final = np.zeros(LARGE_SIZE // 4 + 1, np.float32)


class Watched:
    """Nodes that tell on which thread they were called."""

    def __init__(self) -> None:
        self.was_inline: list[bool] = []
        self._main = threading.get_ident()

    def op(self, **options: Any) -> Any:
        return raw_op("Watched", self._kernel, dtype=ax.float32, **options)

    def _kernel(self, value: Any) -> Any:
        self.was_inline.append(threading.get_ident() == self._main)
        return value[:4] if np.ndim(value) else value

    def take(self) -> list[bool]:
        found, self.was_inline = self.was_inline, []
        return found


@pytest.mark.parametrize("has_loop", [False, True])
@pytest.mark.parametrize("devices", [1, 2])
async def test_feeds_of_all_sizes(devices: int, *, has_loop: bool) -> None:
    watched = Watched()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        with ax.device(f"/cpu:{devices - 1}"):
            y = watched.op()(x)
        if has_loop:
            (turn,) = ax.while_loop(lambda i: i < 2, lambda i: (i + 1,), (0,))
            y = [y, turn]
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": devices})) as session:
        for value, is_inline in [(SMALL, True), (LARGE, False), (SMALL, True), (SMALL, True)]:
            await session.run(y, {x: value})
            assert watched.take() == [is_inline]


async def test_first_run_with_a_large_constant() -> None:
    watched = Watched()
    with ax.Graph() as graph:
        y = watched.op()(watched.op()(ax.constant(LARGE)))
    async with ax.Session(graph) as session:
        await session.run(y)
        assert watched.take() == [False, True]


async def test_kernel_that_is_said_to_be_cheap_is_called_inline() -> None:
    watched = Watched()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = watched.op(is_expensive=False)(x)
    async with ax.Session(graph) as session:
        for value in (LARGE, SMALL, LARGE):
            await session.run(y, {x: value})
    assert watched.take() == [True] * 3


async def test_kernel_that_turns_out_to_be_quick_comes_back() -> None:
    """It does nothing with its input, whatever the size: a thread does not pay."""
    watched = Watched()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = watched.op(kind=KernelKind.CHEAP)(x)
    async with ax.Session(graph) as session:
        for _ in range(20):
            await session.run(y, {x: LARGE})
    found = watched.take()
    assert found[0] is False
    assert found[-1] is True


async def test_error_of_a_kernel_with_large_inputs() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.check_numerics(x, "bad")
    async with ax.Session(graph) as session:
        for value in (SMALL, LARGE):
            with pytest.raises(ax.errors.InvalidArgumentError, match="bad"):
                await session.run(y, {x: np.full_like(value, np.nan)})
