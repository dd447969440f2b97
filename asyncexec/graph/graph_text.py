"""A graph as text, one node a line: to write graphs in tests, and to read those that a stage made.

::

    p: Const[false]
    x: Placeholder[float32, [2, ?]]
    y: Cast[DstT=int32](x, ^p) @ /cpu:1
    s: Switch(y, p)
    z: AddN(s:1, s:1)

A line is ``name: Op[attrs](inputs) @ device``; attrs, inputs and device may be left out.  Attrs are ``name=value``; a
Const takes its value and, where it is not that of a Python literal, its dtype; a Placeholder takes dtype and shape.
Attrs that follow from the inputs (``T``, ``N``) and those at their default need not be written, and are not.  ``#``
begins a comment.  Nodes may come in any order.  Functions have no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asyncexec.framework.attr_value import decode_attr_value, encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.graph_def import GraphDef, NodeDef, VersionDef
from asyncexec.framework.op_def import ArgDef, OpDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_to_def import CURRENT_VERSIONS
from asyncexec.graph.text_values import Literal, Scanner, Word, tensor_value, value_of_kind, written

_HEAD: Final = re.compile(r"\s*(\S+):\s(.*)", re.DOTALL)
_KINDS_OF_OTHERS: Final = {"_output_shapes": "list(shape)", "_class": "list(string)"}
_POSITIONAL: Final = {"Const": ("value", "dtype"), "Placeholder": ("dtype", "shape")}


@dataclass(slots=True)
class _Line:
    """A node as it is written."""

    name: str
    op: str
    inputs: list[str]
    device: str
    literals: dict[str, Literal]
    scanner: Scanner
    attrs: dict[str, Any] = field(default_factory=dict)
    output_dtypes: tuple[DType, ...] | None = None


def parse_graph_text(text: str, *, versions: VersionDef = CURRENT_VERSIONS) -> GraphDef:
    """The GraphDef that *text* spells; what is wrong in the graph itself is left for the importer to find.

    Raises:
        InvalidArgumentError: a line cannot be read; the message shows it.
    """
    lines = [_parse_line(line) for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    by_name = {line.name: line for line in lines}
    waiting = lines
    while waiting:
        # Once more for what got its dtypes from a line further down; the last round is for those that never will.
        left = [line for line in waiting if not _infer(line, by_name)]
        if len(left) == len(waiting):
            break
        waiting = left
    return GraphDef(node=tuple(map(_node_def, lines)), versions=versions)


def graph_text(graph: Graph | GraphDef) -> str:
    """*graph* as text that parse_graph_text takes back."""
    graph_def = graph if isinstance(graph, GraphDef) else graph.as_graph_def()
    return "\n".join(map(_node_text, graph_def.node))


def _parse_line(text: str) -> _Line:
    head = _HEAD.fullmatch(text)
    if head is None:
        raise InvalidArgumentError(f"no 'name: Op' in the line {text.strip()[:200]!r}")
    scanner = Scanner(head[2])
    op = scanner.next()
    literals = _parse_attrs(op, scanner) if scanner.take("[") else {}
    inputs: list[str] = []
    if scanner.take("("):
        while not scanner.take(")"):
            inputs.append(scanner.next())
            if scanner.peek() != ")":
                scanner.expect(",")
    device = scanner.next() if scanner.take("@") else ""
    if scanner.peek():
        raise scanner.error(f"{scanner.peek()!r} is not expected")
    return _Line(head[1], op, inputs, device, literals, scanner)


def _parse_attrs(op: str, scanner: Scanner) -> dict[str, Literal]:
    literals: dict[str, Literal] = {}
    names = list(_POSITIONAL.get(op, ()))
    while not scanner.take("]"):
        if scanner.peek(1) == "=":
            name = scanner.next()
            scanner.expect("=")
        elif names:
            name = names.pop(0)
        else:
            raise scanner.error(f"an attr of {op} is written name=value")
        literals[name] = scanner.literal()
        if scanner.peek() != "]":
            scanner.expect(",")
    return literals


def _infer(line: _Line, by_name: Mapping[str, _Line]) -> bool:
    """Work out the attrs and output dtypes of *line*; False when its inputs do not tell enough yet."""
    if line.op not in op_registry:
        line.attrs = {name: _value(line, name, _kind(None, name)) for name in line.literals}
        return True
    op_def = op_registry.lookup(line.op).op_def
    line.attrs = {name: _value(line, name, _kind(op_def, name)) for name in line.literals}
    if line.op == "Const":
        _complete_const(line)
    _infer_attrs(line, op_def, by_name)
    try:
        line.output_dtypes = op_def.output_dtypes(op_def.complete_attrs(line.attrs, imported=True))
    except OpError:
        return False  # attrs are missing, or wrong: the importer says which
    return True


def _kind(op_def: OpDef | None, name: str) -> str:
    if op_def is not None and name in op_def.attrs:
        return op_def.attrs[name].kind
    return _KINDS_OF_OTHERS.get(name, "")


def _value(line: _Line, name: str, kind: str) -> Any:
    try:
        return value_of_kind(line.literals[name], kind)
    except (ValueError, TypeError, KeyError) as error:
        raise line.scanner.error(f"attr {name!r} ({kind or 'of unknown kind'}): {error}") from error


def _complete_const(line: _Line) -> None:
    literal = line.literals.get("value", Word("0"))
    try:
        line.attrs["value"], line.attrs["dtype"] = tensor_value(literal, line.attrs.get("dtype"))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise line.scanner.error(f"no tensor: {error}") from error


def _infer_attrs(line: _Line, op_def: OpDef, by_name: Mapping[str, _Line]) -> None:
    data = [_dtype_of(text, by_name) for text in line.inputs if not text.startswith("^")]
    start = 0
    for arg, count in zip(op_def.inputs, _counts(op_def.inputs, line.attrs, len(data)), strict=True):
        dtypes = data[start : start + count]
        start += count
        if arg.number_attr is not None:
            line.attrs.setdefault(arg.number_attr, count)
        if arg.type_attr is not None:
            known = next((dtype for dtype in dtypes if dtype is not None), None)
            if known is not None:
                line.attrs.setdefault(arg.type_attr, known)
        elif arg.type_list_attr is not None and None not in dtypes:
            line.attrs.setdefault(arg.type_list_attr, tuple(dtypes))


def _counts(args: Iterable[ArgDef], attrs: Mapping[str, object], total: int) -> list[int]:
    """How many inputs each argument takes; those that share an unknown length share what the others leave."""
    counts = [_count(arg, attrs) for arg in args]
    unknown = counts.count(None)
    left = max(0, total - sum(count for count in counts if count is not None))
    return [left // unknown if count is None else count for count in counts]


def _count(arg: ArgDef, attrs: Mapping[str, Any]) -> int | None:
    if arg.number_attr is not None:
        number = attrs.get(arg.number_attr)
        return number if isinstance(number, int) else None
    if arg.type_list_attr is not None:
        return len(attrs[arg.type_list_attr]) if arg.type_list_attr in attrs else None
    return 1


def _dtype_of(text: str, by_name: Mapping[str, _Line]) -> DType | None:
    name, _, slot = text.partition(":")
    source = by_name.get(name)
    if source is None or source.output_dtypes is None or not (slot or "0").isdecimal():
        return None
    index = int(slot or "0")
    return source.output_dtypes[index].base_dtype if index < len(source.output_dtypes) else None


def _node_def(line: _Line) -> NodeDef:
    op_def = op_registry.lookup(line.op).op_def if line.op in op_registry else None
    attr = {}
    for name, value in line.attrs.items():
        try:
            attr[name] = encode_attr_value(value, _kind(op_def, name))
        except InvalidArgumentError:  # of a wrong kind, which the importer is to find
            attr[name] = encode_attr_value(value)
    return NodeDef(name=line.name, op=line.op, input=tuple(line.inputs), device=line.device, attr=attr)


def _node_text(node: NodeDef) -> str:
    attrs = _attrs_text(node)
    text = f"{node.name}: {node.op}"
    if attrs:
        text += f"[{', '.join(attrs)}]"
    if node.input:
        text += f"({', '.join(node.input)})"
    return f"{text} @ {node.device}" if node.device else text


def _attrs_text(node: NodeDef) -> list[str]:
    attrs = {name: decode_attr_value(value) for name, value in node.attr.items()}
    if node.op == "Const" and attrs.keys() >= {"value", "dtype"}:
        value, dtype = attrs.pop("value"), attrs.pop("dtype")
        short = [written(value), *_dtype_unless_default(value, dtype)]
    elif node.op == "Placeholder" and "dtype" in attrs:
        dtype, shape = attrs.pop("dtype"), attrs.pop("shape", UNKNOWN_SHAPE)
        short = [
            written(dtype),
            *([written(shape)] if isinstance(shape, TensorShape) and shape.dims is not None else []),
        ]
    else:
        short = []
    op_def = op_registry.lookup(node.op).op_def if node.op in op_registry else None
    return short + [
        f"{name}={written(value)}" for name, value in attrs.items() if not _goes_without(op_def, name, value)
    ]


def _dtype_unless_default(value: object, dtype: DType) -> list[str]:
    try:
        default = tensor_value(Scanner(written(value)).literal(), None)[1]
    except (ValueError, TypeError, KeyError):
        return [dtype.name]
    return [] if default is dtype else [dtype.name]


def _goes_without(op_def: OpDef | None, name: str, value: object) -> bool:
    if op_def is None or name not in op_def.attrs:
        return False
    default = op_def.attrs[name].default
    if type(default) is type(value) and bool(default == value):
        return True
    return any(name in (arg.type_attr, arg.number_attr, arg.type_list_attr) for arg in op_def.inputs)
