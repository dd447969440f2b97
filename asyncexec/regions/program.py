"""A structured program: values, and the units of code that make them.

Theory
------
In a graph of cheap nodes a token machine decides anew at run time what its structure tells already.  A *value* is known
by where it is made: what a Switch, Identity, Enter or Exit hands on is the same value under other conditions.  A
*condition* is a predicate and the side of it on which a Switch lets its data pass; the *liveness* of a unit is the set
of conditions under which it runs.  A Merge whose inputs between them cover all sides of some predicates is a choice
between values, and is live as soon as those predicates are.  A frame with one LoopCond whose Merges are fed by an Enter
and a NextIteration each is a while loop; from outside it is one unit.

So a *scope*, which is the root or the body of a loop, is a set of units with an order between them; nothing in it is
dead or alive but by the conditions that it stands under.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.kernel import Kernel
from asyncexec.graph.node import Node

MAX_CONDITIONS: Final = 32  # that one unit may stand under


class UnstructuredError(Exception):
    """The nodes have no structure that a program has; the general executor runs them."""


class Value:
    """What one place of a program makes.

    Attributes:
        unit: what makes it; None for an input of the program and for a constant.
        constant: its value, where that is known; else NOTHING.
        is_scalar: whether it is known to have no dimensions, so that nobody minds how long it is kept.
        is_number: whether it is the number of a side, and no truth value.
        depth: of a predicate, how many conditions it stands under, at least.
    """

    __slots__ = ("constant", "depth", "is_number", "is_scalar", "unit")

    def __init__(self, unit: Unit | None = None, constant: object = NOTHING, *, is_scalar: bool = False) -> None:
        self.unit: Unit | None = unit
        self.constant: Any = constant
        self.is_scalar: bool = is_scalar
        self.is_number: bool = False
        self.depth: int = MAX_CONDITIONS


# A predicate, and the side of it that is taken: False or True, or of a switch of several ways a number.
Condition: TypeAlias = tuple[Value, int]
Liveness: TypeAlias = frozenset[Condition]
ALWAYS: Final[Liveness] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class AwaitedKernel:
    """The kernel of a call that is awaited.

    Attributes:
        start: called with the inputs, gives what is to be awaited.
        ticket: what the program hands out with it, to whoever runs the program.
    """

    start: Kernel
    ticket: object


class Unit:
    """Something that a scope does, in one go.

    Attributes:
        scope: the one that it stands in; liveness: when it runs, in that scope.
        after: what has to come before it.
        is_awaited: whether something is awaited in it.
    """

    __slots__ = ("after", "is_awaited", "liveness", "scope")

    def __init__(self, scope: Scope, liveness: Liveness) -> None:
        self.scope: Scope = scope
        self.liveness: Liveness = liveness
        self.after: set[Unit] = set()
        self.is_awaited: bool = False
        scope.units.append(self)
        self.come_after(*[pred.unit for pred, _ in liveness])

    def note_awaited(self) -> None:
        """Note that something is awaited in it, and so in the loops around it."""
        unit: Unit | None = self
        while unit is not None:
            unit.is_awaited = True
            unit = unit.scope.loop

    def come_after(self, *units: Unit | None) -> None:
        """Stand behind *units*, as far as they are of the same scope: those of others are around."""
        self.after.update(unit for unit in units if unit is not None and unit.scope is self.scope)


class Call(Unit):
    """A call of a kernel.

    Attributes:
        node: what errors name.
        inputs, outputs: values; returns_tuple: whether the kernel gives a tuple of the outputs.
        check: what tells why the kernel raised, or None; is_foreign: whether it looks at what surrounds the call.
        ticket: of a kernel that is awaited.
    """

    __slots__ = ("check", "inputs", "is_foreign", "kernel", "node", "outputs", "returns_tuple", "ticket")

    def __init__(self, scope: Scope, liveness: Liveness, node: Node, kernel: Kernel, inputs: list[Value]) -> None:
        super().__init__(scope, liveness)
        self.node: Node = node
        self.kernel: Kernel = kernel
        self.inputs: list[Value] = inputs
        self.outputs: list[Value] = []
        self.returns_tuple: bool = False
        self.check: Kernel | None = None
        self.is_foreign: bool = False
        self.ticket: object = None
        self.come_after(*[value.unit for value in inputs])


class Move(Unit):
    """Lets *target* be *source*: one of the choices of a Merge, or an output that is not always there."""

    __slots__ = ("source", "target")

    def __init__(self, scope: Scope, liveness: Liveness, target: Value, source: Value) -> None:
        super().__init__(scope, liveness)
        self.target: Value = target
        self.source: Value = source
        self.come_after(source.unit)


class Joint(Unit):
    """Does nothing: it comes after some units, and before others."""

    __slots__ = ()


class Loop(Unit):
    """A while loop.

    Attributes:
        name: of its frame.
        carried: the variables: what the condition sees, what the first iteration begins with, and the next.
        body: its scope; the units that are live whatever the condition says come before the condition.
        condition: what must hold for another iteration.
        taken: the condition that the body proper stands under.
    """

    __slots__ = ("body", "carried", "condition", "name")

    def __init__(self, scope: Scope, name: str) -> None:
        super().__init__(scope, ALWAYS)
        self.name: str = name
        self.body: Scope = Scope(self)
        self.carried: list[Carried] = []
        self.condition: Value | None = None


@dataclass(slots=True, eq=False)
class Carried:
    """A variable of a loop."""

    value: Value
    first: Value
    next: Value | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """The root of a program, or what a loop repeats."""

    loop: Loop | None = None
    units: list[Unit] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A structured program.

    Attributes:
        root: what it does.
        inputs: the values that it is given; outputs: those that it gives.
        defaults: outputs that are not always there.
    """

    root: Scope
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    defaults: tuple[Value, ...]
