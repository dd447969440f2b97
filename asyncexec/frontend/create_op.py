"""``create_op``: a node of any registered op, its inputs converted, its type attrs inferred.

After ``tensorflow/python/framework/op_def_library.py`` (``apply_op``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.framework.op_def import ArgDef, AttrDef, NameAttrList, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import keep
from asyncexec.framework.tensor_shape import TensorShape, as_shape
from asyncexec.framework.types import DType, as_dtype, dtype_names
from asyncexec.frontend.convert import MAX_DEPTH, as_tensor_value, check_name, const_node
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph.current_graph import current_graph, current_graph_or_none
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, Tensor, TensorOperators


class TensorSource(TensorOperators, ABC):
    """Something that stands for a tensor wherever one is taken, such as a variable."""

    __slots__ = ()

    @property
    @abstractmethod
    def graph(self) -> Graph:
        """The graph it is in."""

    @abstractmethod
    def as_tensor(self) -> Tensor:
        """The tensor it stands for; a new node each time."""

    @abstractmethod
    def fetched_tensor(self) -> Tensor:
        """The tensor that is run when it is fetched; the same each time."""


def create_op(
    op: str,
    inputs: Sequence[object] = (),
    attrs: Mapping[str, object] | None = None,
    name: str | None = None,
) -> Any:
    """Add a node of the registered op type *op* to the current graph, or to the graph of its inputs.

    >>> values, indices = ax.create_op("TopKV2", [[1, 5, 3], 2])
    >>> show(values, indices)
    [5 3]
    [1 2]

    Args:
        op: an op type, such as ``"TopKV2"``.
        inputs: one entry for each input argument of the op: a tensor or a value that becomes a constant; for an
            argument that is a list, a list of these.
        attrs: the op's attrs; those that follow from the inputs and those with defaults may be left out.
        name: the name of the node, by default the op type.

    Returns:
        The output tensor; a list of tensors if the op has several outputs; the operation if it has none.

    Raises:
        NotFoundError: there is no such op.
        InvalidArgumentError, InvalidTypeError: inputs or attrs do not fit it.
    """
    if not isinstance(op, str):
        raise InvalidTypeError(f"an op type is a str, not {op!r}")
    if not isinstance(inputs, (list, tuple)):
        raise InvalidTypeError(f"the inputs of {op} are a list, not {type(inputs).__name__}", hint="pass [x]")
    if attrs is not None and not isinstance(attrs, Mapping):
        raise InvalidTypeError(f"the attrs of {op} are a dict, not {type(attrs).__name__}")
    return add_op(op_registry.lookup(op), inputs, attrs or {}, name)


def add_op(
    registration: OpRegistration,
    inputs: Sequence[object],
    attrs: Mapping[str, object],
    name: str | None = None,
) -> Any:
    """``create_op`` for a registration."""
    op_def = registration.op_def
    line = caller_line()
    where = f"{line[0]}:{line[1]}" if line else None
    try:
        check_name(name)
        graph = graph_of(inputs)
        given = {key: _attr_value(op_def, key, value) for key, value in attrs.items() if value is not None}
        tensors = _InputConverter(graph, op_def, given).convert(inputs)
        properties = properties_of(registration, given | graph.colocation_attrs())
        node = graph.add_node(
            graph.unique_name(name or op_def.name),
            properties,
            tensors,
            _control_inputs(graph, tensors),
            graph.device_of_new_node(),
            line,
        )
    except OpError as error:
        raise _located(error, op_def.name, name, where) from None
    outputs = node.outputs
    if not op_def.outputs:
        return node
    return list(outputs) if op_def.returns_tuple else outputs[0]


def _located(error: OpError, op: str, name: str | None, where: str | None) -> OpError:
    if error.user_line is None:
        error.node, error.op, error.user_line = error.node or name or op, op, where
        error.args = (str(error),)
    return error


def _control_inputs(graph: Graph, tensors: Sequence[Tensor]) -> list[Node]:
    sources = {tensor.op for tensor in tensors}
    return [node for node in graph.current_control_inputs if node not in sources]


def graph_of(values: Sequence[object]) -> Graph:
    """The one graph that the tensors in *values* are in; the current graph when there are none.

    Raises:
        InvalidArgumentError: they are in different graphs.
        FailedPreconditionError: there are none, and no graph is being built.
    """
    found: Graph | None = None
    for value in values:
        members = value if isinstance(value, (list, tuple)) else (value,)
        for member in members:
            if isinstance(member, (Tensor, TensorSource)):
                graph = graph_to_use(member)
                if found is None:
                    found = graph
                elif found is not graph:
                    raise InvalidArgumentError(f"{member!r} is in another graph than the tensors before it")
    current = current_graph_or_none()
    if found is None:
        return current_graph()
    if current is not None and current is not found:
        raise InvalidArgumentError("these tensors are not of the graph that is being built")
    return found


def graph_to_use(value: Tensor | TensorSource) -> Graph:
    """The graph in which nodes that take *value* are made: a function that is being traced, or that of *value*."""
    current = current_graph_or_none()
    return current if current is not None and current.can_use(value.graph) else value.graph


def _attr_value(op_def: OpDef, name: str, value: object) -> object:
    attr = op_def.attrs.get(name)
    if attr is None:
        if name.startswith("_"):
            return value
        if op_def.has_open_attrs:
            return tuple(map(_open_attr, value)) if isinstance(value, (list, tuple)) else _open_attr(value)
        raise InvalidArgumentError(f"{op_def.name} has no attr {name!r}; it has {sorted(op_def.attrs)}")
    if attr.is_list:
        if not isinstance(value, (list, tuple)):
            raise InvalidTypeError(f"attr {name!r} takes a list, not {value!r}")
        return tuple(_one_attr(attr, item) for item in value)
    return _one_attr(attr, value)


def _open_attr(value: object) -> object:
    """*value* for an attr of which nothing is declared."""
    return value.encode() if isinstance(value, str) else value


def _one_attr(attr: AttrDef, value: Any) -> object:
    match attr.element_kind:
        case "type":
            return as_dtype(value)
        case "shape":
            return as_shape(value)
        case "string":
            return value.encode() if isinstance(value, str) else value
        case "func":
            return NameAttrList(value) if isinstance(value, str) else value
        case "tensor":
            return keep(as_tensor_value(value)[0])
        case "int":
            return int(value) if isinstance(value, np.integer) else value
        case "float":
            return float(value) if isinstance(value, np.floating) else value
        case "bool":
            return bool(value) if isinstance(value, np.bool_) else value
    return value


class _InputConverter:
    """Makes tensors of the inputs, and infers type attrs and list lengths from them."""

    def __init__(self, graph: Graph, op_def: OpDef, attrs: dict[str, Any]) -> None:
        self._graph = graph
        self._op_def = op_def
        self._attrs = attrs

    def convert(self, inputs: Sequence[Any]) -> list[Tensor]:
        args = self._op_def.inputs
        inputs = [_without_sources(value) for value in inputs]
        if len(inputs) != len(args):
            wanted = ", ".join(map(str, args)) or "none"
            raise InvalidArgumentError(f"{self._op_def.name} takes {len(args)} inputs ({wanted}), not {len(inputs)}")
        for arg, value in zip(args, inputs, strict=True):
            self._refuse_objects(arg, value)
        for arg, value in zip(args, inputs, strict=True):
            self._infer_from_tensors(arg, value)
        tensors: list[Tensor] = []
        for arg, value in zip(args, inputs, strict=True):
            tensors += self._convert_list(arg, value) if arg.is_list else [self._convert_one(arg, value)]
        return tensors

    def _refuse_objects(self, arg: ArgDef, value: object) -> None:
        """InvalidTypeError, which blames its producer, if there is an object in *value* and *arg* takes none."""
        allowed = None if arg.type_attr is None else self._op_def.attrs[arg.type_attr].allowed
        if allowed is None if arg.dtype is None else arg.dtype.is_opaque:
            return
        for tensor in tensors_in(value):
            if tensor.dtype is types.object:
                takes = dtype_names(allowed or ()) if arg.dtype is None else arg.dtype.name
                raise InvalidTypeError(
                    f"{tensor.name!r} is an object, but argument {arg.name!r} of {self._op_def.name} takes {takes}",
                    node=tensor.op,
                    hint=object_hint(tensor),
                )

    def _infer_from_tensors(self, arg: ArgDef, value: object) -> None:
        """Tensors decide type attrs before any Python value does: ``1 + x`` has the dtype of x."""
        if arg.is_list:
            if not isinstance(value, (list, tuple)):
                raise InvalidTypeError(f"argument {arg.name!r} of {self._op_def.name} takes a list, not {value!r}")
            if arg.number_attr is not None:
                self._agree(arg, arg.number_attr, len(value), "length")
        if arg.type_attr is None:
            return
        for member in tensors_in(value):
            self._agree(arg, arg.type_attr, member.dtype.base_dtype, "dtype")

    def _agree(self, arg: ArgDef, attr: str, value: object, what: str) -> None:
        known = self._attrs.setdefault(attr, value)
        if known != value:
            shown, expected = (v.name if isinstance(v, DType) else v for v in (value, known))
            raise InvalidTypeError(
                f"argument {arg.name!r} of {self._op_def.name} is of {what} {shown}, but {expected} is expected here",
                hint=f"put ax.cast(x, ax.{expected}) around it" if what == "dtype" else None,
            )

    def _convert_list(self, arg: ArgDef, values: Sequence[object]) -> list[Tensor]:
        if arg.type_list_attr is None:
            return [self._convert_one(arg, value) for value in values]
        wanted: Sequence[DType | None] = self._attrs.get(arg.type_list_attr) or [None] * len(values)
        if len(wanted) != len(values):
            raise InvalidArgumentError(f"argument {arg.name!r} takes {len(wanted)} tensors, not {len(values)}")
        tensors = [self._as_tensor(value, dtype, arg) for value, dtype in zip(values, wanted, strict=True)]
        self._attrs[arg.type_list_attr] = tuple(tensor.dtype.base_dtype for tensor in tensors)
        return tensors

    def _convert_one(self, arg: ArgDef, value: object) -> Tensor:
        if arg.type_attr is None:
            return self._as_tensor(value, arg.dtype, arg)
        attr = self._op_def.attrs[arg.type_attr]
        default = attr.default if isinstance(attr.default, DType) else None
        known = self._attrs.get(arg.type_attr)
        if known is None and default is not None and not isinstance(value, (Tensor, np.ndarray, np.generic)):
            known = default
        tensor = self._as_tensor(value, known, arg)
        self._attrs.setdefault(arg.type_attr, tensor.dtype.base_dtype)
        return tensor

    def _as_tensor(self, value: object, dtype: DType | None, arg: ArgDef) -> Tensor:
        if isinstance(value, Tensor):
            if dtype is not None and value.dtype.base_dtype is not dtype.base_dtype:
                raise InvalidTypeError(
                    f"argument {arg.name!r} of {self._op_def.name} takes {dtype.name}, not {value.dtype.name}",
                    hint=f"put ax.cast(x, ax.{dtype.name}) around it" if dtype.is_numeric else None,
                )
            if arg.is_ref and not value.dtype.is_ref:
                raise InvalidTypeError(f"argument {arg.name!r} of {self._op_def.name} takes a variable's reference")
            return value
        if holds_tensor(value):
            with self._graph:
                return as_tensor(value, dtype)
        if isinstance(value, Node):
            raise InvalidTypeError(f"argument {arg.name!r} takes a tensor, not the operation {value.name!r}")
        try:
            converted, found = as_tensor_value(_plain(value), dtype)
        except OpError as error:
            error.message = f"argument {arg.name!r} of {self._op_def.name}: {error.message}"
            raise
        return const_node(self._graph, converted, found, f"{self._op_def.name}/{arg.name}").outputs[0]


def object_hint(tensor: Tensor, dtype: DType = types.float32) -> str:
    """What to write so that *tensor*, which is an object, is of another dtype, such as *dtype*."""
    if tensor.op.properties.registration.kernel is not None:
        annotation = {types.bool: "bool", types.string: "str"}.get(dtype, "int" if dtype.is_integer else "float")
        return f"say what op {tensor.op.op!r} gives: @ax.op(outputs=[ax.{dtype.name}]), or annotate it: -> {annotation}"
    return "declare a dtype where it is made"


def _plain(value: object) -> object:
    return list(value.as_tuple()) if isinstance(value, TensorShape) else value


def as_tensor(value: object, dtype: object = None, name: str | None = None) -> Tensor:
    """*value* as a tensor of the current graph: itself if it is one, else a constant.

    A list that holds tensors is packed into one tensor.

    >>> ax.convert_to_tensor([1.0, 2.0], name="x")
    <ax.Tensor 'x:0' float32 shape=[2] from Const>

    Raises:
        InvalidTypeError: it cannot be made one, or is a tensor of another dtype.
    """
    want = None if dtype is None else as_dtype(dtype)
    value = _without_sources(value)
    if isinstance(value, Tensor):
        if want is not None and value.dtype.base_dtype is not want:
            raise InvalidTypeError(
                f"{value.name!r} is of {value.dtype.name}, not {want.name}",
                node=value.op,
                hint=f"put ax.cast(x, ax.{want.name}) around it" if want.is_numeric else None,
            )
        return value
    if isinstance(value, (list, tuple)) and holds_tensor(value):
        members = [as_tensor(member, want) if holds_tensor(member) else member for member in value]
        attrs = {"T": want} if want else {}
        return create_op("Pack", [members], attrs, name)  # type: ignore[no-any-return]
    graph = current_graph()
    converted, found = as_tensor_value(_plain(value), want)
    return const_node(graph, converted, found, name).outputs[0]


convert_to_tensor = as_tensor  # the name that users know


def holds_tensor(value: object) -> bool:
    """Whether *value* is a tensor, or stands for one, or is a nest of lists with one in it."""
    return isinstance(value, TensorSource) or next(tensors_in(value), None) is not None


def tensors_in(value: object, depth: int = 0) -> Iterator[Tensor]:
    """The tensors in a nest of lists and tuples, in order; *depth* is how deep *value* lies in one already.

    Raises:
        InvalidArgumentError: it is too deep to make a tensor, or lists contain themselves.
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        if depth >= MAX_DEPTH:
            raise InvalidArgumentError(f"lists in lists, more than {MAX_DEPTH} deep, make no tensor")
        for member in value:
            if isinstance(member, (Tensor, list, tuple)):
                yield from tensors_in(member, depth + 1)


def _without_sources(value: object) -> object:
    """*value* with the tensors in place of what stands for them."""
    if isinstance(value, TensorSource):
        return value.as_tensor()
    if isinstance(value, (list, tuple)) and any(isinstance(member, TensorSource) for member in value):
        if any(member is value for member in value):
            raise InvalidArgumentError("a list that contains itself makes no tensor")
        return [_without_sources(member) for member in value]
    return value
