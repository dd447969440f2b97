"""While and For: a frame, with the bodies of condition and body in it.

After ``tensorflow/core/common_runtime/lower_while_op.cc``::

    input -> Enter -> Merge -> condition -> LoopCond -> Switch -> (false) Exit -> output
                        ^                                 |
                        +-- NextIteration <-- body <-- (true)

A variable that the body gives back as it was is not carried around but entered once, for every iteration.  It is there
also where the loop ends, so what the body does with such variables alone waits for the body's pivot.  Iterations
overlap, unless something in them is stateful: then an iteration begins when the one before has done everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE
from asyncexec.framework.types import as_dtype
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.ops.flow.functional import FOR_END
from asyncexec.optimization.expansion import Call, Expansion, Inlining, Lowering, Task, check_dtypes
from asyncexec.optimization.lower_cond import predicate
from asyncexec.optimization.private_nodes import PrivateNodes

_PARALLEL_ITERATIONS: Final = 10  # of a For, which has no attr for it


class _Frame:
    """A loop while it is built.

    Attributes:
        merges: the variables that are carried around, as the condition sees them.
        switches: the same, decided on; output 1 goes into the body.
        exits: the same, after the loop.
        leader: the position of the variable that pivots are made of: one that the condition takes, for the others
            need not be there if nothing takes them.
    """

    def __init__(self, nodes: PrivateNodes, call: Call, after: Node | None, parallel_iterations: int) -> None:
        self._nodes = nodes
        self._call = call
        self._name = call.name
        self._after = after
        frame = nodes.frame_name(call.name).encode()
        self._attrs = {"frame_name": frame, "parallel_iterations": max(1, parallel_iterations)}
        self.leader = 0
        self.merges: list[Node] = []
        self.switches: list[Node] = []
        self.exits: list[Tensor] = []

    def enter(self, tensor: Tensor, *, is_constant: bool = False) -> Tensor:
        """*tensor* inside the loop."""
        attrs = {"T": tensor.dtype.base_dtype, "is_constant": is_constant, **self._attrs}
        shapes = [tensor.shape if is_constant else UNKNOWN_SHAPE]
        name = f"{self._name}/enter"
        return self._nodes.add("Enter", name, [tensor], [self._after], attrs=attrs, shapes=shapes).outputs[0]

    def carry(self, tensor: Tensor) -> Tensor:
        """*tensor* as the first value of a variable; what the condition sees of it."""
        entered = self.enter(tensor)
        attrs = {"T": entered.dtype, "N": 2}
        merge = self._nodes.add("Merge", f"{self._name}/merge", [entered, entered], attrs=attrs)
        self.merges.append(merge)
        return merge.outputs[0]

    def decide(self, condition: Tensor, after: Node | None) -> Node:
        """Go on while *condition*; the pivot of the body."""
        nodes, name = self._nodes, self._name
        decides = predicate(nodes, self._call, condition, f"{name}/predicate", after)
        loop_cond = nodes.add("LoopCond", f"{name}/loop_cond", [decides], shapes=[decides.shape]).outputs[0]
        for merge in self.merges:
            value = merge.outputs[0]
            switch = nodes.add("Switch", f"{name}/switch", [value, loop_cond], attrs={"T": value.dtype})
            exited = nodes.add("Exit", f"{name}/exit", switch.outputs[:1], attrs={"T": value.dtype})
            self.switches.append(switch)
            self.exits.append(exited.outputs[0])
        return nodes.identity(self.switches[self.leader].outputs[1], f"{name}/body/pivot").op

    def close(self, values: Sequence[Tensor], after: Node | None) -> None:
        """Go round with *values*, once *after* has run."""
        for merge, value in zip(self.merges, values, strict=True):
            attrs = {"T": value.dtype.base_dtype}
            going = self._nodes.add("NextIteration", f"{self._name}/next_iteration", [value], [after], attrs=attrs)
            merge.inputs = (merge.inputs[0], going.outputs[0])

    def make_end(self) -> Node | None:
        """What runs when the loop has ended."""
        return self._nodes.join(f"{self._name}/output_control", [tensor.op for tensor in self.exits])


def lower_while(lowering: Lowering, call: Call) -> Task:
    """Replace a While or StatelessWhile."""
    nodes, inputs = lowering.nodes, call.inputs
    after, pivot = lowering.entry(call)
    frame = _Frame(nodes, call, after, _parallel_iterations(call))
    is_constant = _constants(lowering, call)
    seen = [frame.enter(t, is_constant=True) if is_constant[i] else frame.carry(t) for i, t in enumerate(inputs)]
    constants = frozenset(tensor for i, tensor in enumerate(seen) if is_constant[i])
    if len(constants) == len(inputs):
        frame.carry(_nothing(nodes, f"{call.name}/nothing", after or pivot))
    ignored = lowering.body(call, call.attr("cond"), inputs, f"{call.name}/cond").unused
    moving = [i for i in range(len(inputs)) if not is_constant[i]]
    frame.leader = next((position for position, i in enumerate(moving) if i not in ignored), 0)
    pivot = frame.merges[frame.leader]
    condition, end = yield from _inlined(lowering, call, call.attr("cond"), "cond", seen, pivot)
    if len(condition) != 1:
        raise InvalidArgumentError(f"the condition of a loop gives 1 output, not {len(condition)}", node=call)
    body_pivot = frame.decide(condition[0], end)
    carried = iter(frame.switches)
    given = [tensor if is_constant[i] else next(carried).outputs[1] for i, tensor in enumerate(seen)]
    values, end = yield from _inlined(lowering, call, call.attr("body"), "body", given, body_pivot, constants)
    check_dtypes(call, "outputs of the body", values, call.template.properties.output_dtypes)
    rest = [switch.outputs[1] for switch in carried]  # of the variable that is there if there is no other
    frame.close([values[i] for i in moving] + rest, end)
    exits = iter(frame.exits)
    ended = frame.exits[frame.leader].op
    outputs = [
        nodes.identity(tensor, f"{call.name}/constant", ended) if is_constant[i] else next(exits)
        for i, tensor in enumerate(inputs)
    ]
    return Expansion(tuple(outputs), frame.make_end)


def lower_for(lowering: Lowering, call: Call) -> Task:
    """Replace a For: a loop over an index that the body gets before the variables."""
    nodes, int32 = lowering.nodes, {"T": as_dtype("int32")}
    after, _ = lowering.entry(call)
    end_properties = NodeProperties(FOR_END, {}, (as_dtype("int32"),) * 3, (as_dtype("int32"),))
    end_index = nodes.make(end_properties, f"{call.name}/end", call.inputs[:3], [after], shapes=[SCALAR]).outputs[0]
    frame = _Frame(nodes, call, after, _PARALLEL_ITERATIONS)
    start, _, delta, *variables = call.inputs
    last, step = frame.enter(end_index, is_constant=True), frame.enter(delta, is_constant=True)
    index, *_ = [frame.carry(tensor) for tensor in (start, *variables)]
    goes_on = nodes.add("NotEqual", f"{call.name}/condition", [index, last], attrs=int32, shapes=[SCALAR]).outputs[0]
    pivot = frame.decide(goes_on, None)
    given = [switch.outputs[1] for switch in frame.switches]
    values, end = yield from _inlined(lowering, call, call.attr("body"), "body", given, pivot)
    check_dtypes(call, "outputs of the body", values, call.template.properties.output_dtypes)
    following = nodes.add("AddV2", f"{call.name}/next_index", [given[0], step], attrs=int32, shapes=[SCALAR])
    frame.close([following.outputs[0], *values], end)
    return Expansion(tuple(frame.exits[1:]), frame.make_end)


def _parallel_iterations(call: Call) -> int:
    wanted: int = call.attr("parallel_iterations")
    if wanted < 0:
        raise InvalidArgumentError(f"parallel_iterations is 1 or more, not {wanted}", node=call)
    return wanted


def _constants(lowering: Lowering, call: Call) -> list[bool]:
    """For each variable whether the body gives it back as it was."""
    body = lowering.body(call, call.attr("body"), call.inputs, f"{call.name}/body")
    same = [arg is tensor.op for arg, tensor in zip(body.args, body.returns, strict=False)]
    return [i < len(same) and same[i] for i in range(len(call.inputs))]


def _nothing(nodes: PrivateNodes, name: str, after: Node | None) -> Tensor:
    """A value to enter the loop with, where it has no variable."""
    attrs: dict[str, object] = {"value": np.bool_(False), "dtype": as_dtype("bool")}
    return nodes.add("Const", name, controls=[after], attrs=attrs, shapes=[SCALAR]).outputs[0]


def _inlined(
    lowering: Lowering,
    call: Call,
    function: NameAttrList,
    label: str,
    inputs: Sequence[Tensor],
    pivot: Node,
    ungated: frozenset[Tensor] = frozenset(),
) -> Any:
    """The outputs of *function*, and what runs when it has done all that it does, if it is more than giving them."""
    before = lowering.nodes.num_stateful
    prefix = f"{call.name}/{label}"
    inlined: Expansion = yield Inlining(call, function, prefix, tuple(inputs), None, pivot, ungated)
    return inlined.outputs, inlined.end if lowering.nodes.num_stateful > before else None
