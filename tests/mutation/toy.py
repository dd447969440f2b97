"""What tests of the mutants change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


class Counter:
    def __init__(self) -> None:
        self.seen = 0

    def count(self, amount: int) -> None:
        if amount:
            self.seen += amount

    @property
    def total(self) -> int:
        return self.seen + 0

    @classmethod
    def of(cls, amount: int) -> Counter:
        made = cls()
        made.count(amount)
        return made


@contextmanager
def counting() -> Iterator[Counter]:
    yield Counter()


@cache
def cached(number: int) -> int:
    return number + 1
