"""Generators of ``BlockingSession.map`` that outlive their session, or are dropped in the thread of its loop."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import asyncexec as ax
from tests.session.stream_graphs import Stages


def test_a_map_that_outlives_its_session_closes_and_says_why_there_is_no_more() -> None:
    stages = Stages()
    with ax.BlockingSession(stages.graph) as session:
        left, asked = (session.map(stages.y, ({stages.x: x} for x in range(100))) for _ in range(2))
        assert (next(left), next(asked)) == (1, 1)
    left.close()  # type: ignore[attr-defined]
    with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
        next(asked)


def test_a_map_that_is_dropped_in_the_thread_of_the_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    stages = Stages()

    async def clear() -> None:
        held.clear()

    with ax.BlockingSession(stages.graph) as session:
        held = [session.map(stages.y, ({stages.x: x} for x in range(100)))]
        assert next(held[0]) == 1
        session._open_thread().call(clear)
        assert session.run(stages.y, {stages.x: 1}) == 3
    assert ignored == []
