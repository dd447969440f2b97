"""StepStats and RunMetadata, with the fields of ``tensorflow/core/framework/step_stats.proto``."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from asyncexec.framework.chrome_trace import write_chrome_trace
from asyncexec.framework.graph_def import GraphDef


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class NodeExecStats(_Record):
    """One live execution of a node.  ``..._rel_...`` counts from ``all_start``; ``all_start`` is since 1970.

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
    timeline_label: str = ""
    thread_id: int = 0
    attempts: int = 0  # calls that were made until one succeeded
    limiter_wait_micros: int = 0  # in the line of the limiter, before all attempts together; by the loop's clock
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
    """Filled in place by ``session.run(..., metadata=RunMetadata())``.

    ``step_stats`` needs ``RunOptions(trace=True)``; ``partition_graphs`` needs
    ``RunOptions(output_partition_graphs=True)``.  ``passes`` tells what was made of the graph before it ran; with
    ``RunOptions(output_pass_graphs=True)`` it has the graph after each of them.

    The entries of ``step_stats`` are made when it is first asked for.
    """

    step_stats: StepStats = Field(default_factory=StepStats)
    partition_graphs: list[GraphDef] = Field(default_factory=list)
    passes: list[PassStats] = Field(default_factory=list)
    _make_step_stats: Callable[[], StepStats] | None = PrivateAttr(None)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write ``step_stats`` to *path* as a timeline, which ui.perfetto.dev and chrome://tracing show."""
        write_chrome_trace(self.step_stats, path)

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
