"""Bodies of calls over HTTP <-> InferRequest and InferResponse.

A body is JSON, or JSON and the raw tensors after it in the order of the inputs or outputs: the header
``Inference-Header-Content-Length`` says how long the JSON is.  With "0" there the body is the only input, raw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import orjson

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.datatypes import dtype_of, from_json, from_raw, to_json, to_raw
from asyncexec.service.models.model import Model
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import (
    NO_PARAMETERS,
    InferRequest,
    InferResponse,
    InferTensor,
    OutputOptions,
    Parameter,
    SharedInput,
)
from asyncexec.service.tensor_parameters import output_options, parameters_of_part, shared_part

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

T = TypeVar("T")

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
# Nothing else runs while JSON is parsed, and it may become 30 times as large: lists without elements do.
MAX_JSON_BYTES: Final = 16 * 2**20

_MOST_DIGITS: Final = 18
_OF_PARAMETERS: Final = (str, int, bool, float)
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class InferCall(NamedTuple):
    """What a body asks for.

    Attributes:
        request: of the model.
        is_binary_by_default: whether outputs are sent raw of which nothing is said.
        is_binary: the same of each output of which something is said.
    """

    request: InferRequest
    is_binary_by_default: bool = False
    is_binary: Mapping[str, bool] = {}


class EncodedResponse(NamedTuple):
    """A body, and how long the JSON in it is; None where it is nothing else."""

    content: bytes
    header_length: int | None


def decode_infer(model: Model, version: str, body: bytes, header_length: str | None) -> InferCall:
    """What *body*, sent to the *version* of *model*, asks for.

    Args:
        header_length: what the client says of the length of the JSON, if it does.

    Raises:
        InvalidArgumentError: it is malformed.
    """
    length = _header_length(header_length, len(body))
    if length == 0:
        return _decode_only_input(model, version, body)
    document = json_object(body if length == len(body) else memoryview(body)[:length])
    parameters: dict[str, Parameter] = {}
    is_binary_by_default = False
    if document.get("parameters") is not None:
        parameters = _parameters(document, "")
        is_binary_by_default = optional(parameters, "binary_data_output", bool, "parameters") or False
        parameters.pop("binary_data_output", None)
    outputs = optional(document, "outputs", list)
    options: dict[str, OutputOptions] = {}
    wanted = _outputs(outputs, options, is_binary_by_default=is_binary_by_default) if outputs else {}
    shared: dict[str, SharedInput] = {}
    request = InferRequest(
        model.name,
        _inputs(_required(document, "inputs", list), memoryview(body)[length:], shared),
        list(wanted) or None,
        version,
        optional(document, "id", str) or "",
        parameters or NO_PARAMETERS,
        shared or None,
        options or None,
    )
    return InferCall(request, is_binary_by_default, wanted)


def encode_infer(call: InferCall, response: InferResponse) -> EncodedResponse:
    """The body that answers *call*; InvalidArgumentError where an output has to be binary and is not to be."""
    outputs: list[dict[str, object]] = []
    raw: list[bytes] = []
    about = _about(response)
    about["outputs"] = outputs
    _, is_binary_by_default, is_binary = call
    for name, (datatype, array, part) in response.outputs.items():
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": array.shape}
        outputs.append(output)
        if part is not None:
            output["parameters"] = parameters_of_part(part)
        elif is_binary.get(name, is_binary_by_default):
            data = to_raw(array)
            raw.append(data)
            output["parameters"] = {"binary_data_size": len(data)}
        else:
            output["data"] = to_json(name, array)
    head = orjson.dumps(about)
    return EncodedResponse(b"".join((head, *raw)), len(head)) if raw else EncodedResponse(head, None)


def decode_generate(model: Model, version: str, body: bytes) -> InferRequest:
    """What *body*, an object of inputs and parameters by name, asks for; InvalidArgumentError if it is malformed."""
    document, specs = json_object(body), model.signature.inputs
    about = {"id", "parameters"} - set(specs)
    call_id = optional(document, "id", str) if "id" in about else None
    nested = optional(document, "parameters", dict) if "parameters" in about else None
    inputs: dict[str, InferTensor] = {}
    parameters: dict[str, Parameter] = {}
    for name, value in chain(document.items(), (nested or {}).items()):
        if name in inputs:
            raise InvalidArgumentError(f"input '{name}' is there twice")
        if name in specs:
            inputs[name] = _generate_input(model, specs[name], value)
        elif name not in about:
            parameters[name] = _parameter(value, name)
    return InferRequest(model.name, inputs, None, version, call_id or "", parameters)


def encode_generate(response: InferResponse) -> bytes:
    """The outputs of *response* by name: an element where there is one, and else a flat list."""
    outputs = {name: to_json(name, tensor.array) for name, tensor in response.outputs.items()}
    told = {name: data[0] if len(data) == 1 else data for name, data in outputs.items()}
    return orjson.dumps({**_about(response), **told})


def json_object(body: bytes | memoryview) -> dict[str, Any]:
    """The object that *body* is as JSON; InvalidArgumentError where it is none."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"the request is no JSON: {error}") from None
    return _checked(document, dict, "the request")


def optional(owner: Mapping[str, object], key: str, kind: type[T], where: str = "") -> T | None:
    """What *owner* has at *key*, if anything; InvalidArgumentError, saying *where*, if that is of another kind."""
    value = owner.get(key)
    if value is None or type(value) is kind:
        return value
    return _checked(value, kind, _path(where, key))


def _about(response: InferResponse) -> dict[str, object]:
    about: dict[str, Any] = {"model_name": response.model_name, "model_version": response.model_version}
    if response.id:
        about["id"] = response.id
    if response.parameters:
        about["parameters"] = dict(response.parameters)
    return about


def _header_length(told: str | None, num_bytes: int) -> int:
    if told is None:
        if num_bytes > MAX_JSON_BYTES:
            raise InvalidArgumentError(f"the request has {num_bytes} bytes, and JSON has at most {MAX_JSON_BYTES}")
        return num_bytes or 1  # an empty body is no JSON, and no raw input
    if not told.isdecimal() or len(told) > _MOST_DIGITS or int(told) > num_bytes:
        raise InvalidArgumentError(f"{HEADER_LENGTH} is '{told}', and the body has {num_bytes} bytes")
    if int(told) > MAX_JSON_BYTES:
        raise InvalidArgumentError(f"{HEADER_LENGTH} is {told}, and JSON has at most {MAX_JSON_BYTES} bytes")
    return int(told)


def _inputs(described: Sequence[Any], data: memoryview, shared: dict[str, SharedInput]) -> dict[str, InferTensor]:
    """The inputs by name; *data* is what follows the JSON.  Those in shared memory are put into *shared*."""
    inputs: dict[str, InferTensor] = {}
    place = 0
    for i, each in enumerate(described):
        if type(each) is not dict:
            _checked(each, dict, f"inputs[{i}]")
        name, datatype, shape = each.get("name"), each.get("datatype"), each.get("shape")
        if not (type(name) is str and type(datatype) is str and type(shape) is list):
            _check_described(each, f"inputs[{i}]")
        if name in inputs or name in shared:
            raise InvalidArgumentError(f"input '{name}' is there twice")
        size = None
        if each.get("parameters") is not None:
            where = f"inputs[{i}]"
            parameters = _parameters(each, where)
            size = parameters.get("binary_data_size")
            if size is not None:
                _check_binary_data_size(each, size, where)
            if (part := shared_part(name, parameters)) is not None:
                if size is not None or each.get("data") is not None:
                    raise InvalidArgumentError(f"'{where}' has data, and names shared memory")
                shared[name] = SharedInput(datatype, shape, part)
                continue
        if size is None:
            elements = each.get("data")
            if type(elements) is not list:
                _required(each, "data", list, f"inputs[{i}]")
            array = from_json(name, datatype, shape, elements)
        elif 0 <= size <= len(data) - place:
            array = _aligned(from_raw(name, datatype, shape, data[place : place + size]))
            place += size
        else:
            raise InvalidArgumentError(
                f"input '{name}' has binary_data_size {size}, and {len(data) - place} bytes of binary data are left"
            )
        inputs[name] = InferTensor(datatype, array)
    if place < len(data):
        raise InvalidArgumentError(f"{len(data) - place} bytes of binary data are left after all inputs")
    return inputs


def _check_described(each: dict[str, object], where: str) -> None:
    """InvalidArgumentError where *each*, an input, has no name, datatype or shape, or one of another kind."""
    _required(each, "name", str, where)
    _required(each, "datatype", str, where)
    _required(each, "shape", list, where)


def _check_binary_data_size(each: dict[str, object], size: object, where: str) -> None:
    if type(size) is not int:
        _checked(size, int, f"{where}.parameters.binary_data_size")
    if each.get("data") is not None:
        raise InvalidArgumentError(f"'{where}' has both 'data' and binary data")


def _outputs(
    described: Sequence[Any], options: dict[str, OutputOptions], *, is_binary_by_default: bool
) -> dict[str, bool]:
    """The names of the outputs that are wanted, and whether each is to be binary; how else goes into *options*."""
    outputs: dict[str, bool] = {}
    for i, each in enumerate(described):
        where = f"outputs[{i}]"
        name = _required(_checked(each, dict, where), "name", str, where)
        if name in outputs:
            raise InvalidArgumentError(f"output '{name}' already exists in request")
        parameters = _parameters(each, where)
        if parameters and (found := output_options(name, parameters)) is not None:
            options[name] = found
        is_binary = optional(parameters, "binary_data", bool, f"{where}.parameters")
        outputs[name] = is_binary_by_default if is_binary is None else is_binary
    return outputs


def _parameters(owner: dict[str, Any], where: str) -> dict[str, Any]:
    """The parameters of *owner*, which is at *where*."""
    found: dict[str, object] | None = owner.get("parameters")
    if found is None:
        return {}
    if type(found) is not dict:
        _checked(found, dict, _path(where, "parameters"))
    for name, value in found.items():
        if type(value) not in _OF_PARAMETERS:
            _parameter(value, f"{_path(where, 'parameters')}.{name}")
    return found


def _parameter(value: object, where: str) -> Any:
    if type(value) not in _OF_PARAMETERS:
        raise InvalidArgumentError(f"'{where}' is {_KINDS[type(value)]}, not a boolean, a number or a string")
    return value


def _generate_input(model: Model, spec: TensorSpec, value: object) -> InferTensor:
    data = value if isinstance(value, list) else [value]
    if any(isinstance(item, (list, dict)) for item in data):
        raise InvalidArgumentError(f"input '{spec.name}' is neither an element nor a flat list of them")
    shape = _deduced_shape(model, spec, len(data))
    return InferTensor(spec.datatype, from_json(spec.name, spec.datatype, shape, data))


def _decode_only_input(model: Model, version: str, body: bytes) -> InferCall:
    specs = list(model.signature.inputs.values())
    if len(specs) != 1:
        raise InvalidArgumentError(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(specs)} inputs in "
            f"'{model.name}' model configuration"
        )
    spec = specs[0]
    if spec.datatype == "BYTES":  # the body is one element, without a length before it
        array = from_json(spec.name, spec.datatype, _deduced_shape(model, spec, 1), [body])
    else:
        item_bytes = dtype_of(spec.datatype, spec.name).as_numpy_dtype.itemsize
        shape = _deduced_shape(model, spec, len(body) // item_bytes)
        array = from_raw(spec.name, spec.datatype, shape, body)
    request = InferRequest(model.name, {spec.name: InferTensor(spec.datatype, array)}, None, version)
    return InferCall(request, is_binary_by_default=True)


def _deduced_shape(model: Model, spec: TensorSpec, count: int) -> list[int]:
    """The shape of *count* elements for *spec*: what is not known of it is a batch of one, or follows from *count*."""
    if spec.shape is None:
        return [count]
    shape = list(spec.shape)
    if model.config.max_batch_size > 0 and shape.count(-1) > 1 and shape[0] == -1:
        shape[0] = 1
    if shape.count(-1) > 1:
        raise InvalidArgumentError(
            f"The shape of the raw input '{spec.name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        )
    if -1 in shape:
        known = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = -(-count // known) if known else 0  # rounded up: what is missing is told then
    return shape


def _aligned(array: Array) -> Array:
    """*array*, copied where its elements do not lie as native code expects them: the JSON before it has any length."""
    return array if array.flags.aligned else array.copy()


def _required(owner: dict[str, object], key: str, kind: type[T], where: str = "") -> T:
    value = owner.get(key)
    if type(value) is kind:
        return value
    if value is None:
        raise InvalidArgumentError(f"'{_path(where, key)}' is missing")
    return _checked(value, kind, _path(where, key))


def _checked(value: object, kind: type[T], where: str) -> T:
    if type(value) is not kind:
        raise InvalidArgumentError(f"'{where}' is {_KINDS[type(value)]}, not {_KINDS[kind]}")
    return value


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
