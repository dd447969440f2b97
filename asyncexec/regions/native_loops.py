"""A loop with small arrays -> LLVM: the text of one function, which does rounds of it.

The function is as that of a loop of scalars (``native_code.py``): it begins and ends between two rounds, where it bails
out the round is forgotten, and the Python code goes on.  Arrays that a round changes have a place, where the next round
finds them; they are written when all else of the round has been done.

A variable that is no array, such as a TensorList, goes from round to round by one call, and nobody else looks at it.
That call is *put off*: native code writes down what it would be called with, and Python calls it afterwards.

What numpy's loops give depends on more than numbers: on how far apart they are, and whether two arrays are one.  So
arrays that come from outside, and from one round to the next, lie as those that the text was written for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.array_address import address_of
from asyncexec.framework.kernel import Kernel
from asyncexec.regions.lifetimes import following
from asyncexec.regions.native_array_text import MEMCPY, memcpy
from asyncexec.regions.native_arrays import Array, ArrayEmitter, NativeArray, pointer
from asyncexec.regions.native_code import AGAIN, DONE, REFUSED, WEIGHTS, count_uses
from asyncexec.regions.native_emitter import B1, FLOATS, LLVM_NAMES, NotNativeError, Operand, is_usual, load, store
from asyncexec.regions.native_ops import INTRINSICS, cast_to, emit_of
from asyncexec.regions.native_parts import NativePart
from asyncexec.regions.program import Call, Carried, Move, Value
from asyncexec.regions.schedule import Block, Repeat

MAX_ROUNDS: Final = 16  # in one go: so many rounds of what is put off are written down
FUEL: Final = 200_000  # cheap instructions that may be done in one go: a tenth of a millisecond
_MAX_RANK: Final = 8
_END: Final = (
    " %next_round = add i64 %round, 1",
    " %goes_on = icmp ult i64 %next_round, %limit",
    " br i1 %goes_on, label %loop, label %suspend",
)
_MAX_COST: Final = 5 * FUEL  # of a round: Python code gives others a turn within it


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """How native code is handed a value.

    Attributes:
        place: where it is copied to, an array of its shape; None if it is not.
        same: the constant that it must be, where native code has that; else None.
        kind: the type that it must be, where native code knows nothing of it; else None.
    """

    place: Array | None = None
    same: Any = None
    kind: type | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Notes:
    """An input of a call that is put off, in all *rounds*; in the last one, it is what the variable *becomes*."""

    rounds: Array
    becomes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PutOff:
    """A call that is put off.

    Attributes:
        variable: which one it changes.
        inputs: Notes; None for the variable itself; a constant's Slot; and the number of what is taken, and does not
            change.
    """

    kernel: Kernel
    variable: int
    inputs: tuple[Notes | int | Slot | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LoopText:
    """The text of a module with a function without arguments called ``native``.

    Attributes:
        takes: how it is handed each value; the first of them are the variables of the loop, which it gives.
        num_rounds: where the number of rounds is; limit: where the most is that it may do.
        constants: the arrays that it reads and is not handed.
        put_off: the calls that are put off; products: multiplications of the largest product of matrices.
        kept: the arrays that the text has the addresses of.
    """

    text: str
    takes: tuple[Slot, ...]
    num_rounds: Array
    limit: Array
    constants: tuple[Array, ...]
    put_off: tuple[PutOff, ...]
    products: int
    kept: tuple[Array, ...]


def write_loop_of_arrays(part: NativePart, values: Sequence[Any], pause: Callable[[], object]) -> LoopText:
    """The function that does rounds of *part*, called with *values* or others like them; NotNativeError if none does.

    It calls *pause* every few microseconds.
    """
    return _Writer(part, values, pause).write()


class _Writer:
    def __init__(self, part: NativePart, values: Sequence[Any], pause: Callable[[], object]) -> None:
        assert isinstance(part.statement, Repeat)
        self._repeat: Repeat = part.statement
        self._values = dict(zip(part.takes, values, strict=True))
        self._pause = pause
        self._to = ArrayEmitter()
        self._known: dict[Value, Any] = {}  # Operands, NativeArrays, and what is constant
        self._put_off: dict[Call, int] = {}  # with the number of the variable
        self._written_down: list[PutOff] = []
        self._constants: dict[int, Array] = {}

    def write(self) -> LoopText:
        to, repeat = self._to, self._repeat
        carried = {each.value: each for each in repeat.loop.carried}
        slots = tuple([self._take(value, carried.get(value)) for value in self._values])
        self._find_put_off()
        changing = [each for each in carried.values() if following(each) is not each.value]
        scalars = [each for each in changing if isinstance(self._known.get(each.value), Operand)]
        firsts: list[Operand] = [self._known[each.value] for each in scalars]
        for number, each in enumerate(scalars):
            self._known[each.value] = Operand(firsts[number].type, f"%variable{number}")
        entry, entry_end, to.lines = to.lines, to.block, []
        to.block = "loop"
        self._block(repeat.head)
        assert repeat.loop.condition is not None
        condition = cast_to(B1, to, [self._operand(repeat.loop.condition)])
        to.lines.append(f" br i1 {condition.text}, label %body, label %stop")
        to.begin("body")
        self._block(repeat.body)
        after = [self._operand(following(each)) for each in scalars]
        self._assign([each for each in changing if isinstance(self._known.get(each.value), NativeArray)])
        rounds, most = (to.keep(np.zeros((), np.int64)) for _ in range(2))
        places = [slots[list(self._values).index(each.value)].place for each in scalars]
        if to.cost > _MAX_COST:
            raise NotNativeError
        most[...] = max(1, min(MAX_ROUNDS if self._put_off else FUEL, FUEL // max(1, to.cost)))
        body, to.lines = [*to.lines, *_END], []
        phis = [f" %round = phi i64 [ 0, %{entry_end} ], [ %next_round, %{to.block} ]"]
        for first, last, each in zip(firsts, after, scalars, strict=True):
            if first.type is not last.type:
                raise NotNativeError
            ends = f"[ {first.text}, %{entry_end} ], [ {last.text}, %{to.block} ]"
            phis.append(f" {self._known[each.value].text} = phi {LLVM_NAMES[first.type]} {ends}")
        limit = f" %limit = load i64, ptr {pointer(most)}"
        lines = ["entry:", limit, *to.loads, *entry, " br label %loop", "loop:", *phis, *body]
        lines += ["suspend:", *self._leave(places, after, "%next_round", rounds, AGAIN), "bail:", " br label %stop"]
        starts = [self._known[each.value] for each in scalars]
        lines += ["stop:", *self._leave(places, starts, "%round", rounds, DONE), "refuse:", f" ret i32 {REFUSED}"]
        text = "\n".join([*to.helpers, *to.globals, "define i32 @native() {", *lines, "}", INTRINSICS, WEIGHTS, ""])
        constants, put_off, kept = tuple(self._constants.values()), tuple(self._written_down), tuple(to.kept)
        return LoopText(text, slots, rounds, most, constants, put_off, to.most_products, kept)

    def _leave(
        self, places: Sequence[Array | None], operands: Sequence[Operand], count: str, rounds: Array, status: int
    ) -> list[str]:
        """The lines that leave the function, the scalar variables being *operands*."""
        to = self._to
        for place, operand in zip(places, operands, strict=True):
            assert place is not None  # they are scalars
            store(to, operand, pointer(place))
        lines, to.lines = to.lines, []
        return [*lines, f" store i64 {count}, ptr {pointer(rounds)}", f" ret i32 {status}"]

    def _take(self, value: Value, carried: Carried | None) -> Slot:
        to, given = self._to, self._values[value]
        if carried is not None and following(carried) is value and type(carried.first.constant) is np.ndarray:
            self._known[value] = carried.first.constant
            self._note_constant(carried.first.constant)
            return Slot(same=carried.first.constant)
        is_array = isinstance(given, np.ndarray)
        kind = given.dtype.type if is_array else type(given)
        if kind not in LLVM_NAMES:
            return Slot(kind=type(given))
        place = to.keep(np.zeros(np.shape(given), kind))
        if isinstance(given, np.ndarray):
            self._known[value] = NativeArray(to, place)
            return Slot(place)
        self._known[value] = operand = load(to, kind, pointer(place))
        if kind in FLOATS:
            label = to.name("ok")
            to.lines.append(f" br i1 {is_usual(to, operand)}, label %{label}, label %refuse")
            to.begin(label)
        return Slot(place)

    def _find_put_off(self) -> None:
        """Find the calls that go from one variable to the same of the next round, and that nobody else minds."""
        uses: Counter[Value] = Counter()
        count_uses([self._repeat], uses)
        for number, carried in enumerate(self._repeat.loop.carried):
            value, after = carried.value, following(carried)
            if value in self._known or after is value:
                continue
            call = after.unit
            is_alone = uses[value] == uses[after] == 1
            if not is_alone or call not in self._repeat.body.statements or not isinstance(call, Call):
                raise NotNativeError
            if value not in call.inputs or call.outputs != [after] or call.returns_tuple:
                raise NotNativeError
            if not all(tensor.dtype.is_opaque for tensor in call.node.outputs):  # nobody knows how long others take
                raise NotNativeError
            self._put_off[call] = number

    # What a round does.

    def _find(self, value: Value) -> Any:
        if value.constant is not NOTHING:
            if isinstance(value.constant, np.ndarray):
                self._note_constant(value.constant)
            return value.constant
        if value not in self._known:
            raise NotNativeError
        return self._known[value]

    def _note_constant(self, array: Array) -> None:
        self._constants[id(array)] = array

    def _operand(self, value: Value) -> Operand:
        found = self._find(value)
        return found if isinstance(found, Operand) else self._to.constant(found)

    def _block(self, block: Block) -> None:
        for statement in block.statements:
            self._pause()
            if isinstance(statement, Move):
                self._known[statement.target] = self._find(statement.source)
            elif not isinstance(statement, Call):
                raise NotNativeError
            elif statement in self._put_off:
                self._write_down(statement)
            else:
                self._call(statement)

    def _call(self, call: Call) -> None:
        inputs = [self._find(value) for value in call.inputs]
        emit = emit_of(call.kernel)
        if any(isinstance(each, Operand) for each in inputs) and not any(map(_is_array, inputs)):
            if emit is None:  # numpy's scalars may do other than its loops
                raise NotNativeError
            (output,) = call.outputs
            self._known[output] = emit(self._to, [self._operand(value) for value in call.inputs])
            return
        is_known = not any(isinstance(each, (Operand, NativeArray)) for each in inputs)
        given = inputs if is_known else [self._stand_in(each) for each in inputs]
        try:
            result = getattr(call.kernel, "if_usual", call.kernel)(*given)
        except Exception as error:  # it asks for what only arrays have, or would fail
            raise NotNativeError from error
        results = result if call.returns_tuple else [result]
        for output, each in zip(call.outputs, results, strict=True):
            self._known[output] = self._made(each)

    def _stand_in(self, found: Any) -> Any:
        """What a kernel is called with; it sees the numbers that may be a shape or axes."""
        if isinstance(found, Operand):
            return self._to.number(found)
        if isinstance(found, np.ndarray) and (found.dtype.kind == "f" or found.size > _MAX_RANK):
            return NativeArray(self._to, self._to.hold(found))
        return found

    def _made(self, result: Any) -> Any:
        """What is known of an output."""
        to = self._to
        if isinstance(result, (np.generic, np.ndarray)):  # it follows from shapes alone
            return result
        if not isinstance(result, NativeArray):
            raise NotNativeError
        if result.ndim:
            return result
        operand = to.operand(result)
        if operand.type in FLOATS:
            to.bail_unless(is_usual(to, operand))
        return operand

    def _write_down(self, call: Call) -> None:
        """Note what *call* would be called with."""
        number = self._put_off[call]
        carried, takes = self._repeat.loop.carried, list(self._values)
        changing = {each.value for each in carried if following(each) is not each.value}
        becomes = {following(each): place for place, each in enumerate(carried)}
        inputs: list[Notes | int | Slot | None] = []
        for value in call.inputs:
            if value is carried[number].value:
                inputs.append(None)
            elif value in self._values and value not in changing:  # the very object
                inputs.append(takes.index(value))
            elif value.constant is not NOTHING or value in self._known:
                inputs.append(self._noted(self._find(value), becomes.get(value)))
            else:
                raise NotNativeError
        self._written_down.append(PutOff(call.kernel, number, tuple(inputs)))

    def _noted(self, found: Any, becomes: int | None) -> Notes | Slot:
        to = self._to
        if isinstance(found, Operand):
            notes = to.keep(np.zeros(MAX_ROUNDS, found.type))
            here = to.value(f"getelementptr i8, ptr {pointer(notes)}, i64 {self._offset(notes)}")
            store(to, found, here)
            return Notes(notes)
        if not isinstance(found, NativeArray):
            return Slot(same=found)
        source = found.array
        if not source.flags.c_contiguous:
            source = to.keep(np.zeros(source.shape, source.dtype))
            to.copy(found.array, source)
        notes = to.keep(np.zeros((MAX_ROUNDS, *source.shape), source.dtype))
        here = to.value(f"getelementptr i8, ptr {pointer(notes)}, i64 {self._offset(notes)}")
        to.helper(MEMCPY)
        to.lines.append(memcpy(here, pointer(source), source.nbytes))
        return Notes(notes, becomes)

    def _offset(self, notes: Array) -> str:
        return self._to.value(f"mul i64 %round, {notes.nbytes // MAX_ROUNDS}")

    def _assign(self, arrays: Sequence[Carried]) -> None:
        """Give variables what they are in the next round, all at once."""
        to = self._to
        places: list[Array] = [self._known[each.value].array for each in arrays]
        sources: list[Array] = []
        for place, each in zip(places, arrays, strict=True):
            found = self._find(following(each))
            if not isinstance(found, (NativeArray, np.ndarray)):
                raise NotNativeError
            sources.append(found.array if isinstance(found, NativeArray) else to.hold(found))
            if not is_laid_out_like(sources[-1], place):
                raise NotNativeError
        others = [*self._staying(places), *self._constants.values()]
        for number, source in enumerate(sources):
            if any(np.may_share_memory(source, other) for other in (*sources[:number], *others)):
                raise NotNativeError  # numpy looks at whether two arrays are one
        for number, source in enumerate(sources):
            if any(np.may_share_memory(source, place) for place in places):
                sources[number] = to.keep(np.zeros(source.shape, source.dtype))
                to.copy(source, sources[number])
        for source, place in zip(sources, places, strict=True):
            to.copy(source, place)

    def _staying(self, places: Sequence[Array]) -> list[Array]:
        """The arrays from outside that are there in all rounds; *places* are those of the others."""
        known = (self._known.get(value) for value in self._values)
        arrays = [each.array if isinstance(each, NativeArray) else each for each in known]
        return [each for each in arrays if isinstance(each, np.ndarray) and not any(each is one for one in places)]


def is_laid_out_like(array: Array, place: Array) -> bool:
    """Whether *array* is of the dtype and the shape of *place*, and its numbers are as far apart, and aligned."""
    is_like = (array.shape, array.dtype, array.strides) == (place.shape, place.dtype, place.strides)
    return is_like and array.flags.aligned


def ranges_of(arrays: Iterable[Array]) -> list[tuple[int, int]]:
    """Where each of *arrays*, which have no gaps, begins and ends."""
    return [(address_of(each), address_of(each) + each.nbytes) for each in arrays if each.size]


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places in ranges that do not overlap."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def overlap(ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether two of *ranges* do."""
    return any(end > after for (_, end), (after, _) in pairwise(sorted(ranges)))


def _is_array(found: Any) -> bool:
    return isinstance(found, (NativeArray, np.ndarray))
