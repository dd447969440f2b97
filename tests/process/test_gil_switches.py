"""The switch interval of the GIL: short while a loop waits for a thread, and then what it was."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.interpreter import gil_is_enabled
from asyncexec.process.blas_threads import blas_threads
from asyncexec.process.gil_switches import (
    begin_quick_switches,
    end_quick_switches,
    quick_switches,
    start_thread,
    usual_switches,
)
from asyncexec.session.plan_compiler import import_compilers

USUAL = 0.004
QUICK = 0.0001

pytestmark = pytest.mark.skipif(not gil_is_enabled(), reason="there is no GIL")


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = sys.getswitchinterval()
    blas_threads()  # else the first session does both, on threads that are to have the GIL soon
    import_compilers()
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def interval() -> float:
    return round(sys.getswitchinterval(), 6)


def test_it_is_short_until_the_last_has_what_it_waits_for() -> None:
    begin_quick_switches()
    with quick_switches():
        assert interval() == QUICK
    assert interval() == QUICK
    end_quick_switches()
    assert interval() == USUAL


def test_whoever_starts_a_thread_has_the_gil_back_soon() -> None:
    seen: list[float] = []

    class Thread(threading.Thread):
        def start(self) -> None:
            seen.append(interval())
            super().start()

    thread = Thread(target=lambda: None)
    start_thread(thread)
    thread.join()
    assert seen == [QUICK]
    assert interval() == USUAL


def test_what_the_user_sets_meanwhile_stays() -> None:
    with quick_switches():
        sys.setswitchinterval(0.002)
    assert interval() == 0.002


def test_what_the_user_has_shorter_stays() -> None:
    sys.setswitchinterval(0.00005)
    with quick_switches():
        assert interval() == 0.00005
    assert interval() == 0.00005


def test_while_a_node_is_watched_it_is_the_users() -> None:
    with quick_switches():
        with usual_switches():
            assert interval() == USUAL
            with quick_switches():
                assert interval() == USUAL
        assert interval() == QUICK
    with usual_switches(), quick_switches():
        pass
    assert interval() == USUAL


async def test_it_is_short_while_a_step_waits_for_a_worker_thread() -> None:
    seen = []

    @ax.op(expensive=True, outputs=[ax.float32])
    def looks(x: np.ndarray) -> np.ndarray:
        seen.append((interval(), threading.current_thread() is not threading.main_thread()))
        return x

    with ax.Graph() as graph:
        y = looks(ax.placeholder(ax.float32, [], name="x"))
    async with ax.Session(graph) as session:
        await session.run(y, {"x:0": 1.0})
        assert seen == [(QUICK, True)]
        assert interval() == USUAL


async def test_it_is_short_while_a_checkpoint_is_stored() -> None:
    seen = []

    class Store(ax.checkpoint.MemoryStore):
        async def put(self, key: str, value: bytes) -> None:
            seen.append((key.endswith("/owner"), interval()))
            await super().put(key, value)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
    async with ax.Session(graph) as session:
        async for _ in session.map(x, [{"x:0": 1.0}] * 3, checkpoint=Store(), every=1, resume=False):
            pass
    assert seen == [(True, USUAL), *[(False, QUICK)] * 3]  # that of the owner comes before the stream begins
    assert interval() == USUAL
