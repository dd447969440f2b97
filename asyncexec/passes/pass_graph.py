"""PassGraph: the graph of a signature as passes see and change it.

A pass walks it (``for node in graph``).  A replacement is seen by all nodes that the walk comes to afterwards, and by
all others when the pass has ended; then, too, what nothing needs any more goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from asyncexec.framework.errors import NotFoundError, OpError
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.shape_refiner import ShapeRefiner
from asyncexec.passes.editable_graph import EditableGraph
from asyncexec.passes.node_facts import FactsCache, is_switch_like
from asyncexec.passes.op_inputs import complete_inputs, constant_attrs
from asyncexec.placement.placement_rules import Placement
from asyncexec.pruning.prune import ClientGraph


class PassGraph(EditableGraph):
    """The graph of a signature, as passes see and change it.

    ``for node in graph`` visits each node after its inputs.

    Attributes:
        facts: the known properties of nodes, by their ops.
    """

    def __init__(self, graph: ClientGraph, owner: Graph, placement: Placement | None = None) -> None:
        super().__init__(graph, owner, placement)
        self.facts: FactsCache = FactsCache()
        self._refiner = ShapeRefiner()

    def node(self, name: str) -> Node:
        """The node *name*; NotFoundError if there is none."""
        for node in self._position:
            if node.name == name:
                return node
        raise NotFoundError(f"there is no node {name!r} in the graph", hint=nearest(name, self._names))

    def consumers(self, source: Node | Tensor) -> list[Node]:
        """The nodes that take *source*; for a node, also those that wait for it."""
        op = source.op if isinstance(source, Tensor) else source
        for node in list(self._dirty):
            self._rewire(node)
        found: dict[Node, None] = {}
        for user in dict.fromkeys(self._users.get(op, ())):
            if user not in self._position:
                continue
            if isinstance(source, Tensor):
                takes = any(tensor is source for tensor in user.inputs)
            else:
                takes = op in user.control_inputs or any(tensor.op is op for tensor in user.inputs)
            if takes:
                found[user] = None
        return list(found)

    def device_of(self, node: Node) -> str:
        """The name of the device of *node*; before placement, the device that it asks for."""
        return node.device if self.placement is None else self.placement.device_of(node).name

    def runs_on_host(self, node: Node) -> bool:
        """Whether *node* runs on a CPU device, with the kernels that passes use too."""
        if self.placement is None:
            return True
        device = self.placement.device_of(node)
        return device.device_type == "CPU" and device.shares_host_memory

    def add(
        self,
        op: str,
        inputs: Sequence[object] = (),
        attrs: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        like: Node | None = None,
        control_inputs: Iterable[Node] = (),
    ) -> Node:
        """A new node of the registered op type *op*.

        Args:
            inputs: one entry for each input argument of the op: a tensor, or a value that becomes a constant; for an
                argument that is a list, a list of these.
            attrs: those that follow from the inputs and those with defaults may be left out.
            name: the name, by default the op type; a number is added if it is taken.
            like: the new node runs on the device of this one, and errors name the same line of the user's program; by
                default the node of the first input.

        Raises:
            NotFoundError: there is no such op.
            InvalidArgumentError: inputs or attrs do not fit it.
        """
        registration = op_registry.lookup(op)
        tensors, complete = complete_inputs(registration.op_def, inputs, attrs or {}, self._constant)
        model = like or next((tensor.op for tensor in tensors if tensor.op in self), None)
        try:
            properties = properties_of(registration, complete)
            node = self.make(properties, name or op, tensors, control_inputs, like=model)
            self._refiner.infer(node)
        except OpError as error:
            raise (error.located(name or op, op) if error.node is None else error) from None
        return node

    def _constant(self, value: object, attrs: Mapping[str, object]) -> Tensor:
        properties = properties_of(op_registry.lookup("Const"), constant_attrs(value, attrs))
        node = self.make(properties, "Const", (), ())
        self._refiner.infer(node)
        return node.outputs[0]

    def add_target(self, node: Node) -> None:
        """Run *node* even if nothing takes its outputs."""
        if node not in self.targets:
            self.targets.append(node)
            self._kept.add(node)
            self._uses[node] += 1

    def replace(self, old: Node | Tensor, new: Node | Tensor) -> None:
        """Let the consumers of *old* take *new*; for nodes, the nodes that wait for *old* wait for *new*.

        If *old* is fetched or a target, *new* takes its place; but a fetched feed keeps its value.
        """
        if isinstance(old, Tensor):
            self.replace_tensors(old.op, {old.index: new.outputs[0] if isinstance(new, Node) else new})
            return
        source = new.op if isinstance(new, Tensor) else new
        given = [new] if isinstance(new, Tensor) else list(new.outputs)
        self.replace_tensors(old, dict(enumerate(given[: len(old.outputs)])))
        self.replace_control(old, self.guard(new) if isinstance(new, Tensor) else source)

    def guard(self, tensor: Tensor) -> Node:
        """A node that runs when *tensor* is there, and is dead where it is."""
        found = self.now(tensor)
        if found.op in self and not self.is_fed(found) and not is_switch_like(found.op):
            return found.op
        attrs = {"T": found.dtype.base_dtype}
        properties = properties_of(op_registry.lookup("Identity"), attrs)
        name = f"{found.op.name}/guard"
        return self.make(properties, name, [found], (), like=found.op, shapes=[found.shape])
