"""BatchQueue: gathers the rows of many calls into batches, and gives each call its share of what comes of them.

Rules from ``tensorflow/core/kernels/batching_util/``: ``shared_batch_scheduler.h`` and ``batch_resource_base.cc``.  A
batch takes calls in the order they come.  It is *due* when it is full, or when the timeout has passed since its first
call; it runs when it is due and fewer than ``max_running`` batches run, and takes calls until then.  Only calls whose
rows have the same shapes, and whose captured inputs are the same, are batched together; TensorFlow lets a whole batch
fail for the one, and takes the last call's captured inputs for the other.  Calls of another priority (QueuePolicy) have
batches of their own.

A batch runs in a task of its own.  A call that is cancelled leaves its batch, and the others do not notice; the last
that leaves cancels the batch, and waits until it has ended: so no batch outlives the steps that it runs for.

What runs in a batch may want what one of those who wait for it has, and keeps until then: a slot of a limiter, or the
turn of another batch that it is called from.  While as many batches run as may, all calls that wait for their turn wait
for these, too.  A call that has the slot leaves, with an error; one that would wait for a turn in vain runs at once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from asyncexec.durable.journal_scope import forget_call
from asyncexec.framework.callers import Group, groups_around, has_group, is_within, work_for
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
from asyncexec.framework.limiter import check_wait, hold_none
from asyncexec.framework.queue_policy import QueuePolicy, current_policy, forget_policy
from asyncexec.framework.spans import Attribute, Span, observed_span
from asyncexec.framework.under_way import tells
from asyncexec.ops.flow.batch_calls import Batch, BatchOptions, Call, GatheredRows


class BatchQueue(ABC):
    """What all nodes that share it put their calls into, in all steps of a session."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options
        self._open: list[Batch] = []  # that take calls
        self._due: deque[Batch] = deque()  # in the order in which they are to run; some are still open
        self._num_waiting: Counter[int] = Counter()  # calls none of whose batches runs yet, by their priority
        self._running: set[Batch] = set()
        self._is_starting = False

    @abstractmethod
    async def _compute(self, batch: Batch) -> None:
        """Give the calls of *batch* what is theirs."""

    @property
    def waiting(self) -> int:
        """How many batches wait for other calls, or for their turn."""
        return len(self._due) + sum(not batch.is_due for batch in self._open)

    @property
    def waiting_calls(self) -> int:
        """How many calls have rows in batches that do not run yet."""
        return len(set(self.in_line()))

    @property
    def running(self) -> int:
        """How many batches run."""
        return len(self._running)

    def drop_loop(self) -> None:
        """Forget all calls: their loop is closed."""
        for batch in (*self._open, *self._due, *self._running):
            for call in batch.parts:
                call.batches, call.waits = (), False
            batch.parts = {}
        self._num_waiting.clear()
        self._open.clear()
        self._due.clear()
        self._running.clear()

    async def run(self, inputs: Sequence[object], captured: Sequence[object], rows: int) -> list[Any]:
        """The results for *inputs*, which have *rows* rows each, at least one.

        Raises:
            InvalidArgumentError: there are more rows than a call may have.
            UnavailableError: too many batches or calls wait, or the call has waited too long for its QueuePolicy.
            OpError: the batch fails.
        """
        return await self.outputs_of(self.begin(inputs, captured, rows, current_policy()))

    @tells(lambda _: "waited for its batch")
    async def outputs_of(self, call: Call) -> list[object]:
        """The results of *call*; who is cancelled meanwhile leaves it."""
        try:
            outputs = await call
        except BaseException as raised:
            left = self.leave(call)
            if not isinstance(raised, GeneratorExit):
                await _wait_for(left)
            raise
        error, call.error = call.error, None
        if error is None:
            return outputs
        try:
            await _wait_for(self.leave(call))
            raise error
        finally:
            del error  # its traceback holds this frame, which must not hold it in turn

    def begin(
        self, inputs: Sequence[object], captured: Sequence[object], rows: int, policy: QueuePolicy | None
    ) -> Call:
        """A call, as of run(), that waits by *policy*; who wants no results any more calls leave().

        Raises:
            InvalidArgumentError: there are more rows than a call may have.
            UnavailableError: too many batches or calls wait.
        """
        options = self._options
        if rows > options.max_call_size:
            raise InvalidArgumentError(
                f"Task size {rows} is larger than maximum input batch size {options.max_call_size}",
                hint="a call has at most max_size rows",
            )
        call = Call(asyncio.get_running_loop(), inputs, captured, rows, policy)
        self._admit(call)
        return call

    def _admit(self, call: Call) -> None:
        """Put the rows of *call* into batches."""
        if self._would_wait_for_itself():
            self._admit_nested(call)
            return
        if self._is_full:
            check_wait(self._groups())
        if call.policy is not None:
            call.policy.check_room(self._num_waiting[call.policy.priority])
        self._begin_wait(call)
        try:
            self._place(call)
        except BaseException:
            if call.waits:
                self._end_wait(call)
            raise

    def _place(self, call: Call) -> None:
        """Put the rows of *call* into batches that wait; UnavailableError where there are too many."""
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
        full: list[Batch] = []
        while start < call.rows:
            if batch is None:
                batch = self._open_batch(call)
            start = batch.add(call, start, options.max_size)
            if batch.size == options.max_size:
                full.append(batch)
            batch = None
        for each in full:  # when all rows have their place: an eager task may run to its end at once
            self._close(each)

    def _begin_wait(self, call: Call) -> None:
        call.waits = True
        self._num_waiting[call.level[1]] += 1
        if call.policy is not None and call.policy.timeout is not None:
            call.timer = call.get_loop().call_later(call.policy.timeout, self._be_late, call)

    def _end_wait(self, call: Call) -> None:
        """*call* waits no more: one of its batches runs, or it leaves."""
        call.waits = False
        self._num_waiting[call.level[1]] -= 1
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    def _be_late(self, call: Call) -> None:
        """*call* has waited as long as its policy lets it: it leaves, or has its turn after those in time."""
        assert call.policy is not None
        priority = call.policy.priority
        self.leave(call)  # none of its batches runs, so nobody has to be waited for
        if call.policy.timeout_action == "reject":
            call.fail(call.policy.expired())
            return
        call.level, call.waits = (True, priority), True
        self._num_waiting[priority] += 1
        try:
            self._place(call)
        except UnavailableError as error:
            call.fail(error)

    @property
    def _is_full(self) -> bool:
        """Whether a batch that is due has to wait for its turn."""
        return len(self._running) >= self._options.max_running

    def _groups(self) -> set[Group]:
        """Those who wait for the batches that run."""
        return {batch.group for batch in self._running if batch.group is not None}

    def _would_wait_for_itself(self) -> bool:
        """Whether the running code is in a batch of this queue, or in what such a batch waits for."""
        if not has_group():
            return False
        around = [group for group in groups_around() if isinstance(group, _Waiting)]
        if any(group.queue is self for group in around):
            return True
        mine = self._groups() if around and self._is_full else set()
        return bool(mine) and any(is_within(call.context, mine) for group in around for call in group.queue.in_line())

    def in_line(self) -> Iterable[Call]:
        """The calls in batches that do not run yet."""
        batches = chain(self._due, (batch for batch in self._open if not batch.is_due))
        return [call for batch in batches for call in batch.parts]

    def callers_of(self, batch: Batch) -> Iterable[Call]:
        """The calls that wait until *batch*, which runs, has ended."""
        return chain(batch.parts, self.in_line() if self._is_full else ())

    def _find_open(self, call: Call) -> Batch | None:
        """The batch that rows of *call* may go into."""
        for batch in self._open:
            if call.fits(batch):
                return batch
        return None

    def _admit_nested(self, call: Call) -> None:
        """Run the rows of *call* at once, in batches of its own: it comes from a batch, which waits for it."""
        start = 0
        batches: list[Batch] = []
        while start < call.rows:
            batches.append(Batch(call))
            start = batches[-1].add(call, start, self._options.max_size)
        for batch in batches:
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
        batch.timer = call.get_loop().call_later(self._options.timeout_s, self._let_run, batch)
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
            place = len(self._due)
            while place and self._due[place - 1].level > batch.level:
                place -= 1
            self._due.insert(place, batch)
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
        for call in batch.parts:
            if call.waits:
                self._end_wait(call)
        loop = asyncio.get_running_loop()
        batch.task = loop.create_task(self._run_batch(batch), context=batch.context)

    async def _run_batch(self, batch: Batch) -> None:
        """The body of a batch's task."""
        batch.has_begun = True
        batch.group = group = _Waiting(self, batch)
        work_for(group)
        hold_none()
        forget_policy()
        forget_call()
        error: BaseException | None = CancelledError("The batch was cancelled.")
        try:
            if batch.parts:
                await self._compute_in_span(batch)
            error = None
        except OpError as raised:
            error = raised
        except Exception as raised:
            error = InternalError(f"the batch failed: {raised!r}")
            error.__cause__ = raised
        except asyncio.CancelledError:
            if batch.parts:  # somebody else's cancellation: not for want of calls
                raise
        except GeneratorExit:
            raise
        except BaseException as raised:  # a KeyboardInterrupt, say: its callers raise it, and not this task
            error = raised
        finally:
            is_known = batch in self._running  # else its loop is closed
            self._running.discard(batch)
            batch.group = group.batch = None
            parts, batch.parts = batch.parts, {}
            if error is not None:
                for call in parts:
                    call.fail(_copy(error))
            del error
            if is_known:
                self._start()

    async def _compute_in_span(self, batch: Batch) -> None:
        """Compute *batch*; hooks are told, where the first of its calls is told of."""
        first = observed_span()
        if first is None:
            await self._compute(batch)
            return
        callers = [span for call in batch.parts if (span := observed_span(call.context)) is not None]
        rows: dict[str, Attribute] = {"rows": batch.size, "calls": len(batch.parts)}
        with Span(first.spans, "batch", first.name, parent=first, links=callers, attributes=rows):
            await self._compute(batch)

    def leave(self, call: Call) -> list[asyncio.Task[None]]:
        """Take what is left of *call* out of its batches; the tasks of those that nobody is left in, which end soon."""
        ending: list[asyncio.Task[None]] = []
        if call.waits:
            self._end_wait(call)
        batches, call.batches = call.batches, ()  # each holds the call
        for batch in batches:
            part = batch.parts.pop(call, None)
            if part is None:
                continue
            if not batch.has_begun:
                batch.size -= len(part)
            if batch.parts:
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


class _Waiting:
    """Those who wait until *batch*, of *queue*, has ended; nobody does any more when there is none."""

    __slots__ = ("batch", "queue")

    def __init__(self, queue: BatchQueue, batch: Batch) -> None:
        self.queue = queue
        self.batch: Batch | None = batch

    def callers(self) -> Iterable[Call]:
        return () if self.batch is None else self.queue.callers_of(self.batch)


class FunctionQueue(BatchQueue):
    """Runs *function* for each batch; it must give a row for each row, else FailedPreconditionError comes of it."""

    def __init__(self, options: BatchOptions, function: FunctionHandle) -> None:
        super().__init__(options)
        self._function = function

    async def _compute(self, batch: Batch) -> None:
        padding = self._options.padded_size(batch.size) - batch.size
        parts = list(batch.parts.items())
        gathered = GatheredRows([call.inputs_in(part) for call, part in parts], padding)
        outputs = await self._function.run(gathered, batch.captured, batch.traces())
        for output in outputs:
            _check_output(output, batch.size, padding)
        batch.give(parts, outputs, is_padded=padding > 0)


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


def _copy(error: BaseException) -> BaseException:
    """A copy of *error* for one of those that it is raised for, without the frames of the batch."""
    if not isinstance(error, OpError):  # nor an Exception: there is no telling how to make another
        return error.with_traceback(None)
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(vars(error))
    if hasattr(error, "__notes__"):
        copy.__notes__ = list(error.__notes__)  # each is added to apart
    copy.__cause__ = error.__cause__
    return copy
