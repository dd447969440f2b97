"""Nodes -> Program: the structure that Switches, Merges and frames were made of, found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from asyncexec.compilation.bind_kernel import TRANSFERS
from asyncexec.compilation.graph_view import CONTROL_FLOW_OPS
from asyncexec.compilation.guarded_kernels import GuardedKernel
from asyncexec.framework.cooperative import STRIDE, Stage, release
from asyncexec.framework.kernel import CheckedKernel, Kernel, do_nothing, pass_on, switch
from asyncexec.framework.shape_inference import broadcast, merged, unchanged
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, ControlFlowInfo, Frame
from asyncexec.graph.node import Node, Tensor
from asyncexec.pruning.prune import ClientGraph
from asyncexec.regions.conditions import chooser, covered, number_of, truth
from asyncexec.regions.loops import check_loop
from asyncexec.regions.program import (
    ALWAYS,
    MAX_CONDITIONS,
    AwaitedKernel,
    Call,
    Carried,
    Condition,
    Joint,
    Liveness,
    Loop,
    Move,
    Program,
    Scope,
    Unit,
    UnstructuredError,
    Value,
)
from asyncexec.regions.states import NEVER, Activation, State
from asyncexec.regions.sums import MANY, split_sum
from asyncexec.regions.waits import check_waits

Bind: TypeAlias = Callable[[Node, frozenset[tuple[Node, int]]], Kernel | AwaitedKernel]
Key: TypeAlias = tuple[Node, int]

_ELEMENTWISE: Final = (broadcast, merged, unchanged)  # shape functions of ops that make scalars of scalars


def find_structure(graph: ClientGraph, bind: Bind) -> Stage[Program]:
    """The program that *graph* is, as a stage; *bind* gives the kernels.

    Where *graph* is a part of another, control edges from elsewhere are the caller's to wait for.

    Raises:
        UnstructuredError: it is none.
    """
    fed = frozenset((tensor.op, tensor.index) for tensor in graph.feeds)
    flow = yield from ControlFlowInfo.stage(graph.nodes, fed)
    growing: set[Node] = set()  # variables of loops that begin as scalars and do not stay such
    while True:
        finder = _Finder(graph, flow, fed, bind, growing)
        for count, node in enumerate(graph.nodes):
            finder.add(node)
            if not count % (STRIDE // 4) or len(node.inputs) > MANY:  # for each, a kernel is found
                yield
        program = finder.finish()
        yield from release(finder.states, finder.activations)
        if not finder.grown:
            yield from check_waits(program)
            return program
        growing |= finder.grown


class _Finder:
    def __init__(
        self, graph: ClientGraph, flow: ControlFlowInfo, fed: frozenset[Key], bind: Bind, growing: AbstractSet[Node]
    ) -> None:
        self._graph = graph
        self._flow = flow
        self._fed = fed
        self._bind = bind
        self._here = frozenset(graph.nodes)
        self._root = Scope()
        self._loops: dict[Frame, Loop] = {}
        self._entered: dict[Loop, Liveness] = {}
        self._invariants: dict[Loop, set[Liveness]] = {}  # when the constants of a loop are live
        self.states: dict[Key, State] = {}
        self.activations: dict[Node, Activation] = {}
        self._initial: dict[Key, State] = {}  # what Enters bring that are no constants
        self._open: list[tuple[Carried, Key, Node]] = []  # variables whose next value has not been met
        self._growing = growing
        self.grown: set[Node] = set()
        self._sides: dict[Value, int] = {}  # how many sides a predicate has
        self._tested: dict[tuple[Value, Liveness, int], Value] = {}  # what tells the side, of what may be no scalar
        self._given = tuple(Value(is_scalar=_is_scalar(tensor)) for tensor in graph.feeds)
        for tensor, value in zip(graph.feeds, self._given, strict=True):
            self.states[tensor.op, tensor.index] = State(value, ALWAYS)

    # What every node goes through.

    def add(self, node: Node) -> None:
        """Take the next node; its inputs have been taken, but for those that come round a loop."""
        op = node.op
        if op in TRANSFERS or (op in CONTROL_FLOW_OPS and any(tensor.dtype.is_ref for tensor in node.inputs)):
            raise UnstructuredError(f"{node.name!r} is a {op}")
        if op in ENTERS:
            self._enter(node)
        elif op in MERGES:
            self._merge(node)
        elif op in NEXT_ITERATIONS:
            self._next_iteration(node)
        elif op in EXITS:
            self._exit(node)
        elif op == "LoopCond":
            self._loop_cond(node)
        elif op == "Const":
            self._constant(node)
        elif op == "ControlTrigger":
            after = self._join(self._scope(node), ALWAYS, *[control.after for control in self._controls(node)])
            self._give(node, (), Activation(after, ALWAYS))
        else:
            self._node(node)

    def _scope(self, node: Node) -> Scope:
        frame = self._flow.frame_of(node)
        return self._root if frame.parent is None else self._loop(frame).body

    def _loop(self, frame: Frame) -> Loop:
        loop = self._loops.get(frame)
        if loop is None:
            assert frame.parent is not None
            outer = self._root if frame.parent.parent is None else self._loop(frame.parent).body
            loop = self._loops[frame] = Loop(outer, frame.name)
        return loop

    def _state(self, tensor: Tensor) -> State:
        state = self.states.get((tensor.op, tensor.index))
        if state is None:
            raise UnstructuredError(f"{tensor.name!r} is taken where it is not known")
        return state

    def _controls(self, node: Node) -> Iterable[Activation]:
        for control in node.control_inputs:
            activation = self.activations.get(control)
            if activation is not None:
                yield activation
            elif control in self._here:
                raise UnstructuredError(f"{node.name!r} waits for {control.name!r}, which is not known")

    def _give(self, node: Node, states: Sequence[State], activation: Activation) -> None:
        """Note what *node* gives, but for what the caller feeds in its place."""
        for index, state in enumerate(states):
            if (node, index) not in self._fed:
                self.states[node, index] = state
        self.activations[node] = activation

    # Ops that run, or that hand on what they get.

    def _node(self, node: Node) -> None:
        scope, kernel = self._scope(node), self._bind(node, self._fed)
        inputs = [self._state(tensor) for tensor in node.inputs]
        controls = list(self._controls(node))
        liveness = self._union(node, [*inputs, *controls])
        if liveness is None:
            self._die(node)
            return
        if kernel is switch:
            self._switch(node, scope, inputs, controls, liveness, 2)
        elif node.op == "_SwitchN":
            self._switch(node, scope, inputs, controls, liveness, int(node.get_attr("num_outs")))
        elif kernel is pass_on:
            after = self._join(scope, liveness, inputs[0].after, *[control.after for control in controls])
            value = inputs[0].value
            self._give(node, [State(value, liveness, after)], Activation(after or value.unit, liveness))
        elif kernel is do_nothing:
            waits_for = self._join(scope, liveness, *[control.after for control in controls])
            self._give(node, (), Activation(waits_for, liveness))
        else:
            self._call(node, kernel, scope, inputs, controls, liveness)

    def _call(
        self,
        node: Node,
        kernel: Kernel | AwaitedKernel,
        scope: Scope,
        inputs: Sequence[State],
        controls: Sequence[Activation],
        liveness: Liveness,
    ) -> None:
        check = ticket = None
        if isinstance(kernel, CheckedKernel):
            check, kernel = kernel.check, kernel.function
        elif isinstance(kernel, AwaitedKernel):
            ticket, kernel = kernel.ticket, kernel.start
        kernel, values = split_sum(node, kernel, scope, inputs, liveness)
        call = Call(scope, liveness, node, kernel, values)
        call.check, call.ticket = check, ticket
        if ticket is not None:
            call.note_awaited()
        call.returns_tuple = node.op_def.returns_tuple
        call.is_foreign = node.properties.registration.kernel is not None or isinstance(kernel, GuardedKernel)
        call.come_after(*[state.after for state in inputs], *[control.after for control in controls])
        is_elementwise = node.properties.registration.shape_function in _ELEMENTWISE
        keeps_scalars = is_elementwise and all(value.is_scalar for value in call.inputs)
        call.outputs = [Value(call, is_scalar=keeps_scalars or _is_scalar(tensor)) for tensor in node.outputs]
        self._give(node, [State(value, liveness) for value in call.outputs], Activation(call, liveness))

    def _constant(self, node: Node) -> None:
        scope, controls = self._scope(node), list(self._controls(node))
        liveness = self._union(node, controls)
        if liveness is None:
            self._die(node)
            return
        after = self._join(scope, liveness, *[control.after for control in controls])
        kernel = self._bind(node, self._fed)
        assert not isinstance(kernel, AwaitedKernel)
        value = Value(constant=kernel(), is_scalar=_is_scalar(node.outputs[0]))
        self._give(node, [State(value, liveness, after)], Activation(after, liveness))

    def _die(self, node: Node) -> None:
        dead = State(NEVER, ALWAYS)
        self._give(node, [dead] * len(node.output_shapes), Activation(None, frozenset({(NEVER, 0)})))

    def _union(self, node: Node, states: Iterable[State | Activation]) -> Liveness | None:
        """When something with these inputs runs; None for never."""
        liveness: set[Condition] = set()
        for state in states:
            if isinstance(state, State) and state.value is NEVER:
                return None
            liveness |= state.liveness
        if len(liveness) > 1:
            if len({pred for pred, _ in liveness}) < len(liveness) or any(pred is NEVER for pred, _ in liveness):
                return None
            if len(liveness) > MAX_CONDITIONS:
                raise UnstructuredError(f"{node.name!r} stands under {len(liveness)} conditions")
        elif any(pred is NEVER for pred, _ in liveness):
            return None
        return frozenset(liveness)

    def _join(self, scope: Scope, liveness: Liveness, *units: Unit | None) -> Unit | None:
        """What comes after all of *units*."""
        distinct = [unit for unit in dict.fromkeys(units) if unit is not None and unit.scope is scope]
        if len(distinct) < 2:
            return distinct[0] if distinct else None
        joint = Joint(scope, liveness)
        joint.come_after(*distinct)
        return joint

    # Branches.

    def _switch(
        self,
        node: Node,
        scope: Scope,
        inputs: Sequence[State],
        controls: Sequence[Activation],
        liveness: Liveness,
        sides: int,
    ) -> None:
        data, pred = inputs
        decides, tested = self._predicate(node, scope, pred, node.inputs[1], sides)
        after = self._join(scope, liveness, data.after, pred.after, tested, *[control.after for control in controls])
        states = []
        for side in range(sides):
            taken = self._with(liveness, (decides, side))
            states.append(State(NEVER, ALWAYS) if taken is None else State(data.value, taken, after))
        self._give(node, states, Activation(self._join(scope, liveness, after, data.value.unit), liveness))

    def _predicate(
        self, node: Node, scope: Scope, pred: State, tensor: Tensor, sides: int
    ) -> tuple[Value, Unit | None]:
        """The value that an ``if`` asks, and the unit that makes sure that it can."""
        is_plain = sides == 2 and (pred.value.is_scalar or _is_scalar(tensor))
        is_elsewhere = pred.after is not None and (pred.value.unit is None or pred.value.unit.scope is not scope)
        is_itself = is_plain and not is_elsewhere
        known = pred.value if is_itself else self._tested.get((pred.value, pred.liveness, sides))
        if known is None:
            known = self._moved(scope, pred) if is_plain else self._test(node, scope, pred, sides)
            self._tested[pred.value, pred.liveness, sides] = known
        if self._sides.setdefault(known, sides) != sides:
            raise UnstructuredError(f"{node.name!r} asks {tensor.name!r} for other sides than others do")
        known.depth = min(known.depth, len(pred.liveness))
        return known, known.unit

    @staticmethod
    def _moved(scope: Scope, pred: State) -> Value:
        """What a loop leaves with, as a value of *scope*: units under it stand behind the unit that makes it."""
        decides = Value(is_scalar=True)
        move = Move(scope, pred.liveness, decides, pred.value)
        move.come_after(pred.after)
        decides.unit = move
        return decides

    def _test(self, node: Node, scope: Scope, pred: State, sides: int) -> Value:
        if pred.value.unit is not None and pred.value.unit.scope is not scope:
            raise UnstructuredError(f"{node.name!r} decides by a value of another scope")
        call = Call(scope, pred.liveness, node, truth if sides == 2 else chooser(sides), [pred.value])
        call.come_after(pred.after)
        decides = Value(call, is_scalar=True)
        decides.is_number = sides != 2
        call.outputs = [decides]
        return decides

    @staticmethod
    def _with(liveness: Liveness, condition: Condition) -> Liveness | None:
        pred, side = condition
        if any(other is pred and at != side for other, at in liveness):
            return None
        return liveness | {condition}

    def _merge(self, node: Node) -> None:
        if any(self._is_back_edge(tensor) for tensor in node.inputs):
            self._carry(node)
            return
        scope = self._scope(node)
        controls = list(self._controls(node))
        inputs = [self._state(tensor) for tensor in node.inputs]
        choices = [(i, state) for i, state in enumerate(inputs) if state.value is not NEVER]
        if not choices:
            self._die(node)
            return
        liveness = covered([state.liveness for _, state in choices], self._sides)
        if liveness is None:
            raise UnstructuredError(f"nobody knows which input of {node.name!r} is live")
        for control in controls:
            if not control.liveness <= liveness:
                raise UnstructuredError(f"{node.name!r} waits for what may be dead")
        if len(choices) == 1:
            index, state = choices[0]
            after = self._join(scope, liveness, state.after, *[control.after for control in controls])
            states = [State(state.value, liveness, after), State(number_of(index), liveness, after)]
            self._give(node, states, Activation(after or state.value.unit, liveness))
            return
        is_scalar = all(state.value.is_scalar for _, state in choices)
        chosen, position = Value(is_scalar=is_scalar), Value(is_scalar=True)
        moves: list[Unit | None] = []
        for index, state in choices:
            move = Move(scope, state.liveness, chosen, state.value)
            numbering = Move(scope, state.liveness, position, number_of(index))
            for unit in (move, numbering):
                unit.come_after(state.after)
                moves.append(unit)
        end = self._join(scope, liveness, *moves, *[control.after for control in controls])
        chosen.unit = position.unit = end
        self._give(node, [State(chosen, liveness), State(position, liveness)], Activation(end, liveness))

    # Loops.

    def _is_back_edge(self, tensor: Tensor) -> bool:
        return tensor.op.op in NEXT_ITERATIONS and (tensor.op, tensor.index) not in self._fed

    def _enter(self, node: Node) -> None:
        state = self._state(node.inputs[0])
        controls = list(self._controls(node))
        liveness = self._union(node, [state, *controls])
        loop = self._loop(self._flow.output_frame(node))
        if liveness is None:
            raise UnstructuredError(f"{node.name!r} never enters its frame")
        loop.come_after(state.value.unit, state.after, *[control.after for control in controls])
        entered = State(state.value, ALWAYS)
        if node.get_attr("is_constant"):
            self._invariants.setdefault(loop, set()).add(liveness)
            self._give(node, [entered], Activation(None, ALWAYS))
        elif self._entered.setdefault(loop, liveness) == liveness:
            loop.liveness = liveness
            self._initial[node, 0] = entered
        else:
            raise UnstructuredError(f"{node.name!r} enters a frame under other conditions than others do")

    def _carry(self, node: Node) -> None:
        """A variable of a loop: what an Enter brings at first, and a NextIteration from then on."""
        entered = [tensor for tensor in node.inputs if not self._is_back_edge(tensor)]
        first = None if len(entered) != 1 else self._initial.get((entered[0].op, entered[0].index))
        if first is None or len(node.inputs) != 2 or node.control_inputs:
            raise UnstructuredError(f"{node.name!r} is no variable of a loop")
        loop = self._loop(self._flow.frame_of(node))
        carried = Carried(Value(is_scalar=first.value.is_scalar and node not in self._growing), first.value)
        loop.carried.append(carried)
        back = next(tensor for tensor in node.inputs if self._is_back_edge(tensor))
        self._open.append((carried, (back.op, back.index), node))
        self._give(node, [State(carried.value, ALWAYS)], Activation(None, ALWAYS))

    def _loop_cond(self, node: Node) -> None:
        frame = self._flow.frame_of(node)
        state = self._state(node.inputs[0])
        if frame.parent is None or state.liveness or any(control.liveness for control in self._controls(node)):
            raise UnstructuredError(f"{node.name!r} is no condition of a loop")
        loop = self._loop(frame)
        decides, tested = self._predicate(node, loop.body, state, node.inputs[0], 2)
        after = self._join(loop.body, ALWAYS, state.after, tested, *[control.after for control in self._controls(node)])
        loop.condition = decides
        self._give(node, [State(decides, ALWAYS, after)], Activation(after or decides.unit, ALWAYS))

    def _next_iteration(self, node: Node) -> None:
        state = self._state(node.inputs[0])
        loop = self._loop(self._flow.frame_of(node))
        liveness = self._union(node, [state, *self._controls(node)])
        if loop.condition is None or liveness != frozenset({(loop.condition, 1)}):
            raise UnstructuredError(f"{node.name!r} does not go round whenever the loop does")
        self._initial[node, 0] = state  # found again when the variables are closed

    def _exit(self, node: Node) -> None:
        state = self._state(node.inputs[0])
        loop = self._loop(self._flow.frame_of(node))
        liveness = self._union(node, [state, *self._controls(node)])
        if loop.condition is None or liveness != frozenset({(loop.condition, 0)}):
            raise UnstructuredError(f"{node.name!r} does not leave the loop when it ends")
        unit = state.value.unit
        if unit is not None and unit.scope is loop.body and unit.liveness:
            raise UnstructuredError(f"{node.name!r} brings what is made at the end of the loop")
        if self._flow.frame_of(node).parent is None:
            raise UnstructuredError(f"{node.name!r} is in no frame")
        self._give(node, [State(state.value, loop.liveness, loop)], Activation(loop, loop.liveness))

    # The end.

    def finish(self) -> Program:
        """The program, once all nodes have been taken."""
        for carried, key, merge in self._open:
            following = self._initial.get(key)
            if following is None:
                raise UnstructuredError(f"{key[0].name!r} never goes round")
            carried.next = following.value
            if carried.value.is_scalar and not following.value.is_scalar:
                self.grown.add(merge)
        for loop in self._loops.values():
            if loop.condition is None or not loop.carried:
                raise UnstructuredError(f"frame {loop.name!r} is no while loop")
            check_loop(loop, self._invariants.get(loop, set()))
        outputs: list[Value] = []
        defaults: list[Value] = []
        for tensor in self._graph.fetches:
            if (tensor.op, tensor.index) not in self._fed and self._flow.output_frame(tensor.op).parent is not None:
                raise UnstructuredError(f"{tensor.name!r} is fetched from inside of a loop")
            state = self._state(tensor)
            if not state.liveness and state.value is not NEVER:
                outputs.append(state.value)
                continue
            output = Value()
            if state.value is not NEVER:
                Move(self._root, state.liveness, output, state.value).come_after(state.after)
            outputs.append(output)
            defaults.append(output)
        return Program(self._root, self._given, tuple(outputs), tuple(defaults))


def _is_scalar(tensor: Tensor) -> bool:
    return tensor.shape.rank == 0
