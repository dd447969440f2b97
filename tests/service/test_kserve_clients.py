"""KServe's own clients, unchanged, against the service."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums

pytest.importorskip("kserve")
pytestmark = [pytest.mark.clients, pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library")]


def ask(*ports: int | None) -> Any:
    """What the clients get from the service on *ports*."""
    command = [sys.executable, "-m", "tests.service.kserve_client", *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


async def test_kserves_clients() -> None:
    async with nothing_of_grpc_left(), serving({"sums": sums()}, http_port=0, grpc_port=0) as ports:
        found = await asyncio.to_thread(ask, ports.http, ports.grpc)
    for each in found.values():
        assert each["health"] == [True, True]
        assert each["ready"][0] is True
        assert each["json"] == each["binary"] == {"sum": [[6.0] * 3] * 2, "diff": [[4.0] * 3] * 2}
    assert found["rest"]["ready"] == [True, False]
    assert "Request for unknown model: 'none' is not found" in found["grpc"]["refused"]
    assert "404" in found["rest"]["refused"]
