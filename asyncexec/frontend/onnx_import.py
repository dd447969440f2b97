"""``import_onnx``: the nodes of an ONNX model beside others in one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, NotFoundError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.frontend.basic_functions import ensure_shape
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph import graph_import
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Tensor
from asyncexec.importers.load_onnx import read_onnx_graph
from asyncexec.importers.onnx_scope import Value


def import_onnx(
    model: str | PathLike[str] | bytes | object,
    input_map: Mapping[str, object] | None = None,
    return_elements: Sequence[str] | None = None,
    *,
    name: str = "",
) -> list[Tensor]:
    """Add the nodes of an ONNX model to the current graph; needs the extra ``onnx``.

    Its nodes are ops of ONNX, ``Onnx>Conv`` and so on, with ONNX's meaning.  An input that is not mapped is a
    placeholder of its name; one with a default, a placeholder with that default.

    Args:
        model: the path of an .onnx file, its bytes, or an ``onnx.ModelProto``.
        input_map: tensors, or values that become constants, for inputs and initializers of the model by name.
        return_elements: names of values in the model; by default its outputs.
        name: a prefix for the names of its nodes, made unique; none by default.

    Returns:
        The tensors of *return_elements*, in that order.

    Raises:
        NotFoundError: there is no such file, or no value of a name in *input_map* or *return_elements*.
        DataLossError: it is no ONNX model, or is truncated.
        InvalidTypeError, InvalidArgumentError: the model contradicts itself, or a mapped tensor does not fit its input.
        PermissionDeniedError, ResourceExhaustedError: it asks for files outside of its folder, or is too large.
        UnimplementedError: it has ops that there is nothing for; all are listed.
        MissingExtraError: the onnx library is not installed.
    """
    graph = current_graph()
    read = read_onnx_graph(model)
    mapped = {key: _fitting(key, value, read.values) for key, value in (input_map or {}).items()}
    wanted = list(read.outputs) if return_elements is None else list(return_elements)
    elements = {key: _value(key, read.values) for key in wanted}
    replaced = {read.values[key].text: tensor for key, tensor in mapped.items()}
    graph_def = _without(read.graph_def, replaced)
    found = graph_import.import_graph_def(
        graph,
        graph_def,
        name=name,
        input_map=replaced,
        return_elements=[value.text for value in elements.values()],
        source_line=caller_line(),
    )
    by_name: dict[str, Any] = dict(zip(elements, found or (), strict=True))
    return [by_name[key] for key in wanted]


def _value(key: str, values: Mapping[str, Value]) -> Value:
    found = values.get(key)
    if found is None:
        raise NotFoundError(f"the model has no value {key!r}", hint=nearest(key, values))
    return found


def _fitting(key: str, value: object, values: Mapping[str, Value]) -> Tensor:
    """*value* as a tensor for the value *key* of the model; its shape is checked when the graph runs, if not now."""
    want = _value(key, values).type
    tensor = as_tensor(value, None if isinstance(value, Tensor) or want.dtype.is_opaque else want.dtype)
    if tensor.dtype.base_dtype is not want.dtype:
        raise InvalidTypeError(
            f"input_map[{key!r}] is {tensor.dtype.name}, but the model takes {want.dtype.name}", node=tensor.op
        )
    if want.shape.dims is None or want.dtype.is_opaque:
        return tensor
    try:
        tensor.shape.merge_with(want.shape)
    except InvalidArgumentError:
        raise InvalidArgumentError(
            f"input_map[{key!r}] has shape {tensor.shape}, but the model takes {want.shape}", node=tensor.op
        ) from None
    return tensor if tensor.shape.is_fully_defined else ensure_shape(tensor, want.shape)


def _without(graph_def: GraphDef, replaced: Mapping[str, Tensor]) -> GraphDef:
    """*graph_def* without the nodes whose only output is replaced."""
    dropped = {text.partition(":")[0] for text in replaced}
    nodes = tuple(node for node in graph_def.node if node.name not in dropped or node.op not in _SOURCES)
    return GraphDef.model_construct(node=nodes, library=graph_def.library)


_SOURCES = frozenset({"Placeholder", "PlaceholderWithDefault", "Const"})
