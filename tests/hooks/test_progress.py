"""ax.hooks.Progress, drawn on a console that keeps what it is given."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import asyncexec as ax
from tests.hooks.programs import Program


async def test_bars() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, color_system=None)
    with ax.hooks.Progress(total=2, console=console) as progress:
        await Program().run(progress)
    last = [line for line in text.getvalue().splitlines() if "stream" in line][-1]
    assert "2/2" in last
    assert "1 failed" in last


async def test_bars_of_the_last_streams_stay() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x + 1.0
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with ax.hooks.Progress(console=console) as progress:
        async with ax.Session(graph, hooks=[progress]) as session:
            for items in range(1, 16):
                assert len([out async for out in session.map(y, [{x: 1.0}] * items)]) == items
        assert [task.completed for task in progress._progress.tasks] == list(range(6, 16))


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rich.progress", None)
    with pytest.raises(ax.errors.MissingExtraError, match=r'pip install "asyncexec\[progress\]"'):
        ax.hooks.Progress()
