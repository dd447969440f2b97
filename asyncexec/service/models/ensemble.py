"""Ensembles: models whose graph is made of calls of other models of the repository (``ensemble_scheduling``).

Each step is an async op that calls its model, so steps run as soon as their inputs are there, and steps that no wanted
output needs do not run.  A request holds the models that it began with until its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.errors import InvalidArgumentError, OpError, UnavailableError, error_class
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.frontend.basic_functions import identity, placeholder
from asyncexec.frontend.user_op import op
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.service.client_errors import told_to_client
from asyncexec.service.datatypes import dtype_of
from asyncexec.service.models.config import complete, config_in
from asyncexec.service.models.model import Model
from asyncexec.service.models.outputs import as_tensor
from asyncexec.service.models.signature import TensorSpec, signature_of
from asyncexec.service.requests import InferRequest, InferResponse

Find = Callable[[str, str], Model]  # the model of a name and version; an OpError where there is none

_PLATFORM: Final = "ensemble"
_OF_ENSEMBLE: Final = ("timeout",)  # parameters that steps do not get
_NO_NAME: Final = re.compile("[^A-Za-z0-9_.]")
_MOST_STEPS: Final = 1000


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


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor of the ensemble: what it is in the graph, and of whom."""

    tensor: Tensor[Any]
    spec: TensorSpec
    whose: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A request of an ensemble, and the models of its steps; *inner* are those of the ensembles in it, too."""

    models: tuple[Model, ...]
    request: InferRequest | None
    inner: dict[Model, tuple[Model, ...]]


_call: Final[ContextVar[_Call | None]] = ContextVar("asyncexec_ensemble_call", default=None)


class EnsembleModel(Model):
    """A model that calls others; made by ``EnsembleModel.of``.

    Attributes:
        steps: the names and versions of the models that it calls; version "" is the newest.
    """

    def __init__(self, *args: Any, steps: list[tuple[str, str]], find: Find, **options: Any) -> None:
        super().__init__(*args, **options)
        self.steps: list[tuple[str, str]] = steps
        self._find = find

    @classmethod
    def of(cls, name: str, version: str, config: Any, find: Find, **options: Any) -> EnsembleModel:
        """The ensemble called *name* of *config*, whose models *find* gives.

        Raises:
            InvalidArgumentError: one of its models is not there, or has no such tensor; tensors do not fit, have no
                source, or need themselves.
        """
        steps = [(step.model_name, _version(step)) for step in config.ensemble_scheduling.step]
        reason = _unready_reason(name, steps, find, ())
        if reason is not None:
            raise InvalidArgumentError(reason)
        with Graph() as graph:
            inputs, made = _Builder(name, config, find).build()
        tensors = {each.name: made[each.name].tensor for each in config.output}
        signature = signature_of(graph, inputs, tensors, config)
        full = complete(config, name, signature, _PLATFORM)
        return cls(name, version, graph, signature, full, steps=steps, find=find, **options)

    @property
    def unready_reason(self) -> str | None:
        """Which of its models is not there; None where all are."""
        return _unready_reason(self.name, self.steps, self._find, ())

    async def infer(
        self, request: InferRequest, metadata: RunMetadata | None = None, *, is_part: bool = False
    ) -> InferResponse:
        """As of Model; UnavailableError where one of its models is not there."""
        with self._models_held(request):
            return await super().infer(request, metadata, is_part=is_part)

    async def warm_up(self) -> None:
        """Run what the config says it should be warmed up by."""
        with self._models_held(None):
            await super().warm_up()

    @contextmanager
    def _models_held(self, request: InferRequest | None) -> Iterator[None]:
        outer, found = _call.get(), dict[Model, tuple[Model, ...]]()
        if outer is not None and self in outer.inner:  # who holds this ensemble holds its models
            found = outer.inner
        else:
            reason = self.unready_reason
            if reason is not None:
                raise UnavailableError(f"Request for unknown model: '{self.name}' is not at ready state: {reason}")
            self._find_models(found)
        with ExitStack() as stack:
            for model in chain(*found.values()):
                stack.enter_context(model.held())
            token = _call.set(_Call(found[self], request, found))
            try:
                yield
            finally:
                _call.reset(token)

    def _find_models(self, found: dict[Model, tuple[Model, ...]]) -> None:
        """Put the models of its steps into *found*, and those of the ensembles among them."""
        found[self] = tuple(self._find(name, version) for name, version in self.steps)
        for model in found[self]:
            if isinstance(model, EnsembleModel) and model not in found:
                model._find_models(found)


class _Builder:
    """Builds the graph of the ensemble called *name* in the current graph."""

    def __init__(self, name: str, config: Any, find: Find) -> None:
        self._name = name
        self._config = config
        self._has_batch = config.max_batch_size > 0
        self._find = find
        self._made: dict[str, _Made] = {}

    def build(self) -> tuple[dict[str, Tensor[Any]], dict[str, _Made]]:
        """The inputs of the ensemble, and all of its tensors."""
        self._check_fields()
        inputs: dict[str, Tensor[Any]] = {}
        for i, each in enumerate(self._config.input):
            spec = self._input_spec(each)
            sizes = None if spec.shape is None else _sizes(spec.shape)
            inputs[each.name] = tensor = placeholder(dtype_of(spec.datatype, each.name), sizes, name=f"input_{i}")
            self._made[each.name] = _Made(tensor, spec, "the ensemble's input")
        waiting = [(i, step, self._model(i, step)) for i, step in enumerate(self._config.ensemble_scheduling.step)]
        self._check_sources(waiting)
        while waiting:
            ready = [each for each in waiting if all(name in self._made for name in each[1].input_map.values())]
            if not ready:
                names = sorted({name for _, step, _ in waiting for name in step.output_map.values()})
                raise self._error(f"circular dependency between ensembles' tensors: {', '.join(names)}")
            for i, step, model in ready:
                self._add_step(i, step, model)
            waiting = [each for each in waiting if each not in ready]
        return inputs, self._made

    def _error(self, told: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"ensemble '{self._name}': {told}")

    def _check_fields(self) -> None:
        config, steps = self._config, self._config.ensemble_scheduling.step
        if not 0 < len(steps) <= _MOST_STEPS:
            raise self._error(f"'ensemble_scheduling' has {len(steps)} steps, and must have 1 to {_MOST_STEPS}")
        if config.response_cache.enable:
            raise self._error("'response_cache' is for the models that it calls")
        if config.model_transaction_policy.decoupled:
            raise self._error("it has one response for a request, and 'model_transaction_policy' says 'decoupled'")
        for field in ("input", "output"):
            if not getattr(config, field):
                raise self._error(f"its config must name each '{field}'")

    def _input_spec(self, each: Any) -> TensorSpec:
        value = type(each).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number.get(each.data_type)
        datatype = "" if value is None else value.name.removeprefix("TYPE_")
        datatype = "BYTES" if datatype == "STRING" else datatype
        if each.name in self._made or datatype in ("", "INVALID"):
            raise self._error(f"input '{each.name}' is there twice, or has no data type")
        shape = (*([-1] if self._has_batch else []), *each.dims) if each.dims else None
        return TensorSpec(each.name, datatype, shape, None, each.optional)  # type: ignore[arg-type]

    def _model(self, i: int, step: Any) -> Model:
        if step.model_namespace:
            raise self._error(f"step {i} has a 'model_namespace', and there are no namespaces of models")
        model = self._find(step.model_name, _version(step))
        given, taken = set(model.signature.outputs), model.signature.inputs
        for role, known, asked in (("input", set(taken), step.input_map), ("output", given, step.output_map)):
            if unknown := sorted(set(asked) - known):
                raise self._error(f"step {i} maps {role} '{unknown[0]}', and model '{model.name}' has no such {role}")
        required = {name for name, spec in taken.items() if not spec.is_optional}
        if missing := sorted(required - set(step.input_map)):
            raise self._error(f"step {i} does not map input '{missing[0]}' of model '{model.name}'")
        if not step.output_map:
            raise self._error(f"step {i} maps no output of model '{model.name}'")
        most, inner = self._config.max_batch_size, model.config.max_batch_size
        if most > inner > 0:
            raise self._error(f"'max_batch_size' is {most}, and model '{model.name}' takes {inner} at most")
        return model

    def _check_sources(self, steps: list[tuple[int, Any, Model]]) -> None:
        """Each tensor is given once, and those that are asked for are given."""
        given = set(self._made)
        for _, step, model in steps:
            for name in step.output_map.values():
                if name in given:
                    raise self._error(f"tensor '{name}', an output of model '{model.name}', is given twice")
                given.add(name)
        for i, step, model in steps:
            for name in step.input_map.values():
                if name not in given:
                    raise self._error(f"step {i} of model '{model.name}' takes tensor '{name}', which no step gives")
        for each in self._config.output:
            if each.name not in given:
                raise self._error(f"output '{each.name}' is given by no step")

    def _add_step(self, i: int, step: Any, model: Model) -> None:
        taken = [(spec, self._made[step.input_map[spec.name]]) for spec in self._taken(step, model)]
        for spec, made in taken:
            self._check_fits(step.input_map[spec.name], made, spec, f"model '{model.name}'")
        given = [model.signature.outputs[name] for name in step.output_map]
        results = _step_op(i, self._name, model.name, [spec for spec, _ in taken], given)(
            *[made.tensor for _, made in taken]
        )
        results = results if isinstance(results, (list, tuple)) else [results]
        for spec, result in zip(given, results, strict=True):
            self._made[step.output_map[spec.name]] = _Made(identity(result), spec, f"model '{model.name}'")

    def _taken(self, step: Any, model: Model) -> list[TensorSpec]:
        return [spec for name, spec in model.signature.inputs.items() if name in step.input_map]

    def _check_fits(self, name: str, made: _Made, spec: TensorSpec, whose: str) -> None:
        told = f"tensor '{name}'"
        if made.spec.datatype != spec.datatype:
            raise self._error(
                f"{told}: inconsistent data type: {made.spec.datatype} of {made.whose}, and {spec.datatype} of {whose}"
            )
        one, other = made.spec.shape, spec.shape
        if one is None or other is None:
            return
        if len(one) != len(other) or any(
            -1 not in sizes and sizes[0] != sizes[1] for sizes in zip(one, other, strict=True)
        ):
            raise self._error(f"{told}: inconsistent shape: {list(one)} of {made.whose}, and {list(other)} of {whose}")


def _step_op(i: int, ensemble: str, name: str, taken: list[TensorSpec], given: list[TensorSpec]) -> Callable[..., Any]:
    """The op that calls the model called *name*, step *i* of *ensemble*."""
    dtypes = [spec.tensor.dtype.base_dtype for spec in given]
    shapes = [None if spec.shape is None else _sizes(spec.shape) for spec in given]

    async def call(*values: Any) -> Any:
        current = _call.get()
        assert current is not None  # infer() and warm_up() set it
        model, request = current.models[i], current.request
        inputs = {spec.name: as_tensor(spec.datatype, value) for spec, value in zip(taken, values, strict=True)}
        parameters: Mapping[str, Any] = {} if request is None else request.parameters
        asked = InferRequest(
            model.name,
            inputs,
            [spec.name for spec in given],
            model.version,
            "" if request is None else request.id,
            {key: value for key, value in parameters.items() if key not in _OF_ENSEMBLE},
        )
        try:
            found = (await model.infer(asked, is_part=True)).outputs
        except OpError as error:
            code, told = told_to_client(error)
            raise error_class(code)(f"in ensemble '{ensemble}', model '{name}': {told}") from error
        arrays = [found[spec.name].array for spec in given]
        return tuple(arrays) if len(arrays) > 1 else arrays[0]

    return op(call, name=_NO_NAME.sub("_", f"Model_{name}"), outputs=dtypes, shapes=shapes)


def _version(step: Any) -> str:
    return str(step.model_version) if step.model_version > 0 else ""


def _unready_reason(ensemble: str, steps: list[tuple[str, str]], find: Find, within: tuple[str, ...]) -> str | None:
    """Which model of *steps*, those of *ensemble*, is not there, or needs it or one *within* which it is called."""
    within = (*within, ensemble)
    for name, version in steps:
        if name in within:
            return f"circular dependency between ensembles: {' -> '.join((*within, name))}"
        try:
            model = find(name, version)
        except OpError:
            told = f"whose required version {version} is not loaded" if version else "which has no loaded version"
            return f"ensemble '{ensemble}' depends on '{name}' {told}"
        inner = model.steps if isinstance(model, EnsembleModel) else []
        reason = _unready_reason(name, inner, find, within)
        if reason is not None:
            return reason
    return None


def _sizes(shape: tuple[int, ...]) -> list[int | None]:
    return [None if size < 0 else size for size in shape]
