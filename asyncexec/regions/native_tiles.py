"""A group of elementwise nodes -> LLVM: the text of one function, which does all of them for a range of elements.

It is a loop over the elements.  The loop has no branch, so LLVM makes vectors of it: what would bail out (see
``native_ops.py``) goes on with whatever it has, and the function tells at the end that an element is for Python.
Then nothing of what it has done is good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.regions.native_emitter import (
    B1,
    FLOATS,
    Emitter,
    Operand,
    ScalarType,
    in_memory,
    is_usual,
    load,
    store,
)
from asyncexec.regions.native_ops import INTRINSICS, emit_of
from asyncexec.regions.program import Call, Program, Value
from asyncexec.regions.schedule import Block

MAX_NODES: Final = 256  # of one function: LLVM takes some two milliseconds a node
MAX_POINTERS: Final = 64
EmitAll: TypeAlias = Callable[[Emitter, Sequence[Operand]], Sequence[Operand]]
_WIDE: Final = '"prefer-vector-width"="512"'  # LLVM's own choice is half of that, and slower


class Taken(NamedTuple):
    """An input of a group: its type, and whether it is an array or a scalar."""

    type: ScalarType
    is_array: bool


@dataclass(frozen=True, slots=True, eq=False)
class NativeGroup:
    """What the nodes of a group do, in order; the values that they take from elsewhere, and that others take."""

    calls: tuple[Call, ...]
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TileText:
    """The text of a module with a function ``native``.

    It is called with pointers to the inputs and to the outputs, and with the first of the elements and the one after
    the last.  It returns whether one of them is for Python.

    Attributes:
        gives: the types of the outputs.
    """

    text: str
    gives: tuple[ScalarType, ...]


def native_group(program: Program, block: Block) -> NativeGroup | None:
    """The group that *program* is, of kernels that have instructions; None if it has others, or very many."""
    calls = [each for each in block.statements if isinstance(each, Call) and emit_of(each.kernel) is not None]
    if not len(block.statements) == len(calls) <= MAX_NODES:
        return None
    if len(program.inputs) + len(program.outputs) > MAX_POINTERS:
        return None
    return NativeGroup(tuple(calls), tuple(program.inputs), tuple(program.outputs))


def write_tile(group: NativeGroup, takes: Sequence[Taken], pause: Callable[[], object]) -> TileText:
    """The function that does *group* for inputs of these types; NotNativeError if there is none.

    It calls *pause* every few microseconds.
    """

    def emit(to: Emitter, operands: Sequence[Operand]) -> Sequence[Operand]:
        known = dict(zip(group.takes, operands, strict=True))
        for call in group.calls:
            pause()
            _call(to, call, known)
        return [known[value] for value in group.gives]

    return write_loop(emit, takes)


def write_loop(emit: EmitAll, takes: Sequence[Taken]) -> TileText:
    """The function that does for each element what *emit* writes."""
    to = _Loop()
    known: dict[int, Operand] = {}
    for index, taken in enumerate(takes):
        if not taken.is_array:
            known[index] = _load(to, taken.type, f"%in{index}")
    scalars = to.take()
    for index, taken in enumerate(takes):
        if taken.is_array:
            known[index] = _load(to, taken.type, to.element(taken.type, f"%in{index}"))
    given = emit(to, [known[index] for index in range(len(takes))])
    for index, operand in enumerate(given):
        store(to, operand, to.element(operand.type, f"%out{index}"))
    lines = _function(len(takes), len(given), [*to.loads, *scalars.lines], scalars.is_refused, to.take())
    return TileText("\n".join([*to.globals, *lines, INTRINSICS]), tuple(operand.type for operand in given))


def _load(to: Emitter, kind: ScalarType, pointer: str) -> Operand:
    """The *kind* at *pointer*, if it is for native code: of the NaNs only the one that invalid operations give is."""
    operand = load(to, kind, pointer)
    if kind in FLOATS:
        to.bail_unless(is_usual(to, operand))
    elif kind is B1:  # numpy hands on whatever byte it is
        to.bail_if(to.value(f"icmp ugt i8 {to.value(f'load i8, ptr {pointer}')}, 1"))
    return operand


def _call(to: Emitter, call: Call, known: dict[Value, Operand]) -> None:
    emit = emit_of(call.kernel)
    assert emit is not None  # the call is of a group
    operands = [known[value] if value.constant is NOTHING else to.constant(value.constant) for value in call.inputs]
    (output,) = call.outputs
    known[output] = emit(to, operands)


def _function(num_inputs: int, num_outputs: int, entry: Sequence[str], is_refused: str, body: _Lines) -> list[str]:
    """The function with *body* for one element, %i; *is_refused* if that is known before the loop."""
    inputs = [f"ptr noalias readonly %in{index}" for index in range(num_inputs)]
    outputs = [f"ptr noalias %out{index}" for index in range(num_outputs)]
    return [
        f"define i32 @native({', '.join([*inputs, *outputs, 'i64 %start', 'i64 %end'])}) {_WIDE} {{",
        "entry:",
        *entry,
        " br label %loop",
        "loop:",
        " %i = phi i64 [ %start, %entry ], [ %next, %loop ]",
        f" %before = phi i1 [ {is_refused}, %entry ], [ %after, %loop ]",
        *body.lines,
        f" %after = or i1 %before, {body.is_refused}",
        " %next = add nuw nsw i64 %i, 1",
        " %goes_on = icmp ult i64 %next, %end",
        " br i1 %goes_on, label %loop, label %stop",
        "stop:",
        " %status = zext i1 %after to i32",
        " ret i32 %status",
        "}",
    ]


class _Lines(NamedTuple):
    """Lines without a branch, and the condition that one of them would have bailed out."""

    lines: list[str]
    is_refused: str


class _Loop(Emitter):
    """Lines without a branch: what would bail out is noted."""

    def __init__(self) -> None:
        super().__init__()
        self._is_refused = "false"

    def bail_if(self, condition: str) -> None:
        self._is_refused = self.value(f"or i1 {self._is_refused}, {condition}")

    def take(self) -> _Lines:
        """The lines since this was called last."""
        taken = _Lines(self.lines, self._is_refused)
        self.lines, self._is_refused = [], "false"
        return taken

    def element(self, kind: ScalarType, array: str) -> str:
        """The pointer to the element of *array* that the loop is at."""
        return self.value(f"getelementptr {in_memory(kind)}, ptr {array}, i64 %i")
