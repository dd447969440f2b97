"""NativePart -> LLVM: the text of one function, which takes and gives its values in a piece of memory.

Code is structured, so every value has one name, and where sides of a branch meet, a ``select`` or a ``phi`` makes a new
one.  A side that has little to do and cannot bail out is done whether it is taken or not.

A native loop has *fuel*, which its rounds and those of loops in it use up, so it comes back within some tenths of a
millisecond.  If it runs out between two rounds, the function is called again and goes on; if it runs out in a loop
inside, what has been done of the round is forgotten, and if that was the first round, it is left to the Python code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.regions.lifetimes import following
from asyncexec.regions.native_emitter import (
    B1,
    FLOATS,
    I8,
    LLVM_NAMES,
    Emitter,
    NotNativeError,
    Operand,
    ScalarType,
    in_memory,
    is_usual,
    load,
    store,
)
from asyncexec.regions.native_ops import INTRINSICS, cast_to, emit_of
from asyncexec.regions.native_parts import NativePart
from asyncexec.regions.program import Call, Move, Value
from asyncexec.regions.schedule import Block, Branch, Repeat

FUEL: Final = 100_000  # cheap instructions that a loop may do at a stretch
DONE: Final = 0  # what the function returns: it has done all, of a loop what is not the Python code's
AGAIN: Final = 1  # it has done rounds of a loop, and is to be called again
REFUSED: Final = 2  # it has done nothing
WEIGHTS: Final = '!0 = !{!"branch_weights", i32 1, i32 100000}'  # of what bails out, and what does not
_CHEAP: Final = 16  # instructions that a processor does sooner than it finds that it has guessed a branch wrong
_FUEL: Final = Value()  # stands for what is left of it


@dataclass(frozen=True, slots=True, eq=False)
class NativeText:
    """The text of a function without arguments called ``native``.

    Attributes:
        text: the module, but for where the memory is, which has so many *places* of each type.
        takes, gives: the types and places of the values; num_rounds: the place of the number of rounds, an int64.
    """

    text: str
    places: Mapping[ScalarType, int]
    takes: tuple[tuple[ScalarType, int], ...]
    gives: tuple[tuple[ScalarType, int], ...]
    num_rounds: int

    def module(self, addresses: Mapping[ScalarType, int]) -> str:
        """The module, for memory that has the places of each type at these *addresses*."""
        text = self.text
        for kind, address in addresses.items():
            text = text.replace(_memory(kind), f"inttoptr (i64 {address} to ptr)")
        return text


def write_native(part: NativePart, types: Sequence[ScalarType], pause: Callable[[], object]) -> NativeText:
    """The function that does *part* for inputs of these *types*; NotNativeError if there is none.

    It calls *pause* every few microseconds.
    """
    return _Writer(part, types, pause).write()


class _Writer:
    def __init__(self, part: NativePart, types: Sequence[ScalarType], pause: Callable[[], object]) -> None:
        self._part = part
        self._pause = pause
        self._types = dict(zip(part.takes, types, strict=True))
        self._to = Emitter()
        self._known: dict[Value, Operand] = {}
        self._uses = Counter(part.gives)
        self._places: Counter[ScalarType] = Counter()
        self._changes: dict[Value, Operand | None] = {}  # what was known before, of what is new since the side began

    def write(self) -> NativeText:
        part, to = self._part, self._to
        takes = [self._take(value) for value in part.takes]
        if isinstance(part.statement, Repeat):
            gives = takes[: len(part.gives)]
            num_rounds = self._new_place(I8)
            count_uses([part.statement], self._uses)
            self._outermost(part.statement, gives, num_rounds)
        else:
            num_rounds = 0
            count_uses(part.statement.block.statements, self._uses)
            self._block(part.statement.block)
            gives = [(self._known[value].type, self._new_place(self._known[value].type)) for value in part.gives]
            self._store(gives, [self._known[value] for value in part.gives])
            to.lines += [f" ret i32 {DONE}", "bail:", f" ret i32 {REFUSED}"]
        return NativeText(self._module(), dict(self._places), tuple(takes), tuple(gives), num_rounds)

    # Memory.

    def _new_place(self, kind: ScalarType) -> int:
        self._places[kind] += 1
        return self._places[kind] - 1

    def _take(self, value: Value) -> tuple[ScalarType, int]:
        """Load an input; a NaN that an addition might or might not hand on is refused."""
        kind, to = self._types[value], self._to
        place = kind, self._new_place(kind)
        self._known[value] = operand = load(to, kind, _pointer(*place))
        if kind in FLOATS:
            is_good = is_usual(to, operand)
            label = to.name("ok")
            to.lines.append(f" br i1 {is_good}, label %{label}, label %refuse")
            to.begin(label)
        return place

    def _store(self, places: Iterable[tuple[ScalarType, int]], operands: Iterable[Operand]) -> None:
        for place, operand in zip(places, operands, strict=True):
            if operand.type is not place[0]:
                raise NotNativeError
            store(self._to, operand, _pointer(*place))

    def _module(self) -> str:
        to = self._to
        body = ["define i32 @native() {", "entry:", *to.loads, *to.lines]
        body += ["refuse:", f" ret i32 {REFUSED}", "}"]
        return "\n".join([*to.globals, *body, INTRINSICS, WEIGHTS, ""])

    # Statements.

    def _operand(self, value: Value) -> Operand:
        if value.constant is NOTHING:
            return self._known[value]
        return self._to.constant(value.constant)

    def _set(self, value: Value, operand: Operand) -> None:
        self._changes.setdefault(value, self._known.get(value))
        self._known[value] = operand

    @contextmanager
    def _side(self) -> Iterator[dict[Value, Operand]]:
        """Forget what is made in the block at its end; but for what it is given, which has that then."""
        around, self._changes = self._changes, {}
        made: dict[Value, Operand] = {}
        yield made
        for value, before in self._changes.items():
            made[value] = self._known[value]
            if before is None:
                del self._known[value]
            else:
                self._known[value] = before
        self._changes = around

    def _block(self, block: Block) -> None:
        for statement in block.statements:
            self._pause()
            if isinstance(statement, Call):
                emit = emit_of(statement.kernel)
                assert emit is not None  # the part was found by it
                (output,) = statement.outputs
                self._set(output, emit(self._to, [self._operand(value) for value in statement.inputs]))
            elif isinstance(statement, Move):
                self._set(statement.target, self._operand(statement.source))
            elif isinstance(statement, Branch):
                self._branch(statement)
            else:
                assert isinstance(statement, Repeat)
                self._repeat(statement)

    def _branch(self, branch: Branch) -> None:
        pred = self._operand(branch.pred)
        if not branch.pred.is_number:
            is_taken = cast_to(B1, self._to, [pred]).text
            self._choose(branch, is_taken, branch.sides.get(1, Block()), branch.sides.get(0, Block()))
            return
        for side, block in branch.sides.items():
            self._choose(branch, self._to.value(f"icmp eq i64 {pred.text}, {side}"), block, Block())

    def _choose(self, branch: Branch, condition: str, taken: Block, other: Block) -> None:
        """*taken* if the *condition* holds, else the *other* one."""
        to = self._to
        start, cost, block = len(to.lines), to.cost, to.block
        ends: list[_End] = []
        for side in (taken, other):
            to.block = label = to.name("side")
            with self._side() as made:
                self._block(side)
            ends.append(_End(label, to.block, to.lines[start:], made))
            del to.lines[start:]
        to.block = block
        is_flat = all(end.first == end.last for end in ends) and to.cost - cost <= _CHEAP
        inside: Counter[Value] = Counter()
        if is_flat:
            to.lines += [line for end in ends for line in end.lines]
        else:
            join = to.name("join")
            to.lines.append(f" br i1 {condition}, label %{ends[0].first}, label %{ends[1].first}")
            for end in ends:
                to.lines += [f"{end.first}:", *end.lines, f" br label %{join}"]
            to.begin(join)
            count_uses([branch], inside)
        for value in dict.fromkeys([value for end in ends for value in end.made]):
            if is_flat or value is _FUEL or self._uses[value] > inside[value]:
                self._meet(value, condition, ends, is_flat=is_flat)

    def _meet(self, value: Value, condition: str, ends: Sequence[_End], *, is_flat: bool) -> None:
        """Give *value* what it has at the end of the side that was taken."""
        found = [end.made.get(value, self._known.get(value)) for end in ends]
        kinds = {operand.type for operand in found if operand is not None}
        if len(kinds) > 1:
            raise NotNativeError
        (kind,) = kinds
        one, two = [_zero(kind) if operand is None else operand.text for operand in found]
        llvm = LLVM_NAMES[kind]
        if is_flat and None in found:  # it is taken only where that side was
            self._set(value, Operand(kind, two if found[0] is None else one))
        elif is_flat:
            self._set(value, Operand(kind, self._to.value(f"select i1 {condition}, {llvm} {one}, {llvm} {two}")))
        else:
            text = f"phi {llvm} [ {one}, %{ends[0].last} ], [ {two}, %{ends[1].last} ]"
            self._set(value, Operand(kind, self._to.value(text)))

    # Loops.

    def _outermost(self, repeat: Repeat, places: Sequence[tuple[ScalarType, int]], num_rounds: int) -> None:
        to = self._to
        rounds = Value()
        self._set(_FUEL, Operand(I8, str(FUEL)))
        self._set(rounds, Operand(I8, "0"))
        variables = [carried.value for carried in repeat.loop.carried]
        head = self._begin_loop([*variables, rounds, _FUEL])
        at_start = [self._known[value] for value in variables]
        count, fuel = self._known[rounds].text, self._known[_FUEL].text
        self._head(repeat, head)
        self._body(repeat, head, "stop")
        after = [self._operand(following(carried)) for carried in repeat.loop.carried]
        done, left = to.value(f"add i64 {count}, 1"), self._known[_FUEL].text
        is_enough = to.value(f"icmp sge i64 {left}, {to.value(f'sub i64 {fuel}, {left}')}")
        self._end_loop(head, [*after, Operand(I8, done), self._known[_FUEL]], is_enough, "suspend")
        to.begin("suspend")
        self._store(places, after)
        to.lines += [f" store i64 {done}, ptr {_pointer(I8, num_rounds)}", f" ret i32 {AGAIN}"]
        to.begin("tired")
        tired = to.value(f"zext i1 {to.value(f'icmp ne i64 {count}, 0')} to i32")
        to.lines += [" br label %stop", "bail:", " br label %stop"]
        to.begin("stop")
        others = f"[ {DONE}, %bail ], [ {DONE}, %{head.decides_in} ]"
        status = to.value(f"phi i32 [ {tired}, %tired ], {others}")
        self._store(places, at_start)
        to.lines += [f" store i64 {count}, ptr {_pointer(I8, num_rounds)}", f" ret i32 {status}"]

    def _repeat(self, repeat: Repeat) -> None:
        """A loop in another."""
        to, loop = self._to, repeat.loop
        firsts = [self._operand(carried.first) for carried in loop.carried]
        variables = [carried.value for carried in loop.carried]
        for variable, first in zip(variables, firsts, strict=True):
            self._set(variable, first)
        head = self._begin_loop([*variables, _FUEL])
        end = to.name("end")
        self._head(repeat, head)
        with self._side():
            self._body(repeat, head, end)
            after = [self._operand(following(carried)) for carried in loop.carried]
            left = self._known[_FUEL]
            has_fuel = to.value(f"icmp sgt i64 {left.text}, 0")
            self._end_loop(head, [*after, left], has_fuel, "tired")
        to.begin(end)

    def _begin_loop(self, variables: Sequence[Value]) -> _Head:
        to = self._to
        label = to.name("loop")
        initial = [self._known[value] for value in variables]
        before = to.block
        to.lines.append(f" br label %{label}")
        to.begin(label)
        head = _Head(label, len(to.lines), to.cost)
        for value, operand in zip(variables, initial, strict=True):
            name = f"%{to.name()}"
            head.phis.append((name, operand, before))
            to.lines.append("")
            self._set(value, Operand(operand.type, name))
        return head

    def _head(self, repeat: Repeat, head: _Head) -> None:
        self._block(repeat.head)
        assert repeat.loop.condition is not None
        condition = cast_to(B1, self._to, [self._operand(repeat.loop.condition)])
        head.condition, head.decides_in = condition.text, self._to.block

    def _body(self, repeat: Repeat, head: _Head, end: str) -> None:
        to, label = self._to, self._to.name("body")
        to.lines.append(f" br i1 {head.condition}, label %{label}, label %{end}")
        to.begin(label)
        self._block(repeat.body)
        left = to.value(f"sub i64 {self._known[_FUEL].text}, {to.cost - head.cost + 1}")
        self._set(_FUEL, Operand(I8, left))

    def _end_loop(self, head: _Head, after: Sequence[Operand], goes_on: str, otherwise: str) -> None:
        to = self._to
        to.lines.append(f" br i1 {goes_on}, label %{head.label}, label %{otherwise}")
        for index, ((name, initial, before), operand) in enumerate(zip(head.phis, after, strict=True)):
            if operand.type is not initial.type:
                raise NotNativeError
            llvm = LLVM_NAMES[operand.type]
            text = f" {name} = phi {llvm} [ {initial.text}, %{before} ], [ {operand.text}, %{to.block} ]"
            to.lines[head.position + index] = text


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """A side of a branch: its first and last block, the lines between them, and what it has made."""

    first: str
    last: str
    lines: list[str]
    made: Mapping[Value, Operand]


@dataclass(slots=True, eq=False)
class _Head:
    """The beginning of a loop.

    Attributes:
        label: of its first block; position: of the lines of its phis; cost: of what comes before.
        phis: their names, what they begin with, and where from.
        condition: what must hold for another round, and the block that decides it.
    """

    label: str
    position: int
    cost: int
    phis: list[tuple[str, Operand, str]] = field(default_factory=list)
    condition: str = ""
    decides_in: str = ""


def _pointer(kind: ScalarType, place: int) -> str:
    return f"getelementptr ({in_memory(kind)}, ptr {_memory(kind)}, i64 {place})"


def _memory(kind: ScalarType) -> str:
    return f"<memory of {LLVM_NAMES[kind]}>"


def _zero(kind: ScalarType) -> str:
    return "false" if kind is B1 else "0.0" if kind in FLOATS else "0"


def count_uses(statements: Iterable[object], uses: Counter[Value]) -> None:
    for statement in statements:
        if isinstance(statement, Call):
            uses.update(statement.inputs)
        elif isinstance(statement, Move):
            uses[statement.source] += 1
        elif isinstance(statement, Branch):
            uses[statement.pred] += 1
            for side in statement.sides.values():
                count_uses(side.statements, uses)
        elif isinstance(statement, Repeat):
            assert statement.loop.condition is not None
            uses.update([statement.loop.condition])
            uses.update([value for each in statement.loop.carried for value in (each.first, following(each))])
            count_uses(statement.head.statements, uses)
            count_uses(statement.body.statements, uses)
