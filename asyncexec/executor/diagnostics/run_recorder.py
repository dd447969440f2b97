"""RunRecorder: gathers what a record of a run needs: what each recorded node gave, in the order in which they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from asyncexec.compilation.recorded_nodes import is_recorded
from asyncexec.durable.content import digest_of, has_more_than
from asyncexec.executor.diagnostics.output_sizes import Sizes
from asyncexec.executor.diagnostics.step_observer import NOT_KNOWN, Executed
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.errors import CancelledError, InvalidTypeError
from asyncexec.graph.node import Node, Tensor

Where: TypeAlias = tuple[str, ...]
_MAX_HASHED: Final = 64 * 1024  # bytes of inputs of which a digest is made in the event loop
_DIGEST_LENGTH: Final = 32
# Types of values that stay as they are while a step runs: arrays travel without a copy, and are never written to.
_LASTING: Final = frozenset({np.ndarray, bytes, *(t for t in np.sctypeDict.values() if t is not np.object_)})

# What collects the nodes of the run that begins in this context, where that is not a trace.
_collector: Final[ContextVar[StepStatsCollector | None]] = ContextVar("asyncexec_run_collector", default=None)


def collect_by(collector: StepStatsCollector | None) -> None:
    """Let *collector* gather what the next run in this context does that has ``trace=True``; None for none."""
    _collector.set(collector)


def take_collector() -> StepStatsCollector | None:
    """What gathers the run that begins; those that its nodes begin it does not."""
    found = _collector.get()
    if found is not None:
        _collector.set(None)
    return found


@dataclass(slots=True)
class RecordedCall:
    """One execution of a recorded node.

    Attributes:
        node, op: its name and op type.
        where: the loops around it and the iteration of each.
        start_s, end_s: by the clock of the event loop, from the begin of the run; None for one that had not ended.
        outputs: what it gave, one value for each output; error: or what it raised.
        inputs: the digest of what it was given; "" where that is large, has no content, or is not made yet.
        given: what it was given, where the digest is to be made of it.
    """

    node: str
    op: str
    where: Where
    start_s: float
    end_s: float | None = None
    outputs: Sequence[Any] = ()
    error: BaseException | None = None
    inputs: str = ""
    given: Sequence[object] | None = None

    def add_digest(self) -> None:
        """Make the digest of what it was given."""
        if self.given is not None:
            self.inputs, self.given = digest_of_inputs(self.given), None


class RunRecorder(StepStatsCollector):
    """Gathers the calls of one run; no more than *max_bytes* of what nodes gave.

    What is *known* of nodes, whether they are recorded, other runs may share.

    Attributes:
        ended: the calls that have ended, in that order.
        has_too_much: whether there were more bytes; nothing is kept then.
        feeds: the values fed, by the names of tensors; None as long as the step has not begun.
    """

    __slots__ = ("_began_s", "_is_recorded", "_loop", "_max_bytes", "_num_bytes", "_open", "_traces", "ended", "feeds")

    wants_outputs: ClassVar[bool] = True

    def __init__(self, max_bytes: int, known: dict[Node, bool], *, traces: bool = False, clock: Clock = CLOCK) -> None:
        super().__init__(clock)
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._traces = traces
        self._is_recorded = known
        self._open: dict[tuple[str, Where], RecordedCall] = {}
        self.ended: list[RecordedCall] = []
        self.feeds: Mapping[str, Any] | None = None

    @property
    def has_too_much(self) -> bool:
        return self._num_bytes > self._max_bytes

    @property
    def elapsed_s(self) -> float:
        """Since the begin of the run."""
        return self._loop.time() - self._began_s

    @property
    def open_calls(self) -> list[RecordedCall]:
        """The calls that have not ended, in the order in which they began."""
        return list(self._open.values())

    @property
    def is_trace(self) -> bool:
        return self._traces

    def note_feeds(self, feeds: Sequence[Tensor], values: Sequence[object]) -> None:
        self.feeds = {tensor.name: value for tensor, value in zip(feeds, values, strict=True)}
        self._count(values)

    def note_launch(self, item: Executed, where: Sequence[str], inputs: Sequence[object]) -> None:
        if self._is_wanted(item.node):
            key = item.node.name, tuple(where)
            call = self._open[key] = RecordedCall(*self._about(item, key[1]), self.elapsed_s)
            if all(map(_LASTING.__contains__, map(type, inputs))):
                if sum(map(_num_bytes, inputs)) <= _MAX_HASHED:
                    call.given = tuple(inputs)  # the executor takes the list apart
            else:
                call.inputs = digest_of_inputs(inputs)  # as they are now: Python objects may change

    def record(
        self,
        item: Executed,
        scheduled_ns: int,
        start_ns: int,
        end_ns: int,
        thread_id: int = 0,
        error: BaseException | None = None,
        outputs: Any = NOT_KNOWN,
        sizes: Sizes = (),
        where: Sequence[str] = (),
    ) -> None:
        if self._traces:
            super().record(item, scheduled_ns, start_ns, end_ns, thread_id, error, outputs, sizes, where)
        if not self._is_wanted(item.node):
            return
        key = item.node.name, tuple(where)
        call = self._open.pop(key, None) or RecordedCall(*self._about(item, key[1]), self.elapsed_s)
        if isinstance(error, (asyncio.CancelledError, CancelledError)):
            self._open[key] = call  # it has not ended by itself
            return
        call.end_s = self.elapsed_s
        call.error = error
        if error is None and outputs is not NOT_KNOWN:
            call.outputs = tuple(outputs or ()) if item.returns_tuple else (outputs,)
        self.ended.append(call)
        self._count(call.outputs)

    def _is_wanted(self, node: Node) -> bool:
        found = self._is_recorded.get(node)
        if found is None:
            found = self._is_recorded[node] = is_recorded(node)
        return found

    def _about(self, item: Executed, where: Where) -> tuple[str, str, Where]:
        return item.node.name, item.node.op, where

    def _count(self, values: Sequence[object]) -> None:
        self._num_bytes += sum(_num_bytes(value) for value in values)
        if self.has_too_much:
            self.ended.clear()
            self.feeds = {}


def digest_of_inputs(inputs: Sequence[object]) -> str:
    """The digest of what a call is given; "" where that is large, or has no content."""
    if has_more_than(inputs, _MAX_HASHED):
        return ""
    with suppress(InvalidTypeError):
        return digest_of(list(inputs)).hex()[:_DIGEST_LENGTH]
    return ""


def _num_bytes(value: object) -> int:
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return int(value.nbytes) + sum(map(_num_bytes, value.flat))
    return int(getattr(value, "nbytes", 0)) if isinstance(value, (np.ndarray, np.generic)) else 0
