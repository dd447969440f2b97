"""Pauses of the collector in several threads, each with an event loop of its own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from threading import Thread

import pytest

from asyncexec.process.gc_pause import paused_gc


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.enable()


def test_the_collector_is_on_afterwards() -> None:
    def pause() -> None:
        for _ in range(20_000):
            with paused_gc():
                pass

    threads = [Thread(target=pause) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()
