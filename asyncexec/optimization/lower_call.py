"""PartitionedCall, StatefulPartitionedCall, and calls of functions by their names: the body in place of the call."""

from __future__ import annotations

from asyncexec.framework.op_def import NameAttrList
from asyncexec.graph.node import Node
from asyncexec.optimization.expansion import Call, Expansion, Inlining, Lowering, Task, check_dtypes


def lower_call(lowering: Lowering, call: Call, function: NameAttrList) -> Task:
    """Replace *call* of *function*."""
    nodes = lowering.nodes
    after, pivot = lowering.entry(call)
    inlined = yield Inlining(call, function, call.name, call.inputs, after, pivot)
    outputs = inlined.outputs[: len(call.template.outputs)]  # a caller may leave the last ones out
    check_dtypes(call, f"outputs of function {function.name!r}", outputs, call.template.properties.output_dtypes)
    unused = [call.inputs[position] for position in lowering.bodies.get(function, call.inputs).unused]

    def make_end() -> Node | None:
        ends = [*([] if inlined.end is None else [inlined.end]), *nodes.guards(unused, f"{call.name}/unused")]
        return nodes.join(f"{call.name}/output_control", ends)

    return Expansion(outputs, make_end)
