"""Inputs of imported nodes: how they are written, and that outputs, dtypes and declared shapes fit.

After ``tensorflow/core/common_runtime/graph_constructor.cc`` and ``tensorflow/core/framework/node_def_util.cc``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import NodeDef
from asyncexec.framework.tensor_id import CONTROL_SLOT
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Node, NodeProperties, Tensor

InputId: TypeAlias = tuple[str, int]  # a TensorId, without the cost of making one for each of a million inputs

_SHOWN_AT_MOST: Final = 20


def parse_input(text: str, node_def: NodeDef) -> InputId:
    """Quick for the three usual forms; names are checked by their being found."""
    if text.startswith("^"):
        return text[1:], CONTROL_SLOT
    name, colon, slot = text.rpartition(":")
    if not colon:
        return text, 0
    if slot.isascii() and slot.isdecimal() and len(slot) <= 9:
        return name, int(slot)
    raise InvalidArgumentError(
        f"Node {node_def.name!r}: {text[:100]!r} is not the name of an input", node=node_def.name, op=node_def.op
    )


def plain_inputs(texts: Sequence[str], first_outputs: Mapping[str, Tensor]) -> list[Any] | None:
    """The inputs that *texts* name, if all do so by the name of a node alone, and it is among *first_outputs*."""
    found: list[object] = []
    for text in texts:
        tensor = first_outputs.get(text)
        if tensor is None:
            return None
        found.append(tensor)
    return found


def unknown_input(name: str, node_def: NodeDef, known: Iterable[str]) -> InvalidArgumentError:
    """The error of a node that takes something of node *name*, which is not among those *known*."""
    return InvalidArgumentError(
        f"Node {node_def.name!r}: Unknown input node {name!r}",
        node=node_def.name,
        op=node_def.op,
        hint=nearest(name, known),
    )


def control_before_data(node_def: NodeDef) -> InvalidArgumentError:
    """The error of a node whose data inputs do not come first."""
    return InvalidArgumentError(
        f"Node {node_def.name!r}: Control dependencies must come after regular dependencies",
        node=node_def.name,
        op=node_def.op,
    )


def no_such_output(source: Node, name: str, slot: int, node_def: NodeDef) -> NoReturn:
    """Raise InvalidArgumentError: *source*, called *name* in its GraphDef, has no output *slot*."""
    raise InvalidArgumentError(
        f"Node {node_def.name!r}: Connecting to invalid output {slot} of source node {name} which has "
        f"{len(source.outputs)} outputs.",
        node=node_def.name,
        op=node_def.op,
    )


def check_inputs(data: Sequence[Tensor | None], properties: NodeProperties, name: str) -> None:
    """InvalidArgumentError unless *data* are as many as the op of node *name* takes, of its dtypes."""
    expected = properties.input_dtypes
    if len(data) != len(expected):
        raise InvalidArgumentError(
            f"NodeDef expected inputs '{_dtype_list(expected)}' do not match {len(data)} inputs specified; "
            f"{properties.op_def}"
        )
    for slot, tensor in enumerate(data):
        if tensor is not None and tensor.op.properties.output_dtypes[tensor.index] is not expected[slot]:
            check_dtype(expected[slot], tensor, slot, name)


def check_dtype(want: DType, tensor: Tensor, slot: int, node: Node | str) -> None:
    """InvalidArgumentError unless *tensor* can be input *slot* of *node*."""
    got = tensor.dtype
    if not want.is_compatible_with(got):
        name = node if isinstance(node, str) else node.name
        raise InvalidArgumentError(
            f"Input {slot} of node {name} was passed {got.name} from {tensor.name} "
            f"incompatible with expected {want.name}.",
            node=node,
        )


def declared_shapes(value: object) -> tuple[TensorShape, ...]:
    """What attr ``_output_shapes`` tells; nothing when it is no list of shapes."""
    if isinstance(value, tuple) and all(isinstance(shape, TensorShape) for shape in value):
        return value
    return ()


def merge_declared_shapes(node: Node, declared: Sequence[TensorShape]) -> None:
    """Add what the GraphDef tells of output shapes to what is inferred; InvalidArgumentError when they contradict."""
    shapes = list(node.output_shapes)
    for slot, shape in enumerate(declared[: len(shapes)]):
        try:
            shapes[slot] = shapes[slot].merge_with(shape)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"Node {node.name!r} has an _output_shapes attribute inconsistent with the GraphDef for output "
                f"#{slot}: {error.message}",
                node=node,
            ) from None
    node.output_shapes = tuple(shapes)


def _dtype_list(dtypes: Sequence[DType]) -> str:
    shown = ", ".join(dtype.name for dtype in dtypes[:_SHOWN_AT_MOST])
    return shown if len(dtypes) <= _SHOWN_AT_MOST else f"{shown}, ... ({len(dtypes)} in all)"
