"""``pnnx.Expression``: arithmetic as text, such as ``add(@0,mul(@1,2))``.

An expression is a call of a known function, ``@0`` for the first input, a number, a boolean, None, or a list in
brackets.  The parser makes a program for a stack of values, so no nesting is too deep, and no text is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.arithmetic import FUNCTIONS, as_dtype_of_torch, load_erf
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel

_TOKEN: Final = re.compile(
    r"(?P<input>@[0-9]+)"
    r"|(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|nan)\b)"
    r"|(?P<call>[A-Za-z_][A-Za-z0-9_.:]*)\("
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.:]*)"
    r"|(?P<mark>[()\[\],])"
)
_WORDS: Final[dict[str, object]] = {"None": None, "True": True, "False": False}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_LENGTH: Final = 2**20


@dataclass(frozen=True, slots=True)
class Instruction:
    """Puts a value on the stack, or replaces the last *count* of them by one."""

    input: int | None = None
    value: Any = None
    function: Callable[..., Any] | None = None
    count: int = 0


@dataclass(slots=True)
class _Open:
    """A call or a list whose end has not come; *name* is empty for a list."""

    name: str
    start: int
    count: int = 0


class ExpressionParser:
    """Reads one expression for a node of *num_inputs* inputs.

    Raises:
        InvalidArgumentError: the text is no expression; the error tells the position.
    """

    def __init__(self, text: str, num_inputs: int) -> None:
        self._text = text
        self._num_inputs = num_inputs
        self._program: list[Instruction] = []
        self._open: list[_Open] = []
        self._is_value_next = True
        self._at = 0

    def parse(self) -> list[Instruction]:
        """The program, which leaves one value on the stack."""
        text = self._text
        if len(text) > _MAX_LENGTH:
            self._fail(f"it has more than {_MAX_LENGTH} characters")
        self._at = self._skip_blanks(0)
        while self._at < len(text):
            match = _TOKEN.match(text, self._at)
            if match is None:
                self._fail(f"{text[self._at]!r} is not part of an expression")
            self._take(match)
            self._at = self._skip_blanks(match.end())
        if self._open:
            self._fail(f"{self._open[-1].name or 'the list'!r} at {self._open[-1].start} has no end")
        if self._is_value_next:
            self._fail("a value is missing")
        return self._program

    def _skip_blanks(self, at: int) -> int:
        while self._text[at : at + 1].isspace():
            at += 1
        return at

    def _take(self, match: re.Match[str]) -> None:
        text = match[0]
        if text == "," and self._open and not self._is_value_next:
            self._is_value_next = True
        elif text in (")", "]"):
            self._close(text)
        elif not self._is_value_next or text in (",", "("):
            self._fail(f"{text!r} is not expected here")
        elif text == "[":
            self._open.append(_Open("", self._at))
        elif match["input"]:
            self._add(Instruction(input=self._input(text)))
        elif match["number"]:
            self._add(Instruction(value=int(text) if _INTEGER.fullmatch(text) else float(text)))
        elif text in _WORDS:
            self._add(Instruction(value=_WORDS[text]))
        elif match["call"] in FUNCTIONS:
            self._open.append(_Open(match["call"], self._at))
        else:
            self._fail(f"there is no value or function {text[:50]!r}")

    def _add(self, instruction: Instruction) -> None:
        self._program.append(instruction)
        if self._open:
            self._open[-1].count += 1
        self._is_value_next = False

    def _input(self, text: str) -> int:
        if len(text) > 9 or int(text[1:]) >= self._num_inputs:
            self._fail(f"{text[:20]!r} is not among the {self._num_inputs} inputs")
        return int(text[1:])

    def _close(self, text: str) -> None:
        begun = self._open[-1] if self._open else None
        if begun is None or (text == "]") != (not begun.name):
            self._fail(f"{text!r} closes nothing")
        if self._is_value_next and not (text == "]" and begun.count == 0):
            self._fail("a value is missing")
        self._open.pop()
        if not begun.name:
            self._add(Instruction(function=_as_list, count=begun.count))
            return
        function, counts = FUNCTIONS[begun.name]
        if begun.count not in counts:
            self._fail(f"{begun.name!r} at {begun.start} takes {' or '.join(map(str, counts))} values")
        self._add(Instruction(function=function, count=begun.count))

    def _fail(self, message: str) -> NoReturn:
        raise InvalidArgumentError(f"expression {self._text[:200]!r}, position {self._at}: {message}")


def _as_list(*values: object) -> tuple[object, ...]:
    return values


def evaluate(program: Sequence[Instruction], inputs: Sequence[object]) -> object:
    """The value of *program*."""
    stack: list[object] = []
    for each in program:
        if each.function is not None:
            start = len(stack) - each.count
            stack[start:] = [each.function(*stack[start:])]
        elif each.input is not None:
            stack.append(inputs[each.input])
        else:
            stack.append(each.value)
    return stack[0]


@pnnx_kernel("pnnx.Expression")
def _expression(node: PnnxNode) -> Kernel:
    text = node.param("expr")
    if not isinstance(text, str):
        raise node.error("there is no parameter 'expr'")
    try:
        program = ExpressionParser(text, node.num_inputs).parse()
    except InvalidArgumentError as error:
        raise node.error(error.message) from None
    if any(instruction.function is FUNCTIONS["erf"][0] for instruction in program):
        load_erf()  # now, and not in the event loop
    return lambda *inputs: as_dtype_of_torch(evaluate(program, inputs), inputs)
