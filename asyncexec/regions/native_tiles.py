"""A group of elementwise nodes -> LLVM: the text of one function, which does all of them for a range of elements.

It is a loop over the elements.  The loop has no branch, so LLVM makes vectors of it: what would bail out (see
``native_ops.py``) goes on with whatever it has, and the function tells at the end that an element is for Python.
Then nothing of what it has done is good.  A function that overwrites its inputs takes any NaN, whose bits may become
others than numpy's.  If there are other elements for Python it goes block by block: a first loop tells whether a block
has one, before a second one writes.
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
    NotNativeError,
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
_BLOCK: Final = 1024  # elements: what a few arrays have of them stays in the first cache
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
    the last.  It returns the one that it has come to, which is the last of these if no element is for Python.  If it
    overwrites, the first of the inputs are the outputs.

    Attributes:
        gives: the types of the outputs.
        overwrites: whether it does; does_all: whether no element is for Python.
    """

    text: str
    gives: tuple[ScalarType, ...]
    overwrites: bool = False
    does_all: bool = False


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
    text = _Text(emit, takes)
    outputs = [f"%out{index}" for index, _ in enumerate(text.gives)]
    lines = text.function("define i64 @native", outputs, writes_to=outputs)
    return TileText("\n".join([*text.globals, *lines, INTRINSICS]), text.gives)


def write_overwriting_loop(emit: EmitAll, takes: Sequence[Taken]) -> TileText:
    """The function that does so, and writes over the first inputs; NotNativeError if these are of other types."""
    text = _Text(emit, takes, takes_any_nan=True)
    if [taken.type for taken in takes[: len(text.gives)] if taken.is_array] != list(text.gives):
        raise NotNativeError
    values = [f"%in{index}" for index, _ in enumerate(text.gives)]
    if text.is_complete:
        lines = text.function("define i64 @native", (), writes_to=values)
    else:
        lines = text.function("define internal i64 @check", ())
        lines += text.function("define internal i64 @write", (), writes_to=values)
        lines += _blocks(len(takes))
    module = "\n".join([*text.globals, *lines, INTRINSICS])
    return TileText(module, text.gives, overwrites=True, does_all=text.is_complete)


class _Text:
    """What *emit* writes for an element of inputs of these types.

    Attributes:
        globals: lines of the module; gives: the types of the outputs.
        is_complete: whether no element is for Python.
    """

    def __init__(self, emit: EmitAll, takes: Sequence[Taken], *, takes_any_nan: bool = False) -> None:
        self._to = to = _Loop()
        to.takes_any_nan = takes_any_nan
        self._num_inputs = len(takes)
        known: dict[int, Operand] = {}
        for index, taken in enumerate(takes):
            if not taken.is_array:
                known[index] = _load(to, taken.type, f"%in{index}")
        self._scalars = to.take()
        for index, taken in enumerate(takes):
            if taken.is_array:
                known[index] = _load(to, taken.type, to.element(taken.type, f"%in{index}"))
        self._given = emit(to, [known[index] for index in range(len(takes))])
        self._body = to.take()
        self.globals: Sequence[str] = to.globals
        self.gives: tuple[ScalarType, ...] = tuple(operand.type for operand in self._given)
        self.is_complete: bool = (self._scalars.is_refused, self._body.is_refused) == ("false", "false")

    def function(self, start: str, outputs: Sequence[str], writes_to: Sequence[str] = ()) -> list[str]:
        """The function that begins with *start*, which has *outputs* beside the inputs."""
        to, entry, body = self._to, self._scalars, self._body
        for pointer, operand in zip(writes_to, self._given if writes_to else (), strict=True):
            store(to, operand, to.element(operand.type, pointer))
        stores = to.take()
        inputs = [f"%in{index}" for index in range(self._num_inputs)]
        pointers = [f"ptr noalias {'' if name in writes_to else 'readonly '}{name}" for name in (*inputs, *outputs)]
        return [
            f"{start}({', '.join([*pointers, 'i64 %start', 'i64 %end'])}) {_WIDE} {{",
            "entry:",
            *to.loads,
            *entry.lines,
            " br label %loop",
            "loop:",
            " %i = phi i64 [ %start, %entry ], [ %next, %loop ]",
            f" %before = phi i1 [ {entry.is_refused}, %entry ], [ %after, %loop ]",
            *body.lines,
            *stores.lines,
            f" %after = or i1 %before, {body.is_refused}",
            " %next = add nuw nsw i64 %i, 1",
            " %goes_on = icmp ult i64 %next, %end",
            " br i1 %goes_on, label %loop, label %stop",
            "stop:",
            " %come_to = select i1 %after, i64 %start, i64 %end",
            " ret i64 %come_to",
            "}",
        ]


def _blocks(num_inputs: int) -> list[str]:
    """The function that writes those blocks of elements that ``check`` has nothing against, up to the first other."""
    takes = ", ".join(f"ptr %in{index}" for index in range(num_inputs))
    return [
        f"define i64 @native({takes}, i64 %start, i64 %end) {{",
        "entry:",
        " br label %block",
        "block:",
        " %i = phi i64 [ %start, %entry ], [ %stop, %write ]",
        f" %next = add i64 %i, {_BLOCK}",
        " %is_last = icmp uge i64 %next, %end",
        " %stop = select i1 %is_last, i64 %end, i64 %next",
        f" %checked = call i64 @check({takes}, i64 %i, i64 %stop)",
        " %is_good = icmp eq i64 %checked, %stop",
        " br i1 %is_good, label %write, label %leave",
        "write:",
        f" call i64 @write({takes}, i64 %i, i64 %stop)",
        " br i1 %is_last, label %leave, label %block",
        "leave:",
        " %come_to = phi i64 [ %i, %block ], [ %end, %write ]",
        " ret i64 %come_to",
        "}",
    ]


def _load(to: Emitter, kind: ScalarType, pointer: str) -> Operand:
    """The *kind* at *pointer*, if it is for native code: of the NaNs perhaps only what invalid operations give is."""
    operand = load(to, kind, pointer)
    if kind in FLOATS and not to.takes_any_nan:
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
