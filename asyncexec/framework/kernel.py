"""Kernels: plain callables, bound once a node when an executor is built.

``kernel(*inputs)`` takes the values of the node's data inputs and returns the output; or, for an op with several
outputs, none, or a list of them (``OpDef.returns_tuple``), a tuple.  A value is

* a numpy array, never mutated by who receives it, or a numpy scalar: **a 0-d result is a numpy scalar**, never a 0-d
  array (``as_value`` converts);
* for strings ``bytes`` when 0-d, else an object array of ``bytes``;
* under resource, variant and object any Python object.

Floating-point warnings are switched off around kernels by the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from asyncexec.framework.arrays import NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

Kernel: TypeAlias = Callable[..., Any]


class _Dead:
    """What a Switch gives on the side that is not taken."""

    def __repr__(self) -> str:
        return "<dead>"


DEAD: Final = _Dead()


class Change(Protocol):
    """What a call of an async kernel changes in something that steps share; awaiting it makes the change.

    Attributes:
        takes: whether it takes values out, which go along the edges; else it puts in what came along them.
    """

    @property
    def takes(self) -> bool: ...

    def __await__(self) -> Generator[Any, None, Any]: ...

    def close(self) -> None:
        """Do not begin: it is not awaited."""
        ...

    def can_undo(self) -> bool:
        """Whether nobody has built on the change."""
        ...

    def undo(self) -> None:
        """Make it as if it had not been, as far as it has been made; others see it once ``show_undone`` is called."""
        ...

    def show_undone(self) -> None:
        """Let those go on that wait for what has been undone."""
        ...


@dataclass(frozen=True, slots=True)
class AsyncKernel:
    """An async kernel in two parts: a coroutine function, and what makes outputs of its result.

    The parts could be one coroutine function; apart, ten thousand of them in flight are ten thousand coroutines fewer.
    Where *is_undoable*, the first gives a Change, which is undone when its step is cancelled.
    """

    start: Callable[..., Coroutine[Any, Any, Any] | Change]
    finish: Callable[[Any], Any]
    is_undoable: bool = False

    async def __call__(self, *inputs: object) -> Any:
        return self.finish(await self.start(*inputs))


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """A sync kernel, and what tells why it failed: *check*, called with the same inputs, raises the error to show.

    An executor may call *function* itself, and look for the reason only when that has raised.
    """

    function: Kernel
    check: Callable[..., None]

    def __call__(self, *inputs: object) -> Any:
        try:
            return self.function(*inputs)
        except Exception:
            self.check(*inputs)
            raise


S = TypeVar("S")


def require_kind(handle: object, kind: type[S]) -> S:
    """*handle*, which a graph may have taken from any op; InvalidArgumentError unless it is a *kind*."""
    if isinstance(handle, kind):
        return handle
    raise InvalidArgumentError(
        f"Trying to access resource using the wrong type. Expected {kind.__name__} got {type(handle).__name__}"
    )


class KernelKind(Enum):
    """Where a kernel runs.  CHEAP and EXPENSIVE are hints: where a sync kernel runs is decided by what it costs."""

    CHEAP = "cheap"  # inline
    EXPENSIVE = "expensive"  # on a worker thread
    ASYNC = "async"  # a coroutine function, awaited in the caller's loop


@dataclass(slots=True)
class OpKernelConstruction:
    """What a kernel factory is told of the node it makes a kernel for (``OpKernelConstruction`` in TensorFlow)."""

    name: str
    op_def: OpDef
    attrs: Mapping[str, Any]
    input_dtypes: tuple[DType, ...] = ()
    output_dtypes: tuple[DType, ...] = ()
    resource_mgr: ResourceMgr = field(default_factory=ResourceMgr)
    output_shapes: tuple[TensorShape, ...] = ()
    device: str = ""  # the full name of the one it runs on

    @property
    def op(self) -> str:
        return self.op_def.name

    @property
    def num_inputs(self) -> int:
        return len(self.input_dtypes)

    @property
    def num_outputs(self) -> int:
        return len(self.output_dtypes)

    def attr(self, name: str) -> Any:
        return self.attrs[name]

    def np_dtype(self, attr: str) -> NumpyDType:
        """The numpy dtype that the type attr *attr* stands for."""
        dtype: DType = self.attrs[attr]
        return dtype.as_numpy_dtype

    def node_state(self, kind: type[S], create: Callable[[], S]) -> S:
        """State of this node that lasts as long as the session, whichever executors the node is part of."""
        return self.resource_mgr.lookup_or_create(kind, "_node_state", self.name, create)


# These kernels an executor knows, and need not call.


def pass_on(value: object) -> Any:
    """The kernel of ops that give what they get."""
    return value


def do_nothing() -> tuple[()]:
    """The kernel of ops without inputs and outputs."""
    return ()


def switch(data: object, pred: Any) -> tuple[Any, Any]:
    """*data* on the side that *pred* tells, false or true; DEAD on the other."""
    if np.ndim(pred):
        raise InvalidArgumentError(f"The second input must be a scalar, but it has shape {TensorShape(np.shape(pred))}")
    return (DEAD, data) if pred else (data, DEAD)


KernelFactory: TypeAlias = Callable[[OpKernelConstruction], Kernel | AsyncKernel]


def marked_as(kernel: Kernel, call: Kernel) -> Kernel:
    """*call*, which calls *kernel*, with all that *kernel* tells of itself in attributes."""
    vars(call).update(getattr(kernel, "__dict__", {}))
    return call


def as_value(array: object) -> Any:
    """*array*, or the scalar in it when it is 0-d."""
    return array[()] if isinstance(array, np.ndarray) and array.ndim == 0 else array


def as_values(arrays: Any) -> tuple[Any, ...]:
    """``as_value`` of each."""
    return tuple([as_value(array) for array in arrays])
