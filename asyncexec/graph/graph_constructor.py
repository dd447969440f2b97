"""GraphDef -> nodes of a Graph, after ``tensorflow/core/common_runtime/graph_constructor.cc``.

A node is converted once all its inputs are; a Merge waits for all but its NextIteration inputs, so that the back edges of
loops are the last to be added.  Nodes that can never be converted stand on a cycle.  The graph is changed only at
the end, when everything has been found right.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from asyncexec.framework.attr_value import decode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, OpError, PermissionDeniedError
from asyncexec.framework.graph_def import GraphDef, NodeDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_id import CONTROL_SLOT, TensorId, is_valid_node_name, parse_tensor_name
from asyncexec.framework.types import DType
from asyncexec.graph.function_library import function_registration
from asyncexec.graph.graph import Graph
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Node, NodeProperties, SourceLine, Tensor

InputId: TypeAlias = tuple[str, int]  # a TensorId, without the cost of making one for each of a million inputs

logger = logging.getLogger("asyncexec")

CONSUMER_VERSION: Final = 2407  # the GraphDef version understood here: that of TensorFlow 2.21
MIN_PRODUCER_VERSION: Final = 0
_MERGES: Final = frozenset({"Merge", "RefMerge"})
_NEXT_ITERATIONS: Final = frozenset({"NextIteration", "RefNextIteration"})


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
        source_line: SourceLine | None = None,
    ) -> None:
        self._graph = graph
        self._node_defs = graph_def.node
        self._versions = graph_def.versions
        functions = graph_def.library.function if graph_def.library else ()
        self._library = {function.signature.name: function for function in functions}
        self._prefix = prefix
        self._input_map: dict[InputId, Tensor | Node] = dict(input_map or {})
        self._used_keys: set[InputId] = set()
        self._control_dependencies = tuple(control_dependencies)
        self._return_elements = return_elements
        self._allowed_ops = allowed_ops
        self._source_line = source_line
        self._index: dict[str, int] = {}
        self._inputs: list[list[InputId]] = []
        self._built: list[Node | None] = [None] * len(graph_def.node)
        self._order: list[Node] = []
        self._back_edges: list[tuple[Node, int]] = []
        self._properties: dict[tuple[Any, ...], NodeProperties] = {}

    def construct(self) -> dict[str, Node]:
        """Build everything and add it to the graph; the nodes by their names in the GraphDef.

        Raises:
            NotFoundError: an op type is not registered.
            PermissionDeniedError: an op that is off was not allowed by name.
            InvalidArgumentError: anything else; the graph is as it was.
        """
        self._check_versions()
        self._index_nodes()
        self._parse_inputs()
        self._convert_all()
        self._add_back_edges()
        self._check_colocation()
        self._check_input_map()
        self._check_returned()
        self._graph.commit(self._order)
        self._graph.functions.update(self._library)
        return {name: node for name, i in self._index.items() if (node := self._built[i]) is not None}

    def _check_input_map(self) -> None:
        missing = [
            f"{name}:{slot}"
            for name, slot in self._input_map
            if (name, slot) not in self._used_keys and name not in self._index
        ]
        if missing:
            raise InvalidArgumentError(
                f"Attempted to map inputs that were not found in graph_def: {missing}",
                hint=nearest(missing[0].partition(":")[0], self._index),
            )

    def _check_returned(self) -> None:
        for text in self._return_elements:
            tensor_id = parse_tensor_name(text)
            i = self._index.get(tensor_id.name)
            node = None if i is None else self._built[i]
            if node is None:
                if tensor_id not in self._input_map:
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

    def _check_versions(self) -> None:
        versions = self._versions
        if versions is None:
            return
        if versions.producer < MIN_PRODUCER_VERSION:
            raise InvalidArgumentError(f"GraphDef producer version {versions.producer} is below the least known, 0")
        if versions.min_consumer > CONSUMER_VERSION:
            raise InvalidArgumentError(
                f"GraphDef needs a consumer of version {versions.min_consumer} or later; this one is {CONSUMER_VERSION}"
            )
        if CONSUMER_VERSION in versions.bad_consumers:
            raise InvalidArgumentError(f"GraphDef disallows consumers of version {CONSUMER_VERSION}, as this one is")

    def _index_nodes(self) -> None:
        graph, prefix, index = self._graph, self._prefix, self._index
        for i, node_def in enumerate(self._node_defs):
            name = node_def.name
            if not is_valid_node_name(name):
                raise InvalidArgumentError(f"Node name {name[:100]!r} is invalid")
            if index.setdefault(name, i) != i:
                raise InvalidArgumentError(f"Node {name!r} is not unique: two nodes have this name", node=name)
            graph.check_can_import(prefix + name)

    def _parse_inputs(self) -> None:
        for node_def in self._node_defs:
            inputs = [_parse_input(text, node_def) for text in node_def.input]
            num_data = len(inputs)
            while num_data and inputs[num_data - 1][1] == CONTROL_SLOT:
                num_data -= 1
            if any(slot == CONTROL_SLOT for _, slot in inputs[:num_data]):
                raise InvalidArgumentError(
                    f"Node {node_def.name!r}: Control dependencies must come after regular dependencies",
                    node=node_def.name,
                    op=node_def.op,
                )
            self._inputs.append(inputs)

    def _convert_all(self) -> None:
        """Convert nodes in an order in which each comes after its inputs; InvalidArgumentError names a cycle."""
        # Most graphs are written in such an order.
        late = [i for i in range(len(self._node_defs)) if not self._convert(i)]
        waiting: dict[int, int] = {}
        consumers: dict[int, list[int]] = {}
        ready: deque[int] = deque()
        for i in late:
            sources = [source for source in self._sources(i) if self._built[source] is None]
            waiting[i] = len(sources)
            for source in sources:
                consumers.setdefault(source, []).append(i)
            if not sources:
                ready.append(i)
        while ready:
            i = ready.popleft()
            self._convert(i)
            for consumer in consumers.get(i, ()):
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    ready.append(consumer)
        stuck = [i for i, count in waiting.items() if count]
        if stuck:
            self._raise_cycle(stuck)

    def _sources(self, i: int) -> list[int]:
        """The nodes of the GraphDef that node *i* must come after, once for each input."""
        node_def = self._node_defs[i]
        is_merge = node_def.op in _MERGES
        sources: list[int] = []
        for tensor_id in self._inputs[i]:
            if tensor_id not in self._input_map:
                source = self._index[tensor_id[0]]
                if not (is_merge and tensor_id[1] >= 0 and self._node_defs[source].op in _NEXT_ITERATIONS):
                    sources.append(source)
        return sources

    def _raise_cycle(self, stuck: list[int]) -> None:
        left = set(stuck)
        path, seen = [stuck[0]], {stuck[0]}
        while True:
            step = next(source for source in self._sources(path[-1]) if source in left)
            if step in seen:
                cycle = path[path.index(step) :]
                break
            path.append(step)
            seen.add(step)
        names = [self._node_defs[i].name for i in reversed(cycle)][:20]
        raise InvalidArgumentError(
            f"{len(cycle)} nodes in a cycle: {' -> '.join([*names, names[0]])}",
            node=names[0],
            op=self._node_defs[self._index[names[0]]].op,
            hint="only a loop built of Enter, Merge, Switch, NextIteration and Exit may go round",
        )

    def _convert(self, i: int) -> bool:
        """Convert node *i*; False, and nothing done, if an input of it is not converted yet."""
        node_def = self._node_defs[i]
        resolved = self._resolve_inputs(i, node_def)
        if resolved is None:
            return False
        data, control, has_back_edge = resolved
        try:
            properties = self._properties_of(node_def)
            _check_inputs(data, properties)
        except OpError as error:
            if error.node is None:
                error.node, error.op = node_def.name, node_def.op
            raise
        node = Node(
            self._graph, self._prefix + node_def.name, properties, tuple(data), control, node_def.device, self._source_line
        )
        if has_back_edge:
            self._back_edges += [(node, slot) for slot, tensor in enumerate(data) if tensor is None]
            self._infer_merge(node)
        else:
            self._graph.refiner.infer(node)
        self._built[i] = node
        self._order.append(node)
        return True

    def _properties_of(self, node_def: NodeDef) -> NodeProperties:
        # The importer shares equal AttrValues, so most nodes of one op have the very same ones.
        key = (node_def.op, *[(name, id(value)) for name, value in node_def.attr.items()])
        found = self._properties.get(key)
        if found is None:
            found = self._properties[key] = self._make_properties(node_def)
        return found

    def _make_properties(self, node_def: NodeDef) -> NodeProperties:
        registration = self._lookup(node_def.op)
        op_def = registration.op_def
        given = {name: decode_attr_value(value) for name, value in node_def.attr.items()}
        unknown = [name for name in given if name not in op_def.attrs and not name.startswith("_")]
        if unknown:
            logger.warning("node %r: op %s has no attrs %s; they are kept and ignored", node_def.name, op_def.name, unknown)
        if self._prefix and "_class" in given:
            given["_class"] = tuple(_with_prefix(entry, self._prefix) for entry in given["_class"])
        attrs = op_def.complete_attrs(given, keep_unknown=True)
        return NodeProperties(registration, attrs, op_def.input_dtypes(attrs), op_def.output_dtypes(attrs))

    def _lookup(self, op: str) -> OpRegistration:
        if op in self._library:
            return function_registration(self._library[op])
        if op in self._graph.functions:
            return function_registration(self._graph.functions[op])
        registration = op_registry.lookup(op)
        if registration.op_def.touches_outside and op not in self._allowed_ops:
            raise PermissionDeniedError(
                f"op {op!r} reaches outside of the graph (files, foreign code) and is off",
                op=op,
                hint=f"if you trust this graph: import_graph_def(..., allowed_ops=[{op!r}])",
            )
        return registration

    def _resolve_inputs(self, i: int, node_def: NodeDef) -> tuple[list[Any], tuple[Node, ...], bool] | None:
        """Data inputs (None where a back edge will come), control inputs, whether there are back edges."""
        data: list[Any] = []
        control: list[Node] = []
        has_back_edge = has_own_source = False
        index, built, input_map = self._index, self._built, self._input_map
        for tensor_id in self._inputs[i]:
            name, slot = tensor_id
            if input_map and tensor_id in input_map:
                self._used_keys.add(tensor_id)
                mapped = input_map[tensor_id]
                if slot == CONTROL_SLOT:
                    control.append(mapped.op if isinstance(mapped, Tensor) else mapped)
                else:
                    data.append(mapped)
                continue
            position = index.get(name)
            if position is None:
                self._raise_unknown_input(name, node_def)
            has_own_source = True
            source = built[position]
            if source is None:
                if slot < 0 or node_def.op not in _MERGES or self._node_defs[position].op not in _NEXT_ITERATIONS:
                    return None
                data.append(None)
                has_back_edge = True
            elif slot == CONTROL_SLOT:
                control.append(source)
            else:
                data.append(_output(source, name, slot, node_def))
        if not has_own_source and self._control_dependencies:
            # Others inherit these from their sources.
            control += self._control_dependencies
        return data, tuple(dict.fromkeys(control)) if control else (), has_back_edge

    def _raise_unknown_input(self, name: str, node_def: NodeDef) -> NoReturn:
        raise InvalidArgumentError(
            f"Node {node_def.name!r}: Unknown input node {name!r}",
            node=node_def.name,
            op=node_def.op,
            hint=nearest(name, self._index),
        )

    def _infer_merge(self, node: Node) -> None:
        """Shapes of a loop's Merge before its back edge is there: what comes round may have any shape."""
        inputs = node.inputs
        live = tuple(tensor for tensor in inputs if tensor is not None)
        node.inputs = live + live[:1] * (len(inputs) - len(live))
        self._graph.refiner.infer(node)
        node.inputs = inputs
        first = node.output_shapes[0]
        node.output_shapes = (first.most_general([None] * len(first.dims)) if first.dims else first, node.output_shapes[1])

    def _add_back_edges(self) -> None:
        for node, slot in self._back_edges:
            i = self._index[node.name.removeprefix(self._prefix)]
            name, source_slot = self._inputs[i][slot]
            source = self._built[self._index[name]]
            assert source is not None  # all nodes are converted
            tensor = _output(source, name, source_slot, self._node_defs[i])
            _check_dtype(node.properties.input_dtypes[slot], tensor, slot, node.op, node.name)
            node.inputs = (*node.inputs[:slot], tensor, *node.inputs[slot + 1 :])

    def _check_colocation(self) -> None:
        for node in self._order:
            for entry in node.attrs.get("_class", ()):
                name = entry.decode("utf-8", "replace").removeprefix("loc:@")
                if not entry.startswith(b"loc:@"):
                    continue
                if name.removeprefix(self._prefix) not in self._index and name not in self._graph:
                    raise InvalidArgumentError(
                        f"Node {node.name!r} expects to be colocated with unknown node {name!r}", node=node
                    )


def _parse_input(text: str, node_def: NodeDef) -> InputId:
    """Quick for the three usual forms; names are checked by their being found."""
    if text.startswith("^"):
        return text[1:], CONTROL_SLOT
    name, colon, slot = text.rpartition(":")
    if not colon:
        return text, 0
    if slot.isdecimal() and len(slot) <= 9:
        return name, int(slot)
    raise InvalidArgumentError(
        f"Node {node_def.name!r}: {text[:100]!r} is not the name of an input", node=node_def.name, op=node_def.op
    )


def _output(source: Node, name: str, slot: int, node_def: NodeDef) -> Tensor:
    outputs = source.outputs
    if slot >= len(outputs):
        raise InvalidArgumentError(
            f"Node {node_def.name!r}: Connecting to invalid output {slot} of source node {name} "
            f"which has {len(outputs)} outputs.",
            node=node_def.name,
            op=node_def.op,
        )
    return outputs[slot]


def _check_inputs(data: Sequence[Tensor | None], properties: NodeProperties) -> None:
    expected = properties.input_dtypes
    if len(data) != len(expected):
        raise InvalidArgumentError(
            f"NodeDef expected inputs '{_dtype_list(expected)}' do not match {len(data)} inputs specified; "
            f"{properties.op_def}"
        )
    for slot, tensor in enumerate(data):
        if tensor is not None and tensor.op.properties.output_dtypes[tensor.index] is not expected[slot]:
            _check_dtype(expected[slot], tensor, slot, properties.op_def.name)


def _check_dtype(want: DType, tensor: Tensor, slot: int, op: str, node: str | None = None) -> None:
    got = tensor.dtype
    if not want.is_compatible_with(got):
        raise InvalidArgumentError(
            f"Input {slot} of op {op} was passed {got.name} from {tensor.name} incompatible with expected {want.name}.",
            node=node,
        )


def _dtype_list(dtypes: Iterable[DType]) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


def _with_prefix(entry: bytes, prefix: str) -> bytes:
    return b"loc:@" + prefix.encode() + entry[5:] if entry.startswith(b"loc:@") else entry
