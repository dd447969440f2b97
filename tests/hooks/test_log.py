"""ax.hooks.Log and ax.hooks.LogContext."""

from __future__ import annotations

import asyncio
import io
import logging
import re

import pytest

import asyncexec as ax
from tests.hooks.programs import Program


async def test_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "asyncexec"):
        await Program().run(ax.hooks.Log())
    lines = [
        (record.levelname, re.sub(r"[\d.e+-]+ ms", "T ms", re.sub(r"(step|stream) \d+", r"\1 N", record.getMessage())))
        for record in caplog.records
        if hasattr(record, "span")
    ]
    assert lines[:4] == [
        ("WARNING", "retry 'fetch' of step N after attempt 1 of 2: ConnectionError: not yet, waited T ms"),
        ("DEBUG", "node 'fetch' of step N took T ms"),
        ("DEBUG", "node 'work' of step N took T ms"),
        ("DEBUG", "step N took T ms"),
    ]
    assert ("WARNING", "node 'fetch' of step N failed after T ms: ValueError: negative") in lines
    assert ("DEBUG", "batch 'model' of step N took T ms") in lines
    assert ("DEBUG", "node 'work' of item 0 of stream N took T ms") in lines
    assert ("DEBUG", "item 0 of stream N took T ms") in lines
    failed = next(line for _, line in lines if line.startswith("item 1"))
    assert "of stream N failed after T ms: " in failed
    assert "negative" in failed


async def test_records_carry_the_span(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "asyncexec"):
        await Program().run(ax.hooks.Log(kinds=["node"]))
    spans = [vars(record)["span"] for record in caplog.records if hasattr(record, "span")]
    assert {span["kind"] for span in spans} == {"node"}
    assert spans[0]["name"] == "fetch"
    assert spans[0]["attempts"] == 2
    assert spans[0]["step"] > 0
    assert spans[0]["duration_s"] > 0
    assert [span["item"] for span in spans if span["op"] == "fetch" and "stream" in span] == [0, 1]
    assert [span["error"] for span in spans if "error" in span] == ["ValueError: negative"] * 2


async def test_levels_and_loggers(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("mine")
    with caplog.at_level(logging.INFO, "mine"):
        await Program().run(ax.hooks.Log(logger, failure_level=logging.ERROR, kinds=["step", "node"]))
    told = [record for record in caplog.records if record.name == "mine"]
    assert {record.levelname for record in told} == {"ERROR"}  # DEBUG is not asked for
    assert len(told) == 3  # a node and its step, and a node of the stream


async def test_context_of_the_lines_that_ops_log() -> None:
    logger, text = logging.getLogger("op"), io.StringIO()
    handler = logging.StreamHandler(text)
    handler.addFilter(ax.hooks.LogContext())
    handler.setFormatter(logging.Formatter("[%(step)s|%(node)s] %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    @ax.op
    async def tells(x: float) -> float:
        await asyncio.sleep(0)
        logger.info("in the loop")
        return x

    @ax.op(expensive=True)
    def works(x: float) -> float:
        logger.info("on a thread")
        return x

    with ax.Graph() as graph:
        y = works(tells(ax.placeholder(ax.float64, [], name="x")))
    try:
        for hooks in ([], [ax.Hook()]):
            async with ax.Session(graph, hooks=hooks) as session:
                await session.run(y, {"x:0": 1.0})
        logger.info("outside")
    finally:
        logger.removeHandler(handler)
    assert re.sub(r"step \d+", "step N", text.getvalue()).splitlines() == [
        "[step N|] in the loop",
        "[step N|] on a thread",
        "[step N|tells] in the loop",
        "[step N|works] on a thread",
        "[|] outside",
    ]
