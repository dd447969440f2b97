"""IteratorResource: a place in a dataset, which steps take elements from.

Steps that ask at once are served one after the other.  A step that is cancelled gives back the element that it has
taken: the next one gets it.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np

from asyncexec.framework.background import BackgroundTasks
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.framework.under_way import tells
from asyncexec.ops.data.dataset import Dataset, Element, ElementIterator, Pipeline, check_declared


class IteratorResource(ProcessBound):
    """What GetNext takes from.

    Attributes:
        dtypes, shapes: of the components of an element; of any, where there are no dtypes.
    """

    __slots__ = ("__weakref__", "_background", "_elements", "_lock", "_number", "_returned", "dtypes", "shapes")

    def __init__(self, dtypes: Sequence[DType], shapes: Sequence[TensorShape], background: BackgroundTasks) -> None:
        self.dtypes: tuple[DType, ...] = tuple(dtypes)
        self.shapes: tuple[TensorShape, ...] = tuple(shapes)
        self._background = background
        self._elements: tuple[Pipeline, ElementIterator] | None = None
        self._returned: list[tuple[int, Element]] = []  # a heap
        self._number = 0
        self._lock = WaitQueue(1, knows_waiters=False)

    async def begin(self, dataset: Dataset) -> None:
        """Begin with the elements of *dataset*; InvalidArgumentError where they are of other types or shapes."""
        check_declared(self.dtypes, self.shapes, dataset.dtypes, dataset.shapes)
        await self.end()
        pipeline = Pipeline(self._background)
        self._elements = pipeline, dataset.iterate(pipeline)
        self._returned = []

    async def begin_once(self, make: Callable[[], Awaitable[Dataset]]) -> None:
        """Begin with the dataset that *make* gives, unless it has begun, by whichever signature's kernel."""
        if self._elements is not None:
            return
        await self._lock.acquire()
        lock = self._lock
        try:
            if self._elements is None:
                await self.begin(await make())
        finally:
            lock.release()

    def check_types(self, dtypes: Sequence[DType], shapes: Sequence[TensorShape]) -> None:
        """InvalidArgumentError unless it gives elements of these; none are any."""
        if dtypes:
            check_declared(dtypes, self.shapes and shapes, self.dtypes, self.shapes)

    async def take(self) -> tuple[int, Element] | None:
        """The next element, with its number; None at the end.

        Raises:
            FailedPreconditionError: it has no dataset yet.
            OpError: the element cannot be had.
        """
        await self._lock.acquire()
        lock = self._lock
        try:
            if self._returned:
                return heapq.heappop(self._returned)
            pipeline, elements = self._begun()
            pipeline.restart()
            element = await elements.next()
            if element is None:
                return None
            self._number += 1
            return self._number, element
        finally:
            lock.release()

    def _begun(self) -> tuple[Pipeline, ElementIterator]:
        if self._elements is None:
            raise FailedPreconditionError(
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                "initializer operation for this iterator before getting the next element."
            )
        return self._elements

    @property
    def source(self) -> object:
        """What its elements come from, until it begins anew."""
        return self._elements

    def put_back(self, number: int, element: Element) -> None:
        """Let *element*, which ``take`` gave with *number*, come again."""
        heapq.heappush(self._returned, (number, element))

    async def end(self) -> None:
        """Let go of the dataset, and wait until nothing reads ahead any more."""
        elements, self._elements = self._elements, None
        self._returned = []
        if elements is not None:
            await elements[0].close()

    def close(self) -> None:
        """Let go of the dataset: what reads ahead is cancelled."""
        self._elements = None
        self._returned = []

    def drop_loop(self) -> None:
        """Those who wait are gone, with their loop."""
        self._lock = WaitQueue(1, knows_waiters=False)


class GetNext:
    """The call of a step that takes the next element, which may be undone; awaiting it gives the element, or None."""

    __slots__ = ("_iterator", "_source", "_taken")

    takes: ClassVar[bool] = True

    def __init__(self, iterator: IteratorResource) -> None:
        self._iterator = iterator
        self._source: object = None
        self._taken: tuple[int, Element] | None = None

    @tells(lambda _: "waited for the next element of a dataset")
    def __await__(self) -> Generator[object, None, Element | None]:
        self._taken = yield from self._iterator.take().__await__()
        self._source = self._iterator.source
        return None if self._taken is None else self._taken[1]

    def close(self) -> None:
        """Not begin."""

    def can_undo(self) -> bool:
        """It can always be given back."""
        return True

    def undo(self) -> None:
        """Give the element back, once."""
        taken, self._taken = self._taken, None
        if taken is not None and self._iterator.source is self._source:
            self._iterator.put_back(*taken)

    def show_undone(self) -> None:
        """The next to ask gets it."""


class IteratorHandles:
    """Iterators by the strings that stand for them."""

    def __init__(self) -> None:
        self._iterators: WeakValueDictionary[bytes, IteratorResource] = WeakValueDictionary()
        self._count = 0

    def string_of(self, iterator: IteratorResource) -> bytes:
        """The string for *iterator*."""
        for string, known in self._iterators.items():
            if known is iterator:
                return string
        self._count += 1
        string = b"iterator %d" % self._count
        self._iterators[string] = iterator
        return string

    def find(self, string: bytes) -> IteratorResource:
        """The iterator for *string*; InvalidArgumentError where there is none."""
        found = self._iterators.get(string)
        if found is None:
            raise InvalidArgumentError(
                f"Could not parse string_handle {string[:100]!r} as a valid ResourceHandle",
                hint="feed what iterator.string_handle() gives in this session",
            )
        return found


def check_element(element: Element, dtypes: Sequence[DType], shapes: Sequence[TensorShape]) -> Element:
    """*element*, if it has that many components of these shapes; else InvalidArgumentError."""
    if len(element) != len(dtypes):
        raise InvalidArgumentError(
            f"Number of components does not match: expected {len(dtypes)} but got {len(element)}."
        )
    for index, (value, dtype, shape) in enumerate(zip(element, dtypes, shapes, strict=True)):
        found = value.shape if isinstance(value, np.ndarray) else ()
        if not shape.accepts(found):
            raise InvalidArgumentError(
                f"Incompatible shapes at component {index}: expected {shape} but got {list(found)}."
            )
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype != dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                f"Data type mismatch at component {index}: expected {dtype.name} but got {value.dtype}."
            )
    return element
