"""What of a program can be native code, and what it takes and gives.

Theory
------
Native code stands beside the Python code and does what that would do, to the bit, as long as nothing unusual happens.
It touches nothing but scalars, so what it has begun it can forget: where it *bails out*, the Python code runs as if
the native code had not been there, and raises what is to be raised.

A *piece*, which is some statements without a loop, is native as a whole, or not at all: the Python code runs from its
beginning.  Of a loop, native code does rounds.  It begins and ends between two rounds, and all that it gives are the
variables of the loop and how many rounds there were; so the Python code can go on at any time, and it is always the
Python code that finds the loop to end.  The first rounds are Python's, too: a loop that has few of them does not pay.

Native code is made of what has run often, for the types that were met then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework import types
from asyncexec.framework.cooperative import FEW, Stage
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.types import DType
from asyncexec.regions.lifetimes import Lifetimes, following
from asyncexec.regions.native_emitter import LLVM_NAMES, NotNativeError, ScalarType, constant_operand
from asyncexec.regions.program import Call, Move, Value
from asyncexec.regions.schedule import Block, Branch, Piece, Repeat, Statement

_native_ops = LazyModule("asyncexec.regions.native_ops")  # which imports the ops

MAX_NODES: Final = 2_000  # of one native function: to compile it takes some tens of milliseconds
MIN_NODES: Final = 16  # of a piece
MAX_ARRAY_NODES: Final = 256  # of a loop with arrays
_ARRAY_CALL: Final = 16  # calls on scalars that take as long as one on an array
_TYPES: Final[Mapping[DType, ScalarType]] = {
    types.float32: np.float32,
    types.float64: np.float64,
    types.int32: np.int32,
    types.int64: np.int64,
    types.bool: np.bool_,
}
CROSSING: Final = 2  # nodes that take as long as to hand over a value, twice

Replace: TypeAlias = Callable[[Callable[..., Any] | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class NativePart:
    """A piece, or a loop, that can be native code.

    Attributes:
        statement: what it does.
        takes: the values that it is called with; of a loop, first its variables.
        gives: the values that it gives; of a loop, its variables.
        work: how many calls of kernels a call stands for.
        replace: lets the Python code call something, or nothing, from now on.
    """

    statement: Piece | Repeat
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]
    work: int
    replace: Replace


def find_native(block: Block) -> Stage[None]:
    """Put what may be native in pieces, and mark the loops that may be, as a stage."""
    yield from _Finder().look_through(block)


class _Finder:
    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], bool] = {}
        self._sizes: dict[Statement, int | None] = {}  # how many nodes, of what may be native
        self._with_loops: set[Statement] = set()  # branches with loops in them
        self._count = 0

    def look_through(self, block: Block, *, is_in_native: bool = False) -> Stage[None]:
        """*is_in_native*: it is in a loop that may be native, so pieces would bring nothing."""
        found: list[Statement] = []
        run: list[Statement] = []
        for statement in block.statements:
            self._count += 1
            if not self._count % FEW:
                yield
            if not is_in_native and self._fits_piece(statement):
                run.append(statement)
                continue
            self._close(run, found)
            run = []
            found.append(statement)
            if isinstance(statement, Branch):
                for side in statement.sides.values():
                    yield from self.look_through(side, is_in_native=is_in_native)
            elif isinstance(statement, Repeat):
                size = self._size(statement)
                statement.may_be_native = size is not None and size <= MAX_NODES
                if not statement.may_be_native:
                    statement.may_be_native = statement.has_arrays = _may_have_native_arrays(statement)
                is_native_here = is_in_native or statement.may_be_native
                yield from self.look_through(statement.head, is_in_native=is_native_here)
                yield from self.look_through(statement.body, is_in_native=is_native_here)
        self._close(run, found)
        block.statements = found

    def _fits_piece(self, statement: Statement) -> bool:
        is_native = self._size(statement) is not None
        return is_native and not isinstance(statement, Repeat) and statement not in self._with_loops

    def _close(self, run: list[Statement], found: list[Statement]) -> None:
        """Add the statements *run* to *found*, in pieces where they are enough."""
        group: list[Statement] = []
        total = 0
        for statement in run:
            size = self._size(statement) or 0
            if group and total + size > MAX_NODES:
                found += _as_pieces(group, total)
                group, total = [], 0
            group.append(statement)
            total += size
        found += _as_pieces(group, total)

    def _size(self, statement: Statement) -> int | None:
        if statement not in self._sizes:
            self._sizes[statement] = self._measure(statement)
        return self._sizes[statement]

    def _measure(self, statement: Statement) -> int | None:
        if isinstance(statement, Call):
            is_native = all(map(_is_plain, statement.inputs)) and self._has_instructions(statement)
            return 1 if is_native else None
        if isinstance(statement, Move):
            return 0 if _is_plain(statement.source) else None
        if isinstance(statement, Branch):
            inside = [each for side in statement.sides.values() for each in side.statements]
            size = self._measure_all(inside)
            if any(isinstance(each, Repeat) or each in self._with_loops for each in inside):
                self._with_loops.add(statement)
            return size
        assert isinstance(statement, Repeat)
        if not all(_is_plain(carried.first) and _is_plain(following(carried)) for carried in statement.loop.carried):
            return None
        return self._measure_all([*statement.head.statements, *statement.body.statements])

    def _measure_all(self, statements: Iterable[Statement]) -> int | None:
        sizes = [self._size(statement) for statement in statements]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _has_instructions(self, call: Call) -> bool:
        if call.is_foreign or call.is_awaited or call.returns_tuple:
            return False
        kinds = _types_of(call)
        key = (id(call.kernel), kinds)
        if key not in self._known:
            self._known[key] = kinds is not None and _native_ops.is_native(call.kernel, kinds)
        return self._known[key]


def _may_have_native_arrays(repeat: Repeat) -> bool:
    """Whether *repeat* is no more than calls that depend on nothing but their inputs; which are native, shows later.

    Somebody may mind each call of a kernel that ``is_watched``.
    """
    statements = [*repeat.head.statements, *repeat.body.statements]
    calls = [each for each in statements if isinstance(each, Call)]
    if not len(calls) <= MAX_ARRAY_NODES or not all(isinstance(each, (Call, Move)) for each in statements):
        return False
    return not any(
        call.is_foreign
        or call.is_awaited
        or call.node.op_def.is_stateful
        or call.node.op_def.takes_references
        or getattr(call.kernel, "is_watched", False)
        for call in calls
    )


def _as_pieces(group: list[Statement], size: int) -> list[Statement]:
    return [Piece(Block(group))] if size >= MIN_NODES else group


def _is_plain(value: Value) -> bool:
    """Whether *value* may be a scalar that native code knows."""
    if value.constant is NOTHING:
        unit = value.unit
        return not isinstance(unit, Call) or not any(
            output is value and tensor.shape.rank
            for output, tensor in zip(unit.outputs, unit.node.outputs, strict=False)
        )
    try:
        constant_operand(value.constant)
    except NotNativeError:
        return False
    return True


def _types_of(call: Call) -> tuple[ScalarType, ...] | None:
    """The types of the inputs, where all may be scalars that native code knows, as the output may."""
    inputs, outputs = call.node.inputs, call.node.outputs
    if len(inputs) != len(call.inputs):  # it asks for the side of a Switch, or adds some of many summands
        inputs, outputs = (inputs[-1],) * len(call.inputs), []
    if any(tensor.shape.rank for tensor in (*inputs, *outputs)):
        return None
    kinds = tuple(_TYPES.get(tensor.dtype) for tensor in inputs)
    return None if None in kinds else kinds  # type: ignore[return-value]


def _num_sides(pred: Value) -> int:
    if not pred.is_number:
        return 2
    assert isinstance(pred.unit, Call)
    sides: int = pred.unit.kernel.args[0]  # type: ignore[attr-defined]  # of choose_side
    return sides


class _Traffic:
    """What statements take, and what they make, in order."""

    def __init__(self) -> None:
        self.takes: dict[Value, None] = {}
        self.makes: dict[Value, None] = {}
        self.num_calls = 0
        self._count = 0

    def add(self, block: Block) -> Stage[set[Value]]:
        """Take note of *block*; what is sure to have been made in it."""
        sure: set[Value] = set()
        for statement in block.statements:
            self._count += 1
            if not self._count % FEW:
                yield
            if isinstance(statement, Call):
                self.num_calls += 1
                self._take(statement.inputs)
                sure.update(statement.outputs)
            elif isinstance(statement, Move):
                self._take([statement.source])
                sure.add(statement.target)
            elif isinstance(statement, Branch):
                self._take([statement.pred])
                sides: list[set[Value]] = []
                for side in statement.sides.values():
                    made = yield from self.add(side)
                    sides.append(made)
                if len(sides) == _num_sides(statement.pred):
                    sure |= set.intersection(*sides)
            elif isinstance(statement, Repeat):
                self._take([carried.first for carried in statement.loop.carried])
                yield from self.add_rounds(statement)
        self.makes.update(dict.fromkeys(sure))
        return sure

    def add_rounds(self, repeat: Repeat) -> Stage[None]:
        loop = repeat.loop
        assert loop.condition is not None
        yield from self.add(repeat.head)
        self._take([loop.condition])
        yield from self.add(repeat.body)
        self._take([following(carried) for carried in loop.carried])

    def _take(self, values: Iterable[Value]) -> None:
        self.takes.update(dict.fromkeys(value for value in values if value.constant is NOTHING))


def part_of(statement: Piece | Repeat, at: Lifetimes, rounds: int, replace: Replace) -> Stage[NativePart | None]:
    """The part that *statement* is, of a loop in so many *rounds*, as a stage.

    None if it does not pay, or may leave unmade what it gives.
    """
    traffic = _Traffic()
    if isinstance(statement, Repeat):
        yield from traffic.add_rounds(statement)
        carried = tuple(carried.value for carried in statement.loop.carried)
        start = at.start[statement]
        around = tuple(value for value in traffic.takes if at.made[value] < start)
        work = rounds * traffic.num_calls * (_ARRAY_CALL if statement.has_arrays else 1)
        return NativePart(statement, (*carried, *around), carried, work, replace)
    sure = yield from traffic.add(statement.block)
    start, end = at.start[statement.block.statements[0]], at.end[statement.block.statements[-1]]
    takes = tuple(value for value in traffic.takes if at.made[value] < start)
    gives = tuple(value for value in traffic.makes if at.last[value] > end)
    pays = traffic.num_calls >= MIN_NODES + CROSSING * (len(takes) + len(gives))
    if not gives or not pays or not sure.issuperset(gives):
        return None
    return NativePart(statement, takes, gives, traffic.num_calls, replace)


def types_of(values: Iterable[object]) -> tuple[ScalarType, ...] | None:
    """The types of *values*, if native code knows all of them."""
    kinds = tuple(map(type, values))
    return kinds if all(kind in LLVM_NAMES for kind in kinds) else None
