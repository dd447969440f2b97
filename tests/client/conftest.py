"""What grpc keeps as long as anything of it is in use, and services that end at once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.service.conftest import grpc_library as grpc_library


@pytest.fixture(autouse=True)
def no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client of these tests looks for another server."""
    monkeypatch.setattr("asyncexec.service.grpc.guard._linger", partial(asyncio.sleep, 0))
