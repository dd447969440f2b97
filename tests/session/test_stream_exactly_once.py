"""No item of a stream is lost, and none comes twice, whenever who sends, takes or closes is cancelled.

As in ``test_exactly_once.py``: one is cancelled before each callback of the loop, and another goes on after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import asyncexec as ax
from tests.fake_time import in_single_steps
from tests.running import settle
from tests.session.injection import Begun, at_every_point, cancelled_before
from tests.session.stream_graphs import Stages, results

pytestmark = pytest.mark.virtual_clock

COUNT = 6


def numbers(outputs: list[Any]) -> list[int]:
    return [int(out) for out in outputs]


class Delays(dict[int, float]):
    """Every other item takes its time."""

    def get(self, x: int, default: Any = None) -> float:
        return 1.0 if x % 2 else 0.0


def async_items(stages: Stages) -> AsyncIterator[Any]:
    async def items() -> AsyncIterator[Any]:
        for feeds in stages.items(range(COUNT)):
            await settle(1)
            yield feeds

    return items()


SOURCES: dict[str, Callable[[Stages], Any]] = {
    "iterable": lambda stages: stages.items(range(COUNT)),
    "async": async_items,
}


@pytest.fixture(params=[False, True], ids=["", "in single steps"])
def building(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of sessions: building gives way to others as often as it can, or not at all."""
    return in_single_steps() if request.param else {}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("source", SOURCES)
async def test_results_of_a_map_whose_taker_is_cancelled(source: str, ordered: bool, building: dict[str, Any]) -> None:
    """``anext`` under a timeout, say: whoever asks next gets what that one would have got; from the first item on."""
    stages = Stages(delays=Delays())

    async def check(point: int) -> bool:
        found: list[Any] = []

        async def take_all() -> None:
            async for out in outputs:
                found.append(out)

        async with (
            ax.Session(stages.graph, **building) as session,
            session.map(stages.y, SOURCES[source](stages), window=2, ordered=ordered) as outputs,
        ):
            was_cancelled, _ = await cancelled_before(point, take_all)
            await take_all()
        assert sorted(numbers(found)) == results(range(COUNT)), point
        assert not ordered or numbers(found) == results(range(COUNT)), point
        return was_cancelled

    await at_every_point(check)


async def test_results_of_a_map_one_of_whose_two_takers_is_cancelled() -> None:
    stages = Stages(delays=Delays())

    async def check(point: int) -> bool:
        found: list[int] = []

        async def take_all() -> None:
            async for out in outputs:
                found.append(int(out))

        async with (
            ax.Session(stages.graph) as session,
            session.map(stages.y, stages.items(range(COUNT)), window=3) as outputs,
        ):
            found.append(int(await anext(outputs)))
            other = asyncio.ensure_future(take_all())
            was_cancelled, _ = await cancelled_before(point, take_all)
            await other
        assert sorted(found) == results(range(COUNT)), point
        return was_cancelled

    await at_every_point(check)


async def test_items_of_a_stream_whose_sender_is_cancelled(building: dict[str, Any]) -> None:
    """An item whose ``send`` did not return was not sent."""
    stages = Stages(delays=Delays())

    async def check(point: int) -> bool:
        returned: list[int] = []

        async def send_all() -> None:
            for x in range(len(returned), COUNT):
                await stream.send({stages.x: x})
                returned.append(x)
            await stream.close()

        async def take_all() -> list[int]:
            return [int(out) async for out in stream]

        async with ax.Session(stages.graph, **building) as session, session.stream(stages.y, window=2) as stream:
            taking = asyncio.ensure_future(take_all())
            was_cancelled, _ = await cancelled_before(point, send_all)
            if len(returned) < COUNT:
                await send_all()
            await stream.close()
            assert await taking == results(range(COUNT)), point
        return was_cancelled

    await at_every_point(check)


async def test_results_of_a_stream_whose_close_is_cancelled() -> None:
    stages = Stages(delays=Delays())

    async def check(point: int) -> bool:
        async with ax.Session(stages.graph) as session, session.stream(stages.y, window=COUNT) as stream:
            for x in range(COUNT):
                await stream.send({stages.x: x})
            was_cancelled, _ = await cancelled_before(point, begun := Begun(stream.close))
            if begun:
                with pytest.raises(ax.errors.FailedPreconditionError, match="closed"):
                    await stream.send({stages.x: 0})
            await stream.close()
            assert [int(out) async for out in stream] == results(range(COUNT)), point
        return was_cancelled

    await at_every_point(check)


async def test_a_stream_whose_end_is_cancelled_has_ended_all_the_same() -> None:
    stages = Stages(delays=Delays())

    async def check(point: int) -> bool:
        async with ax.Session(stages.graph) as session:
            stream = await session.stream(stages.y, window=COUNT).__aenter__()
            for x in range(COUNT):
                await stream.send({stages.x: x})
            await settle(2)
            was_cancelled, _ = await cancelled_before(point, begun := Begun(stream.aclose))
            if begun:
                assert stages.under_way == 0, point
                assert session.statistics().running_steps == 0, point
            await stream.aclose()
        return was_cancelled

    await at_every_point(check)
