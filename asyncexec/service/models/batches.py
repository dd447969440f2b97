"""Batches: one run of a model for the rows of many calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from asyncexec.framework.errors import InternalError
from asyncexec.framework.spans import Hook
from asyncexec.framework.step_stats import RunMetadata, current_trace
from asyncexec.framework.types import int64
from asyncexec.frontend.basic_functions import placeholder
from asyncexec.frontend.batch import batch
from asyncexec.frontend.user_op import op
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import US_PER_S
from asyncexec.session.direct_session import Session
from asyncexec.session.session_config import RunOptions

if TYPE_CHECKING:
    from asyncexec.service.models.model import Model

# What a run gave, when it began and ended, and of how many rows it was; KNOWN where there was none.
Run: TypeAlias = tuple[Sequence[Any], int, int, int]


class Batches:
    """A graph around the session of *model*, whose only op is ``ax.batch``.

    Each row of a batch also gets the times of its run: so a call knows when it began, whoever else was in it.
    """

    def __init__(
        self,
        model: Model,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        batching: Any,
        max_running: int,
        hooks: Sequence[Hook],
    ) -> None:
        config = model.config
        self._inputs = inputs
        self._outputs = {spec.name: i for i, spec in enumerate(outputs)}
        fetches = [spec.tensor for spec in outputs]
        tensors = [spec.tensor for spec in self._inputs]

        @op(outputs=[*(tensor.dtype for tensor in fetches), int64])
        async def run_model(*values: Any) -> Any:
            rows, trace = len(values[0]), current_trace()
            metadata = None if trace is None else RunMetadata()
            feeds = dict(zip(tensors, values, strict=True))
            try:
                results, begun_ns, ran_ns, _ = await model.run_graph(fetches, feeds, rows, metadata=metadata)
            finally:
                if trace is not None and metadata is not None:
                    trace.include(metadata.step_stats)
            _check_rows(model.name, outputs, results, rows)
            return (*results, np.full((rows, 3), (begun_ns, ran_ns, rows), np.int64))

        preferred = sorted(batching.preferred_batch_size)
        self._most_rows = min(config.max_batch_size, preferred[-1]) if preferred else config.max_batch_size

        @batch(
            max_size=self._most_rows,
            timeout_s=batching.max_queue_delay_microseconds / US_PER_S,
            max_running=max_running,
        )
        def rows(*values: Any) -> Any:
            return run_model(*values)

        with Graph() as graph:
            self._fed = {
                spec.tensor: placeholder(spec.tensor.dtype, _sizes(spec), name=f"input_{i}")
                for i, spec in enumerate(self._inputs)
            }
            found: Any = rows(*self._fed.values())
        *self._results, self._times = found
        self._session = Session(graph, hooks=hooks)

    @property
    def num_waiting(self) -> int:
        """The calls that wait for their batch."""
        return self._session.statistics().waiting_in_batches

    def takes(self, feeds: Mapping[Tensor[Any], Any]) -> bool:
        """Whether a call that feeds *feeds* can be a part of a batch: it feeds all there is, and has rows, but few."""
        sizes = (len(value) if value.ndim else 0 for value in feeds.values())
        return len(feeds) == len(self._inputs) and all(0 < size <= self._most_rows for size in sizes)

    async def run(
        self,
        wanted: Sequence[TensorSpec],
        feeds: Mapping[Tensor[Any], Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
    ) -> Run:
        """What a call that feeds *feeds* gets of its batch, or of its batches where one was not enough."""
        if metadata is not None:
            options = traced(options)
        fetches = [*(self._results[self._outputs[spec.name]] for spec in wanted), self._times]
        fed = {self._fed[tensor]: value for tensor, value in feeds.items()}
        *values, times = await self._session.run(fetches, fed, options=options, metadata=metadata)
        return values, int(times[0, 0]), int(times[-1, 1]), int(times[0, 2])

    async def close(self) -> None:
        """End it, when no call is under way any more."""
        await self._session.close()


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


def _sizes(spec: TensorSpec) -> list[int | None] | None:
    shape = spec.inner_shape or spec.shape
    return None if shape is None else [None, *(None if size < 0 else size for size in shape[1:])]
