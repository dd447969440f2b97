"""Tables from keys to values: what a table handle is (``tensorflow/core/kernels/lookup_table_op.cc``).

A handle that travels along an edge is the table itself.  Steps on several threads may share a table, so every method
takes its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from asyncexec.framework.kernel import as_value
from asyncexec.framework.ownership import keep
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.types import DType, string
from asyncexec.ops.array.array_common import boxed
from asyncexec.ops.string.string_elements import as_strings


def listed(tensor: object) -> list[object]:
    """The elements of *tensor* as Python values."""
    items: list[object] = boxed(tensor).ravel().tolist()
    return items


def tensor_of(items: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> object:
    """Python values as a tensor."""
    if dtype is string:
        return as_strings(items, shape)
    if dtype.is_opaque:
        found = np.empty(len(items), object)
        found[:] = items
        return as_value(found.reshape(shape))
    return as_value(np.array(items, dtype.as_numpy_dtype).reshape(shape))


class LookupTable(ProcessBound):
    """What all tables have: dtypes, lookup, size, export."""

    def __init__(self, key_dtype: DType, value_dtype: DType, value_shape: tuple[int, ...] = ()) -> None:
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.value_shape = value_shape
        self._entries: dict[object, object] = {}
        self._lock = threading.Lock()

    def check_dtypes(self, key_dtype: DType, value_dtype: DType | None = None) -> None:
        """InvalidArgumentError unless the table has these."""
        if key_dtype is not self.key_dtype or value_dtype not in (None, self.value_dtype):
            wanted = key_dtype.name + ("" if value_dtype is None else f"->{value_dtype.name}")
            raise InvalidArgumentError(
                f"Conflicting key/value dtypes {wanted} with table {self.key_dtype.name}->{self.value_dtype.name}"
            )

    def find(self, keys: Any, default_value: Any) -> object:
        """The value of each key, or the default."""
        get = self._entries.get
        shape = np.shape(keys) + self.value_shape
        if np.shape(default_value) == self.value_shape:
            default = self._values(default_value, 1)[0]
            with self._lock:
                found = [get(key, default) for key in self._keys(keys)]
        else:
            found = self._find_or(keys, default_value)
        return tensor_of(found, self.value_dtype, shape)

    def _find_or(self, keys: object, default_value: Any) -> list[object]:
        raise InvalidArgumentError(
            f"Expected shape {list(self.value_shape)} for the default value, got {list(np.shape(default_value))}"
        )

    def size(self) -> int:
        with self._lock:
            return len(self._entries)

    def export(self) -> tuple[object, object]:
        """All keys and all values, in one order."""
        with self._lock:
            keys, values = list(self._entries), list(self._entries.values())
        shape = (len(keys), *self.value_shape)
        return tensor_of(keys, self.key_dtype, (len(keys),)), tensor_of(values, self.value_dtype, shape)

    def insert(self, keys: object, values: object) -> None:
        raise UnimplementedError("this table cannot be inserted into once it is initialized")

    def remove(self, keys: object) -> None:
        raise UnimplementedError("keys cannot be removed from this table")

    def load(self, keys: object, values: object) -> None:
        """Make *keys* and *values* all that the table holds."""
        raise UnimplementedError("this table cannot be given all its contents at once")

    def to_state(self) -> tuple[Mapping[str, object], Sequence[object]]:
        """What a checkpoint holds of it."""
        return {}, LookupTable.export(self)

    def from_state(self, about: Mapping[str, object], values: Sequence[object]) -> None:
        """Have the entries that ``to_state`` gave."""
        pairs = self._pairs(*values)
        with self._lock:
            self._entries = dict(pairs)

    def _keys(self, keys: object) -> list[object]:
        return listed(keys)

    def _values(self, values: object, count: int) -> list[Any]:
        """Values as Python values, or as arrays where a value has a shape."""
        return list(keep(values).reshape(count, *self.value_shape)) if self.value_shape else listed(values)

    def _pairs(self, keys: Any, values: Any) -> list[tuple[object, object]]:
        shape = np.shape(keys) + self.value_shape
        if np.shape(values) != shape:
            raise InvalidArgumentError(f"Expected shape {list(shape)} for value, got {list(np.shape(values))}")
        listed_keys = self._keys(keys)
        return list(zip(listed_keys, self._values(values, len(listed_keys)), strict=True))


class HashTable(LookupTable):
    """Filled once, then only read."""

    def __init__(self, key_dtype: DType, value_dtype: DType) -> None:
        super().__init__(key_dtype, value_dtype)
        self._is_initialized = False

    def find(self, keys: object, default_value: object) -> Any:
        if not self._is_initialized:
            raise FailedPreconditionError("Table not initialized.", hint="run its initializer first")
        return super().find(keys, default_value)

    def export(self) -> tuple[object, object]:
        if not self._is_initialized:
            raise AbortedError("HashTable is not initialized.")
        return super().export()

    def to_state(self) -> tuple[Mapping[str, object], Sequence[object]]:
        return {"is_initialized": self._is_initialized}, LookupTable.export(self)

    def from_state(self, about: Mapping[str, object], values: Sequence[object]) -> None:
        super().from_state(about, values)
        self._is_initialized = bool(about["is_initialized"])

    def load(self, keys: object, values: object) -> None:
        self.initialize(self._pairs(keys, values))

    def initialize(self, pairs: Collection[tuple[object, object]]) -> None:
        """Fill the table.  As in TensorFlow, doing so again with as many entries is allowed and has no effect."""
        with self._lock:
            if self._is_initialized:
                if len(pairs) != len(self._entries):
                    raise FailedPreconditionError("Table was already initialized with different data.")
                return
            entries: dict[object, object] = {}
            for key, value in pairs:
                if entries.setdefault(key, value) != value:
                    raise FailedPreconditionError(
                        f"HashTable has different value for same key. Key {key!r} has {entries[key]!r} and trying to"
                        f" add value {value!r}"
                    )
            self._entries = entries
            self._is_initialized = True


class MutableHashTable(LookupTable):
    """Written at any time."""

    def _find_or(self, keys: Any, default_value: Any) -> list[object]:
        if np.shape(default_value) != np.shape(keys) + self.value_shape:
            return super()._find_or(keys, default_value)
        listed_keys = self._keys(keys)
        defaults = self._values(default_value, len(listed_keys))
        with self._lock:
            return list(map(self._entries.get, listed_keys, defaults))

    def insert(self, keys: object, values: object) -> None:
        """Add entries, or give those that are there new values."""
        pairs = self._pairs(keys, values)
        with self._lock:
            self._entries.update(pairs)

    def load(self, keys: object, values: object) -> None:
        pairs = self._pairs(keys, values)
        with self._lock:
            self._entries.clear()
            self._entries.update(pairs)

    def remove(self, keys: object) -> None:
        """Forget *keys*; those that are not there are passed over."""
        listed_keys = self._keys(keys)
        with self._lock:
            for key in listed_keys:
                self._entries.pop(key, None)


class MutableDenseHashTable(MutableHashTable):
    """A table whose values have a shape, and two of whose keys stand for empty and deleted places.

    TensorFlow exports all places of its open hashing, empty ones too; here only entries are exported.
    """

    def __init__(
        self, key_dtype: DType, value_dtype: DType, value_shape: tuple[int, ...], empty_key: object, deleted_key: object
    ) -> None:
        super().__init__(key_dtype, value_dtype, value_shape)
        self._reserved = (empty_key, deleted_key)

    def _keys(self, keys: object) -> list[object]:
        found = listed(keys)
        for name, reserved in zip(("empty_key", "deleted_key"), self._reserved, strict=True):
            if reserved in found:
                raise InvalidArgumentError(f"Using the {name} {reserved!r} as a table key is not allowed")
        return found
