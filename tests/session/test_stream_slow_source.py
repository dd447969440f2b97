"""A source that holds the loop each time it is drawn from: results do not wait for the window to be full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.executor.streams import stream_driver, stream_intake
from tests.session.stream_graphs import Stages

_SECOND_NS = 1_000_000_000


async def test_results_come_while_a_slow_source_is_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    for module in (stream_driver, stream_intake):
        monkeypatch.setattr(module, "monotonic_ns", lambda: now_ns)
    stages, drawn = Stages(), 0

    def items() -> Iterator[dict[Any, int]]:
        nonlocal drawn, now_ns
        while True:
            drawn += 1
            now_ns += _SECOND_NS
            yield {stages.x: drawn}

    async with ax.Session(stages.graph) as session, session.map(stages.y, items(), window=1000) as outputs:
        assert await anext(outputs) == 3
        assert drawn < 20
