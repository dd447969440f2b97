"""Tests of streams run with both kinds of steps they have."""

from __future__ import annotations

import pytest

from asyncexec.executor import pipeline_state


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize what is in modules named after streams."""
    if "stream" in metafunc.module.__name__.rpartition(".")[2]:
        metafunc.parametrize("stream_steps", ["general", "line", "soon"], indirect=True)


@pytest.fixture(autouse=True)
def stream_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the steps of streams be straight lines, where they can be: never, from the first item on, or soon."""
    kind = getattr(request, "param", None)
    if kind is not None:
        monkeypatch.setattr(pipeline_state, "_WARM_UP", {"general": 1 << 60, "line": 0, "soon": 3}[kind])
        monkeypatch.setattr(pipeline_state, "_MAX_WARM_UP", 1 << 60)
