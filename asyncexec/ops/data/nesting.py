"""Datasets of datasets: flat_map, interleave.

Interleaving takes *block_length* elements of each of *cycle_length* datasets in turn; one that has ended leaves its
place to the next.  In parallel, datasets are opened and read before it is their turn; the order is the same, unless
it may be another one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.parking_lot import ParkingLot
from asyncexec.framework.types import variant
from asyncexec.ops.data.dataset import (
    Dataset,
    Element,
    ElementIterator,
    Peekable,
    Pipeline,
    as_dataset,
    dataset_op,
    declared,
    scalar_int,
)
from asyncexec.ops.data.functions import CapturedFunction, FunctionAttr
from asyncexec.ops.data.maps import is_deterministic
from asyncexec.ops.data.read_ahead import AUTOTUNE, MOST_CALLS, ReadAhead

Opener: TypeAlias = Callable[[], Awaitable[ElementIterator | None]]


class Opening:
    """Calls a function for each element, and iterates over the dataset that it gives."""

    __slots__ = ("_function", "_input", "_pipeline")

    def __init__(self, pipeline: Pipeline, source: ElementIterator, function: CapturedFunction) -> None:
        self._pipeline, self._function = pipeline, function
        self._input = Peekable(source)

    async def __call__(self) -> ElementIterator | None:
        """The next iterator; None at the end."""
        element = await self._input.peek()
        if element is None:
            return None
        with self._input.use():
            return (await opened(self._function, element)).iterate(self._pipeline)


async def opened(function: CapturedFunction, element: Element) -> Dataset:
    """The dataset that *function* gives for *element*."""
    (value,) = await function(*element)
    if not isinstance(value, Dataset):
        raise InvalidArgumentError("Function must return a single dataset variant tensor.")
    return value


class FlatIterator(ElementIterator):
    """The elements of one iterator after the other."""

    __slots__ = ("_current", "_open")

    def __init__(self, open_next: Opener) -> None:
        self._open = open_next
        self._current: ElementIterator | None = None

    async def next(self) -> Element | None:
        while True:
            if self._current is None:
                self._current = await self._open()
                if self._current is None:
                    return None
            element = await self._current.next()
            if element is not None:
                return element
            self._current = None


@dataset_op("FlatMapDataset")
def flat_map_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements of the datasets that a function gives."""
    function = FunctionAttr(c, "f", "Targuments", (variant,))

    def kernel(source: object, *captured: object) -> Dataset:
        dataset = as_dataset(source)
        opener = function.capture(dataset.dtypes, captured)
        return Dataset("FlatMap", lambda p: FlatIterator(Opening(p, dataset.iterate(p), opener)), *declared(c))

    return kernel


class InterleavedIterator(ElementIterator):
    """The elements of several iterators in turn."""

    __slots__ = ("_block_length", "_cycle_length", "_has_ended", "_index", "_num_taken", "_opener", "_slots")

    def __init__(self, opener: Opener, cycle_length: int, block_length: int) -> None:
        self._opener, self._cycle_length, self._block_length = opener, cycle_length, block_length
        self._slots: list[ElementIterator | None] = []
        self._index = 0
        self._num_taken = 0  # of the block
        self._has_ended = False

    async def next(self) -> Element | None:
        while not self._has_ended or any(slot is not None for slot in self._slots):
            await self._choose()
            current = self._slots[self._index] if self._index < len(self._slots) else None
            if current is not None:
                try:
                    element = await current.next()
                except Exception:
                    self._note_error()
                    raise
                if element is not None:
                    self._note_taken()
                    return element
                self._slots[self._index] = None
                self._advance()
            elif self._has_ended:
                self._advance()
            else:
                await self._open_here()
        return None

    async def _choose(self) -> None:
        """Go where the next element comes from."""

    def _note_error(self) -> None:
        """An element has failed; it is none of the block."""

    def _note_taken(self) -> None:
        self._num_taken += 1
        if self._num_taken == self._block_length:
            self._advance()

    async def _open_next(self) -> ElementIterator | None:
        return await self._opener()

    async def _open_here(self) -> None:
        opened = await self._open_next()
        if opened is None:
            self._has_ended = True
        elif self._index < len(self._slots):
            self._slots[self._index] = opened
        else:
            self._slots.append(opened)

    def _advance(self) -> None:
        self._num_taken = 0
        self._index += 1
        if self._index >= (len(self._slots) if self._has_ended else self._cycle_length):
            self._index = 0


class FailedIterator(ElementIterator):
    """Nothing but an error, once."""

    __slots__ = ("_error",)

    def __init__(self, error: Exception) -> None:
        self._error: Exception | None = error

    async def next(self) -> Element | None:
        error, self._error = self._error, None
        if error is None:
            return None
        raise error


class AheadInterleavedIterator(InterleavedIterator):
    """The elements of iterators that *ahead* gives, in turn.  An error has its place among them, as an element has."""

    __slots__ = ("_ahead",)

    def __init__(self, ahead: ReadAhead, cycle_length: int, block_length: int) -> None:
        super().__init__(ahead.next, cycle_length, block_length)
        self._ahead = ahead

    async def _open_next(self) -> ElementIterator | None:
        try:
            return await super()._open_next()
        except Exception as error:
            return FailedIterator(error.with_traceback(None))

    def _note_error(self) -> None:
        self._note_taken()


class SloppyIterator(AheadInterleavedIterator):
    """The same, but for those that would have to be waited for: the next that has an element comes first."""

    __slots__ = ("_changed",)

    def __init__(self, ahead: ReadAhead, cycle_length: int, block_length: int, changed: ParkingLot) -> None:
        super().__init__(ahead, cycle_length, block_length)
        self._changed = changed

    async def _choose(self) -> None:
        while True:
            num_places = min(self._cycle_length, len(self._slots) + (not self._has_ended))
            for offset in range(num_places):
                index = (self._index + offset) % num_places
                if self._is_ready(index):
                    if offset:
                        self._index, self._num_taken = min(index, len(self._slots)), 0
                    return
            await self._changed.wait()

    def _is_ready(self, index: int) -> bool:
        slot = self._slots[index] if index < len(self._slots) else None
        if slot is None:
            return not self._has_ended and self._ahead.is_ready
        return not isinstance(slot, ReadAhead) or slot.is_ready


def _cycle(cycle_length: object, block_length: object) -> tuple[int, int]:
    cycle, block = scalar_int(cycle_length, "cycle_length"), scalar_int(block_length, "block_length")
    cycle = os.cpu_count() or 1 if cycle == AUTOTUNE else cycle
    for name, length in (("cycle_length", cycle), ("block_length", block)):
        if length <= 0:
            raise InvalidArgumentError(f"`{name}` must be > 0")
    return cycle, block


@dataset_op("InterleaveDataset")
def interleave_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements of the datasets that a function gives, several in turn."""
    function = FunctionAttr(c, "f", "Targuments", (variant,))

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, (cycle, block) = as_dataset(source), _cycle(*inputs[-2:])
        opener = function.capture(dataset.dtypes, inputs[:-2])

        def iterate(pipeline: Pipeline) -> ElementIterator:
            return InterleavedIterator(Opening(pipeline, dataset.iterate(pipeline), opener), cycle, block)

        return Dataset("Interleave", iterate, *declared(c))

    return kernel


class LimitedIterator(ElementIterator):
    """The elements of *source*, of which some may be pulled at once with those of others."""

    __slots__ = ("_limit", "_source")

    def __init__(self, source: ElementIterator, limit: WaitQueue) -> None:
        self._source, self._limit = source, limit

    async def next(self) -> Element | None:
        await self._limit.acquire()
        try:
            return await self._source.next()
        finally:
            self._limit.release()


def interleaved_ahead(
    dataset: Dataset, function: CapturedFunction, cycle: tuple[int, int], calls: int, *, is_ordered: bool
) -> Callable[[Pipeline], ElementIterator]:
    """Interleaving where up to *calls* elements are pulled at once."""
    cycle_length, block_length = cycle

    def iterate(pipeline: Pipeline) -> ElementIterator:
        limit, changed = WaitQueue(calls, knows_waiters=False), ParkingLot()

        async def open_one(element: Element) -> ElementIterator:
            source = (await opened(function, element)).iterate(pipeline)
            limited = LimitedIterator(source, limit)
            return ReadAhead(pipeline, limited, block_length, changed=changed).begun()

        source = dataset.iterate(pipeline)
        num_ahead = min(cycle_length, MOST_CALLS)
        ahead = ReadAhead(pipeline, source, num_ahead, open_one, is_ordered=is_ordered, changed=changed)
        if is_ordered:
            return AheadInterleavedIterator(ahead, cycle_length, block_length)
        return SloppyIterator(ahead, cycle_length, block_length, changed)

    return iterate


@dataset_op(
    "ParallelInterleaveDataset",
    "ExperimentalParallelInterleaveDataset",
    "LegacyParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3",
    "ParallelInterleaveDatasetV4",
)
def parallel_interleave_dataset(c: OpKernelConstruction) -> Kernel:
    """The same, where datasets are opened and read before it is their turn."""
    function = FunctionAttr(c, "f", "Targuments", (variant,))
    num_captured = len(c.attr("Targuments"))
    names = [arg.name for arg in c.op_def.inputs[2:]]
    is_ordered = is_deterministic(c)

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, given = as_dataset(source), dict(zip(names, inputs[num_captured:], strict=True))
        cycle = _cycle(given["cycle_length"], given["block_length"])
        calls = scalar_int(given.get("num_parallel_calls", cycle[0]), "num_parallel_calls")
        if calls != AUTOTUNE and calls <= 0:
            raise InvalidArgumentError("num_parallel_calls must be greater than zero.")
        if calls > cycle[0]:
            raise InvalidArgumentError(
                f"num_parallel_calls must less than or equal to cycle_length. {calls} > {cycle[0]}"
            )
        opener = function.capture(dataset.dtypes, inputs[:num_captured])
        stays = is_ordered and not given.get("sloppy", False)
        iterate = interleaved_ahead(dataset, opener, cycle, cycle[0] if calls == AUTOTUNE else calls, is_ordered=stays)
        return Dataset("ParallelInterleave", iterate, *declared(c))

    return kernel
