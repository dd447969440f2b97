"""The graph of an ensemble: an async op for each step, which calls its model.

The responses of a decoupled model are a stream.  Steps behind it run for each of its items, so that tensors belong to
streams: those of one are there equally often.  A step takes the tensors of one stream alone.  The graph is cut at each
decoupled step: what that takes is fetched, and placeholders are fed with what its model gives.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from asyncexec.framework.errors import InvalidArgumentError, OpError, error_class
from asyncexec.frontend.basic_functions import identity, placeholder
from asyncexec.frontend.user_op import op
from asyncexec.graph.node import Tensor
from asyncexec.service.client_errors import told_to_client
from asyncexec.service.datatypes import dtype_of
from asyncexec.service.models.model import Model
from asyncexec.service.models.outputs import as_tensor
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.models.statistics import TimeSpent, current_ensemble
from asyncexec.service.requests import InferRequest, InferResponse

T = TypeVar("T")
Find: TypeAlias = Callable[[str, str], Model]  # the model of a name and version; an OpError where there is none

_OF_ENSEMBLE: Final = ("timeout",)  # parameters that steps do not get
_NO_NAME: Final = re.compile("[^A-Za-z0-9_.]")
_MOST_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class EnsembleCall:
    """A request of an ensemble, and the models of its steps; *inner* are those of the ensembles in it, too."""

    models: tuple[Model, ...]
    request: InferRequest | None
    inner: dict[Model, tuple[Model, ...]]
    spent: TimeSpent = field(default_factory=TimeSpent)

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """The steps that run while the block does are of this call."""
        token = current_ensemble_call.set(self)
        try:
            yield
        finally:
            current_ensemble_call.reset(token)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """What models spend while the block runs is spent for this call."""
        token = current_ensemble.set(self.spent)
        try:
            yield
        finally:
            current_ensemble.reset(token)


async def items_within(
    context: Callable[[], AbstractContextManager[None]], items: AsyncGenerator[T, None]
) -> AsyncGenerator[T, None]:
    """*items*, each of which is made in a *context*, in which nobody is who takes them."""
    async with aclosing(items):
        while True:
            with context():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            yield item


current_ensemble_call: Final[ContextVar[EnsembleCall | None]] = ContextVar("asyncexec_ensemble_call", default=None)


@dataclass(frozen=True, slots=True)
class _Step:
    """Step *index* of *ensemble*: what it asks of the *model* of that name."""

    index: int
    ensemble: str
    model: str
    taken: Sequence[TensorSpec]
    given: Sequence[TensorSpec]

    def request(self, call: EnsembleCall, values: Sequence[object]) -> InferRequest:
        """What it asks in *call*, with *values* for what it takes."""
        model, request = call.models[self.index], call.request
        inputs = {spec.name: as_tensor(spec.datatype, value) for spec, value in zip(self.taken, values, strict=True)}
        parameters: Mapping[str, Any] = {} if request is None else request.parameters
        return InferRequest(
            model.name,
            inputs,
            [spec.name for spec in self.given],
            model.version,
            "" if request is None else request.id,
            {key: value for key, value in parameters.items() if key not in _OF_ENSEMBLE},
        )

    def arrays(self, response: InferResponse) -> list[Any]:
        """What it gives, of the *response* of its model."""
        return [response.outputs[spec.name].array for spec in self.given]

    @contextmanager
    def naming_itself(self) -> Iterator[None]:
        """An error of the block says which ensemble and which model it is of."""
        try:
            yield
        except OpError as error:
            code, told = told_to_client(error)
            raise error_class(code)(f"in ensemble '{self.ensemble}', model '{self.model}': {told}") from error


@dataclass(frozen=True, slots=True)
class Stream:
    """The responses of a decoupled step.

    Attributes:
        source: the stream of what it takes; None for what is there once.
        fetched: what it takes.
        fed: what it gives.
    """

    step: _Step
    source: Stream | None
    fetched: Sequence[Tensor[Any]]
    fed: Sequence[Tensor[Any]]

    async def items(self, call: EnsembleCall, values: Sequence[object]) -> AsyncGenerator[dict[Tensor[Any], Any], None]:
        """What each response of its model to *values*, those of *fetched*, feeds."""
        model = call.models[self.step.index]
        with self.step.naming_itself():
            asked = self.step.request(call, values)
            async with aclosing(items_within(call.timing, model.responses(asked, is_part=True))) as responses:
                async for response in responses:
                    yield dict(zip(self.fed, self.step.arrays(response), strict=True))

    def path(self) -> list[Stream]:
        """The streams that one comes through up to this one, which is the last."""
        return [*([] if self.source is None else self.source.path()), self]


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor of the ensemble: what it is in the graph, of whom, and in which stream."""

    tensor: Tensor[Any]
    spec: TensorSpec
    whose: str
    stream: Stream | None = None


@dataclass(frozen=True, slots=True)
class EnsembleGraph:
    """What was built: the tensors of inputs and outputs by name, and the *streams* that the outputs come through."""

    inputs: dict[str, Tensor[Any]]
    outputs: dict[str, Tensor[Any]]
    streams: list[Stream]


def build_ensemble(name: str, config: object, find: Find) -> EnsembleGraph:
    """Build the ensemble called *name* of *config*, whose models *find* gives, in the current graph.

    Raises:
        InvalidArgumentError: one of its models has no such tensor; tensors do not fit, have no source, or need
            themselves, or are of several streams.
    """
    return _Builder(name, config, find).build()


class _Builder:
    """Builds the graph of the ensemble called *name* in the current graph."""

    def __init__(self, name: str, config: Any, find: Find) -> None:
        self._name = name
        self._config = config
        self._has_batch = config.max_batch_size > 0
        self._find = find
        self._made: dict[str, _Made] = {}

    def build(self) -> EnsembleGraph:
        self._check_fields()
        inputs: dict[str, Tensor[Any]] = {}
        for i, each in enumerate(self._config.input):
            spec = self._input_spec(each)
            sizes = _shape(spec)
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
        outputs = {each.name: self._made[each.name] for each in self._config.output}
        stream = self._stream_of(list(outputs), "its outputs are")
        streams = [] if stream is None else stream.path()
        return EnsembleGraph(inputs, {name: made.tensor for name, made in outputs.items()}, streams)

    def _error(self, told: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"ensemble '{self._name}': {told}")

    def _check_fields(self) -> None:
        config, steps = self._config, self._config.ensemble_scheduling.step
        if not 0 < len(steps) <= _MOST_STEPS:
            raise self._error(f"'ensemble_scheduling' has {len(steps)} steps, and must have 1 to {_MOST_STEPS}")
        if config.response_cache.enable:
            raise self._error("'response_cache' is for the models that it calls")
        for role in ("input", "output"):
            if not getattr(config, role):
                raise self._error(f"its config must name each '{role}'")

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
        model = self._find(step.model_name, version_of(step))
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
        stream = self._stream_of(
            list(step.input_map.values()), f"step {i} of model '{model.name}' takes tensors that are"
        )
        given = [model.signature.outputs[name] for name in step.output_map]
        tensors = [made.tensor for _, made in taken]
        its = _Step(i, self._name, model.name, [spec for spec, _ in taken], given)
        if model.is_decoupled:
            results = [placeholder(_dtype(spec), _shape(spec), name=f"step_{i}_{k}") for k, spec in enumerate(given)]
            stream = Stream(its, stream, tensors, results)
        else:
            found = _step_op(its)(*tensors)
            results = list(found) if isinstance(found, (list, tuple)) else [found]
        for spec, result in zip(given, results, strict=True):
            made = _Made(identity(result), spec, f"model '{model.name}'", stream)
            self._made[step.output_map[spec.name]] = made

    def _stream_of(self, names: Sequence[str], told: str) -> Stream | None:
        """The stream of the tensors called *names*, which must be one for all."""
        first, *others = names or [""]
        stream = self._made[first].stream if first else None
        for name in others:
            if self._made[name].stream is not stream:
                places = (f"'{each}' {_told(self._made[each].stream)}" for each in (first, name))
                raise self._error(f"{told} not there equally often: {', and '.join(places)}")
        return stream

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


def _told(stream: Stream | None) -> str:
    if stream is None:
        return "is there once for a request"
    return f"is there for each response of step {stream.step.index}, decoupled model '{stream.step.model}'"


def _step_op(step: _Step) -> Callable[..., Any]:
    """The op that calls the model of *step*."""

    async def call(*values: object) -> Any:
        current = current_ensemble_call.get()
        assert current is not None  # whoever runs the graph has set it
        with step.naming_itself(), current.timing():
            arrays = step.arrays(await current.models[step.index].infer(step.request(current, values), is_part=True))
        return tuple(arrays) if len(arrays) > 1 else arrays[0]

    name = _NO_NAME.sub("_", f"Model_{step.model}")
    return op(call, name=name, outputs=[_dtype(spec) for spec in step.given], shapes=[_shape(s) for s in step.given])


def _dtype(spec: TensorSpec) -> object:
    return spec.tensor.dtype.base_dtype


def _shape(spec: TensorSpec) -> list[int | None] | None:
    return None if spec.shape is None else [None if size < 0 else size for size in spec.shape]


def version_of(step: Any) -> str:
    """The version of its model that *step* of a config names; "" for the newest."""
    return str(step.model_version) if step.model_version > 0 else ""
