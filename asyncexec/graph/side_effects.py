"""The order of side effects within a function: each waits for those before it that it must not overtake.

After ``tensorflow/python/framework/auto_control_deps.py``.  What changes a resource comes after all that used the
resource before, what reads it after the last change; a stateful op that takes no resource (a print, a plain user op)
comes after the last such op.  As there, ops that are stateful for another reason have no place in the order: random
numbers, and what may take its time beside others, which here are the async kernels.  TensorArrays and stacks are put
in order by what flows between their ops.

What follows a branch waits until the branch is over, taken or not.  What follows a loop does not wait for effects
inside of it, and neither does one iteration for those of another: there, only what a loop variable needs is awaited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from asyncexec.framework import types
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.control_flow_context import ControlFlowContext
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.graph.traced_functions import TracedFunction

if TYPE_CHECKING:
    from asyncexec.graph.graph import Graph

_Resource: TypeAlias = tuple[Node, int] | None  # None: the world outside of the graph
_Use: TypeAlias = tuple[_Resource, bool]  # a resource, and whether it is changed or only read

_READS: Final = frozenset(
    "ReadVariableOp ResourceGather ResourceGatherNd VariableShape VarIsInitializedOp LookupTableFind LookupTableFindV2 "
    "LookupTableSize LookupTableSizeV2 LookupTableExport LookupTableExportV2 QueueSizeV2 QueueIsClosedV2".split()
)
_UNORDERED: Final = frozenset(
    "RandomUniform RandomUniformInt RandomStandardNormal ParameterizedTruncatedNormal TruncatedNormal RandomShuffle "
    "Multinomial RandomGamma RandomGammaGrad RandomPoisson RandomPoissonV2".split()
)
_ORDERED_BY_FLOW: Final = ("TensorArray", "Stack")
_SAME_RESOURCE: Final = frozenset({"Identity", "Switch", "_SwitchN", "Enter", "RefEnter"})


class SideEffects:
    """The side effects of the nodes of *graph*, noted as these are added."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._last_change: dict[_Resource, Node] = {}
        self._reads: dict[_Resource, list[Node]] = {}
        self._triggers: dict[tuple[Node, ControlFlowContext | None], Node] = {}

    @property
    def changes_world(self) -> bool:
        """Whether anything happens outside of the graph whose order is to be kept."""
        return None in self._last_change

    def changed(self, args: Sequence[Node]) -> frozenset[int]:
        """Positions of those of *args* that are resources which were changed."""
        return frozenset(position for position, arg in enumerate(args) if (arg, 0) in self._last_change)

    def before(self, properties: NodeProperties, inputs: Sequence[Tensor]) -> list[Node]:
        """What a node about to be made in the current branch or loop has to wait for."""
        found: dict[Node, None] = {}
        for use in self._uses(properties, inputs):
            for node in self._conflicting(*use):
                waited = self._seen_from(self._graph.current_control_flow_context, node)
                if waited is not None:
                    found[waited] = None
        return list(found)

    def note(self, node: Node) -> None:
        """Take note of *node*, a new one."""
        for resource, is_change in self._uses(node.properties, node.inputs):
            if is_change:
                self._last_change[resource] = node
                self._reads.pop(resource, None)
            else:
                self._reads.setdefault(resource, []).append(node)

    def all_changes(self) -> list[Node]:
        """When these have run, outside of all branches, so have all changes but those inside of loops."""
        changes = (self._seen_from(None, node) for node in self._last_change.values())
        return list(dict.fromkeys(node for node in changes if node is not None))

    def _conflicting(self, resource: _Resource, is_change: bool) -> Iterator[Node]:
        if resource in self._last_change:
            yield self._last_change[resource]
        if is_change:
            yield from self._reads.get(resource, ())

    def _uses(self, properties: NodeProperties, inputs: Sequence[Tensor]) -> list[_Use]:
        """The resources that such a node reads or changes in the order of the program."""
        op = properties.op
        if not properties.op_def.is_stateful or op in _UNORDERED or op.startswith(_ORDERED_BY_FLOW):
            return []
        kernel = properties.registration.kernel
        if kernel is not None and kernel.kind is KernelKind.ASYNC:
            return []
        called = self._called(properties)
        if called:
            changed = {first + position for function, first in called for position in function.changed_args}
            uses = [(each, position in changed) for position, each in _resources(inputs)]
            return [*uses, (None, True)] if any(function.changes_world for function, _ in called) else uses
        makes_handle = types.resource in properties.output_dtypes and not inputs
        uses = [(each, op not in _READS) for _, each in _resources(inputs)]
        return uses if uses or makes_handle else [(None, True)]

    def _called(self, properties: NodeProperties) -> list[tuple[TracedFunction, int]]:
        """The traced functions that such a node calls, each with the number of the input that is its first argument."""
        attrs = properties.attrs
        # The first argument of a handler, the error, is no input of the node.
        named = [(attrs.get("f"), 0), (attrs.get("handler"), len(attrs.get("Tin", ())) - 1)]
        found = [(self._graph.traced.find(one.name), first) for one, first in named if isinstance(one, NameAttrList)]
        return [(function, first) for function, first in found if function is not None]

    def _seen_from(self, context: ControlFlowContext | None, node: Node) -> Node | None:
        """*node*, or what ends when it does outside of the branches that it is in and *context* is not."""
        inside = self._graph.control_flow_context_of(node)
        around = _with_outer(context)
        seen = inside
        while seen not in around:
            assert seen is not None  # None is around everything
            if not seen.ends_at_merge:
                return None
            seen = seen.outer
        return node if seen is inside else self._trigger(node, seen)

    def _trigger(self, node: Node, context: ControlFlowContext | None) -> Node:
        """A node in *context* that runs when *node*, in a branch in there, has run or is known not to."""
        found = self._triggers.get((node, context))
        if found is None:
            found = self._add("ControlTrigger", (node,), context)
            if context is not None:  # a trigger fires even where all is dead
                found = self._add("NoOp", (found, context.pivot), context)
            self._triggers[node, context] = found
        return found

    def _add(self, op: str, controls: tuple[Node, ...], context: ControlFlowContext | None) -> Node:
        graph = self._graph
        properties = NodeProperties(op_registry.lookup(op), {}, (), ())
        node = Node(graph, graph.unique_name("after_branch"), properties, (), controls)
        # Not by add_node, which lets nothing out of a branch but through a Merge.
        with graph.control_flow_scope(context):
            graph.commit([node])
        return node


def _resources(inputs: Sequence[Tensor]) -> Iterator[tuple[int, _Resource]]:
    """Those of *inputs* that are resources, by their positions."""
    for position, tensor in enumerate(inputs):
        if tensor.dtype is types.resource:
            yield position, _source(tensor)


def _source(tensor: Tensor) -> _Resource:
    while tensor.op.op in _SAME_RESOURCE:
        tensor = tensor.op.inputs[0]
    return (tensor.op, tensor.index)


def _with_outer(context: ControlFlowContext | None) -> list[ControlFlowContext | None]:
    chain: list[ControlFlowContext | None] = [context]
    while context is not None:
        context = context.outer
        chain.append(context)
    return chain
