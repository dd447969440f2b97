"""What must hold of a program that awaits: what is awaited comes one after the other, whoever runs the nodes.

A program awaits one thing at a time, and everything cheap that can be done is done before the next one begins.  That
is no loss where each thing that is awaited waits for the one before it anyway.  In a loop it must also wait for those
of the round before; else rounds overlap, which the general executor lets them.  A loop of cheap nodes may take long, so
it must not stand beside what is awaited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.regions.program import Call, Loop, Move, Program, Scope, Unit, UnstructuredError, Value


def check_waits(program: Program) -> Stage[None]:
    """UnstructuredError unless all that *program* awaits is in one line, as a stage."""
    scopes = [program.root]
    for scope in scopes:
        for units in in_parts(scope.units):
            if any(unit.is_awaited for unit in units):
                scopes += yield from _Line(scope).check()
                break
            yield


class _Line:
    """What is awaited in one scope, and the loops in it: each has a bit, as have the variables of the loop around."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._bits: dict[Unit, int] = {}
        self._variables: dict[Value, int] = {}
        self._behind: dict[Unit, int] = {}  # the bits of what each unit waits for, and its own
        self._num_bits = 0
        if scope.loop is not None:
            for carried in scope.loop.carried:
                self._variables[carried.value] = self._new_bit()

    def _new_bit(self) -> int:
        self._num_bits += 1
        return 1 << (self._num_bits - 1)

    def check(self) -> Stage[list[Scope]]:
        """UnstructuredError unless it is one line; what the loops in it repeat."""
        inner: list[Scope] = []
        awaited = line = 0
        ordered = yield from _in_order(self._scope.units)
        for count, unit in enumerate(ordered):
            before = self._before(unit)
            if unit.is_awaited or isinstance(unit, Loop):
                missing = (line if unit.is_awaited else awaited) & ~before
                if missing and not all(_exclude(unit, other) for other in self._units(missing)):
                    raise UnstructuredError("what is awaited stands beside what else may take long")
                bit = self._bits[unit] = self._new_bit()
                before |= bit
                line |= bit
                if isinstance(unit, Loop):
                    inner.append(unit.body)
                if unit.is_awaited:
                    awaited |= bit
            self._behind[unit] = before
            if not count % STRIDE:
                yield
        if self._scope.loop is not None:
            self._check_rounds(self._scope.loop, awaited)
        return inner

    def _before(self, unit: Unit) -> int:
        """The bits of what *unit* waits for."""
        before = 0
        for other in unit.after:
            before |= self._behind[other]
        for value in (*_taken(unit), *[pred for pred, _ in unit.liveness]):
            before |= self._variables.get(value, 0)
        return before

    def _units(self, bits: int) -> Iterable[Unit]:
        return [unit for unit, bit in self._bits.items() if bit & bits]

    def _check_rounds(self, loop: Loop, awaited: int) -> None:
        """UnstructuredError unless all that is awaited in a round waits for all that was in the round before."""
        before_next: dict[int, int] = {}
        for carried in loop.carried:
            following = carried.next
            assert following is not None
            unit = following.unit
            bits = self._behind[unit] if unit is not None and unit.scope is self._scope else 0
            before_next[self._variables[carried.value]] = bits
        for unit in self._units(awaited):
            before = 0
            for variable, bits in before_next.items():
                if self._behind[unit] & variable:
                    before |= bits
            if awaited & ~before:
                raise UnstructuredError(f"rounds of frame {loop.name!r} overlap")


def _taken(unit: Unit) -> Iterable[Value]:
    if isinstance(unit, Call):
        return unit.inputs
    if isinstance(unit, Move):
        return (unit.source,)
    return [carried.first for carried in unit.carried] if isinstance(unit, Loop) else ()


def _exclude(one: Unit, other: Unit) -> bool:
    """Whether only one of the two runs."""
    sides = dict(one.liveness)
    return any(sides.get(pred, side) != side for pred, side in other.liveness)


def _in_order(units: Iterable[Unit]) -> Stage[list[Unit]]:
    """The *units* of a scope, each after those that it comes after; UnstructuredError if they wait for one another."""
    waiting: dict[Unit, int] = {}
    behind: dict[Unit, list[Unit]] = {}
    ready: deque[Unit] = deque()
    for count, unit in enumerate(units):
        waiting[unit] = len(unit.after)
        if not unit.after:
            ready.append(unit)
        for other in unit.after:
            behind.setdefault(other, []).append(unit)
        if not count % STRIDE:
            yield
    ordered: list[Unit] = []
    while ready:
        unit = ready.popleft()
        ordered.append(unit)
        for other in behind.get(unit, ()):
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
        if not len(ordered) % STRIDE:
            yield
    if len(ordered) < len(waiting):
        raise UnstructuredError("units wait for one another")
    return ordered
