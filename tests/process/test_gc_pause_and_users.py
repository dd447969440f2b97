"""What users say of the garbage collector while it is paused: it holds, during the pause and afterwards."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S
from asyncexec.framework.interpreter import IS_FREE_THREADED
from asyncexec.process import gc_pause
from asyncexec.process.gc_pause import _HAS_GENERATIONS, paused_gc
from tests.running import import_all_names

pytestmark = pytest.mark.usefixtures("nothing_frozen")

MANY = 60_000


class Thing:
    """Something that can be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc_pause, "_looked_at_ns", -2 * NS_PER_S)  # and so it looks anew
    monkeypatch.setattr(gc_pause, "_saw_frozen", False)
    threshold, was_enabled = gc.get_threshold(), gc.isenabled()
    gc.enable()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if was_enabled else gc.disable)()


def collections_during(action: Callable[[], object]) -> int:
    """How many collections begin while *action* is done."""
    begun: list[object] = []

    def note(phase: str, info: object) -> None:
        if phase == "start":
            begun.append(info)

    gc.callbacks.append(note)
    try:
        action()
    finally:
        gc.callbacks.remove(note)
    return len(begun)


def make_many() -> object:
    return [Thing() for _ in range(MANY)]


def test_no_collection_begins_in_a_pause() -> None:
    def paused() -> None:
        with paused_gc():
            with paused_gc():
                make_many()
            make_many()

    begin_by_themselves = bool(collections_during(make_many))
    assert begin_by_themselves or IS_FREE_THREADED  # where they wait for a quarter more than there was
    assert not collections_during(paused)
    assert bool(collections_during(make_many)) or not begin_by_themselves


def test_no_full_collection_begins_where_the_user_has_frozen_objects() -> None:
    """Those of the young make what is made old, bit by bit: it is not left to walk in one go."""
    begun: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(info["generation"])

    before = gc.get_threshold()
    gc.freeze()
    gc.callbacks.append(note)
    try:
        with paused_gc():
            made = [make_many() for _ in range(5)]
        assert (gc.get_count()[0] < MANY) == _HAS_GENERATIONS
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
    assert made
    assert 2 not in begun
    assert gc.get_threshold() == before


def test_frozen_objects_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each count walks all of them, a million in a tenth of a second."""
    counts = []

    def count() -> int:
        counts.append(1_000_000)
        return counts[-1]

    monkeypatch.setattr(gc, "get_freeze_count", count)
    monkeypatch.setattr(gc_pause, "NS_PER_S", 0)
    for _ in range(3):
        with paused_gc():
            make_many()
    assert len(counts) == 1


@pytest.mark.parametrize("was_enabled", [False, True])
@pytest.mark.parametrize("is_enabled", [False, True])
def test_the_collector_is_as_the_user_left_it(*, was_enabled: bool, is_enabled: bool) -> None:
    (gc.enable if was_enabled else gc.disable)()
    with paused_gc():
        assert gc.isenabled() == was_enabled
        (gc.enable if is_enabled else gc.disable)()
    assert gc.isenabled() == is_enabled


def test_thresholds_are_as_before() -> None:
    gc.set_threshold(701, 11, 12)
    with paused_gc(), paused_gc():
        pass
    assert gc.get_threshold()[:2] == (701, 11)


@pytest.mark.parametrize("first", [0, 50_000])
def test_thresholds_that_the_user_sets_meanwhile_stay(first: int) -> None:
    with paused_gc():
        gc.set_threshold(first, 13)
    assert gc.get_threshold()[:2] == (first, 13)


def test_others_of_the_thresholds_that_the_user_sets_meanwhile_stay() -> None:
    gc.set_threshold(702, 11)
    with paused_gc():
        gc.set_threshold(gc.get_threshold()[0], 14)
    assert gc.get_threshold()[:2] == (702, 14)


def test_thresholds_of_a_pause_that_are_put_back_later_last_no_longer_than_the_next() -> None:
    gc.set_threshold(703, 11)
    with paused_gc():
        seen = gc.get_threshold()
    gc.set_threshold(*seen)
    with paused_gc():
        pass
    assert gc.get_threshold()[:2] == (703, 11)


def test_thresholds_after_pauses_on_threads() -> None:
    gc.set_threshold(704, 11)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def pause() -> None:
        for _ in range(5_000):
            with paused_gc():
                pass

    threads = [Thread(target=pause) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert gc.get_threshold()[:2] == (704, 11)


async def test_a_collector_that_is_switched_off_while_a_session_builds_stays_off() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = -x

    async with ax.Session(graph) as session:
        state, prepare = session._state, session._state.prepare

        def switching_off(*args: object, **options: object) -> object:
            gc.disable()
            return prepare(*args, **options)  # type: ignore[arg-type]

        state.prepare = switching_off  # type: ignore[method-assign, assignment]
        assert await session.run(y, {x: 1.0}) == -1
    assert not gc.isenabled()
