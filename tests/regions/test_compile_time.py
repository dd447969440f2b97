"""To compile regions takes work in proportion to the graph, in pieces: lines that run are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.session.executors_and_keys import build_executors
from asyncexec.session.fetch_mapper import FetchMapper
from tests.regions.test_regions import F, later

LINES = 40_000  # a few milliseconds


def chain(count: int) -> Any:
    y = ax.placeholder(F, [], name="x")
    for _ in range(count // 8):
        y = later(y)
        for _ in range(7):
            y = y * 2.0
    return y


def side_by_side(count: int) -> Any:
    x = ax.placeholder(F, [], name="x")
    return [later(x + float(i)) * 2.0 * 3.0 for i in range(count // 4)]


def one_taker(count: int) -> Any:
    x = later(ax.placeholder(F, [], name="x"))
    return later(ax.create_op("AddN", [[x * float(i) for i in range(count)]]))


def pieces(make: Callable[[int], Any], count: int) -> list[int]:
    """How many lines each piece runs of compiling a graph of about so many nodes, of which every one has run."""
    with ax.Graph() as graph:
        fetches = make(count)
    session = ax.Session(graph)
    mapper = FetchMapper(graph, fetches)
    prepared = run_at_once(build_executors(session._state, graph, mapper, ["x:0"], []))
    found = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        found[-1] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for _ in session._state.compile_plan(prepared.graph, prepared.tier):
            found.append(0)
    finally:
        sys.settrace(before)
    return found


@pytest.mark.parametrize("make", [chain, side_by_side, one_taker])
def test_twice_the_nodes(make: Callable[[int], Any]) -> None:
    pieces(make, 100)  # what is done once is done
    few, many = pieces(make, 1_000), pieces(make, 2_000)
    assert sum(many) < 2.2 * sum(few)
    assert max(many) < LINES
