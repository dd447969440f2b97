"""Model: a version of a model that is served, which is a session of its graph with the names that clients know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.framework.clock import monotonic_ns as now_ns
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.spans import Hook
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.http.body import off_loop
from asyncexec.service.models.batches import Batches, Run, WaitingCall, traced
from asyncexec.service.models.classes import Labels, classified
from asyncexec.service.models.model_workers import ModelWorkers
from asyncexec.service.models.outputs import as_output
from asyncexec.service.models.queueing import AnswersInOrder, RequestQueues
from asyncexec.service.models.recent_calls import RecentCalls
from asyncexec.service.models.request_checks import RequestChecks, rows_of
from asyncexec.service.models.response_cache import ResponseCache, content_key
from asyncexec.service.models.signature import Signature, TensorSpec
from asyncexec.service.models.statistics import KNOWN, CallTimes, ModelStatistics
from asyncexec.service.observing.call_record import current_call, failed_call
from asyncexec.service.observing.traces import Trace
from asyncexec.service.requests import InferRequest, InferResponse, InferTensor, OutputOptions
from asyncexec.session.admission import last_wait_ns
from asyncexec.session.direct_session import Session
from asyncexec.session.session_config import RunOptions, SessionConfig
from asyncexec.session.step_runner import NotCalledError
from asyncexec.session.workers import Cluster

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_ASYNC_GRACE_S: Final = 5.0  # for what goes on though it has been cancelled, when the service ends
_MOST_WARM: Final = 2**20  # elements of a tensor that a config asks to be made for warming up


class Model:
    """One version of a model.

    Args:
        name, version: what clients call it.
        graph: what it computes.
        signature: its inputs and outputs.
        config: its ModelConfig.  ``max_batch_size`` and ``dynamic_batching`` make one run of the rows of many calls,
            as ``ax.batch`` does; its queue policies say which calls have their turn first, how many may wait, and for
            how long.
        max_concurrent: the largest number of runs at once; None for as many as come.
        labels: of the elements of outputs, for callers who ask for classes.
        cache: where its answers are kept; None for nowhere.
        hooks: those of its sessions.
        cluster: the workers that its nodes may ask for; it is open, in the event loop of the service.

    Attributes:
        statistics: what it has done.
        recent: what its last calls were like.
        workers: those that it runs on.
        is_decoupled: whether it may answer a call with none or several responses.
        may_answer_at_once: whether there may be calls that need nothing but a run of its graph.
    """

    is_decoupled: bool = False
    may_answer_at_once: bool = True

    def __init__(
        self,
        name: str,
        version: str,
        graph: Graph,
        signature: Signature,
        config: Any,
        *,
        max_concurrent: int | None = None,
        labels: Labels | None = None,
        cache: ResponseCache | None = None,
        hooks: Sequence[Hook] = (),
        cluster: Cluster | None = None,
    ) -> None:
        self.name: str = name
        self.version: str = version
        self.signature: Signature = signature
        self.config: Any = config
        self.statistics: ModelStatistics = self._no_statistics()
        self.recent: RecentCalls = RecentCalls()
        self._labels: Labels = labels or {}
        self._cache = cache
        self._most_rows: int = config.max_batch_size
        self._queues = RequestQueues(config.dynamic_batching)
        self._in_order = AnswersInOrder() if config.dynamic_batching.preserve_ordering else None
        count = max_concurrent or sum(max(1, group.count) for group in config.instance_group) or None
        session_config = SessionConfig(
            async_grace_s=_ASYNC_GRACE_S,
            max_concurrent_steps=count,
            node_statistics=any(map(is_user_function, graph.operations)),  # nobody's op is timed where there is none
        )
        self.session: Session = Session(graph, session_config, hooks=hooks, cluster=cluster)
        self.workers: ModelWorkers = ModelWorkers(graph, cluster)
        self._is_limited = count is not None
        self._checks = RequestChecks(name, signature, self._most_rows)
        self._held = _Held(self)
        self._num_calls = 0  # under way; a session that counts them itself takes longer for each
        self._has_ended: asyncio.Event | None = None
        self._batches: Batches | None = None
        batching = self._batching()
        if batching is not None and config.max_batch_size > 1:
            inputs, outputs = self._tensors()
            self._batches = Batches(self, inputs, outputs, batching, count or 1)
        waits = self._queues.options(InferRequest(name, {})) is not None
        is_plain = cache is None and self._in_order is None and self.may_answer_at_once
        self._answers_at_once = is_plain and self._batches is None and not waits
        self._may_begin = is_plain and not hooks

    def answer_at_once(self, request: InferRequest) -> InferResponse | None:
        """The answer to *request* if nothing has to be awaited for it, else None: infer() gives it.

        Raises:
            OpError: as of infer().
        """
        if not self._answers_at_once or request.output_options is not None or current_call.get() is not None:
            return None
        if request.parameters and self._queues.options(request) is not None:
            return None
        begin_ns, ready_ns = now_ns(), 0
        try:
            wanted, feeds = self._checks.outputs(request.outputs), self._checks.feeds(request)
            ready_ns = now_ns()
            values = self.session._call(self._checks.key_of(wanted), feeds)
            ran_ns = now_ns()
            outputs: dict[str, InferTensor] = {}
            for spec, value in zip(wanted, values, strict=True):
                outputs[spec.name] = as_output(spec, value)
        except NotCalledError:
            return None
        except BaseException as error:
            self._note_failure(begin_ns, error, None, has_begun=ready_ns > 0)
            raise
        response = InferResponse(self.name, self.version, request.id, outputs)
        rows = 1 if self._most_rows <= 0 else self._checks.num_rows(request)
        self.statistics.note_run(rows, ran_ns - ready_ns)
        self.statistics.note_success(rows, (begin_ns, ready_ns, ready_ns, ran_ns, now_ns(), rows))
        self.recent.note(ran_ns - begin_ns)
        return response

    def begin(self, request: InferRequest) -> WaitingCall | None:
        """A call that waits for its batch, if that is all that *request* takes, else None: infer() answers it.

        Raises:
            OpError: as of infer().
        """
        batches = self._batches
        if batches is None or not self._may_begin or request.output_options is not None:
            return None
        if current_call.get() is not None or "timeout" in request.parameters:
            return None
        begin_ns, ready_ns = now_ns(), 0
        try:
            wanted, feeds = self._checks.outputs(request.outputs), self._checks.feeds(request)
            ready_ns = now_ns()
            if not batches.takes(feeds):
                return None
            options = self._queues.options(request)
            call = batches.begin(feeds, None if options is None else options.queue)
        except BaseException as error:
            self._note_failure(begin_ns, error, None, has_begun=ready_ns > 0)
            raise
        return WaitingCall(batches, request, wanted, call, (begin_ns, ready_ns))

    async def infer(
        self, request: InferRequest, metadata: RunMetadata | None = None, *, is_part: bool = False
    ) -> InferResponse:
        """The answer to *request*.

        Args:
            metadata: the call is traced there; it is no part of a batch, and is run though its answer may be known.
            is_part: it is a part of a call of another model, which alone is told of.

        Raises:
            InvalidArgumentError: its inputs or outputs are not those of the model.
            UnavailableError: too many calls wait, or it has waited for longer than the config allows.
            DeadlineExceededError: it took longer than it allows.
            OpError: what the graph raises.
        """
        if metadata is None and not is_part and (found := self.answer_at_once(request)) is not None:
            return found
        begin_ns, ready_ns = now_ns(), 0
        call = None if is_part else current_call.get()
        trace = None if call is None else call.begin_inference(self.name, self.version, request)
        self._num_calls += 1
        try:
            wanted = self._checks.outputs(request.outputs)
            feeds = self._checks.feeds(request)
            ready_ns = now_ns()
            is_alone = metadata is not None
            if trace is not None and not is_alone:
                metadata = trace.metadata
            run = self._values(request, wanted, feeds, metadata, is_alone=is_alone)
            values, begun_ns, ran_ns, run_rows = await run
            outputs = {spec.name: as_output(spec, value) for spec, value in zip(wanted, values, strict=True)}
            if request.output_options is not None:
                outputs = await self._as_wanted(outputs, request.output_options)
        except BaseException as error:
            self._note_failure(begin_ns, error, trace, has_begun=ready_ns > 0, is_part=is_part)
            raise
        finally:
            self._let_go()
        response = InferResponse(self.name, self.version, request.id, outputs)
        times = begin_ns, ready_ns, begun_ns, ran_ns, now_ns(), run_rows
        self._note_success(self._checks.num_rows(request), times, trace, response)
        return response

    def _note_success(
        self, rows: int, times: tuple[int, int, int, int, int, int], trace: Trace | None, response: InferResponse
    ) -> None:
        """A call of *rows* rows succeeded; *times* are CallTimes."""
        self.statistics.note_success(rows, times)
        self.recent.note(times[3] - times[0])
        if trace is not None:
            trace.end(CallTimes(*times), response)

    def _note_failure(
        self, begin_ns: int, error: BaseException, trace: Trace | None, *, has_begun: bool, is_part: bool = False
    ) -> None:
        """A call failed with *error*; *has_begun* if its inputs were found to be right."""
        ended_ns = now_ns()
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            self.statistics.note_cancelled(ended_ns - begin_ns)
            return
        self.statistics.note_failure(ended_ns - begin_ns, error, has_begun=has_begun)
        self.recent.note_failure(error)
        if not is_part:
            failed_call().name_model(self.name, self.version)
        if trace is not None:
            trace.fail(error)

    async def responses(self, request: InferRequest, *, is_part: bool = False) -> AsyncGenerator[InferResponse, None]:
        """The answers to *request*, as they are ready; as of infer().  Close it where it is left early."""
        yield await self.infer(request, is_part=is_part)

    async def _as_wanted(
        self, outputs: dict[str, InferTensor], options: Mapping[str, OutputOptions]
    ) -> dict[str, InferTensor]:
        """*outputs*, of which those that *options* say so of are classes."""
        counts = {name: each.num_classes for name, each in options.items() if each.num_classes}
        if not counts:
            return outputs

        def of(name: str) -> InferTensor:
            labels = self._labels.get(name, ())
            return classified(name, outputs[name], counts[name], labels, has_batch=self._most_rows > 0)

        size = sum(outputs[name].array.nbytes for name in counts)
        return outputs | await off_loop(size, lambda: {name: of(name) for name in counts})

    def held(self) -> AbstractContextManager[None]:
        """The model is not closed before the block ends: for a caller that has something to do before."""
        return self._held

    def _hold(self) -> None:
        self._num_calls += 1

    def _let_go(self) -> None:
        self._num_calls -= 1
        if self._has_ended is not None and not self._num_calls:
            self._has_ended.set()

    @property
    def unready_reason(self) -> str | None:
        """Why it cannot be called, though it is loaded; None where it can."""
        return self.workers.unready_reason

    @property
    def num_runs(self) -> int:
        """How often its graph has run, but for its warm-up: once for each call, or for each batch."""
        return self.statistics.execution_count

    @property
    def num_waiting(self) -> int:
        """The calls that wait for their turn or for their batch."""
        told = self.session.statistics()
        return told.queued_steps + told.waiting_in_batches

    @property
    def batch_sizes(self) -> dict[int, int]:
        """How many runs there were of so many rows, ascending; none of a model that makes no batches."""
        sizes = {} if self._batches is None else self.statistics.sizes
        return {rows: each.count for rows, each in sorted(sizes.items()) if each.count}

    @property
    def num_sequences(self) -> int:
        """The sequences of calls that have begun and not ended."""
        return 0

    @property
    def num_failures(self) -> int:
        """The calls that failed or were cancelled."""
        return self.statistics.fail.count + self.statistics.cancel.count

    async def warm_up(self) -> None:
        """Run what the config says it should be warmed up by."""
        spec_of = self._checks.spec_of
        for sample in self.config.model_warmup:
            inputs = {
                name: InferTensor(spec_of(name, "input").datatype, self._sample(name, each, sample.batch_size))
                for name, each in sample.inputs.items()
            }
            for _ in range(max(1, sample.count)):
                await self._warm(self._checks.feeds(InferRequest(self.name, inputs)))
        self.statistics = self._no_statistics()

    def _no_statistics(self) -> ModelStatistics:
        return ModelStatistics()

    async def _warm(self, feeds: Mapping[Tensor[Any], Array]) -> None:
        await self._run(list(self.signature.outputs.values()), feeds, None)

    async def close(self) -> None:
        """Take no more calls, and end when those under way have."""
        if self._num_calls:
            self._has_ended = asyncio.Event()
            await self._has_ended.wait()
        if self._cache is not None:
            self._cache.forget(self)
        await self.session.close()

    def _batching(self) -> object:
        """What the config says of batches; None where each call runs alone."""
        return self.config.dynamic_batching if self.config.HasField("dynamic_batching") else None

    def _tensors(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """What a run takes and gives."""
        return list(self.signature.inputs.values()), list(self.signature.outputs.values())

    def _values(
        self,
        request: InferRequest,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], Array],
        metadata: RunMetadata | None,
        *,
        is_alone: bool,
    ) -> Awaitable[Run]:
        """The values of *wanted* for *request*, which feeds *feeds*; of a run of its own if it *is_alone*."""
        options = self._queues.options(request)
        if self._cache is None or is_alone:
            run = self._run(wanted, feeds, options, metadata, is_alone=is_alone)
        else:
            run = self._run_or_cached(self._cache, wanted, feeds, options, metadata)
        return run if self._in_order is None else self._in_order.run(run, self._deadline_s(request))

    async def _run_or_cached(
        self,
        cache: ResponseCache,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], Array],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> Run:
        begin_ns = now_ns()
        inputs = {tensor.name: array for tensor, array in feeds.items()}
        size = sum(array.nbytes for array in inputs.values())
        key = await off_loop(size, lambda: content_key(inputs, [spec.name for spec in wanted]))
        known_ns = now_ns()
        made: list[Run] = []

        async def run(shared: RunOptions | None) -> Sequence[Any]:
            made.append(await self._run(wanted, feeds, shared, metadata))
            return made[0][0]

        values, is_known = await cache.values(self, key, options, run)
        if not is_known:
            self.statistics.cache_miss.add(known_ns - begin_ns)
            return made[0]
        self.statistics.cache_hit.add(known_ns - begin_ns)
        begun_ns = begin_ns + now_ns() - known_ns  # it has waited where another call was under way
        return values, begun_ns, begun_ns, KNOWN

    def _run(
        self,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], Array],
        options: RunOptions | None,
        metadata: RunMetadata | None = None,
        *,
        is_alone: bool = False,
    ) -> Coroutine[Any, Any, Run]:
        if self._batches is not None and not is_alone and self._batches.takes(feeds):
            return self._batches.run(wanted, feeds, options, metadata)
        rows = 1 if self._most_rows <= 0 else rows_of(feeds.values())
        return self.run_graph([spec.tensor for spec in wanted], feeds, rows, options, metadata)

    async def run_graph(
        self,
        fetches: Sequence[Tensor[Any]],
        feeds: Mapping[Tensor[Any], object],
        rows: int,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Run:
        """A run of its session, of *rows* rows; it begins when it is its turn."""
        if metadata is not None:
            options = traced(options)
        begun_ns = now_ns()
        values: Sequence[object] = await self.session.run(fetches, feeds, options=options, metadata=metadata)
        ran_ns = now_ns()
        if self._is_limited:
            begun_ns += last_wait_ns()
        self.statistics.note_run(rows, ran_ns - begun_ns)
        return values, begun_ns, ran_ns, rows

    def _deadline_s(self, request: InferRequest) -> float | None:
        options = self._queues.options(request)
        return None if options is None else options.timeout

    def _sample(self, name: str, each: Any, rows: int) -> Array:
        shape = [*([max(1, rows)] if self.config.max_batch_size > 0 else []), *each.dims]
        dtype = self._checks.spec_of(name, "input").tensor.dtype.base_dtype.as_numpy_dtype
        if min(shape, default=1) < 0 or np.prod([*shape], dtype=object) > _MOST_WARM:
            raise InvalidArgumentError(f"model '{self.name}' cannot be warmed up with '{name}' of the shape {shape}")
        if dtype.kind == "O":
            return np.full(shape, b"", object)
        return np.zeros(shape, dtype)


class _Held:
    """Counts those who hold *model*."""

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._model._hold()

    def __exit__(self, *_: object) -> None:
        self._model._let_go()


def check_one_response(model: Model, protocol: str) -> None:
    """UnimplementedError where *model* may give another number of responses than the one that *protocol* carries."""
    if model.is_decoupled:
        raise UnimplementedError(f"{protocol} doesn't support models with decoupled transaction policy")
