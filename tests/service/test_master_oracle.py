"""An unmodified ``tf.compat.v1.Session`` against the service; see ``tensorflow_client.py``."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.oracle, pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library")]


def ask(port: int | None) -> str:
    """What the client says of the service on *port*."""
    command = [sys.executable, "-m", "tests.service.tensorflow_client", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.one_of("loop")
async def test_tensorflows_own_client() -> None:
    async with nothing_of_grpc_left(), serving({}, http_port=0, grpc_port=0, tensorflow_master=True) as ports:
        assert "golden_graphs" in await asyncio.to_thread(ask, ports.grpc)
