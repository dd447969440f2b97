"""What a model keeps from call to call of a sequence, and what it is told of the call: ``sequence_batching``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.importers.files import read_file
from asyncexec.service.datatypes import from_raw
from asyncexec.service.models.signature import TensorSpec, declared_type, spec_of
from asyncexec.session.stream_plan import find_stream_nodes

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_STATES: Final = "initial_state"  # the folder of a model that has the files
_MOST_ELEMENTS: Final = 2**26  # of the initial value of a state
# The fields that have what is fed for False and True, and the datatype that each is for.
_FALSE_TRUE: Final = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}
_OF_IDS: Final = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")
START, END, READY, CORRID = (f"CONTROL_SEQUENCE_{name}" for name in ("START", "END", "READY", "CORRID"))


@dataclass(frozen=True, slots=True)
class Control:
    """An input that tells the model of the call.

    Attributes:
        kind: what is told: START, END, READY or CORRID.
        spec: of the input.
        values: what is fed for False and True; nothing for CORRID.
    """

    kind: str
    spec: TensorSpec
    values: tuple[Any, Any] | None


@dataclass(frozen=True, slots=True)
class State:
    """A value that a call of a sequence takes as the call before has left it.

    Attributes:
        takes, gives: the input and the output.
        initial: what the first call takes; None where the graph itself has the initial value.
    """

    takes: TensorSpec
    gives: TensorSpec
    initial: Array | None

    @property
    def is_of_graph(self) -> bool:
        """Whether the graph has it itself, by ``ax.stream_state``, say."""
        return self.initial is None


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """What a model has for sequences."""

    controls: tuple[Control, ...]
    states: tuple[State, ...]

    @property
    def inputs(self) -> list[TensorSpec]:
        """What is fed beside what clients send."""
        return [*(control.spec for control in self.controls), *(state.takes for state in self.states)]

    @property
    def outputs(self) -> list[TensorSpec]:
        """What is fetched beside what clients get."""
        return [state.gives for state in self.states]

    @property
    def hidden(self) -> frozenset[Tensor[Any]]:
        """What clients neither send nor get; a state that the graph has itself may be an output, too."""
        declared = [state for state in self.states if not state.is_of_graph]
        specs = [control.spec for control in self.controls]
        specs += [spec for state in declared for spec in (state.takes, state.gives)]
        return frozenset(spec.tensor for spec in specs)


def sequence_spec(
    graph: Graph,
    inputs: Mapping[str, Tensor[Any]],
    outputs: Mapping[str, Tensor[Any]],
    config: Any,
    folder: Path | None = None,
) -> SequenceSpec | None:
    """What the model of *graph* has for sequences; None where *config* does not ask for them.

    Args:
        inputs, outputs: tensors that are known by other names than in the graph.
        folder: of the model, which may have files of initial states.

    Raises:
        InvalidArgumentError: *config* is not what it should be, or does not fit the graph.
    """
    if not config.HasField("sequence_batching"):
        return None
    found = SequenceSpec(
        tuple(_controls(graph, inputs, config)),
        (*_states(graph, inputs, outputs, config, folder), *_stream_states(graph)),
    )
    names = [spec.name for spec in found.inputs] + [each.name for each in config.input]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgumentError(f"'{twice}' is to be fed twice: it is a control, a state or an input")
    return found


def _controls(graph: Graph, inputs: Mapping[str, Tensor[Any]], config: Any) -> Iterator[Control]:
    seen: set[str] = set()
    for each in config.sequence_batching.control_input:
        spec = spec_of(graph, each.name, "input", inputs)
        if len(each.control) != 1:
            raise InvalidArgumentError(
                f"sequence batching control '{each.name}' is of {len(each.control)} kinds, not 1"
            )
        (control,) = each.control
        kinds = type(control).DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number
        kind = kinds[control.kind].name if control.kind in kinds else str(control.kind)
        if kind in seen:
            raise InvalidArgumentError(f"sequence batching specifies multiple {kind} tensors")
        seen.add(kind)
        yield Control(kind, spec, _control_values(each.name, kind, control, spec))


def _control_values(name: str, kind: str, control: object, spec: TensorSpec) -> tuple[object, object] | None:
    if kind == CORRID:
        datatype = declared_type(control).removeprefix("TYPE_")
        if datatype not in _OF_IDS:
            raise InvalidArgumentError(
                f"control '{name}' is {datatype}, and {CORRID} is one of {', '.join(_OF_IDS)} (TYPE_STRING)"
            )
        values = None
    else:
        given = [field for field in _FALSE_TRUE if len(getattr(control, field))]
        if len(given) != 1 or len(getattr(control, given[0])) != 2:
            raise InvalidArgumentError(
                f"sequence batching control '{name}' must have one of {', '.join(_FALSE_TRUE)}, with exactly 2 entries"
            )
        datatype = _FALSE_TRUE[given[0]]
        values = tuple(getattr(control, given[0]))
    if datatype != spec.datatype:
        raise InvalidArgumentError(f"control '{name}' is {spec.datatype} in the graph, and its config says {datatype}")
    return values


def _states(
    graph: Graph,
    inputs: Mapping[str, Tensor[Any]],
    outputs: Mapping[str, Tensor[Any]],
    config: Any,
    folder: Path | None,
) -> Iterator[State]:
    for each in config.sequence_batching.state:
        takes = spec_of(graph, each.input_name, "input", inputs)
        gives = spec_of(graph, each.output_name, "output", outputs)
        declared = declared_type(each).removeprefix("TYPE_")
        if not takes.datatype == gives.datatype == declared:
            raise InvalidArgumentError(
                f"state '{each.input_name}' is {takes.datatype}, '{each.output_name}' is {gives.datatype}, "
                f"and their config says {declared}"
            )
        yield State(takes, gives, _initial(each, takes, folder, has_batch=config.max_batch_size > 0))


def _initial(state: Any, takes: TensorSpec, folder: Path | None, *, has_batch: bool) -> Array:
    name, dims = state.input_name, list(state.dims)
    if len(state.initial_state) > 1:
        raise InvalidArgumentError(f"state '{name}' has {len(state.initial_state)} initial states, not one or none")
    if state.initial_state:
        (initial,) = state.initial_state
        known = list(initial.dims)
        if declared_type(initial) != declared_type(state):
            raise InvalidArgumentError(f"the data type of the initial state of '{name}' is not that of the state")
        if len(known) != len(dims) or any(size not in (-1, given) for size, given in zip(dims, known, strict=True)):
            raise InvalidArgumentError(f"the initial state of '{name}' has dims {known}, which do not fit {dims}")
        dims = known
    else:
        dims = [1 if size == -1 else size for size in dims]
    if any(size < 0 for size in dims) or math.prod(dims) > _MOST_ELEMENTS:
        raise InvalidArgumentError(f"state '{name}' begins with dims {dims}, which are negative or too large")
    shape = [1, *dims] if has_batch else dims
    if not takes.takes(tuple(shape)):
        raise InvalidArgumentError(f"state '{name}' begins with the shape {shape}, and its input has {takes.shape}")
    if state.initial_state and state.initial_state[0].data_file:
        return _read(name, takes.datatype, shape, state.initial_state[0].data_file, folder)
    dtype = takes.tensor.dtype.base_dtype.as_numpy_dtype
    return np.full(shape, b"", object) if dtype.kind == "O" else np.zeros(shape, dtype)


def _read(name: str, datatype: str, shape: Sequence[int], file: str, folder: Path | None) -> Array:
    if folder is None or Path(file).name != file:
        raise InvalidArgumentError(f"the initial state of '{name}' is in no file of the model: {file}")
    return from_raw(name, datatype, shape, read_file(folder / _STATES / file, "an initial state")).copy()


def _stream_states(graph: Graph) -> Iterator[State]:
    """Those that the graph has itself, by ``ax.stream_state`` and ``ax.window``."""
    writes = [node for node in graph.operations if node.op == "StreamStateWrite"]
    for read, written in run_at_once(find_stream_nodes(graph, writes, frozenset())).states:
        if read.op.op == "KeyedStateRead":
            raise InvalidArgumentError(f"a model with sequences cannot have the state by key '{read.op.name}'")
        shape = read.shape.dims
        known = None if shape is None else tuple(-1 if size is None else size for size in shape)
        yield State(
            TensorSpec(read.op.name, "", known, read), TensorSpec(written.op.name, "", known, written), initial=None
        )
