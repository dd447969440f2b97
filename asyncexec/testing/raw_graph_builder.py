"""Draws graphs of Switch, Merge, ControlTrigger and loops as text, in which much may be dead.

No Merge is ever given two live inputs, for which of them passed would depend on the order of execution.  So for each
value it is kept which sides of which Switches it lies behind: whatever lies behind both sides of one is never live
together.  Nor is anything that may never arrive let into a loop, for that could hold it up.  And no loop goes round for
ever: only what its LoopCond lets pass comes back in the next iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import hypothesis.strategies as st
import numpy as np

Condition: TypeAlias = frozenset[tuple[str, int]]  # sides of predicates
ALWAYS: Final[Condition] = frozenset()
LIMIT: Final = 4  # what a loop counts up to, from 1 at least
PARALLEL_ITERATIONS: Final = (10, 1, 2, 32)
# A name that begins like this is that of an Identity which a test may put an op of its own in the place of.
CALL: Final = "call"

T = TypeVar("T")

_ARITHMETIC: Final = ("Add", "Sub", "Mul", "Maximum")


def picked(draw: st.DrawFn, items: Sequence[T]) -> T:
    """One of *items*, the first when shrunk; unlike sampled_from it makes no repr of them all."""
    return items[draw(st.integers(0, len(items) - 1))]


def picked_names(draw: st.DrawFn, names: Sequence[str]) -> tuple[str, ...]:
    """One to four of *names*."""
    positions = draw(st.lists(st.integers(0, len(names) - 1), min_size=1, max_size=4, unique=True))
    return tuple(names[position] for position in positions)


class Entry(NamedTuple):
    """A tensor, or a node that gives none.

    Attributes:
        condition: the sides it lies behind; it is dead if one of them is not taken.
        is_exact: whether it is live if all of them are.
        always_arrives: dead or live.
    """

    name: str
    condition: Condition = ALWAYS
    is_exact: bool = True
    always_arrives: bool = True

    def excludes(self, other: Entry) -> bool:
        """Whether the two are never live together."""
        return any((predicate, 1 - side) in other.condition for predicate, side in self.condition)


@dataclass(slots=True)
class Scope:
    """What can be used at a place: all of one frame."""

    numbers: list[Entry] = field(default_factory=list)  # int32 scalars
    predicates: list[Entry] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)  # nodes without outputs


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that is being built, and what is known of what enters it."""

    frame: str
    parallel_iterations: int
    condition: Condition
    is_uniform: bool  # all that enters is live just when the condition holds


class RawGraphBuilder:
    """Draws one graph.

    Attributes:
        feeds: values by name.
        root: what is outside of loops.
    """

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._lines: list[str] = []
        self._switches: dict[str, Entry] = {}  # as control inputs, which do not tell the sides apart
        self.feeds: dict[str, Any] = {}
        self.root: Scope = Scope(
            [self._fed_number(), self._fed_number()], [self._fed_predicate(), self._fed_predicate()]
        )
        self._one, self._limit = self._node("Const[1]", []), self._node(f"Const[{LIMIT}]", [])

    @property
    def text(self) -> str:
        """The graph."""
        return "\n".join(self._lines)

    def fetches(self) -> tuple[str, ...]:
        """Names of some tensors of the root, which may be dead."""
        names = [entry.name if ":" in entry.name else f"{entry.name}:0" for entry in self.root.numbers[:1:-1]]
        names = names or [f"{self._one}:0"]
        return picked_names(self._draw, names)

    def build(self, max_statements: int) -> None:
        """Add up to so many statements to the root."""
        self._statements(self.root, max_statements, (*self._simple(), self._loop))

    def _simple(self) -> tuple[Callable[[Scope], None], ...]:
        return (self._call, self._arithmetic, self._switch, self._merge, self._compare, self._trigger)

    def _statements(self, scope: Scope, count: int, kinds: Sequence[Callable[[Scope], None]]) -> None:
        for _ in range(self._draw(st.integers(1, count))):
            picked(self._draw, kinds)(scope)

    def _node(self, op: str, inputs: Sequence[str], controls: Sequence[Entry] = (), prefix: str = "n") -> str:
        name = f"{prefix}{len(self._lines)}"
        arguments = ", ".join([*inputs, *(f"^{control.name.partition(':')[0]}" for control in controls)])
        self._lines.append(f"{name}: {op}({arguments})" if arguments else f"{name}: {op}")
        return name

    def _fed_number(self) -> Entry:
        name = self._node("Placeholder[int32, []]", [])
        self.feeds[f"{name}:0"] = np.int32(self._draw(st.integers(-3, 3)))
        return Entry(name)

    def _fed_predicate(self) -> Entry:
        name = self._node("Placeholder[bool, []]", [])
        self.feeds[f"{name}:0"] = np.bool_(self._draw(st.booleans()))
        return Entry(name)

    def _number(self, scope: Scope) -> Entry:
        return picked(self._draw, scope.numbers[::-1])

    def _predicate(self, scope: Scope) -> Entry:
        return picked(self._draw, scope.predicates)

    def _controls(self, scope: Scope, *, at_least: int = 0) -> list[Entry]:
        entries = [*scope.others, *scope.numbers[::-1], *scope.predicates]
        chosen = [picked(self._draw, entries) for _ in range(self._draw(st.integers(at_least, 2)))]
        nodes = {entry.name.partition(":")[0]: entry for entry in chosen}
        return [self._switches.get(name, entry) for name, entry in nodes.items()]

    # Statements.

    def _call(self, scope: Scope) -> None:
        data, controls = self._number(scope), self._controls(scope)
        name = self._node("Identity", [data.name], controls, CALL)
        scope.numbers.append(_together(name, [data, *controls]))

    def _switch(self, scope: Scope) -> None:
        data, predicate = self._number(scope), self._predicate(scope)
        name = self._node("Switch", [data.name, predicate.name])
        self._switches[name] = both = _together(name, [data, predicate])
        for side in range(2):
            condition = both.condition | {(predicate.name, side)}
            scope.numbers.append(both._replace(name=f"{name}:{side}" if side else name, condition=condition))

    def _merge(self, scope: Scope) -> None:
        """Of two or three, where there are any of which one at most is live."""
        latest = scope.numbers[:-24:-1]
        fits = [pair for pair in combinations(latest, 2) if pair[0].excludes(pair[1])]
        if not fits:
            self._switch(scope)
            return
        merged = list(picked(self._draw, fits))
        third = picked(self._draw, [None, *latest])
        if third is not None and all(third.excludes(entry) for entry in merged):
            merged.append(third)
        controls = self._controls(scope)
        name = self._node("Merge", [entry.name for entry in merged], controls)
        result = _either(name, merged, controls)
        scope.numbers += [result, result._replace(name=f"{name}:1")]

    def _arithmetic(self, scope: Scope) -> None:
        inputs, controls = [self._number(scope), self._number(scope)], self._controls(scope)
        name = self._node(self._draw(st.sampled_from(_ARITHMETIC)), [entry.name for entry in inputs], controls)
        scope.numbers.append(_together(name, [*inputs, *controls]))

    def _compare(self, scope: Scope) -> None:
        inputs, controls = [self._number(scope), self._number(scope)], self._controls(scope)
        name = self._node("Less", [entry.name for entry in inputs], controls)
        scope.predicates.append(_together(name, [*inputs, *controls]))

    def _trigger(self, scope: Scope) -> None:
        """Live whatever it waits for; and a number that waits for it."""
        controls = self._controls(scope, at_least=1)
        arrives = all(entry.always_arrives for entry in controls)
        trigger = Entry(self._node("ControlTrigger", [], controls), ALWAYS, arrives, arrives)
        data = self._number(scope)
        scope.others.append(trigger)
        scope.numbers.append(_together(self._node("Identity", [data.name], [trigger]), [data, trigger]))

    # Loops.

    def _loop(self, scope: Scope) -> None:
        """A counter, which ends the loop, up to two more variables, up to two constants of each kind."""
        loop, variables, constants, predicates = self._entering(scope)
        inner = Scope(
            [self._enter(loop, entry, is_constant=True) for entry in constants],
            [self._enter(loop, entry, is_constant=True) for entry in predicates],
        )
        one, limit = (self._enter(loop, Entry(name), is_constant=True).name for name in (self._one, self._limit))
        merges = [self._variable(loop, entry) for entry in variables]
        is_below = self._node("Less", [merges[0].name, limit])
        going_on = self._node("LoopCond", [self._stopping_early(inner, merges, is_below)])
        gate = Entry(going_on, ALWAYS, loop.is_uniform, loop.is_uniform)
        sides = [self._gated(entry, gate) for entry in merges]
        inner.predicates.append(gate)
        inner.numbers += [*merges, *(side for pair in sides for side in pair)]
        counted = self._node("Add", [sides[0][1].name, one])
        self._statements(inner, 5, self._simple())
        returned = [_together(counted, [sides[0][1]]), *(self._behind(inner, (going_on, 1)) for _ in merges[1:])]
        for merge, entry in zip(merges, returned, strict=True):
            self._come_back(merge, self._node("NextIteration", [entry.name]))
        self._leave(scope, inner, loop, returned, sides, (going_on, 0))

    def _entering(self, scope: Scope) -> tuple[Loop, list[Entry], list[Entry], list[Entry]]:
        """A loop, the initial values of its variables, and its constants."""
        numbers = [entry for entry in scope.numbers[::-1] if entry.always_arrives]
        first = picked(self._draw, numbers)
        is_uniform = first.is_exact and self._draw(st.booleans())

        def chosen(entries: Sequence[Entry], condition_fits: Callable[[Condition], bool], count: int) -> list[Entry]:
            fitting = [e for e in entries if not is_uniform or (e.is_exact and condition_fits(e.condition))]
            return [picked(self._draw, fitting) for _ in range(self._draw(st.integers(0, count)))] if fitting else []

        start = first._replace(name=self._node("Maximum", [first.name, self._one]))
        variables = [start, *chosen(numbers, lambda condition: condition == first.condition, 2)]
        constants = chosen(numbers, first.condition.issuperset, 2)
        arriving = [entry for entry in scope.predicates if entry.always_arrives]
        predicates = chosen(arriving, first.condition.issuperset, 2)
        parallel = self._draw(st.sampled_from(PARALLEL_ITERATIONS))
        return Loop(f"loop{len(self._lines)}", parallel, first.condition, is_uniform), variables, constants, predicates

    def _enter(self, loop: Loop, entry: Entry, *, is_constant: bool = False) -> Entry:
        attrs = f"frame_name='{loop.frame}', parallel_iterations={loop.parallel_iterations}"
        name = self._node(f"Enter[{attrs}{', is_constant=true' if is_constant else ''}]", [entry.name])
        return Entry(name) if loop.is_uniform else entry._replace(name=name)

    def _variable(self, loop: Loop, entry: Entry) -> Entry:
        enter = self._enter(loop, entry).name
        return Entry(self._node("Merge", [enter, "?"]), ALWAYS, loop.is_uniform, loop.is_uniform)

    def _come_back(self, merge: Entry, next_iteration: str) -> None:
        position = int(merge.name[1:])
        self._lines[position] = self._lines[position].replace("?", next_iteration)

    def _stopping_early(self, inner: Scope, merges: Sequence[Entry], is_below: str) -> str:
        """Maybe together with a predicate that is a constant of the loop, or that compares two of its variables."""
        if not self._draw(st.booleans()):
            return is_below
        other = picked(self._draw, [None, *(entry.name for entry in inner.predicates)])
        other = other or self._node("Less", [merges[-1].name, merges[0].name])
        return self._node("LogicalAnd", [is_below, other])

    def _gated(self, merge: Entry, gate: Entry) -> tuple[Entry, Entry]:
        name = self._node("Switch", [merge.name, gate.name])
        self._switches[name] = both = _together(name, [merge, gate])
        leaving, staying = (both.condition | {(gate.name, side)} for side in range(2))
        return both._replace(condition=leaving), both._replace(name=f"{name}:1", condition=staying)

    def _behind(self, inner: Scope, side: tuple[str, int]) -> Entry:
        return picked(self._draw, [entry for entry in inner.numbers if side in entry.condition])

    def _leave(
        self,
        scope: Scope,
        inner: Scope,
        loop: Loop,
        returned: Sequence[Entry],
        sides: Sequence[tuple[Entry, Entry]],
        end: tuple[str, int],
    ) -> None:
        """An Exit for each variable, and for one value more that is there when the loop ends."""
        goes_on = frozenset({(end[0], 1)})
        is_regular = loop.is_uniform and all(entry.is_exact and entry.condition == goes_on for entry in returned)
        for entry in (*(leaving for leaving, _ in sides), self._behind(inner, end)):
            is_exact = is_regular and entry.is_exact and entry.condition == {end}
            condition = loop.condition if is_regular else ALWAYS
            scope.numbers.append(Entry(self._node("Exit", [entry.name]), condition, is_exact, is_exact))


def _together(name: str, entries: Sequence[Entry]) -> Entry:
    """What needs all of *entries*."""
    return Entry(
        name,
        frozenset().union(*(entry.condition for entry in entries)),
        all(entry.is_exact for entry in entries),
        all(entry.always_arrives for entry in entries),
    )


def _either(name: str, merged: Sequence[Entry], controls: Sequence[Entry]) -> Entry:
    """What is live when one of *merged* is."""
    shared = frozenset.intersection(*(entry.condition for entry in merged))
    rests = [entry.condition - shared for entry in merged]
    is_whole = len(merged) == 2 and all(len(rest) == 1 for rest in rests)  # the two sides of one predicate
    arrives = all(entry.always_arrives for entry in (*merged, *controls))
    return Entry(name, shared, is_whole and arrives and all(entry.is_exact for entry in merged), arrives)
