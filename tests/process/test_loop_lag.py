"""LoopLag: how late the loop wakes those who sleep."""

from __future__ import annotations

import pytest

from asyncexec.process.loop_lag import LoopLag

MS = 1_000_000


@pytest.mark.virtual_clock
async def test_the_mean_and_the_most_of_the_last_measurement() -> None:
    # Due at 20 and 40 ms, then at 120 ms.
    times = iter(ms * MS for ms in (0, 25, 70, 100, 120))
    lag = LoopLag(lambda: next(times))
    await lag.measure(0.04)
    assert (lag.mean_ms, lag.most_ms) == (17.5, 30.0)
    await lag.measure(0.02)
    assert (lag.mean_ms, lag.most_ms) == (0.0, 0.0)
    assert next(times, None) is None
