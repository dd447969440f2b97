"""Every module is imported before a test runs in a loop, and what a process keeps for its processes is there."""

from __future__ import annotations

from multiprocessing import resource_tracker

import pytest

from tests.running import import_all_names


@pytest.fixture(scope="session", autouse=True)
def all_names() -> None:
    import_all_names()
    resource_tracker.ensure_running()  # one for the whole program, which ends with it
