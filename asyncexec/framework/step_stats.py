"""StepStats and RunMetadata, with the fields of ``tensorflow/core/framework/step_stats.proto``."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from asyncexec.framework.chrome_trace import write_chrome_trace
from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.tensor_protos import TensorShapeProto
from asyncexec.framework.wire_types import DataType

_step_stats_html = LazyModule("asyncexec.framework.step_stats_html")


class _Record(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)


class _Shared(_Record):
    """A record that many executions share, and nobody changes."""

    model_config = ConfigDict(frozen=True)


class AllocatorMemoryUsed(_Shared):
    """The bytes of an execution's outputs, which its kernel may have allocated or not: they may be those of an input.

    What a kernel allocates besides is not known.  So ``total_bytes`` and ``peak_bytes`` are ``live_bytes``, what is
    there when it has ended.
    """

    allocator_name: str = ""
    total_bytes: int = 0
    peak_bytes: int = 0
    live_bytes: int = 0


class AllocationDescription(_Shared):
    """The bytes of a tensor; of an array of strings, those of its references."""

    requested_bytes: int = 0
    allocated_bytes: int = 0
    allocator_name: str = ""


class TensorDescription(_Shared):
    """A tensor without its values; without bytes where it is a Python object."""

    dtype: DataType = 0
    shape: TensorShapeProto = TensorShapeProto.model_construct()
    allocation_description: AllocationDescription | None = None


class NodeOutput(_Shared):
    """An output of a node that is not dead."""

    slot: int = 0
    tensor_description: TensorDescription = Field(default_factory=TensorDescription)


class NodeExecStats(_Record):
    """One live execution of a node.  ``..._rel_...`` counts from ``all_start``; ``all_start`` is since 1970.

    An execution that failed has no ``output``, and a constant, which was there before the step, no ``memory``.

    The last three TensorFlow does not have; two of them are 0 but for ops with a timeout, retries or a limiter.
    """

    node_name: str
    all_start_micros: int
    op_start_rel_micros: int = 0
    op_end_rel_micros: int = 0
    all_end_rel_micros: int = 0
    all_start_nanos: int = 0
    op_start_rel_nanos: int = 0
    op_end_rel_nanos: int = 0
    all_end_rel_nanos: int = 0
    scheduled_micros: int = 0
    scheduled_nanos: int = 0
    memory: list[AllocatorMemoryUsed] = Field(default_factory=list)
    output: list[NodeOutput] = Field(default_factory=list)
    timeline_label: str = ""
    thread_id: int = 0
    attempts: int = 0  # calls that were made until one succeeded
    limiter_wait_micros: int = 0  # in the queue of the limiter, before all attempts together; by the loop's clock
    failure: str = ""  # why it gave nothing: "cancelled", or its error


class DeviceStepStats(_Record):
    """What one device ran in a step."""

    device: str
    node_stats: list[NodeExecStats] = Field(default_factory=list)
    thread_names: dict[int, str] = Field(default_factory=dict)


class StepStats(_Record):
    """What a step ran, device by device."""

    dev_stats: list[DeviceStepStats] = Field(default_factory=list)


class PassStats(_Record):
    """What a step from the graph to what devices run has changed: a graph pass, or what stands between them.

    ``examples`` are names of nodes: ``+`` were added, ``-`` removed, ``~`` changed.
    """

    name: str
    grouping: str = ""  # "" for what is no pass
    device: str = ""  # where it has changed the graph of one device
    num_nodes_before: int
    num_nodes_after: int
    num_added: int = 0
    num_removed: int = 0
    num_changed: int = 0
    examples: list[str] = Field(default_factory=list)
    graph: GraphDef | None = None  # after it


class RunMetadata(_Record):
    """What a run tells about itself: ``session.run(..., metadata=metadata)`` fills it in place.

    ``step_stats`` needs ``RunOptions(trace=True)``; ``partition_graphs`` needs
    ``RunOptions(output_partition_graphs=True)``.  ``passes`` tells how each pass changed the graph before it ran; with
    ``RunOptions(output_pass_graphs=True)`` it has the graph after each pass.

    The entries of ``step_stats`` are made when they are first read.

    >>> metadata = ax.RunMetadata()
    >>> with ax.BlockingSession(ax.current_graph()) as session:
    ...     session.run(ax.constant(1, name="x"), options=ax.RunOptions(trace=True), metadata=metadata)
    np.int32(1)
    >>> [node.node_name for node in metadata.step_stats.dev_stats[0].node_stats]
    ['x']

    Raises:
        pydantic.ValidationError: a field is unknown or has another type; a ValueError.
    """

    step_stats: StepStats = Field(default_factory=StepStats)
    partition_graphs: list[GraphDef] = Field(default_factory=list)
    passes: list[PassStats] = Field(default_factory=list)
    _make_step_stats: Callable[[], StepStats] | None = PrivateAttr(None)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write ``step_stats`` to *path* as a timeline, which ui.perfetto.dev and chrome://tracing show.

        Raises:
            FailedPreconditionError: there are no step stats: the run was not traced.
            OSError: the file cannot be written.
        """
        if not self.step_stats.dev_stats:
            raise FailedPreconditionError(
                "there are no step stats to save", hint="trace the run: options=ax.RunOptions(trace=True)"
            )
        write_chrome_trace(self.step_stats, path)

    def __repr__(self) -> str:
        described: str = _step_stats_html.described(self)
        return described

    __str__ = __repr__

    def _repr_html_(self) -> str:
        html: str = _step_stats_html.metadata_html(self)
        return html

    def defer_step_stats(self, make: Callable[[], StepStats]) -> None:
        """Let ``step_stats`` be what *make* gives, called when somebody asks for it."""
        self._make_step_stats = make
        self.__dict__.pop("step_stats", None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make ``step_stats``, which is not there yet; anything else is not there at all."""
            if name != "step_stats" or self._make_step_stats is None:
                return super().__getattr__(name)
            self.step_stats, self._make_step_stats = self._make_step_stats(), None
            return self.__dict__[name]

    def __getstate__(self) -> dict[Any, Any]:
        assert self.step_stats is not None  # it is there from here on
        return super().__getstate__()

    @model_serializer(mode="wrap")
    def _serialized(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        assert self.step_stats is not None  # it is there from here on
        found: dict[str, Any] = serialize(self)
        return found


class StepTrace(Protocol):
    """What is gathered of a step that is traced."""

    def include(self, stats: StepStats) -> None:
        """Let *stats*, of a step that has run for this one and perhaps for others, be a part of it."""
        ...


TraceToken: TypeAlias = "Token[StepTrace | None]"
_TRACE: Final[ContextVar[StepTrace | None]] = ContextVar("asyncexec_step_trace", default=None)


def begin_trace(trace: StepTrace) -> TraceToken:
    """From now on, what runs in this context belongs to *trace*; what ``end_trace`` takes."""
    return _TRACE.set(trace)


def end_trace(token: TraceToken) -> None:
    """It is as before ``begin_trace`` again."""
    with suppress(ValueError):  # closed from another context, with its event loop
        _TRACE.reset(token)


def current_trace() -> StepTrace | None:
    """The trace of the step that is running, if it is traced."""
    return _TRACE.get()


@dataclass(slots=True)
class CallStats:
    """What the kernel of an async node counts while it is called, besides times.

    The kernel says ``begin_call()``; whoever records the execution asks ``ended_call()`` in the same task afterwards.
    """

    task: weakref.ref[asyncio.Task[Any]] | None = None
    attempts: int = 0
    limiter_wait_s: float = 0.0
    cached: str = ""  # of an op with a cache: hit, joined, miss

    @property
    def limiter_wait_micros(self) -> int:
        return round(self.limiter_wait_s * 1e6)


_CURRENT: Final[ContextVar[CallStats | None]] = ContextVar("asyncexec_call_stats", default=None)


def begin_call() -> CallStats:
    """The counts of the call that the running task makes, all 0."""
    task = asyncio.current_task()
    stats = CallStats(None if task is None else weakref.ref(task))
    _CURRENT.set(stats)
    return stats


def ended_call() -> CallStats | None:
    """The counts of the call that the running task has made, if its kernel counts any.

    A task started by that kernel, such as one of a run inside of it, inherits them, and is not told.
    """
    stats = _CURRENT.get()
    if stats is None or stats.task is None or stats.task() is not asyncio.current_task():
        return None
    return stats
