"""How much work there is in statements: about how long they take, in calls on scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from asyncexec.framework.types import string
from asyncexec.graph.node import Node
from asyncexec.regions.program import Call, Joint, Move, Program, Unit
from asyncexec.regions.schedule import Block, Branch, Piece, Repeat, Statement

MAX_WORK: Final = 4096  # between two yields
_SMALL: Final = 32  # what a call that makes a small array counts
_FOREIGN: Final = 256  # a user's function that was quick
UNKNOWN: Final = 1024  # and a call that nothing is known of
_PER_UNIT: Final = 32  # elements by which a variable changes
_MAX_ROUNDS: Final = 256
_LIGHT: Final = 64  # units, of a program that takes some ten microseconds at most


def is_light(program: Program) -> bool:
    """Whether *program* is known to take no time that anybody minds: few calls, of single numbers, without a state."""
    units = program.root.units
    return len(units) <= _LIGHT and all(map(_is_light, units))


def _is_light(unit: Unit) -> bool:
    if not isinstance(unit, Call):
        return isinstance(unit, (Move, Joint))
    node = unit.node
    are_numbers = not any(tensor.dtype.is_opaque or tensor.dtype is string for tensor in (*node.inputs, *node.outputs))
    are_scalars = all(value.is_scalar for value in (*unit.inputs, *unit.outputs))
    return are_numbers and are_scalars and not (unit.is_foreign or unit.is_awaited or node.op_def.is_stateful)


class WorkMeter:
    """Measures work.

    Args:
        is_small: whether a node whose shapes are not known has been seen to take small values.
        is_long: whether a call of a node is as much work as may be between two yields.
    """

    def __init__(self, is_small: Callable[[Node], bool], is_long: Callable[[Node], bool]) -> None:
        self._is_small = is_small
        self._is_long = is_long
        self._rounds: dict[Repeat, tuple[int, int]] = {}
        self._known: dict[Statement, int] = {}

    def of_rounds(self, repeat: Repeat) -> tuple[int, int]:
        """How many rounds there are between two yields, and how much work they are."""
        known = self._rounds.get(repeat)
        if known is None:
            work = max(1, self._of_block(repeat.head) + self._of_block(repeat.body))
            rounds = max(1, min(_MAX_ROUNDS, MAX_WORK // work))
            known = self._rounds[repeat] = rounds, min(MAX_WORK, rounds * work)
        return known

    def of(self, statement: Statement) -> int:
        """How much work *statement* is, or one of its sides, or the rounds between two yields."""
        known = self._known.get(statement)
        if known is None:
            known = self._known[statement] = self._measured(statement)
        return known

    def _measured(self, statement: Statement) -> int:
        if isinstance(statement, Call):
            if self._is_long(statement.node):
                return MAX_WORK
            if statement.is_foreign:
                return _FOREIGN
            if not statement.outputs:
                return self._of_change(statement.node)
            if all(value.is_scalar for value in statement.outputs):
                return max(1, len(statement.inputs) // 8)
            return _SMALL if self._makes_small(statement.node) else UNKNOWN
        if isinstance(statement, Branch):
            return max(map(self._of_block, statement.sides.values()), default=0)
        if isinstance(statement, Piece):
            return self._of_block(statement.block)
        return self.of_rounds(statement)[1] if isinstance(statement, Repeat) else 0

    def _of_block(self, block: Block) -> int:
        return min(MAX_WORK, sum(self.of(statement) for statement in block.statements))

    def _of_change(self, node: Node) -> int:
        """How much work a call of *node* is, which gives nothing, and changes a state by what it takes."""
        sizes = [tensor.shape.num_elements for tensor in node.inputs if not tensor.dtype.is_opaque]
        if None in sizes and not self._is_small(node):
            return UNKNOWN
        return min(MAX_WORK, max([1, *[(size or 0) // _PER_UNIT for size in sizes]]))

    def _makes_small(self, node: Node) -> bool:
        sizes = [shape.num_elements for shape in node.output_shapes]
        return all(size is not None and size < MAX_WORK for size in sizes) or (None in sizes and self._is_small(node))
