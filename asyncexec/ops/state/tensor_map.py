"""TensorMap: maps from tensors to tensors, as values of dtype variant (``tensorflow/core/kernels/map_kernels.h``).

A map is immutable: what changes one gives another.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import scalars, unknown
from asyncexec.framework.types import DType
from asyncexec.framework.variant_ops import add, register_variant_ops
from asyncexec.ops.array.array_common import PLAIN, boxed


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A key with its value."""

    key: Any
    key_dtype: DType
    value: Any
    value_dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """A value of dtype variant: entries by what tells their keys apart, in the order of insertion."""

    entries: Mapping[Hashable, Entry] = field(default_factory=dict)


def _identity(key: object, dtype: DType) -> Hashable:
    array = boxed(key)
    content = tuple(array.flat) if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return dtype.name, np.shape(array), content


def _add(a: TensorMap, b: TensorMap) -> TensorMap:
    """The union; values of keys that both have are added."""
    entries = dict(a.entries)
    for name, entry in b.entries.items():
        mine = entries.get(name)
        if mine is not None and mine.value_dtype is not entry.value_dtype:
            raise InvalidArgumentError(f"Cannot add {mine.value_dtype.name} and {entry.value_dtype.name} in a map")
        value = entry.value if mine is None else add(mine.value, entry.value)
        entries[name] = Entry(entry.key, entry.key_dtype, value, entry.value_dtype)
    return TensorMap(entries)


register_variant_ops(TensorMap, zeros_like=lambda _: TensorMap(), add=_add)

_KEYED: Final = "key_dtype: type; value_dtype: type"
register_op("EmptyTensorMap", "-> handle: variant", shape=scalars)
register_op("TensorMapSize", "input_handle: variant -> size: int32", shape=scalars)
register_op(
    "TensorMapHasKey", "input_handle: variant, key: key_dtype -> has_key: bool", "key_dtype: type", shape=scalars
)
register_op("TensorMapLookup", "input_handle: variant, key: key_dtype -> value: value_dtype", _KEYED, shape=unknown)
register_op(
    "TensorMapInsert",
    "input_handle: variant, key: key_dtype, value: value_dtype -> output_handle: variant",
    _KEYED,
    shape=scalars,
)
register_op("TensorMapErase", "input_handle: variant, key: key_dtype -> output_handle: variant", _KEYED, shape=scalars)
register_op("TensorMapStackKeys", "input_handle: variant -> keys: key_dtype", "key_dtype: type", shape=unknown)


def _require_map(handle: object) -> TensorMap:
    if not isinstance(handle, TensorMap):
        raise InvalidArgumentError(f"Input handle is not a map. Saw: a {type(handle).__name__}")
    return handle


def _found(handle: object, key: object, dtype: DType, doing: str) -> Entry:
    entry = _require_map(handle).entries.get(_identity(key, dtype))
    if entry is None:
        raise InvalidArgumentError(f"Trying to {doing} non-existent key. Could not find key {str(key)[:100]!r}.")
    return entry


register_function("EmptyTensorMap", function=TensorMap)
register_function("TensorMapSize", function=lambda handle: np.int32(len(_require_map(handle).entries)))


@register_kernel("TensorMapHasKey", dtypes={"key_dtype": PLAIN})
def tensor_map_has_key(c: OpKernelConstruction) -> Kernel:
    """Whether there is a value."""
    dtype = c.attr("key_dtype")
    return lambda handle, key: np.bool_(_identity(key, dtype) in _require_map(handle).entries)


@register_kernel("TensorMapLookup", dtypes={"key_dtype": PLAIN})
def tensor_map_lookup(c: OpKernelConstruction) -> Kernel:
    """The value of a key."""
    dtype, wanted = c.attr("key_dtype"), c.attr("value_dtype")

    def kernel(handle: object, key: object) -> Any:
        entry = _found(handle, key, dtype, "lookup")
        if entry.value_dtype is not wanted:
            raise InvalidArgumentError(f"Asked for a value of {wanted.name}, but it is of {entry.value_dtype.name}")
        return entry.value

    return kernel


@register_kernel("TensorMapInsert", dtypes={"key_dtype": PLAIN})
def tensor_map_insert(c: OpKernelConstruction) -> Kernel:
    """A map with another value of a key."""
    key_dtype, value_dtype = c.attr("key_dtype"), c.attr("value_dtype")

    def kernel(handle: object, key: object, value: object) -> TensorMap:
        entry = Entry(key, key_dtype, value, value_dtype)
        return TensorMap({**_require_map(handle).entries, _identity(key, key_dtype): entry})

    return kernel


@register_kernel("TensorMapErase", dtypes={"key_dtype": PLAIN})
def tensor_map_erase(c: OpKernelConstruction) -> Kernel:
    """A map without a key."""
    dtype = c.attr("key_dtype")

    def kernel(handle: Any, key: object) -> TensorMap:
        gone = _found(handle, key, dtype, "erase")
        return TensorMap({name: entry for name, entry in handle.entries.items() if entry is not gone})

    return kernel


@register_kernel("TensorMapStackKeys", dtypes={"key_dtype": PLAIN})
def tensor_map_stack_keys(c: OpKernelConstruction) -> Kernel:
    """All keys, which must be of one shape."""
    dtype = c.attr("key_dtype")

    def kernel(handle: object) -> Any:
        entries = list(_require_map(handle).entries.values())
        if not entries:
            raise InvalidArgumentError("TensorMapStackKeys cannot be called on empty map.")
        keys = [boxed(entry.key) for entry in entries]
        if any(entry.key_dtype is not dtype for entry in entries):
            raise InvalidArgumentError("Key does not match requested dtype.")
        if any(key.shape != keys[0].shape for key in keys):
            raise InvalidArgumentError("Keys must all have the same shape.")
        return as_value(np.stack(keys))

    return kernel
