"""What a variable is.  A resource handle and a reference that travel along an edge are both the Variable itself.

A value is replaced, never changed in place: who read the former one keeps it.  A stored array is read-only and shares
no memory with an array that somebody else can write to.  What changes it holds its lock, because kernels may run on
several worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.ownership import freeze, keeper
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, string
from asyncexec.process.free_memory import check_array

DEFAULT_CONTAINER: Final = "localhost"
# The shared name by which TensorFlow asks for a new variable at every execution.
ANONYMOUS: Final = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"


class Variable(ProcessBound):
    """A mutable tensor that outlives a step.

    Attributes:
        name: its name within its container.
        dtype: what its value is made of.
        shape: the shape it was declared with (its value may have another one where the assignment allowed that).
        value: the current value, or None before the first assignment.
        lock: held by who changes it; whoever holds it may do more than one thing before others do.
    """

    __slots__ = ("container", "dtype", "lock", "name", "shape", "value")

    def __init__(self, name: str, dtype: DType, shape: TensorShape, container: str = DEFAULT_CONTAINER) -> None:
        self.name: str = name
        self.dtype: DType = dtype
        self.shape: TensorShape = shape
        self.container: str = container
        self.value: Any = None
        self.lock: RLock = RLock()

    @property
    def is_initialized(self) -> bool:
        """Whether it has a value."""
        return self.value is not None

    def read(self) -> Any:
        """The value; FailedPreconditionError when it has none."""
        value = self.value
        if value is None:
            raise FailedPreconditionError(f"Attempting to use uninitialized value {self.name}")
        return value

    def lookup(self) -> Any:
        """The value; NotFoundError, as for a resource that was never made, when it has none."""
        value = self.value
        if value is None:
            raise NotFoundError(f"Could not find resource: {self.container}/{self.name}")
        return value

    def assign(self, value: Any) -> None:
        """Replace the value (a writable array is copied)."""
        value = keeper(self.dtype)(value)
        with self.lock:  # an update that is under way comes before
            self.value = value

    def update(self, function: Callable[[Any], Any]) -> Any:
        """Replace the value by *function* of it, which must be a new array or scalar; return the new one."""
        with self.lock:
            value = self.value = freeze(function(self.read()))
        return value

    def require_shape(self, shape: tuple[int, ...]) -> None:
        """InvalidArgumentError unless a value of *shape* can take the place of the present one."""
        value = self.value
        wanted = self.shape if value is None else TensorShape(np.shape(value))
        if not wanted.accepts(shape):
            raise InvalidArgumentError(
                f"Assign requires shapes of both tensors to match. lhs shape= {wanted} rhs shape= {TensorShape(shape)}"
            )

    def require_dtype(self, dtype: DType) -> None:
        """InvalidArgumentError unless the variable is of *dtype*."""
        if self.dtype is not dtype:
            raise InvalidArgumentError(
                f"variable {self.name!r} is of dtype {self.dtype.name}, but the op is for {dtype.name}"
            )

    def destroy(self) -> bool:
        """Forget the value; whether there was one."""
        with self.lock:
            was_initialized, self.value = self.is_initialized, None
        return was_initialized

    def to_state(self) -> tuple[Mapping[str, Any], Sequence[Any]]:
        """What a checkpoint holds of it."""
        return {}, [self.value]

    def from_state(self, about: Mapping[str, Any], values: Sequence[Any]) -> None:
        """Have the value that ``to_state`` gave."""
        (value,) = values
        if value is None:
            self.destroy()
        else:
            self.assign(value)

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.dtype.name}, {self.shape})"


class locked:  # noqa: N801 - a context manager, quicker than by a generator
    """Lets nobody else change any of *variables* inside; all lock them in one order, so that none waits in a circle."""

    __slots__ = ("_locks",)

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._locks = [variable.lock for variable in sorted(variables, key=id)]

    def __enter__(self) -> None:
        count = 0
        try:
            for lock in self._locks:
                lock.acquire()
                count += 1
        except BaseException:  # a KeyboardInterrupt
            del self._locks[count:]
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for lock in reversed(self._locks):
            lock.release()


def variable_of(construction: OpKernelConstruction) -> Variable:
    """The variable that the node stands for, made when there is none yet."""
    container = _text(construction, "container") or DEFAULT_CONTAINER
    name = _text(construction, "shared_name") or construction.name
    dtype, shape = construction.attr("dtype"), construction.attr("shape")

    def create() -> Variable:
        return Variable(name, dtype, shape, container)

    found = construction.resource_mgr.lookup_or_create(Variable, container, name, create, is_shared=True)
    found.require_dtype(dtype)
    return found


def _text(construction: OpKernelConstruction, attr: str) -> str:
    text: bytes = construction.attr(attr)
    return text.decode("utf-8", "replace")


def zeros(dtype: DType, shape: tuple[int, ...]) -> Any:
    """A read-only tensor of zeros (of empty strings); ResourceExhaustedError when it would be too large."""
    check_array(shape, dtype.as_numpy_dtype)
    if dtype is string:
        return freeze(np.full(shape, b"", object)) if shape else b""
    return freeze(np.zeros(shape, dtype.as_numpy_dtype))
