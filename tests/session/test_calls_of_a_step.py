"""How many functions of ours a step passes that awaits one op: each costs every such run some 50 ns."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import numpy as np

import asyncexec as ax

OURS = ax.__file__.removesuffix("__init__.py")


@ax.op(outputs=[ax.float32])
async def double(x: np.float32) -> np.float32:
    await asyncio.sleep(0)
    return x * np.float32(2)


async def test_a_step_that_awaits_one_op_is_45_calls_at_most() -> None:
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith((OURS, "<asyncexec")):
            calls.append(f"{file.removeprefix(OURS)}:{frame.f_code.co_name}")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = double(x + 1.0) * 3.0
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        for _ in range(3):
            await session.run(y, {x: 1.0})
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            assert await session.run(y, {x: 1.0}) == 12.0
        finally:
            sys.setprofile(before)
    assert 20 < len(calls) <= 45, calls
