"""Where each value of a scheduled program is made, and where it is taken for the last time.

Statements have positions, in the order of the source.  What is made before a loop and taken in it is kept until the
loop has ended, for the next round takes it again.

Values that are never kept at the same time share a number, as variables share a register: by a linear scan over the
positions (Poletto and Sarkar, "Linear Scan Register Allocation", 1999).  A small value then goes when the next one
takes its place, and its memory is still in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.regions.program import Call, Carried, Move, Program, Value
from asyncexec.regions.schedule import Block, Branch, Piece, Repeat, Statement

END: Final = 1 << 60  # of the program


@dataclass(slots=True, eq=False)
class _Range:
    """From where to where a value is kept, or several that become one another."""

    first: int
    last: int
    values: list[Value] = field(default_factory=list)
    is_small: bool = True
    number: int = 0


class Lifetimes:
    """Positions of a scheduled program.

    Attributes:
        made: where each value is first written; last: where it is last taken.
        start, end: of statements, the first and last position in them; size: how many calls and moves.
        names: of each value that is no constant a number.
        num_uses: how often each value is taken.
        dying: by position, the numbers of what is not small and is not taken after it, unless another value is made
            there that has the number.
    """

    def __init__(self) -> None:
        self.made: dict[Value, int] = {}
        self.last: dict[Value, int] = {}
        self.start: dict[Statement, int] = {}
        self.end: dict[Statement, int] = {}
        self.size: dict[Statement, int] = {}
        self.names: dict[Value, int] = {}
        self.dying: dict[int, list[int]] = {}
        self.num_uses: dict[Value, int] = {}
        self._moves: list[Move] = []
        self._repeats: list[Repeat] = []
        self._in_round: dict[Value, int] = {}  # of variables of loops, where a round takes them last
        self._in_loops: set[Value] = set()  # variables of the loops around
        self._loops: list[set[Value]] = []  # around, with what is kept until they end
        self._depths: dict[Value, int] = {}
        self._awaited: set[int] = set()  # where something is awaited, during which nothing else is kept
        self._position = 0
        self._count = 0

    def read(self, program: Program, block: Block) -> Stage[None]:
        """Find the positions in *block*, which is what *program* does."""
        for value in (*program.inputs, *program.defaults):
            self._make(value)
        yield from self._block(block)
        end = self._position
        self._position = END
        self._use(program.outputs)
        becomes = yield from self._joined(frozenset(program.defaults))
        ranges = yield from self._ranges(becomes)
        yield from self._number(ranges, end)

    def _joined(self, apart: frozenset[Value]) -> Stage[dict[Value, Value]]:
        """The values that become others, each with that; *apart* are outputs that have a value from the start."""
        becomes: dict[Value, Value] = {}
        made = self.made.copy()
        for count, move in enumerate(self._moves):
            if not count % STRIDE:
                yield
            source, target, unit = move.source, move.target, move.source.unit
            if (
                target not in apart
                and isinstance(unit, Call)
                and self.num_uses[source] == 1
                and unit.scope is move.scope
                and unit.liveness == move.liveness
            ):
                becomes[source] = target
                made[target] = min(made[target], made[source])
        taken: set[Value] = set()
        for repeat in self._repeats:
            loop = repeat.loop
            for carried in loop.carried:
                value, following_value = carried.value, following(carried)
                unit = following_value.unit
                if (
                    unit is not None
                    and unit.scope is loop.body
                    and following_value not in taken
                    and following_value not in becomes
                    and following_value.constant is NOTHING
                    and unit.liveness == {(loop.condition, 1)}
                    and made[following_value] >= self._in_round[value]
                ):
                    taken.add(following_value)
                    becomes[following_value] = value
        return becomes

    def _ranges(self, becomes: dict[Value, Value]) -> Stage[list[_Range]]:
        """Where values are kept; those that become one another, together."""
        ranges: dict[Value, _Range] = {}
        for count, (value, made) in enumerate(self.made.items()):
            if not count % STRIDE:
                yield
            final = value
            while final in becomes:
                final = becomes[final]
            last = self.last.setdefault(value, made)
            found = ranges.get(final)
            if found is None:
                found = ranges[final] = _Range(made, last)
            found.values.append(value)
            found.first = min(found.first, made)
            found.last = max(found.last, last)
            found.is_small = found.is_small and value.is_scalar
        return list(ranges.values())

    def _number(self, ranges: Sequence[_Range], end: int) -> Stage[None]:
        """Give numbers to all values, in the order of positions; the one let go of last is the next to be given."""
        begun: dict[int, list[_Range]] = {}
        for some in in_parts(ranges):
            for each in some:
                begun.setdefault(each.first, []).append(each)
            yield
        ended: dict[int, list[_Range]] = {}
        free: list[int] = []
        count = 0
        for position in range(end + 1):
            over, new = ended.pop(position, []), begun.get(position, ())
            if position not in self._awaited:  # else they are let go of before the new ones are made
                free += [each.number for each in over]
            for each in new:
                if free:
                    each.number = free.pop()
                else:
                    each.number, count = count, count + 1
                ended.setdefault(each.last, []).append(each)
                self.names.update(dict.fromkeys(each.values, each.number))
            if position in self._awaited:
                free += [each.number for each in over]
            written = {each.number for each in new}
            over = [each for each in over if each.number not in written]
            unused = ended.pop(position, [])
            free += [each.number for each in unused]
            if dying := [each.number for each in (*over, *unused) if not each.is_small]:
                self.dying[position] = dying
            if not position % STRIDE:
                yield

    def _make(self, value: Value) -> None:
        if value not in self.made:
            self.made[value] = self._position
            self._depths[value] = len(self._loops)

    def _use(self, values: Iterable[Value]) -> None:
        for value in values:
            if value.constant is not NOTHING:
                continue
            self.num_uses[value] = self.num_uses.get(value, 0) + 1
            if value in self._in_loops:
                self._in_round[value] = self._position
            depth = self._depths[value]
            if depth < len(self._loops):
                self._loops[depth].add(value)
            self.last[value] = self._position

    def _block(self, block: Block) -> Stage[None]:
        for statement in block.statements:
            self._position += 1
            self.start[statement] = self._position
            if isinstance(statement, Call):
                self._use(statement.inputs)
                if statement.is_awaited:
                    self._awaited.add(self._position)
                for value in statement.outputs:
                    self._make(value)
                self.size[statement] = 1
            elif isinstance(statement, Move):
                self._use([statement.source])
                self._moves.append(statement)
                self._make(statement.target)
                self.size[statement] = 1
            elif isinstance(statement, Branch):
                self._use([statement.pred])
                for side in statement.sides.values():
                    yield from self._block(side)
                self._position += 1
                self.size[statement] = 1 + sum(self._size(side) for side in statement.sides.values())
            elif isinstance(statement, Piece):
                yield from self._block(statement.block)
                self._position += 1
                self.size[statement] = 2 + self._size(statement.block)
            else:
                yield from self._repeat(statement)
            self.end[statement] = self._position
            self._count += 1
            if not self._count % STRIDE:
                yield

    def _repeat(self, repeat: Repeat) -> Stage[None]:
        loop = repeat.loop
        self._repeats.append(repeat)
        self._use(carried.first for carried in loop.carried)
        variables = [carried.value for carried in loop.carried]
        self._in_loops.update(variables)
        for value in variables:
            self._make(value)  # out here: it is what the loop gives
            self._in_round[value] = self._position
        self._loops.append(set())
        yield from self._block(repeat.head)
        self._position += 1
        assert loop.condition is not None
        self._use([loop.condition])
        yield from self._block(repeat.body)
        self._position += 1
        self._use(following(carried) for carried in loop.carried)
        self._position += 1
        kept = self._loops.pop()
        for value in (*kept, *variables):
            self.last[value] = self._position
        self._in_loops.difference_update(variables)
        self.size[repeat] = 2 + self._size(repeat.head) + self._size(repeat.body)

    def _size(self, block: Block) -> int:
        return sum(self.size[statement] for statement in block.statements)


def following(carried: Carried) -> Value:
    """What the next round begins with."""
    assert carried.next is not None
    return carried.next
