"""What a client of TensorFlow Serving asks, whichever way it comes: of a model, its state, its signature, its classes.

A model has one signature here.  Calls that take Examples serve it by the names of its tensors, as TensorFlow Serving
does: the serialized Examples are "inputs"; "classes" and "scores", or "outputs", are the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.service.datatypes import as_bytes
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import LOADING, READY, UNAVAILABLE, UNLOADED, UNLOADING, ModelRepository
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import InferRequest, InferTensor
from asyncexec.service.tf_serving.messages import message

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

CLASSIFY: Final = "tensorflow/serving/classify"
REGRESS: Final = "tensorflow/serving/regress"
_STATES: Final = {READY: "AVAILABLE", LOADING: "LOADING", UNLOADING: "UNLOADING", UNAVAILABLE: "END"}
_INPUTS, _CLASSES, _SCORES, _OUTPUTS = "inputs", "classes", "scores", "outputs"


class VersionStatus(NamedTuple):
    """The state of a version, by TensorFlow Serving's name; and why it could not be loaded, or ""."""

    version: int
    state: str
    error: str


def find_model(repository: ModelRepository, name: str, version: str) -> Model:
    """The model called *name*; the newest version of it, if none is given.

    Raises:
        NotFoundError: "Servable not found for request: ..."; UnavailableError: it is not ready.
    """
    if not name:
        raise InvalidArgumentError("ModelSpec has no name specified.")
    try:
        return repository.model(name, version)
    except NotFoundError:
        asked = f"Specific({name}, {version})" if version else f"Latest({name})"
        raise NotFoundError(f"Servable not found for request: {asked}") from None


def check_signature(model: Model, name: str) -> None:
    """Raise InvalidArgumentError where *name*, of the signature that a client wants, is not that of *model* or ""."""
    if name not in ("", model.signature.name):
        raise InvalidArgumentError(
            f'Serving signature name: "{name}" not found in signature def',
            hint=f'"{model.signature.name}" is served',
        )


def version_statuses(repository: ModelRepository, name: str, version: str) -> list[VersionStatus]:
    """The states of the versions of *name*, the newest first, or of the one that is given.

    A model that has not been read yet, or cannot be, has the version 0.

    Raises:
        NotFoundError: there are none.
    """
    found = [
        VersionStatus(
            int(each.version or 0),
            _STATES[each.state],
            each.reason if each.state == UNAVAILABLE and each.reason != UNLOADED else "",
        )
        for each in repository.index()
        if each.name == name and each.state in _STATES and version in ("", each.version)
    ]
    if not found:
        told = f"version {version}" if version else "any versions"
        raise NotFoundError(f"Could not find {told} of model {name}")
    return sorted(found, reverse=True)


def signature_def_map(model: Model) -> Any:
    """A SignatureDefMap with the signature of *model*."""
    found = message("SignatureDefMap")()
    signature = found.signature_def[model.signature.name]
    signature.method_name = model.signature.method_name
    for name, spec in model.signature.inputs.items():
        _describe(signature.inputs[name], spec)
    for name, spec in model.signature.outputs.items():
        _describe(signature.outputs[name], spec)
    return found


def _describe(info: Any, spec: TensorSpec) -> None:
    """Tell in *info*, an empty TensorInfo, of *spec*."""
    info.name = spec.tensor.name
    info.dtype = spec.tensor.dtype.base_dtype.enum
    info.tensor_shape.unknown_rank = spec.shape is None
    for size in spec.shape or ():
        info.tensor_shape.dim.add(size=size)


async def classify(model: Model, examples: Sequence[bytes]) -> list[list[tuple[str, Any]]]:
    """The labels and scores of each of *examples*; the label is "", or the score 0, where the model gives none.

    Raises:
        InvalidArgumentError: the model is no classifier of Examples; OpError: what it raises.
    """
    known = model.signature.outputs
    wanted = [name for name in (_CLASSES, _SCORES) if name in known]
    if not wanted or len(known) > 2:
        raise _unfit(model, "classify", f"an output '{_CLASSES}' or '{_SCORES}' and at most one other", known)
    outputs = await _run(model, "classify", examples, wanted)
    for name, datatype in ((_CLASSES, "BYTES"), (_SCORES, "FP32")):
        if name in outputs:
            _check_output(model, name, outputs[name], datatype, len(examples))
    classes, scores = outputs.get(_CLASSES), outputs.get(_SCORES)
    shapes = {each.array.shape for each in outputs.values()}
    if len(shapes) > 1 or any(len(shape) != 2 for shape in shapes):
        told = ", ".join(f"'{name}' {list(each.array.shape)}" for name, each in outputs.items())
        raise InvalidArgumentError(f"expected [batch_size, num_classes] of model '{model.name}', but got {told}")
    (shape,) = shapes
    labels = np.full(shape, "", object) if classes is None else _texts(classes.array)
    values = np.zeros(shape, np.float32) if scores is None else scores.array
    return [list(zip(*row, strict=True)) for row in zip(labels, values, strict=True)]


async def regress(model: Model, examples: Sequence[bytes]) -> Array:
    """The value of each of *examples*.

    Raises:
        InvalidArgumentError: the model is no regressor of Examples; OpError: what it raises.
    """
    if list(model.signature.outputs) != [_OUTPUTS]:
        raise _unfit(model, "regress", f"the single output '{_OUTPUTS}'", model.signature.outputs)
    output = (await _run(model, "regress", examples, [_OUTPUTS]))[_OUTPUTS]
    _check_output(model, _OUTPUTS, output, "FP32", len(examples))
    if output.array.shape[1:] not in ((), (1,)):
        raise InvalidArgumentError(
            f"expected [batch_size] or [batch_size, 1] of model '{model.name}', but got {list(output.array.shape)}"
        )
    return output.array.reshape(-1)


async def _run(model: Model, call: str, examples: Sequence[bytes], wanted: list[str]) -> dict[str, InferTensor]:
    specs = model.signature.inputs
    if list(specs) != [_INPUTS] or specs[_INPUTS].datatype != "BYTES":
        raise _unfit(model, call, f"the single input '{_INPUTS}', of strings", specs)
    if not examples:
        raise InvalidArgumentError("Input is empty.")
    array = np.empty(len(examples), object)
    array[:] = examples
    request = InferRequest(model.name, {_INPUTS: InferTensor("BYTES", array)}, wanted, model.version)
    return dict((await model.infer(request)).outputs)


def _unfit(model: Model, call: str, needed: str, specs: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"a signature to {call} Examples has {needed}, but model '{model.name}' has: {', '.join(specs) or 'none'}",
        hint="call Predict",
    )


def _check_output(model: Model, name: str, output: InferTensor, datatype: str, count: int) -> None:
    if output.datatype != datatype or output.array.shape[:1] != (count,):
        raise InvalidArgumentError(
            f"output '{name}' of model '{model.name}' is {output.datatype} {list(output.array.shape)}, "
            f"expected {datatype} for {count} Examples"
        )


def _texts(array: Array) -> Array:
    """The labels in *array*; what is not UTF-8 in them is replaced, for no message can carry it."""
    texts = np.empty(array.size, object)
    texts[:] = [as_bytes(item).decode(errors="replace") for item in array.flat]
    return texts.reshape(array.shape)
