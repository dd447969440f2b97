"""GraphDef -> nodes of a Graph, after ``tensorflow/core/common_runtime/graph_constructor.cc``.

A node is converted once all its inputs are; a Merge waits for all but its NextIteration inputs, so that the back edges
of loops are the last to be added.  Nodes that can never be converted stand on a cycle.  The graph is changed only at
the end, when everything has been found right.

An input is looked up as it is written before it is parsed: most are just the name of a node.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.framework.attr_value import decode_attr_value
from asyncexec.framework.cooperative import STRIDE, Stage, release, run_at_once
from asyncexec.framework.device_name import merge_device_names
from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from asyncexec.framework.graph_def import FunctionDef, GraphDef, NodeDef, VersionDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_id import CONTROL_SLOT, TensorId, parse_tensor_name
from asyncexec.framework.tensor_proto import ByteBudget
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS
from asyncexec.graph.function_library import checked_library, function_registration
from asyncexec.graph.graph import Graph
from asyncexec.graph.import_checks import (
    COLOCATION_PREFIX,
    check_colocation,
    check_names,
    check_versions,
    checked_registration,
    colocated_with,
    completed_attrs,
    merged_versions,
    source_lines,
)
from asyncexec.graph.import_cycles import cycle_error, infer_merge
from asyncexec.graph.import_inputs import (
    InputId,
    check_dtype,
    check_inputs,
    control_before_data,
    declared_shapes,
    merge_declared_shapes,
    no_such_output,
    parse_input,
    plain_inputs,
    unknown_input,
)
from asyncexec.graph.loop_checks import LOOP_OPS, check_loops
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Node, NodeProperties, SourceLine, Tensor
from asyncexec.graph.unique_names import unique_names

logger: Final = logging.getLogger("asyncexec")

NO_VERSIONS: Final = VersionDef.model_construct()
_WIDE: Final = 64  # outputs that a node may have without being counted
_OUTPUT_BYTES: Final = 128
_NAMES_AT_ONCE: Final = 16 * STRIDE  # that are checked between two yields


class GraphConstructor:
    """Builds the nodes of one GraphDef into a graph; used once."""

    def __init__(
        self,
        graph: Graph,
        graph_def: GraphDef,
        *,
        prefix: str = "",
        input_map: Mapping[TensorId, Tensor | Node] | None = None,
        control_dependencies: Sequence[Node] = (),
        return_elements: Sequence[str] = (),
        allowed_ops: Collection[str] = (),
        uniquify_names: bool = False,
        source_line: SourceLine | None = None,
        byte_budget: ByteBudget | None = None,
        is_partition: bool = False,
    ) -> None:
        self._graph = graph
        self._is_partition = is_partition
        self._node_defs = graph_def.node
        self._versions = graph_def.versions or NO_VERSIONS
        self._functions = graph_def.library.function if graph_def.library else ()
        self._library: Mapping[str, FunctionDef] = {}
        self._prefix = prefix
        self._input_map: dict[InputId, Tensor | Node] = {
            (name, slot): value for (name, slot), value in (input_map or {}).items()
        }
        self._used_keys: set[InputId] = set()
        self._control_dependencies = tuple(control_dependencies)
        self._return_elements = return_elements
        self._allowed_ops = frozenset(allowed_ops)
        self._uniquify_names = uniquify_names
        self._source_line = source_line
        self._source_lines = source_lines(graph_def.debug_info)
        self._index: dict[str, int] = {}
        self._new_names: Mapping[str, str] = {}
        self._built: list[Node | None] = [None] * len(graph_def.node)
        self._by_name: dict[str, Node] = {}  # those built, in that order
        self._first_outputs: dict[str, Tensor] = {}  # of those built, by their names in the GraphDef
        self._first_id = graph.num_nodes
        self._device = graph.current_device
        self._back_edges: list[tuple[Node, list[Tensor | None], NodeDef]] = []
        self._properties: dict[tuple[Any, ...], NodeProperties] = {}
        self._declared_shapes: dict[NodeProperties, tuple[TensorShape, ...]] = {}
        self._colocated: dict[NodeProperties, Sequence[str]] = {}
        self._has_loops = False
        # Of all tensors and wide nodes together: a few bytes can ask for much memory many times.
        self._byte_budget = byte_budget or ByteBudget()

    def construct(self) -> Mapping[str, Node]:
        """``stage``, at once."""
        return run_at_once(self.stage())

    def stage(self) -> Stage[Mapping[str, Node]]:
        """Build everything and add it to the graph, as a stage; the nodes by their names in the GraphDef.

        What others add to the graph meanwhile counts as if it had been there from the start.

        Raises:
            NotFoundError: an op type is not registered.
            ResourceExhaustedError: all tensors together take too much more than their protos.
            UnimplementedError: an op was removed before the version of the GraphDef.
            InvalidArgumentError: anything else; the graph is as it was.
        """
        graph = self._graph
        check_versions(self._versions)
        num_functions = len(graph.functions)
        self._library = checked_library(self._functions, graph.functions)
        yield from self._index_nodes()
        yield from self._convert_all()
        yield from release(self._first_outputs)
        self._add_back_edges()
        yield from self._check_loops()
        self._check_colocation()
        self._check_input_map()
        self._check_returned()
        if graph.num_nodes != self._first_id or len(graph.functions) != num_functions:
            self._check_again()
        graph.commit_all(self._by_name, self._first_id)
        graph.functions.update(self._library)
        graph.versions = merged_versions(graph.versions, self._versions)
        graph.allow_in_functions(self._library, self._allowed_ops)
        if not self._prefix and not self._new_names:
            return self._by_name
        return {name: node for name, node in zip(self._index, self._built, strict=True) if node is not None}

    def _check_again(self) -> None:
        """See whether it still fits the graph, which others have added to meanwhile."""
        self._graph.check_can_import(self._by_name)
        checked_library(self._functions, self._graph.functions)

    @property
    def has_colocation(self) -> bool:
        """Whether any node names others in attr ``_class``."""
        return bool(self._colocated)

    def _check_input_map(self) -> None:
        missing = [
            str(TensorId(name, slot))
            for name, slot in self._input_map
            if (name, slot) not in self._used_keys and not self._has_output(name, slot)
        ]
        if missing:
            raise InvalidArgumentError(
                f"Attempted to map inputs that were not found in graph_def: {missing}",
                hint=nearest(missing[0].partition(":")[0], self._index),
            )

    def _has_output(self, name: str, slot: int) -> bool:
        node = self._built[self._index[name]] if name in self._index else None
        return node is not None and slot < len(node.properties.output_dtypes)

    def _check_returned(self) -> None:
        for text in self._return_elements:
            tensor_id = parse_tensor_name(text)
            i = self._index.get(tensor_id.name)
            node = None if i is None else self._built[i]
            if node is None:
                if ":" not in text or tensor_id not in self._input_map:
                    raise InvalidArgumentError(
                        f"Requested return element {text!r} not found in graph_def",
                        hint=nearest(tensor_id.name, self._index),
                    )
            elif ":" in text and tensor_id.slot >= len(node.outputs):
                raise InvalidArgumentError(
                    f"Invalid return output {tensor_id.slot} of node {tensor_id.name!r}, which has "
                    f"{len(node.outputs)} outputs",
                    node=node,
                )

    def _index_nodes(self) -> Stage[None]:
        node_defs, prefix, index = self._node_defs, self._prefix, self._index
        for start in range(0, len(node_defs) or 1, _NAMES_AT_ONCE):
            part = node_defs[start : start + _NAMES_AT_ONCE]
            check_names(part, prefix, is_partition=self._is_partition)
            index.update({node_def.name: position for position, node_def in enumerate(part, start)})
            yield
        if len(index) < len(node_defs):
            name = next(node_def.name for i, node_def in enumerate(node_defs) if index[node_def.name] != i)
            raise InvalidArgumentError(f"Node {name!r} is not unique: two nodes have this name", node=name)
        if self._uniquify_names:
            self._new_names = unique_names(index, prefix, self._graph.names)
            self._graph.check_can_import(self._new_names.values())
            return
        for start in range(0, len(node_defs), _NAMES_AT_ONCE):
            self._graph.check_can_import([prefix + each.name for each in node_defs[start : start + _NAMES_AT_ONCE]])
            yield

    def _convert_all(self) -> Stage[None]:
        """Convert nodes in an order in which each comes after its inputs; InvalidArgumentError names a cycle."""
        late: list[int] = []  # most graphs are written in such an order
        for start in range(0, len(self._node_defs), STRIDE):
            late += [
                i
                for i, node_def in enumerate(self._node_defs[start : start + STRIDE], start)
                if not self._convert(i, node_def)
            ]
            yield
        if late:
            yield from self._convert_late(late)

    def _convert_late(self, late: Sequence[int]) -> Stage[None]:
        """Convert the nodes that stand before one of their inputs."""
        waiting: dict[int, int] = {}
        consumers: dict[int, list[int]] = {}
        ready: deque[int] = deque()
        for count, i in enumerate(late):
            sources = [source for source in self._sources(i) if self._built[source] is None]
            waiting[i] = len(sources)
            for source in sources:
                consumers.setdefault(source, []).append(i)
            if not sources:
                ready.append(i)
            if not count % STRIDE:
                yield
        while ready:
            for _ in range(min(STRIDE, len(ready))):
                i = ready.popleft()
                self._convert(i, self._node_defs[i])
                for consumer in consumers.get(i, ()):
                    waiting[consumer] -= 1
                    if not waiting[consumer]:
                        ready.append(consumer)
            yield
        stuck = [i for i, count in waiting.items() if count]
        if stuck:
            raise cycle_error(self._node_defs, stuck, self._sources)

    def _sources(self, i: int) -> list[int]:
        """The nodes of the GraphDef that node *i* must come after, once for each input."""
        node_def = self._node_defs[i]
        is_merge = node_def.op in MERGES
        sources: list[int] = []
        for text in node_def.input:
            input_id = parse_input(text, node_def)
            if input_id in self._input_map:
                continue
            source = self._index.get(input_id[0])
            if source is None:
                raise unknown_input(input_id[0], node_def, self._index)
            if not (is_merge and input_id[1] >= 0 and self._node_defs[source].op in NEXT_ITERATIONS):
                sources.append(source)
        return sources

    def _convert(self, i: int, node_def: NodeDef) -> bool:
        """Convert node *i*; False, and nothing done, if an input of it is not converted yet."""
        try:
            plain = None if self._input_map else plain_inputs(node_def.input, self._first_outputs)
            resolved = (plain, (), False) if plain else self._resolve_inputs(node_def)
            if resolved is None:
                return False
            data, control, has_back_edge = resolved
            # The importer shares equal AttrValues, so most nodes of one op have the very same ones.
            attr = node_def.attr
            key = (node_def.op, *attr, *map(id, attr.values()))
            properties = self._properties.get(key)
            if properties is None:
                properties = self._properties[key] = self._make_properties(node_def)
            check_inputs(data, properties, node_def.name)
            num_outputs = len(properties.output_dtypes)
            if num_outputs > _WIDE:
                self._charge_outputs(num_outputs)
            node = self._make_node(node_def, properties, data, control)
            if has_back_edge:
                self._back_edges.append((node, data, node_def))
                infer_merge(self._graph.refiner, node, data)
            else:
                self._graph.refiner.infer(node)
            if self._declared_shapes and properties in self._declared_shapes:
                merge_declared_shapes(node, self._declared_shapes[properties])
        except OpError as error:
            if error.node is not None:
                raise
            raise error.located(node_def.name, error.op or node_def.op, error.user_line) from error.__cause__
        self._built[i] = node
        node.id = self._first_id + len(self._by_name)
        self._by_name[node.name] = node
        if 0 < num_outputs <= _WIDE:
            self._first_outputs[node_def.name] = node.outputs[0]
        return True

    def _charge_outputs(self, number: int) -> None:
        if not self._byte_budget.take(number * _OUTPUT_BYTES):
            raise ResourceExhaustedError(
                f"a node has {number} outputs, which with those of nodes before it are more than the byte budget of "
                f"{self._byte_budget.total} allows"
            )

    def _make_node(
        self, node_def: NodeDef, properties: NodeProperties, data: Sequence[Tensor], control: tuple[Node, ...]
    ) -> Node:
        name, device = node_def.name, node_def.device
        if device or self._device:
            device = merge_device_names(device, self._device)
        return Node(
            self._graph,
            self._new_names[name] if self._new_names else self._prefix + name,
            properties,
            tuple(data),
            control,
            device,
            self._source_lines.get(name, self._source_line) if self._source_lines else self._source_line,
        )

    def _make_properties(self, node_def: NodeDef) -> NodeProperties:
        registration = self._lookup(node_def)
        op_def = registration.op_def
        given = {name: decode_attr_value(value, byte_budget=self._byte_budget) for name, value in node_def.attr.items()}
        unknown = [name for name in given if name not in op_def.attrs and not name.startswith("_")]
        if unknown and not op_def.has_open_attrs:
            logger.warning(
                "node %r: op %s has no attrs %s; they are kept and ignored", node_def.name, op_def.name, unknown
            )
        others = colocated_with(given["_class"]) if "_class" in given else []
        if others and (self._prefix or self._new_names):
            given["_class"] = tuple(map(self._renamed_class, given["_class"]))
        shapes = declared_shapes(given.pop("_output_shapes", ()))
        attrs = completed_attrs(op_def, given, self._versions.producer)
        properties = NodeProperties(registration, attrs, op_def.input_dtypes(attrs), op_def.output_dtypes(attrs))
        if shapes:
            self._declared_shapes[properties] = shapes
        if others:
            self._colocated[properties] = others
        self._has_loops = self._has_loops or op_def.name in LOOP_OPS
        return properties

    def _renamed_class(self, entry: bytes) -> bytes:
        name = entry.removeprefix(COLOCATION_PREFIX.encode()).decode("utf-8", "backslashreplace")
        if len(name) == len(entry):
            return entry
        return f"{COLOCATION_PREFIX}{self._new_names.get(name, self._prefix + name)}".encode()

    def _lookup(self, node_def: NodeDef) -> OpRegistration:
        op = node_def.op
        if not op:
            raise InvalidArgumentError(f"Node {node_def.name!r} does not specify an operation")
        function = self._library.get(op) or self._graph.functions.get(op)
        if function is not None:
            return function_registration(function)
        return checked_registration(op_registry.lookup(op), self._allowed_ops, self._versions.producer)

    def _resolve_inputs(self, node_def: NodeDef) -> tuple[list[Any], tuple[Node, ...], bool] | None:
        """Data inputs (None where a back edge will come), control inputs, whether there are back edges."""
        data: list[object] = []
        control: list[Node] = []
        has_back_edge = inherits = False
        index, built, input_map = self._index, self._built, self._input_map
        for text in node_def.input:
            position = index.get(text)
            if position is None or input_map:
                input_id = parse_input(text, node_def)
                name, slot = input_id
                if input_map and input_id in input_map:
                    self._used_keys.add(input_id)
                    mapped = input_map[input_id]
                    if slot == CONTROL_SLOT:
                        control.append(mapped.op if isinstance(mapped, Tensor) else mapped)
                    elif control:
                        raise control_before_data(node_def)
                    else:
                        data.append(mapped)
                    continue
                position = index.get(name)
                if position is None:
                    raise unknown_input(name, node_def, self._index)
            else:
                name, slot = text, 0
            source = built[position]
            if slot == CONTROL_SLOT:
                if source is None:
                    return None
                inherits = True
                control.append(source)
            elif control:
                raise control_before_data(node_def)
            elif source is None:
                if node_def.op not in MERGES or self._node_defs[position].op not in NEXT_ITERATIONS:
                    return None
                has_back_edge = True
                data.append(None)
            else:
                inherits = True
                outputs = source.outputs
                data.append(outputs[slot] if slot < len(outputs) else no_such_output(source, name, slot, node_def))
        if not inherits and self._control_dependencies:
            # Others inherit these from their sources.
            control += self._control_dependencies
        return data, tuple(dict.fromkeys(control)) if control else (), has_back_edge

    def _add_back_edges(self) -> None:
        for node, data, node_def in self._back_edges:
            node.inputs = tuple(
                self._back_edge(node, slot, node_def) if tensor is None else tensor for slot, tensor in enumerate(data)
            )

    def _back_edge(self, node: Node, slot: int, node_def: NodeDef) -> Tensor:
        name, source_slot = parse_input(node_def.input[slot], node_def)
        source = self._built[self._index[name]]
        assert source is not None  # all nodes are converted
        outputs = source.outputs
        if source_slot >= len(outputs):
            no_such_output(source, name, source_slot, node_def)
        tensor = outputs[source_slot]
        check_dtype(node.properties.input_dtypes[slot], tensor, slot, node)
        return tensor

    def _check_loops(self) -> Stage[None]:
        if self._has_loops:
            outside = self._graph.operations if self._input_map else []
            yield from check_loops([*outside, *self._by_name.values()])

    def _check_colocation(self) -> None:
        if not self._colocated:
            return
        nodes = self._index.keys() if self._prefix else self._index.keys() | self._graph.names
        for node in self._by_name.values():
            others = self._colocated.get(node.properties)
            if others:
                check_colocation(node, node.name.removeprefix(self._prefix), others, nodes)
