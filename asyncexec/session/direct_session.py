"""Session: runs parts of a graph in the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Self

from asyncexec.executor.diagnostics.cost_model import CostModel
from asyncexec.executor.diagnostics.step_counts import StepCounts
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import outlast, run_in_slices
from asyncexec.framework.errors import CancelledError, InvalidArgumentError, InvalidTypeError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.framework.node_times import NodeTimes
from asyncexec.framework.queue_policy import waiting_by
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.spans import Hook, Spans
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.frontend.graph_io import import_into
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.process.allocator import keep_freed_memory
from asyncexec.process.gc_pause import paused_gc
from asyncexec.session.admission import AdmissionControl
from asyncexec.session.call_arguments import (
    TARGETS,
    as_feed_keys,
    as_tuple,
    checked_options,
    feed_tensors,
    read_call,
    target_nodes,
)
from asyncexec.session.deadline import within
from asyncexec.session.executor_cache import ExecutorCache
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, build_in_slices
from asyncexec.session.fetch_mapper import FetchMapper, read_fetches, structure_key
from asyncexec.session.fetch_types import Feeds, Fetches, typed_make_callable, typed_run
from asyncexec.session.function_runtime import SessionFunctionRuntime
from asyncexec.session.graph_execution_state import GraphExecutionState
from asyncexec.session.held_state import StateFinder
from asyncexec.session.large_feeds import LargeFeedError
from asyncexec.session.remote_variables import RemoteVariables
from asyncexec.session.run_recording import (
    OVER_WORKERS,
    WITH_A_JOURNAL,
    check_records,
    is_to_be_recorded,
    record_run,
)
from asyncexec.session.saver import SessionSaver
from asyncexec.session.session_config import RunOptions, SessionConfig
from asyncexec.session.session_events import SessionEvents
from asyncexec.session.session_loop import SessionLoop
from asyncexec.session.session_runs import Journals, SessionRuns
from asyncexec.session.session_streams import SessionStreams
from asyncexec.session.shown import ShownSession
from asyncexec.session.statistics import SessionStatistics, statistics_of
from asyncexec.session.step_runner import NotCalledError, StepRunner
from asyncexec.session.steps_under_way import StepsUnderWay
from asyncexec.session.workers import Cluster

if TYPE_CHECKING:
    from asyncexec.durable.record import Codec
    from asyncexec.durable.store import Store
    from asyncexec.session.partial_run import PartialRun

_partial_run = LazyModule("asyncexec.session.partial_run")

_DEFAULT_CONFIG: Final = SessionConfig()  # made here: the first takes 15 ms, too long for a loop
_NO_FEEDS: Final[Feeds] = {}
_NO_TARGETS: Final[tuple[Node, ...]] = ()


class Session(SessionStreams, SessionEvents, SessionRuns, SessionSaver, ShownSession):
    """Runs *graph*; variables, queues and worker threads live as long as it does.

    ``async with ax.Session(graph) as session:`` closes it at the end.  Any number of runs may be under way at once.

    Args:
        graph: the graph to run; nodes added to it later can be run too.  Anything else raises InvalidTypeError.
        config: see SessionConfig.
        clock, cost_model: measure kernels, and decide which kernels are cheap enough for the event loop.
        hooks: are told when its steps, streams, items, nodes, retries, batches and cancellations begin and end.
        resources: has the variables, and the named queues and tables, that sessions of one event loop share by name.
            They outlive the session; whoever made it closes it.
        cluster: the workers that nodes may be placed on (``ax.cluster``); it outlives the session, too.
        restore: what brings the session's variables back when a worker was lost and is back, before the next step that
            the worker takes part in: the path of a checkpoint (see ``restore``), or an async function of the session.
        journal: the store in which runs keep what they have done, so that they can pause (``ax.pause``), and go on
            after a crash (``RunOptions.run_id``); see the page *Pauses*.  Such a session has no cluster.
        journal_codec: makes bytes of Python objects for the journal, with methods ``encode`` and ``decode``; JSON by
            default.
    """

    def __init__(
        self,
        graph: Graph,
        config: SessionConfig | None = None,
        *,
        clock: Clock = CLOCK,
        cost_model: CostModel | None = None,
        hooks: Sequence[Hook] = (),
        resources: ResourceMgr | None = None,
        cluster: Cluster | None = None,
        restore: str | PathLike[str] | Callable[[Session], Awaitable[object]] | None = None,
        journal: Store | None = None,
        journal_codec: Codec | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise InvalidTypeError(f"a session runs an ax.Graph, not {type(graph).__name__}")
        self.graph = graph
        self.config: SessionConfig = config or _DEFAULT_CONFIG
        self.kind_of_runs: str = OVER_WORKERS if cluster is not None else WITH_A_JOURNAL if journal is not None else ""
        self.recorded_nodes: dict[Node, bool] = {}  # whether they are, of those that were run and recorded
        if self.config.record_failures is not None:
            check_records(self.kind_of_runs)
        self._journals = None if journal is None else Journals(journal, journal_codec, self.config, cluster)
        if self.config.keep_freed_memory:
            keep_freed_memory()
        self._resource_mgr = ResourceMgr(resources)
        self._resource_mgr.files = graph.files
        self._clock, self._times = clock, NodeTimes()
        own_hooks: list[Hook] = [self._times] if self.config.node_statistics else []
        if self.config.memory_limit is not None:
            own_hooks.append(MemoryBudget(self.config.memory_limit))
        self._spans = Spans(self, (*hooks, *own_hooks), clock)
        workers = None if cluster is None else cluster.begin_session()
        self._state = GraphExecutionState(
            graph, self.config, self._resource_mgr, clock, cost_model, self._spans, workers
        )
        self._remote = RemoteVariables()
        self._steps, self._counts = StepsUnderWay(), StepCounts()
        self._admission = AdmissionControl(self.config.max_concurrent_steps, self.config.max_queued_steps)
        self._loop = SessionLoop([self._steps, self._admission, self._state, self._resource_mgr])
        self._cache = ExecutorCache(self._loop, self._admission.check_open)
        self._resource_mgr.functions = SessionFunctionRuntime(graph, self._state, self._loop)
        self._resource_mgr.background.around = self._spans.observed
        guards = self._check_open, StateFinder(clock), self.config.retries
        self._runner = StepRunner(self._loop, self._steps, self._counts, clock, self._spans, *guards)
        if workers is not None and restore is not None:
            workers.restore_with(partial(self._restore_by, restore))
        self._is_bounded = self.config.timeout is not None or bool(self._spans.hooks)
        # Whether a run without options may be a plain call, which nobody is told of.
        self._is_direct = self._journals is None and self.config.record_failures is None and not self._is_bounded
        # Whether every call goes by admission control; else only those do that have to be prepared.
        self._is_guarded = self.config.max_concurrent_steps is not None or self.config.drain_timeout_s != 0

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @typed_run
    async def run(
        self,
        fetches: Fetches,
        feeds: Feeds | None = None,
        *,
        targets: Iterable[Node | Tensor | str] = _NO_TARGETS,
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        """Run what *fetches* and *targets* need, and return the values of *fetches*.

        Args:
            fetches: a tensor, an operation (gives None), a name, or a nest of lists, tuples, named tuples, dicts and
                dataclasses of them.
            feeds: values by tensor or name.  Do not change their arrays until this returns.
            targets: operations to run without fetching anything.
            options: see RunOptions.
            metadata: filled in place.

        Returns:
            The same nest with values: numpy arrays (read-only where the session keeps them), numpy scalars for 0-d
            tensors, bytes for 0-d strings, Python objects.

        Raises:
            OpError: the first failure of the step; it names the node.  The rest of the step has ended by then, and the
                session stays usable.
            asyncio.CancelledError: the caller was cancelled.
        """
        if options is None and metadata is None and targets is _NO_TARGETS and self._is_direct:
            key, values = read_call(fetches, _NO_FEEDS if feeds is None else feeds, _NO_TARGETS)
            prepared = self._cache.get(key)
            if prepared is not None and not self._is_guarded:
                if prepared.tier.plain is not None:
                    try:
                        return self._runner.call(prepared, values)
                    except (LargeFeedError, NotCalledError):
                        pass
                return await self._runner.run(prepared, values)
        if options is not None:
            checked_options(options, has_journal=self._journals is not None)
        if is_to_be_recorded(self.config, options):
            return await record_run(self, fetches, feeds, targets, options, metadata)
        start = self._run if self._journals is None else self._run_with_journal
        run = start(fetches, feeds, targets, options, metadata)
        if options is not None or self._is_bounded:
            run = self._bounded(run, options)
        return await run

    def _bounded(self, run: Coroutine[Any, Any, Any], options: RunOptions | None) -> Coroutine[Any, Any, Any]:
        """*run*, as *options* and the session's config want it."""
        timeout_s = self.config.timeout
        if options is not None:
            timeout_s = options.timeout or timeout_s
            if options.queue is not None:
                run = waiting_by(options.queue, run)
        if timeout_s is not None:
            run = within(timeout_s, run)
        return self._spans.observed(run) if self._spans.hooks else run

    async def _run(
        self,
        fetches: Fetches,
        feeds: Feeds | None,
        targets: Iterable[Node | Tensor | str],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> Any:
        feeds = _NO_FEEDS if feeds is None else feeds
        targets = targets if targets is _NO_TARGETS else as_tuple(targets)
        key, values = read_call(fetches, feeds, targets)
        prepared = self._cache.get(key)
        if prepared is None or self._is_guarded:
            self._check_open()
            given = tuple(feeds), targets, tuple(values), options, metadata  # as they are now
            return await self._run_admitted(
                key, prepared or await read_fetches(self.graph, fetches, key[0], self._clock), *given
            )
        return await self._runner.run(prepared, values, options, metadata)

    def _call(self, key: object, feeds: Feeds) -> Any:
        """What run() gives for that structure key; NotCalledError where it may await, or call a function of users."""
        prepared = self._cache.get((key, *feeds))
        if prepared is None or self._is_guarded or prepared.tells_step or self._spans.hooks:
            raise NotCalledError
        try:
            return self._runner.call(prepared, feeds.values())
        except LargeFeedError:
            raise NotCalledError from None

    async def _run_admitted(
        self,
        key: object,
        known: ExecutorsAndKeys | FetchMapper,
        feed_keys: Sequence[object],
        targets: Iterable[object],
        values: Sequence[object],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        run: Callable[..., Awaitable[Any]] | None = None,
    ) -> Any:
        """Run when there is room, and prepare the signature if *known* is only what it asks for.

        *run* is what runs it, by default the runner.
        """
        self._loop.enter()
        admission = await self._admission.enter(None if options is None else options.queue)
        try:
            prepared = known
            if isinstance(prepared, FetchMapper):
                prepared = await self._prepare(key, prepared, feed_keys, targets)
            return await (run or self._runner.run)(prepared, values, options, metadata)
        finally:
            self._admission.leave(admission)

    @typed_make_callable
    def make_callable(
        self,
        fetches: Fetches,
        feed_list: Sequence[Tensor | str] = (),
        targets: Iterable[Node | Tensor | str] = (),
        *,
        metadata: RunMetadata | None = None,
    ) -> Callable[..., Awaitable[Any]]:
        """An async function that takes the values of *feed_list* and returns the values of *fetches*.

        It is the quickest way to run one signature many times.  Errors are those of run().  With *metadata*, each call
        is traced, and fills it anew.
        """
        self._check_open()
        wanted = as_tuple(targets)
        mapper = FetchMapper(self.graph, fetches)  # of the nest as it is now
        feed_keys = tuple(feed_list)
        num_feeds = len(feed_keys)
        feed_tensors(self.graph, feed_keys)
        target_nodes(self.graph, wanted)
        key = (structure_key(fetches), *feed_keys, TARGETS, *wanted)
        traced = () if metadata is None else (RunOptions(trace=True), metadata)

        async def run(*values: object) -> Any:
            if len(values) != num_feeds:
                raise InvalidArgumentError(f"this callable takes {num_feeds} values, not {len(values)}")
            prepared = self._cache.get(key)
            if prepared is None or self._is_guarded:
                return await self._run_admitted(key, prepared or mapper, feed_keys, wanted, values, *traced)
            if prepared.tier.plain is not None and not traced:
                try:
                    return self._runner.call(prepared, values)
                except (LargeFeedError, NotCalledError):
                    pass
            return await self._runner.run(prepared, values, *traced)

        call: Callable[..., Coroutine[Any, Any, Any]] = run
        timeout_s, spans = self.config.timeout, self._spans
        if timeout_s is not None:
            call = lambda *values: within(timeout_s, run(*values))  # noqa: E731
        return (lambda *values: spans.observed(call(*values))) if spans.hooks else call

    @contextlib.asynccontextmanager
    async def partial_run(
        self,
        fetches: Fetches,
        feeds: Iterable[Tensor | str] = (),
        *,
        targets: Iterable[Node | Tensor | str] = _NO_TARGETS,
    ) -> AsyncIterator[PartialRun]:
        """One step that is fed and fetched bit by bit, in any order; each node runs once.

        ``async with session.partial_run([y, z], [x, w]) as step:``, then ``await step.feed({x: 1})`` and ``await
        step.fetch(y)``.  Leaving the block ends the step.  If everything has been fed and fetched, it runs to its end,
        targets included.  Otherwise the nodes that still run are cancelled.

        Args:
            fetches: the tensors that may be fetched, as run() takes them.
            feeds: the tensors that may be fed.
            targets: operations to run as soon as their inputs are there.

        Raises:
            OpError: the step failed, and no feed or fetch has raised this error before.  PartialRun tells the errors of
                feeding and fetching.
        """
        self._check_open()
        mapper, feed_keys, wanted = FetchMapper(self.graph, fetches), as_feed_keys(feeds), as_tuple(targets)
        _partial_run.check_partial(mapper, feed_tensors(self.graph, feed_keys), target_nodes(self.graph, wanted))
        key = (structure_key(fetches), *feed_keys, TARGETS, *map(structure_key, wanted))
        self._loop.enter()
        admission = await self._admission.enter()
        try:
            prepared = self._cache.get(key) or await self._prepare(key, mapper, feed_keys, wanted)
            step: PartialRun = _partial_run.PartialRun(self.graph, prepared, self._spans, self._steps.discard)
            self._steps.add(step.scope)
            async with step:
                yield step
        except BaseException:
            self._counts.failed += 1
            raise
        else:
            self._counts.completed += 1
        finally:
            self._admission.leave(admission)

    async def extend(self, graph_def: GraphDef, *, allowed_ops: Collection[str] = ()) -> None:
        """Add the nodes of *graph_def* to the session's graph; their inputs may name existing nodes.

        Args:
            graph_def: the nodes and functions to add.
            allowed_ops: op types that may reach outside the graph (files, user-defined ops); runs of others fail.

        Raises:
            OpError: as of ``ax.import_graph_def``; the graph is then unchanged.
        """
        self._check_open()
        self._loop.enter()
        async with self._loop.build_lock:
            self._check_open()
            with paused_gc():
                await run_in_slices(import_into(self.graph, graph_def, allowed_ops), self._clock)

    def list_devices(self) -> list[str]:
        """The names of the session's devices."""
        return [device.name for device in self._state.devices]

    def statistics(self) -> SessionStatistics:
        """The state of the session now."""
        parts = self._steps, self._admission, self._counts, self._cache, self._state, self._times, self._resource_mgr
        return statistics_of(*parts)

    async def close(self) -> None:
        """End the steps under way, the worker threads and all resources.

        New calls are refused.  Running and waiting calls have ``SessionConfig.drain_timeout_s`` to end; then their
        callers get CancelledError.  FailedPreconditionError if another event loop uses the session.
        """
        self._loop.enter()
        self._is_guarded = True
        self._admission.close()
        try:
            await self._drain()
        finally:
            self._admission.lock()
            await self._end()

    async def _drain(self) -> None:
        timeout_s = self.config.drain_timeout_s
        if timeout_s != 0 and not self._is_called_by_a_step():  # one that closes its session would wait for itself
            self._steps.close_streams(CancelledError("Session has been closed."))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._admission.wait_until_all_have_left()

    async def _end(self) -> None:
        if self._loop.is_closed:  # this is what is left of a call in it
            return
        self._steps.abort(CancelledError("Session has been closed."))
        try:
            if self._is_called_by_a_step():
                await self._steps.wait_until_none()  # which waits for the caller in turn, and cancels it
            else:
                await outlast(lambda: not self._steps, self._steps.wait_until_none)
            await self._resource_mgr.background.end()
        finally:
            self._resource_mgr.close()
            self._cache.clear()
            if not self._loop.is_closed:
                await self._state.close()

    def _is_called_by_a_step(self) -> bool:
        return self._admission.is_inside or self._steps.has_task(asyncio.current_task())

    def _check_open(self) -> None:
        self._admission.check_open()

    async def _prepare(
        self,
        key: object,
        mapper: FetchMapper,
        feed_keys: Sequence[object],
        targets: Iterable[object],
        *,
        is_shared: bool = True,
        worker: str | None = None,
    ) -> ExecutorsAndKeys:
        """The executor of a signature, built now if nobody has; callers that come meanwhile wait."""
        shared = self._cache.by_content if is_shared else None
        signature = mapper, feed_keys, as_tuple(targets), shared, worker
        return await self._cache.get_or_build(key, lambda: build_in_slices(self._state, self.graph, *signature))
