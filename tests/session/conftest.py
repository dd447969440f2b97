"""Tests of streams run with both kinds of steps they have."""

from __future__ import annotations

import pytest

from asyncexec.executor.plans import tier
from asyncexec.session.graph_execution_state import GraphExecutionState


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize what is in modules named after streams."""
    if "stream" in metafunc.module.__name__.rpartition(".")[2]:
        metafunc.parametrize("stream_steps", ["general", "compiled", "soon"], indirect=True)


@pytest.fixture(autouse=True)
def stream_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the steps of streams, where they can be: never, before the first item, or soon."""
    kind = getattr(request, "param", None)
    if kind == "compiled":
        monkeypatch.setattr(GraphExecutionState, "compiles_at_once", property(lambda state: state.may_compile))
    elif kind is not None:
        monkeypatch.setattr(tier, "WARM_UP", {"general": 1 << 60, "soon": 3}[kind])
