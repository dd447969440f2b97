"""Program -> blocks: its units in an order, those under one condition side by side.

A unit comes as soon as all it waits for has come, and where there is a choice, where the last one stood; so that an
``if`` is opened as seldom as may be.  The same condition may be opened again later.  Of those in one place, what has
become ready last comes first: it takes what has just been made, so that few values are kept at a time.

What is awaited comes when nothing else is ready: all that does not wait for it has been done by then.  Scalars for the
next round of a loop that nobody else takes come at the end of a round: then they can take the place of those of this
round.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.regions.program import (
    Call,
    Condition,
    Liveness,
    Loop,
    Move,
    Program,
    Scope,
    Unit,
    UnstructuredError,
    Value,
)


@dataclass(slots=True, eq=False)
class Branch:
    """An ``if``: what runs on each side of *pred*."""

    pred: Value
    sides: dict[int, Block] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Repeat:
    """A ``while``: *head* runs in each round, and *body* if the loop's condition holds then.

    It may be that native code can do rounds of it (native_parts.py), also if it has_arrays (native_loops.py).
    """

    loop: Loop
    head: Block
    body: Block
    may_be_native: bool = False
    has_arrays: bool = False


@dataclass(slots=True, eq=False)
class Piece:
    """Statements that native code may do instead (native_parts.py)."""

    block: Block


Statement: TypeAlias = Call | Move | Branch | Repeat | Piece


@dataclass(slots=True, eq=False)
class Block:
    """Statements, one after the other."""

    statements: list[Statement] = field(default_factory=list)


def schedule(program: Program) -> Stage[Block]:
    """What *program* does, in order, as a stage; UnstructuredError if its units wait for one another."""
    used = yield from _used(program)
    return (yield from _Scheduler(used).scope(program.root))


def _used(program: Program) -> Stage[set[Value]]:
    """The values that somebody takes: moves to others are left out."""
    used = set(program.outputs)
    moves: dict[Value, list[Move]] = {}
    found: list[Value] = []

    def use(values: Iterable[Value]) -> None:
        for value in values:
            if value not in used:
                used.add(value)
                found.append(value)

    scopes = [program.root]
    while scopes:
        scope = scopes.pop()
        for count, unit in enumerate(scope.units):
            if not count % STRIDE:
                yield
            use(pred for pred, _ in unit.liveness)
            if isinstance(unit, Call):
                use(unit.inputs)
            elif isinstance(unit, Move):
                moves.setdefault(unit.target, []).append(unit)
            elif isinstance(unit, Loop):
                scopes.append(unit.body)
                assert unit.condition is not None
                use([unit.condition])
                for carried in unit.carried:
                    assert carried.next is not None
                    use([carried.first, carried.next])
    found += program.outputs
    while found:
        use(move.source for move in moves.pop(found.pop(), ()))
        if not len(found) % STRIDE:
            yield
    return used


class _Place:
    """The units that are ready under one path of conditions, and the places below."""

    __slots__ = ("below", "block", "condition", "num_ready", "parent", "ready", "to_open")

    def __init__(self, parent: _Place | None, condition: Condition | None) -> None:
        self.parent = parent
        self.condition = condition
        self.below: dict[Condition, _Place] = {}
        self.ready: list[Unit] = []  # the last one is the next
        self.num_ready = 0  # here and below
        self.to_open: deque[_Place] = deque()  # places right below that have had something ready since they were left
        self.block: Block | None = None  # where it is open

    def put(self, unit: Unit) -> None:
        self.ready.append(unit)
        place: _Place | None = self
        while place is not None:
            place.num_ready += 1
            if place.num_ready == 1 and place.parent is not None:
                place.parent.to_open.append(place)
            place = place.parent

    def take(self) -> Unit:
        unit = self.ready.pop()
        place: _Place | None = self
        while place is not None:
            place.num_ready -= 1
            place = place.parent
        return unit


def _put(ready: Sequence[Unit], awaited: deque[Unit], root: _Place, places: Mapping[Liveness, _Place]) -> bool:
    """Put *ready* into their *places* below *root*, what is awaited only if there is nothing else; whether any is."""
    awaited.extend([unit for unit in ready if unit.is_awaited])
    for unit in reversed(ready):
        if not unit.is_awaited:
            places[unit.liveness].put(unit)
    if not root.num_ready and awaited:
        unit = awaited.popleft()
        places[unit.liveness].put(unit)
    return root.num_ready > 0


def _order_of(units: Sequence[Unit]) -> Stage[tuple[dict[Unit, int], dict[Unit, list[Unit]]]]:
    """How many of *units* each of them waits for, and those that wait for each."""
    waiting = dict.fromkeys(units, 0)
    behind: dict[Unit, list[Unit]] = {}
    for index, unit in enumerate(units):
        if not index % STRIDE:
            yield
        for before in unit.after:
            if before in waiting:
                behind.setdefault(before, []).append(unit)
                waiting[unit] += 1
    return waiting, behind


def _at_the_end(loop: Loop, members: Container[Unit], behind: Container[Unit]) -> list[Call]:
    """The calls that make scalars for the next round of *loop* alone; each after those that take what it replaces."""
    replaces: dict[Call, Value] = {}
    for carried in loop.carried:
        assert carried.next is not None
        call = carried.next.unit
        if (
            isinstance(call, Call)
            and call in members
            and call not in behind
            and len(call.liveness) == 1
            and not (call.is_awaited or call.is_foreign or call.node.op_def.is_stateful)
            and carried.value.is_scalar
        ):
            replaces[call] = carried.value
    takes = {call: {value for value in call.inputs if value is not own} for call, own in replaces.items()}
    num_takers = Counter(value for values in takes.values() for value in values)
    makes_next = {value: call for call, value in replaces.items()}
    order = [call for call, value in replaces.items() if not num_takers[value]]
    for call in order:
        for value in takes[call]:
            num_takers[value] -= 1
            if not num_takers[value] and value in makes_next:
                order.append(makes_next[value])
    return order  # without those that take one another's variables in a ring


class _Scheduler:
    def __init__(self, used: set[Value]) -> None:
        self._used = used
        self._ranks: dict[Value, tuple[int, int]] = {}
        self._count = 0

    def scope(self, root: Scope) -> Stage[Block]:
        """The block of *root*, and of the loops in it: theirs first, from the inside out."""
        order: list[Scope] = [root]
        for scope in order:
            for units in in_parts(scope.units):
                order += [unit.body for unit in units if isinstance(unit, Loop)]
                yield
        repeats: dict[Loop, Repeat] = {}
        for scope in reversed(order):
            if scope.loop is None:
                return (yield from self._block(scope.units, None, repeats))
            condition = scope.loop.condition
            assert condition is not None
            head = [unit for unit in scope.units if (condition, 1) not in unit.liveness]
            body = [unit for unit in scope.units if (condition, 1) in unit.liveness]
            repeats[scope.loop] = Repeat(
                scope.loop,
                (yield from self._block(head, None, repeats)),
                (yield from self._block(body, scope.loop, repeats)),
            )
        raise AssertionError("the root is last")

    def _rank(self, condition: Condition) -> tuple[int, int]:
        """By what the conditions on one path are put in order: those that others depend on, first."""
        pred, _ = condition
        rank = self._ranks.get(pred)
        if rank is None:
            rank = self._ranks[pred] = (pred.depth, len(self._ranks))
        return rank

    def _place_of(self, liveness: Liveness, root: _Place, known: Condition | None) -> _Place:
        place = root
        for condition in sorted(liveness, key=self._rank) if len(liveness) > 1 else liveness:
            if condition == known:
                continue
            below = place.below.get(condition)
            if below is None:
                below = place.below[condition] = _Place(place, condition)
            place = below
        return place

    def _block(self, units: Sequence[Unit], loop: Loop | None, repeats: dict[Loop, Repeat]) -> Stage[Block]:
        """The block of *units*, which are all, or the body of *loop*, where its condition holds."""
        root = _Place(None, None)
        root.block = block = Block()
        known = None if loop is None or loop.condition is None else (loop.condition, 1)
        places: dict[Liveness, _Place] = {}
        for some in in_parts(units):
            for unit in some:
                if unit.liveness not in places:
                    places[unit.liveness] = self._place_of(unit.liveness, root, known)
            yield
        waiting, behind = yield from _order_of(units)
        last = [] if loop is None else _at_the_end(loop, waiting, behind)
        waiting.update(dict.fromkeys(last, -1))  # which never comes to 0
        ready = [unit for unit, count in waiting.items() if not count]
        place, left = root, len(units) - len(last)
        awaited: deque[Unit] = deque()
        while _put(ready, awaited, root, places):
            place = self._next_place(place)
            unit = place.take()
            left -= 1
            assert place.block is not None
            if isinstance(unit, Loop):
                place.block.statements.append(repeats[unit])
            elif isinstance(unit, Call) or (isinstance(unit, Move) and unit.target in self._used):
                place.block.statements.append(unit)
            ready = []
            for after in behind.get(unit, ()):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
            self._count += 1
            if not self._count % STRIDE:
                yield
        if left:
            raise UnstructuredError("units wait for one another")
        block.statements += last
        return block

    def _next_place(self, place: _Place) -> _Place:
        """Where to go on: here, else further in, else at the other side or further out; with its block open."""
        while not place.ready:
            if place.num_ready:
                while not place.to_open[0].num_ready:
                    place.to_open.popleft()
                below = place.to_open[0]
                self._open(place, below)
                place = below
            else:
                place.block = None
                assert place.parent is not None
                place = place.parent
        return place

    @staticmethod
    def _open(place: _Place, below: _Place) -> None:
        assert place.block is not None
        assert below.condition is not None
        pred, side = below.condition
        statements = place.block.statements
        last = statements[-1] if statements else None
        if not (isinstance(last, Branch) and last.pred is pred and side not in last.sides):
            statements.append(last := Branch(pred))
        below.block = last.sides[side] = Block()
