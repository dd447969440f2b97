"""Datasets of tf.data: what they are, and how their elements come.

A *dataset* is a value of dtype variant that never changes: it tells the dtypes and shapes of its elements, and makes
iterators.  An *element iterator* gives the elements one after the other; those of a dataset that is made of others pull
theirs.  All iterators that hang together are one *pipeline*: it runs in the step that asks for the next element, but
for what is read ahead (``read_ahead.py``), which goes on between the steps.

Where a step is cancelled, no element is lost: an iterator that has pulled elements, and is not done with them, keeps
them for the next call (``Peekable``, and lists that are filled over several calls).  After an error the next call goes
on behind the element that has failed, as in TensorFlow.

Rules from ``tensorflow/core/kernels/data`` and ``core/ops/dataset_ops.cc``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.background import BackgroundTasks, Work
from asyncexec.framework.clock import CLOCK
from asyncexec.framework.cooperative import SLICE_NS, let_others_go_on
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.function_runtime import FunctionRuntime
from asyncexec.framework.kernel import KernelFactory, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.op_list import register_listed_op

Element: TypeAlias = tuple[Any, ...]
INFINITE: Final = -1
UNKNOWN: Final = -2


class Pipeline:
    """What the iterators of one pipeline share.

    Attributes:
        is_closed: whether what reads ahead has been ended, for good.
    """

    __slots__ = ("_background", "_end", "_tasks", "is_closed")

    def __init__(self, background: BackgroundTasks) -> None:
        self._background = background
        self._tasks: set[asyncio.Task[None]] = set()
        self._end = 0
        self.is_closed: bool = False
        self.restart()

    def start(self, work: Work) -> asyncio.Task[None]:
        """A background task that does *work*."""
        task = self._background.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Let *tasks* end soon; from any thread."""
        self._background.cancel(tasks)

    async def close(self) -> None:
        """End its background tasks."""
        self.is_closed = True
        await self._background.end(self._tasks)

    def restart(self) -> None:
        """Others have just had the event loop."""
        self._end = CLOCK.now_ns() + SLICE_NS

    @property
    def is_late(self) -> bool:
        """Whether others should have the event loop."""
        return CLOCK.now_ns() > self._end

    async def pause(self) -> None:
        """Let others have the event loop."""
        await let_others_go_on()
        self.restart()


class ElementIterator(ABC):
    """The elements of a dataset, one after the other; only one call of ``next`` is under way at any time."""

    __slots__ = ()

    @abstractmethod
    async def next(self) -> Element | None:
        """The next element; None at the end, and from then on.

        Raises:
            OpError: the element cannot be had.
        """


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dataset(ProcessBound):
    """A dataset.

    Attributes:
        kind: as TensorFlow calls it.
        iterate: makes an iterator, as a part of a pipeline.
        dtypes, shapes: of the components of an element.
        cardinality: how many elements there are, or INFINITE, or UNKNOWN.
    """

    kind: str
    iterate: Callable[[Pipeline], ElementIterator]
    dtypes: tuple[DType, ...]
    shapes: tuple[TensorShape, ...]
    cardinality: int = UNKNOWN

    def __repr__(self) -> str:
        return f"<{self.kind} dataset>"

    def derived(
        self, kind: str, iterate: Callable[[Pipeline], ElementIterator], cardinality: int | None = None
    ) -> Dataset:
        """A dataset of elements like those of this one; of as many unless *cardinality* tells."""
        count = self.cardinality if cardinality is None else cardinality
        return replace(self, kind=kind, iterate=iterate, cardinality=count)


class Peekable:
    """An iterator whose last element is given again until it is used."""

    __slots__ = ("_element", "_source")

    def __init__(self, source: ElementIterator) -> None:
        self._source = source
        self._element: Element | None = None

    async def peek(self) -> Element | None:
        """The element to use next."""
        if self._element is None:
            self._element = await self._source.next()
        return self._element

    @contextmanager
    def use(self) -> Iterator[None]:
        """The element is used in the block, unless that is cancelled."""
        try:
            yield
        except Exception:
            self._element = None
            raise
        self._element = None


def dataset_op(*ops: str, kind: KernelKind = KernelKind.CHEAP) -> Callable[[KernelFactory], KernelFactory]:
    """Decorator: the function is the kernel factory of *ops*, which TensorFlow's list declares, and give a dataset."""
    for op in ops:
        register_listed_op(op, scalars)
    return register_kernel(*ops, kind=kind)


def as_dataset(value: object) -> Dataset:
    """*value*, a variant, as a dataset; InvalidArgumentError where it is none."""
    if not isinstance(value, Dataset):
        raise InvalidArgumentError(f"The given variant tensor does not hold a dataset, but a {type(value).__name__}")
    return value


def scalar_int(value: Any, name: str) -> int:
    """The integer in the scalar input *name*."""
    if np.ndim(value):
        raise InvalidArgumentError(f"{name} must be a scalar, not of shape {list(np.shape(value))}")
    return int(value)


def declared(c: OpKernelConstruction) -> tuple[tuple[DType, ...], tuple[TensorShape, ...]]:
    """The dtypes and shapes of elements that a node tells in its attrs."""
    dtypes, shapes = c.attr("output_types"), c.attr("output_shapes")
    if len(dtypes) != len(shapes):
        raise InvalidArgumentError(
            f"`output_types` and `output_shapes` must be of one length, not {len(dtypes)} and {len(shapes)}"
        )
    return tuple(dtypes), tuple(shapes)


def check_declared(
    dtypes: Sequence[DType], shapes: Sequence[TensorShape], found: Sequence[DType], found_shapes: Sequence[TensorShape]
) -> None:
    """InvalidArgumentError unless elements of *found* can be those that are declared."""
    if len(dtypes) != len(found):
        raise InvalidArgumentError(
            f"Number of components does not match: expected {len(dtypes)} types but got {len(found)}."
        )
    for index, (wanted, got) in enumerate(zip(dtypes, found, strict=True)):
        if wanted is not got:
            raise InvalidArgumentError(
                f"Data type mismatch at component {index}: expected {wanted.name} but got {got.name}."
            )
    for index, (shape, got_shape) in enumerate(zip(shapes, found_shapes, strict=True)):
        if not shape.is_compatible_with(got_shape):
            raise InvalidArgumentError(
                f"Incompatible shapes at component {index}: expected {shape} but got {got_shape}."
            )


def runtime_of(c: OpKernelConstruction) -> FunctionRuntime:
    """What runs the functions of a node."""
    if c.resource_mgr.functions is None:
        raise InternalError("there is no session to run the functions in")
    return c.resource_mgr.functions
