r"""RE2's regular expressions in terms of Python's ``re``.

Both match leftmost-first, so a pattern that both have means the same.  This module reads RE2's syntax
(github.com/google/re2/wiki/Syntax), refuses what RE2 has not (backreferences, lookaround, possessive and stacked
repetitions, counts above 1000), and writes what Python spells otherwise: ``$`` and ``\z``, ``\Q..\E``, named and POSIX
classes, ``\pN``, flags in mid-pattern, ``(?U)``.  Text is decoded as UTF-8; nothing matches bytes that are none.

RE2 takes linear time; Python's ``re`` backtracks, so a hostile pattern such as ``(a*)*b`` can take exponential time.
Scripts (``\p{Greek}``) are not known here.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError

Ranges = list[tuple[int, int]]
_MAX_REPEAT: Final = 1000
_NO_TEXT: Final = (0xD800, 0xDFFF)  # bytes that are no UTF-8 are decoded to these; nothing but \C matches them
_ANY: Final = (r"[^\n\ud800-\udfff]", r"[^\ud800-\udfff]")
_DIGIT: Final[Ranges] = [(48, 57)]
_WORD: Final[Ranges] = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE: Final[Ranges] = [(9, 10), (12, 13), (32, 32)]
_PERL: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": [(48, 57), (65, 90), (97, 122)],
    "alpha": [(65, 90), (97, 122)],
    "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)],
    "digit": _DIGIT,
    "graph": [(33, 126)],
    "lower": [(97, 122)],
    "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)],
    "upper": [(65, 90)],
    "word": _WORD,
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}
_CONTROL: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_COUNT: Final = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}")
_GROUP: Final = re.compile(r"\(\?(?:P?<(\w+)>|([imsU]*(?:-[imsU]+)?)([:)]))", re.ASCII)
_HEX: Final = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_CLASS_NAME: Final = re.compile(r"([pP])(?:\{(\^?)([A-Za-z_&]+)\}|([A-Z]))")
_POSIX_NAME: Final = re.compile(r"\[:(\^?)([a-z]+):\]")


@lru_cache(maxsize=256)
def compile_re2(pattern: bytes) -> re.Pattern[str]:
    """The compiled pattern; InvalidArgumentError when RE2 would not take it."""
    try:
        return re.compile(_Translator(pattern.decode("utf-8")).translate())
    except (re.error, OverflowError, RecursionError, UnicodeDecodeError) as error:
        raise _invalid(pattern.decode("utf-8", "replace"), str(error)) from None


def decode(text: bytes) -> str:
    """Text to match; bytes that are no UTF-8 come back by ``encode``."""
    return text.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes that *text* was decoded from."""
    return text.encode("utf-8", "surrogateescape")


def _invalid(pattern: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Invalid pattern: {pattern[:200]}, error: {why}")


def _complement(ranges: Ranges) -> Ranges:
    result: Ranges = []
    start = 0
    for low, high in sorted([*ranges, _NO_TEXT]):
        if low > start:
            result.append((start, low - 1))
        start = max(start, high + 1)
    return [*result, (start, sys.maxunicode)] if start <= sys.maxunicode else result


@lru_cache(maxsize=64)
def _category(name: str) -> Ranges:
    """The code points of a general category of Unicode, or of all that begin with that letter."""
    if name == "Any":
        return [(0, sys.maxunicode)]
    if name[0] not in "CLMNPSZ" or len(name) > 2:
        raise UnimplementedError(f"Unicode class {name!r} in a regular expression: only general categories are known")
    ranges: Ranges = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name) and not _NO_TEXT[0] <= code <= _NO_TEXT[1]:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return ranges


def _written(ranges: Ranges) -> str:
    if not ranges:
        return r"[^\x00-\U0010ffff]"
    return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]"


class _Level:
    """One open group: the flags in force, and the flag groups opened in mid-pattern that end with it."""

    __slots__ = ("flags", "opened")

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags
        self.opened: list[str] = []


class _Translator:
    """Reads RE2's pattern from left to right and writes Python's."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._out: list[str] = []
        self._levels = [_Level(frozenset())]
        self._can_repeat = False  # whether the last thing written may take a repetition
        self._is_repeated = False  # whether it is one

    def translate(self) -> str:
        while self._place < len(self._pattern):
            self._step(self._pattern[self._place])
        if len(self._levels) > 1:
            raise self._error("missing closing )")
        return "".join(self._out) + ")" * len(self._levels[0].opened)

    def _error(self, why: str) -> InvalidArgumentError:
        return _invalid(self._pattern, why)

    def _atom(self, text: str, length: int) -> None:
        self._out.append(text)
        self._place += length
        self._can_repeat, self._is_repeated = True, False

    def _step(self, char: str) -> None:
        flags = self._levels[-1].flags
        if char in "*+?" or (char == "{" and _COUNT.match(self._pattern, self._place)):
            self._repeat(char)
        elif char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._open()
        elif char == ")":
            self._close()
        elif char == "|":
            opened = self._levels[-1].opened
            self._atom(")" * len(opened) + "|" + "".join(opened), 1)
            self._can_repeat = False
        elif char == "^":
            self._atom("^" if "m" in flags else r"(?:\A)", 1)
        elif char == "$":
            self._atom("(?:$)" if "m" in flags else r"(?:\Z)", 1)
        else:
            self._atom(_ANY["s" in flags] if char == "." else re.escape(char), 1)

    def _repeat(self, char: str) -> None:
        if not self._can_repeat:
            raise self._error(f"missing argument to repetition operator: {char}")
        if self._is_repeated:
            raise self._error("bad repetition operator")
        text = char
        if char == "{":
            text = self._count()
        self._place += len(text)
        is_lazy = self._pattern.startswith("?", self._place)
        self._place += is_lazy
        self._out.append(text + ("?" if is_lazy != ("U" in self._levels[-1].flags) else ""))
        self._is_repeated = True

    def _count(self) -> str:
        found = _COUNT.match(self._pattern, self._place)
        assert found is not None
        low = int(found[1])
        high = int(found[3]) if found[3] else low
        if max(low, high) > _MAX_REPEAT or high < low:
            raise self._error(f"bad repetition operator: {found[0]}")
        return found[0]

    def _open(self) -> None:
        flags = self._levels[-1].flags
        if not self._pattern.startswith("(?", self._place):
            self._levels.append(_Level(flags))
            self._atom("(", 1)
            self._can_repeat = False
            return
        found = _GROUP.match(self._pattern, self._place)
        if found is None:
            raise self._error(f"invalid perl operator: {self._pattern[self._place : self._place + 4]}")
        if found[1]:
            self._levels.append(_Level(flags))
            self._atom("(", len(found[0]))
        else:
            self._flags(found[2], found[3] == ":", len(found[0]))
        self._can_repeat = False

    def _flags(self, change: str, is_group: bool, length: int) -> None:
        added, _, removed = change.partition("-")
        flags = self._levels[-1].flags.union(added).difference(removed)
        written = "".join(sorted(set(added) - {"U"})), "".join(sorted(set(removed) - {"U"} - set(added)))
        group = "(?" + written[0] + ("-" + written[1] if written[1] else "") + ":"
        if is_group:
            self._levels.append(_Level(flags))
        elif not change:
            raise self._error("missing argument to flags: (?)")
        else:
            self._levels[-1].flags = flags
            self._levels[-1].opened.append(group)
        self._atom(group, length)

    def _close(self) -> None:
        if len(self._levels) == 1:
            raise self._error("unexpected )")
        level = self._levels.pop()
        self._atom(")" * (len(level.opened) + 1), 1)

    def _escape(self) -> None:
        rest = self._pattern[self._place + 1 : self._place + 2]
        if rest == "Q":
            self._literal()
        elif rest in ("b", "B"):
            self._atom(f"(?a:\\{rest})", 2)
        elif rest in ("A", "z"):
            self._atom(r"(?:\A)" if rest == "A" else r"(?:\Z)", 2)
        elif rest == "C":
            self._atom("(?s:.)", 2)
        else:
            ranges, length = self._escaped()
            self._atom(_written(ranges), length)

    def _literal(self) -> None:
        r"""``\Q``: everything up to ``\E``, or to the end, means itself."""
        text, end, _ = self._pattern[self._place + 2 :].partition(r"\E")
        self._place += 2 + len(text) + len(end)
        for char in text:
            self._atom(re.escape(char), 0)

    def _escaped(self) -> tuple[Ranges, int]:
        """The characters that the escape here stands for, and its length."""
        start = self._place + 1
        char = self._pattern[start : start + 1]
        if char.lower() in _PERL and char:
            ranges = _PERL[char.lower()]
            return (ranges if char.islower() else _complement(ranges)), 2
        if (named := _CLASS_NAME.match(self._pattern, start)) is not None:
            ranges = _category(named[3] or named[4])
            is_negated = (named[1] == "P") != (named[2] == "^")
            return (_complement(ranges) if is_negated else ranges), 1 + len(named[0])
        if (numbered := _HEX.match(self._pattern, start)) is not None:
            code, length = int(numbered[1] or numbered[2], 16), len(numbered[0])
        elif (octal := _OCTAL.match(self._pattern, start)) is not None:
            code, length = int(octal[0], 8), len(octal[0])
        elif char in _CONTROL:
            code, length = _CONTROL[char], 1
        elif char and char.isascii() and not char.isalnum():
            code, length = ord(char), 1
        else:
            raise self._error("invalid escape sequence: \\" + char if char else "trailing \\")
        if code > sys.maxunicode:
            raise self._error("invalid escape sequence")
        return [(code, code)], 1 + length

    def _class(self) -> None:
        begin = self._place
        self._place += 1
        is_negated = self._pattern.startswith("^", self._place)
        self._place += is_negated
        ranges: Ranges = []
        is_first = True
        while is_first or not self._pattern.startswith("]", self._place):
            if self._place >= len(self._pattern):
                raise self._error(f"missing ]: {self._pattern[begin:]}")
            ranges += self._class_item()
            is_first = False
        if is_negated:
            ranges = _complement(ranges)
        self._atom(_written(ranges), 1)

    def _class_item(self) -> Ranges:
        posix = _POSIX_NAME.match(self._pattern, self._place)
        if posix is not None:
            if posix[2] not in _POSIX:
                raise self._error(f"invalid character class range: {posix[0]}")
            self._place += len(posix[0])
            return _complement(_POSIX[posix[2]]) if posix[1] else _POSIX[posix[2]]
        start = self._place
        low = self._class_char()
        if len(low) != 1 or low[0][0] != low[0][1]:
            return low
        if not self._pattern.startswith("-", self._place) or self._pattern.startswith("-]", self._place):
            return low
        self._place += 1
        high = self._class_char()
        if len(high) != 1 or high[0][0] < low[0][0]:
            raise self._error(f"invalid character class range: {self._pattern[start : self._place]}")
        return [(low[0][0], high[0][0])]

    def _class_char(self) -> Ranges:
        if self._pattern.startswith("\\", self._place):
            ranges, length = self._escaped()
        elif self._place < len(self._pattern):
            code = ord(self._pattern[self._place])
            ranges, length = [(code, code)], 1
        else:
            raise self._error("missing ]")
        self._place += length
        return ranges
