"""No element of a queue is lost by cancellation, and none comes twice: sweeps over each turn of the loop.

What takes elements is ended before each callback of the loop, in each way, on asyncio's loop and on uvloop.  Either the
run gives the elements, or they are in their queue, in their places.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

import pytest

import asyncexec as ax
from tests.session.injection import ENDED, WAYS, Way, by_anyio, by_cancel, by_deadline
from tests.session.taker_cases import OPS, QUEUES, SHAPES, WITHOUT_DEADLINE, Make, Taker, of_kind, then_on_a_thread

COUNT: Final = 5  # elements that are put in for a run
MOMENTS: Final = ("before", "meanwhile", "beside another")  # when they are, and that another taker waits behind
ALL_WAYS: Final = (*WAYS, by_deadline)

Record = Callable[[str, object], None]


def params(values: Iterable[Any], *, default: Container[Any]) -> list[Any]:
    """What to parametrize by: *values*, those of which are deep that are not in *default*."""
    return [
        pytest.param(value, id=getattr(value, "__name__", value), marks=() if value in default else pytest.mark.deep)
        for value in values
    ]


class Sweep:
    """Runs of one taker, each ended at another point.

    Attributes:
        counts: runs, those of them that were ended, and elements that were accounted for.
    """

    def __init__(self, taker: Taker, session: ax.Session, moment: str) -> None:
        self._taker = taker
        self._session = session
        self._moment = moment
        self._numbers = itertools.count()
        self.counts = Counter[str]()

    async def run(self, way: Way) -> None:
        """End a run at every point, by *way*."""
        await self._end(way, 10**6)  # builds what is run
        for point in itertools.count():
            if await self._end(way, point):
                break
        assert point > 1, "it was never ended"
        self.counts["combinations"] += 1

    async def _end(self, way: Way, point: int) -> bool:
        """End a run at *point*, and account for all elements; whether the run was over before."""
        taker, session = self._taker, self._session
        given = list(itertools.islice(self._numbers, COUNT))
        got: list[int] = []
        tasks: list[asyncio.Task[None]] = []

        async def put() -> None:
            for number in given:
                await taker.shop.put(session, number)

        async def take() -> bool:
            if self._moment != "before":
                tasks.append(asyncio.ensure_future(put()))
            if self._moment == "beside another":
                tasks.append(asyncio.ensure_future(taker.take(session, got)))
            await taker.take(session, got)
            return True

        if self._moment == "before":
            await put()
        result, is_over = await way(take, point)
        await asyncio.gather(*tasks)
        left = await taker.shop.left(session)
        where = f"{way.__name__} before callback {point}, put {self._moment}: got {got}, left {left} of {given}"
        assert sorted(got + left) == given, where
        if taker.is_ordered:
            assert left == [number for number in _in_queues(taker, given) if number not in got], where
            assert self._moment == "beside another" or sorted(got) == given[: len(got)], where
        self.counts["runs"] += 1
        self.counts["ended"] += result is ENDED
        self.counts["elements"] += len(got + left)
        return is_over


def _in_queues(taker: Taker, given: list[int]) -> list[int]:
    """*given*, as they stand in the queues."""
    num_queues = len(taker.shop.queues)
    return sorted(given, key=lambda number: (number % num_queues, number))


async def sweep(make: Make, way: Way, moment: str, record: Record) -> None:
    taker = make()
    async with ax.Session(taker.shop.graph, taker.config) as session:
        done = Sweep(taker, session, moment)
        await done.run(way)
    record("counts", dict(done.counts))


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", params(ALL_WAYS, default=[by_cancel, by_anyio, by_deadline]))
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", params(QUEUES, default=["fifo", "shuffle"]))
async def test_elements_that_a_cancelled_run_has_taken(
    kind: str, op: str, way: Way, moment: str, record_property: Record
) -> None:
    await sweep(lambda: of_kind(kind, op), way, moment, record_property)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("moment", params(MOMENTS, default=["meanwhile"]))
@pytest.mark.parametrize(
    ("make", "way"),
    [
        pytest.param(
            make,
            way,
            id=f"{make.__name__}-{way.__name__}",
            marks=() if way is by_cancel and make is not then_on_a_thread else pytest.mark.deep,
        )
        for make, way in itertools.product(SHAPES, ALL_WAYS)
        if way is not by_deadline or make not in WITHOUT_DEADLINE
    ],
)
async def test_elements_of_a_cancelled_run_of_any_shape(
    make: Make, way: Way, moment: str, record_property: Record
) -> None:
    await sweep(make, way, moment, record_property)
