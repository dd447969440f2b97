"""What the parts of the lowering say to each other.

There are a Call that is to be replaced, an Inlining that is to be done, and the Expansion of either.
Each part is a generator.  It yields what it wants expanded and gets the Expansion back, or yields None to let others
have the event loop; so that functions may be nested as deep as the limit allows without any recursion here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.types import DType
from asyncexec.graph.node import Node, SourceLine, Tensor
from asyncexec.optimization.function_body import FunctionBodies, FunctionBody, mismatch
from asyncexec.optimization.private_nodes import PrivateNodes

MAX_DEPTH: Final = 100


@dataclass(frozen=True, slots=True)
class Context:
    """Where a functional op stands.

    Attributes:
        pivot: runs whenever the ops around do, in the frame that they are in; None when they run in any case, and in no
            frame.
        path: the functions that it stands in, from the outside in.
        has_control_flow: whether ops around it may be dead, or in a frame, for reasons that *pivot* does not know.
    """

    pivot: Node | None = None
    path: tuple[str, ...] = ()
    has_control_flow: bool = False

    def inside(self, function: str, pivot: Node | None, *, has_control_flow: bool) -> Context:
        """The context of the nodes of *function*; InvalidArgumentError when it is too deep down."""
        path = (*self.path, function)
        if len(path) > MAX_DEPTH:
            raise InvalidArgumentError(
                f"functions are called more than {MAX_DEPTH} deep: {' -> '.join(path[:5])} -> ... -> {path[-1]}"
            )
        return Context(pivot, path, has_control_flow)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A functional op that is to be replaced.

    Attributes:
        name: of the node, as the client graph would have it.
        inputs, controls: its inputs as they are in the client graph.
        template: the node itself, with inputs of where it was written.
    """

    name: str
    template: Node
    inputs: tuple[Tensor, ...]
    controls: tuple[Node, ...]
    device: str
    source_line: SourceLine | None
    context: Context

    @property
    def op(self) -> str:
        return self.template.op

    def attr(self, name: str) -> Any:
        return self.template.get_attr(name)

    @property
    def user_line(self) -> str | None:
        return None if self.source_line is None else f"{self.source_line[0]}:{self.source_line[1]}"


@dataclass(frozen=True, slots=True, eq=False)
class Inlining:
    """A function whose body is to stand in the client graph.

    Attributes:
        call: what it is done for.
        prefix: of the names of its nodes, without the slash.
        inputs: its arguments.
        after: what every node of it must come after, if anything.
        pivot: what the nodes come after that otherwise would run in any case (Context.pivot inside).
        ungated: inputs that are there even where the pivot is dead.
    """

    call: Call
    function: NameAttrList
    prefix: str
    inputs: tuple[Tensor, ...]
    after: Node | None = None
    pivot: Node | None = None
    ungated: frozenset[Tensor] = frozenset()


@dataclass(slots=True, eq=False)
class Expansion:
    """What stands for a functional op in the client graph.

    Attributes:
        outputs: its outputs.
        make_end: makes the node after which all that it does has been done; None when it does nothing.
    """

    outputs: tuple[Tensor, ...]
    make_end: Callable[[], Node | None]
    _end: Sequence[Node | None] = field(default=())

    @property
    def end(self) -> Node | None:
        """What a node with a control input from the op waits for; made when it is first asked for."""
        if not self._end:
            self._end = (self.make_end(),)
        return self._end[0]


Request: TypeAlias = Call | Inlining | None
Task: TypeAlias = Generator[Request, Any, Expansion]


@dataclass(frozen=True, slots=True, eq=False)
class Lowering:
    """What all parts work with: the nodes made so far, and the bodies of functions."""

    nodes: PrivateNodes
    bodies: FunctionBodies

    def body(self, call: Call, function: NameAttrList, inputs: Sequence[Tensor], prefix: str) -> FunctionBody:
        """The body of *function*, which is to stand below *prefix*; errors name its nodes as the client graph would."""
        try:
            return self.bodies.get(function, inputs)
        except OpError as error:
            if error.node is None:
                raise error.locate(call) from error.__cause__
            error.node, error.user_line = f"{prefix}/{error.node}", call.user_line
            error.args = (str(error),)
            raise

    def entry(self, call: Call) -> tuple[Node | None, Node | None]:
        """What everything that *call* does comes after, and the pivot for it (see Inlining)."""
        context, controls, name = call.context, call.controls, f"{call.name}/input_control"
        if not context.has_control_flow:
            return self.nodes.join(name, controls), context.pivot
        # A call with a dead input does nothing.
        after = self.nodes.join(name, [*controls, *self.nodes.guards(call.inputs, f"{call.name}/input")])
        return after, after or context.pivot


def check_dtypes(call: Call, what: str, got: Sequence[Tensor], expected: Sequence[DType]) -> None:
    """InvalidArgumentError unless *got*, the *what* of a function, are as many as *expected*, of these dtypes."""
    if [one.dtype.base_dtype for one in got] != [dtype.base_dtype for dtype in expected]:
        raise mismatch(what, expected, got).locate(call)
