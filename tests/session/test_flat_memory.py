"""The measure of soaks sees leaks, of objects and of other memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from tests.session.flat_memory import FlatMemory, LiveArrays

NOTHING: list[object] = []
# The array is larger than what an allocator takes from memory that it has.
LEAKS: list[Callable[[], object]] = [lambda: [object() for _ in range(300)], lambda: np.ones((1 << 22) + 1)]


def held(leak: Callable[[], object], count: int) -> FlatMemory:
    memory, kept = FlatMemory(), []
    for _ in range(count):
        kept.append(leak())
        memory.sample()
    return memory


@pytest.mark.parametrize("leak", LEAKS)
def test_leak_is_seen(leak: Callable[[], object]) -> None:
    with pytest.raises(AssertionError):
        held(leak, 6).check()


def test_no_leak() -> None:
    held(lambda: NOTHING, 6).check()


def test_arrays_that_are_alive() -> None:
    live = LiveArrays()
    kept = [live.keep(np.ones(2)) for _ in range(3)]
    live.keep(np.ones(2))
    gc.collect()
    assert (live.alive, live.most) == (3, 4)
    del kept[1:]
    assert live.alive == 1
