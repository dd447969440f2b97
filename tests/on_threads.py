"""Functions called on several threads at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def at_once(*functions: Callable[[], T]) -> list[T]:
    """What *functions* return, each called on a thread of its own, none before all threads are there."""
    start = Barrier(len(functions))

    def call(function: Callable[[], T]) -> T:
        start.wait()
        return function()

    with quick_switches(), ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(call, functions))


@contextmanager
def quick_switches() -> Iterator[None]:
    """Threads that take turns do so as often as can be inside."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
