"""SessionStreams: the streams of a session; a base of Session."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from asyncexec.framework.clock import ns_of_ms
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.session.fetch_mapper import FetchMapper
from asyncexec.session.fetch_types import Feeds, Fetches, typed_map, typed_stream
from asyncexec.session.session_config import RECORD_LIMIT

if TYPE_CHECKING:
    from asyncexec.durable.record import Codec
    from asyncexec.durable.store import Store
    from asyncexec.executor.diagnostics.step_counts import StepCounts
    from asyncexec.executor.streams.stream_options import ItemRecords
    from asyncexec.framework.resource_mgr import ResourceMgr
    from asyncexec.framework.spans import Spans
    from asyncexec.graph.graph import Graph
    from asyncexec.session.admission import AdmissionControl
    from asyncexec.session.executor_cache import ExecutorCache
    from asyncexec.session.executors_and_keys import ExecutorsAndKeys
    from asyncexec.session.graph_execution_state import GraphExecutionState
    from asyncexec.session.session_config import SessionConfig
    from asyncexec.session.session_loop import SessionLoop
    from asyncexec.session.step_runner import StepRunner
    from asyncexec.session.steps_under_way import StepsUnderWay
    from asyncexec.session.stream_plan import StreamHost
    from asyncexec.session.stream_session import OnError

_durable_stream = LazyModule("asyncexec.session.durable_stream")
_spread_plan = LazyModule("asyncexec.session.spread_plan")
_run_recording = LazyModule("asyncexec.session.run_recording")
_stream_plan = LazyModule("asyncexec.session.stream_plan")
_stream_session = LazyModule("asyncexec.session.stream_session")


class SessionStreams:
    """What a session has of streams."""

    if TYPE_CHECKING:
        graph: Graph
        config: SessionConfig
        run: Any
        _state: GraphExecutionState
        _steps: StepsUnderWay
        _counts: StepCounts
        _admission: AdmissionControl
        _loop: SessionLoop
        _cache: ExecutorCache
        _spans: Spans
        _prepare: Any
        _runner: StepRunner
        _resource_mgr: ResourceMgr

        def _check_open(self) -> None: ...

    @typed_stream
    def stream(
        self,
        fetches: Fetches,
        *,
        window: int = 32,
        ordered: bool = True,
        on_error: OnError = "raise",
        metadata: RunMetadata | None = None,
        checkpoint: Store | None = None,
        every: float = 1000,
        resume: bool = True,
        restore: bytes | None = None,
        exactly_once: bool = True,
        codec: Codec | None = None,
        flush: bool = True,
    ) -> Any:
        """A stream of items, each a run of *fetches* with feeds of its own: ``async with session.stream(y) as stream``.

        Args:
            fetches: the fetches of every item, as run() takes them.  Sources (``ax.source``) need no ``send``.
            window: the largest number of items that have been sent and whose results have not been taken.
            ordered: whether results come in the order of the items, or as they complete.
            on_error: whether an item's error, which names its number, ends the stream ("raise") or is its result
                ("yield").  Or a function for failed items, which have no result then: it is called, and awaited, with
                the error and what was fed, in the place of the result.
            metadata: if given, all items are traced, and its ``step_stats`` has the executions of all of them.
            checkpoint: the store in which the stream's position and states are kept; see the page *Durable*.
            every: the number of items between two checkpoints; as a float, of seconds.
            resume: whether to go on at the last checkpoint in the store; if not, the stream begins anew.
            restore: what ``snapshot`` of a stream has given: the stream goes on from there.
            exactly_once: refuse sources that cannot seek.  With False, such a source begins anew.
            codec: makes bytes of Python objects, with methods ``encode`` and ``decode``; JSON by default.
            flush: whether windows of sources that are not full become items when the stream is closed, as by SIGTERM.
                With False the stream that goes on from the last checkpoint draws their values again.

        Raises:
            FailedPreconditionError: *flush* is False without checkpoints, or without sources that can seek.
            InvalidArgumentError: *every* is out of range.
            InvalidTypeError: *checkpoint* is no store, or *restore* no bytes.
        """
        durable = _durable_stream.CheckpointOptions.of(checkpoint, every, resume, restore, exactly_once, codec)
        host = self._stream_host()
        return _stream_session.Stream(host, fetches, window, ordered, on_error, metadata, durable, flush)

    @typed_map
    def map(
        self,
        fetches: Fetches,
        items: Iterable[Feeds] | AsyncIterable[Feeds],
        *,
        window: int = 32,
        ordered: bool = True,
        on_error: OnError = "raise",
        metadata: RunMetadata | None = None,
        workers: str | Sequence[str] | None = None,
        retries: int = 2,
        checkpoint: Store | None = None,
        every: float = 1000,
        resume: bool = True,
        restore: bytes | None = None,
        exactly_once: bool = True,
        codec: Codec | None = None,
    ) -> Any:
        """The results of *fetches* for each of *items*, feeds as run() takes them: ``async for y in session.map(...)``.

        Items are drawn when there is room in the window.  An exception of *items* is raised after the results of the
        items before it.  All items feed the same tensors.  The other arguments are those of stream().

        Args:
            workers: spread the items over these workers of the session's cluster: all tasks of a job, such as
                ``"/job:worker"``, or a list of names.  Each item is a step on one of them; nodes that ask for another
                process stay there.  The signature must have no state.
            retries: how often an item whose worker was lost begins again, on a worker that is there.

        Raises:
            FailedPreconditionError: *items* cannot seek, and *checkpoint* is given with ``exactly_once=True``.
            InvalidArgumentError: there is no such worker, or *retries* is no number of 0 or more.
        """
        host = self._stream_host()
        spread = None if workers is None else _spread_plan.SpreadOptions.of(host, workers, retries, window)
        durable = _durable_stream.CheckpointOptions.of(checkpoint, every, resume, restore, exactly_once, codec)
        return _stream_session.StreamMap(host, fetches, items, window, ordered, on_error, metadata, durable, spread)

    def _stream_host(self) -> StreamHost:
        self._check_open()

        async def prepare(
            key: object, mapper: FetchMapper, feed_keys: Sequence[object], worker: str | None
        ) -> ExecutorsAndKeys:
            prepared: ExecutorsAndKeys | None = self._cache.get(key)
            return prepared or await self._prepare(key, mapper, feed_keys, (), is_shared=False, worker=worker)

        self._state.refresh_devices()
        host: StreamHost = _stream_plan.StreamHost(
            graph=self.graph,
            prepare=prepare,
            run=self.run,
            enter_loop=self._loop.enter,
            admission=self._admission,
            begin=self._steps.begin_stream,
            end=self._steps.end_stream,
            slice_ns=ns_of_ms(self.config.slice_ms),
            source_grace_s=self.config.async_grace_s,
            holds=self._state.holds,
            counts=self._counts,
            spans=self._spans,
            devices=self._state.devices,
            workers=self._state.workers,
            state_finder=self._runner.state_finder,
            resources=self._resource_mgr,
            schedule_seed=self.config.schedule_seed,
            record=None if self.config.record_failures is None else self._item_recorder,
        )
        return host

    def _item_recorder(self, prepared: ExecutorsAndKeys) -> ItemRecords:
        recorder: ItemRecords = _run_recording.ItemRecorder(
            self.graph, self.config, prepared.feeds, prepared.fetches, RECORD_LIMIT
        )
        return recorder
