"""Windows against plain numpy: whatever items take, and whichever fail, each sees the good ones before it.

Time is virtual, and all times are sums of quarters, which are exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.session.stream_graphs import Stages

QUARTERS = st.integers(0, 8).map(lambda n: n / 4)


@dataclass
class Case:
    """A stream: when items come, what they take, which fail, and the windows of it."""

    gaps: list[float]
    delays: list[float]
    failing: set[int]
    ordered: bool
    on_error: Literal["raise", "yield"]
    size: int
    seconds: float


@st.composite
def cases(draw: st.DrawFn) -> Case:
    gaps = draw(st.lists(QUARTERS, max_size=16))
    count = len(gaps)
    return Case(
        gaps,
        draw(st.lists(QUARTERS, min_size=count, max_size=count)),
        draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=4)) & set(range(count)),
        draw(st.booleans()),
        draw(st.sampled_from(["raise", "yield"])),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 12)) / 4,
    )


async def outputs_of(case: Case) -> list[Any]:
    """What comes out; the error that ends the stream is the last."""
    stages = Stages(delays=dict(enumerate(case.delays)), failing=case.failing)
    with stages.graph:
        x = stages.same
        fetches = {
            "x": x,
            "size": ax.window(x, case.size),
            "full": ax.window(x, case.size, fill=np.int64(-1)),
            "seconds": ax.window(x, seconds=case.seconds),
            "both": ax.window(x, case.size, case.seconds),
        }

    async def items() -> AsyncIterator[dict[ax.Tensor, int]]:
        for number, gap in enumerate(case.gaps):
            await asyncio.sleep(gap)
            yield {stages.x: number}

    found: list[Any] = []
    async with ax.Session(stages.graph) as session:
        options = {"ordered": case.ordered, "on_error": case.on_error, "window": 100}
        try:
            async for out in session.map(fetches, items(), **options):  # type: ignore[arg-type]
                found.append(out)
        except ax.errors.OpError as error:
            found.append(error)
    return found


def expected(case: Case, number: int) -> dict[str, list[int]]:
    """The windows of an item, by numpy."""
    times = np.cumsum([0.0, *case.gaps])[1:]
    good = np.array([n for n in range(number + 1) if n not in case.failing])
    recent = good[times[good] > times[number] - case.seconds]
    return {
        "x": [number],
        "size": good[-case.size :].tolist(),
        "full": np.concatenate([np.full(case.size, -1), good])[-case.size :].tolist(),
        "seconds": recent.tolist(),
        "both": recent[-case.size :].tolist(),
    }


def check(case: Case) -> None:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        found = runner.run(outputs_of(case))
    values = [out for out in found if isinstance(out, dict)]
    for out in values:
        assert {key: np.atleast_1d(value).tolist() for key, value in out.items()} == expected(case, int(out["x"]))
    numbers = [int(out["x"]) for out in values]
    good = [n for n in range(len(case.gaps)) if n not in case.failing]
    if case.on_error == "yield" or not case.failing:
        assert sorted(numbers) == good
        assert len(found) == len(case.gaps)
    elif case.ordered:
        assert numbers == good[: min(case.failing)]
        assert len(found) == len(numbers) + 1


@settings(max_examples=100, deadline=None)
@given(cases())
def test_each_item_sees_the_good_ones_before_it(case: Case) -> None:
    check(case)


@pytest.mark.deep
@settings(max_examples=10_000, deadline=None)
@given(cases())
def test_each_item_sees_the_good_ones_before_it_many_times(case: Case) -> None:
    check(case)
