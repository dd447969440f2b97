"""What the whole process or a whole session has one of: it stays one, also where threads come for it at once."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.cancellation import CancellableCall, CancellationManager
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.limiter import Limiter
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.process.gc_watch import collected_ns, watch_collections
from tests.on_threads import at_once

THREADS = 4


def test_one_resource_of_a_name() -> None:
    manager, both = ResourceMgr(), Barrier(2)

    def create() -> list[int]:
        try:
            both.wait(5)  # until the other one makes it, too
        except BrokenBarrierError:
            pytest.fail("nobody else came")
        return []

    one, other = at_once(*[partial(manager.lookup_or_create, list, "", "name", create)] * 2)
    assert one is other
    assert len(manager) == 1


def test_one_limiter_of_a_name() -> None:
    def make(number: int) -> Limiter:
        return Limiter(1, name=f"shared by threads, {number}")

    async def is_shared(limiters: list[Limiter]) -> bool:
        return len({id(limiter.wait_queue()) for limiter in limiters}) == 1

    for number in range(100):
        assert asyncio.run(is_shared(at_once(*[partial(make, number)] * THREADS)))


def test_one_limiter_of_a_name_is_of_one_size() -> None:
    def make(number: int, total: int) -> str:
        try:
            Limiter(total, name=f"of two sizes, {number}")
        except ax.errors.InvalidArgumentError as error:
            return str(error)
        return ""

    for number in range(50):
        said = at_once(partial(make, number, 1), partial(make, number, 2))
        assert [bool(text) for text in sorted(said)] == [False, True]


def test_a_call_is_told_whoever_asks_first() -> None:
    """Its thread makes the manager, while the loop gives the call up."""
    for _ in range(100):
        call = CancellableCall()
        found = at_once(call.manager, call.give_up, call.manager)
        managers = [one for one in found if one is not None]
        assert managers == [call.manager()] * 2
        assert call.manager().is_cancelled


def test_children_come_and_go_while_others_are_cancelled() -> None:
    def have_children(parent: CancellationManager) -> bool:
        lasting = CancellationManager(parent)
        for _ in range(20):
            CancellationManager(parent)
        while not lasting.is_cancelled:
            pass
        return True

    for _ in range(50):
        parent = CancellationManager()
        at_once(partial(have_children, parent), partial(have_children, parent), parent.start_cancel)


def test_collections_are_noted_while_others_ask() -> None:
    watch_collections()

    def collect() -> None:
        for _ in range(20):
            gc.collect()

    def ask() -> bool:
        begun = monotonic_ns()
        return all(collected_ns(begun) >= 0 for _ in range(3_000))

    assert at_once(collect, ask, ask, ask)[1:] == [True] * 3


def test_collections_are_noted_once() -> None:
    before = list(gc.callbacks)
    at_once(*[watch_collections] * THREADS)
    added: list[Any] = [callback for callback in gc.callbacks if callback not in before]
    assert len(added) <= 1
    assert len({id(callback) for callback in gc.callbacks}) == len(gc.callbacks)
