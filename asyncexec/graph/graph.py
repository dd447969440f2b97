"""Graph: nodes by name, in the order they were added, and the scopes under which new ones are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any, Final

from asyncexec.framework.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    OpError,
)
from asyncexec.framework.file_access import FileAccess
from asyncexec.framework.graph_def import FunctionDef, GraphDef, VersionDef
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.tensor_id import is_valid_node_name, parse_tensor_name
from asyncexec.graph.current_graph import GraphContext
from asyncexec.graph.graph_pictures import DOT, MERMAID, picture
from asyncexec.graph.graph_to_def import CURRENT_VERSIONS, graph_to_def
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Node, NodeProperties, SourceLine, Tensor
from asyncexec.graph.shape_refiner import ShapeRefiner
from asyncexec.graph.traced_functions import TracedFunctions

_graph_html = LazyModule("asyncexec.graph.graph_html")
# What those use who build graphs and run them; the rest is for the stages that work on graphs.
_PUBLIC: Final = (
    "as_graph_def find_operation finalize is_finalized names num_nodes operation operations tensor to_dot to_mermaid"
)


class Graph(GraphContext):
    """A dataflow graph.

    ``with graph:`` makes it the current graph, to which the functions of the builder add their nodes.  ``graph["y:0"]``
    is a tensor, ``graph["y"]`` the operation (``graph.tensor`` and ``graph.operation`` when the kind must be sure).

    Nodes are only added, never removed.  A session sees the nodes that were there when a signature was first run.  A
    name that is not in the graph raises NotFoundError.

    >>> with ax.Graph() as graph:
    ...     y = ax.add(ax.placeholder(ax.float32, name="x"), 1.0, name="y")
    >>> graph["y:0"] is y, graph["y"] is y.op
    (True, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self._nodes: list[Node] = []
        self._by_name: dict[str, Node] = {}
        self._names_used: dict[str, int] = {}
        self._is_finalized = False
        self.refiner: ShapeRefiner = ShapeRefiner()
        # The function library: what was imported, and what was traced here.
        self.functions: dict[str, FunctionDef] = {}
        self.traced: TracedFunctions = TracedFunctions()
        self.versions: VersionDef = CURRENT_VERSIONS  # what all that was imported asks for of a reader
        # Of functions that were imported, by name: the ops in them that may reach outside of the graph.
        self.allowed_ops: dict[str, frozenset[str]] = {}
        self.files: FileAccess = FileAccess()
        # What the frontend keeps of a graph beside its nodes, such as its "variables", in the order they were made.
        self.collections: dict[str, list[Any]] = {}

    @property
    def operations(self) -> list[Node]:
        """All nodes, in the order they were added."""
        return list(self._nodes)

    @property
    def num_nodes(self) -> int:
        return len(self._nodes)

    @property
    def names(self) -> KeysView[str]:
        """The names of all nodes."""
        return self._by_name.keys()

    def nodes_between(self, start: int, stop: int) -> list[Node]:
        """The nodes with ids from *start* to *stop* - 1."""
        return self._nodes[start:stop]

    @property
    def is_finalized(self) -> bool:
        return self._is_finalized

    def can_use(self, graph: Graph) -> bool:
        """Whether nodes in here may take tensors of *graph*."""
        return graph is self

    def finalize(self) -> None:
        """Allow no more nodes: adding a node then raises FailedPreconditionError."""
        self._is_finalized = True

    def add_node(
        self,
        name: str,
        properties: NodeProperties,
        inputs: Sequence[Tensor] = (),
        control_inputs: Sequence[Node] = (),
        device: str = "",
        source_line: SourceLine | None = None,
    ) -> Node:
        """Add a node whose inputs are known to be right in number and dtype, and infer its shapes.

        Inside of a branch or loop, what comes from outside is captured.

        Raises:
            AlreadyExistsError: the name is taken.
            FailedPreconditionError: the graph is finalized.
            InvalidArgumentError: the name is no name, or the inputs' shapes do not fit the op.
        """
        self.check_name_is_free(name)
        node = Node(self, name, properties, tuple(inputs), tuple(control_inputs), device, source_line)
        try:
            self.admit(node)
        except OpError as error:
            raise error.locate(node) from None
        self.refiner.infer(node)
        self.commit([node])
        return node

    def check_name_is_free(self, name: str) -> None:
        """Raise unless a node *name* can be added now."""
        if self._is_finalized:
            raise FailedPreconditionError("this graph is finalized: nodes can no longer be added", node=name)
        if name in self._by_name:
            raise AlreadyExistsError(f"there is already a node {name!r} in the graph", node=name)
        if not is_valid_node_name(name, allow_internal=True):
            raise InvalidArgumentError(f"{name[:100]!r} is not a valid node name")

    def check_can_import(self, names: Iterable[str]) -> None:
        """Raise unless imported nodes may be called *names*; that they are valid and unlike each other is known."""
        if self._is_finalized:
            raise FailedPreconditionError("this graph is finalized: nodes can no longer be added")
        for name in self._by_name.keys() & names if self._by_name else ():
            raise InvalidArgumentError(
                f"Node name {name!r} already exists in the Graph",
                node=name,
                hint="import under a name of its own: name=",
            )

    def commit(self, nodes: Sequence[Node]) -> None:
        """Make *nodes*, which are complete, part of the graph."""
        for node in nodes:
            node.id = len(self._nodes)
            self._nodes.append(node)
            self._by_name[node.name] = node
        context = self.current_control_flow_context
        if context is not None:
            for node in nodes:
                self.set_control_flow_context(node, context)

    def commit_all(self, nodes: Mapping[str, Node], first_id: int) -> None:
        """``commit`` of many nodes, by name, that have been numbered from *first_id* on; at once, as nobody is to see
        a part of them."""
        if first_id != len(self._nodes) or self.current_control_flow_context is not None:
            self.commit(list(nodes.values()))
            return
        self._nodes += nodes.values()
        self._by_name.update(nodes)

    def allow_in_functions(self, names: Iterable[str], ops: frozenset[str]) -> None:
        """Let *ops* in the bodies of the functions *names* reach outside of the graph."""
        if ops:
            self.allowed_ops.update({name: self.allowed_ops.get(name, frozenset()) | ops for name in names})

    def unique_name(self, name: str, *, mark_as_used: bool = True) -> str:
        """*name* under the current name scope, with ``_1``, ``_2``, ... if it is taken.

        A name that ends in ``/``, as a name scope gives it, is taken as it is, without the ``/``.  Unless
        *mark_as_used* the next call gives the same name.
        """
        if name.endswith("/"):
            return name[:-1]
        full = f"{self.current_name_scope}{name}"
        if full not in self._by_name and full not in self._names_used:
            if mark_as_used:
                self._names_used[full] = 0
            return full
        count = self._names_used.get(full, 0)
        while True:
            count += 1
            candidate = f"{full}_{count}"
            if candidate not in self._by_name and candidate not in self._names_used:
                break
        if mark_as_used:
            self._names_used[full] = count
            self._names_used[candidate] = 0
        return candidate

    def find_operation(self, name: str) -> Node | None:
        """The node *name*, or None."""
        return self._by_name.get(name)

    def operation(self, name: str) -> Node:
        """The node *name*; NotFoundError, with the nearest names, when there is none."""
        node = self._by_name.get(name)
        if node is None:
            raise NotFoundError(f"there is no operation {name!r} in the graph", hint=nearest(name, self._by_name))
        return node

    def tensor(self, name: str) -> Tensor:
        """The tensor *name*, such as ``"y:0"``.

        Raises:
            NotFoundError: there is no such node.
            InvalidArgumentError: the node has no such output, or *name* is not the name of a tensor.
        """
        tensor_id = parse_tensor_name(name)
        if tensor_id.is_control or ":" not in name:
            raise InvalidArgumentError(
                f"{name!r} names an operation, not a tensor", hint=f"write {name.lstrip('^')!r}:0"
            )
        node = self.operation(tensor_id.name)
        if tensor_id.slot >= len(node.properties.output_dtypes):
            raise InvalidArgumentError(
                f"{name!r}: operation {node.name!r} has only {len(node.properties.output_dtypes)} outputs", node=node
            )
        return node.outputs[tensor_id.slot]

    def __getitem__(self, name: str) -> Any:
        """The tensor ``"name:slot"`` or the operation ``"name"``; errors as of tensor() and operation()."""
        if not isinstance(name, str):
            raise InvalidTypeError(f"a graph is indexed by a name, not by {type(name).__name__}")
        return self.tensor(name) if ":" in name else self.operation(name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Node]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self._nodes)

    def __bool__(self) -> bool:
        return True  # even without nodes: "graph or another" would be a trap

    def as_graph_def(self) -> GraphDef:
        """The graph as a GraphDef, which ``ax.import_graph_def`` can read."""
        return graph_to_def(self._nodes, self.functions.values(), self.versions)

    def to_mermaid(self, *, max_nodes: int = 1_000) -> str:
        """The graph as a Mermaid flowchart, which Markdown pages show; control edges are dotted.

        InvalidArgumentError if there are more than *max_nodes*.
        """
        return picture(self._nodes, MERMAID, max_nodes)

    def to_dot(self, *, max_nodes: int = 1_000) -> str:
        """The graph as a digraph in DOT, which Graphviz draws; else as of ``to_mermaid``."""
        return picture(self._nodes, DOT, max_nodes)

    def __dir__(self) -> list[str]:
        return _PUBLIC.split()

    def _repr_html_(self) -> str:
        html: str = _graph_html.graph_html(self)
        return html

    def __repr__(self) -> str:
        tail = ", finalized" if self._is_finalized else ""
        return f"<ax.Graph of {len(self._nodes)} operations{tail}>"


def properties_of(registration: OpRegistration, attrs: Mapping[str, object]) -> NodeProperties:
    """NodeProperties for a node of that op with *attrs*, checked and completed with defaults."""
    op_def = registration.op_def
    complete = op_def.complete_attrs(attrs)

    return NodeProperties(registration, complete, op_def.input_dtypes(complete), op_def.output_dtypes(complete))
