"""Ensembles: models whose graph is made of calls of other models of the repository (``ensemble_scheduling``).

Each step is an async op that calls its model, so steps run as soon as their inputs are there, and steps that no wanted
output needs do not run.  A request holds the models that it began with until its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.errors import InvalidArgumentError, OpError, UnavailableError
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.models.config import complete, config_in
from asyncexec.service.models.decoupled_model import WINDOW, DecoupledModel
from asyncexec.service.models.ensemble_graph import (
    EnsembleCall,
    Find,
    Stream,
    build_ensemble,
    current_ensemble_call,
    items_within,
    version_of,
)
from asyncexec.service.models.model import Model
from asyncexec.service.models.signature import signature_of
from asyncexec.service.models.statistics import ModelStatistics
from asyncexec.service.requests import InferRequest, InferResponse

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_PLATFORM: Final = "ensemble"


def is_ensemble(config: Any) -> bool:
    """Whether the model of *config* is one."""
    return bool(config.WhichOneof("scheduling_choice") == "ensemble_scheduling")


def models_of(folder: Path, config: Any = None) -> list[str]:
    """The models that the one in *folder*, or of *config*, calls; none where it is no ensemble, or cannot be read."""
    try:
        config = config_in(folder) if config is None else config
    except (OpError, OSError):
        return []  # who reads it to load it tells why
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


class _EnsembleStatistics(ModelStatistics):
    """Those of an ensemble, which spends what its models do: more than it takes, where they run side by side."""

    __slots__ = ()

    def note_run(self, rows: int, ns: int) -> None:
        super().note_run(rows, _current_call().spent.infer_ns)

    def note_success(
        self, rows: int, times: tuple[int, int, int, int, int, int], spent: tuple[int, int, int] | None = None
    ) -> None:
        own = _current_call().spent
        super().note_success(rows, times, (own.input_ns, own.infer_ns, own.output_ns))


def _current_call() -> EnsembleCall:
    call = current_ensemble_call.get()
    assert call is not None  # whoever runs an ensemble has set it
    return call


class EnsembleModel(Model):
    """A model that calls others; made by ``EnsembleModel.of``.

    Attributes:
        steps: the names and versions of the models that it calls; version "" is the newest.
    """

    may_answer_at_once = False

    def __init__(self, *args: Any, steps: list[tuple[str, str]], find: Find, **options: Any) -> None:
        super().__init__(*args, **options)
        self.steps: list[tuple[str, str]] = steps
        self._find = find

    @classmethod
    def of(cls, name: str, version: str, config: Any, find: Find, **options: Any) -> EnsembleModel:
        """The ensemble called *name* of *config*, whose models *find* gives; it is decoupled where one of them is.

        Raises:
            InvalidArgumentError: one of its models is not there, or has no such tensor; tensors do not fit, have no
                source, or need themselves, or are not there equally often.
        """
        steps = [(step.model_name, version_of(step)) for step in config.ensemble_scheduling.step]
        reason = _unready_reason(name, steps, find, ())
        if reason is not None:
            raise InvalidArgumentError(reason)
        with Graph() as graph:
            built = build_ensemble(name, config, find)
        signature = signature_of(graph, built.inputs, built.outputs, config)
        full = complete(config, name, signature, _PLATFORM)
        full.model_transaction_policy.decoupled = bool(built.streams)
        options |= {"steps": steps, "find": find}
        if built.streams:
            return DecoupledEnsemble(name, version, graph, signature, full, streams=built.streams, **options)
        return cls(name, version, graph, signature, full, **options)

    def _no_statistics(self) -> ModelStatistics:
        return _EnsembleStatistics()

    @property
    def unready_reason(self) -> str | None:
        """Which of its models is not there, or why one cannot be called; None where all can."""
        reason = self._missing
        if reason is not None:
            return reason
        found: dict[Model, tuple[Model, ...]] = {}
        self._find_models(found)
        for model in chain(*found.values()):
            reason = model.workers.unready_reason
            if reason is not None:
                return f"model '{model.name}': {reason}"
        return None

    @property
    def _missing(self) -> str | None:
        return _unready_reason(self.name, self.steps, self._find, ())

    async def infer(
        self, request: InferRequest, metadata: RunMetadata | None = None, *, is_part: bool = False
    ) -> InferResponse:
        """As of Model; UnavailableError where one of its models is not there."""
        with self._models_held(request) as call, call.as_current():
            return await super().infer(request, metadata, is_part=is_part)

    async def warm_up(self) -> None:
        """Run what the config says it should be warmed up by."""
        with self._models_held(None) as call, call.as_current():
            await super().warm_up()

    @contextmanager
    def _models_held(self, request: InferRequest | None) -> Iterator[EnsembleCall]:
        outer, found = current_ensemble_call.get(), dict[Model, tuple[Model, ...]]()
        if outer is not None and self in outer.inner:  # who holds this ensemble holds its models
            found = outer.inner
        else:
            reason = self._missing
            if reason is not None:
                raise UnavailableError(f"Request for unknown model: '{self.name}' is not at ready state: {reason}")
            self._find_models(found)
        with ExitStack() as stack:
            for model in chain(*found.values()):
                stack.enter_context(model.held())
            yield EnsembleCall(found[self], request, found)

    def _find_models(self, found: dict[Model, tuple[Model, ...]]) -> None:
        """Put the models of its steps into *found*, and those of the ensembles among them."""
        found[self] = tuple(self._find(name, version) for name, version in self.steps)
        for model in found[self]:
            if isinstance(model, EnsembleModel) and model not in found:
                model._find_models(found)


class DecoupledEnsemble(EnsembleModel, DecoupledModel):
    """An ensemble whose outputs come through *streams*, the responses of decoupled models.

    It has a response for each item of the last of them.
    """

    def __init__(self, *args: Any, streams: Sequence[Stream], **options: Any) -> None:
        self._streams = streams
        super().__init__(*args, sources=(), **options)

    @property
    def _has_items(self) -> bool:
        return True

    async def responses(self, request: InferRequest, *, is_part: bool = False) -> AsyncGenerator[InferResponse, None]:
        with self._models_held(request) as call:
            found = super().responses(request, is_part=is_part)
            async with aclosing(items_within(call.as_current, found)) as responses:
                async for response in responses:
                    yield response

    def _items(self, feeds: Mapping[Tensor[Any], Array]) -> AsyncGenerator[Mapping[Tensor[Any], object], None]:
        return self._items_of(self._streams, _current_call(), feeds)

    async def _items_of(
        self, streams: Sequence[Stream], call: EnsembleCall, feeds: Mapping[Tensor[Any], Array]
    ) -> AsyncGenerator[Mapping[Tensor[Any], object], None]:
        """The items of the last of *streams* in *call*, which feeds *feeds*."""
        if not streams:
            yield feeds
            return
        *before, last = streams
        async with (
            aclosing(self._items_of(before, call, feeds)) as items,
            self.session.map(list(last.fetched), items, window=WINDOW) as taken,
        ):
            async for values in taken:
                async with aclosing(last.items(call, values)) as found:
                    async for item in found:
                        yield item


def _unready_reason(
    ensemble: str, steps: list[tuple[str, str]], find: Find, within: tuple[str, ...], ready: set[Model] | None = None
) -> str | None:
    """Which model of *steps*, those of *ensemble*, is not there, or needs it or one *within* which it is called.

    *ready* are the models that have been looked at: many ensembles may call the same ones.
    """
    within, ready = (*within, ensemble), set() if ready is None else ready
    for name, version in steps:
        if name in within:
            return f"circular dependency between ensembles: {' -> '.join((*within, name))}"
        try:
            model = find(name, version)
        except OpError:
            told = f"whose required version {version} is not loaded" if version else "which has no loaded version"
            return f"ensemble '{ensemble}' depends on '{name}' {told}"
        if model in ready:
            continue
        inner = model.steps if isinstance(model, EnsembleModel) else []
        reason = _unready_reason(name, inner, find, within, ready)
        if reason is not None:
            return reason
        ready.add(model)
    return None
