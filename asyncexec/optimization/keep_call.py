"""Calls that stay calls when the graph runs: of functions that are not to be inlined, and of recursive ones.

After ``_noinline`` in ``tensorflow/core/common_runtime/inline_function_utils.cc``.  The call becomes a node with a
kernel (``ops/flow/calling.py``), on a device of host memory; the function's nodes run where the call itself asks to be.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.device_factory import HOST_TYPE
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import UnimplementedError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.optimization.expansion import Call, Expansion, Inlining, Lowering, Task, check_dtypes


def keep_call(lowering: Lowering, call: Call, function: NameAttrList) -> Task:
    """Replace *call* of *function* by a node that makes it."""
    yield None
    pivot = call.context.pivot
    controls = call.controls or ((pivot,) if pivot is not None and not call.inputs else ())
    is_inner = bool(call.context.path)  # else it has the name of the node of the session's graph
    node = _call_node(lowering, call, function, call.name if is_inner else "", call.inputs, controls)
    node.name = node.name or call.name
    outputs = node.outputs[: len(call.template.outputs)]  # a caller may leave the last ones out
    wanted = call.template.properties.output_dtypes
    check_dtypes(call, f"outputs of function {function.name!r}", outputs, wanted)
    node.output_shapes = (*call.template.output_shapes, *node.output_shapes[len(outputs) :])
    return Expansion(tuple(outputs), lambda: node)


def keep_inlining(lowering: Lowering, request: Inlining) -> Task:
    """Make a node that calls a branch, or the condition or body of a loop."""
    yield None
    gate = request.after
    if gate is None and request.ungated.issuperset(request.inputs):
        gate = request.pivot
    controls = () if gate is None else (gate,)
    node = _call_node(lowering, request.call, request.function, request.prefix, request.inputs, controls)
    return Expansion(tuple(node.outputs), lambda: node)


def _call_node(
    lowering: Lowering,
    call: Call,
    function: NameAttrList,
    name: str,
    inputs: Sequence[Tensor],
    controls: Sequence[Node],
) -> Node:
    """A node that calls *function*."""
    takes, gives = lowering.bodies.dtypes(function)
    if any(dtype.is_ref for dtype in (*takes, *gives)):
        raise UnimplementedError(f"a call of {function.name!r}, which takes or gives references", node=call)
    check_dtypes(call, f"inputs of function {function.name!r}", inputs, takes)
    nodes = lowering.nodes
    given = [nodes.identity(each, f"{call.name}/input", *controls) if each.dtype.is_ref else each for each in inputs]
    is_stateful = call.template.op_def.is_stateful
    registration = op_registry.lookup("_StatefulPartitionedCall" if is_stateful else "_PartitionedCall")
    attrs = {"Tin": takes, "Tout": gives, "f": function, "device": call.device.encode()}
    node = nodes.make(
        properties_of(registration, attrs),  # of its own: a kernel knows the node that it is of
        name,
        given,
        controls,
        device=_on_host(call.device),
        source_line=call.source_line,
    )
    if is_stateful:
        nodes.wanted.append(node)
    return node


def _on_host(device: str) -> str:
    """A device of host memory in the process that *device* asks for; itself if it is one."""
    if not device:
        return ""
    parsed = parse_device_name(device)
    return device if parsed.device_type in (None, HOST_TYPE) else str(parsed.address_space)
