"""Every module is imported before a test runs in a loop."""

from __future__ import annotations

import pytest

from tests.running import import_all_names


@pytest.fixture(scope="session", autouse=True)
def all_names() -> None:
    import_all_names()
