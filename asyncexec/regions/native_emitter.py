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
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block: str = "entry"
        self.cost: int = 0
        self._num_names = 0

    def name(self, kind: str = "x") -> str:
        self._num_names += 1
        return f"{kind}{self._num_names}"

    def value(self, text: str) -> str:
        """The name of what the instruction *text* gives."""
        name = f"%{self.name()}"
        self.lines.append(f" {name} = {text}")
        return name

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
