"""Values in the text form of a graph (:mod:`asyncexec.graph.graph_text`): how they are read and written.

A value is a word (``float32``, ``true``, the name of a function), a number, a text in quotes, or a list of values in
brackets; ``?`` is a size, or a rank, that is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype

MAX_DEPTH: Final = 64
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[\[\],=()@])|(?P<word>[^\s\[\],=()@'\"]+))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_BOOLS: Final = {"true": True, "false": False, "True": True, "False": False}
_FLOATS: Final = frozenset({"inf", "-inf", "nan"})


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word or number."""

    text: str


Literal: TypeAlias = "Word | bytes | list[Literal]"


class Scanner:
    """Reads a line token by token; every error shows the line."""

    def __init__(self, line: str) -> None:
        self.line = line
        self._tokens = self._split(line)
        self._position = 0

    def _split(self, line: str) -> list[str]:
        tokens, position = [], 0
        while line[position:].strip():
            match = _TOKEN.match(line, position)
            if match is None:
                raise self.error(f"{line[position : position + 20]!r} cannot be read")
            tokens.append(match[0].strip())
            position = match.end()
        return tokens

    def error(self, problem: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{problem} in the line {self.line.strip()[:200]!r}")

    def peek(self, ahead: int = 0) -> str:
        """A token to come; ``""`` past the end."""
        at = self._position + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._position += 1
        return token

    def take(self, mark: str) -> bool:
        """Whether *mark* comes next; it is read then."""
        if self.peek() != mark:
            return False
        self._position += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.error(f"{mark!r} is missing before {self.peek()!r}")

    def literal(self, depth: int = 0) -> Literal:
        """The value that comes next."""
        text = self.next()
        if text == "[":
            if depth >= MAX_DEPTH:
                raise self.error(f"lists are nested more than {MAX_DEPTH} deep")
            items: list[Literal] = []
            while not self.take("]"):
                items.append(self.literal(depth + 1))
                if self.peek() != "]":
                    self.expect(",")
            return items
        if text[:1] in ("'", '"'):
            return _unquoted(text[1:-1])
        if not text or text in "],=()@":
            raise self.error(f"a value is missing before {text!r}")
        return Word(text)


def _unquoted(text: str) -> bytes:
    return b"".join(_escaped(part) if i % 2 else part.encode() for i, part in enumerate(_ESCAPE.split(text)))


def _escaped(escape: str) -> bytes:
    return bytes([int(escape[1:], 16)]) if len(escape) == 3 else _ESCAPED.get(escape, escape).encode()


def value_of_kind(literal: Literal, kind: str) -> object:
    """The attr value that *literal* means for an attr of *kind*; without a kind, what it looks like.

    Raises:
        InvalidArgumentError, ValueError, TypeError: it means none.
    """
    if kind.startswith("list("):
        if not isinstance(literal, list):
            raise ValueError("a list is needed")
        return tuple(value_of_kind(item, kind[5:-1]) for item in literal)
    match kind:
        case "type":
            return as_dtype(_word(literal))
        case "shape":
            return _shape(literal)
        case "tensor":
            return tensor_value(literal, None)[0]
        case "func":
            return NameAttrList(_word(literal))
        case "float":
            return float(_word(literal))
        case "string":
            return literal if isinstance(literal, bytes) else _word(literal).encode()
        case "int" | "bool":
            return _plain(literal)
    if isinstance(literal, list):
        return tuple(value_of_kind(item, "") for item in literal)
    return _plain(literal)


def tensor_value(literal: Literal, dtype: DType | None) -> tuple[object, DType]:
    """The tensor that *literal* spells, and its dtype: by default float32, int32, bool or string."""
    array = np.array(_nested(literal), dtype=object if _is_text(literal) else None)
    if dtype is None:
        dtype = {"f": types.float32, "i": types.int32, "b": types.bool, "O": types.string}[array.dtype.kind]
    return as_value(array.astype(dtype.as_numpy_dtype)), dtype


def written(value: object) -> str:
    """*value* as text that reads back as it."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, TensorShape):
        return "?" if value.dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in value.dims)}]"
    if isinstance(value, NameAttrList):
        return value.name
    if isinstance(value, bytes):
        return "'" + "".join(_quoted(byte) for byte in value) + "'"
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        short = np.float32(value)
        return str(short) if short == value or value != value else repr(float(value))
    if isinstance(value, (list, tuple, np.ndarray)):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, np.generic):
        return written(value.item())
    return repr(value)


def _quoted(byte: int) -> str:
    character = chr(byte)
    if character in "'\\":
        return "\\" + character
    return character if 32 <= byte < 127 else f"\\x{byte:02x}"


def _word(literal: Literal) -> str:
    if not isinstance(literal, Word):
        raise TypeError("a single word is needed")
    return literal.text


def _plain(literal: Literal) -> object:
    if isinstance(literal, bytes):
        return literal
    text = _word(literal)
    if text in _BOOLS:
        return _BOOLS[text]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return as_dtype(text)


def _shape(literal: Literal) -> TensorShape:
    if not isinstance(literal, list):
        if _word(literal) != "?":
            raise ValueError("a shape is ? or a list of sizes")
        return UNKNOWN_SHAPE
    return TensorShape(None if (size := _word(item)) == "?" else int(size) for item in literal)


def _nested(literal: Literal) -> object:
    return [_nested(item) for item in literal] if isinstance(literal, list) else _plain(literal)


def _is_text(literal: Literal) -> bool:
    while isinstance(literal, list) and literal:
        literal = literal[0]
    return isinstance(literal, bytes)
