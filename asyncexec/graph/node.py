"""Node (an op in a graph) and Tensor (one of its outputs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, TypeAlias

from asyncexec.framework.errors import InvalidTypeError
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from asyncexec.graph.graph import Graph

    V_co = TypeVar("V_co", covariant=True, default=Any)  # so that Tensor is Tensor[Any]
else:
    from typing import TypeVar

    V_co = TypeVar("V_co", covariant=True)

SourceLine: TypeAlias = tuple[str, int]

_outputs_lock: Final = Lock()
_graph_html = LazyModule("asyncexec.graph.graph_html")


@dataclass(frozen=True, slots=True, eq=False)
class NodeProperties:
    """What nodes of one op with the same attrs share (``NodeProperties`` in TensorFlow's ``graph.h``)."""

    registration: OpRegistration
    attrs: Mapping[str, Any]  # all of them, defaults filled in, decoded
    input_dtypes: tuple[DType, ...]
    output_dtypes: tuple[DType, ...]
    op: str = field(init=False)  # its name: every stage asks for it, several times a node

    def __post_init__(self) -> None:
        object.__setattr__(self, "op", self.registration.op_def.name)

    @property
    def op_def(self) -> OpDef:
        return self.registration.op_def


class Node:
    """A node of a graph, which users know as an operation: ``tensor.op``, or ``graph.operation(name)``.

    >>> total = ax.add(1, 2, name="total").op
    >>> total.name, total.type, [tensor.name for tensor in total.inputs]
    ('total', 'AddV2', ['Const:0', 'Const_1:0'])

    Attributes:
        id: its position in ``graph.operations``.
        name: unique in the graph.
        inputs: the tensors it takes.
        control_inputs: the nodes that run before it.
        device: the device that it asks for, ``""`` if none.
        output_shapes: the shape of each output, as far as it is known.
    """

    __slots__ = (
        "_outputs",
        "control_inputs",
        "device",
        "graph",
        "id",
        "inputs",
        "name",
        "output_shapes",
        "properties",
        "source_line",
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        properties: NodeProperties,
        inputs: tuple[Tensor, ...],
        control_inputs: tuple[Node, ...] = (),
        device: str = "",
        source_line: SourceLine | None = None,
    ) -> None:
        self.id: int = -1
        self.graph: Graph = graph
        self.name: str = name
        self.properties: NodeProperties = properties
        self.inputs: tuple[Tensor[Any], ...] = inputs
        self.control_inputs: tuple[Node, ...] = control_inputs
        self.device: str = device
        self.source_line: SourceLine | None = source_line
        self.output_shapes: tuple[TensorShape, ...] = ()
        self._outputs: list[Tensor] | None = None

    @property
    def op(self) -> str:
        """The op type, such as ``MatMul``."""
        return self.properties.op

    type = op

    @property
    def op_def(self) -> OpDef:
        return self.properties.registration.op_def

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.properties.attrs

    def get_attr(self, name: str) -> Any:
        """The value of an attr; InvalidArgumentError when the op has none of that name."""
        try:
            return self.properties.attrs[name]
        except KeyError:
            raise InvalidTypeError(f"{self.op} has no attr {name!r}", node=self) from None

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors it gives."""
        if self._outputs is None:
            with _outputs_lock:
                if self._outputs is None:  # a tensor is itself alone, so all threads are to have the same
                    self._outputs = [Tensor(self, index) for index in range(len(self.properties.output_dtypes))]
        return self._outputs

    @property
    def consumers(self) -> list[Node]:
        """The operations that take its outputs, in the order of the outputs and of the graph, each once.

        >>> with ax.Graph() as graph:
        ...     x = ax.placeholder(ax.float32, [], name="x")
        ...     y = ax.relu(x, name="y") + x
        >>> [node.name for node in graph.operation("x").consumers]
        ['y', 'add']
        """
        taken = [
            (tensor.index, place, node)
            for place, node in enumerate(self.graph.operations)
            for tensor in node.inputs
            if tensor.op is self
        ]
        return list(dict.fromkeys(node for *_, node in sorted(taken, key=lambda found: found[:2])))

    @property
    def user_line(self) -> str | None:
        """``file:line`` of the code that made it, where known."""
        return None if self.source_line is None else f"{self.source_line[0]}:{self.source_line[1]}"

    def __repr__(self) -> str:
        outputs = ", ".join(f"{t.dtype.name} {t.shape}" for t in self.outputs)
        return f"<ax.Operation {self.name!r} op={self.op}{f' -> {outputs}' if outputs else ''}>"


Operation: TypeAlias = Node  # the name that users know


class TensorOperators:
    """The operators of tensors, which add nodes to the graph."""

    __slots__ = ()

    # The frontend, which knows how to build nodes, fills this in.
    operators: ClassVar[dict[str, Callable[..., Tensor]]] = {}

    # numpy must leave "array + tensor" to __radd__.
    __array_priority__ = 100
    __array_ufunc__ = None

    def __getitem__(self, key: object) -> Tensor:
        return self.operators["getitem"](self, key)

    def __add__(self, other: object) -> Tensor:
        return self.operators["add"](self, other)

    def __radd__(self, other: object) -> Tensor:
        return self.operators["add"](other, self)

    def __sub__(self, other: object) -> Tensor:
        return self.operators["sub"](self, other)

    def __rsub__(self, other: object) -> Tensor:
        return self.operators["sub"](other, self)

    def __mul__(self, other: object) -> Tensor:
        return self.operators["mul"](self, other)

    def __rmul__(self, other: object) -> Tensor:
        return self.operators["mul"](other, self)

    def __truediv__(self, other: object) -> Tensor:
        return self.operators["truediv"](self, other)

    def __rtruediv__(self, other: object) -> Tensor:
        return self.operators["truediv"](other, self)

    def __floordiv__(self, other: object) -> Tensor:
        return self.operators["floordiv"](self, other)

    def __rfloordiv__(self, other: object) -> Tensor:
        return self.operators["floordiv"](other, self)

    def __mod__(self, other: object) -> Tensor:
        return self.operators["mod"](self, other)

    def __rmod__(self, other: object) -> Tensor:
        return self.operators["mod"](other, self)

    def __pow__(self, other: object) -> Tensor:
        return self.operators["pow"](self, other)

    def __rpow__(self, other: object) -> Tensor:
        return self.operators["pow"](other, self)

    def __matmul__(self, other: object) -> Tensor:
        return self.operators["matmul"](self, other)

    def __rmatmul__(self, other: object) -> Tensor:
        return self.operators["matmul"](other, self)

    def __and__(self, other: object) -> Tensor:
        return self.operators["and"](self, other)

    def __rand__(self, other: object) -> Tensor:
        return self.operators["and"](other, self)

    def __or__(self, other: object) -> Tensor:
        return self.operators["or"](self, other)

    def __ror__(self, other: object) -> Tensor:
        return self.operators["or"](other, self)

    def __xor__(self, other: object) -> Tensor:
        return self.operators["xor"](self, other)

    def __rxor__(self, other: object) -> Tensor:
        return self.operators["xor"](other, self)

    def __lt__(self, other: object) -> Tensor:
        return self.operators["lt"](self, other)

    def __le__(self, other: object) -> Tensor:
        return self.operators["le"](self, other)

    def __gt__(self, other: object) -> Tensor:
        return self.operators["gt"](self, other)

    def __ge__(self, other: object) -> Tensor:
        return self.operators["ge"](self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.operators["eq"](self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.operators["ne"](self, other)

    def __neg__(self) -> Tensor:
        return self.operators["neg"](self)

    def __abs__(self) -> Tensor:
        return self.operators["abs"](self)

    def __invert__(self) -> Tensor:
        return self.operators["invert"](self)


class Tensor(TensorOperators, Generic[V_co]):
    """Output *index* of node *op*: a value that will exist when the graph runs; ``Tensor[float]`` says of what type.

    Operators on it add nodes to its graph: ``+ - * / // % ** @ < <= > >= == != [] ~ & | ^``, ``-x`` and ``abs(x)``.
    ``==`` therefore gives a tensor of bool; two tensors are the same one only if ``a is b``.

    >>> x = ax.constant([3, 4], name="x")
    >>> x.name, x.dtype, x.shape
    ('x:0', asyncexec.int32, TensorShape([2]))
    >>> show((x + 1) * 10, x[1])
    [40 50]
    4
    """

    __slots__ = ("__weakref__", "index", "op")

    def __init__(self, op: Node, index: int) -> None:
        self.op: Node = op
        self.index: int = index

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def name(self) -> str:
        return f"{self.op.name}:{self.index}"

    @property
    def dtype(self) -> DType:
        return self.op.properties.output_dtypes[self.index]

    @property
    def shape(self) -> TensorShape:
        """What is known of its shape before it runs."""
        return self.op.output_shapes[self.index]

    def set_shape(self, shape: Any) -> None:
        """Tell more of the shape than could be inferred; InvalidArgumentError when that contradicts what is known."""
        shapes = list(self.op.output_shapes)
        shapes[self.index] = shapes[self.index].merge_with(shape)
        self.op.output_shapes = tuple(shapes)

    def __repr__(self) -> str:
        return f"<ax.Tensor {self.name!r} {self.dtype.name} shape={self.shape} from {self.op.op}>"

    def _repr_html_(self) -> str:
        html: str = _graph_html.tensor_html(self)
        return html

    __hash__ = object.__hash__  # by identity, though == is not

    def __bool__(self) -> bool:
        raise InvalidTypeError(
            f"{self.name!r} has no value while the graph is built, so it cannot decide an if or a while",
            node=self.op,
            hint="use ax.cond or ax.where; to ask whether two names are one tensor, 'a is b'",
        )

    def __iter__(self) -> NoReturn:
        raise InvalidTypeError(
            f"{self.name!r} cannot be iterated over while the graph is built", node=self.op, hint="use ax.unstack"
        )

    def __len__(self) -> int:
        raise InvalidTypeError(
            f"{self.name!r} has no length while the graph is built",
            node=self.op,
            hint="use .shape[0] or ax.shape(x)[0]",
        )
