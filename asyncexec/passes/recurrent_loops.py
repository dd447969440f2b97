"""Loops over time steps become recurrent layers: LSTM, GRU and RNN, as Keras and TensorFlow write them.

Theory
------
A loop of TensorFlow is a frame, whether it was written as one or as a While, which has been lowered by now.  Its
variables are of four kinds, and there is nothing else in it::

    a counter      0, 1, 2, ...                         the condition compares it with the number of steps
    an invariant   the same in every round              the input, a list that a tensor was cut into; weights
    a list         an element is replaced in each round with the new state: that of the step, or always the first
    states         h, and c in an LSTM                  a cell gives the new ones (``recurrent_cells``)

Such a loop is a node of ONNX, whose weights are constants.  A list that is stacked afterwards is its first output, or
its last state where the list has one element; the states that leave the loop are the others.  Nothing is replaced
unless the sizes are known to be equal: of the steps, and of the rows of the input and the states.  Where a state begins
with zeros it is left out.

Loops in loops stay, as the node would need its weights in the outer one.

What the new node does not take has to be live whenever it runs, and without effects.  So that may depend on no branch,
and on nothing stateful, that the node does not depend on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.cooperative import FEW, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import freeze
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float32
from asyncexec.graph.control_flow_info import MERGES, ControlFlowInfo, Frame
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.node_facts import IDENTITIES, PLACEHOLDERS, ops_of
from asyncexec.passes.pass_graph import PassGraph
from asyncexec.passes.recurrent_algebra import Source, Sum, UnknownFormError
from asyncexec.passes.recurrent_body import (
    Body,
    Following,
    Known,
    Limits,
    Matrix,
    Outside,
    Read,
    Variable,
    Written,
    is_number,
)
from asyncexec.passes.recurrent_cells import Cell, find_cell
from asyncexec.passes.tensor_sizes import Size, number_of, size_of, value_of
from asyncexec.process.imports import looked_up
from asyncexec.process.onnx_model import OPSET

_MOST_NODES: Final = 256  # of a loop
_MOST_BYTES: Final = 32 << 20  # of weights, which are put in order at once
_LENGTHS: Final = 4  # the input that tells how long sequences are
_LISTS: Final = frozenset(
    "TensorListFromTensor TensorListGetItem TensorListReserve TensorListSetItem "
    "TensorArrayReadV3 TensorArrayScatterV3 TensorArrayV3 TensorArrayWriteV3".split()
)
_WAITING: Final = frozenset({"NoOp", "ControlTrigger"})
_TRANSPARENT: Final = _LISTS | _WAITING | IDENTITIES


def fuse_recurrent_loops(graph: PassGraph) -> Stage[None]:
    """The pass."""
    yield from fold_constants(graph)
    nodes = list(graph)
    fed = frozenset((tensor.op, tensor.index) for tensor in graph.feeds)
    flow = yield from ControlFlowInfo.stage(nodes, fed)
    inside: dict[Frame, list[Node]] = {frame: [] for frame in flow.frames if frame.loop_cond is not None}
    for node in nodes:
        frame = flow.frame_of(node)
        if frame in inside:
            inside[frame].append(node)
    outer = {frame.parent for frame in flow.frames}
    for frame, found in inside.items():
        if frame not in outer and frame.parent is flow.root and len(found) <= _MOST_NODES:
            try:
                layer = yield from _Loop(graph, frame, found).layer()
            except UnknownFormError:
                continue
            yield from looked_up([f"Onnx>{layer.cell.op}"])
            yield from layer.make(graph)
            yield from graph.tidy()


def may_have_recurrent_loops(nodes: Sequence[Node]) -> Stage[bool]:
    """Whether any of *nodes* may be a part of such a loop, as a stage."""
    ops = yield from ops_of(nodes)
    return {"LoopCond", "Tanh"} <= ops and not ops.isdisjoint({"TensorListFromTensor", "TensorArrayScatterV3"})


class _Layer(NamedTuple):
    """A loop, and what takes its place.

    Attributes:
        x: the input, step by step; first: the initial states, where these are not zero.
        stacks: nodes that stack all outputs; ends: nodes that stack the last one, of which all but it is left out.
        exits: of the states that are taken, in the order of the outputs; others: nodes that go, with the loop.
    """

    cell: Cell
    name: str
    x: Tensor
    first: tuple[Tensor, ...]
    stacks: list[Node]
    ends: list[Node]
    exits: list[list[Node]]
    others: list[Node]

    def make(self, graph: PassGraph) -> Stage[None]:
        """Put the layer in the place of the loop, as a stage."""
        yield
        made = self._node(graph)
        yield
        outputs = [*((node, 0, 1) for node in self.stacks), *((node, 1, None) for node in self.ends)]
        outputs += [(node, slot, 0) for slot, nodes in enumerate(self.exits, 1) for node in nodes]
        for node, slot, axis in outputs:
            op, attrs = ("Identity", {}) if axis is None else ("Squeeze", {"squeeze_dims": (axis,)})
            registration = op_registry.lookup(op)
            properties = properties_of(registration, registration.op_def.complete_attrs({"T": float32, **attrs}))
            graph.convert(node, properties, [made.outputs[slot]], (), shapes=node.output_shapes)
        kept = {node for node, _, _ in outputs}
        for node in self.others:
            if node not in kept:
                graph.replace_control(node, made)
                graph.remove(node)

    def _node(self, graph: PassGraph) -> Node:
        steps, rows = (self.x.shape.dims or (None,) * 3)[:2]
        size = self.cell.size
        states = [TensorShape([1, rows, size])] * len(self.cell.states)
        shapes = (TensorShape([steps, 1, rows, size]), *states)
        weights = [
            self._add(graph, "Const", (), {"value": freeze(array), "dtype": float32}) for array in self.cell.weights
        ]
        first = [self._add(graph, "ExpandDims", [tensor, np.int32(0)], {}) for tensor in self.first]
        inputs = [self.x, *weights, *first]
        attrs = {
            **self.cell.attrs,
            "opset": OPSET,
            "absent_inputs": (_LENGTHS,) if first else (),
            "Tin": (float32,) * len(inputs),
            "Tout": (float32,) * len(shapes),
            "output_shapes": shapes,
        }
        return graph.add(f"Onnx>{self.cell.op}", [inputs], attrs, name=self.name, like=self.stand_in)

    def _add(self, graph: PassGraph, op: str, inputs: Sequence[object], attrs: Mapping[str, object]) -> Tensor:
        return graph.add(op, inputs, attrs, name=f"{self.name}/{op}", like=self.stand_in).outputs[0]

    @property
    def stand_in(self) -> Node:
        """A node of the same device."""
        return self.others[0]


class _Loop:
    """The loop that *frame* is, with its *nodes*."""

    def __init__(self, graph: PassGraph, frame: Frame, nodes: Sequence[Node]) -> None:
        self._graph = graph
        self._frame = frame
        self._nodes = nodes
        self._entered: dict[Node, Tensor] = {}  # by Merge, what comes from outside
        self._back: dict[Node, Node] = {}  # by Merge, its NextIteration

    def layer(self) -> Stage[_Layer]:
        """What takes the place of the loop, as a stage.

        Raises:
            UnknownFormError: it is none of those that are known.
        """
        self._check_nodes()
        body, merges = self._body(), [node for node in self._nodes if node.op in MERGES]
        for merge in merges:
            self._note_variable(merge)
        for count, node in enumerate((*self._frame.enters, *self._nodes)):
            if not count % FEW:
                yield
            if node.op != "Exit":
                body.add(node)
        yield
        after = {merge: body.of(self._back[merge].outputs[0]) for merge in merges if self._invariant(merge) is None}
        states: dict[Source, Sum] = {merge: known.sum for merge, known in after.items() if isinstance(known, Matrix)}
        lists = {merge: known for merge, known in after.items() if isinstance(known, Written)}
        counters = {merge for merge, known in after.items() if known == Following(Variable(merge))}
        _require(len(states) + len(lists) + len(counters) == len(after) and len(lists) < 2)
        x = self._input(body, counters)
        yield
        cell = find_cell(x, states)
        yield
        _require(sum(array.nbytes for array in cell.weights) <= _MOST_BYTES)
        _require(all(number_of(self._entered[merge], self._graph.is_fed) == 0 for merge in counters))
        self._check_steps(body.of(self._frame.loop_cond.outputs[0]), counters, x)  # type: ignore[union-attr]
        stacks, ends = self._stacked(lists, x, cell, after)
        known = {leaving for merge in merges for leaving in self._exits_of(merge)}
        _require(all(node in known for node in self._nodes if node.op == "Exit"))
        exits = [[leaving for leaving in self._exits_of(merge) if self._is_taken(leaving)] for merge in cell.states]
        for merge in merges:
            _require(
                merge in states
                or merge in lists
                or not any(self._is_taken(leaving) for leaving in self._exits_of(merge))
            )
        first = self._first(cell, x)
        _require(not (ends and first) or self._has_steps(x))
        self._check_origins([x.tensor, *first])
        name = f"{self._frame.name}/{cell.op.lower()}"
        others = [*self._frame.enters, *self._nodes]
        return _Layer(cell, name, x.tensor, first, stacks, ends, exits, others)

    def _check_nodes(self) -> None:
        graph, where = self._graph, {self._graph.device_of(node) for node in (*self._frame.enters, *self._nodes)}
        _require(len(where) == 1 and graph.runs_on_host(self._nodes[0]))
        for node in (*self._frame.enters, *self._nodes):
            facts = graph.facts.of(node)
            _require(facts.is_pure or facts.is_flow or node.op in _TRANSPARENT)
            _require(not graph.is_kept(node) or node.op == "Exit")
            _require(not any(graph.is_fed(tensor) for tensor in node.outputs))

    def _body(self) -> Body:
        assert self._frame.loop_cond is not None
        return Body(self._frame.loop_cond.outputs[0], self._value, self._invariant)

    def _value(self, tensor: Tensor) -> Any:
        return value_of(tensor, self._graph.is_fed)

    def _note_variable(self, merge: Node) -> None:
        by_op = {tensor.op.op: tensor for tensor in merge.inputs}
        _require(set(by_op) == {"Enter", "NextIteration"} and len(merge.inputs) == len(by_op))
        _require(not self._graph.consumers(merge.outputs[1]) and not by_op["Enter"].op.attrs["is_constant"])
        self._entered[merge] = by_op["Enter"].op.inputs[0]
        self._back[merge] = by_op["NextIteration"].op

    def _invariant(self, merge: Node) -> Tensor | None:
        """What *merge* is in every round, if it is always the same."""
        tensor = self._back[merge].inputs[0]
        while tensor.op.op in IDENTITIES:
            tensor = tensor.op.inputs[0]
        is_same = tensor.op.op == "Switch" and tensor.op.inputs[0] is merge.outputs[0]
        return self._entered[merge] if is_same else None

    def _input(self, body: Body, counters: set[Node]) -> Read:
        """The list whose elements are the input."""
        found = {
            source
            for known in body.known.values()
            if isinstance(known, Matrix)
            for affine in known.sum.values()
            for source in affine.weights
            if isinstance(source, Read)
        }
        _require(len(found) == 1)
        (read,) = found
        _require(read.at.merge in counters)
        if read.made.op == "TensorArrayScatterV3":
            array = read.made.inputs[0].op
            _require(array.op == "TensorArrayV3" and array.attrs["dtype"] is float32)
            _require(self._counts(read.made.inputs[1], size_of(read.tensor, 0, self._graph.is_fed)))
            self._check_handle(array, {"TensorArrayScatterV3"})
            _require(read.made.inputs[3].op is array and len(self._graph.consumers(array.outputs[1])) == 1)
        return read

    def _check_steps(self, condition: Known, counters: set[Node], x: Read) -> None:
        """UnknownFormError unless there are as many rounds as steps of *x*."""
        _require(isinstance(condition, Limits))
        steps, is_fed = size_of(x.tensor, 0, self._graph.is_fed), self._graph.is_fed
        limits: list[Size | None] = []
        for variable, limit in condition.pairs:
            _require(variable.merge in counters)
            limits.append(number_of(limit.tensor, is_fed) if isinstance(limit, Outside) else _number(limit))
        _require(steps is not None and steps in limits)
        for each in limits:
            _require(each == steps or (isinstance(each, int) and isinstance(steps, int) and each > steps))

    def _stacked(
        self, lists: dict[Node, Written], x: Read, cell: Cell, after: dict[Node, Known]
    ) -> tuple[list[Node], list[Node]]:
        """The nodes that stack all outputs, or that stack the last one."""
        stacks: list[Node] = []
        for merge, written in lists.items():
            has_all = isinstance(written.at, Variable)
            steps = size_of(x.tensor, 0, self._graph.is_fed) if has_all else 1
            _require(written.variable.merge is merge and written.value is after[cell.states[0]].sum)
            _require(written.at == x.at if has_all else written.at == 0)
            self._check_made(self._entered[merge].op, written, steps)
            for leaving in self._exits_of(merge):
                _require(not self._graph.is_kept(leaving))
                for taker in self._graph.consumers(leaving.outputs[0]):
                    self._check_taker(taker, leaving, written, steps)
                    stacks.append(taker)
            if not has_all:
                return [], stacks
        return stacks, []

    def _check_made(self, made: Node, written: Written, steps: Size | None) -> None:
        """UnknownFormError unless *made* is a list, or an array, of so many elements, of which none is there before."""
        if written.made is None:
            _require(made.op == "TensorListReserve" and number_of(made.inputs[1], self._graph.is_fed) == steps)
            return
        _require(made is written.made and made.op == "TensorArrayV3" and made.attrs["dtype"] is float32)
        _require(number_of(made.inputs[0], self._graph.is_fed) == steps and isinstance(written.at, Variable))
        self._check_handle(made, {"TensorArrayGatherV3"})

    def _check_handle(self, made: Node, others: AbstractSet[str]) -> None:
        """UnknownFormError unless nothing uses the array *made* but the loop and nodes of the ops *others*."""
        for user in self._graph.consumers(made.outputs[0]):
            _require(user in self._frame.enters or user.op in others)

    def _check_taker(self, taker: Node, leaving: Node, written: Written, steps: Size | None) -> None:
        """UnknownFormError unless *taker* stacks all elements of what is *leaving* the loop."""
        if written.made is None:
            _require(taker.op == "TensorListStack" and taker.inputs[0].op is leaving)
            _require(taker.attrs["num_elements"] in (-1, steps))
        else:
            _require(taker.op == "TensorArrayGatherV3" and taker.inputs[0].op is written.made)
            _require(self._counts(taker.inputs[1], steps))
        _require(not taker.control_inputs and not self._graph.is_fed(taker.outputs[0]))
        _require(self._graph.device_of(taker) == self._graph.device_of(leaving))

    def _counts(self, tensor: Tensor, steps: Size | None) -> bool:
        """Whether *tensor* is all numbers from 0 to *steps*, in order."""
        is_fed = self._graph.is_fed
        value = self._value(tensor)
        if value is not None:
            return isinstance(steps, int) and np.array_equal(value, np.arange(steps))
        return (
            tensor.op.op == "Range"
            and not is_fed(tensor)
            and [number_of(each, is_fed) for each in tensor.op.inputs] == [0, steps, 1]
        )

    def _exits_of(self, merge: Node) -> list[Node]:
        return [
            leaving
            for switch in self._graph.consumers(merge.outputs[0])
            if switch.op == "Switch"
            for leaving in self._graph.consumers(switch.outputs[0])
            if leaving.op == "Exit"
        ]

    def _is_taken(self, leaving: Node) -> bool:
        """Whether anything takes the value that leaves the loop, be it the caller."""
        return self._graph.is_kept(leaving) or bool(self._graph.consumers(leaving.outputs[0]))

    def _first(self, cell: Cell, x: Read) -> tuple[Tensor, ...]:
        """The states before the first step; none of them where all are zero."""
        is_fed = self._graph.is_fed
        first = tuple(self._entered[merge] for merge in cell.states)
        for tensor in first:
            rows = size_of(tensor, 0, is_fed)
            _require(tensor.shape.rank == 2 and rows is not None and rows == size_of(x.tensor, 1, is_fed))
            _require(size_of(tensor, 1, is_fed) == cell.size)
        return () if all(map(self._is_zero, first)) else first

    def _has_steps(self, x: Read) -> bool:
        """Whether there is at least one step of *x*: else what stacks the last output gets zeros."""
        steps = size_of(x.tensor, 0, self._graph.is_fed)
        return isinstance(steps, int) and steps > 0

    def _is_zero(self, tensor: Tensor) -> bool:
        is_filled = tensor.op.op == "Fill" and not self._graph.is_fed(tensor)
        value = self._value(tensor.op.inputs[1] if is_filled else tensor)
        return value is not None and not np.any(value)

    def _check_origins(self, kept: Sequence[Tensor]) -> None:
        """UnknownFormError if the loop depends on a branch, or on effects, that *kept* does not depend on."""
        entered = [tensor for enter in self._frame.enters for tensor in enter.inputs]
        controls = {control for enter in self._frame.enters for control in enter.control_inputs}
        _require(self._origins(entered, controls) <= self._origins(kept, ()))

    def _origins(self, tensors: Iterable[Tensor], controls: Iterable[Node]) -> set[tuple[Node, int]]:
        """The outputs of control flow, and the nodes that are not pure, that these depend on."""
        graph, found = self._graph, set()
        pending = [*((tensor.op, tensor.index) for tensor in tensors if not graph.is_fed(tensor))]
        pending += [(control, -1) for control in controls]
        seen = set(pending)
        while pending:
            node, index = pending.pop()
            facts = graph.facts.of(node)
            if not (facts.is_pure or node.op in _TRANSPARENT or node.op in PLACEHOLDERS):
                found.add((node, index) if facts.is_flow else (node, 0))
                continue
            before = [(tensor.op, tensor.index) for tensor in node.inputs if not graph.is_fed(tensor)]
            fresh = set(before) | {(control, -1) for control in node.control_inputs}
            pending += fresh - seen
            seen |= fresh
        return found


def _number(limit: Known) -> Size | None:
    return int(limit) if is_number(limit) else None


def _require(condition: object) -> None:
    if not condition:
        raise UnknownFormError("it is no recurrent layer")
