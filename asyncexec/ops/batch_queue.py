"""BatchQueue: gathers the rows of many calls of a function into batches, and gives each call its share of the results.

Rules from ``tensorflow/core/kernels/batching_util/``: ``shared_batch_scheduler.h`` and ``batch_resource_base.cc``.  A
batch takes calls in the order they come.  It is *due* when it is full, or when the timeout has passed since its first
call; it runs when it is due and fewer than ``max_running`` batches run, and takes calls until then.  Only calls whose
rows have the same shapes, and whose captured inputs are the same, are batched together; TensorFlow lets a whole batch
fail for the one, and takes the last call's captured inputs for the other.

A batch runs in a task of its own.  A call that is cancelled leaves its batch, and the others do not notice; the last
that leaves cancels the batch, and waits until it has ended: so no batch outlives the steps that it runs for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import (
    CancelledError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from asyncexec.framework.function_runtime import FunctionHandle


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


class Call:
    """One call of the function: its inputs, and how far it has come."""

    __slots__ = ("captured", "error", "future", "inputs", "missing", "row_shapes", "rows", "shares")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, inputs: Sequence[Any], captured: Sequence[Any], rows: int
    ) -> None:
        self.inputs = inputs
        self.captured = captured
        self.rows = rows
        self.row_shapes = [array.shape[1:] for array in inputs]
        self.future: asyncio.Future[None] = loop.create_future()
        self.shares: list[Share] = []
        self.missing = 0  # of its shares, how many have no results yet
        self.error: OpError | None = None

    def fits(self, batch: Batch) -> bool:
        """Whether it may go where the calls of *batch* are."""
        if self.row_shapes != batch.row_shapes:
            return False
        return not self.captured or all(map(_is_same, self.captured, batch.captured))

    def advance(self, error: OpError | None = None) -> None:
        """One of the shares has its results, or *error*."""
        self.missing -= 1
        if error is not None and self.error is None:
            self.error = error
        if (not self.missing or error is not None) and not self.future.done():
            self.future.set_result(None)

    def take_outputs(self) -> list[Any]:
        """The results, once all shares have theirs; copies, which do not keep those of the other calls alive."""
        shares, self.shares = self.shares, []
        if len(shares) > 1:
            return [np.concatenate(parts) for parts in zip(*(share.results for share in shares), strict=True)]
        (share,) = shares
        return list(share.results) if share.is_alone else [rows.copy() for rows in share.results]


@dataclass(slots=True, eq=False)
class Share:
    """Rows of a call that are in one batch."""

    call: Call
    batch: Batch
    start: int
    stop: int
    results: Sequence[Any] = ()
    is_alone: bool = False  # whether its results are all that the function gave

    @property
    def inputs(self) -> Sequence[Any]:
        """What it brings to the batch."""
        if self.stop - self.start == self.call.rows:
            return self.call.inputs
        return [array[self.start : self.stop] for array in self.call.inputs]


class Batch:
    """Shares that run together; what *first*, the first call, is like, all of its calls are."""

    __slots__ = ("captured", "context", "has_begun", "is_due", "row_shapes", "shares", "size", "task", "timer")

    def __init__(self, first: Call) -> None:
        self.row_shapes = first.row_shapes
        self.captured = first.captured
        self.context: Context = copy_context()
        self.shares: dict[Share, None] = {}
        self.size = 0
        self.is_due = False
        self.has_begun = False
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def add(self, call: Call, start: int, max_size: int) -> int:
        """Take rows of *call*, from *start* on, in as long as there is room; where the rest begins."""
        stop = min(call.rows, start + max_size - self.size)
        share = Share(call, self, start, stop)
        self.shares[share] = None
        self.size += stop - start
        call.shares.append(share)
        call.missing += 1
        return stop

    def stop_timer(self) -> None:
        """Wait no longer for other calls."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(frozen=True, slots=True, eq=False)
class GatheredRows:
    """What a batch is made of: the inputs of each share, and by how many rows it is padded."""

    inputs: Sequence[Sequence[Any]]
    padding: int

    def arrays(self) -> tuple[Any, ...]:
        """The inputs of the function."""
        return tuple(self._joined(parts) for parts in zip(*self.inputs, strict=True))

    def _joined(self, parts: Sequence[Any]) -> Any:
        padding = [np.repeat(parts[0][:1], self.padding, axis=0)] if self.padding else []
        return np.concatenate([*parts, *padding]) if padding or len(parts) > 1 else parts[0]


# The queues that the running code is in a batch of: a call from there does not wait for a batch of the queue to end.
_inside: Final[ContextVar[tuple[BatchQueue, ...]]] = ContextVar("asyncexec_batch_queues", default=())


class BatchQueue:
    """Runs *function* for all nodes that share the queue, in all steps of a session."""

    def __init__(self, options: BatchOptions, function: FunctionHandle) -> None:
        self._options = options
        self._function = function
        self._open: list[Batch] = []  # that take calls
        self._due: deque[Batch] = deque()  # in the order in which they are to run; some are still open
        self._running: set[Batch] = set()
        self._is_starting = False

    @property
    def waiting(self) -> int:
        """How many batches wait for other calls, or for their turn."""
        return len(self._due) + sum(not batch.is_due for batch in self._open)

    @property
    def running(self) -> int:
        """How many batches run."""
        return len(self._running)

    async def run(self, inputs: Sequence[Any], captured: Sequence[Any], rows: int) -> list[Any]:
        """The results for *inputs*, which have *rows* rows each, at least one.

        Raises:
            InvalidArgumentError: there are more rows than a call may have.
            UnavailableError: too many batches wait.
            FailedPreconditionError: the function gives something else than a row for each row.
            OpError: the function fails.
        """
        options = self._options
        if rows > options.max_call_size:
            raise InvalidArgumentError(
                f"Task size {rows} is larger than maximum input batch size {options.max_call_size}",
                hint="a call has at most max_size rows",
            )
        call = Call(asyncio.get_running_loop(), inputs, captured, rows)
        self._admit(call)
        try:
            await call.future
        except BaseException as raised:
            left = self._withdraw(call)
            if not isinstance(raised, GeneratorExit):
                await _wait_for(left)
            raise
        error, call.error = call.error, None
        if error is None:
            return call.take_outputs()
        try:
            await _wait_for(self._withdraw(call))
            raise error
        finally:
            del error  # its traceback holds this frame, which must not hold it in turn

    def _admit(self, call: Call) -> None:
        """Put the rows of *call* into batches."""
        if self in _inside.get():
            self._admit_nested(call)
            return
        options = self._options
        batch = self._find_open(call)
        room = 0 if batch is None else options.max_size - batch.size
        if call.rows > room:
            room = room if options.splits else 0
            self._check_capacity(call, room)
            if batch is not None and not room:
                self._close(batch)
                batch = None
        start = 0
        while start < call.rows:
            if batch is None:
                batch = self._open_batch(call)
            start = batch.add(call, start, options.max_size)
            if batch.size == options.max_size:
                self._close(batch)
            batch = None

    def _find_open(self, call: Call) -> Batch | None:
        """The batch that rows of *call* may go into."""
        for batch in self._open:
            if call.fits(batch):
                return batch
        return None

    def _admit_nested(self, call: Call) -> None:
        """Run the rows of *call* at once, in batches of its own: it comes from a batch, which waits for it."""
        start = 0
        while start < call.rows:
            batch = Batch(call)
            start = batch.add(call, start, self._options.max_size)
            self._launch(batch)

    def _check_capacity(self, call: Call, room: int) -> None:
        """UnavailableError when more batches would wait than may, for the rows that *room* is not enough for."""
        options = self._options
        num_new = -(-(call.rows - room) // options.max_size)
        if self.waiting + num_new > options.max_waiting:
            raise UnavailableError(
                f"The batch scheduling queue to which this task was submitted is full; task size is {call.rows}, and "
                f"{self.waiting} of at most {options.max_waiting} batches wait already"
            )

    def _open_batch(self, call: Call) -> Batch:
        batch = Batch(call)
        self._open.append(batch)
        batch.timer = call.future.get_loop().call_later(self._options.timeout_s, self._let_run, batch)
        return batch

    def _close(self, batch: Batch) -> None:
        """Take no more calls into *batch*."""
        self._open.remove(batch)
        self._let_run(batch)

    def _let_run(self, batch: Batch) -> None:
        """*batch* is due."""
        batch.stop_timer()
        if not batch.is_due:
            batch.is_due = True
            self._due.append(batch)
            self._start()

    def _start(self) -> None:
        """Run batches that are due, as long as there is room."""
        if self._is_starting:  # an eager task has ended before it was launched
            return
        self._is_starting = True
        try:
            while self._due and len(self._running) < self._options.max_running:
                batch = self._due.popleft()
                if batch in self._open:
                    self._open.remove(batch)
                self._launch(batch)
        finally:
            self._is_starting = False

    def _launch(self, batch: Batch) -> None:
        self._running.add(batch)
        loop = asyncio.get_running_loop()
        batch.task = loop.create_task(self._run_batch(batch), context=batch.context)

    async def _run_batch(self, batch: Batch) -> None:
        """The body of a batch's task."""
        batch.has_begun = True
        error: OpError | None = CancelledError("The batch was cancelled.")
        try:
            if batch.shares:
                _inside.set((*_inside.get(), self))
                await self._compute(batch)
            error = None
        except OpError as raised:
            error = raised
        except Exception as raised:
            error = InternalError(f"the batch failed: {raised!r}")
            error.__cause__ = raised
        except asyncio.CancelledError:
            if batch.shares:  # somebody else's cancellation: not for want of calls
                raise
        finally:
            self._running.discard(batch)
            shares, batch.shares = batch.shares, {}
            for share in shares:
                share.call.advance(None if error is None else _copy(error))
            del error
            self._start()

    async def _compute(self, batch: Batch) -> None:
        """Run the function, and let each share have its rows of what it gives."""
        shares, size = list(batch.shares), self._options.padded_size(batch.size)
        padding = size - batch.size
        gathered = GatheredRows([share.inputs for share in shares], padding)
        outputs = await self._function.run(gathered, batch.captured)
        for output in outputs:
            _check_output(output, batch.size, padding)
        stop = 0
        for share in shares:
            start, stop = stop, stop + share.stop - share.start
            share.results = [output[start:stop] for output in outputs]
            share.is_alone = len(shares) == 1 and not padding

    def _withdraw(self, call: Call) -> list[asyncio.Task[None]]:
        """Take what is left of *call* out of its batches; the tasks of those that nobody is left in."""
        ending: list[asyncio.Task[None]] = []
        shares, call.shares = call.shares, []  # each holds the call
        for share in shares:
            batch = share.batch
            if share not in batch.shares:
                continue
            del batch.shares[share]
            if not batch.has_begun:
                batch.size -= share.stop - share.start
            if batch.shares:
                continue
            if batch.task is None:
                self._drop(batch)
            else:
                if batch.has_begun:
                    batch.task.cancel()
                ending.append(batch.task)
        return ending

    def _drop(self, batch: Batch) -> None:
        """Forget *batch*, which waits and is empty."""
        batch.stop_timer()
        if batch in self._open:
            self._open.remove(batch)
        if batch.is_due:
            self._due.remove(batch)


async def _wait_for(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until *tasks*, which are about to end, have ended, whoever cancels meanwhile."""
    for task in tasks:
        await outlast(task.done, lambda task=task: asyncio.wait([task]))  # type: ignore[misc]


def _check_output(output: Any, size: int, padding: int) -> None:
    hint = "the function must give a row for each row that it takes"
    if not np.ndim(output):
        raise FailedPreconditionError("Batched output tensor has 0 dimensions", hint=hint)
    if len(output) != size + padding:
        raise FailedPreconditionError(
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
            f"tensors. 0th dimension size: {len(output)}; batch size: {size}; padding size: {padding}",
            hint=hint,
        )


def _is_same(one: Any, other: Any) -> bool:
    """Whether two captured inputs are the same value."""
    if one is other:
        return True
    return (
        type(one) is type(other)
        and isinstance(one, (np.ndarray, np.generic, bytes))
        and np.array_equal(one, other)  # a NaN is unlike itself: such calls are batched apart
    )


def _copy(error: OpError) -> OpError:
    """A copy of *error* for one of those that it is raised for, without the frames of the batch."""
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(vars(error))
    copy.__cause__ = error.__cause__
    return copy
