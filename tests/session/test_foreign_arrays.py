"""Feeds and constants that are arrays of other libraries."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import FailedPreconditionError, InvalidTypeError


class Exporter:
    """Knows DLPack, and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, *args: Any, **options: Any) -> Any:
        return self.array.__dlpack__(*args, **options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


async def test_what_knows_dlpack() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        fetches = [x * 2.0, ax.constant(Exporter(np.arange(3, dtype=np.int16)))]
    async with ax.Session(graph) as session:
        doubled, constant = await session.run(fetches, {x: Exporter(np.ones(2, np.float32))})
        np.testing.assert_array_equal(doubled, np.array([2, 2], np.float32), strict=True)
        np.testing.assert_array_equal(constant, np.array([0, 1, 2], np.int16), strict=True)
        large = Exporter(np.ones(2_000_000, np.float64))  # of another dtype: converted in pieces
        assert (await session.run(fetches[0], {x: large})).sum() == 4_000_000
        sent = [item async for item in session.map(fetches[0], [{x: Exporter(np.full(2, 3.0, np.float32))}])]
        np.testing.assert_array_equal(sent, [[6, 6]])
        with pytest.raises(InvalidTypeError, match="cannot feed 'x:0'") as caught:
            await session.run(fetches[0], {x: Exporter(np.array(["text"]))})
        assert caught.value.node == "x"


@pytest.mark.parametrize("kind", [KeyError, OSError, AttributeError])
async def test_what_fails_to_export_itself(kind: type[Exception]) -> None:
    class Broken(Exporter):
        def __dlpack__(self, *args: Any, **options: Any) -> Any:
            raise kind("broken")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = x * 2.0
        with pytest.raises(InvalidTypeError, match="numpy cannot take this Broken"):
            ax.constant(Broken(np.ones(1)))
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidTypeError, match="cannot feed 'x:0': numpy cannot take this Broken"):
            await session.run(y, {x: Broken(np.ones(1))})
        items = [{x: Broken(np.ones(1))}, {x: [1.0]}]
        first, second = [item async for item in session.map(y, items, on_error="yield")]
        assert isinstance(first, InvalidTypeError)
        np.testing.assert_array_equal(second, [2.0])


@pytest.mark.torch
async def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        half = ax.placeholder(ax.bfloat16, [None], name="half")
        fetches = [x * 2.0, ax.cast(half, ax.float32)]
    async with ax.Session(graph) as session:
        for value in (torch.ones(2), torch.ones(2, requires_grad=True)):
            got = await session.run(fetches, {x: value, half: torch.tensor([1.5, 2.5], dtype=torch.bfloat16)})
            np.testing.assert_array_equal(got, np.array([[2, 2], [1.5, 2.5]], np.float32))
    assert sys.modules["torch"] is torch


@pytest.mark.parametrize("options", [None, ax.RunOptions(timeout=1.0)])
def test_without_an_event_loop_it_is_said_what_there_is(options: ax.RunOptions | None) -> None:
    with ax.Graph() as graph:
        y = ax.constant(1.0)
    call = ax.Session(graph).run(y, options=options)
    with pytest.raises(FailedPreconditionError, match="runs in an asyncio event loop") as caught:
        call.send(None)
    assert "ax.BlockingSession" in (caught.value.hint or "")
    items = aiter(ax.Session(graph).map(y, [{}]))
    with pytest.raises(FailedPreconditionError, match="runs in an asyncio event loop"):
        anext(items).send(None)  # type: ignore[attr-defined]
