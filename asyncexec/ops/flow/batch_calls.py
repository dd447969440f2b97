"""What a BatchQueue deals in: calls of a function, and the batches that their rows go into.

Terms from ``tensorflow/core/kernels/batching_util/batch_resource_base.h``: a call is a *task* there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncexec.framework.callers import Group
from asyncexec.framework.queue_policy import NORMAL, Level, QueuePolicy
from asyncexec.framework.step_stats import StepTrace, current_trace


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How calls are batched.

    Attributes:
        max_size: rows of a batch.
        max_call_size: rows of a call.
        splits: whether the rows of a call may go to several batches.
        timeout_s: how long the first call of a batch waits for others.
        max_waiting: batches that may wait.
        max_running: batches that may run at once.
        allowed_sizes: a batch is padded to the next of these with copies of its first row.
    """

    max_size: int
    max_call_size: int
    splits: bool
    timeout_s: float
    max_waiting: int
    max_running: int
    allowed_sizes: tuple[int, ...] = ()

    def padded_size(self, size: int) -> int:
        """How many rows a batch of *size* runs with."""
        return next((allowed for allowed in self.allowed_sizes if allowed >= size), size)


class Call(asyncio.Future[list[Any]]):
    """One call, from *context*: a future of its outputs, which there are none of when it failed: *error* says why.

    An exception of the future would have to hold the frames that it is raised through, and those hold the future.
    """

    __slots__ = (
        "batches",
        "captured",
        "context",
        "error",
        "inputs",
        "level",
        "policy",
        "results",
        "rows",
        "timer",
        "trace",
        "waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inputs: Sequence[object],
        captured: Sequence[object],
        rows: int,
        policy: QueuePolicy | None,
    ) -> None:
        super().__init__(loop=loop)
        self.inputs: Sequence[Any] = inputs
        self.captured: Sequence[object] = captured
        self.rows: int = rows
        self.batches: tuple[Batch, ...] = ()  # in the order of its rows
        self.results: dict[Batch, list[object]] | None = None  # of those that have run, where there are several
        self.error: BaseException | None = None
        self.trace: StepTrace | None = current_trace()
        self.context: Context = copy_context()
        self.policy: QueuePolicy | None = policy
        self.level: Level = NORMAL if policy is None else (False, policy.priority)
        self.waits: bool = False  # whether none of its batches runs yet
        self.timer: asyncio.TimerHandle | None = None  # when its policy lets it wait no longer

    def fits(self, batch: Batch) -> bool:
        """Whether it may go where the calls of *batch* are."""
        if self.level != batch.level:
            return False
        for array, shape in zip(self.inputs, batch.row_shapes, strict=True):
            if array.shape[1:] != shape:
                return False
        return not self.captured or all(map(_is_same, self.captured, batch.captured))

    def inputs_in(self, part: range) -> Sequence[object]:
        """The rows of its inputs in *part*."""
        return self.inputs if len(part) == self.rows else [array[part.start : part.stop] for array in self.inputs]

    def give(self, batch: Batch, outputs: list[object]) -> None:
        """Take what *batch* has for it."""
        if self.done():
            return
        if len(self.batches) == 1:
            self.set_result(outputs)
            return
        results = self.results = self.results or {}
        results[batch] = outputs
        if len(results) == len(self.batches):
            ordered = [results[each] for each in self.batches]
            self.set_result([np.concatenate(arrays) for arrays in zip(*ordered, strict=True)])

    def fail(self, error: BaseException) -> None:
        """One of its batches has failed, or it is not to wait for them."""
        if self.error is None:
            self.error = error
        if not self.done():
            self.set_result([])


class Batch:
    """Rows of calls that run together; what *first*, the first call, is like, all of its calls are.

    It runs in a copy of the context of the first.
    """

    __slots__ = (
        "captured",
        "context",
        "group",
        "has_begun",
        "is_due",
        "level",
        "parts",
        "row_shapes",
        "size",
        "task",
        "timer",
    )

    def __init__(self, first: Call) -> None:
        self.row_shapes: list[Any] = [array.shape[1:] for array in first.inputs]
        self.captured: Sequence[object] = first.captured
        self.level: Level = first.level
        self.context: Context = first.context.copy()
        self.group: Group | None = None  # while it runs: those who wait for that
        self.parts: dict[Call, range] = {}  # which rows of each call, in the order in which they came
        self.size: int = 0
        self.is_due: bool = False
        self.has_begun: bool = False
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def add(self, call: Call, start: int, max_size: int) -> int:
        """Take rows of *call*, from *start* on, in as long as there is room; where the rest begins."""
        stop = min(call.rows, start + max_size - self.size)
        self.parts[call] = range(start, stop)
        self.size += stop - start
        call.batches = (*call.batches, self)
        return stop

    def traces(self) -> list[StepTrace]:
        """Those of its calls that are traced."""
        return list({id(call.trace): call.trace for call in self.parts if call.trace is not None}.values())

    def give(
        self,
        parts: Sequence[tuple[Call, range]],
        outputs: Sequence[Any],
        shared: Sequence[object] = (),
        *,
        is_padded: bool = False,
    ) -> None:
        """Give the calls of *parts*, which it has run for, their rows of *outputs*, and each all of *shared*."""
        if len(parts) == 1 and not is_padded:
            parts[0][0].give(self, [*outputs, *shared])
            return
        stop = 0
        for call, part in parts:
            start, stop = stop, stop + len(part)
            if not call.done():  # copies, which do not keep the rows of the others alive
                call.give(self, [*[output[start:stop].copy() for output in outputs], *shared])

    def stop_timer(self) -> None:
        """Wait no longer for other calls."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(frozen=True, slots=True, eq=False)
class GatheredRows:
    """What a batch is made of: the inputs of each call, and by how many rows it is padded."""

    inputs: Sequence[Sequence[Any]]
    padding: int

    def arrays(self) -> tuple[Any, ...]:
        """The inputs of the function."""
        return tuple(self._joined(parts) for parts in zip(*self.inputs, strict=True))

    def _joined(self, parts: Sequence[Any]) -> Any:
        padding = [np.repeat(parts[0][:1], self.padding, axis=0)] if self.padding else []
        return np.concatenate([*parts, *padding]) if padding or len(parts) > 1 else parts[0]


def _is_same(one: Any, other: Any) -> bool:
    """Whether two captured inputs are the same value."""
    if one is other:
        return True
    return (
        type(one) is type(other)
        and isinstance(one, (np.ndarray, np.generic, bytes))
        and np.array_equal(one, other)  # a NaN is unlike itself: such calls are batched apart
    )
