"""Session: runs parts of a graph in the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias

from asyncexec.executor.step_scope import StepScope
from asyncexec.executor.step_stats_collector import StepStatsCollector
from asyncexec.framework import types
from asyncexec.framework.cooperative import run_in_slices
from asyncexec.framework.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidTypeError,
    OpError,
)
from asyncexec.framework.gc_pause import paused_gc
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.frontend.graph_io import import_into
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.pruning.prune import path_to
from asyncexec.session.executors_and_keys import ExecutorsAndKeys
from asyncexec.session.fetch_mapper import FetchMapper, element, structure_key
from asyncexec.session.function_call_frame import feed_converter
from asyncexec.session.graph_execution_state import GraphExecutionState
from asyncexec.session.session_config import RunOptions, SessionConfig

Fetches: TypeAlias = Any
Feeds: TypeAlias = Mapping[Any, Any]  # of tensors and names; the keys of a Mapping are invariant

_NO_FEEDS: Final[Feeds] = {}
_NO_TARGETS: Final[tuple[Node, ...]] = ()
_TARGETS: Final = object()  # stands between feeds and targets in the key of a signature
_MAX_CACHED: Final = 1000  # signatures; the oldest goes when there are more


class Session:
    """Runs *graph*; variables, queues and worker threads live as long as it does.

    ``async with ax.Session(graph) as session:`` closes it at the end.  Any number of ``run`` calls may
    be under way at once.

    Args:
        graph: the graph to run; nodes added to it later can be run too.
        config: see SessionConfig.
    """

    def __init__(self, graph: Graph, config: SessionConfig | None = None) -> None:
        if not isinstance(graph, Graph):
            raise InvalidTypeError(f"a session runs an ax.Graph, not {type(graph).__name__}")
        self.graph = graph
        self.config = config or SessionConfig()
        self._resource_mgr = ResourceMgr()
        self._state = GraphExecutionState(graph, self.config, self._resource_mgr)
        self._cache: dict[Any, ExecutorsAndKeys] = {}
        self._build_lock = asyncio.Lock()
        self._steps: set[StepScope] = set()
        self._idle: asyncio.Event | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

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
            feeds: values by tensor or name; whatever only they would have needed is not run.
            targets: operations to run without fetching anything.
            options: see RunOptions.
            metadata: filled in place.

        Returns:
            The same nest with values: numpy arrays, numpy scalars for 0-d tensors, bytes for 0-d strings, Python
            objects.

        Raises:
            OpError: the first failure of the step; it names the node.  The rest of the step has been ended by then, and
                the session stays usable.
            asyncio.CancelledError: the caller was cancelled.
        """
        if options is not None and options.timeout is not None:
            return await self._run_within(options, fetches, feeds, targets, metadata)
        feeds = _NO_FEEDS if feeds is None else feeds
        try:
            values: Any = feeds.values()
            if targets is _NO_TARGETS:
                key = (structure_key(fetches), *feeds)
            else:
                targets = _as_tuple(targets)
                key = (structure_key(fetches), *feeds, _TARGETS, *map(structure_key, targets))
        except (AttributeError, RecursionError) as error:
            raise _bad_call(feeds, error) from None
        prepared = self._cache.get(key)
        if prepared is None or self._is_closed:
            self._check_open()
            prepared = await self._prepare(key, FetchMapper(self.graph, fetches), tuple(feeds), targets)
        return await self._run_step(prepared, prepared.convert(values), options, metadata)

    async def _run_within(
        self,
        options: RunOptions,
        fetches: Fetches,
        feeds: Feeds | None,
        targets: Iterable[Node | Tensor | str],
        metadata: RunMetadata | None,
    ) -> Any:
        untimed = options.model_copy(update={"timeout": None})
        try:
            async with asyncio.timeout(options.timeout) as scope:
                return await self.run(fetches, feeds, targets=targets, options=untimed, metadata=metadata)
        except TimeoutError as error:
            if not scope.expired() or isinstance(error, OpError):
                raise
            raise DeadlineExceededError(f"the run took more than its timeout of {options.timeout:g} s") from None

    def make_callable(
        self, fetches: Fetches, feed_list: Sequence[Tensor | str] = (), targets: Iterable[Node | Tensor | str] = ()
    ) -> Callable[..., Awaitable[Any]]:
        """An async function of the values of *feed_list* that gives the values of *fetches*.

        The quickest way to run one signature many times.  Errors as of run().
        """
        self._check_open()
        wanted = _as_tuple(targets)
        mapper = FetchMapper(self.graph, fetches)  # of the nest as it is now
        feed_keys = tuple(feed_list)
        self._feed_tensors(feed_keys)
        self._target_nodes(wanted)
        key = (structure_key(fetches), *feed_keys, _TARGETS, *wanted)

        async def call(*values: Any) -> Any:
            if len(values) != len(feed_keys):
                raise InvalidArgumentError(f"this callable takes {len(feed_keys)} values, not {len(values)}")
            prepared = self._cache.get(key)
            if prepared is None or self._is_closed:
                prepared = await self._prepare(key, mapper, feed_keys, wanted)
            return await self._run_step(prepared, prepared.convert(values))

        return call

    async def extend(self, graph_def: GraphDef) -> None:
        """Add the nodes of *graph_def* to the session's graph; its inputs may name nodes that are there already."""
        self._check_open()
        import_into(self.graph, graph_def)

    def list_devices(self) -> list[str]:
        """The names of the session's devices."""
        return [device.name for device in self._state.devices]

    async def close(self) -> None:
        """End the steps under way (their callers get CancelledError), the worker threads and all resources."""
        self._is_closed = True
        for step in list(self._steps):
            step.abort(CancelledError("Session has been closed."))
        try:
            await self._wait_idle()
        finally:
            self._resource_mgr.close()
            self._cache.clear()
            await self._state.close()

    async def _wait_idle(self) -> None:
        if self._idle is None:
            self._idle = asyncio.Event()
        if self._steps:
            await self._idle.wait()

    def _check_open(self) -> None:
        if self._is_closed:
            raise CancelledError("Session has been closed.")

    async def _prepare(
        self, key: Any, mapper: FetchMapper, feed_keys: Sequence[Any], targets: Iterable[Any]
    ) -> ExecutorsAndKeys:
        """The executor of a signature, built now if nobody has; callers that come meanwhile wait."""
        self._check_open()
        async with self._build_lock:
            self._check_open()
            prepared = self._cache.get(key)
            if prepared is None:
                prepared = await self._build(mapper, feed_keys, targets)
                self._check_open()  # close() may have come meanwhile
                if len(self._cache) >= _MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
                self._cache[key] = prepared
        return prepared

    async def _build(self, mapper: FetchMapper, feed_keys: Sequence[Any], targets: Iterable[Any]) -> ExecutorsAndKeys:
        feeds = self._feed_tensors(feed_keys)
        nodes = [*mapper.targets, *self._target_nodes(targets)]
        tensors = tuple(mapper.tensors)
        fed = {(tensor.op, tensor.index) for tensor in feeds}
        with paused_gc():
            graph = await run_in_slices(self._state.prepare(feeds, tensors, nodes))
        return ExecutorsAndKeys(
            graph,
            feeds,
            tuple(feed_converter(tensor) for tensor in feeds),
            graph.executor,
            tuple(
                i for i, tensor in enumerate(tensors) if tensor.dtype.is_ref and (tensor.op, tensor.index) not in fed
            ),
            mapper.build,
        )

    def _feed_tensors(self, feed_keys: Sequence[Any]) -> tuple[Tensor, ...]:
        feeds: dict[tuple[Node, int], Tensor] = {}
        for key in feed_keys:
            tensor = _fed_tensor(self.graph, key)
            if (tensor.op, tensor.index) in feeds:
                raise InvalidArgumentError(f"tensor {tensor.name!r} is fed more than once", node=tensor.op)
            feeds[tensor.op, tensor.index] = tensor
        return tuple(feeds.values())

    def _target_nodes(self, targets: Iterable[Any]) -> list[Node]:
        found = [element(self.graph, target, "target") for target in targets]
        return [target.op if isinstance(target, Tensor) else target for target in found]

    async def _run_step(
        self,
        prepared: ExecutorsAndKeys,
        feeds: list[Any],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
    ) -> Any:
        collector = StepStatsCollector() if options is not None and options.trace else None
        step = prepared.executor.start(feeds, collector)
        try:
            if not step.run_inline():
                await self._finish_step(step)
        except OpError as error:
            raise _explained(error, prepared) from error.__cause__
        finally:
            if metadata is not None:
                self._fill(metadata, prepared, collector, options)
        return prepared.result(step.fetched())

    def _fill(
        self,
        metadata: RunMetadata,
        prepared: ExecutorsAndKeys,
        collector: StepStatsCollector | None,
        options: RunOptions | None,
    ) -> None:
        if collector is not None:
            metadata.step_stats = collector.step_stats(prepared.graph.node_devices())
        if options is not None and options.output_partition_graphs:
            metadata.partition_graphs = [part.as_graph_def() for part in prepared.graph.partitions.values()]

    async def _finish_step(self, step: StepScope) -> None:
        self._steps.add(step)
        try:
            await step.run()
        finally:
            self._steps.discard(step)
            if not self._steps and self._idle is not None:
                self._idle.set()


def _as_tuple(targets: Any) -> tuple[Any, ...]:
    if isinstance(targets, (str, Tensor, Node)):
        return (targets,)
    try:
        return tuple(targets)
    except TypeError:
        raise InvalidTypeError(f"targets is {type(targets).__name__} {targets!r}, not a list of operations") from None


def _bad_call(feeds: Any, error: Exception) -> OpError:
    """What is wrong with a call of run() whose arguments are not what they look like."""
    if isinstance(error, RecursionError):
        return InvalidArgumentError("the fetches are nested too deeply")
    return InvalidTypeError(f"feeds is {type(feeds).__name__} {feeds!r}, not a mapping of tensors to values")


def _fed_tensor(graph: Graph, key: Any) -> Tensor:
    if isinstance(key, Node) or (isinstance(key, str) and ":" not in key):
        name = key if isinstance(key, str) else key.name
        raise InvalidTypeError(f"feed key {name!r} names an operation, not a tensor", hint=f"feed {name + ':0'!r}")
    try:
        tensor = element(graph, key, "feed")
    except InvalidArgumentError as error:
        raise InvalidTypeError(error.message, hint=error.hint) from None
    assert isinstance(tensor, Tensor)  # a key with a colon is no operation
    if tensor.dtype.is_opaque and tensor.dtype is not types.object:
        raise InvalidArgumentError(f"tensor {tensor.name!r} is a {tensor.dtype.name} and cannot be fed", node=tensor.op)
    return tensor


def _explained(error: OpError, prepared: ExecutorsAndKeys) -> OpError:
    """Where a placeholder was not fed, say which fetch or target needs it."""
    if error.op in ("Placeholder", "PlaceholderV2") and error.hint is None:
        node = next((node for node in prepared.client_graph.nodes if node.name == error.node), None)
        if node is not None:
            path = [step.name for step in path_to(node, prepared.client_graph)]
            shown = path if len(path) <= 8 else [*path[:4], "...", *path[-3:]]
            error.hint = f"it is needed by way of {' -> '.join(shown)}"
            error.args = (str(error),)
    return error
