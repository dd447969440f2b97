"""Measuring side by side: contestants take turns, round by round, and their medians are compared.

Whatever else the machine does meanwhile strikes all of them alike.  A round of a quick contestant is many calls, so
that the clock costs nothing.  The garbage collector stays on, as it is in a program, but every round starts with a
collected heap: a full collection comes once in so many allocations, and could fall on one contestant in every round.
It leaves nothing in the caches of the CPU, so the first call of a quick contestant behind it is not timed.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from asyncexec.framework.clock import NS_PER_S, monotonic_ns

WARM_CALLS: Final = 10_000  # or as many as there are in so long
WARM_NS: Final = 15 * NS_PER_S
LEAST_CALLS: Final = 8  # a loop is compiled behind the third or fourth run, however long that takes
MANY_RUNS_NS: Final = NS_PER_S // 10  # a call that takes so long does very much already
ROUND_NS: Final = 2_000_000  # a round of a quick contestant takes at least about this
MAX_ROUNDS: Final = 300

TimeRound: TypeAlias = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to measure, and what takes part."""

    is_quick: bool = False  # a few rounds of each: to see that all of it works
    is_full: bool = False  # also what takes minutes: TensorFlow's first run of 100,000 nodes
    use_tensorflow: bool = True

    @property
    def budget_s(self) -> float:
        """Seconds a row may go on; every contestant gets its least number of rounds all the same."""
        return 0.2 if self.is_quick else 4.0

    def rounds(self, usual: int) -> int:
        """How many rounds, at least, instead of the *usual* number."""
        return 1 if self.is_quick else usual


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something to measure; ``time_round`` gives the seconds that one call took in a round."""

    name: str
    time_round: TimeRound
    max_rounds: int = MAX_ROUNDS  # it sits out the rounds after these


@dataclass(frozen=True, slots=True)
class Times:
    """What one contestant took, in every round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def best(self) -> float:
        return min(self.values)

    def percentile(self, percent: float) -> float:
        """The smallest value that *percent* of 100 are not above."""
        ordered = sorted(self.values)
        return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]

    def scaled(self, factor: float) -> Times:
        """The same in another unit."""
        return Times(tuple(value * factor for value in self.values))


async def alternate(
    contestants: Sequence[Contestant], settings: Settings, rounds: int = 5, settle_s: float = 0.0
) -> dict[str, Times]:
    """The times of each contestant by name: *rounds* rounds at least, and more while the budget lasts.

    Before each round it waits for *settle_s* seconds, as long as threads of the contestant before may go on to spin.
    """
    found: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    least, end = settings.rounds(rounds), monotonic_ns() + int(settings.budget_s * NS_PER_S)
    for done in range(MAX_ROUNDS):
        if done >= least and monotonic_ns() > end:
            break
        for contestant in contestants:
            if done < contestant.max_rounds:
                gc.collect()
                await asyncio.sleep(settle_s)
                found[contestant.name].append(await contestant.time_round())
    return {name: Times(tuple(values)) for name, values in found.items()}


async def calling(
    name: str, function: Callable[[], Any], round_ns: int = ROUND_NS, warm_ns: int = WARM_NS
) -> Contestant:
    """A contestant that calls *function* over and over, awaiting it if it is async; it has been warmed up by now.

    What runs often enough is measured, compiled, and at last optimized: all that is over after so many calls, or after
    *warm_ns*.  A round is as many calls as take *round_ns*.
    """
    time_calls = _time_awaited if inspect.iscoroutinefunction(function) else _time_called
    end, num_calls, quickest_ns = monotonic_ns() + warm_ns, 0, MANY_RUNS_NS  # one may be long for a full collection
    while num_calls < LEAST_CALLS or (num_calls < WARM_CALLS and quickest_ns < MANY_RUNS_NS and monotonic_ns() < end):
        quickest_ns = min(quickest_ns, await time_calls(function, 1))
        num_calls += 1
    number = max(1, round_ns // max(quickest_ns, 1))

    async def time_round() -> float:
        if quickest_ns < MANY_RUNS_NS:
            await time_calls(function, 1)
        return await time_calls(function, number) / number / NS_PER_S

    return Contestant(name, time_round)


async def _time_awaited(function: Callable[[], Awaitable[Any]], number: int) -> int:
    calls = range(number)
    begun = monotonic_ns()
    for _ in calls:
        await function()
    return monotonic_ns() - begun


async def _time_called(function: Callable[[], Any], number: int) -> int:
    calls = range(number)
    begun = monotonic_ns()
    for _ in calls:
        function()
    return monotonic_ns() - begun


def ratios(times: Times, others: Iterable[Times]) -> tuple[float, float] | None:
    """Median to median and best to best, each against the quickest of *others*; None where there is no other."""
    present = list(others)
    if not present:
        return None
    return times.median / min(t.median for t in present), times.best / min(t.best for t in present)
