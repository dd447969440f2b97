"""GraphDef: the wire form of a graph, as pydantic models in the proto3-JSON mapping.

They mirror ``graph.proto``, ``node_def.proto``, ``attr_value.proto``, ``function.proto``, ``op_def.proto``,
``versions.proto`` and ``graph_debug_info.proto`` of ``tensorflow/core/framework``, field for field.  Models that share
a name with the record they are decoded to end in ``Proto``; an :class:`AttrValue` becomes a Python value in
:mod:`asyncexec.framework.attr_value`.

A graph has these by the hundred thousand.  So all of them are frozen, nodes with the same attrs share one mapping, and
common AttrValues are interned: whoever wants another value makes another model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, StrictBool, model_validator

from asyncexec.framework.tensor_protos import DtypeAndShape, FullTypeDef, TensorProto, TensorShapeProto
from asyncexec.framework.wire_types import Base64Bytes, DataType, Float32, Int32, Int64, UInt32, UInt64, WireModel

# The members of AttrValue's oneof, the most common first.
ATTR_KINDS: Final = ("type", "i", "b", "list", "s", "tensor", "shape", "f", "func", "placeholder")
LIST_KINDS: Final = ("type", "i", "s", "shape", "b", "f", "tensor", "func")

_MAX_INTERNED: Final = 4096
_MAX_INTERNED_BYTES: Final = 32
_INTERNED_INTS: Final = range(-16, 1025)
_EMPTY: Final[Mapping[Any, Any]] = {}
_interned: dict[tuple[str, Any], AttrValue] = {}


class ListValue(WireModel):
    """A list attr; at most one of the fields has elements (``AttrValue.ListValue``)."""

    s: tuple[Base64Bytes, ...] = ()
    i: tuple[Int64, ...] = ()
    f: tuple[Float32, ...] = ()
    b: tuple[StrictBool, ...] = ()
    type: tuple[DataType, ...] = ()
    shape: tuple[TensorShapeProto, ...] = ()
    tensor: tuple[TensorProto, ...] = ()
    func: tuple[NameAttrList, ...] = ()


class AttrValue(WireModel):
    """The value of an attr; exactly one field is set."""

    s: Base64Bytes | None = None
    i: Int64 | None = None
    f: Float32 | None = None
    b: StrictBool | None = None
    type: DataType | None = None
    shape: TensorShapeProto | None = None
    tensor: TensorProto | None = None
    list: ListValue | None = None
    func: NameAttrList | None = None
    placeholder: str | None = None

    @model_validator(mode="after")
    def _one_is_set(self) -> Self:
        fields = self.__dict__
        found = [kind for kind in ATTR_KINDS if fields[kind] is not None]
        if len(found) != 1:
            raise ValueError(f"exactly one of {', '.join(ATTR_KINDS)} must be set, not {' and '.join(found) or 'none'}")
        return self

    @property
    def kind(self) -> str:
        """The name of the field that is set."""
        fields = self.__dict__
        for kind in ATTR_KINDS:
            if fields[kind] is not None:
                return kind
        raise ValueError("no field of this AttrValue is set")


def _is_common(kind: str, value: Any) -> bool:
    if kind == "i":
        return value in _INTERNED_INTS
    if kind == "s":
        return len(value) <= _MAX_INTERNED_BYTES
    return kind in ("type", "b")


def make_attr(kind: str, value: object) -> AttrValue:
    """The AttrValue whose field *kind* is the trusted *value*; common ones are made once and shared."""
    is_common = _is_common(kind, value)
    if is_common and (kind, value) in _interned:
        return _interned[kind, value]
    fields = AttrValue.field_defaults()
    fields[kind] = value
    made = AttrValue.from_fields(fields)
    if is_common and len(_interned) < _MAX_INTERNED:
        _interned[kind, value] = made
    return made


def intern_attr(value: AttrValue) -> AttrValue:
    """The shared AttrValue that equals *value*, or *value* itself when it is not a common one."""
    kind = value.kind
    content = value.__dict__[kind]
    return make_attr(kind, content) if _is_common(kind, content) else value


def _with_values(attrs: object) -> object:
    """*attrs* without internal ones that have no value."""
    if not isinstance(attrs, Mapping):
        return attrs
    return {key: value for key, value in attrs.items() if value != {} or not str(key).startswith("_")}


AttrMap = Annotated[
    Mapping[str, Annotated[AttrValue, AfterValidator(intern_attr)]],
    BeforeValidator(_with_values, json_schema_input_type=Mapping[str, AttrValue]),
]


class NameAttrList(WireModel):
    """A function and the attrs it is instantiated with."""

    name: str = ""
    attr: AttrMap = _EMPTY


class ExperimentalDebugInfo(WireModel):
    """Where a node came from before rewriting (``NodeDef.ExperimentalDebugInfo``)."""

    original_node_names: tuple[str, ...] = ()
    original_func_names: tuple[str, ...] = ()


class NodeDef(WireModel):
    """A node: inputs are ``name``, ``name:slot`` and, last, ``^name`` for control edges.

    pydantic.ValidationError, a ValueError, if a field is unknown or wrong.

    >>> ax.NodeDef(name="y", op="Neg", input=["x:0", "^first"]).input
    ('x:0', '^first')
    """

    name: str = ""
    op: str = ""
    input: tuple[str, ...] = ()
    device: str = ""
    attr: AttrMap = _EMPTY
    experimental_debug_info: ExperimentalDebugInfo | None = None
    experimental_type: FullTypeDef | None = None


class ArgDefProto(WireModel):
    """An input or output of a function's signature (``OpDef.ArgDef``)."""

    name: str = ""
    description: str = ""
    type: DataType = 0
    type_attr: str = ""
    number_attr: str = ""
    type_list_attr: str = ""
    handle_data: tuple[DtypeAndShape, ...] = ()
    is_ref: StrictBool = False
    experimental_full_type: FullTypeDef | None = None


class AttrDefProto(WireModel):
    """An attr of a function's signature (``OpDef.AttrDef``)."""

    name: str = ""
    type: str = ""
    default_value: AttrValue | None = None
    description: str = ""
    has_minimum: StrictBool = False
    minimum: Int64 = 0
    allowed_values: AttrValue | None = None


class OpDeprecation(WireModel):
    """Since which GraphDef version an op is not to be used."""

    version: Int32 = 0
    explanation: str = ""


class OpDefProto(WireModel):
    """A signature (``OpDef``)."""

    name: str = ""
    input_arg: tuple[ArgDefProto, ...] = ()
    output_arg: tuple[ArgDefProto, ...] = ()
    control_output: tuple[str, ...] = ()
    attr: tuple[AttrDefProto, ...] = ()
    deprecation: OpDeprecation | None = None
    summary: str = ""
    description: str = ""
    is_commutative: StrictBool = False
    is_aggregate: StrictBool = False
    is_stateful: StrictBool = False
    allows_uninitialized_input: StrictBool = False
    is_distributed_communication: StrictBool = False


class ArgAttrs(WireModel):
    """Attrs of one argument of a function (``FunctionDef.ArgAttrs``)."""

    attr: AttrMap = _EMPTY


class FunctionDef(WireModel):
    """A function: its signature, its body, and which tensors of the body it returns."""

    signature: OpDefProto = OpDefProto.model_construct()
    attr: AttrMap = _EMPTY
    arg_attr: Mapping[UInt32, ArgAttrs] = _EMPTY
    resource_arg_unique_id: Mapping[UInt32, UInt32] = _EMPTY
    node_def: tuple[NodeDef, ...] = ()
    ret: Mapping[str, str] = _EMPTY
    control_ret: Mapping[str, str] = _EMPTY


class GradientDef(WireModel):
    """The gradient function of a function."""

    function_name: str = ""
    gradient_func: str = ""


class RegisteredGradient(WireModel):
    """The gradient function of an op type."""

    gradient_func: str = ""
    registered_op_type: str = ""


class FunctionDefLibrary(WireModel):
    """The functions of a graph."""

    function: tuple[FunctionDef, ...] = ()
    gradient: tuple[GradientDef, ...] = ()
    registered_gradients: tuple[RegisteredGradient, ...] = ()


class VersionDef(WireModel):
    """Which versions of GraphDef made a graph and may read it."""

    producer: Int32 = 0
    min_consumer: Int32 = 0
    bad_consumers: tuple[Int32, ...] = ()


class FileLineCol(WireModel):
    """A line of the program that made a graph (``GraphDebugInfo.FileLineCol``)."""

    file_index: Int32 | None = None
    line: Int32 | None = None
    col: Int32 | None = None
    func: str | None = None
    code: str | None = None


class StackTrace(WireModel):
    """The calls that led to a node (``GraphDebugInfo.StackTrace``)."""

    file_line_cols: tuple[FileLineCol, ...] = ()
    frame_id: tuple[UInt64, ...] = ()


class GraphDebugInfo(WireModel):
    """Where the nodes of a graph were made."""

    files: tuple[str, ...] = ()
    frames_by_id: Mapping[UInt64, FileLineCol] = _EMPTY
    traces_by_id: Mapping[UInt64, StackTrace] = _EMPTY
    traces: Mapping[str, StackTrace] = _EMPTY
    name_to_trace_id: Mapping[str, UInt64] = _EMPTY


class GraphDef(WireModel):
    """A graph: nodes, functions, and the versions it is for.

    pydantic.ValidationError, a ValueError, if a field is unknown or wrong.

    >>> graph_def = ax.GraphDef(node=[ax.NodeDef(name="n", op="NoOp")])
    >>> ax.import_graph_def(graph_def)
    >>> ax.current_graph()["n"].type
    'NoOp'
    """

    node: tuple[NodeDef, ...] = ()
    library: FunctionDefLibrary | None = None
    versions: VersionDef | None = None
    version: Int32 = 0
    debug_info: GraphDebugInfo | None = None
