"""SequenceModel: a model whose calls belong to sequences, each of which keeps states of its own from call to call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Sequence as Values
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.framework.errors import DeadlineExceededError, InvalidArgumentError
from asyncexec.framework.spans import Hook
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.models.batches import Run
from asyncexec.service.models.classes import Labels
from asyncexec.service.models.model import Model
from asyncexec.service.models.sequence_config import CORRID, END, START, Control, SequenceSpec
from asyncexec.service.models.sequences import Place, Sequences, place_of
from asyncexec.service.models.signature import Signature, TensorSpec
from asyncexec.service.requests import US_PER_S, InferRequest
from asyncexec.session.session_config import RunOptions
from asyncexec.session.workers import Cluster

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_WARMING_UP: Final = Place(1, is_start=True, is_end=True)


class SequenceModel(Model):
    """One version of a model with ``sequence_batching``: *spec* is what it has for that.

    A call that fails or is cancelled leaves the states as they were.
    """

    may_answer_at_once = False

    def __init__(
        self,
        name: str,
        version: str,
        graph: Graph,
        signature: Signature,
        config: Any,
        spec: SequenceSpec,
        *,
        labels: Labels | None = None,
        hooks: Values[Hook] = (),
        cluster: Cluster | None = None,
    ) -> None:
        self._spec = spec
        super().__init__(name, version, graph, signature, config, labels=labels, hooks=hooks, cluster=cluster)
        self.is_decoupled = config.model_transaction_policy.decoupled
        batching = config.sequence_batching
        candidates = batching.oldest.max_candidate_sequences or None
        self._sequences = Sequences(name, batching.max_sequence_idle_microseconds / US_PER_S, candidates)

    @property
    def num_sequences(self) -> int:
        return len(self._sequences)

    async def close(self) -> None:
        self._sequences.stop()
        await super().close()

    def _batching(self) -> object:
        batching = self.config.sequence_batching
        has_own = any(state.is_of_graph for state in self._spec.states)  # which have no rows
        return batching.oldest if batching.HasField("oldest") and not has_own else None

    def _tensors(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        inputs, outputs = super()._tensors()
        kept = {spec.name: spec for spec in (*outputs, *self._spec.outputs)}
        return [*inputs, *self._spec.inputs], list(kept.values())

    async def _values(
        self,
        request: InferRequest,
        wanted: Values[TensorSpec],
        feeds: Mapping[Tensor[Any], Array],
        metadata: RunMetadata | None,
        *,
        is_alone: bool,
    ) -> Run:
        place = place_of(request)
        if self._checks.num_rows(request) > 1:
            raise InvalidArgumentError(
                f"inference request to model '{self.name}' must specify batch-size 1 due to requirements of sequence "
                "batcher"
            )
        controls = self._controls(place)
        timeout_s = self._deadline_s(request)
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        async with self._sequences.turn(place, deadline) as kept:
            options = None if deadline is None else RunOptions(timeout=self._left_s(deadline))
            given = {**feeds, **controls, **(kept.values or self._initial())}
            run = await self._run([*wanted, *self._spec.outputs], given, options, metadata, is_alone=is_alone)
            values = run[0]
            left = values[len(wanted) :]
            kept.values = dict(zip([state.takes.tensor for state in self._spec.states], left, strict=True))
        return values[: len(wanted)], *run[1:]

    def _left_s(self, deadline: float) -> float:
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise DeadlineExceededError(f"a call to model '{self.name}' took more than its timeout: its turn came then")
        return left_s

    async def _warm(self, feeds: Mapping[Tensor[Any], Array]) -> None:
        place = _WARMING_UP if self._id_type() != "BYTES" else Place("1", is_start=True, is_end=True)
        await super()._warm({**feeds, **self._controls(place), **self._initial()})

    def _initial(self) -> dict[Tensor[Any], Any]:
        """What the states of a sequence begin with; those of the graph have it themselves."""
        return {state.takes.tensor: state.initial for state in self._spec.states if state.initial is not None}

    def _id_type(self) -> str | None:
        return next((control.spec.datatype for control in self._spec.controls if control.kind == CORRID), None)

    def _controls(self, place: Place) -> dict[Tensor[Any], Array]:
        """What tells the model of a call; it is always ready, for it runs for the calls that there are."""
        return {control.spec.tensor: self._told(control, place) for control in self._spec.controls}

    def _told(self, control: Control, place: Place) -> Array:
        spec = control.spec
        rank = 1 if spec.shape is None else len(spec.shape)
        dtype = spec.tensor.dtype.base_dtype.as_numpy_dtype
        if control.values is not None:
            is_so = {START: place.is_start, END: place.is_end}.get(control.kind, True)
            return np.full((1,) * rank, control.values[is_so], dtype)
        given = "BYTES" if isinstance(place.id, str) else "UINT64"
        if (given == "BYTES") != (spec.datatype == "BYTES"):
            raise InvalidArgumentError(
                f"sequence batching control '{spec.name}' data-type is '{given}', but model '{self.name}' expects "
                f"'{spec.datatype}'"
            )
        if isinstance(place.id, int) and place.id > np.iinfo(dtype).max:
            raise InvalidArgumentError(f"sequence {place.id} is too large for control '{spec.name}', {spec.datatype}")
        return np.full((1,) * rank, place.id.encode() if isinstance(place.id, str) else place.id, dtype)
