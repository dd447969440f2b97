"""Triton's own clients, unchanged, with sequences and decoupled models."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.service.models.files import ModelSource
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.decoupled_models import repeat, square, sums_of_sequences
from tests.service.models import until

pytest.importorskip("tritonclient")
pytestmark = [pytest.mark.clients, pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library")]

SEQUENCES = {"sequence_batching": {"max_sequence_idle_microseconds": 600_000_000}}


def ask(kind: str, port: int | None) -> Any:
    """What the client called *kind* gets from the service on *port*."""
    command = [sys.executable, "-m", "tests.service.triton_stream_client", kind, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def forever(begun: list[int], closed: list[int], *, is_silent: bool) -> ax.Graph:
    """Responses without an end, or none at all; what IN was is noted at the beginning, and when the client leaves."""

    async def source(IN: Any) -> AsyncIterator[Any]:
        begun.append(int(IN[0]))
        try:
            while True:
                await asyncio.sleep(600 if is_silent else 0)
                yield IN
        finally:
            closed.append(int(IN[0]))

    with ax.Graph() as graph:
        ax.placeholder(ax.int32, [1], name="IN")
        ax.identity(ax.source(source, ax.int32, [1]), name="OUT")
    return graph


@pytest.mark.parametrize("kind", ["http", "http_aio", "grpc", "grpc_aio"])
async def test_a_client_of_triton(kind: str) -> None:
    begun, closed = list[int](), list[int]()
    models: dict[str, ax.Graph | ModelSource] = {
        "sums": ModelSource(sums_of_sequences(), config=SEQUENCES),
        "repeat": repeat(),
        "square": square(),
        "endless": forever(begun, closed, is_silent=False),
        "silent": forever(begun, closed, is_silent=True),
    }
    async with nothing_of_grpc_left(), serving(models, http_port=0, grpc_port=0) as ports:
        found = await asyncio.to_thread(ask, kind, ports.http if kind.startswith("http") else ports.grpc)
        if kind.startswith("grpc"):
            await until(lambda: len(closed) == len(begun))
    assert found["sums"] == [1, 10, 3, 30, 6, 60]
    protocol = "HTTP end point" if kind.startswith("http") else "ModelInfer RPC"
    expected = [
        "inference request to model 'sums' must specify a non-zero or non-empty correlation ID",
        "inference request for sequence 5 to model 'sums' must specify the START flag",
        f"{protocol} doesn't support models with decoupled transaction policy",
    ]
    for told, refused in zip(expected, found["refused"], strict=True):
        assert told in refused
    if kind.startswith("grpc"):
        sums = {f"sum {i}": [total] for i, total in ((1, 1), (2, 3), (3, 6))}
        assert found["outputs"] == {"repeat": [7, 8, 9], "square": [3, 3, 3], **sums}
        assert "missing required input" in found["error"]
        assert "Deadline Exceeded" in found["late"]
        assert 1 in closed
