"""TracedFunction -> FunctionDef, as ``function_def_to_graph`` and ``graph_to_function_def`` of TensorFlow have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.graph_def import ArgAttrs, ArgDefProto, AttrValue, FunctionDef, NodeDef, OpDefProto
from asyncexec.framework.op_def import arg_slices
from asyncexec.framework.types import DType
from asyncexec.graph.graph_to_def import node_to_def
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.traced_functions import TracedFunction

_COLOCATION = b"loc:@"


def function_to_def(function: TracedFunction) -> FunctionDef:
    """The FunctionDef of *function*; OpError, naming the node, when an attr has no wire form."""
    args = frozenset(function.args)
    outputs = [f"output_{slot}" if slot else "output" for slot in range(len(function.returns))]
    controls = [node.name for node in function.controls]
    signature = OpDefProto.model_construct(
        name=function.name,
        input_arg=tuple(_arg(arg.name, arg.outputs[0].dtype) for arg in function.args),
        output_arg=tuple(_arg(name, tensor.dtype) for name, tensor in zip(outputs, function.returns, strict=True)),
        control_output=tuple(controls),
        is_stateful=function.is_stateful,
    )
    return FunctionDef.model_construct(
        signature=signature,
        arg_attr={i: _arg_attrs(arg.outputs[0]) for i, arg in enumerate(function.args)},
        node_def=tuple(_node_def(node, args) for node in function.graph if node not in args),
        ret={name: _input_name(tensor, args) for name, tensor in zip(outputs, function.returns, strict=True)},
        control_ret={name: name for name in controls},
    )


def _arg(name: str, dtype: DType) -> ArgDefProto:
    return ArgDefProto.model_construct(name=name, type=dtype.base_dtype.enum)


def _arg_attrs(tensor: Tensor) -> ArgAttrs:
    return ArgAttrs.model_construct(attr={"_output_shapes": encode_attr_value((tensor.shape,), "list(shape)")})


def _node_def(node: Node, args: frozenset[Node]) -> NodeDef:
    plain = node_to_def(node)
    inputs = (*(_input_name(tensor, args) for tensor in node.inputs), *_control_names(node.control_inputs))
    attr = _without_foreign_colocation(plain.attr, node)
    return NodeDef.model_construct(name=node.name, op=node.op, input=inputs, device=node.device, attr=attr)


def _control_names(nodes: Sequence[Node]) -> list[str]:
    return [f"^{node.name}" for node in nodes]


def _without_foreign_colocation(attr: Mapping[str, AttrValue], node: Node) -> Mapping[str, AttrValue]:
    """*attr*, where ``_class`` names nodes of the function only: with others a node cannot be placed from in here."""
    if "_class" not in attr:
        return attr
    own = tuple(name for name in node.attrs["_class"] if name.removeprefix(_COLOCATION).decode() in node.graph.names)
    rest = {name: value for name, value in attr.items() if name != "_class"}
    return rest | {"_class": encode_attr_value(own, "list(string)")} if own else rest


def _input_name(tensor: Tensor, args: frozenset[Node]) -> str:
    """*tensor* as a function spells it: ``arg`` or ``node:out:index``."""
    node = tensor.op
    if node in args:
        return node.name
    slices = arg_slices(node.op_def.outputs, node.attrs)
    output, found = next((name, part) for name, part in slices.items() if part.start <= tensor.index < part.stop)
    return f"{node.name}:{output}:{tensor.index - found.start}"
