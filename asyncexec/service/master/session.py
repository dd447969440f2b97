"""One session of a client of TensorFlow: a graph, variables, partial runs and callables of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, NamedTuple

from asyncexec.framework.errors import (
    AbortedError,
    InvalidArgumentError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.framework.tensor_proto import ByteBudget
from asyncexec.graph.graph import Graph
from asyncexec.importers.graph_formats import parse_graph_def
from asyncexec.importers.run_events import run_metadata_to_proto
from asyncexec.service.http.body import off_loop
from asyncexec.service.master.tensors import tensor_from_bytes, tensor_to_bytes
from asyncexec.session.deadline import within
from asyncexec.session.direct_session import Session
from asyncexec.session.partial_run import PartialRun
from asyncexec.session.session_config import RunOptions, SessionConfig

_MAX_CPUS: Final = 64
_MAX_PARTIAL_RUNS: Final = 1000
_NO_OPTIMIZATION: Final = -1  # OptimizerOptions.Level
_TRACED_NODE_BYTES: Final = 256  # of RunMetadata, about


class Signature(NamedTuple):
    """What a client asks a session for: names of feeds and fetches, as of tensors, and of targets."""

    feeds: Sequence[str]
    fetches: Sequence[str]
    targets: Sequence[str]

    @classmethod
    def of(cls, feeds: Iterable[str], fetches: Iterable[str], targets: Iterable[str]) -> Signature:
        """That of names as clients give them, where the name of a node stands for its first output."""
        return cls([*map(_tensor_name, feeds)], [*map(_tensor_name, fetches)], list(targets))


class Answer(NamedTuple):
    """Serialized tensors, and RunMetadata or b""."""

    tensors: list[bytes]
    metadata: bytes


class _OpenPartialRun:
    """A partial run between the calls of its client.

    These come in tasks of their own, so another task is inside its block.
    """

    def __init__(self, block: AbstractAsyncContextManager[PartialRun], signature: Signature) -> None:
        self._pending = {*signature.feeds, *signature.fetches}
        self._begun: asyncio.Future[PartialRun] = asyncio.get_running_loop().create_future()
        self._is_complete = asyncio.Event()
        self._task = asyncio.create_task(self._hold(block))

    async def _hold(self, block: AbstractAsyncContextManager[PartialRun]) -> None:
        async with block as step:
            self._begun.set_result(step)
            await self._is_complete.wait()

    async def begin(self) -> None:
        """Wait until it can be fed; what it raises is that of ``Session.partial_run``."""
        ends: list[asyncio.Future[Any]] = [self._begun, self._task]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def run(self, feeds: Mapping[str, Any], fetches: Sequence[str]) -> list[Any]:
        """Feed *feeds*, and the values of *fetches*."""
        step = self._begun.result()
        if feeds:
            await step.feed(feeds)
            self._pending.difference_update(feeds)
        values: list[Any] = await step.fetch(list(fetches)) if fetches else []
        self._pending.difference_update(fetches)
        if not self._pending:
            self._is_complete.set()
            await asyncio.shield(self._task)
        return values

    @property
    def is_over(self) -> bool:
        """Whether there is no more to be had of it."""
        return self._is_complete.is_set() or (self._begun.done() and self._begun.result().has_failed)

    async def close(self) -> None:
        """Cancel what runs of it."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # its client has been told, or has left


class MasterSession:
    """One session of a client.

    Args:
        config: a message ConfigProto.
        resources: has the variables, and the named queues and tables, of all sessions.
        allowed_ops: op types that reach outside the graph and that its graph may have all the same.
        idle_s: after so many seconds without a call, *on_idle* is called.

    Attributes:
        handle: what its client calls it by; nobody can guess it.
        graph_version: how often its graph has been extended.
        num_calls: how many calls are under way.
    """

    def __init__(
        self,
        config: Any,
        resources: ResourceMgr,
        allowed_ops: frozenset[str],
        idle_s: float,
        on_idle: Callable[[MasterSession], None],
    ) -> None:
        self.handle: str = secrets.token_hex(16)
        self.graph_version: int = 0
        self._allowed_ops = allowed_ops
        self._idle_s, self._on_idle = idle_s, on_idle
        shared = None if config.isolate_session_state else resources
        self._session = Session(Graph(), _session_config(config), resources=shared)
        self._extending = asyncio.Lock()
        self._partial_runs: dict[str, _OpenPartialRun] = {}
        self._callables: dict[int, tuple[Signature, object]] = {}
        self._num_callables = 0
        self.num_calls: int = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @contextmanager
    def used(self) -> Iterator[None]:
        """While a call is under way, the session is not idle."""
        self.num_calls += 1
        self._stop_timer()
        try:
            yield
        finally:
            self.num_calls -= 1
            if not (self.num_calls or self._is_closed):
                self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._on_idle, self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def add(self, graph_def: bytes) -> None:
        """Add the nodes and functions of a serialized GraphDef."""
        parsed = await off_loop(len(graph_def), lambda: parse_graph_def(graph_def, "pb", source="the graph"))
        await self._session.extend(parsed, allowed_ops=self._allowed_ops)

    async def extend(self, graph_def: bytes, version: int) -> int:
        """``add`` to the graph of that *version*; the version that it has then."""
        async with self._extending:
            if version != self.graph_version:
                raise AbortedError(f"Current version is {self.graph_version} but caller expected {version}.")
            await self.add(graph_def)
            self.graph_version += 1
            return self.graph_version

    async def run(self, signature: Signature, feeds: Sequence[bytes], options: Any) -> Answer:
        """One step; *feeds* are the values of those of *signature*, *options* a message RunOptions."""
        values_by_name = await _read(signature.feeds, feeds)
        run_options, metadata = None, None
        if options.ByteSize():
            run_options = RunOptions(
                timeout=options.timeout_in_ms / 1000 if options.timeout_in_ms > 0 else None,
                trace=options.trace_level > 0,
                output_partition_graphs=options.output_partition_graphs,
            )
            if run_options.trace or run_options.output_partition_graphs:
                metadata = RunMetadata()
        with _refused_to_clients():
            values = await self._session.run(
                signature.fetches, values_by_name, targets=signature.targets, options=run_options, metadata=metadata
            )
        tensors = await self._written(signature.fetches, values)
        return Answer(tensors, b"" if metadata is None else await _metadata_bytes(metadata, self._session.graph))

    async def _written(self, names: Sequence[str], values: Sequence[object]) -> list[bytes]:
        dtypes = [self._session.graph.tensor(name).dtype.base_dtype for name in names]
        return await off_loop(
            sum(map(_num_bytes, values)),
            lambda: [tensor_to_bytes(value, dtype) for value, dtype in zip(values, dtypes, strict=True)],
        )

    async def begin_partial_run(self, signature: Signature) -> str:
        """The handle of a new partial run."""
        if len(self._partial_runs) >= _MAX_PARTIAL_RUNS:
            raise ResourceExhaustedError(f"the session has {_MAX_PARTIAL_RUNS} partial runs under way")
        block = self._session.partial_run(signature.fetches, signature.feeds, targets=signature.targets)
        handle, partial_run = secrets.token_hex(16), _OpenPartialRun(block, signature)
        self._partial_runs[handle] = partial_run
        try:
            with _refused_to_clients():
                await partial_run.begin()
        except BaseException:
            await self._end_partial_run(handle)
            raise
        return handle

    async def run_partially(self, handle: str, signature: Signature, feeds: Sequence[bytes], options: Any) -> Answer:
        """Feed and fetch some of what the partial run of that *handle* has."""
        partial_run = self._partial_runs.get(handle)
        if partial_run is None:
            raise InvalidArgumentError("Must run 'setup' before performing partial runs!")
        call = partial_run.run(await _read(signature.feeds, feeds), signature.fetches)
        timeout_s = options.timeout_in_ms / 1000 if options.timeout_in_ms > 0 else self._session.config.timeout
        try:
            values = await (call if timeout_s is None else within(timeout_s, call))
        finally:
            if partial_run.is_over:
                await self._end_partial_run(handle)
        return Answer(await self._written(signature.fetches, values), b"")

    async def _end_partial_run(self, handle: str) -> None:
        partial_run = self._partial_runs.pop(handle, None)
        if partial_run is not None:
            await partial_run.close()

    def make_callable(self, signature: Signature, options: object) -> int:
        """The number by which *signature* is run from now on, with *options*."""
        self._num_callables += 1
        self._callables[self._num_callables] = signature, options
        return self._num_callables

    async def run_callable(self, number: int, feeds: Sequence[bytes]) -> Answer:
        """One step of what ``make_callable`` gave *number*."""
        if number not in self._callables:
            raise InvalidArgumentError(f"No such callable handle: {number}")
        signature, options = self._callables[number]
        if len(feeds) != len(signature.feeds):
            raise InvalidArgumentError(f"the callable takes {len(signature.feeds)} feeds, not {len(feeds)}")
        return await self.run(signature, feeds, options)

    def release_callable(self, number: int) -> None:
        """Forget a callable."""
        self._callables.pop(number, None)

    def list_devices(self) -> list[str]:
        """The names of its devices."""
        return self._session.list_devices()

    async def close(self) -> None:
        """End the calls under way, and drop all that it has."""
        self._is_closed = True
        self._stop_timer()
        for handle in list(self._partial_runs):
            await self._end_partial_run(handle)
        await self._session.close()


@contextmanager
def _refused_to_clients() -> Iterator[None]:
    """What the program that imports a graph may allow its ops, a client cannot: it is told so."""
    try:
        yield
    except PermissionDeniedError as error:
        if error.hint is None:
            raise
        hint = "the service does not let its clients do that"
        raise PermissionDeniedError(error.message, node=error.node, op=error.op, hint=hint) from None


def _session_config(config: Any) -> SessionConfig:
    """What *config*, a message ConfigProto, asks for; devices are those of the service, but for the number of CPUs."""
    cpus = config.device_count.get("CPU", 1)
    if not 1 <= cpus <= _MAX_CPUS:
        raise InvalidArgumentError(f"device_count of CPU is {cpus}; it can be 1 to {_MAX_CPUS}")
    timeout_ms, graph_options = config.operation_timeout_in_ms, config.graph_options
    is_plain = graph_options.optimizer_options.opt_level == _NO_OPTIMIZATION
    return SessionConfig(
        device_count={"CPU": cpus},
        allow_soft_placement=config.allow_soft_placement,
        place_pruned_graph=graph_options.place_pruned_graph,
        optimization="L0" if is_plain else "on",
        timeout=timeout_ms / 1000 if timeout_ms > 0 else None,
    )


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"


async def _read(names: Sequence[str], tensors: Sequence[bytes]) -> dict[str, Any]:
    """The values of serialized *tensors*, by name."""

    def read() -> dict[str, Any]:
        budget, values = ByteBudget(), dict[str, Any]()
        for name, tensor in zip(names, tensors, strict=True):
            if name in values:
                raise InvalidArgumentError(f"{name!r} is fed more than once")
            try:
                values[name] = tensor_from_bytes(tensor, budget)
            except OpError as error:
                raise type(error)(f"feed {name!r}: {error.message}") from None
        return values

    return await off_loop(sum(map(len, tensors)), read)


async def _metadata_bytes(metadata: RunMetadata, graph: Graph) -> bytes:
    data: bytes = await off_loop(
        graph.num_nodes * _TRACED_NODE_BYTES, lambda: run_metadata_to_proto(metadata).SerializeToString()
    )
    return data


def _num_bytes(value: object) -> int:
    return len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0)
