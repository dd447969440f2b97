"""Staging areas: tuples of tensors that wait between steps, in their order or by key.

Rules from ``tensorflow/core/kernels/stage_op.cc`` and ``map_stage_op.cc``.  An area may be bounded by a number of
tuples and by bytes; whoever puts into a full one waits, as does whoever takes what is not there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.types import DType
from asyncexec.ops.state.changes import Changes

# What stands in a tuple where a tensor is not there yet, or has been taken.
MISSING: Final = object()
Staged: TypeAlias = list[Any]


def num_bytes(values: Iterable[object]) -> int:
    """The bytes of some tensors, those of strings included."""
    total = 0
    for value in values:
        if isinstance(value, bytes):
            total += len(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            total += value.nbytes
            if isinstance(value, np.ndarray) and value.dtype == object:
                total += sum(len(item) for item in value.flat if isinstance(item, bytes))
    return total


class Bounded(ProcessBound, ABC):
    """What both kinds of areas share: the bounds, and who waits."""

    def __init__(self, dtypes: tuple[DType, ...], capacity: int, memory_limit: int) -> None:
        self.dtypes: tuple[DType, ...] = dtypes
        self._capacity, self._memory_limit = capacity, memory_limit
        self._bytes = 0
        self._changes = Changes()

    @abstractmethod
    def __len__(self) -> int:
        """How many tuples are in there."""

    async def _wait_for_room(self, size: int, *, counts: bool = True) -> None:
        """Wait until *size* bytes fit in, and a tuple where that *counts*."""
        limit = self._memory_limit
        if limit and size > limit:
            raise ResourceExhaustedError(
                f"Attempted to insert tensors with combined size of '{size}' bytes into Staging Area with a memory "
                f"limit of '{limit}'."
            )

        def fits() -> bool | None:
            is_full = counts and self._capacity and len(self) >= self._capacity
            return None if is_full or (limit and self._bytes + size > limit) else True

        await self._changes.until(fits)


class StagingArea(Bounded):
    """Tuples in the order in which they came."""

    def __init__(self, dtypes: tuple[DType, ...], capacity: int, memory_limit: int) -> None:
        super().__init__(dtypes, capacity, memory_limit)
        self._tuples: deque[Sequence[object]] = deque()

    def __len__(self) -> int:
        return len(self._tuples)

    async def put(self, values: Sequence[object]) -> None:
        """Put a tuple at the end, once there is room."""
        size = num_bytes(values)
        await self._wait_for_room(size)
        self._bytes += size
        self._tuples.append(values)
        self._changes.tell()

    async def take(self) -> Sequence[Any]:
        """Take the first tuple, once there is one."""
        taken = await self._changes.until(lambda: self._tuples.popleft() if self._tuples else None)
        self._bytes -= num_bytes(taken)
        self._changes.tell()
        return taken

    async def peek(self, index: int) -> Sequence[object]:
        """The tuple at *index*, once there is one; it stays."""
        return await self._changes.until(lambda: self._tuples[index] if index < len(self._tuples) else None)

    def clear(self) -> None:
        """Forget all tuples."""
        self._tuples.clear()
        self._bytes = 0
        self._changes.tell()

    def to_state(self) -> tuple[Mapping[str, object], Sequence[object]]:
        """What a checkpoint holds of it."""
        return {"count": len(self._tuples)}, [value for values in self._tuples for value in values]

    def from_state(self, about: Mapping[str, Any], values: Sequence[object]) -> None:
        """Have the tuples that ``to_state`` gave."""
        width = len(self.dtypes)
        self.clear()
        self._tuples.extend(tuple(values[i * width : (i + 1) * width]) for i in range(int(about["count"])))
        self._bytes = num_bytes(values)
        self._changes.tell()


class StagingMap(Bounded):
    """Tuples by key, which may be put in and taken out in parts."""

    is_ordered: bool = False

    def __init__(self, dtypes: tuple[DType, ...], capacity: int, memory_limit: int) -> None:
        super().__init__(dtypes, capacity, memory_limit)
        self._complete: dict[int, Staged] = {}
        self._incomplete: dict[int, Staged] = {}

    def __len__(self) -> int:
        return len(self._complete)

    @property
    def num_incomplete(self) -> int:
        """How many keys have a part of their tensors only."""
        return len(self._incomplete)

    async def put(self, key: int, indices: Sequence[int], values: Sequence[object]) -> None:
        """Put tensors at *indices* of the tuple of *key*; InvalidArgumentError where one is there."""
        size, is_whole = num_bytes(values), len(indices) == len(self.dtypes)
        await self._wait_for_room(size, counts=is_whole)
        if is_whole:
            self._add(key, list(values), size)
            return
        staged = self._incomplete.get(key, [MISSING] * len(self.dtypes))
        for index in indices:
            if staged[index] is not MISSING:
                raise InvalidArgumentError(
                    f"The tensor for index '{index}' for key '{key}' was already initialized '{len(self.dtypes)}'."
                )
        for index, value in zip(indices, values, strict=True):
            staged[index] = value
        self._bytes += size
        if all(value is not MISSING for value in staged):
            self._incomplete.pop(key, None)
            self._add(key, staged, 0)
        else:
            self._incomplete[key] = staged

    def _add(self, key: int, staged: Staged, size: int) -> None:
        if key not in self._complete:  # the first one stays
            self._complete[key] = staged
            self._bytes += size
        self._changes.tell()

    def check(self, key: object, indices: Sequence[int]) -> None:
        """InvalidArgumentError unless *indices* are some of a tuple, in order."""
        if any(one >= other for one, other in pairwise(indices)):
            raise InvalidArgumentError("Indices are not strictly ordered")
        for index in indices:
            if not 0 <= index < len(self.dtypes):
                raise InvalidArgumentError(f"Index '{index}' for key '{key}' was out of bounds '{len(self.dtypes)}'.")

    async def peek(self, key: int, indices: Sequence[int]) -> list[object]:
        """The tensors at *indices* of *key*, once it is complete."""
        return self._tensors(key, await self._changes.until(lambda: self._complete.get(key)), indices)

    async def take(self, key: int, indices: Sequence[int]) -> list[Any]:
        """Take the tensors at *indices* of *key*, once it is complete."""
        return self._take(key, await self._changes.until(lambda: self._complete.get(key)), indices)

    async def take_any(self, indices: Sequence[int]) -> tuple[int, list[object]]:
        """A key, the least of an ordered map, and its tensors at *indices*."""
        key = await self._changes.until(self._next_key)
        return key, self._take(key, self._complete[key], indices)

    def _next_key(self) -> int | None:
        if not self._complete:
            return None
        return min(self._complete) if self.is_ordered else next(iter(self._complete))

    def _tensors(self, key: int, staged: Staged, indices: Sequence[int]) -> list[object]:
        for index in indices:
            if staged[index] is MISSING:
                raise InvalidArgumentError(f"Tensor at index '{index}' for key '{key}' has already been removed.")
        return [staged[index] for index in indices]

    def _take(self, key: int, staged: Staged, indices: Sequence[int]) -> list[object]:
        taken = self._tensors(key, staged, indices)
        for index in indices:
            staged[index] = MISSING
        if all(value is MISSING for value in staged):
            del self._complete[key]
        self._bytes -= num_bytes(taken)
        self._changes.tell()
        return taken

    def clear(self) -> None:
        """Forget all tuples."""
        self._complete.clear()
        self._incomplete.clear()
        self._bytes = 0
        self._changes.tell()

    def to_state(self) -> tuple[Mapping[str, object], Sequence[object]]:
        """What a checkpoint holds of it."""
        staged = [*self._complete.values(), *self._incomplete.values()]
        about = {"complete": list(self._complete), "incomplete": list(self._incomplete)}
        return about, [None if value is MISSING else value for values in staged for value in values]

    def from_state(self, about: Mapping[str, Any], values: Sequence[object]) -> None:
        """Have the tuples that ``to_state`` gave."""
        width, tensors = len(self.dtypes), [MISSING if value is None else value for value in values]
        rows = iter([tensors[start : start + width] for start in range(0, len(tensors), width)])
        self._complete = {int(key): next(rows) for key in about["complete"]}
        self._incomplete = {int(key): next(rows) for key in about["incomplete"]}
        self._bytes = num_bytes(values)
        self._changes.tell()


class OrderedStagingMap(StagingMap):
    """Gives the least key where none is asked for."""

    is_ordered = True
