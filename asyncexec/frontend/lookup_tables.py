"""Lookup tables with keys and values that do not change.

After ``tensorflow/python/ops/lookup_ops.py``.

Raises:
    InvalidArgumentError: there are more keys than values, or fewer.
    InvalidTypeError: a key or value has another dtype.
    FailedPreconditionError: when the graph runs, the table is not initialized, or a key has two values.
"""

from __future__ import annotations

from asyncexec.framework.types import DType
from asyncexec.frontend.basic_functions import group
from asyncexec.frontend.calls import DTypeLike, TensorLike, composite, dtype_of, effect_op, tensor_op
from asyncexec.frontend.create_op import as_tensor
from asyncexec.graph.current_graph import control_dependencies, current_graph
from asyncexec.graph.node import Node, Tensor

TABLE_INITIALIZERS = "table_initializers"  # the key of Graph.collections


class StaticHashTable:
    """A table from *keys* to *values*, vectors of the same length, with a default for all other keys.

    Run its ``initializer``, or ``tables_initializer``, before lookups.

    >>> prices = ax.StaticHashTable(["tea", "bread"], [3, 5], default_value=0)
    >>> with ax.control_dependencies([prices.initializer]):
    ...     found = prices.lookup(["bread", "figs"])
    >>> show(found)
    [5 0]

    Args:
        keys: integers or strings.
        values: numbers, bools or strings.
        default_value: a scalar of the values' dtype.
        key_dtype, value_dtype: the dtypes, by default those of the vectors.
        name: the name of its node.
    """

    def __init__(
        self,
        keys: TensorLike,
        values: TensorLike,
        default_value: TensorLike,
        key_dtype: DTypeLike = None,
        value_dtype: DTypeLike = None,
        name: str = "hash_table",
    ) -> None:
        graph = current_graph()
        full_name = graph.unique_name(name, mark_as_used=False)
        with control_dependencies(None), composite(name, name, [keys, values, default_value]):
            known, found = as_tensor(keys, key_dtype, "keys"), as_tensor(values, value_dtype, "values")
            self.key_dtype: DType = dtype_of(known)
            self.value_dtype: DType = dtype_of(found)
            self.default_value: Tensor = as_tensor(default_value, self.value_dtype, "default_value")
            self.handle: Tensor = tensor_op(
                "HashTableV2",
                (),
                full_name + "/",
                key_dtype=self.key_dtype,
                value_dtype=self.value_dtype,
                shared_name=full_name,
            )
            self.initializer: Node = effect_op("InitializeTableV2", [self.handle, known, found], "initialize")
        graph.collections.setdefault(TABLE_INITIALIZERS, []).append(self.initializer)

    @property
    def name(self) -> str:
        return self.handle.op.name

    def lookup(self, keys: TensorLike, name: str | None = None) -> Tensor:
        """The values of *keys*, in their shape; FailedPreconditionError in a run before the table was initialized."""
        with composite(name, f"{self.name.rpartition('/')[2]}_Lookup", [self.handle, keys]) as scope:
            wanted = as_tensor(keys, self.key_dtype)
            values = tensor_op("LookupTableFindV2", [self.handle, wanted, self.default_value], scope)
        values.set_shape(wanted.shape)
        return values

    def size(self, name: str | None = None) -> Tensor:
        """How many keys it has, an int64 scalar."""
        return tensor_op("LookupTableSizeV2", [self.handle], name)

    def __repr__(self) -> str:
        return f"<ax.StaticHashTable {self.name!r} from {self.key_dtype.name} to {self.value_dtype.name}>"


def tables_initializer(name: str = "init_all_tables") -> Node:
    """An operation that initializes all lookup tables that the current graph has so far.

    >>> prices = ax.StaticHashTable(["tea", "bread"], [3, 5], default_value=0)
    >>> with ax.control_dependencies([ax.tables_initializer()]):
    ...     found = prices.lookup(["tea"])
    >>> show(found)
    [3]
    """
    return group(*current_graph().collections.get(TABLE_INITIALIZERS, ()), name=name)
