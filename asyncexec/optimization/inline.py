"""Inlining: the nodes of a function's body become nodes of the client graph.

After ``tensorflow/core/common_runtime/inline_function_utils.cc``.  Nodes take the call's inputs for their arguments.
What a call must come after, its nodes come after: those that take nothing from within the body are made to wait, and
the others have what they take from these.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.cooperative import STRIDE
from asyncexec.framework.device_name import merge_device_names
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.control_flow_info import ENTERS, MERGES
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.optimization.expansion import Call, Expansion, Inlining, Lowering, Task, check_dtypes
from asyncexec.optimization.function_body import is_free_constant


class Inliner:
    """Does one Inlining."""

    def __init__(self, lowering: Lowering, request: Inlining) -> None:
        call = request.call
        self._request = request
        self._nodes = lowering.nodes
        self._nodes.charge()  # functions that only call others would make no nodes, and no end
        self._bodies = lowering.bodies
        self._body = body = lowering.body(call, request.function, request.inputs, request.prefix)
        try:
            self._context = call.context.inside(body.name, request.pivot, has_control_flow=body.has_control_flow)
        except InvalidArgumentError as error:
            raise error.locate(call) from None
        arguments = [arg.outputs[0].dtype for arg in body.args]
        check_dtypes(call, f"inputs of function {body.name!r}", request.inputs, arguments)
        self._given = {arg: self._read(arg, tensor) for arg, tensor in zip(body.args, request.inputs, strict=True)}
        self._made: dict[Node, Node | Expansion] = {}
        self._frames: dict[str, str] = {}

    def run(self) -> Task:
        """Make the nodes."""
        merges: list[tuple[Node, Node]] = []
        for count, node in enumerate(self._body.nodes, 1):
            if self._bodies.is_functional(node.op):
                self._made[node] = yield self._call(node)
            elif node.op in MERGES and not all(self._is_there(tensor) for tensor in node.inputs):
                self._made[node] = merge = self._clone(node, ())
                merges.append((node, merge))
            else:
                self._made[node] = self._clone(node, self._tensors(node.inputs))
            if not count % (STRIDE // 4):
                yield None
        for node, merge in merges:
            merge.inputs = self._tensors(node.inputs)
        for node in self._body.ends:
            made = self._made[node]
            if isinstance(made, Node):
                self._nodes.wanted.append(made)
        outputs = [self._output(slot, tensor) for slot, tensor in enumerate(self._body.returns)]
        return Expansion(tuple(outputs), self._make_end)

    def _read(self, arg: Node, tensor: Tensor) -> Tensor:
        """What *arg* stands for: of a reference to a variable, the value at the time of the call."""
        if tensor.dtype.is_ref and not arg.outputs[0].dtype.is_ref:
            return self._nodes.identity(tensor, f"{self._request.prefix}/{arg.name}", self._request.after)
        return tensor

    def _call(self, node: Node) -> Call:
        inputs = self._tensors(node.inputs)
        controls = self._controls(node)
        if self._request.pivot is not None and not self._request.ungated.isdisjoint(inputs):
            controls = (*controls, self._request.pivot)
        return Call(
            self._name(node), node, inputs, controls, self._device(node), self._request.call.source_line, self._context
        )

    def _clone(self, node: Node, inputs: tuple[Tensor, ...]) -> Node:
        return self._nodes.make(
            self._properties(node),
            self._name(node),
            inputs,
            self._controls(node),
            device=self._device(node),
            source_line=self._request.call.source_line,
            shapes=node.output_shapes,
        )

    def _properties(self, node: Node) -> NodeProperties:
        """Those of *node*; a frame gets a name of its own with each call."""
        if node.op not in ENTERS:
            return node.properties
        properties = node.properties
        frame = node.get_attr("frame_name").decode("utf-8", "replace")
        if frame not in self._frames:
            self._frames[frame] = self._nodes.frame_name(f"{self._request.prefix}/{frame}")
        attrs = {**properties.attrs, "frame_name": self._frames[frame].encode()}
        return NodeProperties(properties.registration, attrs, properties.input_dtypes, properties.output_dtypes)

    def _name(self, node: Node) -> str:
        return f"{self._request.prefix}/{node.name}"

    def _device(self, node: Node) -> str:
        outer = self._request.call.device
        return merge_device_names(node.device, outer) if node.device and outer else node.device or outer

    def _is_there(self, tensor: Tensor) -> bool:
        return tensor.op in self._made or tensor.op in self._given

    def _tensors(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(map(self._tensor, tensors))

    def _tensor(self, tensor: Tensor) -> Tensor:
        given = self._given.get(tensor.op)
        return self._made[tensor.op].outputs[tensor.index] if given is None else given

    def _controls(self, node: Node) -> tuple[Node, ...]:
        controls = [made for control in node.control_inputs for made in self._control(control)]
        gate = self._gate(node)
        return tuple(controls) if gate is None else (*controls, gate)

    def _control(self, node: Node) -> Sequence[Node]:
        if node in self._given:
            return self._nodes.guards([self._given[node]], self._name(node))
        made = self._made[node]
        if isinstance(made, Node):
            return (made,)
        return () if made.end is None else (made.end,)

    def _gate(self, node: Node) -> Node | None:
        """What *node* has to wait for, because nothing that it takes does."""
        request = self._request
        if node in self._body.inner:
            return None
        if is_free_constant(node):
            return request.pivot
        if request.after is not None:
            return request.after
        has_gated_input = any(
            is_free_constant(tensor.op) or self._given.get(tensor.op) not in request.ungated for tensor in node.inputs
        )
        return None if has_gated_input else request.pivot

    def _output(self, slot: int, tensor: Tensor) -> Tensor:
        """What a call gives for *tensor*; it too comes after what the call comes after."""
        request, given = self._request, self._tensor(tensor)
        gate = None
        if tensor.op in self._given or is_free_constant(tensor.op):
            gate = request.after or (request.pivot if given in request.ungated else None)
        if gate is None and not given.dtype.is_ref:
            return given
        return self._nodes.identity(given, f"{request.prefix}/output_{slot}", gate)

    def _make_end(self) -> Node | None:
        request, body = self._request, self._body
        name = f"{request.prefix}/output_control"
        gate = request.after or request.pivot
        ends = [made for node in body.ends for made in self._control(node)]
        ends += self._nodes.guards(map(self._tensor, body.returns), name)
        if not body.has_control_flow:
            return self._nodes.join(name, ends) or gate
        # What was not to run in the body is dead; the call as a whole is not.
        trigger = self._nodes.add("ControlTrigger", name, controls=ends)
        return self._nodes.add("NoOp", name, controls=[trigger, gate])
