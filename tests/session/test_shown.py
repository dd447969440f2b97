"""What sessions and streams say of themselves."""

from __future__ import annotations

import asyncio
import re
from xml.etree import ElementTree

import pytest

import asyncexec as ax


@pytest.fixture
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        ax.negative(x, name="y")
    return graph


async def test_a_session_tells_devices_signatures_and_steps(graph: ax.Graph) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @ax.op
    async def wait(x: float) -> float:
        begun.set()
        await may_end.wait()
        return x

    with graph:
        waited = wait(graph["x:0"])
    config = ax.SessionConfig(device_count={"CPU": 2})
    async with ax.Session(graph, config) as session:
        assert repr(session) == "<ax.Session of 3 operations: 2 devices, 0 signatures compiled, 0 steps under way>"
        await session.run("y:0", {"x:0": 1.0})
        task = asyncio.create_task(session.run(waited, {"x:0": 1.0}))
        await begun.wait()
        assert repr(session) == "<ax.Session of 3 operations: 2 devices, 2 signatures compiled, 1 step under way>"
        html = session._repr_html_()
        assert "1 under way, 0 queued, 1 completed, 0 failed" in html
        assert "<svg" in html
        may_end.set()
        await task
    assert repr(session).endswith("0 steps under way, closed>")
    assert "closed" in session._repr_html_()


def test_a_session_that_could_not_be_made_has_a_repr() -> None:
    session = ax.Session.__new__(ax.Session)
    assert repr(session) == "<ax.Session, not made yet>"


async def test_a_stream_tells_its_window_and_what_is_in_it(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        stream = session.stream("y:0", window=4)
        assert repr(stream) == "<ax.Stream of 'y:0': window of 4, not open>"
        async with stream:
            await stream.send({"x:0": 1.0})
            await stream.send({"x:0": 2.0})
            await anext(stream)
            assert repr(stream) == "<ax.Stream of 'y:0': window of 4, 0 in flight, 1 not taken>"
            drawn = re.search(r"<svg.*</svg>", stream._repr_html_(), re.DOTALL)
            assert drawn is not None
            titles = ["".join(cell.itertext()) for cell in ElementTree.fromstring(drawn[0])]
            assert titles == ["waits to begin or to be taken", "free", "free", "free"]
            await stream.close()
            assert repr(stream).endswith("window of 4, ended, 1 not taken>")
            await anext(stream)
        assert repr(stream) == "<ax.Stream of 'y:0': window of 4, ended>"
        mapped = session.map(graph["y:0"], [])
        assert repr(mapped) == "<ax.StreamMap of 'y:0': window of 32, not open>"
        assert "<svg" in mapped._repr_html_()
        assert "<svg" not in session.stream("y:0", window=1_000)._repr_html_()
        assert [result async for result in mapped] == []


async def test_names_of_strangers_stay_text(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        html = session.stream("<script>")._repr_html_()
        assert "<script" not in html
        assert len(repr(session.stream(["y:0"] * 1_000))) < 200
