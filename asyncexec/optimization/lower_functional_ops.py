"""ClientGraph -> ClientGraph without functional ops: functions are inlined, branches and loops become Switch and Merge.

Functions that are not to be inlined, and recursive ones, become calls that are kernels (``keep_call.py``).

After ``tensorflow/core/common_runtime/lower_functional_ops.cc``.  All nodes that are made, and copies of those that
take something from them, are the client graph's own; nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import UnimplementedError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.optimization.expansion import Call, Context, Expansion, Inlining, Lowering, Task
from asyncexec.optimization.function_body import CONTROL_FLOW_OPS, FunctionBodies
from asyncexec.optimization.function_sizes import FunctionSizes
from asyncexec.optimization.inline import Inliner
from asyncexec.optimization.keep_call import keep_call, keep_inlining
from asyncexec.optimization.lower_call import lower_call
from asyncexec.optimization.lower_cond import lower_case, lower_if
from asyncexec.optimization.lower_while import lower_for, lower_while
from asyncexec.optimization.private_nodes import PrivateNodes, PropertiesCache
from asyncexec.process.imports import looked_up
from asyncexec.pruning.prune import ClientGraph

_CALLS: Final = frozenset({"_FunctionBody", "PartitionedCall", "StatefulPartitionedCall"})
_UNSUPPORTED: Final = frozenset({"SymbolicGradient", "RemoteCall"})
_LOOPS: Final = frozenset({"While", "StatelessWhile"})  # which look at the bodies that are to be inlined
_LOWERED: Final = {
    "If": lower_if,
    "StatelessIf": lower_if,
    "Case": lower_case,
    "StatelessCase": lower_case,
    "While": lower_while,
    "StatelessWhile": lower_while,
    "For": lower_for,
}


# Ops of the nodes that are made, of modules that may not be imported yet.
_MADE: Final = frozenset(
    "AddV2 ControlTrigger Enter Exit Identity Less LoopCond Merge NextIteration NoOp NotEqual Switch ToBool".split()
)


class LowerFunctionalOps:
    """The pass, for the client graphs of one session's graph; it keeps the functions that it has read.

    If it *inlines_all*, only recursive functions stay calls.
    """

    def __init__(self, graph: Graph, *, inlines_all: bool = False) -> None:
        self._graph = graph
        self._bodies = FunctionBodies(graph, inlines_all=inlines_all)
        self._sizes = FunctionSizes(graph, self._bodies.called)
        self._cache = PropertiesCache()
        self._read: set[str] = set()  # functions whose ops have been looked up

    def run(self, graph: ClientGraph) -> Stage[ClientGraph]:
        """*graph* with no functional op in it, as a stage; *graph* itself where there was none.

        Raises:
            InvalidArgumentError: a function does not exist, is not well-formed, does not fit its call, or cannot end.
            UnimplementedError: an op is one that is not lowered.
            ResourceExhaustedError: it would be too many nodes.
        """
        has_calls = has_control_flow = False
        for start in range(0, len(graph.nodes), STRIDE):
            ops = {node.properties.op for node in graph.nodes[start : start + STRIDE]}
            has_calls = has_calls or any(map(self._bodies.is_functional, ops))
            has_control_flow = has_control_flow or not ops.isdisjoint(CONTROL_FLOW_OPS)
            yield
        if not has_calls:
            return graph
        yield from self._look_up_ops()
        yield from self._bodies.called.update()
        yield from self._sizes.check(graph.nodes)
        fed = {(tensor.op, tensor.index) for tensor in graph.feeds}
        nodes = PrivateNodes(self._graph, self._cache, fed)
        return (yield from _Rewriting(graph, Lowering(nodes, self._bodies), has_control_flow).run())

    def _look_up_ops(self) -> Stage[None]:
        """Let the registry know the ops of functions, which nobody has looked for yet, and those that are made."""
        ops: set[str] = set()
        for name, function in list(self._graph.functions.items()):
            if name not in self._read:
                ops.update([node.op for node in function.node_def])
                self._read.add(name)
                yield
        yield from looked_up((ops | _MADE) - self._graph.functions.keys())


class _Rewriting:
    """Lowers one client graph."""

    def __init__(self, graph: ClientGraph, lowering: Lowering, has_control_flow: bool) -> None:
        self._graph = graph
        self._context = Context(has_control_flow=has_control_flow)
        self._lowering = lowering
        self._nodes = lowering.nodes
        self._made: dict[Node, Node | Expansion] = {}

    def run(self) -> Stage[ClientGraph]:
        yield from self._drive(self._rewrite())
        graph = self._graph
        targets = [made for node in graph.targets for made in self._control(node)]
        feeds, fetches = self._tensors(graph.feeds), self._tensors(graph.fetches)
        needed = yield from self._needed([*targets, *(tensor.op for tensor in fetches), *self._nodes.wanted])
        nodes: list[Node] = []
        for start in range(0, len(self._nodes.nodes), STRIDE):
            nodes += filter(needed.__contains__, self._nodes.nodes[start : start + STRIDE])
            yield
        return ClientGraph(tuple(nodes), feeds, fetches, tuple(targets))

    @staticmethod
    def _needed(wanted: Sequence[Node]) -> Stage[set[Node]]:
        """*wanted* and all that they need: not what a function gives and nobody takes."""
        needed, pending = set(wanted), list(dict.fromkeys(wanted))
        for count, node in enumerate(pending, 1):  # grows meanwhile
            for source in (*(tensor.op for tensor in node.inputs), *node.control_inputs):
                if source not in needed:
                    needed.add(source)
                    pending.append(source)
            if not count % STRIDE:
                yield
        return needed

    def _drive(self, task: Task) -> Stage[None]:
        """Run *task*, and the tasks that it asks for."""
        tasks = [task]
        result: Expansion | None = None
        while tasks:
            try:
                request = tasks[-1].send(result)
            except StopIteration as stop:
                tasks.pop()
                result = stop.value
                continue
            result = None
            if request is None:
                yield
            else:
                for function in self._functions_of(request):
                    yield from self._lowering.bodies.prepare(function, request.inputs)
                tasks.append(self._inline(request) if isinstance(request, Inlining) else self._lower(request))

    def _functions_of(self, request: Call | Inlining) -> list[NameAttrList]:
        """The functions whose bodies are wanted for *request*."""
        if isinstance(request, Inlining):
            return [] if self._stays(request.call, request.function) else [request.function]
        return [request.attr("cond"), request.attr("body")] if request.op in _LOOPS else []

    def _stays(self, call: Call, function: NameAttrList) -> bool:
        """Whether *function* is called when the graph runs, and not written out, where *call* is."""
        return function.name in self._lowering.bodies.called and call.op != "_FunctionBody"

    def _inline(self, request: Inlining) -> Task:
        if self._stays(request.call, request.function):
            return keep_inlining(self._lowering, request)
        return Inliner(self._lowering, request).run()

    def _lower(self, call: Call) -> Task:
        if call.op in _UNSUPPORTED:
            raise UnimplementedError(f"{call.op} is not supported", node=call)
        if call.op in _LOWERED:
            return _LOWERED[call.op](self._lowering, call)
        function = _called(call)
        return (keep_call if self._stays(call, function) else lower_call)(self._lowering, call, function)

    def _rewrite(self) -> Task:
        graph, nodes = self._graph, self._nodes
        merges: list[tuple[Node, Node]] = []
        for count, node in enumerate(graph.nodes, 1):
            if self._lowering.bodies.is_functional(node.op):
                inputs, controls = self._tensors(node.inputs), self._controls(node)
                call = Call(node.name, node, inputs, controls, node.device, node.source_line, self._context)
                self._made[node] = yield call
            elif node.op in MERGES and any(tensor.op.op in NEXT_ITERATIONS for tensor in node.inputs):
                self._made[node] = merge = nodes.copy(node, (), self._controls(node))
                merges.append((node, merge))
            elif self._is_touched(node):
                self._made[node] = nodes.copy(node, self._tensors(node.inputs), self._controls(node))
            else:
                nodes.keep(node)
            if not count % STRIDE:
                yield None
        for node, merge in merges:
            merge.inputs = self._tensors(node.inputs)
        return Expansion((), lambda: None)

    def _is_touched(self, node: Node) -> bool:
        made = self._made
        return any(tensor.op in made for tensor in node.inputs) or any(
            control in made for control in node.control_inputs
        )

    def _tensors(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(map(self._tensor, tensors))

    def _tensor(self, tensor: Tensor) -> Tensor:
        made = self._made.get(tensor.op)
        if made is None or (isinstance(made, Expansion) and (tensor.op, tensor.index) in self._nodes.fed):
            return tensor
        return made.outputs[tensor.index]

    def _controls(self, node: Node) -> tuple[Node, ...]:
        return tuple(made for control in node.control_inputs for made in self._control(control))

    def _control(self, node: Node) -> Sequence[Node]:
        made = self._made.get(node, node)
        if isinstance(made, Node):
            return (made,)
        return () if made.end is None else (made.end,)


def _called(call: Call) -> NameAttrList:
    """The function that *call*, a plain call, is of."""
    function: NameAttrList = call.attr("f") if call.op in _CALLS else NameAttrList(call.op, call.template.attrs)
    return function
