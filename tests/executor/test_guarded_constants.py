"""Constants with one control edge: as often, as dead and in the same places as TensorFlow runs them.

The expected values and counts are what TensorFlow 2.21 gave for these graphs, its optimizer off.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

import asyncexec as ax
from asyncexec.graph.graph_text import parse_graph_text

# The guard is a loop invariant, and does not run in each iteration, but the constant does.
BEHIND_AN_INVARIANT: Final = """
    a: Placeholder[int32, []]
    s: Placeholder[int32, []]
    e: Enter[frame_name='f', is_constant=true](a)
    one: Const[1](^e)
    i0: Enter[frame_name='f'](s)
    m: Merge(i0, ni)
    l: Less(m, e)
    lc: LoopCond(l)
    sw: Switch(m, lc)
    ad: Add(sw:1, one)
    ni: NextIteration(ad)
    x: Exit(sw)
"""
# The guards are a constant, a placeholder that is fed, and a Switch.
IN_A_ROW: Final = """
    p: Placeholder[int32, []]
    b: Placeholder[bool, []]
    k: Const[7]
    c1: Const[1](^k)
    c2: Const[2](^p)
    sw: Switch(p, b)
    c3: Const[3](^sw)
    r: Add(c1, c2)
    r2: Add(r, c3)
"""
# The guard's output is fed, and so the constant alone tells that it is dead.
FED_GUARD: Final = """
    p: Placeholder[int32, []]
    b: Placeholder[bool, []]
    sw: Switch(p, b)
    g: Identity(sw:1)
    c: Const[3](^g)
    r: Add(g, c)
"""
CONFIGS: Final = {"plain": {}, "seed": {"schedule_seed": 3}, "debug": {"debug": True}}


def graph_of(text: str) -> ax.Graph:
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(text))
    return graph


@pytest.fixture(params=CONFIGS, ids=str)
def config(request: pytest.FixtureRequest) -> ax.SessionConfig:
    return ax.SessionConfig(**CONFIGS[request.param])


async def traced(
    graph: ax.Graph, config: ax.SessionConfig, fetch: str, feeds: dict[str, Any]
) -> tuple[Any, Counter[str]]:
    metadata = ax.RunMetadata()
    async with ax.Session(graph, config) as session:
        plain = await session.run(fetch, feeds)
        value = await session.run(fetch, feeds, options=ax.RunOptions(trace=True), metadata=metadata)
    assert plain == value
    return value, Counter(stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats)


async def test_behind_a_loop_invariant(config: ax.SessionConfig) -> None:
    value, counts = await traced(graph_of(BEHIND_AN_INVARIANT), config, "x:0", {"a:0": 5, "s:0": 0})
    assert value == 5
    assert counts["one"] == 6
    assert counts["ad"] == 5


async def test_behind_constants_and_what_is_fed(config: ax.SessionConfig) -> None:
    value, counts = await traced(graph_of(IN_A_ROW), config, "r2:0", {"p:0": 5, "b:0": True})
    assert value == 6
    assert [counts[name] for name in ("k", "c1", "c2", "c3", "sw")] == [1, 1, 1, 1, 1]


async def test_behind_a_node_whose_output_is_fed(config: ax.SessionConfig) -> None:
    async with ax.Session(graph_of(FED_GUARD), config) as session:
        assert await session.run("r:0", {"p:0": 5, "b:0": True, "g:0": 100}) == 103
        with pytest.raises(ax.errors.InvalidArgumentError, match="does not have a value"):
            await session.run("r:0", {"p:0": 5, "b:0": False, "g:0": 100})
