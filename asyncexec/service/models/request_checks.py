"""RequestChecks: what a request feeds to a model and wants of it, checked against the model's signature."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Tensor
from asyncexec.service.models.signature import Signature, TensorSpec, missing_inputs
from asyncexec.service.requests import InferRequest
from asyncexec.session.fetch_mapper import structure_key

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array


class _Input(NamedTuple):
    """What is known of an input: *sizes* are those dimensions that are known, and *rank* is None where nothing is."""

    spec: TensorSpec
    tensor: Tensor[Any]
    datatype: str
    rank: int | None
    sizes: tuple[tuple[int, int], ...]
    is_reshaped: bool


class RequestChecks:
    """Checks requests to the model of that *name*, which takes *most_rows* rows, or has no rows where that is 0."""

    def __init__(self, name: str, signature: Signature, most_rows: int) -> None:
        self._name = name
        self._signature = signature
        self._most_rows = most_rows
        self._inputs = {name: _input(spec) for name, spec in signature.inputs.items()}
        self._all_outputs = list(signature.outputs.values())
        self._key_of_all = _key_of(self._all_outputs)

    def outputs(self, names: Sequence[str] | None) -> Sequence[TensorSpec]:
        """The outputs of these *names*, or all.

        Raises:
            InvalidArgumentError: one is not known, or there twice.
        """
        if not names:
            return self._all_outputs
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"output '{max(names, key=names.count)}' already exists in request")
        return [self.spec_of(name, "output") for name in names]

    def key_of(self, wanted: Sequence[TensorSpec]) -> Any:
        """The structure key of *wanted*, which outputs() has given."""
        return self._key_of_all if wanted is self._all_outputs else _key_of(wanted)

    def spec_of(self, name: str, role: str) -> TensorSpec:
        """The input or output, as *role* says, of that *name*; InvalidArgumentError where there is none."""
        specs = self._signature.inputs if role == "input" else self._signature.outputs
        spec = specs.get(name)
        if spec is None:
            known = ", ".join(specs) or "none"
            raise InvalidArgumentError(
                f"unexpected inference {role} '{name}' for model '{self._name}'", hint=f"allowed {role}s are: {known}"
            )
        return spec

    def feeds(self, request: InferRequest) -> dict[Tensor[Any], Array]:
        """What *request* feeds.

        Raises:
            InvalidArgumentError: inputs are missing or not known, have another datatype or shape, or differ in rows.
        """
        inputs, given = self._inputs, request.inputs
        feeds: dict[Tensor[Any], Array] = {}
        for name, (datatype, array, _) in given.items():
            known = inputs.get(name)
            if known is None:
                raise self._unknown_input(name)
            spec, tensor, expected, rank, sizes, is_reshaped = known
            if datatype != expected:
                raise InvalidArgumentError(
                    f"inference input '{name}' data-type is '{datatype}', but model '{self._name}' expects '{expected}'"
                )
            shape = array.shape
            if rank is not None:
                if len(shape) != rank:
                    raise self._wrong_shape(spec, shape)
                for i, size in sizes:
                    if shape[i] != size:
                        raise self._wrong_shape(spec, shape)
            feeds[tensor] = spec.to_graph(array) if is_reshaped else array
        if len(given) < len(inputs):
            self._check_missing(given)
        if self._most_rows > 0:
            self._check_rows(request)
        return feeds

    def num_rows(self, request: InferRequest) -> int:
        """The rows of *request*."""
        if self._most_rows > 0:
            for _, array, _ in request.inputs.values():
                if array.ndim:
                    rows: int = array.shape[0]
                    return rows
        return 1

    def _unknown_input(self, name: str) -> InvalidArgumentError:
        known = ", ".join(self._inputs) or "none"
        return InvalidArgumentError(
            f"unexpected inference input '{name}' for model '{self._name}'", hint=f"allowed inputs are: {known}"
        )

    def _wrong_shape(self, spec: TensorSpec, shape: tuple[int, ...]) -> InvalidArgumentError:
        expected, got = (",".join(map(str, sizes)) for sizes in (spec.shape or (), shape))
        return InvalidArgumentError(
            f"unexpected shape for input '{spec.name}' for model '{self._name}'. Expected [{expected}], got [{got}]."
        )

    def _check_missing(self, given: Collection[str]) -> None:
        specs = self._signature.inputs
        missing = [name for name, spec in specs.items() if name not in given and not spec.is_optional]
        if missing:
            raise missing_inputs(self._name, specs, given, missing)

    def _check_rows(self, request: InferRequest) -> None:
        if len(request.inputs) > 1:
            sizes = {name: value.array.shape[:1] for name, value in request.inputs.items()}
            if len(set(sizes.values())) > 1:
                told = ", ".join(f"{name} has {list(size)}" for name, size in sizes.items())
                raise InvalidArgumentError(f"inputs of model '{self._name}' differ in their batch size: {told}")
        rows = self.num_rows(request)
        if rows > self._most_rows:
            raise InvalidArgumentError(
                f"inference request batch-size must be <= {self._most_rows} for '{self._name}', and is {rows}"
            )


def rows_of(arrays: Iterable[Array]) -> int:
    """The rows of *arrays*: the size of their first dimension, or 1 where they have none."""
    for array in arrays:
        if array.ndim:
            rows: int = array.shape[0]
            return rows
    return 1


def _key_of(wanted: Sequence[TensorSpec]) -> object:
    return structure_key([spec.tensor for spec in wanted])


def _input(spec: TensorSpec) -> _Input:
    shape = spec.shape
    sizes = () if shape is None else tuple((i, size) for i, size in enumerate(shape) if size >= 0)
    rank = None if shape is None else len(shape)
    return _Input(spec, spec.tensor, spec.datatype, rank, sizes, spec.inner_shape is not None)
