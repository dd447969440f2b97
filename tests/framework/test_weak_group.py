"""WeakGroup: what lives is listed, whichever threads add, list and let go."""

from __future__ import annotations

import gc
from weakref import ref

from asyncexec.framework.weak_group import WeakGroup
from tests.on_threads import at_once


class Thing:
    """Something that can be referred to weakly."""


def test_what_lives_is_listed() -> None:
    group: WeakGroup[Thing] = WeakGroup()
    assert group.list() == []
    one, other = Thing(), Thing()
    for thing in (one, other, one):
        group.add(thing)
    assert set(group.list()) == {one, other}
    del thing, other
    assert group.list() == [one]


def test_it_keeps_nothing_alive() -> None:
    group, thing = WeakGroup[Thing](), Thing()
    group.add(thing)
    gone = ref(thing)
    del thing
    assert gone() is None
    thing = Thing()
    group.add(thing)
    del group
    gc.collect()
    assert thing


def test_many_threads_add_list_and_let_go() -> None:
    group, kept = WeakGroup[Thing](), Thing()
    group.add(kept)

    def come_and_go() -> None:
        for _ in range(3_000):
            things = [Thing() for _ in range(3)]
            for thing in things:
                group.add(thing)

    def look() -> bool:
        return all(kept in group.list() for _ in range(3_000))

    assert at_once(come_and_go, come_and_go, look, look)[2:] == [True, True]
    gc.collect()
    assert group.list() == [kept]
