"""The functions of a program, what their lines do, and what they have to do with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.kernel import Kernel
from asyncexec.graph.node import Node
from asyncexec.regions.native_parts import NativePart
from asyncexec.regions.work import MAX_WORK

OutputCheck: TypeAlias = Callable[[Node, int, Any], Sequence[Any]]
_FIRST_NATIVE: Final = "x1"


@dataclass(frozen=True, slots=True)
class LoopNames:
    """A loop around a line: its frame, and the variables whose sum is the number of the round."""

    frame: str
    base: str
    index: str


@dataclass(frozen=True, slots=True)
class Line:
    """What a line of source does, and no more than errors ask: of the structure of its program, nothing stays.

    Attributes:
        node: whose kernel it calls, if it calls one; check: what tells why that raised, or None.
        arguments: the names of the inputs.
        loops: those around it, from the outside in.
    """

    node: Node | None
    check: Kernel | None
    arguments: tuple[str, ...]
    loops: tuple[LoopNames, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """The functions of a program.

    Attributes:
        function: takes the inputs; gives the list of the outputs, or if it is_generator, a generator that does.
        gives_all: whether none of the outputs may be absent.
        is_foreign: whether it calls what is the user's; is_awaited: whether it yields what is to be awaited.
        has_native_parts: whether there are parts that may be native code by now, or later.
        suspects: the nodes to name where a stretch was long: the user's, if there are any, else all.
        lines: what the lines do, of each code object.
        quick: of a generator that need not be one where all is native code: takes the inputs, and gives the outputs, or
            None if that is not so now or takes long; else None.
    """

    function: FunctionType
    num_inputs: int
    num_outputs: int
    gives_all: bool
    is_generator: bool
    is_foreign: bool
    is_awaited: bool
    has_native_parts: bool
    suspects: tuple[Node, ...]
    lines: dict[CodeType, dict[int, Line]]
    quick: FunctionType | None

    @property
    def is_native(self) -> bool:
        """Whether *quick* gives the outputs, unless it is given what is unusual."""
        return self.quick is not None and isinstance(self.quick.__globals__[_FIRST_NATIVE], FunctionType)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the functions of a program have to do with others.

    Attributes:
        checked_outputs: what users' kernels give goes by it.
        is_small: whether a node whose shapes are not known has been seen to take small values.
        is_long: whether a call of a node may take as long as a step may hold the event loop.
        absent: stands for outputs that are not live.
        gives_tuple: whether the functions return a tuple of the outputs, and no list.
        pauses: whether they yield where they have much to do.
        most_work: how much work they do before they yield.
        native: gives what is to be called in place of a part that can be native code; None if nothing ever is.
        works_in_place: whether arithmetic writes into an array that was made here, and that nobody takes any more: all
            arrays are of one shape.
    """

    checked_outputs: OutputCheck
    is_small: Callable[[Node], bool]
    is_long: Callable[[Node], bool]
    absent: object = NOTHING
    gives_tuple: bool = False
    pauses: bool = True
    most_work: int = MAX_WORK
    native: Callable[[NativePart], Callable[..., Any]] | None = None
    works_in_place: bool = False
