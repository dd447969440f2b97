"""Ops of lookup tables (``tensorflow/core/ops/lookup_ops.cc``); the tables are in ``lookup_table.py``.

A table is a resource of the session, by its shared name, else by the node that made it.  The first version of each op
has a ``Ref(string)`` handle where V2 has a resource; the handle is the table either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.ops.state.lookup_table import HashTable, LookupTable, MutableDenseHashTable, MutableHashTable, listed
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER

_TABLE: Final = (
    "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = False; key_dtype: type;"
    " value_dtype: type"
)
_DTYPES: Final = "key_dtype: type; value_dtype: type"
_SHAPE: Final = "value_shape: shape = shape()"
_BUCKETS: Final = f"{_SHAPE}; initial_num_buckets: int = 131072; max_load_factor: float = 0.800000012"
_DENSE: Final = f"{_TABLE}; {_BUCKETS}"
_VERSIONS: Final = (("", "Ref(string)"), ("V2", "resource"))
_NUMBERS: Final = ("float32", "float64", "int32")


def _write_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return []


def _initialize_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    c.vector(1).merge_with(c.input(2))
    return []


def _find_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [UNKNOWN_SHAPE]


def _export_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [TensorShape([None]), UNKNOWN_SHAPE]


for _suffix, _handle in _VERSIONS:
    _in = f"table_handle: {_handle}"
    # The first versions that only use a table are not marked stateful in TensorFlow.
    _uses: dict[str, Any] = {"is_stateful": _suffix == "V2"}
    register_op(f"HashTable{_suffix}", f"-> {_in}", _TABLE, is_stateful=True, shape=scalars)
    register_op(f"MutableHashTable{_suffix}", f"-> {_in}", _TABLE, is_stateful=True, shape=scalars)
    register_op(
        f"MutableHashTableOfTensors{_suffix}", f"-> {_in}", f"{_TABLE}; {_SHAPE}", is_stateful=True, shape=scalars
    )
    register_op(
        f"InitializeTable{_suffix}",
        f"{_in}, keys: Tkey, values: Tval ->",
        "Tkey: type; Tval: type",
        shape=_initialize_shape,
        **_uses,
    )
    register_op(
        f"LookupTableFind{_suffix}",
        f"{_in}, keys: Tin, default_value: Tout -> values: Tout",
        "Tin: type; Tout: type",
        shape=_find_shape,
        **_uses,
    )
    register_op(f"LookupTableSize{_suffix}", f"{_in} -> size: int64", shape=scalars, **_uses)
    for _name in ("Insert", "Import"):
        register_op(
            f"LookupTable{_name}{_suffix}",
            f"{_in}, keys: Tin, values: Tout ->",
            "Tin: type; Tout: type",
            shape=_write_shape,
            **_uses,
        )
    register_op(
        f"LookupTableExport{_suffix}",
        f"{_in} -> keys: Tkeys, values: Tvalues",
        "Tkeys: type; Tvalues: type",
        shape=_export_shape,
        **_uses,
    )
register_op(
    "LookupTableRemoveV2", "table_handle: resource, keys: Tin ->", "Tin: type", is_stateful=True, shape=no_outputs
)
register_op(
    "MutableDenseHashTableV2",
    "empty_key: key_dtype, deleted_key: key_dtype -> table_handle: resource",
    _DENSE,
    is_stateful=True,
    shape=scalars,
)


register_op(
    "MutableDenseHashTable",
    "empty_key: key_dtype -> table_handle: Ref(string)",
    _DENSE,
    is_stateful=True,
    shape=scalars,
)
for _name, _inputs, _attrs in (
    ("HashTable", "", _DTYPES),
    ("MutableHashTable", "", _DTYPES),
    ("MutableHashTableOfTensors", "", f"{_DTYPES}; {_SHAPE}"),
    ("MutableDenseHashTable", "empty_key: key_dtype, deleted_key: key_dtype", f"{_DTYPES}; {_BUCKETS}"),
):
    register_op(f"Anonymous{_name}", f"{_inputs} -> table_handle: resource", _attrs, is_stateful=True, shape=scalars)


def _table_of(construction: OpKernelConstruction, create: Callable[[], LookupTable]) -> LookupTable:
    """The table of this node; InvalidArgumentError when there is one of that name with other dtypes.

    An op without names makes a table anew whenever it runs: that of its handle.
    """
    if construction.op.startswith("Anonymous"):
        return create()
    name = construction.attr("shared_name").decode("utf-8", "replace")
    container = construction.attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER
    is_shared = bool(name) or construction.attr("use_node_name_sharing")
    if not is_shared:
        container += "/private table"
    name = name or construction.name
    table = construction.resource_mgr.lookup_or_create(LookupTable, container, name, create, is_shared=is_shared)
    table.check_dtypes(construction.attr("key_dtype"), construction.attr("value_dtype"))
    return table


def _dtypes(construction: OpKernelConstruction) -> tuple[DType, DType]:
    return construction.attr("key_dtype"), construction.attr("value_dtype")


def _plain_table(kind: type[HashTable | MutableHashTable]) -> Callable[[OpKernelConstruction], Kernel]:
    def factory(construction: OpKernelConstruction) -> Kernel:
        return lambda: _table_of(construction, lambda: kind(*_dtypes(construction)))

    return factory


def _table_of_tensors(construction: OpKernelConstruction) -> Kernel:
    shape: TensorShape = construction.attr("value_shape")
    if shape.rank != 1:
        raise InvalidArgumentError(f"Default value must be a vector, got shape {shape}")
    sizes = shape.as_tuple()
    return lambda: _table_of(construction, lambda: MutableHashTable(*_dtypes(construction), sizes))


def _register_table(ops: Iterable[str], factory: Any, allowed: Iterable[tuple[str, Iterable[str]]]) -> None:
    for key, values in allowed:
        dtypes = {"key_dtype": [as_dtype(key)], "value_dtype": [as_dtype(value) for value in values]}
        register_kernel(*ops, dtypes=dtypes)(factory)


def _dense_table(construction: OpKernelConstruction) -> Kernel:
    shape: TensorShape = construction.attr("value_shape")
    buckets, load = construction.attr("initial_num_buckets"), construction.attr("max_load_factor")

    def kernel(empty_key: object, *deleted_key: object) -> LookupTable:
        empty = _reserved_key(empty_key, "empty_key")
        deleted = _reserved_key(deleted_key[0], "deleted_key") if deleted_key else None
        if empty == deleted:
            raise InvalidArgumentError(f"empty_key and deleted_key cannot be the same: {empty!r}")
        if buckets < 1 or buckets & (buckets - 1):
            raise InvalidArgumentError(f"Number of buckets must be a power of 2, got: {buckets}")
        if not 0 < load < 1:
            raise InvalidArgumentError(f"max_load_factor must be between 0 and 1, got: {load}")
        sizes = shape.as_tuple()
        return _table_of(construction, lambda: MutableDenseHashTable(*_dtypes(construction), sizes, empty, deleted))

    return kernel


def _reserved_key(key: Any, name: str) -> object:
    if np.ndim(key) != 0:
        raise InvalidArgumentError(f"{name} must be a scalar here, but is of shape {list(np.shape(key))}")
    return listed(key)[0]


_register_table(
    ["HashTable", "HashTableV2", "AnonymousHashTable"],
    _plain_table(HashTable),
    [
        ("int32", (*_NUMBERS, "string")),
        ("int64", (*_NUMBERS, "int64", "string")),
        ("string", (*_NUMBERS, "int64", "string", "bool")),
    ],
)
_register_table(
    ["MutableHashTable", "MutableHashTableV2", "AnonymousMutableHashTable"],
    _plain_table(MutableHashTable),
    [
        ("int32", _NUMBERS),
        ("int64", (*_NUMBERS, "int64", "string", "variant")),
        ("string", (*_NUMBERS, "int64", "bool")),
    ],
)
_register_table(
    ["MutableHashTableOfTensors", "MutableHashTableOfTensorsV2", "AnonymousMutableHashTableOfTensors"],
    _table_of_tensors,
    [
        ("int32", _NUMBERS),
        ("int64", (*_NUMBERS, "int64", "string")),
        ("string", (*_NUMBERS, "int64", "bool")),
    ],
)
_register_table(
    ["MutableDenseHashTable", "MutableDenseHashTableV2", "AnonymousMutableDenseHashTable"],
    _dense_table,
    [
        ("int32", _NUMBERS),
        ("int64", (*_NUMBERS, "int64", "bool", "variant")),
        ("string", (*_NUMBERS, "int64", "bool", "resource")),
    ],
)


@register_kernel("InitializeTable", "InitializeTableV2")
def initialize_table(construction: OpKernelConstruction) -> Kernel:
    """Fill a HashTable."""
    dtypes = construction.attr("Tkey"), construction.attr("Tval")

    def kernel(table: Any, keys: Any, values: object) -> tuple[()]:
        initializable(table).check_dtypes(*dtypes)
        if np.ndim(keys) != 1:
            raise InvalidArgumentError(f"Keys must be a vector, but received shape {list(np.shape(keys))}")
        table.load(keys, values)
        return ()

    return kernel


def initializable(table: object) -> HashTable:
    """*table*, which must be one that an initializer fills."""
    if not isinstance(table, HashTable):
        raise InvalidArgumentError(f"a {type(table).__name__} takes no initializer, only a HashTable does")
    return table


def _as_table(handle: object) -> LookupTable:
    if not isinstance(handle, LookupTable):
        raise InvalidArgumentError(f"expected the handle of a table, not a {type(handle).__name__}")
    return handle


@register_kernel("LookupTableFind", "LookupTableFindV2")
def lookup_table_find(construction: OpKernelConstruction) -> Kernel:
    """The value of each key."""
    dtypes = construction.attr("Tin"), construction.attr("Tout")

    def kernel(handle: object, keys: object, default_value: object) -> Any:
        table = _as_table(handle)
        table.check_dtypes(*dtypes)
        return table.find(keys, default_value)

    return kernel


@register_kernel("LookupTableInsert", "LookupTableInsertV2", "LookupTableImport", "LookupTableImportV2")
def lookup_table_write(construction: OpKernelConstruction) -> Kernel:
    """Add entries, or (Import) make them all that there is."""
    dtypes = construction.attr("Tin"), construction.attr("Tout")
    is_insert = "Insert" in construction.op

    def kernel(handle: object, keys: object, values: object) -> tuple[()]:
        table = _as_table(handle)
        table.check_dtypes(*dtypes)
        if is_insert:
            table.insert(keys, values)
        else:
            table.load(keys, values)
        return ()

    return kernel


@register_kernel("LookupTableRemoveV2")
def lookup_table_remove(construction: OpKernelConstruction) -> Kernel:
    """Forget keys."""
    key_dtype = construction.attr("Tin")

    def kernel(handle: object, keys: object) -> tuple[()]:
        table = _as_table(handle)
        table.check_dtypes(key_dtype)
        table.remove(keys)
        return ()

    return kernel


@register_kernel("LookupTableExport", "LookupTableExportV2")
def lookup_table_export(construction: OpKernelConstruction) -> Kernel:
    """All keys and values."""
    dtypes = construction.attr("Tkeys"), construction.attr("Tvalues")

    def kernel(handle: object) -> tuple[Any, object]:
        table = _as_table(handle)
        table.check_dtypes(*dtypes)
        return table.export()

    return kernel


def _size(handle: object) -> object:
    return np.int64(_as_table(handle).size())


register_function("LookupTableSize", "LookupTableSizeV2", function=_size)
