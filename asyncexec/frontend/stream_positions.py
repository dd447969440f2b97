"""Positions in sources: where a stream goes on after a restart.

A source can *seek* if it has the method ``seek(position)``, which gives an iterable, or an async iterable, of the
values from there on; a sequence can, too.  A position is the number of the values before it, unless the iterator has
an attribute ``position``: that is read after each value, and is anything that JSON has.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OutOfRangeError
from asyncexec.framework.held_content import HeldContent
from asyncexec.frontend.stream_functions import HoldingIterator, close_iterators, iterate

HOW_TO_SEEK: Final = (
    "give it a method seek(position) that returns the values from there on; or use a sequence; or let"
    " exactly_once=False begin the source anew"
)


def can_seek(values: object) -> bool:
    """Whether a stream can go on in the middle of *values*; of a function that makes them, only a call could tell."""
    return _is_sequence(values) or (hasattr(values, "seek") and bool(getattr(values, "is_seekable", True)))


def _is_sequence(values: object) -> bool:
    return isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, (str, bytes))


def values_from(values: Any, position: object) -> Any:
    """What *values* gives from *position* on; all of it where *position* is None, or it cannot seek.

    Raises:
        InvalidArgumentError: a sequence has no such position.
        InvalidTypeError: ``seek`` gives nothing to draw from.
        OutOfRangeError: a sequence is shorter than it was.
    """
    if position is None or not (_is_sequence(values) or hasattr(values, "seek")):
        return values
    if _is_sequence(values):
        return _Tail(values, position)
    found = values.seek(position)
    if not isinstance(found, (AsyncIterable, Iterable)):
        raise InvalidTypeError(
            f"seek of {type(values).__name__} gives {type(found).__name__}, which is nothing to draw from",
            hint="it returns the values from that position on, as an iterable or an async iterable",
        )
    return found


def tells_positions(values: object) -> bool:
    """Whether positions in *values* may be others than numbers of values: it is no sequence, and no plain iterable."""
    return isinstance(values, AsyncIterable) or (can_seek(values) and not _is_sequence(values))


class _Tail(Iterable[Any]):
    """The items of a sequence from number *start* on."""

    def __init__(self, values: Any, start: object) -> None:
        if type(start) is not int or start < 0:
            raise InvalidArgumentError(f"a position in a sequence is a number of items, not {start!r}")
        if start > len(values):
            raise OutOfRangeError(
                f"the stream goes on at item {start}, and the sequence has {len(values)} items",
                hint="give it all items, with those that are done; or resume=False begins anew",
            )
        self._values = values
        self._start = start

    def __iter__(self) -> Iterator[object]:
        return map(self._values.__getitem__, range(self._start, len(self._values)))


def made(values: object) -> Any:
    """*values*, or what a function gives that makes them for each stream."""
    if callable(values) and not isinstance(values, (AsyncIterable, Iterable, asyncio.Queue)):
        return values()
    return values


def _as_it_is(position: object) -> object:
    """*position* as it is now: an iterator may change a dict or list of offsets in place."""
    return copy.deepcopy(position) if isinstance(position, (dict, list)) else position


def _check_position(position: object, values: object) -> None:
    """InvalidArgumentError unless *position*, which *values* tell, can be in a checkpoint."""
    if isinstance(position, HeldContent):  # that of windows or a join, which *values* pass on
        return
    try:
        if json.loads(json.dumps(position)) != position:  # it may be of other types: a defaultdict is a dict for seek
            raise ValueError("JSON does not give it back")
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the position {position!r} of {type(values).__name__} cannot be stored: {error}",
            hint="a position is what JSON has: a number, a string, or a list or dict of these",
        ) from error


class PositionedIterator(HoldingIterator):
    """What *values* gives from a position on.

    Args:
        is_owned: whether *values* was made for this iterator, which closes it then.

    Attributes:
        position: behind the last value that was given.
    """

    def __init__(self, values: object, position: object, *, is_owned: bool) -> None:
        self.position: Any = position
        self._is_owned = is_owned
        self._given = values_from(values, position)
        self._values: AsyncIterator[Any] | None = None
        self._tells = False
        self._is_checked = False

    async def __anext__(self) -> Any:
        values = self._values
        if values is None:
            values = self._values = iterate(self._given)
            self._tells = hasattr(values, "position")
        value = await anext(values)
        if not self._tells:
            self.position = (self.position or 0) + 1
            return value
        self.position = _as_it_is(values.position)  # type: ignore[attr-defined]
        if not (self._is_checked or isinstance(values, HoldingIterator)):  # what that draws from is checked itself
            _check_position(self.position, values)
            self._is_checked = True
        return value

    def left_over(self) -> list[Any]:
        values = self._values
        left_over = values.left_over() if isinstance(values, HoldingIterator) else []
        if self._tells:
            self.position = _as_it_is(values.position)  # type: ignore[union-attr]
        return left_over

    async def aclose(self) -> None:
        if self._values is not None and (self._is_owned or self._values is not self._given):
            await close_iterators([self._values])
        elif self._is_owned and isinstance(self._given, AsyncIterator):
            await close_iterators([self._given])


class Seeked(AsyncIterable[Any]):
    """The values of *values* from *position* on; *values* may be a function."""

    def __init__(self, values: object, position: object) -> None:
        self._values = values
        self._position = position

    def __aiter__(self) -> PositionedIterator:
        values = made(self._values)
        return PositionedIterator(values, self._position, is_owned=values is not self._values)
