"""The plain evaluator: what a graph gives, by definition.  Slow, and short enough to be seen to be right.

Theory
------
A graph with frames is a set of equations.  Each unknown is the outcome of one node under one tag, the iteration number
in every frame around it, from the outside in: ``()`` in the root, ``(3, 0)`` in iteration 0 of what iteration 3 of a
loop entered.  An outcome is

* live: the values of the node's outputs, of which a Switch gives one as dead;
* ``DEAD``: the node was told that it is not to run, and tells its consumers so;
* ``ABSENT``: nothing was ever told, and nobody downstream hears of it.

What a node makes of the outcomes of its inputs and control inputs under the same tag:

=====================  ================================================================================================
any node               ABSENT if one of them is, else DEAD if one of them is, else what its kernel gives
ControlTrigger         runs even if some are dead
Merge                  the input that is live; DEAD when all are, or when it is the Enter of a loop that is not entered;
                       whether control inputs are dead does not matter
Enter                  seen in iteration 0 of the frame, of what it gets outside; ABSENT in all others
Enter, is_constant     seen in every iteration that takes place
NextIteration          seen in iteration n, of what it gets in n - 1; ABSENT in 0, and for what is dead
Exit                   seen outside, of the first iteration in which it is live; of the last one if there is none
=====================  ================================================================================================

Iteration 0 of a frame takes place whenever the frame is entered; n + 1, if a NextIteration is live in n.  A dead Exit
is told outside when the frame ends, which needs all its Enters to have arrived.

The equations are solved by demand, from the fetches on, each unknown once.  The demands wait on a stack of our own, not
on Python's: a chain of nodes may be as long as it likes.  After ``propagator_state.cc`` of TensorFlow, whose order of
execution this has nothing of; where that order decides what a graph gives, a Merge with two live inputs, there is no
answer here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError, UnimplementedError
from asyncexec.framework.kernel import DEAD, AsyncKernel, Kernel, KernelKind, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.types import string
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, ControlFlowInfo, Frame
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor

Tag: TypeAlias = tuple[int, ...]
# The outcome of a node as those see it who are under that tag; or whether an iteration of a frame takes place.
Unknown: TypeAlias = tuple[Node | Frame, Tag]
Steps: TypeAlias = Generator[Unknown, Any, Any]  # yields what it needs to know, and gets it


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()
MAX_ITERATIONS: Final = 1_000_000

_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})


def evaluate(
    graph: Graph,
    fetches: Iterable[Tensor | str],
    feeds: Mapping[Any, object] | None = None,
    *,
    max_iterations: int = MAX_ITERATIONS,
) -> list[Any]:
    """The values of *fetches*, as a session gives them.

    Args:
        graph: any graph whose ops have plain kernels.  What ops with a state give depends on the order of demand.
        fetches: tensors outside of loops, or their names.
        feeds: values by tensor or name.
        max_iterations: how often any one loop may go round.

    Raises:
        InvalidArgumentError: a fetch has no value, or a Merge has two live inputs.
        UnimplementedError: the graph calls functions, or has a kernel that must be awaited.
        ResourceExhaustedError: a loop goes round too often.
        OpError: a kernel failed; it names the node.  What a kernel raises of other classes is passed on.
    """
    tensors = [_tensor(graph, fetch) for fetch in fetches]
    fed = {_key(_tensor(graph, key)): _fed_value(_tensor(graph, key), value) for key, value in (feeds or {}).items()}
    evaluation = _Evaluation(tensors, fed, max_iterations)
    return [evaluation.fetched(tensor) for tensor in tensors]


def _tensor(graph: Graph, fetch: Tensor | str) -> Tensor:
    return graph.tensor(fetch) if isinstance(fetch, str) else fetch


def _key(tensor: Tensor) -> tuple[Node, int]:
    return tensor.op, tensor.index


def _fed_value(tensor: Tensor, value: object) -> object:
    dtype = tensor.dtype
    if dtype.is_opaque or dtype is string:
        return value
    return as_value(np.asarray(value, dtype.as_numpy_dtype))


def _ancestors(fetches: Sequence[Tensor], fed: Mapping[tuple[Node, int], object]) -> list[Node]:
    """The nodes that *fetches* depend on, in the order of the graph."""
    found: set[Node] = set()
    unseen = [tensor.op for tensor in fetches if _key(tensor) not in fed]
    while unseen:
        node = unseen.pop()
        if node not in found:
            found.add(node)
            unseen += [tensor.op for tensor in node.inputs if _key(tensor) not in fed]
            unseen += [control for control in node.control_inputs if not _is_fed_placeholder(control, fed)]
    return sorted(found, key=lambda node: node.id)


def _is_fed_placeholder(node: Node, fed: Mapping[tuple[Node, int], object]) -> bool:
    return node.op in _PLACEHOLDERS and (node, 0) in fed


class _Evaluation:
    """The equations of one call, and what is known of their solution."""

    def __init__(self, fetches: Sequence[Tensor], fed: Mapping[tuple[Node, int], Any], max_iterations: int) -> None:
        nodes = _ancestors(fetches, fed)
        self._fed = fed
        self._max_iterations = max_iterations
        self._info = ControlFlowInfo(nodes, frozenset(fed))
        self._next_iterations: dict[Frame, list[Node]] = {frame: [] for frame in self._info.frames}
        for node in nodes:
            if node.op in NEXT_ITERATIONS:
                self._next_iterations[self._info.frame_of(node)].append(node)
        self._kernels = _Kernels()
        self._known: dict[Unknown, object] = {}

    def fetched(self, tensor: Tensor) -> object:
        """The value of *tensor*; InvalidArgumentError when it has none."""
        if _key(tensor) in self._fed:
            return self._fed[_key(tensor)]
        if self._info.output_frame(tensor.op) is not self._info.root:
            raise InvalidArgumentError(f"fetch {tensor.name!r} is inside of a loop", node=tensor.op)
        outcome = self._solve((tensor.op, ()))
        value: Any = outcome if outcome is DEAD or outcome is ABSENT else outcome[tensor.index]
        if value is DEAD or value is ABSENT:
            raise InvalidArgumentError(f"fetch {tensor.name!r} does not have a value: it is {value}", node=tensor.op)
        return value.read() if tensor.dtype.is_ref else value

    def _solve(self, goal: Unknown) -> Any:
        """What *goal* is, after all that it depends on."""
        known = self._known
        stack = [] if goal in known else [(goal, self._equation(goal))]
        answer: object = None
        while stack:
            unknown, steps = stack[-1]
            try:
                needed = steps.send(answer)
            except StopIteration as solved:
                known[unknown] = answer = solved.value
                stack.pop()
                continue
            if needed in known:
                answer = known[needed]
            else:
                stack.append((needed, self._equation(needed)))
                answer = None
        return known[goal]

    def _equation(self, unknown: Unknown) -> Steps:
        what, tag = unknown
        if isinstance(what, Frame):
            return self._takes_place(what, tag)
        return self._rule(what.op)(what, tag)

    def _rule(self, op: str) -> Callable[[Node, Tag], Steps]:
        if op in MERGES:
            return self._merge
        if op in ENTERS:
            return self._enter
        if op in EXITS:
            return self._exit
        if op in NEXT_ITERATIONS:
            return self._next_iteration
        return self._control_trigger if op == "ControlTrigger" else self._plain

    # What is true of a node's inputs.

    def _inputs(self, node: Node, tag: Tag) -> Steps:
        """The values of all inputs, as a tuple, when all are live; else ABSENT or DEAD."""
        values: list[object] = []
        for tensor in node.inputs:
            values += [(yield from self._value(tensor, tag))]
        states = yield from self._controls(node, tag)
        if any(state is ABSENT for state in (*values, *states)):
            return ABSENT
        return DEAD if any(state is DEAD for state in (*values, *states)) else tuple(values)

    def _value(self, tensor: Tensor, tag: Tag) -> Steps:
        if _key(tensor) in self._fed:
            return self._fed[_key(tensor)]
        outcome = yield tensor.op, tag
        return outcome if outcome is DEAD or outcome is ABSENT else outcome[tensor.index]

    def _controls(self, node: Node, tag: Tag) -> Steps:
        states: list[object] = []
        for control in node.control_inputs:
            if not _is_fed_placeholder(control, self._fed):
                states += [(yield control, tag)]
        return states

    # One rule for each kind of node.

    def _plain(self, node: Node, tag: Tag) -> Steps:
        values = yield from self._inputs(node, tag)
        return values if values is DEAD or values is ABSENT else self._kernels.call(node, values)

    def _control_trigger(self, node: Node, tag: Tag) -> Steps:
        states = yield from self._controls(node, tag)
        return ABSENT if any(state is ABSENT for state in states) else ()

    def _merge(self, node: Node, tag: Tag) -> Steps:
        values: list[object] = []
        for tensor in node.inputs:
            values += [(yield from self._value(tensor, tag))]
        states = yield from self._controls(node, tag)
        if any(state is ABSENT for state in states):
            return ABSENT
        live = [slot for slot, value in enumerate(values) if value is not DEAD and value is not ABSENT]
        if len(live) > 1:
            raise InvalidArgumentError(
                f"inputs {live[0]} and {live[1]} are both live: which one passes depends on the order of execution",
                node=node,
            )
        if live:
            return values[live[0]], np.int32(live[0])
        dead = [tensor for tensor, value in zip(node.inputs, values, strict=True) if value is DEAD]
        is_dead = len(dead) == len(values) or any(tensor.op.op in ENTERS for tensor in dead)
        return DEAD if is_dead else ABSENT

    def _enter(self, node: Node, tag: Tag) -> Steps:
        if node.get_attr("is_constant"):
            is_seen = yield self._info.output_frame(node), tag
        else:
            is_seen = tag[-1] == 0
        return (yield from self._inputs(node, tag[:-1])) if is_seen else ABSENT

    def _next_iteration(self, node: Node, tag: Tag) -> Steps:
        if not tag or not tag[-1]:
            return ABSENT
        values = yield from self._inputs(node, (*tag[:-1], tag[-1] - 1))
        return ABSENT if values is DEAD else values

    def _exit(self, node: Node, tag: Tag) -> Steps:
        frame = self._info.frame_of(node)
        for number in range(self._max_iterations + 1):
            values = yield from self._inputs(node, (*tag, number))
            if values is not DEAD and values is not ABSENT:
                return values
            if not (yield frame, (*tag, number + 1)):
                has_ended = yield from self._all_arrive(frame, tag)
                return values if has_ended else ABSENT
        raise ResourceExhaustedError(
            f"loop {frame.name!r} goes round more than {self._max_iterations} times", node=node
        )

    # Frames.

    def _takes_place(self, frame: Frame, tag: Tag) -> Steps:
        """Whether that iteration of *frame* takes place."""
        if not tag[-1]:
            return True
        outcomes: list[object] = []
        for node in self._next_iterations[frame]:
            outcomes += [(yield node, tag)]
        return any(outcome is not ABSENT for outcome in outcomes)

    def _all_arrive(self, frame: Frame, tag: Tag) -> Steps:
        """Whether all that enters *frame* does, dead or live."""
        outcomes: list[object] = []
        for node in frame.enters:
            outcomes += [(yield from self._inputs(node, tag))]
        return all(outcome is not ABSENT for outcome in outcomes)


class _Kernels:
    """The kernels of nodes, each made when it is first called."""

    def __init__(self) -> None:
        self._kernels: dict[Node, Kernel] = {}
        self._resource_mgr = ResourceMgr()

    def call(self, node: Node, values: Sequence[Any]) -> Any:
        """The outputs of *node* for these inputs, as a tuple; or DEAD."""
        values = [
            value.read() if tensor.dtype.is_ref and not wanted.is_ref else value
            for value, tensor, wanted in zip(values, node.inputs, node.properties.input_dtypes, strict=True)
        ]
        try:
            kernel = self._kernels.get(node) or self._make(node)
            with np.errstate(all="ignore"):
                result = kernel(*values)
        except OpError as error:
            raise error.locate(node) from error.__cause__
        if node.op_def.returns_tuple and result is not DEAD:
            return tuple(result or ())
        return result if result is DEAD else (result,)

    def _make(self, node: Node) -> Kernel:
        properties = node.properties
        if node.op in node.graph.functions or any("func" in attr.kind for attr in node.op_def.attrs.values()):
            raise UnimplementedError("calls of functions have no plain evaluation", node=node)
        registration = properties.registration.kernel or kernel_registry.lookup(node.op, "CPU", properties.attrs)
        kernel = registration.factory(
            OpKernelConstruction(
                node.name,
                properties.op_def,
                properties.attrs,
                properties.input_dtypes,
                properties.output_dtypes,
                self._resource_mgr,
                node.output_shapes,
            )
        )
        if registration.kind is KernelKind.ASYNC or isinstance(kernel, AsyncKernel):
            raise UnimplementedError("a kernel that must be awaited has no plain evaluation", node=node)
        self._kernels[node] = kernel
        return kernel
