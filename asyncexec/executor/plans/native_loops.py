"""Loops with small arrays as native code, in place of Python code that has run often.

Native code is tried before it is used: on the values that the loop was called with when it had run often, and on random
numbers in their place, its rounds must give, to the bit, what the kernels give.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.compilation.blas_kernels import SHORT
from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.plans.native_calls import COMPILER, Pauses, UntriedError
from asyncexec.framework.clock import NS_PER_MS, monotonic_ns
from asyncexec.process.blas_threads import blas_threads
from asyncexec.regions.lifetimes import following
from asyncexec.regions.native_code import AGAIN, REFUSED
from asyncexec.regions.native_emitter import NotNativeError
from asyncexec.regions.native_loops import (
    LoopText,
    PutOff,
    Slot,
    is_laid_out_like,
    merged,
    overlap,
    ranges_of,
    write_loop_of_arrays,
)
from asyncexec.regions.native_parts import NativePart
from asyncexec.regions.program import Call, Move, Value
from asyncexec.regions.schedule import Block, Repeat

_STRETCH_NS: Final = NS_PER_MS // 4  # of calls that were put off


def made(part: NativePart, values: Sequence[object]) -> NativeLoop:
    """The native code of *part*, tried on *values*; NotNativeError if there is none, UntriedError if it did nothing."""
    text = write_loop_of_arrays(part, values, Pauses())
    loop = NativeLoop(text, len(part.gives))
    with np.errstate(all="ignore"):
        for inputs in (values, _others(text.takes, values)):
            _, num_rounds, *gives = loop(*inputs)
            if not num_rounds and inputs is values:
                raise UntriedError
            if not _gives_the_same(part, inputs, num_rounds, gives):
                raise NotNativeError
    return loop


def _others(takes: Sequence[Slot], values: Sequence[object]) -> list[Any]:
    """Random floats in place of those of arrays: those that were met may be zeros, and tell little."""
    random = np.random.default_rng(len(values))
    return [
        np.asarray(random.standard_normal(slot.place.shape), slot.place.dtype)
        if slot.place is not None and slot.place.ndim and slot.place.dtype.kind == "f"
        else value
        for slot, value in zip(takes, values, strict=True)
    ]


class NativeLoop:
    """Does rounds of a loop; to be called with what it takes.

    It gives whether it is to be called again, how many rounds it has done, and the variables.
    """

    __slots__ = (
        *("__weakref__", "_call", "_kept", "_limit", "_most_rounds", "_num_given", "_num_rounds", "_products"),
        *("_constants", "_put_off", "_takes"),
    )

    def __init__(self, text: LoopText, num_given: int) -> None:
        self._takes: tuple[Slot, ...] = text.takes
        self._num_given = num_given
        self._num_rounds, self._limit = text.num_rounds, text.limit
        self._most_rounds = int(text.limit)
        self._put_off: tuple[PutOff, ...] = text.put_off
        self._products = text.products
        self._kept = text.kept
        self._constants = merged(ranges_of(each for each in text.constants if each.flags.c_contiguous))
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int)(COMPILER.load(text.text, self))

    def __call__(self, *values: object) -> tuple[Any, ...]:
        given = values[: self._num_given]
        if not all(map(_put, self._takes, values)) or self._has_overlap(values):
            return False, 0, *given
        try:
            status = self._run()
            num_rounds = self._num_rounds.item()
            if status == REFUSED or not num_rounds:
                return False, 0, *given
            begin_ns = monotonic_ns() if self._put_off else 0
            gives = [_given(*each) for each in zip(self._takes, given, strict=False)]
            for each in self._put_off:
                gives[each.variable] = self._catch_up(each, values, gives, num_rounds)
        except Exception:  # which the Python code will raise, in its round
            return False, 0, *given
        if self._put_off:
            self._mind_the_time((monotonic_ns() - begin_ns) // num_rounds)
        return status == AGAIN, num_rounds, *gives

    def _mind_the_time(self, round_ns: int) -> None:
        """Let native code do no more rounds in one go than can be caught up with in a short while."""
        self._limit[...] = max(1, min(self._most_rounds, _STRETCH_NS // max(1, round_ns)))

    def _run(self) -> int:
        threads = blas_threads() if self._products > SHORT else None
        return self._call() if threads is None else int(threads.call(self._call, (), self._products))

    def _has_overlap(self, values: Sequence[object]) -> bool:
        """Whether two arrays that native code would read are, in part, one."""
        arrays = (value for slot, value in zip(self._takes, values, strict=True) if slot.place is not None)
        return overlap([*ranges_of(each for each in arrays if type(each) is np.ndarray), *self._constants])

    def _catch_up(self, put_off: PutOff, values: Sequence[object], gives: Sequence[object], num_rounds: int) -> Any:
        """The variable after the calls that native code has put off."""
        kernel, variable = put_off.kernel, values[put_off.variable]
        for number in range(num_rounds):
            last = gives if number == num_rounds - 1 else None
            variable = kernel(*[_noted(each, variable, values, last, number) for each in put_off.inputs])
        return variable


def _noted(noted: Any, variable: Any, values: Sequence[Any], last: Sequence[Any] | None, number: int) -> Any:
    """What a call that was put off was to be called with, in round *number*; *last* are the variables after it."""
    if noted is None:
        return variable
    if isinstance(noted, Slot):
        return noted.same
    if isinstance(noted, int):
        return values[noted]
    if last is not None and noted.becomes is not None:
        return last[noted.becomes]
    return noted.rounds[number].copy()


def _put(slot: Slot, value: Any) -> bool:
    """Hand over *value*, if it is like that which native code was made for."""
    place = slot.place
    if place is None:
        return value is slot.same if slot.kind is None else type(value) is slot.kind
    kind = type(value)
    if kind is np.ndarray:
        if not place.ndim or not is_laid_out_like(value, place):
            return False
    elif place.ndim or kind is not place.dtype.type:
        return False
    place[...] = value
    return True


def _given(slot: Slot, value: object) -> Any:
    """What has become of the variable that was *value*."""
    if slot.place is None:
        return value
    return slot.place.copy() if slot.place.ndim else slot.place[()]


def _gives_the_same(part: NativePart, values: Sequence[object], num_rounds: int, gives: Sequence[object]) -> bool:
    """Whether kernels give that, too, after so many rounds."""
    assert isinstance(part.statement, Repeat)
    known = dict(zip(part.takes, values, strict=True))
    if not all(_do_round(part.statement, known) for _ in range(num_rounds)):
        return False
    return all(_is_same(known[value], given) for value, given in zip(part.gives, gives, strict=True))


def _do_round(repeat: Repeat, known: dict[Value, Any]) -> bool:
    """Whether there is another round, which has been done then."""
    _do(repeat.head, known)
    assert repeat.loop.condition is not None
    if not _value(repeat.loop.condition, known):
        return False
    _do(repeat.body, known)
    after = [_value(following(each), known) for each in repeat.loop.carried]
    known.update(zip([each.value for each in repeat.loop.carried], after, strict=True))
    return True


def _do(block: Block, known: dict[Value, Any]) -> None:
    for statement in block.statements:
        if isinstance(statement, Move):
            known[statement.target] = _value(statement.source, known)
            continue
        assert isinstance(statement, Call)
        result = statement.kernel(*[_value(value, known) for value in statement.inputs])
        known.update(zip(statement.outputs, result if statement.returns_tuple else [result], strict=True))


def _value(value: Value, known: dict[Value, Any]) -> Any:
    return known[value] if value.constant is NOTHING else value.constant


def _is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, (np.ndarray, np.generic)):
        return type(one) is type(other)
    is_like = type(one) is type(other) and (one.dtype, one.shape) == (other.dtype, other.shape)
    return is_like and one.tobytes() == other.tobytes()
