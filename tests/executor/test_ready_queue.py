"""A random ready queue gives each entry once, in an order that its seed decides."""

from __future__ import annotations

from random import Random

from asyncexec.executor.engine.ready_queue import RandomReadyQueue


def drawn(seed: int) -> list[int]:
    """All entries, of which some are added after others have been taken."""
    ready: RandomReadyQueue[int] = RandomReadyQueue(Random(seed))
    ready.extend(range(8))
    taken = [ready.popleft() for _ in range(4)]
    for entry in range(8, 12):
        ready.append(entry)
    while ready:
        taken.append(ready.popleft())
    return taken


def test_each_entry_comes_once() -> None:
    for seed in range(20):
        assert sorted(drawn(seed)) == list(range(12))


def test_the_seed_decides_the_order() -> None:
    assert drawn(5) == drawn(5)
    assert len({tuple(drawn(seed)) for seed in range(20)}) == 20


def test_any_entry_may_come_first() -> None:
    assert {drawn(seed)[0] for seed in range(200)} == set(range(8))


def test_a_cleared_queue_is_empty() -> None:
    ready: RandomReadyQueue[int] = RandomReadyQueue(Random(1))
    ready.extend(range(3))
    ready.clear()
    assert not ready
