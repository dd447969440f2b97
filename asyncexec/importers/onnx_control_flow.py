"""If, Loop and Scan as functional If and While: their graphs become functions, and take captured values as arguments.

A Loop carries, beside its variables, the iteration, the condition and for each scan output what it has collected so
far; what it captures goes round unchanged, so the loop enters it once.  A Scan is a Loop over the slices of its inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from asyncexec.framework import types
from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.extras import require
from asyncexec.framework.graph_def import AttrValue, FunctionDef, NameAttrList, make_attr
from asyncexec.framework.tensor_proto import encode_shape
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.importers.onnx_checks import describe
from asyncexec.importers.onnx_scope import (
    Scope,
    Value,
    free_names,
    function_def,
    node_name,
    shapes_attr,
    type_attr,
    types_attr,
)
from asyncexec.importers.onnx_types import OBJECT_TYPE, ValueType, value_type

_INT64: Final = ValueType(types.int64, SCALAR)
_BOOL: Final = ValueType(types.bool, SCALAR)
_SCAN_WITHOUT_BATCHES: Final = 9
_ONE_OF_BATCH: Final = "one_of_batch"
_LOWERED: Final = make_attr("b", True)
Attributes = dict[str, Any]


class Writer(Protocol):
    """What writes the nodes of a graph, and keeps the functions."""

    functions: dict[str, FunctionDef]
    opset: int

    def write_body(self, scope: Scope, graph: object) -> None: ...


def types_in(graph: Any) -> dict[str, ValueType]:
    """What inference has found out of the values of *graph*."""
    values = (*graph.value_info, *graph.output, *graph.input)
    return {value.name: value_type(value.type, f"value {value.name!r}") for value in values}


def _attributes(node: Any) -> Attributes:
    return {attribute.name: attribute for attribute in node.attribute}


def write_if(writer: Writer, scope: Scope, node: Any) -> list[Value]:
    """The outputs of an If."""
    attributes, name = _attributes(node), node.name or f"If/{node.output[0]}"
    graphs = [attributes["then_branch"].g, attributes["else_branch"].g]
    captured = _captured(scope, node, graphs)
    bodies = [_Body(writer, graph, [], captured) for graph in graphs]
    outputs = [body.outputs() for body in bodies]
    if len({len(each) for each in (*outputs, node.output)}) != 1:
        raise InvalidArgumentError(
            f"the branches give {len(outputs[0])} and {len(outputs[1])} values, for {len(node.output)} outputs"
        )
    found = [
        ValueType(then.dtype if then.dtype is other.dtype else types.object, scope.type_of(output).shape)
        for then, other, output in zip(*outputs, node.output, strict=True)
    ]
    functions = [body.function(f"{name}/{side}", found) for body, side in zip(bodies, ("then", "else"), strict=True)]
    condition = scope.scalar(scope.lookup(node.input[0], f"node {describe(node)}"), f"{name}/cond")
    inputs = list(captured.values())
    attrs = {
        "Tcond": type_attr(condition.dtype),
        "Tin": types_attr(inputs),
        "Tout": types_attr(found),
        "then_branch": _func(functions[0]),
        "else_branch": _func(functions[1]),
        "output_shapes": shapes_attr(found),
        "_lower_using_switch_merge": _LOWERED,
    }
    op = "If" if any(body.is_stateful for body in bodies) else "StatelessIf"
    return scope.add(op, name, [condition, *inputs], attrs, found)


def write_loop(writer: Writer, scope: Scope, node: Any) -> list[Value]:
    """The outputs of a Loop: the last values of its variables, and what it has collected."""
    who, name = f"node {describe(node)}", node.name or f"Loop/{next(filter(None, node.output), '')}"
    graph = _attributes(node)["body"].g
    given = [scope.lookup(text, who) if text else None for text in (*node.input, "", "")[: max(2, len(node.input))]]
    limit, condition, *variables = given
    if any(value is None for value in variables):
        raise InvalidArgumentError(f"{who} leaves out the first value of a variable")
    first = [value for value in variables if value is not None]
    num_scans = len(graph.output) - 1 - len(first)
    if num_scans < 0 or len(graph.input) != len(first) + 2:
        raise InvalidArgumentError(
            f"the body of {who} takes {len(graph.input)} values and gives {len(graph.output)}; {len(first)} variables "
            f"need {len(first) + 2} and at least {len(first) + 1}"
        )
    loop = _Loop(writer, scope, name, _captured(scope, node, [graph]))
    loop.limit = None if limit is None else scope.scalar(limit, f"{name}/limit")
    loop.variables = first
    loop.start = None if condition is None else scope.scalar(condition, f"{name}/cond")
    body = loop.body(graph, [_INT64, _BOOL, *(value.type for value in first)])
    _, *outputs = body.outputs()
    found = body.scope.scalar(body.scope.lookup(graph.output[0].name, who), "cond_out")
    return loop.write(body, found, outputs, [_End()] * num_scans, node.output)


def write_scan(writer: Writer, scope: Scope, node: Any) -> list[Value]:
    """The outputs of a Scan: the last states, and what it has collected."""
    who, name = f"node {describe(node)}", node.name or f"Scan/{next(filter(None, node.output), '')}"
    if writer.opset < _SCAN_WITHOUT_BATCHES:
        return write_scan(_Newer(writer), scope, _over_batches(node, who))
    attributes = _attributes(node)
    graph = attributes["body"].g
    num_inputs = attributes["num_scan_inputs"].i
    given = [scope.lookup(text, who) for text in node.input]
    states, scanned = given[: len(given) - num_inputs], given[len(given) - num_inputs :]
    if not 0 < num_inputs <= len(given) or len(graph.input) != len(given) or len(graph.output) < len(states):
        raise InvalidArgumentError(
            f"the body of {who} takes {len(graph.input)} values and gives {len(graph.output)}, for {len(given)} "
            f"inputs, of which num_scan_inputs = {num_inputs} are scanned"
        )
    num_scans = len(graph.output) - len(states)

    def numbers(key: str, count: int) -> list[int]:
        found = list(attributes[key].ints) if key in attributes else []
        if found and len(found) != count:
            raise InvalidArgumentError(f"attribute {key!r} of {who} has {len(found)} numbers, not {count}")
        return found or [0] * count

    axes, reverse = numbers("scan_input_axes", num_inputs), numbers("scan_input_directions", num_inputs)
    ends = zip(numbers("scan_output_axes", num_scans), numbers("scan_output_directions", num_scans), strict=True)
    loop = _Loop(writer, scope, name, _captured(scope, node, [graph]))
    attrs = {"T": types_attr(scanned), "axes": encode_attr_value(tuple(axes), "list(int)")}
    loop.limit = scope.add("OnnxScanLength", f"{name}/length", scanned, attrs, [_INT64])[0]
    loop.variables = states
    slices = [_Slice(value, axis, bool(back)) for value, axis, back in zip(scanned, axes, reverse, strict=True)]
    body = loop.body(graph, [_INT64, _BOOL, *(value.type for value in states)], slices)
    return loop.write(body, body.args[1], body.outputs(), [_End(axis, bool(back)) for axis, back in ends], node.output)


class _Newer:
    """A writer that takes Scan as it is now, within one that is as it was before operator set 9."""

    opset = _SCAN_WITHOUT_BATCHES

    def __init__(self, writer: Writer) -> None:
        self.functions = writer.functions
        self._writer = writer

    def write_body(self, scope: Scope, graph: Any) -> None:
        if graph.name != _ONE_OF_BATCH:
            self._writer.write_body(scope, graph)
            return
        (node,) = graph.node
        for name, value in zip(node.output, write_scan(self, scope, node), strict=True):
            scope.define(name, value)


def _over_batches(node: Any, who: str) -> object:
    """A Scan of operator set 8, whose inputs are batches, as a Scan over the batch of Scans."""
    helper: Any = require("onnx.helper", extra="onnx")
    onnx: Any = require("onnx", extra="onnx")
    attributes = _attributes(node)
    lengths, *inputs = node.input
    if lengths:
        raise UnimplementedError(f"{who} has sequences of different lengths, which only operator set 8 has")
    inner_inputs = [f"{_ONE_OF_BATCH}/in_{i}" for i in range(len(inputs))]
    inner_outputs = [f"{_ONE_OF_BATCH}/out_{i}" for i in range(len(node.output))]
    num_inputs = attributes["num_scan_inputs"].i
    directions = {"scan_input_directions": list(attributes["directions"].ints)} if "directions" in attributes else {}
    body = attributes["body"].g
    one = helper.make_node("Scan", inner_inputs, inner_outputs, body=body, num_scan_inputs=num_inputs, **directions)
    values = [[onnx.ValueInfoProto(name=name) for name in names] for names in (inner_inputs, inner_outputs)]
    graph = helper.make_graph([one], _ONE_OF_BATCH, *values)
    return helper.make_node("Scan", inputs, node.output, name=node.name, body=graph, num_scan_inputs=len(inputs))


class _Slice:
    """A scan input: the body sees a slice of it."""

    def __init__(self, value: Value, axis: int, is_reversed: bool) -> None:
        self.value = value
        self.axis = axis
        self.is_reversed = is_reversed


class _End:
    """How a scan output is put together."""

    def __init__(self, axis: int = 0, is_reversed: bool = False) -> None:
        self.axis = axis
        self.is_reversed = is_reversed


class _Body:
    """A graph in a node as a function under way.

    Attributes:
        args: what the function takes before captured values.
    """

    def __init__(self, writer: Writer, graph: Any, args: Sequence[ValueType], captured: dict[str, Value]) -> None:
        self._writer = writer
        self._graph = graph
        self.scope = Scope(types_in(graph), is_function=True)
        all_types = [*args, *(value.type for value in captured.values())]
        self._all = [Value(self.scope.unique(f"a{i}"), each) for i, each in enumerate(all_types)]
        self.args: list[Value] = self._all[: len(args)]
        self.captured: list[Value] = self._all[len(args) :]
        self.scope.values.update(zip(captured, self.captured, strict=True))
        self._is_written = False

    @property
    def is_stateful(self) -> bool:
        return self.scope.is_stateful

    def outputs(self) -> list[Value]:
        """What the graph gives."""
        if not self._is_written:
            self._is_written = True
            self._writer.write_body(self.scope, self._graph)
        return [
            self.scope.lookup(value.name, f"the list of outputs of graph {self._graph.name!r}")
            for value in self._graph.output
        ]

    def function(self, name: str, wanted: Sequence[ValueType], outputs: Sequence[Value] | None = None) -> str:
        """Keep the function, whose outputs are of the dtypes of *wanted*; its name."""
        given = self.outputs() if outputs is None else outputs
        cast = [self.scope.as_type(value, want.dtype, "out") for value, want in zip(given, wanted, strict=True)]
        return keep(self._writer, name, self.scope, self._all, cast)


def keep(writer: Writer, name: str, scope: Scope, args: Sequence[Value], outputs: Sequence[Value]) -> str:
    """Add a function to the library under a name that tells its contents: another model's may be called the same."""
    draft = function_def("f", scope, args, outputs)
    digest = hashlib.blake2b(digest_size=8)
    for node in draft.node_def:
        digest.update(repr((node.name, node.op, node.input, sorted(node.attr))).encode())
        for value in node.attr.values():
            tensor = value.tensor
            digest.update(tensor.tensor_content if tensor and tensor.tensor_content else repr(value).encode())
    digest.update(repr((draft.signature, draft.ret)).encode())
    full = f"onnx_{node_name(name).replace('/', '_').replace('-', '_')}_{digest.hexdigest()}"
    writer.functions[full] = function_def(full, scope, args, outputs)
    return full


class _Loop:
    """A While under way.

    Attributes:
        limit: how often it runs at most.
        start: whether it runs at all.
        variables: the first values of what is carried.
    """

    def __init__(self, writer: Writer, scope: Scope, name: str, captured: dict[str, Value]) -> None:
        self._writer = writer
        self._scope = scope
        self._name = name
        self._captured = captured
        self._slices: Sequence[_Slice] = ()
        self.limit: Value | None = None
        self.start: Value | None = None
        self.variables: list[Value] = []

    def body(self, graph: Any, args: Sequence[ValueType], slices: Sequence[_Slice] = ()) -> _Body:
        """The function of *graph*: its arguments are iteration, condition, variables, scan inputs, captured values.

        The body of a Scan has no iteration and condition, and sees slices.
        """
        carried = [ValueType(each.dtype, UNKNOWN_SHAPE) for each in args[2:]]
        self._slices = slices
        whole = [each.value.type for each in slices]
        body = _Body(self._writer, graph, [*args[:2], *carried, *whole], self._captured)
        scope = body.scope
        seen = body.args[2:] if slices else body.args
        names = [value.name for value in graph.input]
        for i, each in enumerate(slices):
            place = 2 + len(carried) + i
            shape = scope.type_of(names[len(carried) + i]).shape
            attrs = {
                "T": type_attr(each.value.dtype),
                "shape": make_attr("shape", encode_shape(shape)),
                "axis": make_attr("i", each.axis),
                "reverse": make_attr("b", each.is_reversed),
            }
            inputs = [body.args[place], body.args[0]]
            seen[len(carried) + i] = scope.add(
                "OnnxScanSlice", f"slice_{i}", inputs, attrs, [ValueType(each.value.dtype, shape)]
            )[0]
        for text, value in zip(names, seen, strict=True):
            scope.define(text, value)
        return body

    def write(
        self, body: _Body, goes_on: Value, outputs: Sequence[Value], ends: Sequence[_End], names: Sequence[str]
    ) -> list[Value]:
        """The While; its results for the outputs *names* of the node."""
        scope, name, count = self._scope, self._name, len(self.variables)
        limit = self.limit
        fixed = [*(each.value for each in self._slices), *self._captured.values()]
        lists = [scope.add("OnnxScanBegin", f"{name}/scan_{i}", (), {}, [OBJECT_TYPE])[0] for i in range(len(ends))]
        index = scope.constant(0, f"{name}/zero", types.int64)
        start = self.start or scope.constant(True, f"{name}/true", types.bool)
        last = [] if limit is None else [limit]
        inputs = [index, start, *self.variables, *fixed, *lists, *last]
        variable_types = [
            ValueType(value.dtype, scope.type_of(text).shape if text else UNKNOWN_SHAPE)
            for value, text in zip(self.variables, (*names, *[""] * count), strict=False)
        ]
        all_types = [_INT64, _BOOL, *variable_types, *(value.type for value in (*fixed, *lists, *last))]
        body_name = self._body_function(body, goes_on, outputs, len(ends), all_types, bool(last))
        attrs = {
            "T": types_attr(all_types),
            "cond": _func(self._condition_function(all_types, bool(last))),
            "body": _func(body_name),
            "output_shapes": shapes_attr(all_types),
            "_lower_using_switch_merge": _LOWERED,
        }
        op = "While" if body.is_stateful else "StatelessWhile"
        results = scope.add(op, name, inputs, attrs, all_types)
        start_of_lists = 2 + count + len(fixed)
        collected = [
            self._collected(results[start_of_lists + i], end, outputs[count + i], text)
            for i, (end, text) in enumerate(zip(ends, (*names[count:], *[""] * len(ends)), strict=False))
        ]
        return [*results[2 : 2 + count], *collected]

    def _collected(self, values: Value, end: _End, each: Value, output: str) -> Value:
        scope, dtype = self._scope, each.dtype
        shape = scope.type_of(output).shape if output else UNKNOWN_SHAPE
        if shape.dims is None and each.type.shape.dims is not None:
            sizes = list(each.type.shape.dims)
            axis = end.axis if end.axis >= 0 else end.axis + len(sizes) + 1
            shape = TensorShape([*sizes[:axis], None, *sizes[axis:]])
        attrs = {
            "T": type_attr(dtype),
            "shape": make_attr("shape", encode_shape(shape)),
            "axis": make_attr("i", end.axis),
            "reverse": make_attr("b", end.is_reversed),
        }
        return scope.add("OnnxScanEnd", f"{self._name}/collected", [values], attrs, [ValueType(dtype, shape)])[0]

    def _body_function(
        self,
        body: _Body,
        goes_on: Value,
        outputs: Sequence[Value],
        num_scans: int,
        all_types: Sequence[ValueType],
        has_limit: bool,
    ) -> str:
        scope, count = body.scope, len(self.variables)
        one = scope.constant(1, "one", types.int64)
        following = scope.add("AddV2", "next", [body.args[0], one], {"T": type_attr(types.int64)}, [_INT64])[0]
        rest = [Value(scope.unique(f"c{i}"), OBJECT_TYPE) for i in range(num_scans)]
        pushed = [
            scope.add("OnnxScanPush", "push", [before, value], {"T": type_attr(value.dtype)}, [OBJECT_TYPE])[0]
            for before, value in zip(rest, outputs[count:], strict=True)
        ]
        last = [Value(scope.unique("limit"), _INT64)] if has_limit else []
        variables = [
            scope.as_type(value, want.dtype, "carried")
            for value, want in zip(outputs[:count], all_types[2:], strict=False)
        ]
        fixed = [*body.args[2 + count :], *body.captured]
        args = [*body.args, *body.captured, *rest, *last]
        goes_on = scope.as_type(goes_on, types.bool, "cond_out")
        return keep(
            self._writer, f"{self._name}/body", scope, args, [following, goes_on, *variables, *fixed, *pushed, *last]
        )

    def _condition_function(self, all_types: Sequence[ValueType], has_limit: bool) -> str:
        scope = Scope({}, is_function=True)
        args = [Value(scope.unique(f"a{i}"), each) for i, each in enumerate(all_types)]
        goes_on = args[1]
        if has_limit:
            attrs = {"T": type_attr(types.int64)}
            below = scope.add("Less", "below", [args[0], args[-1]], attrs, [_BOOL])[0]
            goes_on = scope.add("LogicalAnd", "both", [below, goes_on], {}, [_BOOL])[0]
        return keep(self._writer, f"{self._name}/cond", scope, args, [goes_on])


def _captured(scope: Scope, node: object, graphs: Sequence[object]) -> dict[str, Value]:
    who = f"the graph in node {describe(node)}"
    return {name: scope.lookup(name, who) for graph in graphs for name in free_names(graph)}


def _func(name: str) -> AttrValue:
    return make_attr("func", NameAttrList.model_construct(name=name))


CONTROL_FLOW: Final[dict[str, Callable[[Any, Scope, Any], list[Value]]]] = {
    "If": write_if,
    "Loop": write_loop,
    "Scan": write_scan,
}
