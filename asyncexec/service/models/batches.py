"""Batches: one run of a model for the rows of many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.clock import monotonic_ns as now_ns
from asyncexec.framework.errors import InternalError
from asyncexec.framework.queue_policy import QueuePolicy, current_policy
from asyncexec.framework.step_stats import RunMetadata, StepStats, begin_trace, end_trace
from asyncexec.graph.node import Tensor
from asyncexec.ops.flow.batch_calls import Batch, BatchOptions, Call, GatheredRows
from asyncexec.ops.flow.batch_queue import BatchQueue
from asyncexec.ops.flow.batching import MAX_INT32, num_rows
from asyncexec.service.models.outputs import as_output
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import US_PER_S, InferRequest, InferResponse
from asyncexec.session.deadline import within
from asyncexec.session.session_config import RunOptions

if TYPE_CHECKING:
    from asyncexec.service.models.model import Model

# What a run gave, when it began and ended, and of how many rows it was; KNOWN where there was none.
Run: TypeAlias = tuple[Sequence[Any], int, int, int]

_CONTAINER: Final = "_batches_of_model"


class Batches:
    """The calls of *model* that wait for one of its runs, by the *batching* of its config.

    Args:
        inputs, outputs: what a run takes and gives.
        max_running: the largest number of batches that run at once.
    """

    def __init__(
        self, model: Model, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batching: Any, max_running: int
    ) -> None:
        self._model = model
        self._inputs = [spec.tensor for spec in inputs]
        self._places = {spec.name: i for i, spec in enumerate(outputs)}
        most = model.config.max_batch_size
        preferred = sorted(batching.preferred_batch_size)
        self._most_rows: int = min(most, preferred[-1]) if preferred else most
        timeout_s = batching.max_queue_delay_microseconds / US_PER_S
        options = BatchOptions(self._most_rows, self._most_rows, True, timeout_s, MAX_INT32, max_running)
        # A resource of the session: it tells how many calls wait, and forgets them with its loop.
        self._queue = model.session._resource_mgr.lookup_or_create(
            _ModelQueue, _CONTAINER, model.name, lambda: _ModelQueue(options, model, self._inputs, outputs)
        )

    def takes(self, feeds: Mapping[Tensor[Any], Any]) -> bool:
        """Whether a call that feeds *feeds* can be a part of a batch: it feeds all there is, and has rows, but few."""
        if len(feeds) != len(self._inputs):
            return False
        for value in feeds.values():  # noqa: SIM110 - a generator takes longer
            if not value.ndim or not 0 < len(value) <= self._most_rows:
                return False
        return True

    async def run(
        self,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> Run:
        """What a call that feeds *feeds* gets of its batch, or of its batches where one was not enough."""
        policy = (None if options is None else options.queue) or current_policy()
        run: Coroutine[Any, Any, Sequence[Any]] = self._run(feeds, policy, metadata)
        if options is not None and options.timeout is not None:
            run = within(options.timeout, run)
        spans = self._model.session._spans
        return self.results(wanted, await (spans.observed(run) if spans.hooks else run))

    async def _run(
        self, feeds: Mapping[Tensor[Any], object], policy: QueuePolicy | None, metadata: RunMetadata | None
    ) -> Sequence[Any]:
        token = None if metadata is None else begin_trace(_Trace(metadata))
        try:
            call = self.begin(feeds, policy)
        finally:
            if token is not None:
                end_trace(token)
        return await self._queue.outputs_of(call)

    def begin(self, feeds: Mapping[Tensor[Any], object], policy: QueuePolicy | None) -> Call:
        """A call that feeds *feeds*, and waits by *policy*; see BatchQueue.begin()."""
        self._model.session._loop.enter()
        inputs = [feeds[tensor] for tensor in self._inputs]
        return self._queue.begin(inputs, (), num_rows(inputs), policy)

    def results(self, wanted: Sequence[TensorSpec], given: Sequence[Any]) -> Run:
        """What *given*, the outputs of a call, has for *wanted*."""
        places, times = self._places, given[-1].tolist()
        return [given[places[spec.name]] for spec in wanted], times[0][0], times[-1][1], times[0][2]


class WaitingCall:
    """A call of a model that waits for its batch, or runs with it, without a task.

    Attributes:
        outcome: is done when it has ended, and cancelled by who wants no answer; then response() is to be called.
    """

    __slots__ = ("_batches", "_call", "_model", "_request", "_times", "_wanted", "outcome")

    def __init__(
        self, batches: Batches, request: InferRequest, wanted: Sequence[TensorSpec], call: Call, times: tuple[int, int]
    ) -> None:
        self.outcome: asyncio.Future[Any] = call
        self._call = call
        self._batches = batches
        self._model = batches._model
        self._request = request
        self._wanted = wanted
        self._times = times  # when it came, and when its inputs were checked
        self._model._hold()

    def response(self) -> InferResponse:
        """The answer, once it has ended.

        Raises:
            asyncio.CancelledError: it was cancelled.
            OpError: as of Model.infer().
        """
        model, request, call, (begin_ns, ready_ns) = self._model, self._request, self._call, self._times
        error, call.error = call.error, None
        try:
            if error is not None:
                raise error
            values, begun_ns, ran_ns, rows = self._batches.results(self._wanted, call.result())
            outputs = {spec.name: as_output(spec, value) for spec, value in zip(self._wanted, values, strict=True)}
        except BaseException as raised:
            for task in self._batches._queue.leave(call):  # the model is not closed before they have ended
                model._hold()
                task.add_done_callback(lambda _: model._let_go())
            model._note_failure(begin_ns, raised, None, has_begun=True)
            raise
        finally:
            del error  # its traceback holds this frame, which must not hold it in turn
            model._let_go()
        response = InferResponse(model.name, model.version, request.id, outputs)
        times = begin_ns, ready_ns, begun_ns, ran_ns, now_ns(), rows
        model._note_success(call.rows, times, None, response)
        return response


class _ModelQueue(BatchQueue):
    """Runs *model* for each batch; a call gets its *outputs*, and when its runs began and ended, of how many rows."""

    def __init__(
        self, options: BatchOptions, model: Model, inputs: Sequence[Tensor[Any]], outputs: Sequence[TensorSpec]
    ) -> None:
        super().__init__(options)
        self._model = model
        self._inputs = inputs
        self._outputs = outputs
        self._fetches = [spec.tensor for spec in outputs]

    async def _compute(self, batch: Batch) -> None:
        parts, rows, traces = list(batch.parts.items()), batch.size, batch.traces()
        arrays = GatheredRows([call.inputs_in(part) for call, part in parts], 0).arrays()
        metadata = RunMetadata() if traces else None
        feeds = dict(zip(self._inputs, arrays, strict=True))
        try:
            results, begun_ns, ran_ns, _ = await self._model.run_graph(self._fetches, feeds, rows, metadata=metadata)
        finally:
            if metadata is not None:
                for trace in traces:
                    trace.include(metadata.step_stats)
        _check_rows(self._model.name, self._outputs, results, rows)
        batch.give(parts, results, [np.array([(begun_ns, ran_ns, rows)], np.int64)])


class _Trace:
    """Lets *metadata* tell of the batches of a call."""

    def __init__(self, metadata: RunMetadata) -> None:
        self._metadata = metadata

    def include(self, stats: StepStats) -> None:
        told = self._metadata.step_stats
        self._metadata.step_stats = StepStats(dev_stats=[*told.dev_stats, *stats.dev_stats])


def _check_rows(model: str, outputs: Sequence[TensorSpec], values: Sequence[Any], rows: int) -> None:
    """InternalError where one of *values*, those of *outputs*, cannot be given to the calls of a batch of *rows*."""
    for spec, value in zip(outputs, values, strict=True):
        shape = np.shape(value)
        if shape[:1] != (rows,):
            told = f"output '{spec.name}' of model '{model}' has the shape {list(shape)} for a batch of {rows} rows"
            raise InternalError(told, hint="a model with 'dynamic_batching' gives a row for each that it takes")


def traced(options: RunOptions | None) -> RunOptions:
    """*options*, and that the run is traced."""
    return RunOptions(trace=True) if options is None else options.model_copy(update={"trace": True})
