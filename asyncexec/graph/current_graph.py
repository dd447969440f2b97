"""The graph being built, and the scopes that new nodes are made under."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from asyncexec.framework.device_name import merge_device_names
from asyncexec.framework.errors import FailedPreconditionError, InvalidTypeError
from asyncexec.graph.control_flow_context import ControlFlowContext, unreachable
from asyncexec.graph.node import Node, Tensor

if TYPE_CHECKING:
    from asyncexec.graph.graph import Graph

T = TypeVar("T")

_COLOCATION: Final = b"loc:@"  # of an entry of attr _class that names a node
building: Final[ContextVar[GraphContext | None]] = ContextVar("asyncexec_current_graph", default=None)


class GraphContext:
    """The scopes of a graph: names, devices, control dependencies, colocation, branches and loops."""

    def __init__(self) -> None:
        self._tokens: list[Token[GraphContext | None]] = []
        self._name_scopes: list[str] = [""]
        self._devices: list[str] = [""]
        self._control: list[tuple[Node, ...]] = [()]
        self._colocation: list[tuple[Node, ...]] = [()]
        self._flow: list[ControlFlowContext | None] = [None]
        self._flow_of: dict[Node, ControlFlowContext] = {}

    def __enter__(self) -> Self:
        self._tokens.append(building.set(self))
        return self

    def __exit__(self, *exc_info: object) -> None:
        building.reset(self._tokens.pop())

    @property
    def current_name_scope(self) -> str:
        """The prefix of new names: ``""``, or ``"a/b/"``."""
        return self._name_scopes[-1]

    @property
    def current_device(self) -> str:
        return self._devices[-1]

    @property
    def current_control_inputs(self) -> tuple[Node, ...]:
        return self._control[-1]

    @property
    def current_colocation(self) -> tuple[Node, ...]:
        """The nodes that new ones are placed with, the innermost first."""
        return self._colocation[-1]

    @property
    def current_control_flow_context(self) -> ControlFlowContext | None:
        """The branch or loop that is being built, the innermost one."""
        return self._flow[-1]

    def control_flow_context_of(self, node: Node) -> ControlFlowContext | None:
        """The branch or loop that the outputs of *node* live in."""
        return self._flow_of.get(node)

    def set_control_flow_context(self, node: Node, context: ControlFlowContext | None) -> None:
        """Tell that the outputs of *node* live in *context*."""
        if context is not None:
            self._flow_of[node] = context
        else:
            self._flow_of.pop(node, None)

    @contextmanager
    def control_flow_scope(self, context: ControlFlowContext | None) -> Iterator[None]:
        """Let nodes be made in *context*; conditions of outside hold for it as a whole, and no more for each node."""
        self._flow.append(context)
        self._control.append(())
        try:
            yield
        finally:
            self._control.pop()
            self._flow.pop()

    def colocation_attrs(self) -> dict[str, Any]:
        """The attr that tells what a new node is placed with; none where it is placed freely."""
        groups = {group for node in self._colocation[-1] for group in colocation_groups(node)}
        return {"_class": tuple(sorted(groups))} if groups else {}

    def device_of_new_node(self) -> str:
        """The device of the first colocated node that has one, else that of the device scope."""
        return next((node.device for node in self._colocation[-1] if node.device), self._devices[-1])

    @contextmanager
    def placed_with(self, node: Node) -> Iterator[None]:
        """Ask for the nodes made inside just what *node* asks for, whatever the scopes say."""
        self._devices.append(node.device)
        self._colocation.append(())
        try:
            yield
        finally:
            self._colocation.pop()
            self._devices.pop()

    def admit(self, node: Node) -> None:
        """Let the current branch or loop rewrite the inputs of a node that is about to be added."""
        context = self._flow[-1]
        if context is not None:
            context.admit(node)
        elif self._flow_of:
            for source in (*(tensor.op for tensor in node.inputs), *node.control_inputs):
                inside = self._flow_of.get(source)
                if inside is not None and not (is_way_out(node, inside) and inside.outer is None):
                    raise unreachable(source, inside)


def colocation_groups(node: Node) -> tuple[bytes, ...]:
    """The groups that *node* is in, as attr ``_class`` spells them: those that it names, or one of its own."""
    named = tuple(entry for entry in node.attrs.get("_class", ()) if entry.startswith(_COLOCATION))
    return named or (_COLOCATION + node.name.encode(),)


def is_way_out(node: Node, inside: ControlFlowContext) -> bool:
    """Whether *node* may take what is *inside* from outside."""
    return inside.ends_at_merge and node.op == "Merge"


def current_graph() -> Graph:
    """The graph of the innermost ``with graph:``; FailedPreconditionError outside.

    >>> graph = ax.Graph()
    >>> with graph:
    ...     ax.current_graph() is graph
    True
    """
    graph = building.get()
    if graph is None:
        raise FailedPreconditionError(
            "no graph is being built here", hint="put the code inside 'with ax.Graph() as graph:'"
        )
    return graph  # type: ignore[return-value]


def outside_of_graphs(function: Callable[..., T], *args: object) -> T:
    """What *function* gives, called where no graph is being built: kernels are called so, wherever the run is."""
    if building.get() is None:
        return function(*args)
    token = building.set(None)
    try:
        return function(*args)
    finally:
        building.reset(token)


def current_graph_or_none() -> Graph | None:
    return building.get()  # type: ignore[return-value]


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Prefix the names of nodes made inside with ``name/``; ``as`` gives the whole prefix.

    A node made inside raises InvalidArgumentError if *name* is not valid in names of nodes.

    >>> with ax.name_scope("head") as scope:
    ...     ax.constant(1.0, name="bias").name, scope
    ('head/bias:0', 'head/')
    """
    graph = current_graph()
    scope = graph.unique_name(name) + "/"
    graph._name_scopes.append(scope)
    try:
        yield scope
    finally:
        graph._name_scopes.pop()


@contextmanager
def device(name: str | None) -> Iterator[None]:
    """Ask for the nodes made inside to run on device *name*, such as ``"/cpu:1"``.

    The outer device scope gives the parts that *name* leaves open.  None asks for no device.  InvalidArgumentError if
    *name* is malformed.

    >>> with ax.device("/cpu:1"):
    ...     x = ax.constant([1.0])
    >>> x.op.device
    '/device:CPU:1'
    """
    graph = current_graph()
    graph._devices.append("" if name is None else merge_device_names(name, graph.current_device))
    try:
        yield
    finally:
        graph._devices.pop()


@contextmanager
def control_dependencies(control_inputs: Iterable[Tensor | Node] | None) -> Iterator[None]:
    """Let the nodes made inside run only after *control_inputs* have run.

    None lifts all such conditions, and those of branches and loops: the nodes made inside are outside of them.
    InvalidTypeError if one of *control_inputs* is neither a tensor nor an operation.

    >>> greeting = ax.print_("hello", output_stream="stdout")
    >>> with ax.control_dependencies([greeting]):
    ...     x = ax.constant(1)
    >>> show(x)
    hello
    1
    """
    graph = current_graph()
    context = graph.current_control_flow_context
    if control_inputs is None:
        nodes: tuple[Node, ...] = ()
        context = None
    else:
        nodes = tuple(dict.fromkeys((*graph.current_control_inputs, *map(as_node, control_inputs))))
    graph._control.append(nodes)
    graph._flow.append(context)
    try:
        yield
    finally:
        graph._flow.pop()
        graph._control.pop()


@contextmanager
def colocate_with(op: Tensor | Node) -> Iterator[None]:
    """Place the nodes made inside on the device of *op*; outer device scopes do not count.

    InvalidTypeError if *op* is neither a tensor nor an operation.

    >>> with ax.device("/cpu:1"):
    ...     x = ax.constant([1.0])
    >>> with ax.colocate_with(x):
    ...     y = ax.constant([2.0])
    >>> y.op.get_attr("_class")
    (b'loc:@Const',)
    """
    graph = current_graph()
    graph._colocation.append((as_node(op), *graph.current_colocation))
    graph._devices.append("")
    try:
        yield
    finally:
        graph._devices.pop()
        graph._colocation.pop()


def as_node(value: object) -> Node:
    """The operation that *value*, a tensor or an operation, is of; InvalidTypeError for anything else."""
    if isinstance(value, Tensor):
        return value.op
    if isinstance(value, Node):
        return value
    raise InvalidTypeError(f"an operation or a tensor is needed here, not {type(value).__name__} {value!r}")
