"""Pauses of the garbage collector, and what becomes of the young objects that were made in one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from asyncexec.framework.gc_pause import paused_gc

MANY = 60_000
FEW = 2_000


class Thing:
    """Something that can be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A collector that is on, and has little to do; nothing is frozen."""
    frozen, was_enabled = gc.get_freeze_count(), gc.isenabled()
    assert not frozen
    gc.collect()
    gc.enable()
    yield
    gc.unfreeze()
    gc.collect()
    (gc.enable if was_enabled else gc.disable)()


def generation_of(thing: object) -> int | None:
    return next((i for i in range(3) if any(one is thing for one in gc.get_objects(generation=i))), None)


def test_pauses_overlap() -> None:
    with paused_gc():
        with paused_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with paused_gc():
        made = [[i] for i in range(MANY)]
    assert not gc.isenabled()
    assert generation_of(made[0]) == 0


def test_many_young_objects_are_old_afterwards() -> None:
    with paused_gc():
        made = [[i] for i in range(MANY)]
    assert generation_of(made[0]) == generation_of(made[-1]) == 2
    assert gc.get_count()[0] < FEW
    assert not gc.get_freeze_count()


def test_few_young_objects_stay_young() -> None:
    """Others' garbage is to go soon."""
    with paused_gc():
        made = [[i] for i in range(FEW)]
        assert generation_of(made[0]) == 0
    thing = weakref.ref(Thing())
    gc.collect(1)
    assert thing() is None


def test_garbage_among_many_goes_with_a_full_collection() -> None:
    with paused_gc():
        made = [Thing() for _ in range(MANY)]
        lost = weakref.ref(made[0])
        made.clear()
    assert lost() is not None
    gc.collect()
    assert lost() is None


def test_frozen_objects_stay_frozen() -> None:
    mine = [Thing()]
    gc.freeze()
    count = gc.get_freeze_count()
    assert count
    with paused_gc():
        made = [[i] for i in range(MANY)]
    assert gc.get_freeze_count() == count
    assert generation_of(mine) is None
    assert made
