"""Pauses of the garbage collector, and what becomes of the young objects that were made in one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from asyncexec.framework.interpreter import IS_FREE_THREADED
from asyncexec.process import gc_pause
from asyncexec.process.gc_pause import paused_gc

pytestmark = pytest.mark.usefixtures("nothing_frozen")

MANY = 60_000
FEW = 2_000
IMMORTAL = 1_000  # at most, of those that the collector itself puts aside since Python 3.12


class Thing:
    """Something that can be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A collector that is on, and has little to do; nobody has frozen anything."""
    monkeypatch.setattr(gc_pause, "_saw_frozen", False)
    was_enabled = gc.isenabled()
    gc.collect()
    assert gc.get_freeze_count() < IMMORTAL
    gc.enable()
    yield
    gc.unfreeze()
    gc.collect()
    (gc.enable if was_enabled else gc.disable)()


def generation_of(thing: object) -> int | None:
    return next((i for i in range(3) if any(one is thing for one in gc.get_objects(generation=i))), None)


def test_pauses_overlap() -> None:
    before = gc.get_threshold()
    with paused_gc():
        with paused_gc():
            assert gc.get_threshold() != before
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before


def test_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with paused_gc():
        made = [[i] for i in range(MANY)]
    assert not gc.isenabled()
    assert generation_of(made[0]) == 0


@pytest.mark.skipif(IS_FREE_THREADED, reason="the collector of a free-threaded build knows neither young nor old")
def test_many_young_objects_are_old_afterwards() -> None:
    with paused_gc():
        made = [[i] for i in range(MANY)]
    assert generation_of(made[0]) == generation_of(made[-1]) == 2
    assert gc.get_count()[0] < FEW
    assert gc.get_freeze_count() < IMMORTAL


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
    assert count > MANY // 10
    with paused_gc():
        made = [[i] for i in range(MANY)]
    assert gc.get_freeze_count() == count
    assert generation_of(mine) is None
    assert made


@pytest.mark.parametrize("thresholds", [(1000, 20, 10), (1000, 10, 10), (900, 20, 30)])
@pytest.mark.parametrize("has_frozen", [False, True])
def test_thresholds_that_the_user_sets_in_a_pause_stay(
    thresholds: tuple[int, int, int], has_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc_pause, "_had_frozen", lambda: has_frozen)
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        with paused_gc():
            now = gc.get_threshold()
            gc.set_threshold(*[new if new != 10 else old for new, old in zip(thresholds, now, strict=True)])
        assert gc.get_threshold() == thresholds
    finally:
        gc.set_threshold(*before)
