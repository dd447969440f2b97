"""The first run of a session, ended while its graph is being built: who waits for that builds it then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.session.injection import (
    Case,
    Watch,
    Way,
    by_anyio,
    by_cancel,
    close_at_every_point,
    end_first_at_every_point,
    of_ways,
    some_points,
)
from tests.session.test_cancellation import loop_over_two_devices, partial_run
from tests.session.test_cancellation_of_ops import batches, function_calls
from tests.session.test_cancellation_of_streams import CASES as STREAMS

pytestmark = pytest.mark.virtual_clock

CASES: dict[str, Callable[[Watch], Case]] = {
    "loop over two devices": loop_over_two_devices,
    "partial run": partial_run,
    "function calls": function_calls,
    "batches": batches,
    "map": STREAMS["state"],
    "map of an async source": STREAMS["two devices, async"],
    "stream": STREAMS["sent"],
    "stream of sources": STREAMS["sources"],
}

LONG = "map of an async source"  # its builds have the most points
cases = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name == LONG else name for name in CASES]
)


@some_points
@of_ways(by_cancel, by_anyio)
@cases
async def test_ended_at_every_point_of_the_first_run(name: str, way: Way, points: range) -> None:
    await end_first_at_every_point(CASES[name], way, points)


@some_points
@cases
async def test_session_closed_at_every_point_of_the_first_run(name: str, points: range) -> None:
    await close_at_every_point(CASES[name], points)
