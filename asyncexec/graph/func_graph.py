"""FuncGraph: the body of a function while it is being traced.

After ``tensorflow/python/framework/func_graph.py``.  Tensors of the graphs around it may be used in it: each becomes
one more argument.  So may operations to wait for: then the call waits.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.graph_def import FunctionDef, VersionDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, NodeProperties, SourceLine, Tensor
from asyncexec.graph.side_effects import SideEffects
from asyncexec.graph.traced_functions import TracedFunctions


class FuncGraph(Graph):
    """The body of function *name*, which is called in *outer*.

    Attributes:
        key: what it is traced for.
        args: the Placeholders of its arguments, those of captures last.
        captures: tensors of the graphs around it -> what stands for them in here.
        control_captures: nodes of the graphs around it that something in here is to wait for.
        side_effects: the order that they come in.
    """

    def __init__(self, name: str, outer: Graph, key: Hashable) -> None:
        super().__init__()
        self.function_name = name
        self.outer = outer
        self.key = key
        self.functions: dict[str, FunctionDef] = outer.functions
        self.traced: TracedFunctions = outer.traced
        self.versions: VersionDef = outer.versions
        self.allowed_ops: dict[str, frozenset[str]] = outer.allowed_ops
        self.args: list[Node] = []
        self.captures: dict[Tensor, Tensor] = {}
        self.control_captures: dict[Node, None] = {}
        self.side_effects: SideEffects = SideEffects(self)

    def can_use(self, graph: Graph) -> bool:
        return graph is self or self.outer.can_use(graph)

    def add_node(
        self,
        name: str,
        properties: NodeProperties,
        inputs: Sequence[Tensor] = (),
        control_inputs: Sequence[Node] = (),
        device: str = "",
        source_line: SourceLine | None = None,
    ) -> Node:
        """As of Graph; what comes from the graphs around is captured."""
        if properties.op == "Const" and properties.output_dtypes[0] is types.object:
            return self._object_constant(properties, source_line)
        own = [self.capture(tensor) for tensor in inputs]
        self._check_references(name, properties, own)
        sources = {tensor.op for tensor in own}
        awaited = dict.fromkeys((*self._own(control_inputs), *self.side_effects.before(properties, own)))
        controls = [node for node in awaited if node not in sources]
        node = super().add_node(name, properties, own, controls, device, source_line)
        self.side_effects.note(node)
        return node

    def add_argument(self, name: str, dtype: DType, shape: TensorShape) -> Tensor:
        """What stands for one more argument."""
        attrs = {"dtype": dtype.base_dtype, "shape": shape}
        self._name_scopes.append("")
        with self.control_flow_scope(None):
            unique = self.unique_name(_argument_name(name))
            node = super().add_node(unique, properties_of(op_registry.lookup("Placeholder"), attrs))
        self._name_scopes.pop()
        self.args.append(node)
        return node.outputs[0]

    def capture(self, tensor: Tensor) -> Tensor:
        """*tensor* as it can be had in here; InvalidArgumentError when it is in no graph around."""
        if tensor.graph is self:
            return tensor
        found = self.captures.get(tensor)
        if found is None:
            self._check_usable(tensor.op)
            found = self.captures[tensor] = self.add_argument(tensor.op.name, tensor.dtype, tensor.shape)
        return found

    def capture_control(self, node: Node) -> None:
        """Let calls wait for *node* of a graph around; InvalidArgumentError when it is in none."""
        self._check_usable(node)
        self.control_captures[node] = None

    def _own(self, nodes: Sequence[Node]) -> Iterator[Node]:
        for node in nodes:
            if node.graph is self:
                yield node
            else:
                self.capture_control(node)

    def _check_usable(self, node: Node) -> None:
        if not self.can_use(node.graph):
            raise InvalidArgumentError(
                f"{node.name!r} cannot be used in function {self.function_name!r}: it is in another graph, or in "
                "another function",
                node=node,
            )

    def _check_references(self, name: str, properties: NodeProperties, inputs: Sequence[Tensor]) -> None:
        for dtype, tensor in zip(properties.input_dtypes, inputs, strict=True):
            if dtype.is_ref and not tensor.dtype.is_ref:
                raise InvalidTypeError(
                    f"{properties.op} takes the reference to a variable, which function "
                    f"{self.function_name!r} cannot capture: an argument is a value",
                    node=name,
                    op=properties.op,
                    hint="use ax.Variable, whose handle can be captured",
                )

    def _object_constant(self, properties: NodeProperties, source_line: SourceLine | None) -> Node:
        """A Python object, which no FunctionDef can hold, is made outside of all functions and captured."""
        root = self.outer
        while isinstance(root, FuncGraph):
            root = root.outer
        with root.control_flow_scope(None):
            node = root.add_node(root.unique_name("Const"), properties, source_line=source_line)
        return self.capture(node.outputs[0]).op


def _argument_name(name: str) -> str:
    """*name* as TensorFlow spells names of arguments: small letters, digits and underscores."""
    plain = re.sub("[^a-z0-9_]", "_", name.lower())
    return plain if plain[:1].isalpha() else f"arg_{plain}"
