"""The words of native code: types of scalars, what stands for them in the text, and the text of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

ScalarType: TypeAlias = type[np.generic]

F4: Final[ScalarType] = np.float32
F8: Final[ScalarType] = np.float64
I4: Final[ScalarType] = np.int32
I8: Final[ScalarType] = np.int64
B1: Final[ScalarType] = np.bool_
LLVM_NAMES: Final[dict[ScalarType, str]] = {F8: "double", I8: "i64", F4: "float", I4: "i32", B1: "i1"}
FLOATS: Final[frozenset[ScalarType]] = frozenset((F4, F8))
INTEGERS: Final[frozenset[ScalarType]] = frozenset((I4, I8))
BITS: Final[dict[ScalarType, int]] = {F4: 32, F8: 64, I4: 32, I8: 64}


class NotNativeError(Exception):
    """There are no instructions for this."""


class Operand(NamedTuple):
    """A scalar in native code: its type, and what stands for it in the text."""

    type: ScalarType
    text: str


class Emitter:
    """Lines of one function, block by block.

    Attributes:
        lines: what has been written; block: the label of the block that is being written.
        cost: about how many cheap instructions there are.
        takes_any_nan: whether a NaN may have other bits than the kernels give it.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block: str = "entry"
        self.cost: int = 0
        self.takes_any_nan: bool = False
        self._num_names = 0
        self._globals: dict[str, Operand] = {}

    def name(self, kind: str = "x") -> str:
        self._num_names += 1
        return f"{kind}{self._num_names}"

    def value(self, text: str) -> str:
        """The name of what the instruction *text* gives."""
        name = f"%{self.name()}"
        self.lines.append(f" {name} = {text}")
        return name

    def constant(self, value: object) -> Operand:
        """What stands for *value*; NotNativeError if nothing does.

        A float is hidden: what LLVM computes itself may have another NaN than the processor gives.
        """
        operand = constant_operand(value)
        return self._hidden(operand) if operand.type in FLOATS else operand

    def zero(self, kind: ScalarType) -> str:
        """A zero of which LLVM does not know that it is one."""
        return self._hidden(Operand(kind, f"@{LLVM_NAMES[kind]}.0")).text

    def _hidden(self, operand: Operand) -> Operand:
        self._globals[operand.text] = operand
        return Operand(operand.type, _loaded(operand))

    @property
    def globals(self) -> list[str]:
        """The lines that define what is hidden."""
        return [f"{operand.text} = global {_llvm_constant(operand)}" for operand in self._globals.values()]

    @property
    def loads(self) -> list[str]:
        """The lines that load it, where the function is entered."""
        return [
            f" {_loaded(operand)} = load {LLVM_NAMES[operand.type]}, ptr {operand.text}"
            for operand in self._globals.values()
        ]

    def emit(self, kind: ScalarType, text: str, cost: int = 1) -> Operand:
        self.cost += cost
        return Operand(kind, self.value(text))

    def begin(self, label: str) -> None:
        """Begin the block *label*."""
        self.lines.append(f"{label}:")
        self.block = label

    def bail_if(self, condition: str) -> None:
        """Leave the rest to Python if *condition* holds."""
        label = self.name("ok")
        self.lines.append(f" br i1 {condition}, label %bail, label %{label}, !prof !0")
        self.begin(label)

    def bail_unless(self, condition: str) -> None:
        """Leave the rest to Python unless *condition* holds."""
        self.bail_if(self.value(f"xor i1 {condition}, true"))


Emit: TypeAlias = Callable[[Emitter, Sequence[Operand]], Operand]


def _loaded(operand: Operand) -> str:
    return f"%c.{operand.text[1:]}"


def _llvm_constant(operand: Operand) -> str:
    """What is hidden by the bits of its name; a float as LLVM writes it: always those of a double."""
    bits = int(operand.text.rpartition(".")[2], 16)
    if operand.type not in FLOATS:
        return f"{LLVM_NAMES[operand.type]} {bits}"
    if operand.type is F4:
        bits = int(np.uint32(bits).view(F4).astype(F8).view(np.uint64))
    return f"{LLVM_NAMES[operand.type]} 0x{bits:016X}"


def in_memory(kind: ScalarType) -> str:
    """The type of a *kind* in memory."""
    return "i8" if kind is B1 else LLVM_NAMES[kind]


def load(to: Emitter, kind: ScalarType, pointer: str) -> Operand:
    """The *kind* at *pointer*."""
    loaded = to.value(f"load {in_memory(kind)}, ptr {pointer}")
    return Operand(kind, to.value(f"trunc i8 {loaded} to i1") if kind is B1 else loaded)


def store(to: Emitter, operand: Operand, pointer: str) -> None:
    """Store *operand* at *pointer*."""
    text = to.value(f"zext i1 {operand.text} to i8") if operand.type is B1 else operand.text
    to.lines.append(f" store {in_memory(operand.type)} {text}, ptr {pointer}")


def is_usual(to: Emitter, operand: Operand) -> str:
    """The condition that a float *operand* is a number, or the NaN that invalid operations give."""
    llvm, bits = LLVM_NAMES[operand.type], f"i{BITS[operand.type]}"
    is_number = to.value(f"fcmp ord {llvm} {operand.text}, {operand.text}")
    as_bits = to.value(f"bitcast {llvm} {operand.text} to {bits}")
    common = nan_of(operand.type)
    is_common = to.value(f"icmp eq {bits} {as_bits}, {int(common.view(f'i{common.itemsize}'))}")
    return to.value(f"or i1 {is_number}, {is_common}")


def constant_operand(value: Any) -> Operand:
    """*value* as it stands in the text; a float is a global, of which LLVM knows nothing, by the name of its bits."""
    kind = type(value)
    if kind not in LLVM_NAMES or (kind in FLOATS and value != value and value.tobytes() != nan_of(kind).tobytes()):
        raise NotNativeError
    if kind in FLOATS:
        return Operand(kind, f"@{LLVM_NAMES[kind]}.{int(value.view(f'u{value.itemsize}')):x}")
    return Operand(kind, str(bool(value)).lower() if kind is B1 else str(int(value)))


def nan_of(kind: ScalarType) -> Any:
    """The NaN that invalid operations give."""
    infinity: Any = np.dtype(kind).type("inf")
    with np.errstate(all="ignore"):
        return infinity - infinity
