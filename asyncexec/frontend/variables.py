"""``Variable``: a value that lives as long as the session, over TensorFlow's resource variables.

After ``tensorflow/python/ops/resource_variable_ops.py`` and ``variables.py``.

Raises:
    FailedPreconditionError: a run reads a variable before its initializer has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import ShapeLike, TensorShape, as_shape
from asyncexec.framework.types import DType
from asyncexec.frontend.basic_functions import group
from asyncexec.frontend.calls import DTypeLike, TensorLike, dtype_of, effect_op, tensor_op
from asyncexec.frontend.create_op import TensorSource, as_tensor, graph_to_use
from asyncexec.graph.current_graph import control_dependencies, current_graph
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor

VARIABLES = "variables"  # the key of Graph.collections


class Variable(TensorSource):
    """A value that a graph can change, kept in the session from run to run.

    It can be used wherever a tensor can, and is read there when the node runs.  Use ``control_dependencies`` so that a
    read comes after the assignments that it must see.  Run the ``initializer`` first.

    >>> count = ax.Variable(40, name="count")
    >>> with ax.control_dependencies([count.initializer]):
    ...     added = count.assign_add(2)
    >>> with ax.control_dependencies([added]):
    ...     show(count.read_value())
    42

    Args:
        initial_value: the value that the initializer assigns: a value, a tensor, or a function that returns one.
        name: the name, by default "Variable".
        dtype: the dtype, by default that of the value.
        shape: the shape, by default that of the value.  With sizes of None, values of several shapes can be assigned.

    Raises:
        InvalidArgumentError: the value does not fit dtype or shape.
    """

    __slots__ = ("_dtype", "_shape", "_value", "handle", "initial_value", "initializer")

    def __init__(
        self,
        initial_value: TensorLike | Callable[[], TensorLike],
        name: str | None = None,
        dtype: DTypeLike = None,
        shape: ShapeLike = None,
    ) -> None:
        graph = current_graph()
        full_name = graph.unique_name(name or "Variable", mark_as_used=False)
        value = initial_value() if callable(initial_value) else initial_value
        with control_dependencies(None):
            self.initial_value: Tensor = as_tensor(value, dtype, f"{name or 'Variable'}/initial_value")
            self._dtype = dtype_of(self.initial_value)
            self._shape = self.initial_value.shape if shape is None else as_shape(shape)
            if not self._shape.is_compatible_with(self.initial_value.shape):
                raise InvalidArgumentError(
                    f"an initial value of shape {self.initial_value.shape} does not fit the shape {self._shape}",
                    node=self.initial_value.op,
                )
            self.handle: Tensor = tensor_op(
                "VarHandleOp", (), full_name + "/", dtype=self._dtype, shape=self._shape, shared_name=full_name
            )
            self.initializer: Node = self._update("AssignVariableOp", self.initial_value, f"{full_name}/Assign/")
            self._value = self.read_value(f"{full_name}/Read/")
        graph.collections.setdefault(VARIABLES, []).append(self)

    @property
    def graph(self) -> Graph:
        return self.handle.graph

    @property
    def name(self) -> str:
        """The name of its handle's node."""
        return self.handle.op.name

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def read_value(self, name: str | None = None) -> Tensor:
        """Its value at the time the node runs; FailedPreconditionError in a run before it was initialized."""
        value = tensor_op("ReadVariableOp", [self.handle], name or f"{self._local_name()}/Read", dtype=self._dtype)
        value.set_shape(self._shape)
        return value

    def as_tensor(self) -> Tensor:
        return self.read_value()

    def fetched_tensor(self) -> Tensor:
        return self._value

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Whether it has a value, a bool scalar."""
        return tensor_op("VarIsInitializedOp", [self.handle], name)

    def assign(self, value: TensorLike, name: str | None = None) -> Node:
        """An operation that assigns *value*."""
        return self._update("AssignVariableOp", value, name)

    def assign_add(self, delta: TensorLike, name: str | None = None) -> Node:
        """An operation that adds *delta* to the variable."""
        return self._update("AssignAddVariableOp", delta, name)

    def assign_sub(self, delta: TensorLike, name: str | None = None) -> Node:
        """An operation that subtracts *delta* from the variable."""
        return self._update("AssignSubVariableOp", delta, name)

    def _update(self, op: str, value: TensorLike, name: str | None) -> Node:
        with graph_to_use(self.handle):
            tensor = as_tensor(value, self._dtype)
        if not self._shape.is_compatible_with(tensor.shape):
            raise InvalidArgumentError(
                f"a value of shape {tensor.shape} does not fit variable {self.name!r} of shape {self._shape}",
                node=tensor.op,
            )
        return effect_op(op, [self.handle, tensor], name or f"{self._local_name()}/{op}", dtype=self._dtype)

    def _local_name(self) -> str:
        return self.name.removeprefix(self.graph.current_name_scope)

    def __repr__(self) -> str:
        return f"<ax.Variable {self.name!r} {self._dtype.name} shape={self._shape}>"

    def __hash__(self) -> int:
        return id(self)


def global_variables() -> list[Variable]:
    """The variables of the current graph, in the order in which they were made.

    >>> count = ax.Variable(40, name="count")
    >>> [variable.name for variable in ax.global_variables()]
    ['count']
    """
    return list(current_graph().collections.get(VARIABLES, ()))


def variables_initializer(var_list: Iterable[Variable], name: str = "init") -> Node:
    """An operation that initializes *var_list*, all at once.

    >>> count = ax.Variable(40)
    >>> with ax.control_dependencies([ax.variables_initializer([count])]):
    ...     show(count.read_value())
    40
    """
    return group(*[variable.initializer for variable in var_list], name=name)


def global_variables_initializer(name: str = "init") -> Node:
    """An operation that initializes all variables that the current graph has so far.

    >>> count = ax.Variable(40)
    >>> with ax.control_dependencies([ax.global_variables_initializer()]):
    ...     show(count.read_value())
    40
    """
    return variables_initializer(global_variables(), name)
