"""What a TensorArray is: a row of tensors, each written once and, as a rule, read once.

Rules from ``tensorflow/core/kernels/tensor_array.h`` and ``tensor_array.cc``.  A gradient's TensorArray adds up what is
written to the same index.

What reads or writes takes the array's lock, because kernels may run on several worker threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.state.variable_state import zeros

MAX_SIZE: Final = 2**28  # elements; an empty one takes as much memory as a pointer


class Entry:
    """One place of a TensorArray.  A written entry without a value stands for zeros of *shape*."""

    __slots__ = ("is_cleared", "is_read", "is_written", "shape", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.shape: tuple[int, ...] = ()
        self.is_written: bool = False
        self.is_read: bool = False
        self.is_cleared: bool = False


class TensorArray(ProcessBound):
    """The object that the handle of a TensorArray is.

    Attributes:
        dtype: the dtype of every element.
        element_shape: what is known of the shape of every element.
        adds_up: whether writes to one index are added (the array of a gradient).
        gradients: the arrays of gradients, by source.
    """

    __slots__ = (
        "_entries",
        "_is_opaque",
        "_lock",
        "adds_up",
        "clears_after_read",
        "dtype",
        "element_shape",
        "gradients",
        "has_identical_shapes",
        "is_closed",
        "is_dynamic",
        "name",
    )

    def __init__(
        self,
        name: str,
        dtype: DType,
        size: int,
        element_shape: TensorShape,
        *,
        is_dynamic: bool = False,
        clears_after_read: bool = True,
        has_identical_shapes: bool = False,
        adds_up: bool = False,
    ) -> None:
        require_size(size)
        self._lock = Lock()
        self.name: str = name
        self.dtype: DType = dtype
        self._is_opaque = dtype.is_opaque
        self.element_shape: TensorShape = element_shape
        self.is_dynamic: bool = is_dynamic
        self.clears_after_read: bool = clears_after_read
        self.has_identical_shapes: bool = has_identical_shapes
        self.adds_up: bool = adds_up
        self.is_closed: bool = False
        self.gradients: dict[str, TensorArray] = {}
        # An entry comes to be when it is first touched, so that a size alone takes no memory.
        self._entries: list[Entry | None] = [None] * size

    def __len__(self) -> int:
        return len(self._entries)

    def require_open(self) -> None:
        """InvalidArgumentError when it is closed."""
        if self.is_closed:
            raise InvalidArgumentError(f"TensorArray {self.name} has already been closed.")

    def close(self) -> None:
        """Let go of all elements."""
        with self._lock:
            self.is_closed = True
            self._entries = [None] * len(self._entries)

    def write(self, index: int, value: object) -> None:
        """Put *value* at *index*, or add it to what is there when this is the array of a gradient."""
        with self._lock:
            self._write(index, value, self.shape_of(value))

    def write_rows(self, indices: Sequence[int], values: Any) -> None:
        """Put each of *values*, the rows of an array or a list of objects, at one of as many *indices*."""
        with self._lock:
            shape = () if self._is_opaque else values.shape[1:]
            for index, value in zip(indices, values, strict=True):
                self._write(index, value, shape)

    def _write(self, index: int, value: object, shape: tuple[int, ...]) -> None:
        if self.is_closed:
            self.require_open()
        entry = self._writable(index)
        if not self.element_shape.accepts(shape):
            raise self._cannot_write(
                index,
                f"the value shape is {TensorShape(shape)} which is incompatible with the TensorArray's inferred "
                f"element shape: {self.element_shape} (consider setting infer_shape=False)",
            )
        if entry.is_read:
            raise self._cannot_write(index, "it has already been read")
        if entry.is_written:
            self._add(index, entry, value)
            return
        if self.has_identical_shapes and self.element_shape.dims != shape:
            self.element_shape = TensorShape(shape)
        entry.value, entry.shape, entry.is_written = value, shape, True

    def _writable(self, index: int) -> Entry:
        size = len(self._entries)
        if index < 0 or (index >= size and not self.is_dynamic):
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Tried to write to index {index} but array is not resizeable and size is: "
                f"{size}"
            )
        if index >= size:
            self._grow(index + 1)
        return self._entries[index] or self._entry(index)

    def _grow(self, size: int) -> None:
        require_size(size)
        self._entries.extend([None] * (size - len(self._entries)))

    def _entry(self, index: int) -> Entry:
        entry = self._entries[index]
        if entry is None:
            entry = self._entries[index] = Entry()
        return entry

    def _add(self, index: int, entry: Entry, value: object) -> None:
        if not self.adds_up:
            raise self._cannot_write(index, "it has already been written to")
        if entry.shape != self.shape_of(value):
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Could not aggregate to TensorArray index {index} because the existing shape "
                f"is {TensorShape(entry.shape)} but the new input shape is {TensorShape(self.shape_of(value))}."
            )
        entry.value = value if entry.value is None else entry.value + value

    def _cannot_write(self, index: int, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"TensorArray {self.name}: Could not write to TensorArray index {index} because {reason}."
        )

    def read(self) -> TensorArray:
        """Itself: what is the value where a reference to it is, the handle of the first version."""
        return self

    def read_element(self, index: int) -> Any:
        """The element at *index*; it is forgotten when the array clears after reads."""
        with self._lock:
            return self._read(index)

    def read_all(self, indices: Iterable[int]) -> list[Any]:
        """The elements at *indices*, in that order, as ``read_element`` gives them."""
        with self._lock:
            return list(map(self._read, indices))

    def _read(self, index: int) -> object:
        if self.is_closed:
            self.require_open()
        if not 0 <= index < len(self._entries):
            raise InvalidArgumentError(f"Tried to read from index {index} but array size is: {len(self._entries)}")
        entry = self._entries[index] or self._entry(index)
        if entry.is_cleared:
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Could not read index {index} twice because it was cleared after a "
                "previous read (perhaps try setting clear_after_read = false?)."
            )
        if not entry.is_written:
            entry.shape, entry.is_written = self._default_shape(index), True
        if entry.value is None and not self._is_opaque:  # an object may be None
            entry.value = zeros(self.dtype, entry.shape)
        value = entry.value
        entry.is_read = True
        if self.clears_after_read:
            entry.value, entry.is_cleared = None, True
        return value

    def shape_of(self, value: Any) -> tuple[int, ...]:
        """The shape of *value* as an element: a Python object has none of its own."""
        if self._is_opaque or type(value) is bytes:
            return ()
        shape: tuple[int, ...] = np.shape(value) if (found := getattr(value, "shape", None)) is None else found
        return shape

    def _default_shape(self, index: int) -> tuple[int, ...]:
        if self.dtype.is_opaque:
            raise InvalidArgumentError(
                f"TensorArray {self.name}: Could not read from TensorArray index {index}: it was never written"
            )
        if self.element_shape.is_fully_defined:
            return self.element_shape.as_tuple()
        raise InvalidArgumentError(
            f"TensorArray {self.name}: Could not read from TensorArray index {index}.  Furthermore, the element shape "
            f"is not fully defined: {self.element_shape}.  A full element_shape on the forward TensorArray makes "
            "elements that were never written zeros."
        )

    def gradient(self, source: str, prefix: tuple[int, ...] = ()) -> TensorArray:
        """The array of the gradient that *source* names, made when first asked for; this one stops growing."""
        with self._lock:
            self.require_open()
            if self.adds_up:
                raise InvalidArgumentError(f"TensorArray {self.name} is itself the array of a gradient")
            self.is_dynamic = False
            if source not in self.gradients:
                self.gradients[source] = self._make_gradient(source, prefix)
            return self.gradients[source]

    def _make_gradient(self, source: str, prefix: tuple[int, ...]) -> TensorArray:
        made = TensorArray(
            f"{self.name}@{source}",
            self.dtype,
            len(self._entries),
            TensorShape(prefix).concatenate(self.element_shape),
            has_identical_shapes=self.has_identical_shapes,
            adds_up=True,
        )
        for index, entry in enumerate(self._entries):
            if entry is not None and entry.is_written:
                theirs = made._entry(index)
                theirs.shape, theirs.is_written = prefix + entry.shape, True
        return made


def require_size(size: int) -> None:
    """ResourceExhaustedError when *size* elements are more than a TensorArray or TensorList may have."""
    if size > MAX_SIZE:
        raise ResourceExhaustedError(f"{size} elements are more than the {MAX_SIZE} that there may be")
