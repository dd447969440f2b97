"""Bodies of TensorFlow Serving's REST calls: JSON <-> tensors and Examples.

A Predict in the row format has ``instances``, a list with the values of each row, and is answered by ``predictions``;
in the columnar format it has ``inputs``, tensors as nested lists, and is answered by ``outputs``.  Where there is one
tensor, its name may be left out of a request, and is left out of the answer.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.datatypes import as_bytes, dtype_of, from_json
from asyncexec.service.http.codec import json_object, optional
from asyncexec.service.models.model import Model
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import InferRequest, InferResponse, InferTensor
from asyncexec.service.tf_serving.calls import check_signature
from asyncexec.service.tf_serving.messages import message

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_INSTANCES, _INPUTS, _B64 = "instances", "inputs", "b64"
_BYTES_SUFFIX: Final = "_bytes"  # of the name of an output that is no text
_HALVES: Final = ("FP16", "BF16")
_INT64: Final = np.iinfo(np.int64)
_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class PredictCall:
    """What a body asks for, and whether in the row format."""

    request: InferRequest
    is_row: bool


@dataclass(frozen=True, slots=True)
class ExamplesCall:
    """The Examples of a body, serialized, and the signature that it names."""

    signature_name: str
    examples: list[bytes]


def decode_predict(model: Model, version: str, body: bytes) -> PredictCall:
    """What *body*, sent to the *version* of *model*, asks for; InvalidArgumentError if it is malformed."""
    document = json_object(body)
    check_signature(model, optional(document, "signature_name", str) or "")
    is_row = _INSTANCES in document
    if is_row and _INPUTS in document:
        raise InvalidArgumentError(f"the request has both '{_INPUTS}' and '{_INSTANCES}'; one is expected")
    if not is_row and _INPUTS not in document:
        raise InvalidArgumentError(f"Missing '{_INPUTS}' or '{_INSTANCES}' key")
    values = _by_name(model, document[_INPUTS]) if not is_row else _columns(model, document[_INSTANCES])
    inputs = {name: _tensor(_spec(model, name), value) for name, value in values.items()}
    return PredictCall(InferRequest(model.name, inputs, None, version), is_row)


def encode_predict(call: PredictCall, response: InferResponse) -> bytes:
    """The body that answers *call*; InvalidArgumentError where outputs are no rows, and rows are asked for."""
    outputs = {name: _encodable(name, tensor) for name, tensor in response.outputs.items()}
    if not call.is_row:
        return orjson.dumps({"outputs": _alone_or_all(outputs)}, option=_NUMPY)
    shapes = {name: tensor.array.shape for name, tensor in response.outputs.items()}
    count = next(iter(shapes.values()), ())[:1]
    for name, shape in shapes.items():
        if not shape or shape[:1] != count:
            told = f"the batch size {shape[0]}, not {count[0]}" if shape and count else "no batch size"
            raise InvalidArgumentError(f"output '{name}' has {told}", hint=f"ask with '{_INPUTS}'")
    if len(outputs) == 1:
        return orjson.dumps({"predictions": _alone_or_all(outputs)}, option=_NUMPY)
    rows = [{name: output[i] for name, output in outputs.items()} for i in range(count[0])]
    return orjson.dumps({"predictions": rows}, option=_NUMPY)


def decode_examples(body: bytes) -> ExamplesCall:
    """The Examples of *body*; InvalidArgumentError if it is malformed."""
    document = json_object(body)
    described = optional(document, "examples", list)
    if not described:
        raise InvalidArgumentError("'examples' is no list that has elements")
    # Fields of a message that is there twice are merged: those of the example come last and count.
    context = _example("context", document["context"]) if "context" in document else b""
    examples = [context + _example(f"examples[{i}]", each) for i, each in enumerate(described)]
    return ExamplesCall(optional(document, "signature_name", str) or "", examples)


def encode_classes(results: list[list[tuple[str, object]]]) -> bytes:
    """The body with the labels and scores of each example."""
    told = [[[label, _number(score)] for label, score in classes] for classes in results]
    return orjson.dumps({"results": told}, option=_NUMPY)


def encode_values(values: Array) -> bytes:
    """The body with the value of each example."""
    return orjson.dumps({"results": [_number(value) for value in values]}, option=_NUMPY)


def _spec(model: Model, name: str) -> TensorSpec:
    spec = model.signature.inputs.get(name)
    if spec is None:
        known = ", ".join(model.signature.inputs) or "none"
        raise InvalidArgumentError(f"JSON object: does not have named input: {name}", hint=f"the inputs are: {known}")
    return spec


def _by_name(model: Model, value: object) -> Mapping[str, object]:
    """The values of inputs by name; *value* is that, or the value of the only one."""
    if isinstance(value, dict) and not _is_base64(value):
        return value
    return {_only_input(model): value}


def _columns(model: Model, instances: object) -> Mapping[str, list[object]]:
    """The lists of the values of each input, by name, of *instances*."""
    if type(instances) is not list or not instances:
        raise InvalidArgumentError(f"'{_INSTANCES}' is no list that has elements")
    are_objects = [isinstance(each, dict) and not _is_base64(each) for each in instances]
    if not any(are_objects):
        return {_only_input(model): instances}
    names = instances[0].keys() if are_objects[0] else ()
    for i, each in enumerate(instances):
        if not are_objects[i] or each.keys() != names:
            raise InvalidArgumentError(f"'{_INSTANCES}[{i}]' has not the names of the first: {', '.join(names)}")
    return {name: [each[name] for each in instances] for name in names}


def _only_input(model: Model) -> str:
    names = list(model.signature.inputs)
    if len(names) != 1:
        raise InvalidArgumentError(
            f"a plain value is for a model with one input, but '{model.name}' has: {', '.join(names) or 'none'}",
            hint="give an object of values by name",
        )
    return names[0]


def _tensor(spec: TensorSpec, value: Any) -> InferTensor:
    """*value*, nested lists, as a tensor for *spec*."""
    shape, first = [], value
    while type(first) is list:
        shape.append(len(first))
        first = first[0] if first else None
    flat = [value]
    for level, size in enumerate(shape):
        for each in flat:
            if type(each) is not list or len(each) != size:
                found = f"a list of {len(each)}" if type(each) is list else "no list"
                raise InvalidArgumentError(f"input '{spec.name}' has {found} at level {level}, expected {size} values")
        flat = list(chain.from_iterable(flat))
    if spec.datatype == "BYTES":
        flat = [_string(spec.name, each) for each in flat]
    if spec.datatype in _HALVES:
        wide = from_json(spec.name, "FP32", shape, flat)
        with np.errstate(over="ignore"):
            return InferTensor(spec.datatype, wide.astype(dtype_of(spec.datatype, spec.name).as_numpy_dtype))
    return InferTensor(spec.datatype, from_json(spec.name, spec.datatype, shape, flat))


def _is_base64(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {_B64} and isinstance(value[_B64], str)


def _string(name: str, value: Any) -> object:
    """*value*, or the bytes that it is in base64."""
    if not _is_base64(value):
        return value
    try:
        return base64.b64decode(value[_B64], validate=True)
    except ValueError:  # binascii.Error is one
        raise InvalidArgumentError(f"a value of '{name}' is no base64") from None


def _example(where: str, features: object) -> bytes:
    """The serialized Example that has *features*, values or lists of them by name."""
    if type(features) is not dict:
        raise InvalidArgumentError(f"'{where}' is no object")
    example = message("Example")()
    for name, value in features.items():
        values = value if type(value) is list else [value]
        feature = example.features.feature[name]
        for each in values:
            kind, item = _feature_value(f"{where}.{name}", each)
            if feature.WhichOneof("kind") not in (None, kind):
                raise InvalidArgumentError(f"'{where}.{name}' has values of more than one type")
            getattr(feature, kind).value.append(item)
    data: bytes = example.SerializeToString(deterministic=True)
    return data


def _feature_value(where: str, value: object) -> tuple[str, object]:
    """The field of a Feature for *value*, and what to put there."""
    value = _string(where, value)
    if isinstance(value, (str, bytes)):
        return "bytes_list", as_bytes(value)
    if isinstance(value, float):
        return "float_list", value
    if isinstance(value, int) and value <= _INT64.max:
        return "int64_list", int(value)
    raise InvalidArgumentError(f"'{where}' has a value that is no string, float, int64 or boolean")


def _encodable(name: str, tensor: InferTensor) -> Any:
    """What orjson writes as nested lists, in which no digit is added to a float32."""
    array = tensor.array
    if tensor.datatype == "BYTES":
        return _nested([_text(as_bytes(each), is_text=not name.endswith(_BYTES_SUFFIX)) for each in array.flat], array)
    if tensor.datatype in _HALVES:
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return _nested([_number(each) for each in array.flat], array)
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _text(value: bytes, *, is_text: bool) -> object:
    if is_text:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {_B64: base64.b64encode(value).decode()}


def _number(value: Any) -> object:
    """*value*, or TensorFlow Serving's word for what is no number of JSON."""
    if np.isfinite(value):
        return value
    return orjson.Fragment(b"NaN" if np.isnan(value) else b"Infinity" if value > 0 else b"-Infinity")


def _nested(flat: list[object], array: Array) -> object:
    """*flat* as lists that are nested like *array*."""
    objects = np.empty(array.size, object)
    objects[:] = flat
    return objects.reshape(array.shape).tolist()


def _alone_or_all(outputs: dict[str, object]) -> object:
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
