"""What a process keeps for its processes is there before a test counts open files."""

from __future__ import annotations

from multiprocessing import resource_tracker

import pytest


@pytest.fixture(scope="session", autouse=True)
def tracker() -> None:
    resource_tracker.ensure_running()  # one for the whole program, which ends with it
