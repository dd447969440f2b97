"""Streams drawn at random, a plain model of what they give, and a run of one in turns of the event loop.

All delays are turns of the loop, not seconds, so that cases mean the same on every loop.  An item's fate is known
before the stream begins; from the fates and the order in which items were sent the model tells what may come out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import hypothesis.strategies as st
import numpy as np

import asyncexec as ax

# What becomes of an item: its feed does not fit; or the first kernel fails, or the one in the middle; or one that comes
# after the state, or one that has nothing to do with it.
Fate: TypeAlias = Literal["ok", "feed", "early", "late", "after", "aside"]
GraphKind: TypeAlias = Literal["plain", "loop", "devices"]
Action: TypeAlias = Literal["cancel_consumer", "cancel_taker", "cancel_sender", "close_session", "close_stream"]
SourceKind: TypeAlias = Literal["iterable", "async", "send"]

# These leave it to others to take and to send everything.
HARMLESS: Final = frozenset({"cancel_taker", "cancel_sender", "close_stream"})
OUTPUT: Final[dict[str, Any]] = {"outputs": [ax.int64], "shapes": [[]]}


@dataclass(frozen=True)
class Item:
    """An item, and the turns that its three async kernels take."""

    fate: Fate = "ok"
    turns: int = 0
    turns_after: int = 0
    turns_aside: int = 0


@dataclass(frozen=True)
class Case:
    """A stream: its items, how it is run, and what happens to it in which turn.

    Attributes:
        source_turns, taker_turns: what the source takes before each item, and who takes results after each.
        fails_at: the number of the item instead of which the source raises OSError.
        leave_after: of so many results the consumer goes away.
        actions: turns, what is done then, and to which of the senders or takers.
    """

    items: tuple[Item, ...]
    window: int = 2
    ordered: bool = True
    on_error: Literal["raise", "yield"] = "raise"
    kind: GraphKind = "plain"
    source: SourceKind = "iterable"
    num_senders: int = 1
    num_takers: int = 1
    source_turns: int = 0
    taker_turns: int = 0
    fails_at: int | None = None
    leave_after: int | None = None
    actions: tuple[tuple[int, Action, int], ...] = ()

    @property
    def is_undisturbed(self) -> bool:
        """Whether all that was sent is taken, or ends in an error."""
        return self.leave_after is None and all(action in HARMLESS for _, action, _ in self.actions)

    @property
    def expects_sources_error(self) -> bool:
        return self.fails_at is not None and self.fails_at < len(self.items)


_FATES: Final[st.SearchStrategy[Fate]] = st.sampled_from(
    ["ok", "ok", "ok", "ok", "ok", "feed", "early", "late", "after", "aside"]
)
_TURNS: Final = st.sampled_from([0, 0, 1, 2, 3, 7, 15])
_ITEMS: Final = st.lists(st.builds(Item, _FATES, _TURNS, _TURNS, _TURNS), max_size=16)
_ALL_WELL: Final = st.lists(st.builds(Item, st.just("ok"), _TURNS, _TURNS, _TURNS), max_size=16)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Streams of all kinds; in about half of them nothing is done to the stream from outside."""
    source: SourceKind = draw(st.sampled_from(["iterable", "async", "send"]))
    is_sent = source == "send"
    names: list[Action] = ["cancel_consumer", "close_session"]
    names += ["cancel_taker", "cancel_sender", "close_stream"] if is_sent else []
    action = st.tuples(st.integers(1, 60), st.sampled_from(names), st.integers(0, 2))
    several = st.integers(1, 3) if is_sent else st.just(1)
    return Case(
        tuple(draw(st.one_of(_ITEMS, _ALL_WELL))),
        draw(st.integers(1, 5)),
        draw(st.booleans()),
        draw(st.sampled_from(["raise", "yield"])),
        draw(st.sampled_from(["plain", "loop", "devices"])),
        source,
        draw(several),
        draw(several),
        draw(st.sampled_from([0, 0, 1, 5])),
        draw(st.sampled_from([0, 0, 1, 5])),
        None if is_sent else draw(st.one_of(st.none(), st.integers(0, 8))),
        draw(st.one_of(st.none(), st.none(), st.integers(0, 6))),
        tuple(draw(st.one_of(st.just([]), st.lists(action, max_size=3)))),
    )


async def pass_turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@dataclass
class World:
    """What the kernels see and count: how often each ran for each item, and which are under way.

    Attributes:
        most: items at most that any were under way for.
    """

    items: tuple[Item, ...]
    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    under_way: Counter[int] = field(default_factory=Counter)
    most: int = 0

    def call(self, stage: str, x: int) -> None:
        self.calls[stage, x] += 1
        if self.items[x].fate == stage:
            raise ValueError(f"{x} {stage}")

    async def wait(self, stage: str, x: int, turns: int) -> None:
        self.under_way[x] += 1
        self.most = max(self.most, len(self.under_way))
        try:
            await pass_turns(turns)
            self.call(stage, x)
        finally:
            self.under_way -= Counter([x])


@dataclass
class StreamGraph:
    """x is doubled and checked, awaited, added to the state, and awaited again, and also beside all that.

    See ``stream_graph``.
    """

    graph: ax.Graph
    x: ax.Tensor
    fetches: dict[str, ax.Tensor]
    world: World = field(default_factory=lambda: World(()))


@cache
def stream_graph(kind: GraphKind) -> StreamGraph:
    """One graph for all cases of a kind; whoever runs a case puts its world in."""

    @ax.op(**OUTPUT, expensive=False)
    def early(x: Any) -> Any:
        made.world.call("early", int(x))
        return x + x

    @ax.op(**OUTPUT)
    async def late(x: Any, doubled: Any) -> Any:
        await made.world.wait("late", int(x), made.world.items[x].turns)
        return doubled

    @ax.op(**OUTPUT)
    async def after(x: Any, doubled: Any, total: Any) -> Any:
        await made.world.wait("after", int(x), made.world.items[x].turns_after)
        return doubled + 1

    @ax.op(**OUTPUT)
    async def aside(x: Any) -> Any:
        await made.world.wait("aside", int(x), made.world.items[x].turns_aside)
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        checked = early(x)
        if kind == "loop":
            _, checked = ax.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v), (ax.constant(0), checked))
        with ax.device("/cpu:1" if kind == "devices" else None):
            doubled = late(x, checked)
        total = ax.stream_state(np.int64(0))
        # Only what was awaited is added.
        new = total.update(total.value + ax.floordiv(doubled, np.int64(2)))
        made = StreamGraph(graph, x, {"y": after(x, doubled, new), "total": new, "x": aside(x)})
    return made


class Model:
    """What a stream of these items may give, when they were sent in this order."""

    def __init__(self, case: Case, sent: list[int]) -> None:
        self._case = case
        self._sent = sent

    def output(self, number: int) -> Any:
        """What comes out for an item: y with the state behind it, or the first line of an error."""
        x = self._sent[number]
        fate = self._fate(x)
        if fate == "ok":
            counted = {"ok", "after", "aside"}
            return 2 * x + 1, sum(other for other in self._sent[: number + 1] if self._fate(other) in counted)
        if fate == "feed":
            return f"item {number}: cannot feed a value of shape [1] for 'x:0', which has the shape []"
        return f"item {number}: ValueError: {x} {fate}"

    def failing(self) -> list[int]:
        """The numbers of the items that fail."""
        return [number for number, x in enumerate(self._sent) if self._fate(x) != "ok"]

    def all_outputs(self) -> list[Any]:
        """What comes out of an ordered stream that nobody disturbs, but for its last error."""
        end = len(self._sent)
        if self._case.on_error == "raise" and self.failing():
            end = self.failing()[0]
        return [self.output(number) for number in range(end)]

    def _fate(self, x: int) -> Fate:
        return self._case.items[x].fate


class Source:
    """Gives the feeds of a case, and keeps what has been drawn of them."""

    def __init__(self, case: Case, x: ax.Tensor) -> None:
        self._case = case
        self._x = x
        self.drawn: list[int] = []

    def feeds(self, number: int) -> dict[ax.Tensor, Any]:
        return {self._x: [number] if self._case.items[number].fate == "feed" else number}

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self._case.items)):
            if number == self._case.fails_at:
                raise OSError("the source is gone")
            self.drawn.append(number)
            yield self.feeds(number)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for feeds in self:
            await pass_turns(self._case.source_turns)
            yield feeds
