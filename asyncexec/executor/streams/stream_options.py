"""What a stream is told: StreamPlan, what its items have in common; StreamOptions, how it behaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.diagnostics.step_counts import StepCounts
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.tier import Tier
from asyncexec.executor.streams.spread import Spread
from asyncexec.executor.streams.stream_item import StateSlot
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import SLICE_NS
from asyncexec.framework.errors import OpError
from asyncexec.framework.spans import Spans

# Takes what an item has failed with, and what it was fed, by the names of tensors.
DeadLetters: TypeAlias = Callable[[OpError, Any], Awaitable[object] | None]


class ItemRecords(Protocol):
    """What records the items of a stream that fail."""

    def begin(self, number: int, values: Sequence[object], /) -> None:
        """Item *number* begins, and feeds *values*, besides those of states."""
        ...

    def collector_of(self, number: int, /) -> StepStatsCollector:
        """What gathers what item *number* runs."""
        ...

    def forget(self, number: int, /) -> None:
        """Item *number* has ended well."""
        ...

    def end(
        self, number: int, states: Mapping[int, object], error: BaseException, /
    ) -> Coroutine[Any, Any, None] | None:
        """What writes the record of item *number*, which has failed with *error*; *states* are fed, by position."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class StreamPlan:
    """What the items of a stream have in common.

    Attributes:
        executor: makes their steps; tier: knows what makes them once they are compiled.
        convert: makes feeds of what was sent; an OpError where that cannot be.
        result: makes of the values that a step fetched what the user gets; an OpError where one is missing.
        explained: the error to show for one of a step.
        holds: is told how long the event loop was held.
        counts: is told of items that have ended.
        states: those carried from item to item.
        spans: makes the spans of items, where somebody may want to know of them.
        collector: gathers what they run, where they are traced.
        spread: chooses the worker of each item, where items go to workers.
        replicas: by worker, what makes the steps there.
        letter: makes what is told of a failed item of what was sent, and of that as *convert* has given it.
        has_keys: whether there are states by key.
        records: those of items that fail, where they are recorded.
    """

    executor: GeneralExecutor | PartitionedExecutor
    tier: Tier
    convert: Callable[[Any], list[object]]
    result: Callable[[list[Any]], Any]
    explained: Callable[[OpError], OpError]
    holds: LoopHolds
    counts: StepCounts
    states: tuple[StateSlot, ...] = ()
    spans: Spans | None = None
    collector: StepStatsCollector | None = None
    spread: Spread | None = None
    replicas: Mapping[str, GeneralExecutor | PartitionedExecutor] = field(default_factory=dict)
    letter: Callable[[Any, Any], object] = lambda sent, _: sent
    has_keys: bool = False
    records: ItemRecords | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream behaves.

    Attributes:
        window: items at most between their being sent and their result being taken.
        ordered: whether results come in the order of the items, or as they complete.
        yields_errors: whether an item's failure takes its place in the output, instead of ending the stream.
        dead_letters: takes failed items, which have no place in the output then.
        flushes: whether what sources hold when the stream is closed is sent.
        slice_ns: how long the event loop is held at a stretch.
        source_grace_s: seconds that what draws from a source has to end once it is cancelled; None is for ever.
        clock: measures the slices.
    """

    window: int = 32
    ordered: bool = True
    yields_errors: bool = False
    dead_letters: DeadLetters | None = None
    flushes: bool = True
    slice_ns: int = SLICE_NS
    source_grace_s: float | None = 30.0
    clock: Clock = CLOCK
