"""What a variable is.  A resource handle and a reference that travel along an edge are both the Variable itself.

A value is replaced: who read the former one keeps it.  A stored array is read-only and shares no memory with an array
that somebody else can write to.  What changes it holds its lock, because kernels may run on several worker threads.

The numbers that an optimizer has written are the variable's own (``updating``): an array over them is made when
somebody asks for the value, and while nobody has such an array the next update may write over them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from sys import getrefcount
from threading import RLock
from time import monotonic
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.ownership import SoleMemory, SoleOwner, freeze, keeper
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, string
from asyncexec.process.free_memory import check_array

DEFAULT_CONTAINER: Final = "localhost"
# The shared name by which TensorFlow asks for a new variable at every execution.
ANONYMOUS: Final = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
_MOST_OVERWRITTEN: Final = 2**20  # numbers: who asks for the value meanwhile waits for some tenths of a millisecond
_SOON_S: Final = 0.0005


_LONGEST_FORK_S: Final = 1.0


def _count_alone() -> int:
    """What ``getrefcount`` tells of what only a local variable has."""
    value = object()
    return getrefcount(value)


_ALONE: Final = _count_alone()


class _Own(SoleOwner):
    """What a variable has, once an optimizer has written it.

    Attributes:
        value: an array over the memory, if somebody has asked for one since it was written.
        readers: has an entry for each that is about to make such an array, so that the memory is left alone.
        is_overwritten: whether an update is under way that writes over the memory.
    """

    __slots__ = ("is_overwritten", "readers", "value")

    def __init__(self, memory: SoleMemory) -> None:
        super().__init__(memory)
        self.value: Array | None = None
        self.readers: deque[None] = deque()
        self.is_overwritten: bool = False

    def forget_value(self) -> None:
        """Have no array over the memory, if nobody else has; what waits for the end of one is called."""
        value, self.value = self.value, None
        if value is not None and getrefcount(value) > _ALONE:
            self.value = value

    def begin(self) -> bool:
        """Begin to write over the memory; whether that may be: nobody has an array over it, or is about to."""
        if self.is_overwritten:  # by what this interrupts
            return False
        self.is_overwritten = True  # whoever reads from here on sees that, or is seen
        if self.readers or self.value is not None or not self.is_alone:
            self.is_overwritten = False
        return self.is_overwritten


_all: Final[WeakValueDictionary[int, Variable]] = WeakValueDictionary()


class Variable(ProcessBound):
    """A mutable tensor that outlives a step.

    Attributes:
        name: its name within its container.
        dtype: what its value is made of.
        shape: the shape it was declared with (its value may have another one where the assignment allowed that).
        lock: held by who changes it; whoever holds it may do more than one thing before others do.
    """

    __slots__ = ("__weakref__", "_held", "container", "dtype", "lock", "name", "shape")

    def __init__(self, name: str, dtype: DType, shape: TensorShape, container: str = DEFAULT_CONTAINER) -> None:
        self.name: str = name
        self.dtype: DType = dtype
        self.shape: TensorShape = shape
        self.container: str = container
        self._held: object = None  # the value, or an _Own
        self.lock: RLock = RLock()
        _all[id(self)] = self

    @property
    def value(self) -> Any:
        """The current value, or None before the first assignment."""
        held = self._held
        if type(held) is not _Own:
            return held
        value = held.value
        return self._look() if value is None else value

    @value.setter
    def value(self, value: object) -> None:
        self._held = value

    def _look(self) -> object:
        """The value, of which there may be no array yet."""
        held = self._held
        if type(held) is not _Own:
            return held
        held.readers.append(None)  # the next update writes elsewhere
        try:
            while held.is_overwritten:
                is_nested = self._is_locked_here()
                if not self.lock.acquire(timeout=_SOON_S):
                    continue
                try:
                    if is_nested:  # a signal handler, say, in the midst of an update
                        return freeze(held.memory.array.copy())
                    held.is_overwritten = False  # an interrupt has cut that off
                finally:
                    self.lock.release()
            value = held.value
            if value is None:
                value = held.value = held.memory.look()
            return value
        finally:
            held.readers.pop()

    def _is_locked_here(self) -> bool:
        """Whether this thread has the lock."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    @property
    def is_initialized(self) -> bool:
        """Whether it has a value."""
        return self._held is not None

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

    def assign(self, value: object) -> None:
        """Replace the value (a writable array is copied)."""
        value = keeper(self.dtype)(value)
        with self.lock:  # an update that is under way comes before
            self.value = value

    def update(self, function: Callable[[Any], object]) -> Any:
        """Replace the value by *function* of it, which must be a new array or scalar; return the new one."""
        with self.lock:
            value = self.value = freeze(function(self.read()))
        return value

    def require_shape(self, shape: tuple[int, ...]) -> None:
        """InvalidArgumentError unless a value of *shape* can take the place of the present one."""
        value = self.value
        if value is not None and getattr(value, "shape", None) == shape:
            return
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

    def from_state(self, about: Mapping[str, object], values: Sequence[object]) -> None:
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


class updating:  # noqa: N801 - a context manager, quicker than by a generator
    """An update of *variables*, which are locked: lets it write over the old values, where nobody else has them.

    Attributes:
        values: what the variables have, for the update alone: they may be written over.
    """

    __slots__ = ("_arrays", "_begun", "_helds", "_variables", "values")

    def __init__(self, variables: Sequence[Variable]) -> None:
        self._variables = variables
        self._helds = [variable._held for variable in variables]
        self._arrays: Sequence[Array] = ()
        self._begun: list[_Own] = []
        self.values: list[Any] = [held.memory.array if type(held) is _Own else held for held in self._helds]

    def __enter__(self) -> Self:
        return self

    def arrays(self, *, may_overwrite: bool = True) -> Sequence[Array]:
        """What is to have the new values: the old ones, if all of them may be written over, or new arrays.

        Who asks for a value that is written over waits until this ends, or has a copy.
        """
        owns = [held for held in self._helds if type(held) is _Own]
        if may_overwrite and len({*owns}) == len(self._helds):  # else one is new, or there twice
            for own in owns:
                own.forget_value()
            for own in owns:
                if not own.begin():
                    break
                self._begun.append(own)
        if len(self._begun) == len(self._helds):
            self._arrays = self.values
        else:  # all are new: an interrupt must not leave those that were written over without the others
            self._end()
            self._arrays = [np.empty_like(value) for value in self.values]
        return self._arrays

    def assign(self, values: Sequence[object]) -> None:
        """Let the variables have new *values*, some of which may be the old ones."""
        helds = zip(self._helds, self.values, values, strict=True)
        _set_all(self._variables, [held if value is old else freeze(value) for held, old, value in helds])

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._arrays:
            helds = zip(self._helds, self.values, self._arrays, strict=True)
            _set_all(self._variables, [held if array is old else _own(array) for held, old, array in helds])
        self._end()

    def _end(self) -> None:
        """Let others read what was not written over, or has been."""
        for own in self._begun:
            own.is_overwritten = False
        self._begun.clear()


class _Forks:
    """Have nobody change a variable while the process is forked: there would be no thread to end that in the child."""

    def __init__(self) -> None:
        self._alone = RLock()  # of threads that fork at the same time, one goes on
        self._locks: list[list[RLock]] = []  # of each fork that is under way: one within the signal handler of another

    def begin(self) -> None:
        self._alone.acquire()
        held: list[RLock] = []
        self._locks.append(held)
        end = monotonic() + _LONGEST_FORK_S  # an update by whoever waits for this thread does not end
        found = [variable for ref in _all.valuerefs() if (variable := ref()) is not None]
        for variable in sorted(found, key=id):
            if variable.lock.acquire(timeout=max(0.0, end - monotonic())):
                held.append(variable.lock)  # noqa: PERF401 - one by one: an interrupt leaves none that is not there

    def end(self) -> None:
        for lock in self._locks.pop():
            lock.release()
        self._alone.release()


_forks: Final = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.begin, after_in_parent=_forks.end, after_in_child=_forks.end)


def _set_all(variables: Sequence[Variable], helds: Sequence[object]) -> None:
    """Let *variables* have *helds*, in one step, in which no signal is handled: an interrupt leaves all or none."""
    any(map(setattr, variables, repeat("_held"), helds))


def _own(array: Array) -> object:
    """What a variable has whose new value *array* is."""
    return _Own(SoleMemory(array)) if array.size <= _MOST_OVERWRITTEN else freeze(array)


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
